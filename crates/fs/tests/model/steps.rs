//! One run: chooses operations, performs them on both sides and compares.

use std::mem::discriminant;
use std::sync::Arc;

use oncefs_engine::Compress;
use oncefs_fs::{
    AllocateMode, Attributes, Bytes, COMPRESS_ATTRIBUTE, CopyKind, Error, FileFlags, FileKind, FileSystem, Ino,
    POLICY_ATTRIBUTE, Privileges, RenameMode, Result, SetAttributes, SetTime, Timestamp, TreeCopy, TreeProgress,
    Whence, WriteOrigin, XattrMode,
};

use super::reference::{Node, Reference};
use crate::common::{ROOT, Volume, at, contradictions, names};
use oncefs_toolbox::Random;

const FILE_BYTES_MAX: u64 = 200_000;
const NODES_MAX: usize = 120;
const NAMES: [&[u8]; 12] =
    [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"\xff\xfe", b"with space", b"-", b".hidden"];
const XATTRS: [&[u8]; 8] = [
    b"user.one",
    b"user.two",
    b"trusted.three",
    b"security.four",
    POLICY_ATTRIBUTE,
    POLICY_ATTRIBUTE,
    COMPRESS_ATTRIBUTE,
    COMPRESS_ATTRIBUTE,
];
const COMPRESS: [&[u8]; 4] = [b"off", b"later", b"inline", b"on"];
const POLICIES: [&[u8]; 10] = [
    b"off",
    b"inline",
    b"later",
    b"selective",
    b"run=1",
    b"run=12",
    b"run=0",
    b"slowdown=20",
    b"slowdown=none",
    b"slowdown=-1",
];
const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };

pub struct Run<'a> {
    volume: &'a Volume,
    file_system: Option<Arc<FileSystem>>,
    reference: Reference,
    random: Random,
    seed: u64,
    step: u64,
    last: String,
}

impl<'a> Run<'a> {
    pub fn new(volume: &'a Volume, random: Random, seed: u64) -> Self {
        let file_system = Some(volume.open());
        Self { volume, file_system, reference: Reference::new(), random, seed, step: 0, last: String::new() }
    }

    fn fs(&self) -> &FileSystem {
        self.file_system.as_ref().unwrap()
    }

    fn place(&self) -> String {
        format!("seed {}, step {}: {}", self.seed, self.step, self.last)
    }

    fn note(&mut self, what: String) {
        self.last = what;
    }

    /// Compares both results. Errors agree if they are of the same kind.
    fn agree<A, B>(&self, real: Result<A>, model: Result<B>) -> Option<(A, B)> {
        match (real, model) {
            (Ok(real), Ok(model)) => Some((real, model)),
            (Err(real), Err(model)) if discriminant(&real) == discriminant(&model) => None,
            (Err(real), Ok(_)) => panic!("{}: refused with: {real}", self.place()),
            (Ok(_), Err(model)) => panic!("{}: should be refused with: {model}", self.place()),
            (Err(real), Err(model)) => panic!("{}: refused with: {real}; expected: {model}", self.place()),
        }
    }

    fn any_node(&mut self) -> Ino {
        let at = self.random.below(self.reference.nodes.len() as u64) as usize;
        *self.reference.nodes.keys().nth(at).unwrap()
    }

    /// A node of this kind, occasionally of another.
    fn node_of(&mut self, kind: FileKind) -> Ino {
        for _ in 0..20 {
            let ino = self.any_node();
            if self.reference.node(ino).kind == kind {
                return ino;
            }
        }
        self.any_node()
    }

    fn directory(&mut self) -> Ino {
        self.node_of(FileKind::Directory)
    }

    fn file(&mut self) -> Ino {
        self.node_of(FileKind::Regular)
    }

