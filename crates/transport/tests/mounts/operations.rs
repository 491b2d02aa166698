//! Every operation, from the view of programs.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use super::tree::{Tree, WAYS};

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// A system call's result.
fn check(returned: impl Into<i64>) -> std::io::Result<i64> {
    match returned.into() {
        -1 => Err(std::io::Error::last_os_error()),
        value => Ok(value),
    }
}

#[test]
fn content_is_what_was_written() {
    for way in WAYS {
        let tree = Tree::mount(way);
        let content: Vec<u8> = (0..3_000_001_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(tree.path("file"), &content).unwrap();
        // Without the page cache, in requests of all sizes.
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(tree.path("file")).unwrap();
        let mut found = Vec::new();
        file.read_to_end(&mut found).unwrap();
        assert!(found == content, "over {way}");
        drop(file);
        let mut file = OpenOptions::new().read(true).write(true).open(tree.path("file")).unwrap();
        file.seek(SeekFrom::Start(1_000_000)).unwrap();
        file.write_all(b"changed").unwrap();
        file.sync_all().unwrap();
        file.set_len(1_000_004).unwrap();
        drop(file);
        assert_eq!(&fs::read(tree.path("file")).unwrap()[1_000_000..], b"chan");
        tree.unmount();
    }
}

#[test]
fn names_lead_where_they_should() {
    for way in WAYS {
        let tree = Tree::mount(way);
        fs::create_dir(tree.path("dir")).unwrap();
        for number in 0..2000 {
            fs::write(tree.path(&format!("dir/a-file-with-number-{number}")), number.to_string()).unwrap();
        }
        let mut names: Vec<_> =
            fs::read_dir(tree.path("dir")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 2000, "over {way}");
        fs::hard_link(tree.path("dir/a-file-with-number-7"), tree.path("link")).unwrap();
        assert_eq!(fs::metadata(tree.path("link")).unwrap().nlink(), 2);
        symlink("dir/a-file-with-number-8", tree.path("symlink")).unwrap();
        assert_eq!(fs::read_to_string(tree.path("symlink")).unwrap(), "8");
        fs::rename(tree.path("link"), tree.path("moved")).unwrap();
        assert_eq!(fs::read_to_string(tree.path("moved")).unwrap(), "7");
        assert!(fs::remove_dir(tree.path("dir")).is_err(), "it is not empty");
        assert!(fs::metadata(tree.path("link")).is_err());
        tree.unmount();
    }
}

fn rename_with(tree: &Tree, from: &str, to: &str, flags: u32) -> std::io::Result<()> {
    let (from, to) = (c(&tree.path(from)), c(&tree.path(to)));
    // SAFETY: both paths are NUL-terminated and outlive the call.
    let done = unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) };
    check(done).map(drop)
}

#[test]
fn renames_have_their_flags() {
    for way in WAYS {
        let tree = Tree::mount(way);
        fs::write(tree.path("one"), "1").unwrap();
        fs::write(tree.path("two"), "2").unwrap();
        let error = rename_with(&tree, "one", "two", libc::RENAME_NOREPLACE).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
        rename_with(&tree, "one", "two", libc::RENAME_EXCHANGE).unwrap();
        assert_eq!(fs::read_to_string(tree.path("one")).unwrap(), "2");
        rename_with(&tree, "one", "three", libc::RENAME_WHITEOUT).unwrap();
        let whiteout = fs::symlink_metadata(tree.path("one")).unwrap();
        assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0, "over {way}");
        tree.unmount();
    }
}

#[test]
fn attributes_are_kept() {
    for way in WAYS {
        let tree = Tree::mount(way);
        let path = tree.path("file");
        fs::write(&path, "content").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
        let before_1970 = UNIX_EPOCH - Duration::new(2, 500_000_000);
        File::options().write(true).open(&path).unwrap().set_modified(before_1970).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid(), found.size()), (0o640, 12, 34, 7));
        assert_eq!(found.modified().unwrap(), before_1970, "over {way}");
        assert!(found.created().unwrap() > UNIX_EPOCH, "statx(2) shows when it was made");
        // SAFETY: plain old data, for which all zeros is a value.
        let mut space: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: the path is NUL-terminated, `space` is writable, both outlive the call.
        check(unsafe { libc::statfs(c(tree.root()).as_ptr(), &raw mut space) }).unwrap();
        assert_eq!((space.f_blocks, space.f_bfree), (4711, 42));
        tree.unmount();
    }
}

