//! Who may change modes, owners, times, sizes and extended attributes, and roundabout ways to another's bytes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;

use oncefs_system_tests::{Mount, sys};
use sys::errno;

use super::user::{User, directory_of, file_of, mount_for_all, open, result, set_mode};

const OWNER: User = User { uid: 1000, gid: 1000, groups: &[2000] };
const STRANGER: User = User::new(1001);
const KEEP: u32 = u32::MAX;

/// CAP_NET_RAW of a file, permitted and effective, as `vfs_cap_data` of version 2.
const NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn only_the_owner_changes_modes_and_nobody_gives_a_file_away() {
    let mount = mount_for_all(&[]);
    let path = mount.join("file");
    file_of(OWNER, &path, 0o666);
    assert_eq!(STRANGER.chmods(&path, 0o600), libc::EPERM);
    assert_eq!(OWNER.chmods(&path, 0o640), 0);
    assert_eq!(OWNER.chowns(&path, STRANGER.uid, KEEP), libc::EPERM);
    assert_eq!(STRANGER.chowns(&path, STRANGER.uid, KEEP), libc::EPERM);
    assert_eq!(OWNER.chowns(&path, KEEP, 2000), 0, "to a group of one's own");
    assert_eq!(OWNER.chowns(&path, KEEP, 3000), libc::EPERM, "to another one");
    assert_eq!(OWNER.chmods(&path, 0o2750), 0);
    assert_eq!(mode(&path), 0o2750);
    sys::chown(&path, OWNER.uid, 3000).unwrap();
    assert_eq!(OWNER.chmods(&path, 0o2750), 0);
    assert_eq!(mode(&path), 0o750, "set-group-id needs membership");
}

#[test]
fn a_changed_file_or_owner_loses_set_user_id() {
    let mount = mount_for_all(&[]);
    let path = mount.join("program");
    let fresh = || {
        let _ = fs::remove_file(&path);
        file_of(OWNER, &path, 0o6777);
        assert_eq!(mode(&path), 0o6777);
    };
    fresh();
    assert_eq!(STRANGER.writes(&path), 0);
    assert_eq!(mode(&path), 0o777, "by a write of another user");
    fresh();
    assert_eq!(STRANGER.truncates(&path, 3), 0);
    assert_eq!(mode(&path), 0o777, "by truncate");
    fresh();
    assert_eq!(STRANGER.opens(&path, libc::O_WRONLY | libc::O_TRUNC), 0);
    assert_eq!(mode(&path), 0o777, "by O_TRUNC");
    fresh();
    assert_eq!(OWNER.writes(&path), 0);
    assert_eq!(mode(&path), 0o777, "by a write of the owner");
    fresh();
    assert_eq!(OWNER.chowns(&path, KEEP, 2000), 0);
    assert_eq!(mode(&path), 0o777, "by a new group");
    fresh();
    let c_path = sys::c_path(&path);
    let allocate = || {
        // SAFETY: the string outlives the calls.
        unsafe {
            let file = libc::open(c_path.as_ptr(), libc::O_WRONLY);
            result(libc::fallocate64(file, 0, 0, 100_000))
        }
    };
    assert_eq!(STRANGER.does(allocate), 0);
    assert_eq!(mode(&path), 0o777, "by fallocate");
    fresh();
    let other = mount.join("other");
    file_of(STRANGER, &other, 0o644);
    let c_other = sys::c_path(&other);
    let copy = || {
        // SAFETY: the strings outlive the calls; null offsets stand for the files' own.
        unsafe {
            let to = libc::open(c_path.as_ptr(), libc::O_WRONLY);
            let from = libc::open(c_other.as_ptr(), libc::O_RDONLY);
            let none = std::ptr::null_mut();
            if libc::copy_file_range(from, none, to, none, 7, 0) == 7 { 0 } else { sys::last_errno() }
        }
    };
    assert_eq!(STRANGER.does(copy), 0);
    assert_eq!(mode(&path), 0o777, "by copy_file_range");
}

#[test]
fn times_and_sizes_change_only_by_who_may_write() {
    let mount = mount_for_all(&[]);
    let path = mount.join("file");
    file_of(OWNER, &path, 0o644);
    assert_eq!(STRANGER.truncates(&path, 0), libc::EACCES);
    assert_eq!(STRANGER.opens(&path, libc::O_RDONLY | libc::O_TRUNC), libc::EACCES);
    assert_eq!(STRANGER.sets_times(&path, libc::UTIME_NOW), libc::EACCES);
    assert_eq!(STRANGER.sets_times(&path, 5), libc::EPERM);
    assert_eq!(STRANGER.opens(&path, libc::O_RDONLY | libc::O_NOATIME), libc::EPERM);
    assert_eq!(OWNER.opens(&path, libc::O_RDONLY | libc::O_NOATIME), 0);
    set_mode(&path, 0o666);
    assert_eq!(STRANGER.sets_times(&path, libc::UTIME_NOW), 0);
    assert_eq!(STRANGER.sets_times(&path, 5), libc::EPERM, "a time of one's choice is the owner's");
    assert_eq!(OWNER.sets_times(&path, 5), 0);
    assert_eq!(fs::read_to_string(&path).unwrap(), "content");
    let c_path = sys::c_path(&path);
    let allocate_by_reader = || {
        // SAFETY: the string outlives the calls.
        unsafe { result(libc::fallocate64(libc::open(c_path.as_ptr(), libc::O_RDONLY), 0, 0, 100_000)) }
    };
    assert_eq!(STRANGER.does(allocate_by_reader), libc::EBADF);
}

