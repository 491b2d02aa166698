//! Random system calls on a volume in memory and on a simple model of a file system. Every answer and the visible state
//! must be the same, even after checkpoints, out-of-line work, reopening and power cuts.
//!
//! The model is that of the `fs` crate's tests, which is the only definition of right behavior. After a power cut it
//! goes back to the last commit, because only the input commits here.

use std::mem::discriminant;
use std::sync::Arc;

use oncefs_engine::{BLOCK_BYTES, BackgroundStep, Compress};
use oncefs_fs::{
    AllocateMode, Attributes, COMPRESS_ATTRIBUTE, CopyKind, Error, FileFlags, FileKind, FileSystem, Handle, Ino,
    NamePlaces, POLICY_ATTRIBUTE, Privileges, RenameMode, Result, SetAttributes, SetTime, Timestamp, TreeCopy,
    TreeProgress, Whence, XattrMode,
};

use crate::base::{BY_CALLER, ROOT, bytes};
use crate::input::Input;
use crate::reference::{Node, Reference};
use crate::volume::{LOG_BYTES, Volume};

/// Bound on offsets and lengths, because the model keeps whole files.
const FILE_BYTES_MAX: u64 = 160_000;
const NODES_MAX: usize = 60;
const CALLS_MAX: usize = 200;
/// Most calls between commits: a group must not outgrow its share of the log.
const CALLS_IN_A_GROUP: usize = 10;
const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"\xff\xfe", b"with space"];
/// Seven places of one name each: the names of a directory meet, and all of them fit.
const CROWDED: NamePlaces = NamePlaces { bits: 3, names_max: 1 };
const XATTRS: [&[u8]; 5] = [b"user.one", b"trusted.two", b"security.three", POLICY_ATTRIBUTE, COMPRESS_ATTRIBUTE];
const COMPRESS: [&[u8]; 4] = [b"off", b"later", b"inline", b"on"];
const POLICIES: [&[u8]; 6] = [b"off", b"inline", b"later", b"selective", b"run=3", b"run=300"];
const WORK: [BackgroundStep; 14] = [
    BackgroundStep::Reclaim,
    BackgroundStep::Release,
    BackgroundStep::FillHints,
    BackgroundStep::Revisit { blocks_max: 64 },
    BackgroundStep::Rank,
    BackgroundStep::MergeHints,
    BackgroundStep::SweepHints,
    BackgroundStep::SaveSkipped,
    BackgroundStep::Punch,
    BackgroundStep::Repair,
    BackgroundStep::Scrub { blocks_max: 256 },
    BackgroundStep::Compress { blocks_max: 64 },
    BackgroundStep::Repack { blocks_max: 64 },
    BackgroundStep::Expand { blocks_max: 64 },
];

/// The target: the calls.
pub fn run(bytes: &[u8]) {
    let mut run = Run::new();
    let mut input = Input::new(bytes);
    while !input.is_empty() && run.called < CALLS_MAX {
        run.call(&mut input);
    }
    run.reopen(true);
    run.power_cut(&mut || false);
}

struct Run {
    volume: Volume,
    file_system: Option<Arc<FileSystem>>,
    model: Reference,
    /// The state after a power cut.
    committed: std::collections::BTreeMap<Ino, Node>,
    called: usize,
    in_group: usize,
    last: String,
}

impl Run {
    fn new() -> Self {
        let volume = Volume::with(LOG_BYTES, CROWDED);
        let file_system = Some(volume.open(false).expect("a sound volume opens"));
        let model = Reference::new();
        let committed = model.nodes.clone();
        Self { volume, file_system, model, committed, called: 0, in_group: 0, last: String::new() }
    }

    fn fs(&self) -> &FileSystem {
        self.file_system.as_ref().expect("it is closed only while it is reopened")
    }

    fn place(&self) -> String {
        format!("call {}: {}", self.called, self.last)
    }

    /// Both results, which must agree. Errors agree if they are of one kind.
    fn agree<A, B>(&self, real: Result<A>, model: Result<B>) -> Option<(A, B)> {
        match (real, model) {
            (Ok(real), Ok(model)) => Some((real, model)),
            (Err(real), Err(model)) if discriminant(&real) == discriminant(&model) => None,
            (Ok(_), Err(model)) => panic!("{}: should be refused with: {model}", self.place()),
            (Err(real), model) => panic!("{}: refused with: {real}; expected: {:?}", self.place(), model.err()),
        }
    }

