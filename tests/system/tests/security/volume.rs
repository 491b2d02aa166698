//! The volume's own files, its secret key and its control socket are root's alone.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use oncefs_system_tests::{BLOCK, Mount, bytes, copy_program, oncefs, run, sys, test_dir};

use super::user::{User, let_everybody_in, set_mode};

const USER: User = User::new(1000);

/// Everything below a directory, with the directory.
fn tree(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| found.extend(tree(&entry.unwrap().path())));
    }
    found
}

fn assert_private(volume: &Path) {
    let parts = tree(volume);
    assert!(parts.len() > 10, "{parts:?}");
    for path in parts {
        let found = fs::symlink_metadata(&path).unwrap();
        let expected = if found.is_dir() { 0o700 } else { 0o600 };
        assert_eq!((found.uid(), found.mode() & 0o7777), (0, expected), "{}", path.display());
    }
}

/// In the background, so that a mount that should not be there fails the test and does not hold it up.
fn mount_says(mount: &Mount) -> Output {
    Command::new(oncefs()).arg("mount").arg(mount.volume()).arg(mount.dir()).output().unwrap()
}

#[test]
fn every_file_of_a_volume_is_its_owners_alone_whatever_the_umask() {
    let mut mount = Mount::unmounted(&test_dir(), "256M", &[]);
    assert_private(&mount.volume());
    mount.mount();
    fs::write(mount.join("file"), vec![1; 1 << 20]).unwrap();
    run(Command::new(oncefs()).arg("sync").arg(mount.dir()));
    let control = fs::symlink_metadata(mount.volume().join("control")).unwrap();
    assert!(control.file_type().is_socket());
    assert_private(&mount.volume());
    mount.remount();
    assert_private(&mount.volume());

    let open_to_all = mount.volume().parent().unwrap().join("another");
    fs::create_dir(&open_to_all).unwrap();
    set_mode(&open_to_all, 0o777);
    run(Command::new(oncefs()).arg("mkfs").arg(&open_to_all).args(["--size", "64M"]));
    assert_private(&open_to_all);
}

#[test]
fn a_volume_that_others_can_change_is_refused_and_one_that_they_can_read_is_told_of() {
    let mut mount = Mount::unmounted(&test_dir(), "256M", &[]);
    let (volume, superblock) = (mount.volume(), mount.volume().join("superblock"));
    for (path, good, bad) in [(&volume, 0o700, 0o1777), (&superblock, 0o600, 0o660)] {
        set_mode(path, bad);
        let said = mount_says(&mount);
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.status.code() == Some(32) && error.contains("chmod go-w"), "{}: {error}", path.display());
        set_mode(path, good);
    }
    for path in [&volume, &superblock, &volume.join("records")] {
        sys::chown(path, USER.uid, USER.gid).unwrap();
        let said = mount_says(&mount);
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.status.code() == Some(32) && error.contains("belongs to user 1000"), "{error}");
        sys::chown(path, 0, 0).unwrap();
    }
    set_mode(&volume, 0o755);
    set_mode(&superblock, 0o644);
    mount.mount();
    assert!(mount.logged().contains("others can read"), "{}", mount.logged());
    assert!(mount.logged().contains("chmod go-rwx"), "{}", mount.logged());
    mount.umount();
    set_mode(&superblock, 0o600);
    set_mode(&volume, 0o700);

    let theirs = volume.parent().unwrap().join("theirs");
    fs::create_dir(&theirs).unwrap();
    sys::chown(&theirs, USER.uid, USER.gid).unwrap();
    let said = Command::new(oncefs()).arg("mkfs").arg(&theirs).args(["--size", "64M"]).output().unwrap();
    assert!(!said.status.success() && fs::read_dir(&theirs).unwrap().next().is_none(), "{said:?}");
}

#[test]
fn only_root_commands_a_mounted_volume() {
    let mount = Mount::new("256M");
    let_everybody_in(&mount);
    let binary = mount.volume().parent().unwrap().join("oncefs");
    copy_program(&binary);
    set_mode(&binary, 0o755);
    let as_user = |arguments: &[&str], target: &Path| {
        let said = Command::new(&binary).args(arguments).arg(target).uid(USER.uid).gid(USER.gid).output().unwrap();
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.status.success(), "{arguments:?} as a user: {said:?}");
        error
    };
    let control = mount.volume().join("control");
    for mode in [0o700, 0o755] {
        // Even where the directory lets others in, the socket does not.
        set_mode(&mount.volume(), mode);
        for arguments in [&["stats"][..], &["stats", "--fragmentation"], &["tune"], &["dedup", "--now"], &["sync"]] {
            assert!(as_user(arguments, &mount.dir()).contains("denied"), "{arguments:?}");
        }
        as_user(&["umount"], &mount.dir());
        as_user(&["mount", mount.volume().to_str().unwrap()], &mount.dir());
        as_user(&["fsck", "-n"], &mount.volume());
        let path = sys::c_path(&control);
        assert_eq!(USER.does(|| connect(&path)), libc::EACCES);
    }
    set_mode(&mount.volume(), 0o700);
    for part in tree(&mount.volume()) {
        assert_eq!(USER.opens(&part, libc::O_RDONLY), libc::EACCES, "{}", part.display());
    }
    mount.stats();
}