#[test]
fn each_space_of_extended_attributes_has_its_own_rule() {
    let mount = mount_for_all(&[]);
    let path = mount.join("file");
    file_of(OWNER, &path, 0o644);
    sys::set_xattr(&path, "trusted.secret", b"x").unwrap();
    assert_eq!(OWNER.gets_xattr(&path, c"trusted.secret"), libc::ENODATA, "trusted.* is root's");
    assert_eq!(OWNER.sets_xattr(&path, c"trusted.mine", b"x"), libc::EPERM);
    assert_eq!(OWNER.sets_xattr(&path, c"security.mine", b"x"), libc::EPERM);
    assert_eq!(OWNER.sets_xattr(&path, c"security.capability", &NET_RAW), libc::EPERM);
    assert_eq!(STRANGER.sets_xattr(&path, c"user.note", b"x"), libc::EACCES, "user.* goes by the file's bits");
    assert_eq!(OWNER.sets_xattr(&path, c"user.note", b"x"), 0);
    assert_eq!(STRANGER.gets_xattr(&path, c"user.note"), 0);
    set_mode(&path, 0o600);
    assert_eq!(STRANGER.gets_xattr(&path, c"user.note"), libc::EACCES);

    let (fifo, sticky) = (mount.join("fifo"), mount.join("sticky"));
    sys::mknod(&fifo, libc::S_IFIFO | 0o666, 0).unwrap();
    assert_eq!(STRANGER.sets_xattr(&fifo, c"user.note", b"x"), libc::EPERM, "only files and directories have user.*");
    std::os::unix::fs::symlink("file", mount.join("link")).unwrap();
    assert_eq!(OWNER.sets_xattr(&mount.join("link"), c"user.note", b"x"), libc::EPERM);
    directory_of(OWNER, &sticky, 0o1777);
    assert_eq!(STRANGER.sets_xattr(&sticky, c"user.note", b"x"), libc::EPERM, "nor do strangers mark /tmp");
}

