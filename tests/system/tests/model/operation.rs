//! What can be done to a file system: choosing it, and doing it to the mount.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use oncefs_system_tests::{BLOCK, Random, bytes, sys};

use super::tree::{Kind, Tree};

/// A name in a directory that exists.
#[derive(Clone, Debug)]
pub struct PathOf {
    /// The directory's path.
    pub directory: String,
    /// The name in it.
    pub name: String,
}

impl PathOf {
    fn parse(path: &str) -> Self {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        PathOf { directory: directory.to_owned(), name: name.to_owned() }
    }

    fn below(&self, root: &Path) -> PathBuf {
        root.join(&self.directory).join(&self.name)
    }

    /// Whether `other` lies somewhere below this name.
    pub fn contains(&self, other: &PathOf) -> bool {
        let whole = |p: &PathOf| format!("/{}/{}/", p.directory, p.name).replace("//", "/");
        let (mine, theirs) = (whole(self), whole(other));
        theirs != mine && theirs.starts_with(&mine)
    }
}

/// One operation.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of the system calls")]
pub enum Operation {
    Create { path: PathOf, mode: u32 },
    MakeDirectory { path: PathOf, mode: u32 },
    MakeSymlink { path: PathOf, target: String },
    MakeFifo { path: PathOf, mode: u32 },
    Link { from: PathOf, to: PathOf },
    Unlink { path: PathOf },
    RemoveDirectory { path: PathOf },
    Rename { from: PathOf, to: PathOf, flags: u32 },
    ChangeMode { path: PathOf, mode: u32 },
    ChangeOwner { path: PathOf, owner: (u32, u32) },
    SetTimes { path: PathOf, modified: sys::Time },
    SetXattr { path: PathOf, name: String, key: u64, len: usize },
    RemoveXattr { path: PathOf, name: String },
    Write { path: PathOf, at: usize, len: usize, key: u64 },
    Truncate { path: PathOf, len: usize },
    Punch { path: PathOf, at: usize, len: usize },
    ZeroRange { path: PathOf, at: usize, len: usize },
    Allocate { path: PathOf, at: usize, len: usize },
    Copy { from: PathOf, from_at: usize, to: PathOf, to_at: usize, len: usize },
}

const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "name with spaces", "\u{e4}\u{6f22}", LONG_NAME];
const LONG_NAME: &str = concat!(
    "0123456789012345678901234567890123456789012345678901234567890123",
    "0123456789012345678901234567890123456789012345678901234567890123",
    "0123456789012345678901234567890123456789012345678901234567890123",
    "012345678901234567890123456789012345678901234567890123456789012"
);
const DEPTH_MAX: usize = 4;
const FILE_BYTES_MAX: u64 = 200_000;
const CONTENTS: u64 = 12;

/// A name that exists or not, in a directory that does.
fn any_path(random: &mut Random, tree: &Tree) -> PathOf {
    let all = tree.all();
    if !all.is_empty() && random.one_in(2) {
        return PathOf::parse(all[random.index(all.len())].as_str());
    }
    let directories: Vec<String> =
        tree.directories().into_iter().filter(|d| d.matches('/').count() + 1 < DEPTH_MAX).collect();
    PathOf { directory: directories[random.index(directories.len())].clone(), name: random.pick(&NAMES).to_owned() }
}

/// Half of them on whole blocks, where sharing happens.
fn any_offset(random: &mut Random) -> usize {
    let at = random.below(FILE_BYTES_MAX);
    (if random.one_in(2) { at / BLOCK * BLOCK } else { at }) as usize
}

fn any_length(random: &mut Random) -> usize {
    let len = 1 + random.below(60_000);
    (if random.one_in(2) { len.next_multiple_of(BLOCK) } else { len }) as usize
}

/// The set-id bits are left out: who may keep them is for pjdfstest.
fn any_mode(random: &mut Random) -> u32 {
    random.below(0o1000) as u32
}

impl Operation {
    /// Any operation.
    pub fn random(random: &mut Random, tree: &Tree) -> Self {
        if random.one_in(2) {
            Self::random_content_change(random, tree)
        } else {
            Self::random_name_change(random, tree)
        }
    }

    /// An operation that concerns names and attributes only.
    pub fn random_name_change(random: &mut Random, tree: &Tree) -> Self {
        let path = any_path(random, tree);
        match random.below(16) {
            0..=2 => Operation::Create { path, mode: any_mode(random) },
            3..=4 => Operation::MakeDirectory { path, mode: any_mode(random) },
            5 => Operation::MakeSymlink { path, target: format!("../{}", random.pick(&NAMES)) },
            6 => Operation::MakeFifo { path, mode: any_mode(random) },
            7 => Operation::Link { from: path, to: any_path(random, tree) },
            8 => Operation::Unlink { path },
            9 => Operation::RemoveDirectory { path },
            10..=12 => {
                let flags = random.pick(&[0, 0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE]);
                Operation::Rename { from: path, to: any_path(random, tree), flags }
            }
            _ => Self::random_attribute_change(random, tree, path),
        }
    }