#[test]
fn extended_attributes_are_kept() {
    for way in WAYS {
        let tree = Tree::mount(way);
        fs::write(tree.path("file"), "").unwrap();
        let (path, name, value) = (c(&tree.path("file")), c"user.colour", vec![7_u8; 3000]);
        let mut found = vec![0_u8; 4000];
        // SAFETY: strings are NUL-terminated, buffers have the stated lengths, and all outlive the calls.
        unsafe {
            check(libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)).unwrap();
            let mut get =
                |size| check(libc::getxattr(path.as_ptr(), name.as_ptr(), found.as_mut_ptr().cast(), size) as i64);
            assert_eq!([0, 4000].map(|size| get(size).unwrap()), [3000, 3000]);
            assert_eq!(get(10).unwrap_err().raw_os_error(), Some(libc::ERANGE));
            let listed = check(libc::listxattr(path.as_ptr(), found.as_mut_ptr().cast(), found.len()) as i64).unwrap();
            assert_eq!(&found[..listed as usize], b"user.colour\0", "over {way}");
            check(libc::removexattr(path.as_ptr(), name.as_ptr())).unwrap();
            assert_eq!(
                check(libc::removexattr(path.as_ptr(), name.as_ptr())).unwrap_err().raw_os_error(),
                Some(libc::ENODATA)
            );
        }
        tree.unmount();
    }
}

#[test]
fn a_file_without_a_name_gets_one() {
    for way in WAYS {
        let tree = Tree::mount(way);
        let mut file = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(tree.root()).unwrap();
        file.write_all(b"nameless").unwrap();
        let (from, to) = (format!("/proc/self/fd/{}", file.as_raw_fd()), c(&tree.path("named")));
        let from = CString::new(from).unwrap();
        // SAFETY: both paths are NUL-terminated and outlive the call.
        let done = unsafe {
            libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
        };
        check(done).unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(tree.path("named")).unwrap(), "nameless", "over {way}");
        tree.unmount();
    }
}

#[test]
fn ranges_are_copied_reserved_and_searched() {
    for way in WAYS {
        let tree = Tree::mount(way);
        fs::write(tree.path("from"), vec![5; 100_000]).unwrap();
        let from = File::open(tree.path("from")).unwrap();
        let to = OpenOptions::new().read(true).write(true).create_new(true).open(tree.path("to")).unwrap();
        let (mut at, mut there) = (1000, 0);
        let (source, target) = (from.as_raw_fd(), to.as_raw_fd());
        // SAFETY: descriptors are open and the offsets writable during the calls.
        unsafe {
            let copied = libc::copy_file_range(source, &raw mut at, target, &raw mut there, 50_000, 0);
            assert_eq!(check(copied as i64).unwrap(), 50_000);
            check(libc::fallocate(target, 0, 0, 60_000)).unwrap();
            assert_eq!(check(libc::lseek(target, 10, libc::SEEK_HOLE)).unwrap(), 60_000);
        }
        let content = fs::read(tree.path("to")).unwrap();
        assert_eq!((content.len(), content[49_999], content[50_000]), (60_000, 5, 0), "over {way}");
        drop((from, to));
        tree.unmount();
    }
}

#[test]
fn ioctls_take_and_give_bytes() {
    const ECHO: libc::c_ulong = 0xc002_5401;
    for way in WAYS {
        let tree = Tree::mount(way);
        fs::write(tree.path("file"), "").unwrap();
        let file = File::open(tree.path("file")).unwrap();
        let mut bytes = [3_u8, 4];
        // SAFETY: the descriptor is open, and the command has an argument of two bytes.
        let returned = unsafe { libc::ioctl(file.as_raw_fd(), ECHO, bytes.as_mut_ptr()) };
        assert_eq!((returned, bytes), (7, [4, 3]), "over {way}");
        // SAFETY: as above, with an unknown command.
        let unknown = unsafe { libc::ioctl(file.as_raw_fd(), ECHO + 1, bytes.as_mut_ptr()) };
        assert_eq!(check(unknown).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        drop(file);
        tree.unmount();
    }
}
