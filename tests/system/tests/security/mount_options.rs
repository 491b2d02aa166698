//! Set-user-id programs and device files work as the mount options say, and the kernel shows the options.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use oncefs_system_tests::{Mount, sys};

use super::user::{User, let_everybody_in, mount_for_all, set_mode};

const USER: User = User::new(1000);

/// What the kernel says of a mount.
fn shown(mount: &Mount) -> String {
    let table = fs::read_to_string("/proc/mounts").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(1) == mount.dir().to_str()).unwrap();
    line.split(' ').nth(3).unwrap().to_owned()
}

/// A program that says its effective user id, with set-user-id of root; and /dev/zero.
fn fill(mount: &Mount) {
    let program = mount.join("id");
    fs::copy("/usr/bin/id", &program).unwrap();
    set_mode(&program, 0o4755);
    sys::mknod(&mount.join("zero"), libc::S_IFCHR | 0o666, libc::makedev(1, 5)).unwrap();
    set_mode(&mount.join("zero"), 0o666);
}

/// As whom the program runs when a user starts it; None if it does not start.
fn runs_as(program: &Path) -> Option<String> {
    let said = Command::new(program).arg("-u").uid(USER.uid).gid(USER.gid).output().ok()?;
    Some(String::from_utf8(said.stdout).unwrap().trim().to_owned())
}

#[test]
fn root_mounts_with_what_the_options_say() {
    let mut mount = mount_for_all(&[]);
    fill(&mount);
    assert_eq!(runs_as(&mount.join("id")).as_deref(), Some("0"), "as on every file system that root mounts");
    assert_eq!(USER.opens(&mount.join("zero"), libc::O_RDONLY), 0);
    assert!(!shown(&mount).contains("nosuid") && !shown(&mount).contains("nodev"));
    assert!(shown(&mount).contains("default_permissions,allow_other"), "{}", shown(&mount));

    mount.umount();
    mount.set_options(&["nosuid,nodev"]);
    mount.mount();
    assert_eq!(runs_as(&mount.join("id")).as_deref(), Some("1000"));
    assert_eq!(USER.opens(&mount.join("zero"), libc::O_RDONLY), libc::EACCES);
    assert_eq!(sys::errno(File::open(mount.join("zero"))), libc::EACCES, "not for root either");
    assert!(shown(&mount).contains("nosuid,nodev"), "{}", shown(&mount));

    mount.umount();
    mount.set_options(&["nosuid,suid,noexec"]);
    mount.mount();
    assert_eq!(runs_as(&mount.join("id")), None, "no program starts");
    assert!(shown(&mount).contains("noexec") && !shown(&mount).contains("nosuid"), "{}", shown(&mount));
}

#[test]
fn what_users_may_mount_is_nosuid_nodev_and_noexec() {
    for (option, expected) in [
        ("user", "rw,nosuid,nodev,noexec"),
        ("users", "rw,nosuid,nodev,noexec"),
        ("owner", "rw,nosuid,nodev"),
        ("group", "rw,nosuid,nodev"),
        ("user,exec,suid", "rw,nodev"),
    ] {
        let mount = Mount::on(&oncefs_system_tests::test_dir(), "64M", &[option]);
        let_everybody_in(&mount);
        assert!(shown(&mount).starts_with(&format!("{expected},relatime")), "{option}: {}", shown(&mount));
    }
}

#[test]
fn users_make_no_devices() {
    let mount = mount_for_all(&[]);
    for (kind, name) in [(libc::S_IFCHR, "character"), (libc::S_IFBLK, "block")] {
        let path = sys::c_path(mount.join(name));
        // SAFETY: the string outlives the call.
        let made = || super::user::result(unsafe { libc::mknod(path.as_ptr(), kind | 0o666, libc::makedev(8, 0)) });
        assert_eq!(USER.does(made), libc::EPERM, "{name}");
    }
}
