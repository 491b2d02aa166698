//! The shutdown for crash tests: what each of its modes keeps, that nothing works after it, and who may ask for it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use oncefs_system_tests::sys::Mapping;
use oncefs_system_tests::{Mount, bytes, sys};

/// `XFS_IOC_GOINGDOWN`, and the same as an `_IOW`.
const GOING_DOWN: libc::c_ulong = 0x8004_587d;
const GOING_DOWN_WITH_FLAGS: libc::c_ulong = 0x4004_587d;
const FLUSH: u32 = 0;
const LOG_FLUSH: u32 = 1;
const NO_LOG_FLUSH: u32 = 2;

fn shut_down(dir: &Path, command: libc::c_ulong, mut flags: u32) -> io::Result<()> {
    let dir = File::open(dir)?;
    // SAFETY: the descriptor is open and the argument a number that outlives the call.
    match unsafe { libc::ioctl(dir.as_raw_fd(), command, &raw mut flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn assert_fails<T: std::fmt::Debug>(what: &str, result: io::Result<T>) {
    let error = result.expect_err(what);
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{what}: {error}");
}

/// Writes one file that is synced and one that is not, and shuts down. Says whether the second is there after a mount.
fn survives(command: libc::c_ulong, flags: u32) -> bool {
    let mut mount = Mount::new("256M");
    let (synced, written) = (mount.join("synced"), mount.join("written"));
    fs::write(&synced, bytes(1, 1 << 20)).unwrap();
    File::open(&synced).unwrap().sync_all().unwrap();
    fs::write(&written, bytes(2, 1 << 20)).unwrap();
    let open = File::options().write(true).open(&synced).unwrap();
    shut_down(&mount.dir(), command, flags).unwrap();

    assert_fails("creating", File::create(mount.join("new")));
    assert_fails("opening", File::open(&synced));
    assert_fails("removing", fs::remove_file(&synced));
    assert_fails("renaming", fs::rename(&synced, mount.join("other")));
    assert_fails("listing", fs::read_dir(mount.dir()).and_then(|mut entries| entries.next().unwrap()));
    assert_fails("reserving", sys::fallocate(&open, 0, 0, 8 << 20));
    assert_fails("truncating", open.set_len(5));
    assert_fails("syncing", open.sync_all());
    assert_fails("setting an attribute", sys::set_xattr(&synced, "user.a", b"1"));
    assert_fails("shutting down again", shut_down(&mount.dir(), command, flags));
    drop(open);
    mount.remount();
    assert!(fs::read(&synced).unwrap() == bytes(1, 1 << 20), "what was acknowledged");
    let is_there = fs::read(&written).is_ok_and(|content| content == bytes(2, 1 << 20));
    mount.check();
    is_there
}

#[test]
fn a_shutdown_keeps_what_its_flags_say_and_answers_nothing_until_it_is_unmounted() {
    assert!(survives(GOING_DOWN_WITH_FLAGS, FLUSH), "everything is flushed");
    assert!(survives(GOING_DOWN_WITH_FLAGS, LOG_FLUSH), "what close(2) brought to the daemon is flushed");
    assert!(!survives(GOING_DOWN_WITH_FLAGS, NO_LOG_FLUSH), "nothing is flushed");
    assert!(!survives(GOING_DOWN, FLUSH), "without its argument it says that nothing is flushed");
}

#[test]
fn close_tells_what_handing_over_the_pages_met_and_fsync_the_rest() {
    let mount = Mount::new("256M");
    let [dirty, written] = ["dirty", "written"]
        .map(|name| File::options().read(true).write(true).create_new(true).open(mount.join(name)).unwrap());
    (&written).write_all(&bytes(1, 1 << 20)).unwrap();
    let copy = written.try_clone().unwrap();
    assert_eq!(close(written), 0, "its pages were taken");
    (&dirty).write_all(&bytes(2, 1 << 20)).unwrap();
    let mut mapping = Mapping::new(&dirty, 1 << 20, libc::MAP_SHARED).unwrap();
    mapping.bytes()[0] = 1;
    shut_down(&mount.dir(), GOING_DOWN_WITH_FLAGS, NO_LOG_FLUSH).unwrap();
    // The kernel may have handed over every page by now, because a test beside this one syncs. This page it cannot.
    mapping.bytes()[0] = 2;
    drop(mapping);
    assert_eq!(close(dirty), libc::EIO, "pages were left to hand over");
    assert_fails("syncing", copy.sync_all());
    assert_eq!(close(copy), 0, "it had nothing to hand over, and fsync has told the rest");
}

/// close(2), and what it tells.
fn close(file: File) -> i32 {
    // SAFETY: the descriptor is the file's, which no longer closes it.
    if unsafe { libc::close(file.into_raw_fd()) } == 0 { 0 } else { sys::last_errno() }
}

#[test]
fn only_root_shuts_a_mount_down() {
    let mount = Mount::new("64M");
    fs::set_permissions(mount.dir().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    for command in [GOING_DOWN, GOING_DOWN_WITH_FLAGS] {
        let refused = sys::in_child(|| {
            // SAFETY: a plain system call in a child with one thread.
            assert_eq!(unsafe { libc::setuid(1000) }, 0);
            sys::errno(shut_down(&mount.dir(), command, NO_LOG_FLUSH))
        });
        assert_eq!(refused, libc::EPERM);
    }
    assert_eq!(sys::errno(shut_down(&mount.dir(), GOING_DOWN_WITH_FLAGS, 3)), libc::ENOTTY);
    fs::write(mount.join("file"), b"still there").unwrap();
}