    fn any(&self, input: &mut Input<'_>) -> Ino {
        let at = input.index(self.model.nodes.len());
        *self.model.nodes.keys().nth(at).expect("the index is below their number")
    }

    /// A node of this kind if there is one at or after the chosen one.
    fn node_of(&self, kind: FileKind, input: &mut Input<'_>) -> Ino {
        let from = self.any(input);
        let is_such = |(_, node): &(&Ino, &Node)| node.kind == kind;
        self.model.nodes.range(from..).find(is_such).map_or(from, |(ino, _)| *ino)
    }

    fn call(&mut self, input: &mut Input<'_>) {
        self.called += 1;
        self.in_group += 1;
        if self.in_group > CALLS_IN_A_GROUP {
            self.commit(BackgroundStep::Checkpoint);
        }
        self.volume.clock.set(self.called as i64);
        self.model.now = Timestamp { seconds: self.called as i64, nanoseconds: 0 };
        match input.byte() % 32 {
            0..3 => self.create(input),
            3 if input.one_in(3) => self.tmpfile(input),
            3 => self.link(input),
            4..6 => self.remove(input),
            6..8 => self.rename(input),
            8..14 => self.write(input),
            14 | 15 => self.read(input),
            16 | 17 => self.fallocate(input),
            18 => self.copy(input),
            19 if input.one_in(2) => self.clone_file(input),
            19 => self.copy(input),
            20 if input.one_in(4) => self.set_flags(input),
            20 | 21 => self.set_attributes(input),
            22 | 23 => self.xattr(input),
            24 if input.one_in(3) => self.copy_tree(input),
            24 => self.seek(input),
            25 => self.forget(input),
            26 => self.commit_alone(),
            27 => self.commit(BackgroundStep::Checkpoint),
            28 | 29 => self.work(input),
            30 => self.reopen(input.one_in(2)),
            _ => self.power_cut(&mut || input.one_in(2)),
        }
        let touched = self.any(input);
        self.compare_attributes(touched);
    }

    fn create(&mut self, input: &mut Input<'_>) {
        let (parent, name) = (self.node_of(FileKind::Directory, input), input.pick(&NAMES));
        let kind = input.pick(&[FileKind::Regular, FileKind::Directory, FileKind::Symlink, FileKind::Fifo]);
        if self.model.nodes.len() >= NODES_MAX {
            return;
        }
        self.last = format!("create {kind:?} {name:?} in {}", parent.0);
        let permissions = if kind == FileKind::Symlink { 0o777 } else { 0o2755 };
        let mut node = Node::new(kind, permissions, self.model.now);
        let made = match kind {
            FileKind::Directory => self.fs().mkdir(parent, name, permissions, &ROOT),
            FileKind::Symlink => {
                node.content = b"some/where".to_vec();
                self.fs().symlink(parent, name, b"some/where", &ROOT)
            }
            kind => self.fs().mknod(parent, name, kind.mode_bits() | permissions, 0, &ROOT),
        };
        let ino = made.as_ref().ok().map(|attributes: &Attributes| attributes.ino);
        let model = self.model.create(parent, name, ino, node);
        self.agree(made, model);
    }

    fn tmpfile(&mut self, input: &mut Input<'_>) {
        let parent = self.node_of(FileKind::Directory, input);
        if self.model.nodes.len() >= NODES_MAX {
            return;
        }
        self.last = format!("a file without a name in {}", parent.0);
        let node = Node::new(FileKind::Regular, 0o640, self.model.now);
        let made = self.fs().tmpfile(parent, 0o640, &ROOT);
        let model = self.model.tmpfile(parent, made.as_ref().ok().map(|attributes| attributes.ino), node);
        self.agree(made, model);
    }

    /// Sets flags that forbid nothing.
    fn set_flags(&mut self, input: &mut Input<'_>) {
        let ino = self.any(input);
        let flags = input.pick(&[FileFlags::default(), FileFlags::NO_DUMP, FileFlags::NO_ATIME]);
        self.last = format!("{flags:?} of {}", ino.0);
        if input.one_in(3) {
            let compress = input.pick(&[None, Some(Compress::Off), Some(Compress::Auto)]);
            let model = self.model.set_flags_and_compression(ino, flags, compress.map(|when| when.word().as_bytes()));
            self.agree(self.fs().set_flags_and_compression(ino, flags, compress), model);
        } else {
            let model = self.model.set_flags(ino, flags);
            self.agree(self.fs().set_flags(ino, flags), model);
        }
        assert_eq!(self.fs().flags(ino).ok(), Some(self.model.node(ino).flags), "{}", self.place());
    }

