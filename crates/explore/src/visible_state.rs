//! The visible state of a file system at one moment, of the real one or of the model, for comparison after a crash.

use std::collections::BTreeMap;

use oncefs_fs::{EntryKind, Error, FileFlags, FileKind, FileSystem, Ino, Timestamp, Whence};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::model::{Model, Node};

/// Bytes of a file that have one digest.
const PIECE_BYTES: usize = oncefs_engine::BLOCK_BYTES;
/// Most differences that are listed.
const DIFFERENCES_MAX: usize = 8;

/// The visible state of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    ino: Ino,
    kind: FileKind,
    permissions: u32,
    flags: FileFlags,
    owner: (u32, u32),
    nlink: u32,
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
    used: Used,
    /// Digests of the content, block by block.
    content: Vec<u64>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The usage in the record of a regular file. Moments in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    last_write: u32,
    last_access: u32,
    blocks_read: u64,
}

/// A file system by paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    paths: BTreeMap<String, Seen>,
    data_blocks: u64,
}

impl Used {
    fn of_model(model: &Model, ino: Ino, node: &Node) -> Self {
        if node.kind != FileKind::Regular {
            return Self::default();
        }
        let last_write = node.written.seconds as u32;
        let (blocks_read, last_read) = model.reads.get(&ino).copied().unwrap_or_default();
        Self { last_write, last_access: last_write.max(last_read), blocks_read }
    }

    fn of_file(file_system: &FileSystem, ino: Ino) -> oncefs_fs::Result<Self> {
        let usage = file_system.usage(ino)?;
        let reads = usage.reads();
        Ok(Self {
            last_write: usage.last_write().0,
            last_access: usage.last_access().0,
            blocks_read: u64::from(reads.sequential) + u64::from(reads.random),
        })
    }
}

impl Snapshot {
    /// The snapshot of the model.
    pub fn of_model(model: &Model) -> Self {
        let mut snapshot = Self { data_blocks: model.data_blocks, ..Self::default() };
        let mut left = vec![(String::new(), Ino::ROOT)];
        while let Some((path, ino)) = left.pop() {
            let node = model.reference.node(ino);
            left.extend(node.entries.iter().map(|(name, ino)| (below(&path, name), *ino)));
            let is_link = node.kind == FileKind::Symlink;
            let has_size = is_link || node.kind == FileKind::Regular;
            let seen = Seen {
                ino,
                kind: node.kind,
                permissions: node.permissions,
                flags: node.flags,
                owner: (node.uid, node.gid),
                nlink: node.nlink,
                size: if has_size { node.content.len() as u64 } else { 0 },
                mtime: node.mtime,
                ctime: node.ctime,
                used: Used::of_model(model, ino, node),
                content: if is_link { Vec::new() } else { digests(&node.content) },
                target: if is_link { node.content.clone() } else { Vec::new() },
                xattrs: node.xattrs.clone(),
            };
            snapshot.paths.insert(path, seen);
        }
        snapshot
    }

    /// The snapshot of a file system, from a walk through it.
    pub fn of_file_system(file_system: &FileSystem) -> oncefs_fs::Result<Self> {
        let mut snapshot = Self { data_blocks: file_system.statfs().total, ..Self::default() };
        let mut left = vec![(String::new(), Ino::ROOT)];
        while let Some((path, ino)) = left.pop() {
            let seen = see(file_system, ino)?;
            if seen.kind == FileKind::Directory {
                file_system.readdir(ino, 0, &mut |entry| {
                    if entry.entry_kind == EntryKind::Name {
                        left.push((below(&path, entry.name), entry.ino));
                    }
                    true
                })?;
            }
            snapshot.paths.insert(path, seen);
        }
        Ok(snapshot)
    }

    /// The snapshot without a file of the root directory, as if it had never been made. The root's times become those
    /// of another snapshot.
    pub fn without(mut self, name: &str, other: &Self) -> Self {
        self.paths.remove(&format!("/{name}"));
        if let (Some(root), Some(others)) = (self.paths.get_mut(""), other.paths.get("")) {
            (root.mtime, root.ctime) = (others.mtime, others.ctime);
        }
        self
    }

    /// Differences in paths on which two other snapshots agree.
    pub fn differences_outside(&self, before: &Self, after: &Self) -> Vec<String> {
        let changes = |path: &String| before.paths.get(path) != after.paths.get(path);
        let without = |snapshot: &Self| {
            let paths = snapshot.paths.iter().filter(|(path, _)| !changes(path));
            Self { paths: paths.map(|(path, seen)| (path.clone(), seen.clone())).collect(), ..*snapshot }
        };
        without(self).differences(&without(before))
    }

    /// Gives a path, and everything below it, the inode numbers of another snapshot. For files that each of them
    /// created.
    pub fn take_numbers_below(&mut self, path: &str, other: &Self) {
        for (name, seen) in self.paths.range_mut(path.to_owned()..).take_while(|(name, _)| name.starts_with(path)) {
            if let Some(of_other) = other.paths.get(name) {
                seen.ino = of_other.ino;
            }
        }
    }

