//! The model of a file system, with everything in maps and vectors. It alone defines which answers are right.

use std::collections::BTreeMap;

use oncefs_fs::{
    AllocateMode, COMPRESS_ATTRIBUTE, CopyKind, Error, FileFlags, FileKind, Ino, POLICY_ATTRIBUTE, RenameMode, Result,
    SetAttributes, SetTime, Timestamp,
};

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: FileKind,
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// It was made without a name and may get one.
    pub is_never_named: bool,
    pub flags: FileFlags,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// When the content last changed, for any mtime.
    pub written: Timestamp,
    pub content: Vec<u8>,
    pub entries: BTreeMap<Vec<u8>, Ino>,
    pub parent: Ino,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub struct Reference {
    pub nodes: BTreeMap<Ino, Node>,
    pub now: Timestamp,
}

impl Reference {
    pub fn new() -> Self {
        let mut root = Node::new(FileKind::Directory, 0o755, Timestamp::default());
        root.parent = Ino::ROOT;
        Self { nodes: BTreeMap::from([(Ino::ROOT, root)]), now: Timestamp::default() }
    }

    pub fn node(&self, ino: Ino) -> &Node {
        &self.nodes[&ino]
    }

    fn edit(&mut self, ino: Ino) -> &mut Node {
        let now = self.now;
        let node = self.nodes.get_mut(&ino).unwrap();
        node.ctime = now;
        node
    }

    fn edit_entries(&mut self, ino: Ino) -> &mut Node {
        let now = self.now;
        let node = self.edit(ino);
        node.mtime = now;
        node
    }

    fn edit_content(&mut self, ino: Ino) -> &mut Node {
        let now = self.now;
        let node = self.edit(ino);
        (node.mtime, node.written) = (now, now);
        node
    }

    fn directory(&self, ino: Ino) -> Result<&Node> {
        Some(self.node(ino)).filter(|node| node.kind == FileKind::Directory).ok_or(Error::NotADirectory)
    }

    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Ino> {
        self.directory(parent)?.entries.get(name).copied().ok_or(Error::NotFound)
    }

    /// `ino`: the number that the file system chose; None if it refused.
    pub fn create(&mut self, parent: Ino, name: &[u8], ino: Option<Ino>, mut node: Node) -> Result<()> {
        let directory = self.directory(parent)?;
        if directory.nlink == 0 {
            return Err(Error::NotFound);
        }
        if directory.entries.contains_key(name) {
            return Err(Error::Exists);
        }
        let ino = ino.expect("the file system refused what the model allows");
        self.inherit(parent, &mut node)?;
        if node.kind == FileKind::Directory {
            node.parent = parent;
            self.edit(parent).nlink += 1;
        }
        self.edit_entries(parent).entries.insert(name.to_vec(), ino);
        self.add(ino, node);
        Ok(())
    }

    /// A new regular file with the content and the permissions of another.
    pub fn clone_file(&mut self, source: Ino, parent: Ino, name: &[u8], ino: Option<Ino>) -> Result<()> {
        let mut node = Node::new(FileKind::Regular, self.node(source).permissions & 0o777, self.now);
        node.content = self.regular(source)?.content.clone();
        self.create(parent, name, ino, node)
    }

    /// A regular file without a name.
    pub fn tmpfile(&mut self, parent: Ino, ino: Option<Ino>, mut node: Node) -> Result<()> {
        if self.directory(parent)?.nlink == 0 {
            return Err(Error::NotFound);
        }
        let ino = ino.expect("the file system refused what the model allows");
        self.inherit(parent, &mut node)?;
        (node.nlink, node.is_never_named) = (0, true);
        self.add(ino, node);
        Ok(())
    }

    fn add(&mut self, ino: Ino, node: Node) {
        assert!(self.nodes.insert(ino, node).is_none(), "inode number {} was used before", ino.0);
    }

    /// The attributes that a new inode inherits from its directory.
    fn inherit(&self, parent: Ino, node: &mut Node) -> Result<()> {
        let directory = self.directory(parent)?;
        if directory.permissions & libc::S_ISGID != 0 {
            node.gid = directory.gid;
            if node.kind == FileKind::Directory {
                node.permissions |= libc::S_ISGID;
            }
        }
        if matches!(node.kind, FileKind::Regular | FileKind::Directory) {
            for name in [POLICY_ATTRIBUTE, COMPRESS_ATTRIBUTE] {
                if let Some(policy) = directory.xattrs.get(name) {
                    node.xattrs.insert(name.to_vec(), policy.clone());
                }
            }
        }
        Ok(())
    }

