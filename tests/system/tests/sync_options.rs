//! Changes that are durable before they return: on mounts with `sync` and `dirsync`, and through files opened with O_SYNC
//! or O_DSYNC. Each is made just before the daemon is killed.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};

use oncefs_system_tests::{Mount, bytes, sys, test_dir};

/// Makes a change, kills the daemon, and looks.
type Case = (&'static str, fn(&Mount), fn(&Mount) -> bool);

const NAMES: [Case; 8] = [
    ("create", |mount| drop(File::create(mount.join("new")).unwrap()), |mount| mount.join("new").exists()),
    ("mkdir", |mount| fs::create_dir(mount.join("new")).unwrap(), |mount| mount.join("new").is_dir()),
    (
        "mknod",
        |mount| sys::mknod(&mount.join("new"), libc::S_IFIFO | 0o600, 0).unwrap(),
        |mount| mount.join("new").exists(),
    ),
    ("symlink", |mount| symlink("to", mount.join("new")).unwrap(), |mount| mount.join("new").is_symlink()),
    ("link", |mount| fs::hard_link(mount.join("file"), mount.join("new")).unwrap(), |mount| mount.join("new").exists()),
    ("rename", |mount| fs::rename(mount.join("file"), mount.join("new")).unwrap(), |mount| mount.join("new").exists()),
    ("unlink", |mount| fs::remove_file(mount.join("file")).unwrap(), |mount| !mount.join("file").exists()),
    ("rmdir", |mount| fs::remove_dir(mount.join("dir")).unwrap(), |mount| !mount.join("dir").exists()),
];

const OTHERS: [Case; 6] = [
    (
        "write",
        |mount| fs::write(mount.join("file"), b"new").unwrap(),
        |mount| fs::read(mount.join("file")).unwrap() == b"new",
    ),
    (
        "truncate",
        |mount| open(mount, 0).set_len(5).unwrap(),
        |mount| fs::metadata(mount.join("file")).unwrap().len() == 5,
    ),
    (
        "chmod",
        |mount| fs::set_permissions(mount.join("file"), Permissions::from_mode(0o640)).unwrap(),
        |mount| fs::metadata(mount.join("file")).unwrap().mode() & 0o7777 == 0o640,
    ),
    (
        "setxattr",
        |mount| sys::set_xattr(&mount.join("file"), "user.new", b"1").unwrap(),
        |mount| sys::get_xattr(&mount.join("file"), "user.new").is_ok(),
    ),
    ("fallocate", |mount| allocate(&open(mount, 0)), is_allocated),
    ("copy_file_range", |mount| copy(mount, &open(mount, 0)), is_copied),
];

const BY_HANDLE: [Case; 4] = [
    ("fallocate, O_SYNC", |mount| allocate(&open(mount, libc::O_SYNC)), is_allocated),
    ("fallocate, O_DSYNC", |mount| allocate(&open(mount, libc::O_DSYNC)), is_allocated),
    ("copy_file_range, O_SYNC", |mount| copy(mount, &open(mount, libc::O_SYNC)), is_copied),
    ("copy_file_range, O_DSYNC", |mount| copy(mount, &open(mount, libc::O_DSYNC)), is_copied),
];

fn open(mount: &Mount, flags: i32) -> File {
    File::options().write(true).custom_flags(flags).open(mount.join("file")).unwrap()
}

fn allocate(file: &File) {
    sys::fallocate(file, 0, 0, 1 << 20).unwrap();
}

fn is_allocated(mount: &Mount) -> bool {
    fs::metadata(mount.join("file")).unwrap().len() == 1 << 20
}

fn copy(mount: &Mount, to: &File) {
    sys::copy_range_all(&File::open(mount.join("source")).unwrap(), 0, to, 0, 1 << 16).unwrap();
}

fn is_copied(mount: &Mount) -> bool {
    fs::read(mount.join("file")).unwrap() == bytes(2, 1 << 16)
}

/// The changes that a crash right after them takes.
fn lost(options: &[&str], cases: &[Case]) -> Vec<&'static str> {
    let mut mount = Mount::on(&test_dir(), "256M", options);
    let mut lost = Vec::new();
    for (what, change, is_there) in cases {
        for name in ["new", "file"] {
            let _ = fs::remove_file(mount.join(name));
            let _ = fs::remove_dir(mount.join(name));
        }
        fs::write(mount.join("file"), bytes(1, 4096)).unwrap();
        fs::write(mount.join("source"), bytes(2, 1 << 16)).unwrap();
        let _ = fs::create_dir(mount.join("dir"));
        File::open(mount.join("source")).unwrap().sync_all().unwrap();
        change(&mount);
        mount.crash();
        if !is_there(&mount) {
            lost.push(*what);
        }
    }
    lost
}

#[test]
fn with_sync_every_change_survives_a_crash_that_follows_at_once() {
    assert_eq!(lost(&["sync"], &[&NAMES[..], &OTHERS].concat()), [""; 0]);
}

#[test]
fn with_dirsync_every_name_survives_a_crash_that_follows_at_once() {
    assert_eq!(lost(&["dirsync"], &NAMES), [""; 0]);
}

#[test]
fn o_sync_and_o_dsync_cover_reservations_and_copies() {
    assert_eq!(lost(&[], &BY_HANDLE), [""; 0]);
}