    /// Equal for equal snapshots, different for others (128 bits).
    pub fn digest(&self) -> u128 {
        let mut bytes = self.data_blocks.to_le_bytes().to_vec();
        for (path, seen) in &self.paths {
            put(&mut bytes, path.as_bytes());
            for number in [seen.ino.0, seen.size, seen.owner.0.into(), seen.owner.1.into(), seen.nlink.into()] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(&(seen.permissions | seen.kind.mode_bits()).to_le_bytes());
            let Used { last_write, last_access, blocks_read } = seen.used;
            for number in [last_write.into(), last_access.into(), blocks_read] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            for time in [seen.mtime, seen.ctime] {
                bytes.extend_from_slice(&time.seconds.to_le_bytes());
                bytes.extend_from_slice(&time.nanoseconds.to_le_bytes());
            }
            seen.content.iter().for_each(|digest| bytes.extend_from_slice(&digest.to_le_bytes()));
            put(&mut bytes, &seen.target);
            for (name, value) in &seen.xattrs {
                put(&mut bytes, name);
                put(&mut bytes, value);
            }
        }
        xxh3_128(&bytes)
    }

    /// The differences from the expected snapshot, a line each.
    pub fn differences(&self, expected: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.data_blocks != expected.data_blocks {
            found.push(format!("the data area has {} blocks, not {}", self.data_blocks, expected.data_blocks));
        }
        for (path, wanted) in &expected.paths {
            match self.paths.get(path) {
                None => found.push(format!("{path} is missing")),
                Some(seen) if seen != wanted => found.push(format!("{path}: {}", difference(seen, wanted))),
                Some(_) => {}
            }
        }
        let unexpected = self.paths.keys().filter(|path| !expected.paths.contains_key(*path));
        found.extend(unexpected.map(|path| format!("{path} should not be there")));
        found.truncate(DIFFERENCES_MAX);
        found
    }
}

fn difference(seen: &Seen, wanted: &Seen) -> String {
    let same_content = Seen { content: wanted.content.clone(), ..seen.clone() };
    if same_content == *wanted {
        let pairs = seen.content.iter().zip(&wanted.content).enumerate();
        let blocks: Vec<usize> = pairs.filter(|(_, (seen, wanted))| seen != wanted).map(|(at, _)| at).collect();
        return format!("blocks {blocks:?} hold something else");
    }
    let bare = |seen: &Seen| Seen { content: Vec::new(), ..seen.clone() };
    format!("it is {:?}, not {:?}", bare(seen), bare(wanted))
}

fn see(file_system: &FileSystem, ino: Ino) -> oncefs_fs::Result<Seen> {
    let found = file_system.getattr(ino)?;
    let is_link = found.kind == FileKind::Symlink;
    let is_file = found.kind == FileKind::Regular;
    let content = if is_file { content(file_system, ino, found.size)? } else { Vec::new() };
    let mut xattrs = BTreeMap::new();
    for name in file_system.listxattr(ino)?.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        xattrs.insert(name.to_vec(), file_system.getxattr(ino, name)?);
    }
    Ok(Seen {
        ino,
        kind: found.kind,
        permissions: found.permissions,
        flags: file_system.flags(ino)?,
        owner: (found.uid, found.gid),
        nlink: found.nlink,
        size: if is_file || is_link { found.size } else { 0 },
        mtime: found.mtime,
        ctime: found.ctime,
        used: if is_file { Used::of_file(file_system, ino)? } else { Used::default() },
        content,
        target: if is_link { file_system.readlink(ino)? } else { Vec::new() },
        xattrs,
    })
}

/// Digests of a file. Holes are not read.
fn content(file_system: &FileSystem, ino: Ino, size: u64) -> oncefs_fs::Result<Vec<u64>> {
    let piece = PIECE_BYTES as u64;
    let mut found = vec![0; size.div_ceil(piece) as usize];
    let mut at = 0;
    while at < size {
        let data = match file_system.lseek(ino, at, Whence::Data) {
            Err(Error::NoSuchOffset) => break,
            other => other? / piece * piece,
        };
        let end = file_system.lseek(ino, data, Whence::Hole)?;
        let bytes = file_system.read(ino, data, (end - data) as usize, false)?;
        let first = (data / piece) as usize;
        found[first..].iter_mut().zip(digests(&bytes)).for_each(|(found, digest)| *found = digest);
        at = end;
    }
    Ok(found)
}

/// A digest for each piece; 0 for zeros.
fn digests(content: &[u8]) -> Vec<u64> {
    const ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
    let digest = |piece: &[u8]| if *piece == ZEROS[..piece.len()] { 0 } else { xxh3_64(piece) };
    content.chunks(PIECE_BYTES).map(digest).collect()
}

fn below(path: &str, name: &[u8]) -> String {
    format!("{path}/{}", String::from_utf8_lossy(name))
}

fn put(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text);
}
