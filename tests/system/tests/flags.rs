//! Immutable and append-only files, set by chattr(1) on a mount, and whiteouts left by rename(2).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use oncefs_system_tests::{Mount, oncefs, sys, test_dir};
use sys::errno;

fn chattr(flags: &str, path: &Path) -> bool {
    Command::new("chattr").arg(flags).arg(path).status().unwrap().success()
}

fn lsattr(path: &Path) -> String {
    let said = Command::new("lsattr").arg("-d").arg(path).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap().split_whitespace().next().unwrap().replace('-', "")
}

fn file(mount: &Mount, name: &str) -> std::path::PathBuf {
    let path = mount.join(name);
    fs::write(&path, "first line\n").unwrap();
    path
}

#[test]
fn an_immutable_file_stays_as_it_is_even_for_root_and_after_a_remount() {
    let mut mount = Mount::new("64M");
    let path = file(&mount, "file");
    assert!(chattr("+i", &path));
    for _ in 0..2 {
        assert_eq!(lsattr(&path), "i");
        assert_eq!(errno(OpenOptions::new().write(true).open(&path)), libc::EPERM);
        assert_eq!(errno(OpenOptions::new().append(true).open(&path)), libc::EPERM);
        assert_eq!(errno(OpenOptions::new().write(true).truncate(true).open(&path)), libc::EPERM);
        assert_eq!(errno(fs::remove_file(&path)), libc::EPERM);
        assert_eq!(errno(fs::rename(&path, mount.join("other"))), libc::EPERM);
        assert_eq!(errno(fs::rename(file(&mount, "beside"), &path)), libc::EPERM);
        assert_eq!(errno(fs::hard_link(&path, mount.join("link"))), libc::EPERM);
        assert_eq!(errno(fs::set_permissions(&path, fs::Permissions::from_mode(0o777))), libc::EPERM);
        assert_eq!(errno(sys::chown(&path, 7, 7)), libc::EPERM);
        assert_eq!(errno(sys::set_xattr(&path, "user.a", b"1")), libc::EPERM);
        assert_eq!(fs::read(&path).unwrap(), b"first line\n");
        mount.remount();
    }
    assert!(chattr("-i", &path));
    fs::remove_file(&path).unwrap();
    mount.check();
}

#[test]
fn a_handle_that_was_open_before_writes_nothing_more() {
    let mut mount = Mount::new("64M");
    let path = file(&mount, "file");
    let handle = OpenOptions::new().write(true).open(&path).unwrap();
    handle.write_all_at(b"FIRST", 0).unwrap();
    assert!(chattr("+i", &path), "what was written before is handed over first");
    let late = handle.write_all_at(b"second", 0).and_then(|()| handle.sync_all());
    assert_eq!(errno(late), libc::EPERM);
    assert_eq!(errno(handle.set_len(3)), libc::EPERM);
    assert_eq!(
        errno(sys::fallocate(&handle, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 4096)),
        libc::EPERM
    );
    drop(handle);
    mount.remount();
    assert_eq!(fs::read(&path).unwrap(), b"FIRST line\n");
    assert!(chattr("-i", &path));
    mount.check();
}

#[test]
fn an_append_only_file_grows_and_keeps_what_it_has() {
    let mut mount = Mount::new("64M");
    let path = file(&mount, "log");
    let before = OpenOptions::new().write(true).open(&path).unwrap();
    assert!(chattr("+a", &path));
    let mut log = OpenOptions::new().append(true).open(&path).unwrap();
    log.write_all(b"second line\n").unwrap();
    log.sync_all().unwrap();
    assert_eq!(errno(OpenOptions::new().write(true).open(&path)), libc::EPERM);
    assert_eq!(errno(OpenOptions::new().append(true).open(&path).and_then(|log| log.set_len(0))), libc::EPERM);
    assert_eq!(errno(fs::remove_file(&path)), libc::EPERM);
    assert_eq!(errno(before.write_all_at(b"X", 0).and_then(|()| before.sync_all())), libc::EPERM);
    // Whoever may append may say that it is now; only another time is a change.
    let (now, then) = ((0, libc::UTIME_NOW), (0, 0));
    sys::set_times(&path, now, now).unwrap();
    assert_eq!(errno(sys::set_times(&path, then, then)), libc::EPERM);
    assert_eq!(errno(sys::set_times(&path, now, then)), libc::EPERM);
    drop((log, before));
    mount.remount();
    assert_eq!(fs::read(&path).unwrap(), b"first line\nsecond line\n");
    let mut log = OpenOptions::new().append(true).open(&path).unwrap();
    log.write_all(&[b'x'; 10_000]).unwrap();
    drop(log);
    assert_eq!(fs::metadata(&path).unwrap().len(), 10_023);
    assert!(chattr("-a", &path));
    mount.check();
}

#[test]
fn appending_to_a_program_takes_its_capabilities_as_on_ext4() {
    const CAPABILITY: &str = "security.capability";
    // CAP_NET_RAW, permitted and effective, as `vfs_cap_data` of version 2.
    const NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut mount = Mount::new("64M");
    let path = file(&mount, "program");
    sys::set_xattr(&path, CAPABILITY, &NET_RAW).unwrap();
    assert!(chattr("+a", &path));
    assert_eq!(errno(sys::remove_xattr(&path, CAPABILITY)), libc::EPERM);
    assert_eq!(sys::get_xattr(&path, CAPABILITY).unwrap(), NET_RAW);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"second line\n").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"first line\nsecond line\n");
    assert_eq!(errno(sys::get_xattr(&path, CAPABILITY).map(drop)), libc::ENODATA);
    assert!(chattr("-a", &path));
    mount.check();
}