    fn link(&mut self, input: &mut Input<'_>) {
        let (ino, parent, name) = (self.any(input), self.node_of(FileKind::Directory, input), input.pick(&NAMES));
        self.last = format!("link {} as {name:?} in {}", ino.0, parent.0);
        let model = self.model.link(ino, parent, name);
        self.agree(self.fs().link(ino, parent, name), model);
    }

    fn remove(&mut self, input: &mut Input<'_>) {
        let (parent, name) = (self.node_of(FileKind::Directory, input), input.pick(&NAMES));
        let is_directory = input.one_in(3);
        self.last = format!("remove {name:?} from {}, directory: {is_directory}", parent.0);
        let (real, model) = match is_directory {
            true => (self.fs().rmdir(parent, name), self.model.rmdir(parent, name)),
            false => (self.fs().unlink(parent, name), self.model.unlink(parent, name)),
        };
        if let Some((real, model)) = self.agree(real, model) {
            assert_eq!(real, model, "{}", self.place());
        }
    }

    fn rename(&mut self, input: &mut Input<'_>) {
        let old = (self.node_of(FileKind::Directory, input), input.pick(&NAMES));
        let new = (self.node_of(FileKind::Directory, input), input.pick(&NAMES));
        let mode = input.pick(&[RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
        let leaves_whiteout = input.one_in(6);
        self.last = format!("rename {old:?} to {new:?}, {mode:?}, whiteout: {leaves_whiteout}");
        let (real, model) = if leaves_whiteout {
            let real = self.fs().rename_leaving_whiteout(old.0, old.1, new.0, new.1, mode, &ROOT);
            let whiteout = self.fs().lookup(old.0, old.1).ok().map(|attributes| attributes.ino);
            (real, self.model.rename_leaving_whiteout(old, new, mode, whiteout))
        } else {
            (self.fs().rename(old.0, old.1, new.0, new.1, mode), self.model.rename(old, new, mode))
        };
        if let Some((real, model)) = self.agree(real, model) {
            assert_eq!(real, model, "{}", self.place());
        }
    }

    /// An offset, often at a block's edge.
    fn offset(input: &mut Input<'_>) -> u64 {
        let at = input.below(FILE_BYTES_MAX);
        if input.one_in(2) { at / 4096 * 4096 } else { at }
    }

    fn write(&mut self, input: &mut Input<'_>) {
        let (ino, at) = (self.node_of(FileKind::Regular, input), Self::offset(input));
        let len = if input.one_in(2) { 1 + input.below(20_000) } else { 4096 * (1 + input.below(8)) };
        // Few different contents, among them zeros, so that many blocks are duplicates.
        let data = bytes(input.byte() % 5, len as usize);
        self.last = format!("write {len} bytes at {at} of {}", ino.0);
        let model = self.model.write(ino, at, &data);
        self.agree(self.fs().write(ino, at, &data, BY_CALLER), model);
    }

    fn read(&mut self, input: &mut Input<'_>) {
        let (ino, at) = (self.node_of(FileKind::Regular, input), Self::offset(input));
        let len = Self::length_of_read(input);
        self.last = format!("read {len} bytes at {at} of {}", ino.0);
        let real = self.read_either_way(Handle(ino.0 % 3), ino, at, len);
        if let Some((real, model)) = self.agree(real, self.model.read(ino, at, len)) {
            self.same_bytes(&real, model);
        }
    }

    /// A length, of whole blocks in half of the cases.
    fn length_of_read(input: &mut Input<'_>) -> usize {
        let len = input.below(50_000) as usize;
        if input.one_in(2) { len.next_multiple_of(BLOCK_BYTES) } else { len }
    }

    /// Reads into a buffer of the file system, or into one of the caller, aligned if whole blocks are read.
    fn read_either_way(&self, handle: Handle, ino: Ino, at: u64, len: usize) -> oncefs_fs::Result<Vec<u8>> {
        if (len / BLOCK_BYTES).is_multiple_of(3) {
            return self.fs().read_by(handle, ino, at, len, true).map(|bytes| bytes.to_vec());
        }
        let mut room = vec![0; len + 2 * BLOCK_BYTES];
        let start = room.as_ptr().align_offset(BLOCK_BYTES) + len % BLOCK_BYTES % 2;
        let room = &mut room[start..start + len];
        self.fs().read_into(handle, ino, at, room, true).map(|read| room[..read].to_vec())
    }

    fn same_bytes(&self, real: &[u8], model: &[u8]) {
        assert_eq!(real.len(), model.len(), "{}: length", self.place());
        let different = real.iter().zip(model).position(|(real, model)| real != model);
        assert_eq!(different, None, "{}: first different byte", self.place());
    }

    fn fallocate(&mut self, input: &mut Input<'_>) {
        let (ino, at) = (self.node_of(FileKind::Regular, input), Self::offset(input));
        let (len, keep_size) = (1 + input.below(40_000), input.one_in(2));
        let modes =
            [AllocateMode::Reserve { keep_size }, AllocateMode::PunchHole, AllocateMode::ZeroRange { keep_size }];
        let mode = input.pick(&modes);
        self.last = format!("fallocate {len} bytes at {at} of {}, {mode:?}", ino.0);
        let model = self.model.fallocate(ino, at, len, mode);
        self.agree(self.fs().fallocate(ino, at, len, mode, Privileges::Kept), model);
    }

    fn copy(&mut self, input: &mut Input<'_>) {
        let (source, from) = (self.node_of(FileKind::Regular, input), Self::offset(input));
        let (target, to) = (self.node_of(FileKind::Regular, input), Self::offset(input));
        let len = input.below(100_000);
        self.last = format!("copy {len} bytes from {from} of {} to {to} of {}", source.0, target.0);
        let model = self.model.copy(source, from, target, to, len);
        let real = self.fs().copy_file_range(source, from, target, to, len, Privileges::Kept);
        if let Some((real, model)) = self.agree(real, model) {
            assert_eq!(real, model, "{}", self.place());
        }
    }

    fn clone_file(&mut self, input: &mut Input<'_>) {
        let (source, parent) = (self.node_of(FileKind::Regular, input), self.node_of(FileKind::Directory, input));
        let name = input.pick(&NAMES);
        self.last = format!("clone {} as {name:?} in {}", source.0, parent.0);
        let made = self.fs().clone_file(source, parent, name, &ROOT);
        let ino = made.as_ref().ok().map(|attributes| attributes.ino);
        let model = self.model.clone_file(source, parent, name, ino);
        self.agree(made, model);
    }

    /// Clones a tree, or makes a snapshot of a directory and removes it.
    fn copy_tree(&mut self, input: &mut Input<'_>) {
        let (source, parent) = (self.any(input), self.node_of(FileKind::Directory, input));
        let (name, is_snapshot) = (input.pick(&NAMES), input.one_in(3));
        if self.model.nodes.len() > NODES_MAX / 2 {
            return;
        }
        let is_snapshot = is_snapshot && self.model.node(source).kind == FileKind::Directory;
        let kind = if is_snapshot { CopyKind::Snapshot } else { CopyKind::Clone };
        self.last = format!("{kind:?} of {} as {name:?} in {}", source.0, parent.0);
        let fs = self.file_system.clone().expect("it is closed only while it is reopened");
        let order = TreeCopy { source, parent, name, kind, of: b"" };
        let real = fs.copy_tree(&order, &TreeProgress::default(), &|| true).map_err(|failed| failed.error);
        let number = |parent: Ino, name: &[u8]| fs.lookup(parent, name).map_or(Ino(0), |found| found.ino);
        let model = self.model.copy_tree((source, kind), parent, name, &number);
        if self.agree(real, model).is_some() && is_snapshot {
            let removed = fs.remove_snapshot(parent, name, || (), &|_| false, &TreeProgress::default());
            let model = self.model.remove_tree(parent, name);
            self.agree(removed, model);
        }
    }

    fn set_attributes(&mut self, input: &mut Input<'_>) {
        let mut set = SetAttributes::default();
        let mut ino = self.any(input);
        match input.byte() % 6 {
            0..3 => {
                ino = self.node_of(FileKind::Regular, input);
                set.size = Some(if input.one_in(3) { 0 } else { Self::offset(input) });
            }
            3 => set.permissions = Some(input.pick(&[0o600, 0o4755, 0o2755, 0o1777])),
            4 => (set.uid, set.gid) = (Some(input.below(3) as u32), Some(input.below(3) as u32)),
            _ => set.mtime = Some(SetTime::At(Timestamp { seconds: -5, nanoseconds: 999_999_999 })),
        }
        self.last = format!("set attributes of {}: {set:?}", ino.0);
        let model = self.model.setattr(ino, &set);
        self.agree(self.fs().setattr(ino, &set), model);
    }

    fn xattr(&mut self, input: &mut Input<'_>) {
        let (ino, name) = (self.any(input), input.pick(&XATTRS));
        self.last = format!("attribute {} of {}", String::from_utf8_lossy(name), ino.0);
        if input.one_in(3) {
            let model = self.model.removexattr(ino, name);
            self.agree(self.fs().removexattr(ino, name), model);
        } else if name == POLICY_ATTRIBUTE {
            let value = input.pick(&POLICIES);
            let model = self.model.set_policy(ino, value);
            self.agree(self.fs().setxattr(ino, name, value, XattrMode::Any, true), model);
        } else if name == COMPRESS_ATTRIBUTE {
            let value = input.pick(&COMPRESS);
            let model = self.model.set_compress(ino, value);
            self.agree(self.fs().setxattr(ino, name, value, XattrMode::Any, true), model);
        } else {
            let value = bytes(input.byte(), input.below(300) as usize);
            self.model.setxattr(ino, name, &value);
            self.agree(self.fs().setxattr(ino, name, &value, XattrMode::Any, true), Ok(()));
        }
    }

    /// Checks that the bytes outside the found data are zeros.
    fn seek(&mut self, input: &mut Input<'_>) {
        let ino = self.node_of(FileKind::Regular, input);
        self.last = format!("seek through {}", ino.0);
        let Ok(content) = self.model.read(ino, 0, usize::MAX / 2) else { return };
        let (size, mut from) = (content.len() as u64, 0);
        while from < size {
            let data = match self.fs().lseek(ino, from, Whence::Data) {
                Ok(data) => data,
                Err(Error::NoSuchOffset) => size,
                Err(error) => panic!("{}: {error}", self.place()),
            };
            assert!(content[from as usize..data as usize].iter().all(|byte| *byte == 0), "{}", self.place());
            if data == size {
                return;
            }
            let hole = self.fs().lseek(ino, data, Whence::Hole);
            from = hole.unwrap_or_else(|error| panic!("{}: {error}", self.place()));
            assert!(from > data && from <= size, "{}: hole at {from} after data at {data}", self.place());
        }
    }

    /// Forgets a file without a name, as the kernel does.
    fn forget(&mut self, input: &mut Input<'_>) {
        let orphans = self.model.nodes.iter().filter(|(_, node)| node.nlink == 0);
        let orphans: Vec<Ino> = orphans.map(|(ino, _)| *ino).collect();
        if orphans.is_empty() {
            return;
        }
        let ino = input.pick(&orphans);
        self.last = format!("forget {}", ino.0);
        self.model.nodes.remove(&ino);
        self.agree(self.fs().forget(ino), Ok(()));
        assert!(matches!(self.fs().getattr(ino), Err(Error::Stale)), "{}", self.place());
    }

    fn commit_alone(&mut self) {
        self.last = "publish what was noted of reads, commit".to_owned();
        self.agree(self.fs().publish_reads(), Ok(()));
        self.agree(self.fs().store().commit().map_err(Error::from), Ok(()));
        self.note_commit();
    }

    /// A background step that commits.
    fn commit(&mut self, step: BackgroundStep) {
        self.last = format!("{step:?}");
        self.agree(self.fs().store().run(step).map_err(Error::from), Ok(()));
        self.note_commit();
    }

    fn note_commit(&mut self) {
        self.in_group = 0;
        self.committed.clone_from(&self.model.nodes);
    }

    /// Work in the background, without a visible effect.
    fn work(&mut self, input: &mut Input<'_>) {
        let step = input.pick(&WORK);
        self.last = format!("{step:?}");
        self.agree(self.fs().store().run(step).map_err(Error::from), Ok(()));
    }

    fn reopen(&mut self, is_compared: bool) {
        if is_compared {
            // Not each time: a read loads data into memory that must also be right on disk.
            self.last = "before reopening".to_owned();
            self.compare_all();
        }
        self.commit(BackgroundStep::LeaveCleanly);
        self.last = "reopen".to_owned();
        self.volume = Volume::of(&self.volume.parts());
        self.open_again();
    }

    fn power_cut(&mut self, is_kept: &mut dyn FnMut() -> bool) {
        self.last = "power cut".to_owned();
        self.volume = Volume::of(&self.volume.after_power_cut(is_kept));
        self.model.nodes.clone_from(&self.committed);
        self.open_again();
    }

    /// Checks the volume, opens it, and compares all of it.
    fn open_again(&mut self) {
        self.file_system = None;
        self.volume.clock.set(self.called as i64);
        let read_only = self.volume.open(true).unwrap_or_else(|error| panic!("{}: {error}", self.place()));
        let mut found = Vec::new();
        let blocks = read_only.store().check(true, &mut |_, _| {});
        let blocks = blocks.unwrap_or_else(|error| panic!("{}: {error}", self.place()));
        self.agree(read_only.check(&mut |line| found.push(line)), Ok(()));
        assert!(found.is_empty() && blocks.is_clean(), "{}: {found:?} {:?}", self.place(), blocks.problems);
        drop(read_only);
        let opened = self.volume.open(false);
        self.file_system = Some(opened.unwrap_or_else(|error| panic!("{}: {error}", self.place())));
        self.agree(self.fs().reclaim_left_behind(), Ok(()));
        self.model.nodes.retain(|_, node| node.nlink > 0);
        self.compare_all();
        // Reclaiming is a change of its own, and so is the first lease.
        self.commit_alone();
    }

    fn compare_all(&self) {
        self.model.nodes.keys().for_each(|ino| self.compare(*ino));
    }

    fn attributes(&self, ino: Ino) -> Attributes {
        self.fs().getattr(ino).unwrap_or_else(|error| panic!("{}: inode {}: {error}", self.place(), ino.0))
    }

    fn compare_attributes(&self, ino: Ino) {
        let (real, node) = (self.attributes(ino), self.model.node(ino));
        let has_size = matches!(node.kind, FileKind::Regular | FileKind::Symlink);
        let size = if has_size { real.size } else { 0 };
        assert_eq!(
            (real.kind, real.permissions, real.uid, real.gid, real.nlink, size, real.mtime, real.ctime),
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
    }

    fn compare(&self, ino: Ino) {
        self.compare_attributes(ino);
        let node = self.model.node(ino);
        let failed = |error: Error| -> ! { panic!("{}: inode {}: {error}", self.place(), ino.0) };
        match node.kind {
            FileKind::Regular => {
                self.same_bytes(&self.fs().read(ino, 0, 1 << 20, true).unwrap_or_else(|e| failed(e)), &node.content);
            }
            FileKind::Symlink => {
                assert_eq!(self.fs().readlink(ino).unwrap_or_else(|e| failed(e)), node.content, "{}", self.place());
            }
            FileKind::Directory => self.compare_names(ino, node),
            _ => {}
        }
        for (name, value) in &node.xattrs {
            assert_eq!(&self.fs().getxattr(ino, name).unwrap_or_else(|e| failed(e)), value, "{}", self.place());
        }
        let list = self.fs().listxattr(ino).unwrap_or_else(|e| failed(e));
        let listed = list.iter().filter(|byte| **byte == 0).count();
        assert_eq!(listed, node.xattrs.len(), "{}: attributes of {}", self.place(), ino.0);
    }

    fn compare_names(&self, ino: Ino, node: &Node) {
        const AFTER_DOTS: u64 = 2;
        let mut real = std::collections::BTreeMap::new();
        let listed = self.fs().readdir(ino, AFTER_DOTS, &mut |entry| {
            real.insert(entry.name.to_vec(), entry.ino);
            true
        });
        self.agree(listed, Ok(()));
        assert_eq!(real, node.entries, "{}: names in {}", self.place(), ino.0);
        let above = self.fs().lookup(ino, b"..").map(|attributes| attributes.ino);
        assert_eq!(above.ok(), Some(node.parent), "{}: above {}", self.place(), ino.0);
    }
}