    fn name(&mut self) -> &'static [u8] {
        self.random.pick(&NAMES)
    }

    /// An offset, often at a block's edge.
    fn offset(&mut self) -> u64 {
        let any = self.random.below(FILE_BYTES_MAX);
        if self.random.one_in(2) { any / 4096 * 4096 } else { any }
    }

    /// Few different blocks, among them zeros, so that many are duplicates.
    fn data(&mut self) -> Vec<u8> {
        let len = if self.random.one_in(2) { self.random.below(9) * 4096 } else { self.random.below(20_000) };
        let mut data = Vec::with_capacity(len as usize);
        while (data.len() as u64) < len {
            let block = self.random.below(6);
            let bytes = (0..4096_u64.min(len - data.len() as u64)).map(|i| (block * (i / 7 + 1) * 31) as u8);
            data.extend(bytes);
        }
        data
    }

    pub fn step(&mut self, step: u64) {
        self.step = step;
        self.volume.clock.set(step as i64);
        self.reference.now = at(step as i64);
        match self.random.below(100) {
            0..9 => self.create(),
            9..10 => self.tmpfile(),
            10..14 => self.link(),
            14..22 => self.remove(),
            22..32 => self.rename(),
            32..52 => self.write(),
            52..60 => self.read(),
            60..66 => self.fallocate(),
            66..72 => self.copy(),
            72..74 => self.clone_file(),
            74..79 => self.set_attributes(),
            79..81 => self.copy_tree(),
            81..82 => self.set_flags(),
            82..90 => self.xattrs(),
            90..94 => self.seek(),
            94..99 => self.forget(),
            _ => self.reopen_sometimes(),
        }
        let touched = self.any_node();
        self.compare_attributes(touched);
    }

    fn create(&mut self) {
        let (parent, name) = (self.directory(), self.name());
        if self.reference.nodes.len() >= NODES_MAX {
            return;
        }
        let kind = self.random.pick(&[
            FileKind::Regular,
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Symlink,
            FileKind::Fifo,
        ]);
        let target = b"some/where".repeat(1 + self.random.below(3) as usize);
        self.note(format!("create {kind:?} {name:?} in {}", parent.0));
        let permissions = if kind == FileKind::Symlink { 0o777 } else { self.random.pick(&[0o644, 0o755, 0o2755]) };
        let mut node = Node::new(kind, permissions, self.reference.now);
        let made = match kind {
            FileKind::Directory => self.fs().mkdir(parent, name, permissions, &ROOT),
            FileKind::Symlink => {
                node.content = target.clone();
                self.fs().symlink(parent, name, &target, &ROOT)
            }
            kind => self.fs().mknod(parent, name, kind.mode_bits() | permissions, 0, &ROOT),
        };
        let ino = made.as_ref().ok().map(|attributes: &Attributes| attributes.ino);
        let model = self.reference.create(parent, name, ino, node);
        self.agree(made, model);
    }

    fn tmpfile(&mut self) {
        let parent = self.directory();
        if self.reference.nodes.len() >= NODES_MAX {
            return;
        }
        self.note(format!("a file without a name in {}", parent.0));
        let node = Node::new(FileKind::Regular, 0o640, self.reference.now);
        let made = self.fs().tmpfile(parent, 0o640, &ROOT);
        let model = self.reference.tmpfile(parent, made.as_ref().ok().map(|attributes| attributes.ino), node);
        self.agree(made, model);
    }

    fn link(&mut self) {
        let (ino, parent, name) = (self.any_node(), self.directory(), self.name());
        self.note(format!("link {} as {name:?} in {}", ino.0, parent.0));
        let model = self.reference.link(ino, parent, name);
        self.agree(self.fs().link(ino, parent, name), model);
    }

    fn remove(&mut self) {
        let (parent, name, directory) = (self.directory(), self.name(), self.random.one_in(3));
        self.note(format!("remove {name:?} from {}, directory: {directory}", parent.0));
        let (real, model) = if directory {
            (self.fs().rmdir(parent, name), self.reference.rmdir(parent, name))
        } else {
            (self.fs().unlink(parent, name), self.reference.unlink(parent, name))
        };
        if let Some((real, model)) = self.agree(real, model) {
            assert_eq!(real, model, "{}", self.place());
        }
    }

    fn rename(&mut self) {
        let (old, new) = ((self.directory(), self.name()), (self.directory(), self.name()));
        let mode =
            self.random.pick(&[RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
        let leaves_whiteout = self.random.one_in(6);
        self.note(format!("rename {old:?} to {new:?}, {mode:?}, whiteout: {leaves_whiteout}"));
        let (real, model) = if leaves_whiteout {
            let real = self.fs().rename_leaving_whiteout(old.0, old.1, new.0, new.1, mode, &ROOT);
            let whiteout = self.fs().lookup(old.0, old.1).ok().map(|attributes| attributes.ino);
            (real, self.reference.rename_leaving_whiteout(old, new, mode, whiteout))
        } else {
            (self.fs().rename(old.0, old.1, new.0, new.1, mode), self.reference.rename(old, new, mode))
        };
        if let Some((real, model)) = self.agree(real, model) {
            assert_eq!(real, model, "{}", self.place());
        }
    }

    fn write(&mut self) {
        let (ino, offset, data) = (self.file(), self.offset(), self.data());
        self.note(format!("write {} bytes at {offset} of {}", data.len(), ino.0));
        if !data.is_empty() {
            let model = self.reference.write(ino, offset, &data);
            self.agree(self.fs().write(ino, offset, &data, BY_CALLER), model);
        }
    }

    fn read(&mut self) {
        let (ino, offset, len) = (self.file(), self.offset(), self.random.below(50_000) as usize);
        self.note(format!("read {len} bytes at {offset} of {}", ino.0));
        let real = self.fs().read(ino, offset, len, true);
        if let Some((real, model)) = self.agree(real, self.reference.read(ino, offset, len)) {
            self.same_bytes(&real, model);
        }
    }

    fn same_bytes(&self, real: &Bytes, model: &[u8]) {
        assert_eq!(real.len(), model.len(), "{}: length", self.place());
        let different = real.iter().zip(model).position(|(real, model)| real != model);
        assert_eq!(different, None, "{}: first different byte", self.place());
    }

    fn fallocate(&mut self) {
        let (ino, offset, len) = (self.file(), self.offset(), 1 + self.random.below(40_000));
        let keep_size = self.random.one_in(2);
        let modes =
            [AllocateMode::Reserve { keep_size }, AllocateMode::PunchHole, AllocateMode::ZeroRange { keep_size }];
        let mode = self.random.pick(&modes);
        self.note(format!("fallocate {len} bytes at {offset} of {}, {mode:?}", ino.0));
        let model = self.reference.fallocate(ino, offset, len, mode);
        self.agree(self.fs().fallocate(ino, offset, len, mode, Privileges::Kept), model);
    }

    fn copy(&mut self) {
        let (source, from, target, to) = (self.file(), self.offset(), self.file(), self.offset());
        let len = self.random.below(100_000);
        self.note(format!("copy {len} bytes from {from} of {} to {to} of {}", source.0, target.0));
        let model = self.reference.copy(source, from, target, to, len);
        if let Some((real, model)) =
            self.agree(self.fs().copy_file_range(source, from, target, to, len, Privileges::Kept), model)
        {
            assert_eq!(real, model, "{}", self.place());
        }
    }

    fn clone_file(&mut self) {
        let (source, parent, name) = (self.file(), self.directory(), self.name());
        if self.reference.nodes.len() >= NODES_MAX {
            return;
        }
        self.note(format!("clone {} as {name:?} in {}", source.0, parent.0));
        let made = self.fs().clone_file(source, parent, name, &ROOT);
        let ino = made.as_ref().ok().map(|attributes| attributes.ino);
        let model = self.reference.clone_file(source, parent, name, ino);
        self.agree(made, model);
    }

    /// Clones a tree, or makes a snapshot of a directory and removes it.
    fn copy_tree(&mut self) {
        let (source, parent, name) = (self.any_node(), self.directory(), self.name());
        let is_snapshot = self.random.one_in(3) && self.reference.node(source).kind == FileKind::Directory;
        let kind = if is_snapshot { CopyKind::Snapshot } else { CopyKind::Clone };
        self.note(format!("{kind:?} of {} in {}", source.0, parent.0));
        if self.reference.nodes.len() > NODES_MAX / 2 {
            return;
        }
        let order = TreeCopy { source, parent, name, kind, of: b"" };
        let real = self.fs().copy_tree(&order, &TreeProgress::default(), &|| true).map_err(|failed| failed.error);
        let fs = self.file_system.clone().unwrap();
        let number = |parent: Ino, name: &[u8]| fs.lookup(parent, name).unwrap().ino;
        let model = self.reference.copy_tree((source, kind), parent, name, &number);
        if self.agree(real, model).is_some() && is_snapshot {
            let removed = fs.remove_snapshot(parent, name, || (), &|_| false, &TreeProgress::default());
            let model = self.reference.remove_tree(parent, name);
            self.agree(removed, model);
        }
    }

    fn set_attributes(&mut self) {
        let truncates = self.random.one_in(2);
        let ino = if truncates { self.file() } else { self.any_node() };
        let size = if self.random.one_in(3) { 0 } else { self.offset() };
        let mut set = SetAttributes { size: truncates.then_some(size), ..SetAttributes::default() };
        match self.random.below(4) {
            0 => set.permissions = Some(self.random.pick(&[0o600, 0o4755, 0o2755, 0o1777])),
            1 => (set.uid, set.gid) = (Some(self.random.below(3) as u32), Some(self.random.below(3) as u32)),
            2 => set.mtime = Some(SetTime::At(Timestamp { seconds: -5, nanoseconds: 999_999_999 })),
            _ => {}
        }
        self.note(format!("set attributes of {}: {set:?}", ino.0));
        let model = self.reference.setattr(ino, &set);
        self.agree(self.fs().setattr(ino, &set), model);
    }

    /// Sets flags that forbid nothing.
    fn set_flags(&mut self) {
        let ino = self.any_node();
        let flags = self.random.pick(&[FileFlags::default(), FileFlags::NO_DUMP, FileFlags::NO_ATIME]);
        self.note(format!("{flags:?} of {}", ino.0));
        if self.random.one_in(3) {
            let compress = self.random.pick(&[None, Some(Compress::Off), Some(Compress::Inline)]);
            let value = compress.map(|compress| compress.word().as_bytes());
            let model = self.reference.set_flags_and_compression(ino, flags, value);
            self.agree(self.fs().set_flags_and_compression(ino, flags, compress), model);
            return;
        }
        let model = self.reference.set_flags(ino, flags);
        self.agree(self.fs().set_flags(ino, flags), model);
    }

    fn xattrs(&mut self) {
        let (ino, name) = (self.any_node(), self.random.pick(&XATTRS));
        let value = vec![self.random.below(256) as u8; self.random.below(300) as usize];
        self.note(format!("attribute {} of {}", String::from_utf8_lossy(name), ino.0));
        if self.random.one_in(3) {
            let model = self.reference.removexattr(ino, name);
            self.agree(self.fs().removexattr(ino, name), model);
        } else if name == POLICY_ATTRIBUTE {
            let value = self.random.pick(&POLICIES);
            let model = self.reference.set_policy(ino, value);
            self.agree(self.fs().setxattr(ino, name, value, XattrMode::Any, true), model);
        } else if name == COMPRESS_ATTRIBUTE {
            let value = self.random.pick(&COMPRESS);
            let model = self.reference.set_compress(ino, value);
            self.agree(self.fs().setxattr(ino, name, value, XattrMode::Any, true), model);
        } else {
            self.reference.setxattr(ino, name, &value);
            self.agree(self.fs().setxattr(ino, name, &value, XattrMode::Any, true), Ok(()));
        }
    }

    /// Everything outside the data found must be zeros.
    fn seek(&mut self) {
        let ino = self.file();
        self.note(format!("seek through {}", ino.0));
        let Ok(content) = self.reference.read(ino, 0, usize::MAX / 2) else { return };
        let size = content.len() as u64;
        let mut from = 0;
        while from < size {
            let data = match self.fs().lseek(ino, from, Whence::Data) {
                Ok(data) => data,
                Err(Error::NoSuchOffset) => size,
                Err(error) => panic!("{}: {error}", self.place()),
            };
            assert!(content[from as usize..data as usize].iter().all(|byte| *byte == 0), "{}", self.place());
            if data == size {
                break;
            }
            from = self.fs().lseek(ino, data, Whence::Hole).unwrap();
            assert!(from > data && from <= size, "{}: hole at {from} after data at {data}", self.place());
        }
        let behind = self.fs().lseek(ino, size, Whence::Hole);
        assert!(matches!(behind, Err(Error::NoSuchOffset)), "{}", self.place());
    }

    fn forget(&mut self) {
        let orphans = self.reference.nodes.iter().filter(|(_, node)| node.nlink == 0).map(|(ino, _)| *ino);
        let orphans: Vec<Ino> = orphans.collect();
        if orphans.is_empty() {
            return;
        }
        let ino = self.random.pick(&orphans);
        self.note(format!("forget {}", ino.0));
        self.reference.nodes.remove(&ino);
        self.fs().forget(ino).unwrap();
        assert!(matches!(self.fs().getattr(ino), Err(Error::Stale)), "{}", self.place());
    }

    fn reopen_sometimes(&mut self) {
        if self.random.one_in(2) {
            self.reopen();
        }
    }

    /// Closes and opens the volume: orphans are gone, everything else is as it was.
    pub fn reopen(&mut self) {
        // Not each time: reading brings records into memory that must also be right on disk.
        if self.random.one_in(2) {
            self.note("before reopening".to_owned());
            self.compare_all();
        }
        self.note("reopened".to_owned());
        let file_system = self.file_system.take().unwrap();
        file_system.close().unwrap();
        drop(file_system);
        self.reference.nodes.retain(|_, node| node.nlink > 0);
        let file_system = self.volume.open();
        file_system.close().unwrap();
        drop(file_system);
        let file_system = self.volume.open_read_only();
        assert_eq!(contradictions(&file_system), Vec::<String>::new(), "{}", self.place());
        drop(file_system);
        self.file_system = Some(self.volume.open());
        self.compare_all();
    }

    fn compare_all(&self) {
        self.reference.nodes.keys().for_each(|ino| self.compare(*ino));
    }

    fn compare_attributes(&self, ino: Ino) {
        let (real, node) = (self.fs().getattr(ino).unwrap(), self.reference.node(ino));
        let has_size = matches!(node.kind, FileKind::Regular | FileKind::Symlink);
        let real_size = if has_size { real.size } else { 0 };
        assert_eq!(
            (real.kind, real.permissions, real.uid, real.gid, real.nlink, real_size, real.mtime, real.ctime),
            (
                node.kind,
                node.permissions,
                node.uid,
                node.gid,
                node.nlink,
                node.content.len() as u64,
                node.mtime,
                node.ctime
            ),
            "{}: inode {}",
            self.place(),
            ino.0
        );
        assert_eq!(self.fs().flags(ino).unwrap(), node.flags, "{}: inode {}", self.place(), ino.0);
        if node.kind == FileKind::Regular && real.blocks == 0 {
            assert!(node.content.iter().all(|byte| *byte == 0), "{}: no blocks hold data", self.place());
        }
    }

    fn compare(&self, ino: Ino) {
        self.compare_attributes(ino);
        let node = self.reference.node(ino);
        match node.kind {
            FileKind::Regular => self.same_bytes(&self.fs().read(ino, 0, 1 << 20, true).unwrap(), &node.content),
            FileKind::Symlink => assert_eq!(self.fs().readlink(ino).unwrap(), node.content),
            FileKind::Directory => {
                let model: Vec<Vec<u8>> = node.entries.keys().cloned().collect();
                assert_eq!(names(self.fs(), ino), model, "{}", self.place());
                for (name, target) in &node.entries {
                    assert_eq!(self.fs().lookup(ino, name).unwrap().ino, *target, "{}", self.place());
                }
                assert_eq!(self.fs().lookup(ino, b"..").unwrap().ino, node.parent, "{}", self.place());
            }
            _ => {}
        }
        let list = self.fs().listxattr(ino).unwrap();
        let real: Vec<&[u8]> = list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        assert!(real.iter().copied().eq(node.xattrs.keys().map(Vec::as_slice)), "{}: {real:?}", self.place());
        for (name, value) in &node.xattrs {
            assert_eq!(&self.fs().getxattr(ino, name).unwrap(), value, "{}", self.place());
        }
    }
}
