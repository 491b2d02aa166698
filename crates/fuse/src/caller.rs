//! The caller of a request.

use oncefs_fs::{Caller, Label};
use oncefs_transport::protocol::extensions::Extensions;
use oncefs_transport::protocol::header::InHeader;

/// The caller that creates an inode. The kernel sends the owner in the mount's own numbers.
pub(crate) fn caller<'a>(header: &InHeader, umask: u32, labels: &'a [Label<'a>]) -> Caller<'a> {
    Caller { uid: header.uid, gid: header.gid, umask, labels }
}

/// The labels that the kernel's security modules want a new inode to have. The caller's group that comes with them is
/// not needed: the kernel has already cleared a set-group-id that the caller may not pass on.
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
