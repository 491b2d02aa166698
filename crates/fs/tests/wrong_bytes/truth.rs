//! The exact content of a volume: names, owners, permissions, attributes and every block, and the owners of all
//! content.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use oncefs_fs::{FileKind, Ino};
use oncefs_toolbox::random::mix;

/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// A path below the root, without a slash in front.
pub type Path = Vec<u8>;

/// Names and values of extended attributes.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A file, directory or symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thing {
    /// Its kind.
    pub kind: FileKind,
    /// Its permission bits.
    pub permissions: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Time of the last write, in seconds.
    pub mtime: i64,
    /// Extended attributes, access control lists among them.
    pub xattrs: Xattrs,
    /// A file's bytes, or the target of a symbolic link.
    pub content: Arc<Vec<u8>>,
}

/// All things by inode, and their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The things.
    pub things: BTreeMap<Ino, Arc<Thing>>,
    /// Every name.
    pub names: BTreeMap<Path, Ino>,
}

impl Tree {
    /// The thing with this name.
    pub fn at(&self, path: &[u8]) -> &Thing {
        &self.things[&self.names[path]]
    }

    /// The names of a thing.
    pub fn names_of(&self, ino: Ino) -> impl Iterator<Item = &Path> {
        self.names.iter().filter(move |(_, named)| **named == ino).map(|(path, _)| path)
    }
}

/// The thing and version that a block was written for, by the first bytes of its content.
#[derive(Default)]
pub struct History(HashMap<[u8; 16], String>);

impl History {
    /// New content for `path`, with blocks that were never used before.
    pub fn unique(&mut self, path: &[u8], uid: u32, len: usize) -> Vec<u8> {
        let number = self.0.len() as u64;
        let bytes = bytes_of(number + 1, len);
        for (at, block) in bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block.len() >= 16) {
            let what = format!("block {at} of what user {uid} wrote to {} as the {number}th", text(path));
            self.0.insert(block[..16].try_into().unwrap(), what);
        }
        bytes
    }

    /// Describes the content of a wrong block.
    pub fn tell(&self, block: &[u8]) -> String {
        if block.iter().all(|byte| *byte == 0) {
            return "zeros".to_owned();
        }
        let known = block.get(..16).and_then(|start| self.0.get(start));
        known.cloned().unwrap_or_else(|| "bytes that nobody wrote".to_owned())
    }
}

/// Content that many files share: every call returns the same.
pub fn shared(len: usize) -> Vec<u8> {
    bytes_of(u64::MAX, len)
}

/// Bytes that depend on a number. No two blocks of them are equal.
fn bytes_of(number: u64, len: usize) -> Vec<u8> {
    let word = |n: u64| mix(mix(number) ^ n).to_le_bytes();
    (0..len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}

/// A path as text.
pub fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