/// The ioctl by which file systems tell where a file lies (`filefrag`), with room for no extent.
const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;

#[test]
fn where_a_block_lies_and_whether_it_is_shared_is_told_to_root_alone() {
    let mount = Mount::on(&test_dir(), "256M", &["inline=all,worker=off,run_blocks_min=1"]);
    let_everybody_in(&mount);
    let binary = mount.volume().parent().unwrap().join("oncefs");
    copy_program(&binary);
    set_mode(&binary, 0o755);
    let content = bytes(1, 40 * BLOCK as usize);
    fs::write(mount.join("theirs"), &content).unwrap();
    set_mode(&mount.join("theirs"), 0o600);
    run(Command::new(oncefs()).arg("sync").arg(mount.dir()));
    // The user's own files: a right guess and a wrong one.
    for (name, content) in [("right", content), ("wrong", bytes(2, 40 * BLOCK as usize))] {
        fs::write(mount.join(name), content).unwrap();
        sys::chown(&mount.join(name), USER.uid, USER.gid).unwrap();
    }
    let explain = |program: &Path, name: &str| {
        let mut command = Command::new(program);
        command.arg("explain").arg(mount.join(name));
        command
    };
    let as_root = |name: &str| run(&mut explain(&oncefs(), name));
    assert!(as_root("right").contains("shared: run of 40 with /theirs at block 0"), "{}", as_root("right"));
    assert!(!as_root("wrong").contains("shared: run"), "{}", as_root("wrong"));
    let as_user = |name: &str| {
        let said = explain(&binary, name).uid(USER.uid).gid(USER.gid).output().unwrap();
        assert_eq!(said.stdout, b"", "{name}");
        (said.status.code(), String::from_utf8(said.stderr).unwrap())
    };
    let refused = as_user("right");
    assert_eq!((refused.0, refused.1.contains("only root")), (Some(1), true), "{refused:?}");
    assert_eq!(refused, as_user("wrong"), "the refusal is no answer either");
    for name in ["right", "wrong"] {
        let path = sys::c_path(mount.join(name));
        let ask = || {
            let mut request = [0u64, u64::MAX, 0, 0];
            // SAFETY: a header of 32 bytes that has no room for extents; the path outlives the call.
            unsafe {
                let file = libc::open(path.as_ptr(), libc::O_RDONLY);
                if libc::ioctl(file, FS_IOC_FIEMAP, request.as_mut_ptr()) == 0 { 0 } else { sys::last_errno() }
            }
        };
        assert_eq!(USER.does(ask), libc::EOPNOTSUPP, "{name}: the kernel asks no FUSE file system");
    }
}

/// connect(2) to a socket whose path is given.
fn connect(path: &std::ffi::CStr) -> i32 {
    // SAFETY: all zeros are a valid address; the path fits, as its test's directory is short; both outlive the call.
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        let bytes = path.to_bytes();
        if bytes.len() >= address.sun_path.len() {
            return 254;
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), address.sun_path.as_mut_ptr(), bytes.len());
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        super::user::result(libc::connect(socket, (&raw const address).cast(), len))
    }
}

#[test]
fn the_secret_is_in_the_superblock_and_nowhere_else() {
    let mut mount = Mount::on(&test_dir(), "256M", &["loglevel=trace"]);
    fs::write(mount.join("file"), vec![1; 1 << 20]).unwrap();
    let mut said = mount.stats().to_string();
    said += &fs::read_to_string(format!("/proc/{}/cmdline", mount.daemon_pid())).unwrap();
    mount.remount();
    mount.umount();
    said += &mount.logged();
    said += &mount.fsck().1;
    let superblock = fs::read(mount.volume().join("superblock")).unwrap();
    let secret = &superblock[40..72];
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let list = format!("{secret:?}");
    assert!(!said.to_lowercase().contains(&hex) && !said.contains(list.trim_matches(['[', ']'])), "{said}");
    for path in tree(&mount.volume()).iter().filter(|path| path.is_file() && !path.ends_with("superblock")) {
        let content = fs::read(path).unwrap();
        let found = content.windows(secret.len()).any(|window| window == secret);
        assert!(!found && !String::from_utf8_lossy(&content).contains(&hex), "{}", path.display());
    }
}