#[test]
fn names_of_an_immutable_directory_stay() {
    let mut mount = Mount::new("64M");
    let dir = mount.join("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("inner"), "x").unwrap();
    fs::create_dir_all(dir.join("full/deeper")).unwrap();
    assert!(chattr("+i", &dir));
    assert_eq!(errno(File::create(dir.join("new"))), libc::EPERM);
    assert_eq!(errno(fs::create_dir(dir.join("new"))), libc::EPERM);
    assert_eq!(errno(fs::remove_file(dir.join("inner"))), libc::EPERM);
    assert_eq!(errno(fs::remove_dir(dir.join("full"))), libc::EPERM, "whatever it holds");
    assert_eq!(errno(fs::rename(dir.join("inner"), mount.join("out"))), libc::EPERM);
    fs::write(dir.join("inner"), "the file itself is not").unwrap();
    assert!(chattr("-i", &dir));
    fs::remove_dir_all(&dir).unwrap();
    mount.check();
}

#[test]
fn flags_without_a_meaning_are_refused() {
    let mount = Mount::new("64M");
    let path = file(&mount, "file");
    assert!(chattr("+dA", &path));
    assert_eq!(lsattr(&path), "dA");
    assert!(!chattr("+S", &path), "synchronous");
    assert_eq!(lsattr(&path), "dA");
}

#[test]
fn flags_for_compression_are_policies_and_are_inherited() {
    let mut mount = Mount::on(&test_dir(), "64M", &["compress=later", "worker=off"]);
    let policy = |path: &Path| {
        let value = sys::get_xattr(path, "user.oncefs.compress");
        value.ok().map(|value| String::from_utf8(value).unwrap())
    };
    let dir = mount.join("dir");
    fs::create_dir(&dir).unwrap();
    assert!(chattr("+c", &dir));
    assert_eq!((lsattr(&dir).as_str(), policy(&dir).as_deref()), ("c", Some("auto")));
    let path = file(&mount, "dir/file");
    assert_eq!((lsattr(&path).as_str(), policy(&path).as_deref()), ("c", Some("auto")));
    sys::set_xattr(&path, "user.oncefs.compress", b"later").unwrap();
    assert!(chattr("+d", &path));
    assert_eq!((lsattr(&path).as_str(), policy(&path).as_deref()), ("dc", Some("later")), "it is as it was");
    assert!(!chattr("+m", &path), "both at once");
    assert!(chattr("-c", &path) && chattr("+m", &path));
    assert_eq!((lsattr(&path).as_str(), policy(&path).as_deref()), ("dm", Some("off")));
    mount.remount();
    assert_eq!(lsattr(&path), "dm");
    assert!(chattr("=d", &path));
    assert_eq!((lsattr(&path).as_str(), policy(&path)), ("d", None));
    mount.check();
}

#[test]
fn a_volume_that_was_never_mounted_with_compression_refuses_policies_for_it_and_says_what_to_do() {
    let mount = Mount::new("64M");
    let path = file(&mount, "file");
    assert!(!chattr("+c", &path) && !chattr("+m", &path));
    assert_eq!(errno(sys::set_xattr(&path, "user.oncefs.compress", b"off")), libc::EOPNOTSUPP);
    assert_eq!(lsattr(&path), "");
    let set = Command::new(oncefs()).args(["policy", "set"]).arg(&path).args(["off", "compress=off"]).output().unwrap();
    let said = String::from_utf8_lossy(&set.stderr);
    assert!(set.status.code() == Some(1) && said.contains("-o compress=later once"), "{set:?}");
    assert_eq!(errno(sys::get_xattr(&path, "user.oncefs.policy").map(drop)), libc::ENODATA);
    // A stream leaves them out on such a volume.
    let from = Mount::on(&test_dir(), "64M", &["compress=later", "worker=off"]);
    let source = from.join("tree");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "text").unwrap();
    sys::set_xattr(&source.join("file"), "user.oncefs.compress", b"off").unwrap();
    sys::set_xattr(&source.join("file"), "user.other", b"value").unwrap();
    let stream = test_dir().join(format!("stream-with-policy-{}", std::process::id()));
    let out = File::create(&stream).unwrap();
    let sent = Command::new(oncefs()).arg("send").arg(&source).stdout(out).output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    let input = File::open(&stream).unwrap();
    let received = Command::new(oncefs()).arg("receive").arg(mount.dir()).arg("tree").stdin(input).output().unwrap();
    fs::remove_file(&stream).unwrap();
    assert!(received.status.success(), "{received:?}");
    let copy = mount.join("tree/file");
    assert_eq!(sys::get_xattr(&copy, "user.other").unwrap(), b"value");
    assert_eq!(errno(sys::get_xattr(&copy, "user.oncefs.compress").map(drop)), libc::ENODATA);
}

#[test]
fn a_rename_leaves_a_whiteout_where_it_is_asked_to() {
    let mut mount = Mount::new("64M");
    let path = file(&mount, "old");
    sys::rename(&path, &mount.join("new"), libc::RENAME_WHITEOUT).unwrap();
    let whiteout = fs::symlink_metadata(&path).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
    assert_eq!(fs::read(mount.join("new")).unwrap(), b"first line\n");
    let exchange = libc::RENAME_WHITEOUT | libc::RENAME_EXCHANGE;
    assert_eq!(errno(sys::rename(&path, &mount.join("new"), exchange)), libc::EINVAL);
    mount.remount();
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_char_device());
    fs::remove_file(&path).unwrap();
    mount.check();
}
