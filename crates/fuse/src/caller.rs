//! Who makes a request.

use oncefs_fs::{Caller, Label};
use oncefs_transport::protocol::extensions::Extensions;
use oncefs_transport::protocol::header::InHeader;

/// Who makes an inode: the kernel says who is to own it, by the mount's own numbers.
pub(crate) fn caller<'a>(header: &InHeader, umask: u32, labels: &'a [Label<'a>]) -> Caller<'a> {
    Caller { uid: header.uid, gid: header.gid, umask, labels }
}

/// The labels that the kernel's security modules want a new inode to have. The caller's group that is told with them
/// decides nothing: the kernel has already cleared the set-group-id that the caller may not hand on.
pub(crate) fn labels<'a>(extensions: &Extensions<'a>) -> Vec<Label<'a>> {
    extensions.security_contexts.iter().map(|context| Label { name: context.name, value: context.value }).collect()
}

#[cfg(test)]
mod tests {
    use oncefs_transport::protocol::extensions::SecurityContext;

    use super::*;

    #[test]
    fn labels_are_those_of_the_kernel() {
        let contexts = [("security.selinux", "tmp_t"), ("security.SMACK64", "web")];
        let context = |(name, value): (&'static str, &'static str)| SecurityContext {
            name: name.as_bytes(),
            value: value.as_bytes(),
        };
        let found = Extensions { security_contexts: contexts.map(context).to_vec(), groups: vec![7] };
        let expected = contexts.map(|(name, value)| Label { name: name.as_bytes(), value: value.as_bytes() });
        assert_eq!(labels(&found), expected);
        assert!(labels(&Extensions::default()).is_empty());
    }
}
