//! A tree with everything that a tree can have, and all of a tree as text.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use oncefs_system_tests::{bytes, run, sys};

const BLOCK: u64 = 4096;

/// On a received tree only.
const MARK: &str = "trusted.oncefs.received";

/// An access control list: the owner may write, user 1000 may read, others may do nothing.
fn acl() -> Vec<u8> {
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let entries = [(1, 7, u32::MAX), (2, 4, 1000), (4, 5, u32::MAX), (16, 5, u32::MAX), (32, 0, u32::MAX)];
    let entries = entries.map(|(tag, permissions, id)| entry(tag, permissions, id));
    [&2_u32.to_le_bytes()[..], &entries.concat()].concat()
}

/// Makes the tree: about 9 MiB, of which a third are stored.
pub fn make_tree(top: &Path) {
    fs::create_dir_all(top.join("dir/inner/empty")).unwrap();
    let large = bytes(1, 600 * BLOCK as usize + 1234);
    fs::write(top.join("dir/large"), &large).unwrap();
    fs::write(top.join("dir/same"), &large).unwrap();
    fs::write(top.join("z-shifted"), [&large[BLOCK as usize * 7..], &large[..BLOCK as usize * 7]].concat()).unwrap();
    fs::write(top.join("repeats"), bytes(2, BLOCK as usize).repeat(40)).unwrap();
    for n in 0..60_u64 {
        fs::write(top.join(format!("dir/inner/small-{n}")), bytes(100 + n % 20, 100 * n as usize)).unwrap();
    }
    sparse(&top.join("sparse"));
    File::create(top.join("only-hole")).unwrap().set_len(100 * BLOCK + 5).unwrap();
    fs::hard_link(top.join("dir/large"), top.join("link-to-large")).unwrap();
    fs::hard_link(top.join("dir/inner/small-7"), top.join("dir/link")).unwrap();
    symlink("../nowhere", top.join("dir/symlink")).unwrap();
    fs::hard_link(top.join("dir/symlink"), top.join("symlink-again")).unwrap();
    fs::write(top.join(OsStr::from_bytes(b"raw \xff\n\\name")), b"odd").unwrap();
    fs::write(top.join("n".repeat(255)), b"long").unwrap();
    sys::mknod(&top.join("pipe"), libc::S_IFIFO | 0o640, 0).unwrap();
    sys::mknod(&top.join("device"), libc::S_IFCHR | 0o600, libc::makedev(1, 3)).unwrap();
    drop(UnixListener::bind(top.join("dir/socket")).unwrap());
    attributes(top);
}

/// Data, holes and reserved room: in the file, and behind its end.
fn sparse(path: &Path) {
    let file = File::create(path).unwrap();
    file.write_all_at(&bytes(3, 3 * BLOCK as usize), 0).unwrap();
    file.write_all_at(&bytes(4, 2 * BLOCK as usize), 500 * BLOCK).unwrap();
    sys::fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 100 * BLOCK, 10 * BLOCK).unwrap();
    file.set_len(600 * BLOCK + 17).unwrap();
    sys::fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 700 * BLOCK, 20 * BLOCK).unwrap();
}

fn attributes(top: &Path) {
    sys::set_xattr(&top.join("dir/same"), "user.colour", b"blue\0green").unwrap();
    sys::set_xattr(&top.join("dir/same"), "user.empty", b"").unwrap();
    sys::set_xattr(&top.join("dir/large"), "trusted.secret", &[7; 3000]).unwrap();
    sys::set_xattr(&top.join("dir/inner"), "user.oncefs.policy", b"run=8").unwrap();
    sys::set_xattr(&top.join("dir/inner"), "system.posix_acl_default", &acl()).unwrap();
    sys::set_xattr(&top.join("repeats"), "system.posix_acl_access", &acl()).unwrap();
    sys::chown(&top.join("dir/same"), 1000, 2000).unwrap();
    sys::chown(&top.join("pipe"), 5, 6).unwrap();
    run(Command::new("chown").args(["-h", "12:13"]).arg(top.join("dir/symlink")));
    fs::set_permissions(top.join("dir/same"), PermissionsExt::from_mode(0o6755)).unwrap();
    fs::set_permissions(top.join("dir/inner/empty"), PermissionsExt::from_mode(0o1777)).unwrap();
    fs::set_permissions(top.join("dir/inner/small-3"), PermissionsExt::from_mode(0o0)).unwrap();
    run(Command::new("touch").args(["-h", "-d", "1969-12-31 23:59:58.123456789 UTC"]).arg(top.join("dir/symlink")));
    run(Command::new("touch").args(["-m", "-d", "2001-02-03 04:05:06.000000007 UTC"]).arg(top.join("dir/large")));
    run(Command::new("touch").args(["-a", "-d", "2030-01-01 00:00:00.5 UTC"]).arg(top.join("repeats")));
    run(Command::new("touch").args(["-d", "1999-01-01 UTC"]).arg(top.join("dir/inner")));
    run(Command::new("touch").args(["-d", "1998-01-01 UTC"]).arg(top));
}

/// Everything in a tree, by path: what a receive has to keep.
pub fn described(top: &Path) -> BTreeMap<PathBuf, String> {
    let (mut described, mut first_names, mut left) = (BTreeMap::new(), HashMap::new(), vec![PathBuf::new()]);
    while let Some(path) = left.pop() {
        let at = top.join(&path);
        let about = at.symlink_metadata().unwrap();
        let mut text = format!(
            "mode {:o} of {}:{}, {} names, device {:x}, {} bytes, accessed {}.{}, modified {}.{}",
            about.mode(),
            about.uid(),
            about.gid(),
            if about.is_dir() { 0 } else { about.nlink() },
            about.rdev(),
            if about.is_dir() { 0 } else { about.len() },
            about.atime(),
            about.atime_nsec(),
            about.mtime(),
            about.mtime_nsec()
        );
        if about.is_dir() {
            let mut names: Vec<_> = fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort_unstable_by(|one, other| other.cmp(one));
            left.extend(names.into_iter().map(|name| path.join(name)));
        } else {
            let first = first_names.entry(about.ino()).or_insert_with(|| path.clone());
            text.push_str(&format!(", first {}", first.display()));
        }
        if about.is_symlink() {
            text.push_str(&format!(", to {}", fs::read_link(&at).unwrap().display()));
        } else {
            text.push_str(&format!(", attributes {:?}", extended(&at)));
        }
        if about.is_file() {
            text.push_str(&contents(&at, &about));
        }
        described.insert(path, text);
    }
    described
}

fn extended(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = sys::list_xattr(path).unwrap();
    names.sort_unstable();
    names.retain(|name| name != MARK);
    names.into_iter().map(|name| (name.clone(), sys::get_xattr(path, &name).unwrap())).collect()
}

/// Where data and holes are, how much room it takes, and a sum of its bytes.
fn contents(path: &Path, about: &fs::Metadata) -> String {
    let file = File::open(path).unwrap();
    let (mut at, mut ranges) = (0, Vec::new());
    while let Ok(data) = sys::seek(&file, at, libc::SEEK_DATA) {
        at = sys::seek(&file, data, libc::SEEK_HOLE).unwrap();
        ranges.push(data..at);
    }
    let bytes = fs::read(path).unwrap();
    let sum = bytes.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte));
    format!(", data {ranges:?}, {} sectors, sum {sum:x}", about.blocks())
}