    fn random_attribute_change(random: &mut Random, tree: &Tree, path: PathOf) -> Self {
        let id = tree.find(&format!("{}/{}", path.directory, path.name));
        let kind = id.map(|id| &tree.node(id).kind);
        let name = format!("user.{}", random.pick(&["one", "two", "three"]));
        let takes_xattrs = matches!(kind, Some(Kind::File(_) | Kind::Directory(_)));
        match random.below(5) {
            0 if !matches!(kind, Some(Kind::Symlink(_))) => Operation::ChangeMode { path, mode: any_mode(random) },
            1 => Operation::ChangeOwner { path, owner: (random.below(3) as u32, random.below(3) as u32) },
            2 if takes_xattrs => {
                Operation::SetXattr { path, name, key: random.below(5), len: random.below(3000) as usize }
            }
            3 if takes_xattrs => Operation::RemoveXattr { path, name },
            _ => Operation::SetTimes {
                path,
                modified: (random.below(1 << 33) as i64, random.below(1_000_000_000) as i64),
            },
        }
    }

    fn random_content_change(random: &mut Random, tree: &Tree) -> Self {
        let files = tree.regular_files();
        if files.is_empty() {
            return Operation::Create { path: any_path(random, tree), mode: 0o644 };
        }
        let path = PathOf::parse(files[random.index(files.len())].as_str());
        let (at, len) = (any_offset(random), any_length(random));
        match random.below(10) {
            0..=3 => Operation::Write { path, at, len, key: random.below(CONTENTS) },
            4 => Operation::Truncate { path, len: at },
            5 => Operation::Punch { path, at, len },
            6 => Operation::ZeroRange { path, at, len },
            7 => Operation::Allocate { path, at, len },
            _ => {
                let to = PathOf::parse(files[random.index(files.len())].as_str());
                Operation::Copy { from: path, from_at: at, to, to_at: any_offset(random), len }
            }
        }
    }
}

/// Performs an operation below `root`; the error is the errno.
pub fn perform(root: &Path, operation: &Operation) -> Result<(), i32> {
    attempt(root, operation).map_err(|error| error.raw_os_error().unwrap_or(-1))
}

fn writer(path: &PathOf, root: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path.below(root))
}

fn attempt(root: &Path, operation: &Operation) -> io::Result<()> {
    match operation {
        Operation::Create { path, mode } => {
            OpenOptions::new().write(true).create_new(true).mode(*mode).open(path.below(root)).map(|_| ())
        }
        Operation::MakeDirectory { path, mode } => fs::DirBuilder::new().mode(*mode).create(path.below(root)),
        Operation::MakeSymlink { path, target } => symlink(target, path.below(root)),
        Operation::MakeFifo { path, mode } => sys::mknod(&path.below(root), libc::S_IFIFO | mode, 0),
        Operation::Link { from, to } => fs::hard_link(from.below(root), to.below(root)),
        Operation::Unlink { path } => fs::remove_file(path.below(root)),
        Operation::RemoveDirectory { path } => fs::remove_dir(path.below(root)),
        Operation::Rename { from, to, flags } => sys::rename(&from.below(root), &to.below(root), *flags),
        Operation::ChangeMode { path, mode } => {
            fs::set_permissions(path.below(root), fs::Permissions::from_mode(*mode))
        }
        Operation::ChangeOwner { path, owner } => sys::chown(&path.below(root), owner.0, owner.1),
        Operation::SetTimes { path, modified } => sys::set_times(&path.below(root), *modified, *modified),
        Operation::SetXattr { path, name, key, len } => sys::set_xattr(&path.below(root), name, &bytes(*key, *len)),
        Operation::RemoveXattr { path, name } => sys::remove_xattr(&path.below(root), name),
        Operation::Write { path, at, len, key } => writer(path, root)?.write_all_at(&bytes(*key, *len), *at as u64),
        Operation::Truncate { path, len } => writer(path, root)?.set_len(*len as u64),
        Operation::Punch { path, at, len } => {
            let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            sys::fallocate(&writer(path, root)?, punch, *at as u64, *len as u64)
        }
        Operation::ZeroRange { path, at, len } => {
            sys::fallocate(&writer(path, root)?, libc::FALLOC_FL_ZERO_RANGE, *at as u64, *len as u64)
        }
        Operation::Allocate { path, at, len } => sys::fallocate(&writer(path, root)?, 0, *at as u64, *len as u64),
        Operation::Copy { from, from_at, to, to_at, len } => {
            copy(root, from, *from_at as u64, to, *to_at as u64, *len as u64)
        }
    }
}

/// Ends early where the source ended before, as the model does: a copy within one file moves its end.
fn copy(root: &Path, from: &PathOf, from_at: u64, to: &PathOf, to_at: u64, len: u64) -> io::Result<()> {
    let (source, target) = (File::open(from.below(root))?, writer(to, root)?);
    let asked = len;
    let len = source.metadata()?.len().saturating_sub(from_at).min(asked);
    if len == 0 {
        return sys::copy_range(&source, from_at, &target, to_at, asked).map(drop);
    }
    let mut copied = 0;
    while copied < len {
        match sys::copy_range(&source, from_at + copied, &target, to_at + copied, len - copied)? {
            0 => break,
            part => copied += part,
        }
    }
    Ok(())
}
