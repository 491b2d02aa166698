//! Whom a file's privileges (set-user-id, set-group-id, capabilities) survive. The kernel knows it all; here is what
//! fuser 0.18 does not pass on of it, and what the kernel asks before it has checked who calls.

use fuser::Request;
use oncefs_fs::{Attributes, FileSystem, Ino, Privileges, Result};

/// The attribute that holds a program's capabilities.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
/// Numbers of the kernel's capabilities (capabilities(7)).
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_LINUX_IMMUTABLE: u32 = 9;
const CAP_SYS_ADMIN: u32 = 21;

/// What a change by this caller leaves of a file's privileges, if it drops any.
pub(crate) fn privileges_left(file_system: &FileSystem, req: &Request, ino: Ino, drops: bool) -> Privileges {
    match drops {
        false => Privileges::Kept,
        // An inode that cannot be read cannot be changed either.
        true => Privileges::Dropped { is_group_member: keeps_set_group_id(file_system, req, ino).unwrap_or(false) },
    }
}

/// Whether the caller may set set-group-id on a file of this group. The kernel knows; fuser 0.18 cannot ask it
/// to tell (FUSE_SETXATTR_EXT), so the caller's groups are looked up.
pub(crate) fn keeps_set_group_id(file_system: &FileSystem, req: &Request, ino: Ino) -> Result<bool> {
    let attributes = file_system.getattr(ino)?;
    let is_set = attributes.permissions & libc::S_ISGID != 0;
    Ok(!is_set || req.uid() == 0 || req.gid() == attributes.gid || is_in_group(req.pid(), attributes.gid))
}

/// Whether the kernel may remove a file's capabilities in the name of this caller. It does so before a write, and in
/// chown(2) before it has checked who calls: whoever cannot write the file must not take them.
pub(crate) fn may_take_capability(file_system: &FileSystem, req: &Request, ino: Ino) -> bool {
    file_system.getattr(ino).is_ok_and(|attributes| may_write(req, &attributes))
}

/// The names of attributes, each followed by a NUL byte, that the caller may know of: those of `trusted.` are for
/// CAP_SYS_ADMIN, as xattr(7) says. The kernel checks who reads one, and leaves it to the file system who sees its name.
pub(crate) fn names_shown_to(req: &Request, names: Vec<u8>) -> Vec<u8> {
    if req.uid() == 0 || has_capability(req.pid(), CAP_SYS_ADMIN) {
        return names;
    }
    without_trusted(&names)
}

/// Whether the caller may shut the mount down: root of the machine with CAP_SYS_ADMIN. Root of a user namespace is
/// another user to the kernel, which says so in the request.
pub(crate) fn may_shut_down(req: &Request) -> bool {
    req.uid() == 0 && has_capability(req.pid(), CAP_SYS_ADMIN)
}

/// Whether the caller may make a file immutable or append-only, or end that.
pub(crate) fn may_set_immutable(req: &Request) -> bool {
    has_capability(req.pid(), CAP_LINUX_IMMUTABLE)
}

fn without_trusted(names: &[u8]) -> Vec<u8> {
    names.split_inclusive(|byte| *byte == 0).filter(|name| !name.starts_with(b"trusted.")).flatten().copied().collect()
}

/// Whether the caller loses set-user-id and set-group-id of what it changes. The kernel decides by CAP_FSETID and
/// says so in WRITE; where fuser 0.18 does not pass its word on, root is taken to have that capability.
pub(crate) fn lacks_fsetid(req: &Request) -> bool {
    req.uid() != 0
}

/// Whether the caller may write a file, by its owner and its bits. Where group and others may write, an access control
/// list may say no: it is not asked, and the answer is yes.
fn may_write(req: &Request, file: &Attributes) -> bool {
    let (group, others) = (libc::S_IWGRP, libc::S_IWOTH);
    [0, file.uid].contains(&req.uid())
        || file.permissions & (group | others) != 0
        || has_capability(req.pid(), CAP_DAC_OVERRIDE)
}

/// Whether a thread has one of the kernel's capabilities in its effective set. Who makes a user namespace has all of them
/// in it, and none over this mount: so the thread's users must be the daemon's own.
fn has_capability(thread: u32, bit: u32) -> bool {
    let users = |of: &str| std::fs::read_to_string(format!("/proc/{of}/uid_map")).ok();
    if users("self").is_none_or(|ours| users(&thread.to_string()) != Some(ours)) {
        return false;
    }
    let effective = status_of(thread, "CapEff:");
    u64::from_str_radix(effective.trim(), 16).is_ok_and(|capabilities| capabilities & (1 << bit) != 0)
}

/// A line of what the kernel says of a thread, without its name. Empty: there is no such line, or no such thread.
fn status_of(thread: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
}

/// Whether a thread has `gid` among its supplementary groups.
fn is_in_group(thread: u32, gid: u32) -> bool {
    let groups = status_of(thread, "Groups:");
    groups.split_whitespace().any(|group| group.parse() == Ok(gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_trusted_are_left_out_and_no_others() {
        assert_eq!(
            without_trusted(b"user.a\0trusted.b\0security.trusted.c\0trusted.\0"),
            b"user.a\0security.trusted.c\0"
        );
        assert_eq!(without_trusted(b""), b"");
    }

    #[test]
    fn a_capability_is_one_of_this_user_namespace() {
        let mine = status_of(std::process::id(), "CapEff:");
        let mine = u64::from_str_radix(mine.trim(), 16).unwrap();
        assert_eq!(has_capability(std::process::id(), CAP_SYS_ADMIN), mine & (1 << CAP_SYS_ADMIN) != 0);
        assert!(!has_capability(u32::MAX, CAP_SYS_ADMIN), "no such thread");
    }

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
