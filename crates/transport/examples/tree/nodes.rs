//! Inodes and names of the tree.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use oncefs_transport::Errno;
use oncefs_transport::protocol::attributes::{Attributes, Time};
use oncefs_transport::protocol::operation::{SetAttributes, SetTime};

pub const ROOT: u64 = 1;

/// A result, or an errno.
pub type Answer<T> = Result<T, Errno>;

pub fn errno(code: i32) -> Errno {
    Errno::new(code)
}

pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}

/// One inode.
#[derive(Default)]
pub struct Node {
    pub attributes: Attributes,
    pub birth: Time,
    /// The content of a file, or the target of a symbolic link.
    pub data: Vec<u8>,
    /// The names in a directory.
    pub names: BTreeMap<Vec<u8>, u64>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The kernel's lookups.
    pub lookups: u64,
}

/// All inodes.
pub struct Nodes {
    nodes: HashMap<u64, Node>,
    next: u64,
}

impl Nodes {
    pub fn new() -> Self {
        let mut nodes = Self { nodes: HashMap::new(), next: ROOT };
        let root = nodes.make(libc::S_IFDIR | 0o755, 0, Vec::new());
        nodes.nodes.entry(root).and_modify(|node| node.attributes.nlink = 2);
        nodes
    }

    /// The number of inodes.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub fn get(&self, inode: u64) -> Answer<&Node> {
        self.nodes.get(&inode).ok_or(errno(libc::ESTALE))
    }

    pub fn get_mut(&mut self, inode: u64) -> Answer<&mut Node> {
        self.nodes.get_mut(&inode).ok_or(errno(libc::ESTALE))
    }

    pub fn find(&self, parent: u64, name: &[u8]) -> Answer<u64> {
        self.get(parent)?.names.get(name).copied().ok_or(errno(libc::ENOENT))
    }

    /// A new inode without a name.
    pub fn make(&mut self, mode: u32, rdev: u32, data: Vec<u8>) -> u64 {
        let (inode, time) = (self.next, now());
        self.next += 1;
        let mut node = Node { data, birth: time, ..Node::default() };
        let attributes = &mut node.attributes;
        (attributes.inode, attributes.mode, attributes.rdev) = (inode, mode, rdev);
        (attributes.atime, attributes.mtime, attributes.ctime) = (time, time, time);
        attributes.block_bytes = 4096;
        attributes.size = node.data.len() as u64;
        self.nodes.insert(inode, node);
        inode
    }

    /// Gives an inode a name that is free.
    pub fn link(&mut self, parent: u64, name: &[u8], inode: u64) -> Answer<()> {
        let names = &mut self.get_mut(parent)?.names;
        if names.contains_key(name) {
            return Err(errno(libc::EEXIST));
        }
        names.insert(name.to_vec(), inode);
        self.get_mut(inode)?.attributes.nlink += 1;
        Ok(())
    }

    /// Removes a name, and with the last name the inode, unless the kernel holds it.
    pub fn unlink(&mut self, parent: u64, name: &[u8]) -> Answer<()> {
        let inode = self.find(parent, name)?;
        if !self.get(inode)?.names.is_empty() {
            return Err(errno(libc::ENOTEMPTY));
        }
        self.get_mut(parent)?.names.remove(name);
        self.get_mut(inode)?.attributes.nlink -= 1;
        self.drop_if_unused(inode);
        Ok(())
    }

    /// renameat2(2).
    pub fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Answer<()> {
        let (inode, there) = (self.find(from.0, from.1)?, self.find(to.0, to.1));
        match (flags, there) {
            (libc::RENAME_NOREPLACE, Ok(_)) => return Err(errno(libc::EEXIST)),
            (libc::RENAME_EXCHANGE, there) => {
                self.get_mut(from.0)?.names.insert(from.1.to_vec(), there?);
                self.get_mut(to.0)?.names.insert(to.1.to_vec(), inode);
                return Ok(());
            }
            (_, Ok(_)) => self.unlink(to.0, to.1)?,
            (_, Err(_)) => {}
        }
        self.get_mut(from.0)?.names.remove(from.1);
        self.get_mut(to.0)?.names.insert(to.1.to_vec(), inode);
        if flags & libc::RENAME_WHITEOUT != 0 {
            let whiteout = self.make(libc::S_IFCHR, 0, Vec::new());
            self.link(from.0, from.1, whiteout)?;
        }
        Ok(())
    }

    pub fn forget(&mut self, inode: u64, lookups: u64) {
        if let Some(node) = self.nodes.get_mut(&inode) {
            assert!(node.lookups >= lookups, "inode {inode} was told {} times, forgotten {lookups}", node.lookups);
            node.lookups -= lookups;
            self.drop_if_unused(inode);
        }
    }

    fn drop_if_unused(&mut self, inode: u64) {
        if self.nodes.get(&inode).is_some_and(|node| node.lookups == 0 && node.attributes.nlink == 0) {
            self.nodes.remove(&inode);
        }
    }

    pub fn set(&mut self, inode: u64, set: &SetAttributes) -> Answer<Attributes> {
        let node = self.get_mut(inode)?;
        if let Some(size) = set.size {
            node.data.resize(size as usize, 0);
        }
        let has = &mut node.attributes;
        has.size = node.data.len() as u64;
        has.mode = set.mode.map_or(has.mode, |mode| has.mode & libc::S_IFMT | mode & 0o7777);
        (has.uid, has.gid) = (set.uid.unwrap_or(has.uid), set.gid.unwrap_or(has.gid));
        let time = |set: Option<SetTime>, old| match set {
            Some(SetTime::At(at)) => at,
            Some(SetTime::Now) => now(),
            None => old,
        };
        (has.atime, has.mtime) = (time(set.atime, has.atime), time(set.mtime, has.mtime));
        Ok(*has)
    }

    pub fn write(&mut self, inode: u64, offset: u64, bytes: &[u8]) -> Answer<u64> {
        let node = self.get_mut(inode)?;
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        if node.data.len() < to {
            node.data.resize(to, 0);
        }
        node.data[from..to].copy_from_slice(bytes);
        node.attributes.size = node.data.len() as u64;
        Ok(bytes.len() as u64)
    }

    /// Up to `len` bytes from `offset` on.
    pub fn read(&self, inode: u64, offset: u64, len: u64) -> Answer<&[u8]> {
        let data = &self.get(inode)?.data;
        let end = offset.saturating_add(len).min(data.len() as u64);
        Ok(data.get(offset as usize..end as usize).unwrap_or_default())
    }
}
