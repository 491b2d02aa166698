//! Names, attributes and data placement of the flat file system, in memory.
//!
//! Knows where a file's bytes lie in the backing file, not how they get there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::failure::{During, Result};

/// Inode number of the root directory.
pub const ROOT: u64 = 1;

/// A file's data is placed in the backing file in pieces of this size.
const CHUNK_BYTES: u64 = 1 << 18;

/// What a directory or file is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// Names and the inodes they stand for.
    Directory(BTreeMap<String, u64>),
    /// Number of the chunk that holds each piece; absent pieces are holes.
    File(Vec<Option<u64>>),
}

/// One inode.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Directory or file.
    pub kind: Kind,
    /// Bytes of a file.
    pub size: u64,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of last modification.
    pub mtime: std::time::SystemTime,
}

/// A stretch of the backing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where it begins; `None` for a hole.
    pub offset: Option<u64>,
    /// Its length in bytes.
    pub bytes: u64,
}

/// All inodes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Names {
    nodes: HashMap<u64, Node>,
    /// Deleted inodes that the kernel still knows and may yet flush times to.
    orphans: HashSet<u64>,
    next_inode: u64,
    next_chunk: u64,
}

impl Names {
    /// The names saved at the last unmount, or an empty root.
    pub fn load(file: &Path) -> Result<Names> {
        if !file.exists() {
            return Ok(Names::empty());
        }
        let text = fs::read_to_string(file).during(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str(&text).during(|| format!("cannot read {}", file.display()))
    }

    fn empty() -> Names {
        let root = Node::new(Kind::Directory(BTreeMap::new()), 0o755, 0, 0);
        Names { nodes: HashMap::from([(ROOT, root)]), orphans: HashSet::new(), next_inode: ROOT + 1, next_chunk: 0 }
    }

    /// Saves the names for the next mount.
    pub fn save(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string(self).during(|| "cannot write the names as JSON")?;
        fs::write(file, text).during(|| format!("cannot write {}", file.display()))
    }

    /// The inode, if it exists.
    pub fn node(&self, inode: u64) -> Option<&Node> {
        self.nodes.get(&inode)
    }

    /// The inode, to be changed.
    pub fn node_mut(&mut self, inode: u64) -> Option<&mut Node> {
        self.nodes.get_mut(&inode)
    }

    /// The entries of a directory.
    pub fn entries(&self, directory: u64) -> Option<&BTreeMap<String, u64>> {
        match &self.nodes.get(&directory)?.kind {
            Kind::Directory(entries) => Some(entries),
            Kind::File(_) => None,
        }
    }

    fn entries_mut(&mut self, directory: u64) -> Option<&mut BTreeMap<String, u64>> {
        match &mut self.nodes.get_mut(&directory)?.kind {
            Kind::Directory(entries) => Some(entries),
            Kind::File(_) => None,
        }
    }

    /// Adds a new inode; `None` if the parent is not a directory.
    pub fn insert(&mut self, parent: u64, name: &str, node: Node) -> Option<u64> {
        let inode = self.next_inode;
        self.entries_mut(parent)?.insert(name.to_owned(), inode);
        self.nodes.insert(inode, node);
        self.next_inode += 1;
        Some(inode)
    }

    /// Removes a name; `None` if there is no such name. Its inode stays until the kernel forgets it.
    pub fn remove(&mut self, parent: u64, name: &str) -> Option<()> {
        let inode = self.entries_mut(parent)?.remove(name)?;
        self.orphans.insert(inode);
        Some(())
    }

    /// The kernel has forgotten the inode: if it has no name, it goes.
    pub fn forget(&mut self, inode: u64) {
        if self.orphans.remove(&inode) {
            self.nodes.remove(&inode);
        }
    }

    /// Where `bytes` bytes from `offset` of a file lie, in order, adjacent stretches joined.
    pub fn locate(&self, inode: u64, offset: u64, bytes: u64) -> Vec<Stretch> {
        match self.nodes.get(&inode).map(|node| &node.kind) {
            Some(Kind::File(chunks)) => stretches(chunks, offset, bytes),
            _ => Vec::new(),
        }
    }

    /// Like `locate`, after giving every hole in the range a chunk.
    pub fn place(&mut self, inode: u64, offset: u64, bytes: u64) -> Vec<Stretch> {
        let next_chunk = &mut self.next_chunk;
        let Some(Node { kind: Kind::File(chunks), .. }) = self.nodes.get_mut(&inode) else { return Vec::new() };
        let (first, end) = (offset / CHUNK_BYTES, (offset + bytes).div_ceil(CHUNK_BYTES));
        if chunks.len() < end as usize {
            chunks.resize(end as usize, None);
        }
        for chunk in chunks[first as usize..end as usize].iter_mut().filter(|chunk| chunk.is_none()) {
            *chunk = Some(*next_chunk);
            *next_chunk += 1;
        }
        stretches(chunks, offset, bytes)
    }
}

fn stretches(chunks: &[Option<u64>], mut offset: u64, bytes: u64) -> Vec<Stretch> {
    let end = offset + bytes;
    let mut found: Vec<Stretch> = Vec::new();
    while offset < end {
        let within = offset % CHUNK_BYTES;
        let piece = (CHUNK_BYTES - within).min(end - offset);
        let chunk = chunks.get((offset / CHUNK_BYTES) as usize).copied().flatten();
        let at = chunk.map(|chunk| chunk * CHUNK_BYTES + within);
        match found.last_mut() {
            Some(last) if last.offset.map(|start| start + last.bytes) == at => last.bytes += piece,
            _ => found.push(Stretch { offset: at, bytes: piece }),
        }
        offset += piece;
    }
    found
}

impl Node {
    /// A fresh inode.
    pub fn new(kind: Kind, mode: u16, uid: u32, gid: u32) -> Node {
        Node { kind, size: 0, mode, uid, gid, mtime: std::time::SystemTime::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_with_file() -> (Names, u64) {
        let mut names = Names::empty();
        let inode = names.insert(ROOT, "file", Node::new(Kind::File(Vec::new()), 0o644, 0, 0)).unwrap();
        (names, inode)
    }

    #[test]
    fn a_sequentially_written_file_is_one_stretch() {
        let (mut names, inode) = names_with_file();
        names.place(inode, 0, CHUNK_BYTES);
        names.place(inode, CHUNK_BYTES, CHUNK_BYTES);
        assert_eq!(names.locate(inode, 4096, CHUNK_BYTES), [Stretch { offset: Some(4096), bytes: CHUNK_BYTES }]);
    }

    #[test]
    fn what_was_never_written_is_a_hole_before_the_placed_stretch() {
        let (mut names, inode) = names_with_file();
        names.place(inode, CHUNK_BYTES, 4096);
        let expected = [Stretch { offset: None, bytes: CHUNK_BYTES }, Stretch { offset: Some(0), bytes: CHUNK_BYTES }];
        assert_eq!(names.locate(inode, 0, 2 * CHUNK_BYTES), expected);
    }

    #[test]
    fn a_placed_piece_keeps_its_place_when_written_again() {
        let (mut names, inode) = names_with_file();
        let first = names.place(inode, 8192, 4096);
        names.place(inode, 4 * CHUNK_BYTES, 4096);
        assert_eq!(names.place(inode, 8192, 4096), first);
    }

    #[test]
    fn a_deleted_inode_stays_until_it_is_forgotten() {
        let (mut names, inode) = names_with_file();
        names.forget(inode);
        assert!(names.node(inode).is_some(), "a file with a name was forgotten");
        names.remove(ROOT, "file").unwrap();
        assert!(names.node(inode).is_some());
        names.forget(inode);
        assert!(names.node(inode).is_none());
    }

    #[test]
    fn names_survive_saving_and_loading() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("names.json");
        let (mut names, inode) = names_with_file();
        let placed = names.place(inode, 0, 4096);
        names.save(&file).unwrap();
        let loaded = Names::load(&file).unwrap();
        assert_eq!(loaded.entries(ROOT).unwrap()["file"], inode);
        assert_eq!(loaded.locate(inode, 0, 4096), placed);
    }
}
