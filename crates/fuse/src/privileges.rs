//! Permission checks that the kernel leaves to FUSE, and the rules by which a file loses its privileges (set-user-id,
//! set-group-id, capabilities).

use oncefs_fs::{FileSystem, Ino, Privileges, Result};
use oncefs_transport::protocol::header::InHeader;

/// The attribute that holds a program's capabilities.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
/// Numbers of the kernel's capabilities (capabilities(7)).
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_LINUX_IMMUTABLE: u32 = 9;
const CAP_SYS_ADMIN: u32 = 21;
/// The kernel's placeholder for users and groups on an idmapped mount, if the request creates no inode.
const UNTOLD: u32 = u32::MAX;

/// The caller of a request, in the numbers of the daemon's user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    uid: u32,
    gid: u32,
    thread: u32,
}

impl Credentials {
    pub(crate) fn of(header: &InHeader) -> Self {
        Self { uid: header.uid, gid: header.gid, thread: header.pid }
    }

    /// The caller's user. None: the caller is gone, or is not visible to this process.
    fn user(self) -> Option<u32> {
        if self.uid == UNTOLD { effective_of(self.thread, "Uid:") } else { Some(self.uid) }
    }

    fn group(self) -> Option<u32> {
        if self.gid == UNTOLD { effective_of(self.thread, "Gid:") } else { Some(self.gid) }
    }

    fn is_root(self) -> bool {
        self.user() == Some(0)
    }

    /// The privileges that a change leaves to a file. `drops`: the kernel says that the file loses them.
    pub(crate) fn privileges_left(self, file_system: &FileSystem, ino: Ino, drops: bool) -> Privileges {
        match drops {
            false => Privileges::Kept,
            // An inode that cannot be read cannot be changed either.
            true => Privileges::Dropped { is_group_member: self.keeps_set_group_id(file_system, ino).unwrap_or(false) },
        }
    }

    /// The privileges that a change leaves to a file if the kernel does not say whether it loses them. Root counts as
    /// having CAP_FSETID. The caller is looked up only for a file that has such a bit.
    pub(crate) fn privileges_left_untold(self, file_system: &FileSystem, ino: Ino) -> Privileges {
        const SET_IDS: u32 = libc::S_ISUID | libc::S_ISGID;
        let has_any = file_system.getattr(ino).is_ok_and(|attributes| attributes.permissions & SET_IDS != 0);
        self.privileges_left(file_system, ino, has_any && !self.is_root())
    }

    /// Whether the caller may set set-group-id on a file of this group.
    pub(crate) fn keeps_set_group_id(self, file_system: &FileSystem, ino: Ino) -> Result<bool> {
        let attributes = file_system.getattr(ino)?;
        let is_set = attributes.permissions & libc::S_ISGID != 0;
        Ok(!is_set
            || self.is_root()
            || self.group() == Some(attributes.gid)
            || is_in_group(self.thread, attributes.gid))
    }

    /// Whether the kernel may remove a file's capabilities on behalf of this caller. The kernel does so before a write,
    /// and in chown(2) before it has checked the caller. A caller that cannot write the file must not remove them.
    pub(crate) fn may_take_capability(self, file_system: &FileSystem, ino: Ino) -> bool {
        let is_in_group = |group: u32| self.group() == Some(group) || is_in_group(self.thread, group);
        let lets_write = |user: u32| file_system.lets_write(ino, user, is_in_group).unwrap_or(false);
        self.is_root() || self.user().is_some_and(lets_write) || has_capability(self.thread, CAP_DAC_OVERRIDE)
    }

    /// The names of attributes that the caller may see, each followed by a NUL byte. Names in `trusted.` need
    /// CAP_SYS_ADMIN, as xattr(7) says. The kernel checks reads of these attributes, and leaves the visibility of their
    /// names to the file system.
    pub(crate) fn names_shown(self, names: Vec<u8>) -> Vec<u8> {
        let without = without_trusted(&names);
        let is_shown_all = without.len() == names.len() || has_capability(self.thread, CAP_SYS_ADMIN);
        if is_shown_all { names } else { without }
    }

