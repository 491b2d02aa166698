//! The model: what a file system is, in memory, without any of its difficulties.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncefs_system_tests::{bytes, sys::Time};

use super::operation::{Operation, PathOf};

/// Identity of a node; names point to it.
pub type Id = u32;

/// The root's identity.
pub const ROOT: Id = 0;

/// What a node holds.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Contents.
    File(Arc<Vec<u8>>),
    /// Names.
    Directory(BTreeMap<String, Id>),
    /// Target.
    Symlink(String),
    /// A named pipe.
    Fifo,
}

/// A file of any kind.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it holds.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Modification time, where an operation set it and nothing changed it since.
    pub modified: Option<Time>,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// A whole file system.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: BTreeMap<Id, Node>,
    next: Id,
}

type Done = Result<(), i32>;

fn node(kind: Kind, mode: u32) -> Node {
    Node { kind, mode, owner: (0, 0), modified: None, xattrs: BTreeMap::new() }
}

impl Tree {
    /// Only a root.
    pub fn new() -> Self {
        Tree { nodes: BTreeMap::from([(ROOT, node(Kind::Directory(BTreeMap::new()), 0o755))]), next: 1 }
    }

    /// A node that exists.
    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[&id]
    }

    fn change(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    fn names(&self, id: Id) -> Option<&BTreeMap<String, Id>> {
        match &self.node(id).kind {
            Kind::Directory(names) => Some(names),
            _ => None,
        }
    }

    /// Changes a directory's names, and with them its modification time.
    fn change_names(&mut self, directory: Id) -> &mut BTreeMap<String, Id> {
        let node = self.change(directory);
        node.modified = None;
        match &mut node.kind {
            Kind::Directory(names) => names,
            _ => unreachable!("operations are generated below directories"),
        }
    }

    /// Paths of all directories, the root's being empty.
    pub fn directories(&self) -> Vec<String> {
        self.paths(|kind| matches!(kind, Kind::Directory(_)), true)
    }

    /// Paths of all regular files.
    pub fn regular_files(&self) -> Vec<String> {
        self.paths(|kind| matches!(kind, Kind::File(_)), false)
    }

    /// All paths but the root's.
    pub fn all(&self) -> Vec<String> {
        self.paths(|_| true, false)
    }

    fn paths(&self, wanted: impl Fn(&Kind) -> bool, with_root: bool) -> Vec<String> {
        let mut found = if with_root { vec![String::new()] } else { vec![] };
        let mut open = vec![(String::new(), ROOT)];
        while let Some((path, id)) = open.pop() {
            for (name, child) in self.names(id).into_iter().flatten() {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                if wanted(&self.node(*child).kind) {
                    found.push(path.clone());
                }
                open.push((path, *child));
            }
        }
        found
    }

    /// How many links a node has: its names, or for a directory itself, its name and its subdirectories.
    pub fn links(&self, id: Id) -> u64 {
        let is_directory = |id: &&Id| self.names(**id).is_some();
        match self.names(id) {
            Some(names) => 2 + names.values().filter(is_directory).count() as u64,
            None => self
                .nodes
                .keys()
                .filter_map(|d| self.names(*d))
                .flat_map(BTreeMap::values)
                .filter(|n| **n == id)
                .count() as u64,
        }
    }

    /// The node a path names.
    pub fn find(&self, path: &str) -> Option<Id> {
        path.split('/').filter(|part| !part.is_empty()).try_fold(ROOT, |id, part| self.names(id)?.get(part).copied())
    }

    fn parent(&self, path: &PathOf) -> Id {
        self.find(&path.directory).expect("operations are generated below directories")
    }

    fn existing(&self, path: &PathOf) -> Result<Id, i32> {
        self.names(self.parent(path)).and_then(|names| names.get(&path.name)).copied().ok_or(libc::ENOENT)
    }

    fn add(&mut self, path: &PathOf, new: Node) -> Done {
        if self.existing(path).is_ok() {
            return Err(libc::EEXIST);
        }
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, new);
        let parent = self.parent(path);
        self.change_names(parent).insert(path.name.clone(), id);
        Ok(())
    }

    /// Removes a name, and the node when that was its last.
    fn remove(&mut self, path: &PathOf) {
        let parent = self.parent(path);
        let id = self.change_names(parent).remove(&path.name).unwrap();
        let is_named = self.nodes.keys().filter_map(|d| self.names(*d)).any(|names| names.values().any(|n| *n == id));
        if !is_named {
            self.nodes.remove(&id);
        }
    }

    fn edit(&mut self, path: &PathOf, edit: impl FnOnce(&mut Vec<u8>)) -> Done {
        let id = self.existing(path)?;
        let node = self.change(id);
        node.modified = None;
        match &mut node.kind {
            Kind::File(content) => edit(Arc::make_mut(content)),
            _ => unreachable!("contents are generated for files"),
        }
        Ok(())
    }

    fn content(&self, path: &PathOf) -> Vec<u8> {
        match &self.node(self.existing(path).unwrap()).kind {
            Kind::File(content) => content.to_vec(),
            _ => unreachable!("contents are generated for files"),
        }
    }

    /// Performs an operation; the error is the errno that Linux gives.
    pub fn apply(&mut self, operation: &Operation) -> Done {
        match operation {
            Operation::Create { path, mode } => self.add(path, node(Kind::File(Arc::default()), *mode)),
            Operation::MakeDirectory { path, mode } => self.add(path, node(Kind::Directory(BTreeMap::new()), *mode)),
            Operation::MakeSymlink { path, target } => self.add(path, node(Kind::Symlink(target.clone()), 0o777)),
            Operation::MakeFifo { path, mode } => self.add(path, node(Kind::Fifo, *mode)),
            Operation::Link { from, to } => self.link(from, to),
            Operation::Unlink { path } => self.unlink(path),
            Operation::RemoveDirectory { path } => self.remove_directory(path),
            Operation::Rename { from, to, flags } => self.rename(from, to, *flags),
            Operation::ChangeMode { path, mode } => self.existing(path).map(|id| self.change(id).mode = *mode),
            Operation::ChangeOwner { path, owner } => self.existing(path).map(|id| self.change(id).owner = *owner),
            Operation::SetTimes { path, modified } => {
                self.existing(path).map(|id| self.change(id).modified = Some(*modified))
            }
            Operation::SetXattr { path, name, key, len } => {
                self.existing(path).map(|id| _ = self.change(id).xattrs.insert(name.clone(), bytes(*key, *len)))
            }
            Operation::RemoveXattr { path, name } => {
                let id = self.existing(path)?;
                self.change(id).xattrs.remove(name).map(|_| ()).ok_or(libc::ENODATA)
            }
            Operation::Write { path, at, len, key } => self.edit(path, |content| put(content, *at, &bytes(*key, *len))),
            Operation::Truncate { path, len } => self.edit(path, |content| content.resize(*len, 0)),
            Operation::Punch { path, at, len } => self.edit(path, |content| zero(content, *at, *len)),
            Operation::ZeroRange { path, at, len } => self.edit(path, |content| {
                content.resize(content.len().max(at + len), 0);
                zero(content, *at, *len);
            }),
            Operation::Allocate { path, at, len } => {
                self.edit(path, |content| content.resize(content.len().max(at + len), 0))
            }
            Operation::Copy { from, from_at, to, to_at, len } => self.copy(from, *from_at, to, *to_at, *len),
        }
    }

    fn copy(&mut self, from: &PathOf, from_at: usize, to: &PathOf, to_at: usize, len: usize) -> Done {
        let source = self.content(from);
        let part = source.get(from_at..source.len().min(from_at + len)).unwrap_or_default();
        let overlaps = to_at + part.len() > from_at && to_at < from_at + part.len();
        if overlaps && self.existing(from) == self.existing(to) {
            return Err(libc::EINVAL);
        }
        self.edit(to, |content| put(content, to_at, part))
    }

    fn link(&mut self, from: &PathOf, to: &PathOf) -> Done {
        let id = self.existing(from)?;
        if self.existing(to).is_ok() {
            return Err(libc::EEXIST);
        }
        if self.names(id).is_some() {
            return Err(libc::EPERM);
        }
        let parent = self.parent(to);
        self.change_names(parent).insert(to.name.clone(), id);
        Ok(())
    }

    fn unlink(&mut self, path: &PathOf) -> Done {
        if self.names(self.existing(path)?).is_some() {
            return Err(libc::EISDIR);
        }
        self.remove(path);
        Ok(())
    }

    fn remove_directory(&mut self, path: &PathOf) -> Done {
        match self.names(self.existing(path)?) {
            None => Err(libc::ENOTDIR),
            Some(names) if !names.is_empty() => Err(libc::ENOTEMPTY),
            Some(_) => {
                self.remove(path);
                Ok(())
            }
        }
    }

    /// In the kernel's order of checks.
    fn rename(&mut self, from: &PathOf, to: &PathOf, flags: u32) -> Done {
        let source = self.existing(from)?;
        let target = self.existing(to);
        let exchange = flags == libc::RENAME_EXCHANGE;
        if flags == libc::RENAME_NOREPLACE && target.is_ok() {
            return Err(libc::EEXIST);
        }
        if exchange {
            target?;
        }
        if from.contains(to) {
            return Err(libc::EINVAL);
        }
        if to.contains(from) {
            return Err(if exchange { libc::EINVAL } else { libc::ENOTEMPTY });
        }
        if target == Ok(source) {
            return Ok(());
        }
        if let (Ok(target), false) = (target, exchange) {
            self.may_replace(source, target)?;
            self.remove(to);
        }
        let (from_parent, to_parent) = (self.parent(from), self.parent(to));
        self.change_names(from_parent).remove(&from.name);
        self.change_names(to_parent).insert(to.name.clone(), source);
        if let (Ok(target), true) = (target, exchange) {
            self.change_names(from_parent).insert(from.name.clone(), target);
        }
        Ok(())
    }

    fn may_replace(&self, source: Id, target: Id) -> Done {
        match (self.names(source), self.names(target)) {
            (Some(_), None) => Err(libc::ENOTDIR),
            (None, Some(_)) => Err(libc::EISDIR),
            (Some(_), Some(names)) if !names.is_empty() => Err(libc::ENOTEMPTY),
            _ => Ok(()),
        }
    }
}

fn put(content: &mut Vec<u8>, at: usize, data: &[u8]) {
    if !data.is_empty() {
        content.resize(content.len().max(at + data.len()), 0);
        content[at..at + data.len()].copy_from_slice(data);
    }
}

fn zero(content: &mut [u8], at: usize, len: usize) {
    let end = content.len().min(at + len);
    if let Some(part) = content.get_mut(at..end) {
        part.fill(0);
    }
}
