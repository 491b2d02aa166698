//! A mount whose users and groups are mapped, as containers have it: mount_setattr(2) with MOUNT_ATTR_IDMAP.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use oncefs_system_tests::{Mount, run, sys};

/// `struct mount_attr`.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    users: u64,
}

const IDMAP: u64 = 0x0010_0000;
const OPEN_TREE_CLONE: i32 = 1;
const MOVE_FROM_EMPTY_PATH: i32 = 4;
/// On the mapped mount users are so much lower.
const SHIFT: u32 = 100_000;

/// A user namespace with users and groups from 0 on, which are those from `SHIFT` on outside.
struct Users {
    child: Child,
    namespace: File,
}

impl Users {
    fn new() -> Self {
        let mut child = Command::new("unshare")
            .args(["--user", "sh", "-c", "echo; exec sleep 60"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let of = |name: &str| format!("/proc/{}/{name}", child.id());
        for map in ["uid_map", "gid_map"] {
            File::options()
                .write(true)
                .open(of(map))
                .unwrap()
                .write_all(format!("0 {SHIFT} 65536").as_bytes())
                .unwrap();
        }
        let namespace = File::open(of("ns/user")).unwrap();
        Self { child, namespace }
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A user's commands.
fn user(uid: u32, gid: u32, script: &str, dir: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(dir).uid(uid).gid(gid);
    command
}

fn checked(done: libc::c_long) -> i32 {
    assert!(done >= 0, "{}", std::io::Error::last_os_error());
    i32::try_from(done).unwrap()
}

/// Mounts what is at `from` on `to` once more, with users mapped.
fn mount_mapped(from: &Path, to: &Path, users: &Users) {
    let (from, to, empty) = (sys::c_path(from), sys::c_path(to), c"");
    let namespace = users.namespace.as_raw_fd();
    let attributes = MountAttributes { set: IDMAP, clear: 0, propagation: 0, users: namespace as u64 };
    let (by, bytes) = (libc::AT_FDCWD, size_of::<MountAttributes>());
    // SAFETY: strings and structure outlive the calls; the descriptor that is made has no other owner.
    unsafe {
        let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC;
        let tree = OwnedFd::from_raw_fd(checked(libc::syscall(libc::SYS_open_tree, by, from.as_ptr(), flags)));
        let (tree, path) = (tree.as_raw_fd(), empty.as_ptr());
        checked(libc::syscall(libc::SYS_mount_setattr, tree, path, libc::AT_EMPTY_PATH, &raw const attributes, bytes));
        checked(libc::syscall(libc::SYS_move_mount, tree, path, by, to.as_ptr(), MOVE_FROM_EMPTY_PATH));
    }
}

#[test]
fn users_are_mapped_both_ways_and_privileges_follow_the_mapped_ones() {
    let mut mount = Mount::new("256M");
    let (users, other) = (Users::new(), tempfile::tempdir().unwrap());
    fs::set_permissions(mount.dir(), Permissions::from_mode(0o777)).unwrap();
    let (file, dir) = (mount.join("file"), mount.join("dir"));
    fs::write(&file, "content").unwrap();
    fs::create_dir(&dir).unwrap();
    for path in [&file, &dir] {
        chown(path, Some(5), Some(6)).unwrap();
    }
    fs::set_permissions(other.path(), Permissions::from_mode(0o755)).unwrap();
    mount_mapped(&mount.dir(), other.path(), &users);
    let shown = |path: &Path| path.metadata().map(|found| (found.uid(), found.gid())).unwrap();
    let mapped = |name: &str| other.path().join(name);
    assert_eq!(shown(&mapped("file")), (SHIFT + 5, SHIFT + 6), "what user 5 has is {SHIFT} higher there");

    // Who is so much higher makes files there, and changes its own.
    let script = "echo new > dir/made; mkdir dir/below; echo changed > file; chmod 4755 file";
    run(&mut user(SHIFT + 5, SHIFT + 6, script, other.path()));
    assert_eq!([shown(&dir.join("made")), shown(&dir.join("below")), shown(&file)], [(5, 6); 3]);

    // Root is not mapped there: it makes nothing. What it gives away is given to the user that is meant.
    assert_eq!(sys::errno(fs::write(mapped("roots"), "x")), libc::EOVERFLOW);
    chown(mapped("dir/made"), Some(SHIFT + 7), Some(SHIFT + 8)).unwrap();
    assert_eq!(shown(&dir.join("made")), (7, 8));

    // A stranger's change takes set-user-id, and a list of attributes shows it nothing that is root's.
    fs::set_permissions(&file, Permissions::from_mode(0o4777)).unwrap();
    sys::set_xattr(&file, "user.note", b"anybody's").unwrap();
    sys::set_xattr(&file, "trusted.note", b"root's").unwrap();
    run(&mut user(SHIFT + 99, SHIFT + 99, "fallocate -l 8192 file", other.path()));
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o777, "fallocate by who is not its owner");
    let path = sys::c_path(mapped("file"));
    let names_bytes = || {
        // SAFETY: plain system calls in a child; the string outlives them.
        unsafe {
            assert_eq!(libc::setuid(SHIFT + 99), 0);
            libc::listxattr(path.as_ptr(), std::ptr::null_mut(), 0) as i32
        }
    };
    assert_eq!(sys::in_child(names_bytes), "user.note\0".len() as i32);
    assert_eq!(sys::list_xattr(&file).unwrap().len(), 2, "root of the machine sees both");
    sys::unmount_dead(other.path()).unwrap();
    mount.check();
}
