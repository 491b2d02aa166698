//! Who makes a request, and what fuser 0.18 does not pass on.

use fuser::Request;
use oncefs_fs::Caller;

pub(crate) fn caller(req: &Request, umask: u32) -> Caller {
    Caller { uid: req.uid(), gid: req.gid(), umask }
}

/// Whether the caller loses set-user-id and set-group-id of what it changes. The kernel decides by CAP_FSETID and
/// says so in WRITE; where fuser 0.18 does not pass its word on, root is taken to have that capability.
pub(crate) fn drops_privileges(req: &Request) -> bool {
    req.uid() != 0
}

/// Whether a thread has `gid` among its supplementary groups.
pub(crate) fn is_in_group(thread: u32, gid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().any(|group| group.parse() == Ok(gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_in_its_supplementary_groups_and_in_no_other() {
        let mut groups = [0; 256];
        // SAFETY: `groups` has room for as many groups as are announced.
        let count = unsafe { libc::getgroups(groups.len() as i32, groups.as_mut_ptr()) };
        let groups = &groups[..usize::try_from(count).unwrap()];
        assert!(groups.iter().all(|group| is_in_group(std::process::id(), *group)));
        let other = (0..).find(|group| !groups.contains(group)).unwrap();
        assert!(!is_in_group(std::process::id(), other));
        assert!(!is_in_group(u32::MAX, 0), "no such thread");
    }
}
