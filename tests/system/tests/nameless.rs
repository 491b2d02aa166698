//! Files without a name (O_TMPFILE), and the time of birth.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

use oncefs_system_tests::{Mount, bytes, sys};

fn nameless(dir: &Path, flags: i32) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE | flags).mode(0o640).open(dir).unwrap()
}

/// The errno of giving an open file a name.
fn link(file: &File, to: &Path) -> i32 {
    let of = sys::c_path(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let to = sys::c_path(to);
    // SAFETY: both strings outlive the call.
    let done =
        unsafe { libc::linkat(libc::AT_FDCWD, of.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if done == 0 { 0 } else { sys::last_errno() }
}

#[test]
fn a_file_without_a_name_gets_one_and_survives_a_crash_from_then_on() {
    let mut mount = Mount::new("256M");
    let file = nameless(&mount.dir(), 0);
    (&file).write_all(&bytes(1, 1 << 20)).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(mount.dir()).unwrap().count(), 0);
    let path = mount.join("named");
    assert_eq!(link(&file, &path), 0);
    file.sync_all().unwrap();
    let unlinkable = nameless(&mount.dir(), libc::O_EXCL);
    assert_eq!(link(&unlinkable, &mount.join("other")), libc::ENOENT, "O_EXCL: it is to have no name");
    drop((file, unlinkable));
    mount.crash();
    assert!(fs::read(&path).unwrap() == bytes(1, 1 << 20));
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o640);
    mount.check();
}

#[test]
fn a_file_that_never_had_a_name_gives_its_space_back_when_it_is_closed() {
    let mount = Mount::new("256M");
    let used = mount.figure("space", "stored_bytes");
    let file = nameless(&mount.dir(), 0);
    file.write_all_at(&bytes(2, 8 << 20), 0).unwrap();
    file.sync_all().unwrap();
    assert!(mount.figure("space", "stored_bytes") >= used + (8 << 20));
    drop(file);
    mount.wait_for("space", "stored_bytes", |now| now <= used + (1 << 20));
}

#[test]
fn the_time_of_birth_stays_when_everything_else_changes() {
    let mut mount = Mount::new("256M");
    let before = SystemTime::now() - std::time::Duration::from_millis(20);
    let path = mount.join("file");
    fs::write(&path, "content").unwrap();
    let born = path.metadata().unwrap().created().unwrap();
    assert!((before..=SystemTime::now()).contains(&born), "{born:?}");
    fs::write(&path, "other content").unwrap();
    let then = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000);
    File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    fs::rename(&path, mount.join("moved")).unwrap();
    assert_eq!(mount.join("moved").metadata().unwrap().created().unwrap(), born);
    mount.remount();
    let found = mount.join("moved").metadata().unwrap();
    assert_eq!((found.created().unwrap(), found.modified().unwrap()), (born, then));
}