    /// Whether the caller may shut the mount down. It must be root of the machine with CAP_SYS_ADMIN. Root of a user
    /// namespace is another user.
    pub(crate) fn may_shut_down(self) -> bool {
        self.is_root() && has_capability(self.thread, CAP_SYS_ADMIN)
    }

    /// Whether the caller may set and clear the flags immutable and append-only.
    pub(crate) fn may_set_immutable(self) -> bool {
        has_capability(self.thread, CAP_LINUX_IMMUTABLE)
    }
}

fn without_trusted(names: &[u8]) -> Vec<u8> {
    names.split_inclusive(|byte| *byte == 0).filter(|name| !name.starts_with(b"trusted.")).flatten().copied().collect()
}

/// Whether a thread has one of the kernel's capabilities in its effective set. The creator of a user namespace has all
/// of them in that namespace, and none over this mount. So the thread must be in the daemon's own user namespace.
fn has_capability(thread: u32, bit: u32) -> bool {
    let users = |of: &str| std::fs::read_to_string(format!("/proc/{of}/uid_map")).ok();
    if users("self").is_none_or(|ours| users(&thread.to_string()) != Some(ours)) {
        return false;
    }
    let effective = status_of(thread, "CapEff:");
    u64::from_str_radix(effective.trim(), 16).is_ok_and(|capabilities| capabilities & (1 << bit) != 0)
}

/// The value of a line in a thread's status file. Empty: the line or the thread does not exist, or the thread is the
/// kernel's own, such as one that serves NFS. A kernel thread acts for others but shows root's values, so it gets no
/// privileges.
fn status_of(thread: u32, name: &str) -> String {
    let told = |file: &str| std::fs::read_to_string(format!("/proc/{thread}/{file}")).unwrap_or_default();
    if is_kernel_s(&told("stat")) {
        return String::new();
    }
    let status = told("status");
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
}

/// Whether a thread is one of the kernel's, by its `stat` (proc_pid_stat(5)). The name may hold any byte and ends with
/// the last parenthesis. The flags are the seventh field after it.
fn is_kernel_s(stat: &str) -> bool {
    /// `PF_KTHREAD` of linux/sched.h.
    const KERNEL_THREAD: u32 = 0x0020_0000;
    let flags = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(6)?.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

/// The user or group of a thread that counts for files: the last of the four in its status file.
fn effective_of(thread: u32, name: &str) -> Option<u32> {
    status_of(thread, name).split_whitespace().nth(3)?.parse().ok()
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
    fn who_calls_is_looked_up_where_the_kernel_does_not_say() {
        // SAFETY: takes nothing.
        let mine = unsafe { (libc::geteuid(), libc::getegid()) };
        let told = Credentials { uid: 12, gid: 13, thread: std::process::id() };
        assert_eq!((told.user(), told.group()), (Some(12), Some(13)));
        let untold = Credentials { uid: UNTOLD, gid: UNTOLD, ..told };
        assert_eq!((untold.user(), untold.group()), (Some(mine.0), Some(mine.1)));
        let gone = Credentials { thread: u32::MAX, ..untold };
        assert_eq!((gone.user(), gone.group(), gone.is_root()), (None, None, false));
    }

    #[test]
    fn a_thread_of_the_kernel_has_no_privileges_whatever_is_shown_of_it() {
        assert!(is_kernel_s("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0"));
        assert!(is_kernel_s("900 (a) S 1 (nfsd) S 2 0 0 0 -1 2129984 0 0"));
        assert!(!is_kernel_s("3 (bash) S 1 3 3 34816 3 4194304 9") && !is_kernel_s(""));
        // In a PID namespace, thread 2 may be any process.
        if is_kernel_s(&std::fs::read_to_string("/proc/2/stat").unwrap_or_default()) {
            let credentials = Credentials { uid: UNTOLD, gid: UNTOLD, thread: 2 };
            assert_eq!((credentials.user(), credentials.group(), credentials.may_shut_down()), (None, None, false));
            assert!(!credentials.may_set_immutable() && !has_capability(2, CAP_SYS_ADMIN) && !is_in_group(2, 0));
        }
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
