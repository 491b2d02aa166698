//! The visible state of a file system: every name and its inode.

use std::collections::{BTreeMap, BTreeSet};

use oncefs_fs::{Error, FileKind, FileSystem, Ino, Result, Whence};

/// Most bytes of a file that are compared. No file of the base volume is larger.
const READ_BYTES_MAX: usize = 1 << 20;
/// Most names that are read. The base volume has fewer than a tenth.
const NAMES_MAX: usize = 2000;

/// The inode of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    kind: FileKind,
    size: u64,
    nlink: u32,
    /// The content of a regular file, or the target of a symbolic link.
    bytes: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// All names by path, each with its inode or an error.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: BTreeMap<Vec<u8>, Option<Node>>,
}

impl Tree {
    /// Reads everything. Errors are part of the state.
    pub fn of(file_system: &FileSystem) -> Self {
        let mut tree = Self::default();
        let mut seen = BTreeSet::from([Ino::ROOT]);
        let mut waiting = vec![(Vec::new(), Ino::ROOT)];
        while let Some((path, ino)) = waiting.pop() {
            let Ok(entries) = entries(file_system, ino) else {
                tree.nodes.insert(path, None);
                continue;
            };
            for (name, child, kind) in entries {
                if tree.nodes.len() >= NAMES_MAX {
                    return tree;
                }
                let path = [path.as_slice(), b"/", &name].concat();
                let node = node(file_system, ino, &name, child).ok();
                if kind == FileKind::Directory && seen.insert(child) {
                    waiting.push((path.clone(), child));
                }
                tree.nodes.insert(path, node);
            }
        }
        tree
    }

    /// Whether an error was seen at `path` or above it.
    fn has_failed(&self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        ends.chain([path.len()]).any(|end| self.nodes.get(&path[..end]).is_some_and(Option::is_none))
    }

    /// The first path whose state, without an error, differs from that in each of `states`.
    pub fn first_difference(&self, states: &[Tree]) -> Option<String> {
        let mut paths: BTreeSet<&Vec<u8>> = self.nodes.keys().collect();
        paths.extend(states.iter().flat_map(|state| state.nodes.keys()));
        let differs = |path: &&Vec<u8>| {
            !self.has_failed(path) && states.iter().all(|state| state.nodes.get(*path) != self.nodes.get(*path))
        };
        paths.into_iter().find(differs).map(|path| String::from_utf8_lossy(path).into_owned())
    }
}

fn entries(file_system: &FileSystem, directory: Ino) -> Result<Vec<(Vec<u8>, Ino, FileKind)>> {
    const AFTER_DOTS: u64 = 2;
    let mut found = Vec::new();
    file_system.readdir(directory, AFTER_DOTS, &mut |entry| {
        found.push((entry.name.to_vec(), entry.ino, entry.kind));
        found.len() < NAMES_MAX
    })?;
    Ok(found)
}

/// The result of a lookup and further calls for a name.
fn node(file_system: &FileSystem, parent: Ino, name: &[u8], ino: Ino) -> Result<Node> {
    let seen = file_system.lookup(parent, name)?;
    if seen.ino != ino {
        return Err(Error::Stale);
    }
    let bytes = match seen.kind {
        FileKind::Regular => content(file_system, ino)?,
        FileKind::Symlink => file_system.readlink(ino)?,
        _ => Vec::new(),
    };
    let list = file_system.listxattr(ino)?;
    let mut xattrs = BTreeMap::new();
    for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        xattrs.insert(name.to_vec(), file_system.getxattr(ino, name)?);
    }
    Ok(Node { kind: seen.kind, size: seen.size, nlink: seen.nlink, bytes, xattrs })
}

/// The first bytes of a file. Calls `lseek` too, which must not fail.
fn content(file_system: &FileSystem, ino: Ino) -> Result<Vec<u8>> {
    for whence in [Whence::Data, Whence::Hole] {
        match file_system.lseek(ino, 0, whence) {
            Ok(_) | Err(Error::NoSuchOffset) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(file_system.read(ino, 0, READ_BYTES_MAX, true)?.to_vec())
}