    pub fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        let directory = self.directory(parent)?;
        if self.node(ino).kind == FileKind::Directory {
            return Err(Error::OperationNotPermitted);
        }
        if self.node(ino).nlink == 0 && !self.node(ino).is_never_named || directory.nlink == 0 {
            return Err(Error::NotFound);
        }
        if directory.entries.contains_key(name) {
            return Err(Error::Exists);
        }
        let node = self.edit(ino);
        (node.nlink, node.is_never_named) = (node.nlink + 1, false);
        self.edit_entries(parent).entries.insert(name.to_vec(), ino);
        Ok(())
    }

    /// The inode, if that was its last name.
    fn drop_name(&mut self, parent: Ino, name: &[u8]) -> Option<Ino> {
        let ino = self.edit_entries(parent).entries.remove(name).unwrap();
        let is_directory = self.node(ino).kind == FileKind::Directory;
        if is_directory {
            self.edit(parent).nlink -= 1;
        }
        let node = self.edit(ino);
        node.nlink = if is_directory { 0 } else { node.nlink - 1 };
        (node.nlink == 0).then_some(ino)
    }

    pub fn unlink(&mut self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let ino = self.lookup(parent, name)?;
        if self.node(ino).kind == FileKind::Directory {
            return Err(Error::IsADirectory);
        }
        Ok(self.drop_name(parent, name))
    }

    pub fn rmdir(&mut self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let ino = self.lookup(parent, name)?;
        if !self.directory(ino)?.entries.is_empty() {
            return Err(Error::NotEmpty);
        }
        Ok(self.drop_name(parent, name))
    }

    fn is_below(&self, mut ino: Ino, above: Ino) -> bool {
        loop {
            if ino == above {
                return true;
            }
            if ino == Ino::ROOT {
                return false;
            }
            ino = self.node(ino).parent;
        }
    }

    pub fn rename(&mut self, old: (Ino, &[u8]), new: (Ino, &[u8]), mode: RenameMode) -> Result<Option<Ino>> {
        self.directory(old.0)?;
        if self.directory(new.0)?.nlink == 0 {
            return Err(Error::NotFound);
        }
        let source = self.lookup(old.0, old.1)?;
        let target = self.lookup(new.0, new.1).ok();
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            (_, Some(target)) if target == source => return Ok(None),
            _ => {}
        }
        let is_directory = |ino: Ino| self.node(ino).kind == FileKind::Directory;
        if let (RenameMode::Replace, Some(target)) = (mode, target) {
            match (is_directory(source), is_directory(target)) {
                (true, false) => return Err(Error::NotADirectory),
                (false, true) => return Err(Error::IsADirectory),
                _ => {}
            }
        }
        let moves_up = mode == RenameMode::Exchange && target.is_some_and(|target| self.is_below(old.0, target));
        if old.0 != new.0 && (self.is_below(new.0, source) || moves_up) {
            return Err(Error::Invalid(""));
        }
        let mut orphaned = None;
        if let (RenameMode::Exchange, Some(target)) = (mode, target) {
            self.place(target, new.0, old.0, old.1);
        } else {
            if let Some(target) = target {
                if !self.node(target).entries.is_empty() {
                    return Err(Error::NotEmpty);
                }
                orphaned = self.drop_name(new.0, new.1);
            }
            self.edit_entries(old.0).entries.remove(old.1);
        }
        self.place(source, old.0, new.0, new.1);
        Ok(orphaned)
    }

    /// As `rename`. `whiteout`: the inode that is now at the old name. None if the file system refused.
    pub fn rename_leaving_whiteout(
        &mut self,
        old: (Ino, &[u8]),
        new: (Ino, &[u8]),
        mode: RenameMode,
        whiteout: Option<Ino>,
    ) -> Result<Option<Ino>> {
        if mode == RenameMode::Exchange {
            return Err(Error::Invalid(""));
        }
        let orphaned = self.rename(old, new, mode)?;
        if self.lookup(old.0, old.1).is_err() {
            let whiteout = whiteout.expect("the file system refused what the model allows");
            let mut node = Node::new(FileKind::CharDevice, 0, self.now);
            self.inherit(old.0, &mut node)?;
            self.edit_entries(old.0).entries.insert(old.1.to_vec(), whiteout);
            self.add(whiteout, node);
        }
        Ok(orphaned)
    }

    /// Sets all flags of a file or directory.
    pub fn set_flags(&mut self, ino: Ino, flags: FileFlags) -> Result<()> {
        if !matches!(self.node(ino).kind, FileKind::Regular | FileKind::Directory) {
            return Err(Error::NotSupported);
        }
        self.edit(ino).flags = flags;
        Ok(())
    }

    fn place(&mut self, ino: Ino, from: Ino, to: Ino, name: &[u8]) {
        self.edit_entries(from);
        self.edit_entries(to).entries.insert(name.to_vec(), ino);
        let node = self.edit(ino);
        if node.kind == FileKind::Directory {
            node.parent = to;
            self.edit(from).nlink -= 1;
            self.edit(to).nlink += 1;
        }
    }

    fn regular(&self, ino: Ino) -> Result<&Node> {
        match self.node(ino).kind {
            FileKind::Regular => Ok(self.node(ino)),
            FileKind::Directory => Err(Error::IsADirectory),
            _ => Err(Error::Invalid("")),
        }
    }

    pub fn read(&self, ino: Ino, at: u64, len: usize) -> Result<&[u8]> {
        let content = &self.regular(ino)?.content;
        let from = content.len().min(at as usize);
        Ok(&content[from..content.len().min(from + len)])
    }

    pub fn write(&mut self, ino: Ino, at: u64, data: &[u8]) -> Result<()> {
        self.regular(ino)?;
        let at = at as usize;
        let content = &mut self.edit_content(ino).content;
        if content.len() < at + data.len() {
            content.resize(at + data.len(), 0);
        }
        content[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    pub fn fallocate(&mut self, ino: Ino, at: u64, len: u64, mode: AllocateMode) -> Result<()> {
        self.regular(ino)?;
        let (at, end) = (at as usize, (at + len) as usize);
        let content = &mut self.edit_content(ino).content;
        let grows = match mode {
            AllocateMode::Reserve { keep_size } | AllocateMode::ZeroRange { keep_size } => !keep_size,
            AllocateMode::PunchHole => false,
        };
        if grows && content.len() < end {
            content.resize(end, 0);
        }
        if !matches!(mode, AllocateMode::Reserve { .. }) {
            let size = content.len();
            content[at.min(size)..end.min(size)].fill(0);
        }
        Ok(())
    }

    pub fn copy(&mut self, source: Ino, from: u64, target: Ino, to: u64, len: u64) -> Result<u64> {
        self.regular(source)?;
        self.regular(target)?;
        let data = self.read(source, from, len as usize)?.to_vec();
        if source == target && from.abs_diff(to) < data.len() as u64 {
            return Err(Error::Invalid(""));
        }
        if !data.is_empty() {
            self.write(target, to, &data)?;
        }
        Ok(data.len() as u64)
    }

    /// Copies a tree. `real` looks up a name in the file system, which chose the numbers of the copy.
    pub fn copy_tree(
        &mut self,
        (source, kind): (Ino, CopyKind),
        parent: Ino,
        name: &[u8],
        real: &dyn Fn(Ino, &[u8]) -> Ino,
    ) -> Result<()> {
        let directory = self.directory(parent)?;
        if directory.nlink == 0 {
            return Err(Error::NotFound);
        }
        if directory.entries.contains_key(name) {
            return Err(Error::Exists);
        }
        let (top, mut copies) = (real(parent, name), BTreeMap::new());
        self.copy_below((source, kind), (parent, top), real, &mut copies);
        let is_directory = self.node(source).kind == FileKind::Directory;
        let directory = self.edit_entries(parent);
        directory.nlink += u32::from(is_directory);
        directory.entries.insert(name.to_vec(), top);
        Ok(())
    }

    fn copy_below(
        &mut self,
        (source, kind): (Ino, CopyKind),
        (parent, copy): (Ino, Ino),
        real: &dyn Fn(Ino, &[u8]) -> Ino,
        copies: &mut BTreeMap<Ino, Ino>,
    ) {
        let (source_node, now) = (self.node(source).clone(), self.now);
        let (entries, parent_of_file) = (BTreeMap::new(), Ino(0));
        let mut node =
            Node { entries, written: now, parent: parent_of_file, is_never_named: false, ..source_node.clone() };
        if kind == CopyKind::Clone {
            node.ctime = now;
            let bound = FileFlags::IMMUTABLE.with(FileFlags::APPEND_ONLY).with(FileFlags::SNAPSHOT);
            node.flags = node.flags.without(bound);
        } else {
            node.flags = node.flags.with(FileFlags::SNAPSHOT);
        }
        if node.kind == FileKind::Directory {
            node.parent = parent;
        } else {
            node.nlink = 1;
        }
        copies.insert(source, copy);
        for (name, below) in &source_node.entries {
            let number = real(copy, name);
            node.entries.insert(name.clone(), number);
            if copies.contains_key(below) && self.node(*below).kind != FileKind::Directory {
                self.nodes.get_mut(&number).unwrap().nlink += 1;
            } else {
                self.copy_below((*below, kind), (copy, number), real, copies);
            }
        }
        self.add(copy, node);
    }

    /// Removes a tree with everything in it, whose files have no names elsewhere.
    pub fn remove_tree(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let top = self.lookup(parent, name)?;
        if !self.node(top).flags.contains(FileFlags::SNAPSHOT) {
            return Err(Error::Invalid(""));
        }
        let directory = self.edit_entries(parent);
        directory.nlink -= 1;
        directory.entries.remove(name);
        let mut left = vec![top];
        while let Some(ino) = left.pop() {
            let node = self.nodes.remove(&ino);
            left.extend(node.into_iter().flat_map(|node| node.entries.into_values()));
        }
        Ok(())
    }

    pub fn setattr(&mut self, ino: Ino, set: &SetAttributes) -> Result<()> {
        if set.size.is_some() {
            self.regular(ino)?;
        }
        let now = self.now;
        let node = self.edit(ino);
        if let Some(size) = set.size {
            if size > 0 || !node.content.is_empty() {
                node.written = now;
            }
            node.content.resize(size as usize, 0);
            node.mtime = now;
        }
        if (set.uid.is_some() || set.gid.is_some()) && node.kind != FileKind::Directory {
            node.permissions &= !libc::S_ISUID;
            if node.permissions & libc::S_IXGRP != 0 {
                node.permissions &= !libc::S_ISGID;
            }
        }
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.permissions = set.permissions.unwrap_or(node.permissions);
        match set.mtime {
            Some(SetTime::Now) => node.mtime = now,
            Some(SetTime::At(time)) => node.mtime = time,
            None => {}
        }
        Ok(())
    }

    pub fn setxattr(&mut self, ino: Ino, name: &[u8], value: &[u8]) {
        self.edit(ino).xattrs.insert(name.to_vec(), value.to_vec());
    }

    /// The attribute with a file's deduplication policy.
    pub fn set_policy(&mut self, ino: Ino, value: &[u8]) -> Result<()> {
        if !matches!(self.node(ino).kind, FileKind::Regular | FileKind::Directory) {
            return Err(Error::OperationNotPermitted);
        }
        let number_of = |name: &str| {
            let number: u32 = std::str::from_utf8(value).ok()?.strip_prefix(name)?.parse().ok()?;
            (value == format!("{name}{number}").as_bytes()).then_some(number)
        };
        let is_run = number_of("run=").is_some_and(|blocks| (1..=256).contains(&blocks));
        let is_slowdown = number_of("slowdown=").is_some_and(|percent| percent <= 1_000);
        let named = [&b"off"[..], b"inline", b"later", b"selective", b"slowdown=none"];
        if !is_run && !is_slowdown && !named.contains(&value) {
            return Err(Error::Invalid(""));
        }
        self.setxattr(ino, POLICY_ATTRIBUTE, value);
        Ok(())
    }

    /// The attribute with the time of a file's compression.
    pub fn set_compress(&mut self, ino: Ino, value: &[u8]) -> Result<()> {
        if !matches!(self.node(ino).kind, FileKind::Regular | FileKind::Directory) {
            return Err(Error::OperationNotPermitted);
        }
        if ![&b"off"[..], b"later", b"inline", b"auto"].contains(&value) {
            return Err(Error::Invalid(""));
        }
        self.setxattr(ino, COMPRESS_ATTRIBUTE, value);
        Ok(())
    }

    /// Flags, and the attribute with the time of a file's compression. None: the attribute is removed.
    pub fn set_flags_and_compression(&mut self, ino: Ino, flags: FileFlags, value: Option<&[u8]>) -> Result<()> {
        self.set_flags(ino, flags)?;
        match value {
            Some(value) => self.set_compress(ino, value),
            None => self.removexattr(ino, COMPRESS_ATTRIBUTE).or(Ok(())),
        }
    }

    pub fn removexattr(&mut self, ino: Ino, name: &[u8]) -> Result<()> {
        if !self.node(ino).xattrs.contains_key(name) {
            return Err(Error::NoData);
        }
        self.edit(ino).xattrs.remove(name);
        Ok(())
    }
}

impl Node {
    pub fn new(kind: FileKind, permissions: u32, now: Timestamp) -> Self {
        Self {
            kind,
            permissions,
            uid: 0,
            gid: 0,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            is_never_named: false,
            flags: FileFlags::default(),
            mtime: now,
            ctime: now,
            written: now,
            content: Vec::new(),
            entries: BTreeMap::new(),
            parent: Ino(0),
            xattrs: BTreeMap::new(),
        }
    }
}