#[test]
fn names_of_trusted_attributes_are_shown_to_root_alone() {
    let mount = mount_for_all(&[]);
    let path = mount.join("file");
    file_of(OWNER, &path, 0o644);
    sys::set_xattr(&path, "trusted.overlay.opaque", b"y").unwrap();
    sys::set_xattr(&path, "user.note", b"x").unwrap();
    let c_path = sys::c_path(&path);
    let listed = || {
        let mut names = [0_u8; 100];
        // SAFETY: the string outlives the call; the buffer has so many bytes.
        let found = unsafe { libc::listxattr(c_path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
        i32::from(found == 10 && names.starts_with(b"user.note\0"))
    };
    assert_eq!(STRANGER.does(listed), 1);
    assert_eq!(sys::list_xattr(&path).unwrap().len(), 2);
}

#[test]
fn a_file_that_was_changed_loses_its_capabilities() {
    let mount = mount_for_all(&[]);
    let path = mount.join("program");
    file_of(OWNER, &path, 0o777);
    sys::set_xattr(&path, "security.capability", &NET_RAW).unwrap();
    assert_eq!(sys::get_xattr(&path, "security.capability").unwrap(), NET_RAW);
    assert_eq!(STRANGER.writes(&path), 0);
    assert_eq!(errno(sys::get_xattr(&path, "security.capability").map(drop)), libc::ENODATA);
}

#[test]
fn no_roundabout_way_leads_to_anothers_bytes() {
    let mount = mount_for_all(&[]);
    let (secret, own) = (mount.join("secret"), mount.join("own"));
    file_of(OWNER, &secret, 0o600);
    file_of(STRANGER, &own, 0o600);
    let (c_secret, c_own) = (sys::c_path(&secret), sys::c_path(&own));
    // copy_file_range needs a descriptor that reads: a file that can only be written is no source.
    set_mode(&secret, 0o602);
    let copy = || {
        // SAFETY: the strings outlive the calls; null offsets stand for the files' own.
        unsafe {
            let from = libc::open(c_secret.as_ptr(), libc::O_WRONLY);
            let to = libc::open(c_own.as_ptr(), libc::O_RDWR);
            let none = std::ptr::null_mut();
            if libc::copy_file_range(from, none, to, none, 7, 0) == -1 { sys::last_errno() } else { 0 }
        }
    };
    assert_eq!(STRANGER.does(copy), libc::EBADF);
    set_mode(&secret, 0o600);
    assert_eq!(STRANGER.opens(&secret, libc::O_RDONLY), libc::EACCES);

    // Whether a link to another's file can be made is the machine's setting, for every file system.
    let guarded = fs::read_to_string("/proc/sys/fs/protected_hardlinks").unwrap().trim() != "0";
    let linked = STRANGER.links(&secret, &mount.join("link"));
    assert_eq!(linked, if guarded { libc::EPERM } else { 0 });

    let handle = sys::handle_of(&secret).unwrap();
    let dir = File::open(mount.dir()).unwrap();
    let by_handle = || errno(sys::open_by_handle_at(&dir, &handle).map(drop));
    assert_eq!(STRANGER.does(by_handle), libc::EPERM, "handles are root's");

    let (c_dir, c_named) = (sys::c_path(mount.dir()), sys::c_path(mount.join("named")));
    let nameless = || open(&c_dir, libc::O_TMPFILE | libc::O_RDWR, 0o6755);
    assert_eq!(STRANGER.does(nameless), 0, "whoever may make a file may make one without a name");
    let linked = || {
        // SAFETY: the strings outlive the calls.
        unsafe {
            let file = libc::open(c_dir.as_ptr(), libc::O_TMPFILE | libc::O_RDWR, 0o600);
            let of = std::ffi::CString::new(format!("/proc/self/fd/{file}")).expect("no NUL in it");
            let done =
                libc::linkat(libc::AT_FDCWD, of.as_ptr(), libc::AT_FDCWD, c_named.as_ptr(), libc::AT_SYMLINK_FOLLOW);
            if done == -1 { sys::last_errno() } else { 0 }
        }
    };
    assert_eq!(STRANGER.does(linked), 0);
    let named = mount.join("named").metadata().unwrap();
    assert_eq!(
        (named.uid(), named.mode() & 0o7777),
        (STRANGER.uid, 0o600),
        "it is the stranger's, as any file it makes"
    );
}

#[test]
fn bytes_that_a_file_never_had_read_as_zeros() {
    let mount = mount_for_all(&[]);
    let secret = mount.join("secret");
    fs::write(&secret, vec![b's'; 1 << 20]).unwrap();
    File::open(&secret).unwrap().sync_all().unwrap();
    fs::remove_file(&secret).unwrap();
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(mount.join("new")).unwrap();
    sys::fallocate(&file, 0, 0, 1 << 20).unwrap();
    file.write_all_at(b"x", (2 << 20) + 5).unwrap();
    file.set_len(3 << 20).unwrap();
    let content = fs::read(mount.join("new")).unwrap();
    assert!(content.iter().all(|byte| *byte != b's') && content.len() == 3 << 20);
}

/// The owner sets flags that forbid nobody anything, and only root those that do.
#[test]
fn only_root_makes_files_immutable_or_ends_that() {
    let mount: Mount = mount_for_all(&[]);
    let path = mount.join("file");
    file_of(OWNER, &path, 0o666);
    let chattr = |user: User, flags: &str| {
        let mut command = std::process::Command::new("chattr");
        command.arg(flags).arg(&path).uid(user.uid).gid(user.gid).status().unwrap().success()
    };
    const ADMIN: User = User::new(0);
    assert!(!chattr(OWNER, "+i"));
    assert!(!chattr(OWNER, "+a"));
    assert!(chattr(OWNER, "+d"));
    assert!(!chattr(STRANGER, "-d"));
    assert!(chattr(ADMIN, "+i"));
    assert!(!chattr(OWNER, "-i"));
    assert_eq!(OWNER.writes(&path), libc::EPERM);
    assert!(chattr(ADMIN, "-i"));
    assert_eq!(OWNER.writes(&path), 0);
}

#[test]
fn root_of_a_users_own_namespace_sees_no_trusted_names() {
    let mount = mount_for_all(&[]);
    let path = mount.join("file");
    file_of(User::new(1000), &path, 0o644);
    sys::set_xattr(&path, "trusted.secret", b"1").unwrap();
    let path = sys::c_path(&path);
    // SAFETY: plain system calls; the string outlives them, and no buffer is given.
    let bytes_of_names = || unsafe { libc::listxattr(path.as_ptr(), std::ptr::null_mut(), 0) as i32 };
    assert_eq!(bytes_of_names(), "trusted.secret".len() as i32 + 1, "root sees it");
    let seen = User::new(1000).does(|| match unsafe { libc::unshare(libc::CLONE_NEWUSER) } {
        0 => bytes_of_names(),
        _ => 254,
    });
    assert_eq!(seen, 0, "254: this kernel lets no user make a namespace");
}
