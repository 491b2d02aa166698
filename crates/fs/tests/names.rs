//! Every function that takes a name refuses names that would lead out of their directory.

use crate::common::{ROOT, Volume, contradictions, directory, file, names};
use oncefs_fs::{AtimePolicy, Ino, RenameMode};

const LEADING_OUT: [&[u8]; 8] = [b"", b".", b"..", b"/", b"a/b", b"../x", b"a\0b", b"/etc/passwd"];

#[test]
fn nothing_gets_a_name_that_leads_out_of_its_directory() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let dir = directory(&file_system, Ino::ROOT, "dir").ino;
    let inside = file(&file_system, dir, "file").ino;
    for name in LEADING_OUT {
        assert!(file_system.mknod(dir, name, libc::S_IFREG | 0o644, 0, &ROOT).is_err(), "{name:?}");
        assert!(file_system.mkdir(dir, name, 0o755, &ROOT).is_err(), "{name:?}");
        assert!(file_system.symlink(dir, name, b"target", &ROOT).is_err(), "{name:?}");
        assert!(file_system.link(inside, dir, name).is_err(), "{name:?}");
        assert!(file_system.unlink(dir, name).is_err(), "{name:?}");
        assert!(file_system.rmdir(dir, name).is_err(), "{name:?}");
        for mode in [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange] {
            assert!(file_system.rename(dir, b"file", dir, name, mode).is_err(), "{name:?}");
            assert!(file_system.rename(dir, name, dir, b"other", mode).is_err(), "{name:?}");
        }
    }
    assert_eq!(names(&file_system, dir), [b"file"]);
    assert_eq!(contradictions(&file_system), Vec::<String>::new());
}

#[test]
fn above_the_root_is_the_root() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let dir = directory(&file_system, Ino::ROOT, "dir").ino;
    assert_eq!(file_system.lookup(dir, b"..").unwrap().ino, Ino::ROOT);
    assert_eq!(file_system.lookup(Ino::ROOT, b"..").unwrap().ino, Ino::ROOT);
    for name in LEADING_OUT.iter().filter(|name| ![&b"."[..], b".."].contains(*name)) {
        assert!(file_system.lookup(dir, name).is_err(), "{name:?}");
    }
}

#[test]
fn a_link_is_bytes_and_is_never_followed() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let link = file_system.symlink(Ino::ROOT, b"link", b"../../etc/passwd", &ROOT).unwrap().ino;
    assert_eq!(file_system.readlink(link).unwrap(), b"../../etc/passwd");
    assert!(file_system.lookup(link, b"x").is_err(), "a link is no directory");
    assert!(file_system.lookup(link, b"..").is_err());
    for target in [&b""[..], b"a\0b"] {
        assert!(file_system.symlink(Ino::ROOT, b"other", target, &ROOT).is_err(), "{target:?}");
    }
}
