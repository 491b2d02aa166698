//! Other users: child processes with their ids, and the system calls that they make. A call's result is its errno,
//! 0 where it succeeds.

use std::ffi::CStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use oncefs_system_tests::{Mount, sys};

/// A user's ids.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
}

impl User {
    /// A user with a group of its own.
    pub const fn new(uid: u32) -> Self {
        Self { uid, gid: uid, groups: &[] }
    }

    /// The same user with these supplementary groups.
    pub const fn with(self, groups: &'static [u32]) -> Self {
        Self { groups, ..self }
    }

    /// What `work` returns when this user does it.
    pub fn does(&self, work: impl FnOnce() -> i32) -> i32 {
        sys::in_child(|| {
            // SAFETY: plain system calls in a child with one thread.
            unsafe {
                if libc::setgroups(self.groups.len(), self.groups.as_ptr()) != 0
                    || libc::setgid(self.gid) != 0
                    || libc::setuid(self.uid) != 0
                {
                    return 255;
                }
            }
            work()
        })
    }

    /// open(2) without creating anything.
    pub fn opens(&self, path: &Path, flags: i32) -> i32 {
        let path = sys::c_path(path);
        self.does(|| open(&path, flags, 0))
    }

    /// open(2) that creates a file.
    pub fn creates(&self, path: &Path, mode: u32) -> i32 {
        let path = sys::c_path(path);
        self.does(|| open(&path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, mode))
    }

    /// unlink(2).
    pub fn unlinks(&self, path: &Path) -> i32 {
        let path = sys::c_path(path);
        // SAFETY: the string outlives the call; so below.
        self.does(|| result(unsafe { libc::unlink(path.as_ptr()) }))
    }

    /// rename(2).
    pub fn renames(&self, from: &Path, to: &Path) -> i32 {
        let (from, to) = (sys::c_path(from), sys::c_path(to));
        // SAFETY: as above.
        self.does(|| result(unsafe { libc::rename(from.as_ptr(), to.as_ptr()) }))
    }

    /// link(2).
    pub fn links(&self, from: &Path, to: &Path) -> i32 {
        let (from, to) = (sys::c_path(from), sys::c_path(to));
        // SAFETY: as above.
        self.does(|| result(unsafe { libc::link(from.as_ptr(), to.as_ptr()) }))
    }

    /// chmod(2).
    pub fn chmods(&self, path: &Path, mode: u32) -> i32 {
        let path = sys::c_path(path);
        // SAFETY: as above.
        self.does(|| result(unsafe { libc::chmod(path.as_ptr(), mode) }))
    }

    /// chown(2); `u32::MAX` leaves an id as it is.
    pub fn chowns(&self, path: &Path, uid: u32, gid: u32) -> i32 {
        let path = sys::c_path(path);
        // SAFETY: as above.
        self.does(|| result(unsafe { libc::chown(path.as_ptr(), uid, gid) }))
    }

    /// truncate(2).
    pub fn truncates(&self, path: &Path, len: i64) -> i32 {
        let path = sys::c_path(path);
        // SAFETY: as above.
        self.does(|| result(unsafe { libc::truncate(path.as_ptr(), len) }))
    }

    /// access(2).
    pub fn accesses(&self, path: &Path, mode: i32) -> i32 {
        let path = sys::c_path(path);
        // SAFETY: as above.
        self.does(|| result(unsafe { libc::access(path.as_ptr(), mode) }))
    }

    /// utimensat(2) with both times: `UTIME_NOW`, or nanoseconds.
    pub fn sets_times(&self, path: &Path, nanoseconds: i64) -> i32 {
        let path = sys::c_path(path);
        let times = [libc::timespec { tv_sec: 1, tv_nsec: nanoseconds }; 2];
        // SAFETY: as above.
        self.does(|| result(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), 0) }))
    }

    /// lsetxattr(2).
    pub fn sets_xattr(&self, path: &Path, name: &CStr, value: &[u8]) -> i32 {
        let path = sys::c_path(path);
        let set = || {
            // SAFETY: as above.
            result(unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
        };
        self.does(set)
    }

    /// lgetxattr(2).
    pub fn gets_xattr(&self, path: &Path, name: &CStr) -> i32 {
        let path = sys::c_path(path);
        let get = || {
            // SAFETY: as above; asks for the size only.
            let found = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
            if found < 0 { sys::last_errno() } else { 0 }
        };
        self.does(get)
    }

    /// Opens for writing and writes one byte at the beginning, then closes.
    pub fn writes(&self, path: &Path) -> i32 {
        let path = sys::c_path(path);
        self.does(|| {
            // SAFETY: as above.
            unsafe {
                let file = libc::open(path.as_ptr(), libc::O_WRONLY);
                if file == -1 || libc::write(file, b"x".as_ptr().cast(), 1) != 1 {
                    return sys::last_errno();
                }
                result(libc::close(file))
            }
        })
    }
}

/// The errno of a call that returns -1 on an error.
pub fn result(returned: i32) -> i32 {
    if returned == -1 { sys::last_errno() } else { 0 }
}

/// open(2).
pub fn open(path: &CStr, flags: i32, mode: u32) -> i32 {
    // SAFETY: the string outlives the call.
    result(unsafe { libc::open(path.as_ptr(), flags, mode) })
}

/// A mount that every user can get to.
pub fn mount_for_all(options: &[&str]) -> Mount {
    let mount = Mount::on(&oncefs_system_tests::test_dir(), "256M", options);
    let_everybody_in(&mount);
    mount
}

/// Lets every user reach the mount's directory, and change it.
pub fn let_everybody_in(mount: &Mount) {
    set_mode(mount.dir().parent().unwrap(), 0o755);
    set_mode(&mount.dir(), 0o777);
}

/// chmod(2) as root.
pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A file of `user` with this mode.
pub fn file_of(user: User, path: &Path, mode: u32) {
    fs::write(path, "content").unwrap();
    sys::chown(path, user.uid, user.gid).unwrap();
    set_mode(path, mode);
}

/// A directory of `user` with this mode.
pub fn directory_of(user: User, path: &Path, mode: u32) {
    fs::create_dir(path).unwrap();
    sys::chown(path, user.uid, user.gid).unwrap();
    set_mode(path, mode);
}
