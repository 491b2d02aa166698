//! Runs operations on a running volume and on its model, which must agree.

use std::mem::discriminant;
use std::sync::atomic::Ordering::Relaxed;

use oncefs_engine::{BLOCK_BYTES, BackgroundStep, Blocks, DefragOptions};
use oncefs_fs::{
    COMPRESS_ATTRIBUTE, Caller, CopyKind, Error, FileKind, Ino, POLICY_ATTRIBUTE, Privileges, RenameMode,
    SNAPSHOT_ATTRIBUTE, SetAttributes, SetTime, Timestamp, TreeCopy, TreeProgress, WriteOrigin, XattrMode,
};

use crate::live::Live;
use crate::model::Node;
use crate::operation::{Content, Operation, Path};
use crate::point::Doing;
use crate::tape::Allowed;
use crate::visible_state::Snapshot;

const ROOT: Caller<'_> = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };
const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };

/// Blocks of one step of the scrub.
const SCRUB_BLOCKS: u64 = 128;

type Answers<T> = (oncefs_fs::Result<T>, oncefs_fs::Result<T>);

impl Live {
    /// Runs one operation on both sides, and compares them.
    pub fn run(&mut self, operation: Operation) -> Result<(), String> {
        let now = self.model.reference.now.seconds + 1;
        self.clock.set(now);
        self.model.reference.now = Timestamp { seconds: now, nanoseconds: 0 };
        operation.foresee(self);
        let foreseen = self.snapshot();
        self.tape.allow(match operation.commits() {
            true => Allowed::either(self.acknowledged, foreseen),
            false if self.is_interrupted.load(Relaxed) => Allowed::between(self.acknowledged),
            false => Allowed::only(self.acknowledged),
        });
        self.tape.doing(doing(&operation));
        self.tape.mark("begins");
        operation.run(self).map_err(|what| format!("{operation:?}: {what}"))?;
        self.tape.mark(if operation.commits() { "acknowledged" } else { "published" });
        if self.is_interrupted.load(Relaxed) && !operation.commits() {
            self.tape.doing(Doing::Commit);
            self.store.commit().map_err(|error| error.to_string())?;
        }
        let expected = self.snapshot();
        if self.is_interrupted.load(Relaxed) || operation.commits() {
            self.acknowledged = expected;
            self.tape.allow(Allowed::only(expected));
            self.tape.mark("acknowledged");
        }
        let seen = Snapshot::of_file_system(&self.file_system).map_err(|error| error.to_string())?;
        let differences = seen.differences(&self.snapshots[expected as usize]);
        if differences.is_empty() { Ok(()) } else { Err(format!("{operation:?}: {}", differences.join("; "))) }
    }
}

impl Operation {
    /// Runs it on both sides. An error says where they disagree.
    fn run(&self, live: &mut Live) -> Result<(), String> {
        match *self {
            Self::Create(path) => make(live, path, FileKind::Regular),
            Self::Tmpfile(directory) => make_tmpfile(live, directory),
            Self::NameTmpfile(path) => name_tmpfile(live, path),
            Self::Mkdir(path) => make(live, path, FileKind::Directory),
            Self::Symlink(path) => make(live, path, FileKind::Symlink),
            Self::Link(of, path) => {
                let (Some(ino), Some((parent, name))) = (live.find(of), live.split(path)) else { return Ok(()) };
                let real = live.file_system.link(ino, parent, name).map(drop);
                agree((real, live.model.reference.link(ino, parent, name)))
            }
            Self::Unlink(path) => remove(live, path, false),
            Self::Rmdir(path) => remove(live, path, true),
            Self::Rename(from, to, mode) => rename(live, from, to, mode),
            Self::RenameLeavingWhiteout(from, to) => rename_leaving_whiteout(live, from, to),
            Self::SetFlags(path, flags) => {
                let Some(ino) = live.find(path) else { return Ok(()) };
                agree((live.file_system.set_flags(ino, flags), live.model.reference.set_flags(ino, flags)))
            }
            Self::SetFlagsAndCompression(path, flags, compress) => {
                let Some(ino) = live.find(path) else { return Ok(()) };
                let value = compress.map(|compress| compress.word().as_bytes());
                let model = live.model.reference.set_flags_and_compression(ino, flags, value);
                agree((live.file_system.set_flags_and_compression(ino, flags, compress), model))
            }
            Self::Close => close(live),
            Self::Write(..) | Self::Append(..) | Self::WriteOrphan(..) => write(live, *self),
            Self::Truncate(..) | Self::Allocate(..) | Self::Copy(..) => change_range(live, *self),
            Self::CloneFile(source, path) => clone_file(live, source, path),
            Self::CloneTree(source, path) => copy_tree(live, (source, CopyKind::Clone), path),
            Self::SnapshotTree(source, path) => copy_tree(live, (source, CopyKind::Snapshot), path),
            Self::RemoveSnapshot(path) => remove_snapshot(live, path),
            Self::Read(path) => read(live, path),
            Self::ReadApart(path) => read_apart(live, path),
            Self::SetXattr(..)
            | Self::SetPolicy(..)
            | Self::SetCompress(..)
            | Self::RemoveXattr(..)
            | Self::Chmod(..)
            | Self::SetTimes(..) => set_attributes(live, *self),
            Self::Commit => live.store.commit().map_err(told),
            Self::Grow(_) => live.store.grow(live.model.data_blocks * BLOCK_BYTES as u64).map_err(told),
            Self::Wait(seconds) => {
                live.model.reference.now.seconds += seconds;
                Ok(())
            }
            Self::Background(BackgroundStep::Rank) | Self::Exhaust(BackgroundStep::Rank) => rank(live),
            Self::Background(step) => live.store.run(step).map(drop).map_err(told),
            Self::Exhaust(step) => {
                while live.store.run(step).map_err(told)? {}
                Ok(())
            }
            Self::Scrub => scrub(live).map_err(told),
            Self::Rot(content) => live.rot(&content.bytes()),
            Self::Defrag(path, run_blocks_min, space) => {
                let Some(ino) = live.find(path) else { return Ok(()) };
                let (run_blocks_min, space) = (Some(run_blocks_min), Blocks(space));
                let options = DefragOptions { run_blocks_min, space, ..DefragOptions::default() };
                match live.file_system.defrag(ino, &options) {
                    // An exchange of names may have put a directory there, or a rename a whiteout.
                    Err(Error::IsADirectory) if live.is_directory(ino) => Ok(()),
                    Err(Error::Invalid(_)) if live.model.reference.node(ino).kind == FileKind::CharDevice => Ok(()),
                    result => result.map(drop).map_err(|error| error.to_string()),
                }
            }
            Self::Tune(name, value) => live.store.tune(&[(name.to_owned(), value.to_owned())]).map_err(told),
        }
    }

    /// Tells the model about changes before the operation, because they may become durable within it.
    fn foresee(&self, live: &mut Live) {
        if let Self::Grow(blocks) = self {
            live.model.data_blocks += blocks;
        }
    }
}

/// The scrub may commit by itself, so earlier changes are committed first. Then reported damage is repaired.
fn scrub(live: &Live) -> oncefs_engine::Result<()> {
    live.store.commit()?;
    while live.store.run(BackgroundStep::Scrub { blocks_max: SCRUB_BLOCKS })? {}
    live.store.run(BackgroundStep::Repair).map(drop)?;
    live.store.commit()
}

fn told(error: oncefs_engine::Error) -> String {
    error.to_string()
}

fn agree<T: PartialEq + std::fmt::Debug>(answers: Answers<T>) -> Result<(), String> {
    match answers {
        (Ok(real), Ok(model)) if real == model => Ok(()),
        (Err(real), Err(model)) if discriminant(&real) == discriminant(&model) => Ok(()),
        (real, model) => Err(format!("the file system answered {real:?}, the model {model:?}")),
    }
}

fn make(live: &mut Live, path: Path, kind: FileKind) -> Result<(), String> {
    let Some((parent, name)) = live.split(path) else { return Ok(()) };
    let permissions = if kind == FileKind::Symlink { 0o777 } else { 0o755 };
    let mut node = Node::new(kind, permissions, live.model.reference.now);
    let made = match kind {
        FileKind::Directory => live.file_system.mkdir(parent, name, permissions, &ROOT),
        FileKind::Symlink => {
            node.content = b"some/where".to_vec();
            live.file_system.symlink(parent, name, b"some/where", &ROOT)
        }
        kind => live.file_system.mknod(parent, name, kind.mode_bits() | permissions, 0, &ROOT),
    };
    let ino = made.as_ref().ok().map(|attributes| attributes.ino);
    let reference = &mut live.model.reference;
    let is_possible =
        matches!(reference.lookup(parent, name), Err(Error::NotFound)) && reference.node(parent).nlink > 0;
    if is_possible && ino.is_none() {
        return Err(format!("it was refused: {made:?}"));
    }
    agree((made.map(drop), reference.create(parent, name, ino, node)))
}

fn remove(live: &mut Live, path: Path, is_directory: bool) -> Result<(), String> {
    let Some((parent, name)) = live.split(path) else { return Ok(()) };
    let (file_system, reference) = (&live.file_system, &mut live.model.reference);
    if is_directory {
        agree((file_system.rmdir(parent, name), reference.rmdir(parent, name)))
    } else {
        agree((file_system.unlink(parent, name), reference.unlink(parent, name)))
    }
}

fn rename(live: &mut Live, from: Path, to: Path, mode: RenameMode) -> Result<(), String> {
    let (Some(old), Some(new)) = (live.split(from), live.split(to)) else { return Ok(()) };
    let real = live.file_system.rename(old.0, old.1, new.0, new.1, mode);
    agree((real, live.model.reference.rename(old, new, mode)))
}

fn rename_leaving_whiteout(live: &mut Live, from: Path, to: Path) -> Result<(), String> {
    let (Some(old), Some(new)) = (live.split(from), live.split(to)) else { return Ok(()) };
    let (fs, mode) = (&live.file_system, RenameMode::Replace);
    let real = fs.rename_leaving_whiteout(old.0, old.1, new.0, new.1, mode, &ROOT);
    let whiteout = fs.lookup(old.0, old.1).ok().map(|attributes| attributes.ino);
    agree((real, live.model.reference.rename_leaving_whiteout(old, new, mode, whiteout)))
}

fn copy_tree(live: &mut Live, (source, kind): (Path, CopyKind), path: Path) -> Result<(), String> {
    let (Some(source), Some((parent, name))) = (live.find(source), live.split(path)) else { return Ok(()) };
    let (fs, order) = (live.file_system.clone(), TreeCopy { source, parent, name, kind, of: b"" });
    let real = fs.copy_tree(&order, &TreeProgress::default(), &|| true).map(drop).map_err(|failed| failed.error);
    let number = |parent: Ino, name: &[u8]| fs.lookup(parent, name).map_or(Ino(0), |attributes| attributes.ino);
    agree((real, live.model.reference.copy_tree((source, kind), parent, name, &number)))?;
    // The attribute tells the time, and what was counted.
    if let (CopyKind::Snapshot, Ok(top)) = (kind, fs.lookup(parent, name))
        && let (Ok(value), Some(node)) =
            (fs.getxattr(top.ino, SNAPSHOT_ATTRIBUTE), live.model.reference.nodes.get_mut(&top.ino))
    {
        node.xattrs.insert(SNAPSHOT_ATTRIBUTE.to_vec(), value);
    }
    learn_reads(live)
}

fn remove_snapshot(live: &mut Live, path: Path) -> Result<(), String> {
    let Some((parent, name)) = live.split(path) else { return Ok(()) };
    let real = live.file_system.remove_snapshot(parent, name, || (), &|_| false, &TreeProgress::default());
    agree((real, live.model.reference.remove_tree(parent, name)))
}

fn make_tmpfile(live: &mut Live, directory: Path) -> Result<(), String> {
    let Some(parent) = live.find(directory).filter(|ino| live.is_directory(*ino)) else { return Ok(()) };
    let node = Node::new(FileKind::Regular, 0o600, live.model.reference.now);
    let made = live.file_system.tmpfile(parent, 0o600, &ROOT);
    let ino = made.as_ref().ok().map(|attributes| attributes.ino);
    agree((made.map(drop), live.model.reference.tmpfile(parent, ino, node)))
}

fn name_tmpfile(live: &mut Live, path: Path) -> Result<(), String> {
    let is_never_named = |ino: &Ino| live.model.reference.node(*ino).is_never_named;
    let Some(ino) = orphans(live).into_iter().find(is_never_named) else { return Ok(()) };
    let Some((parent, name)) = live.split(path) else { return Ok(()) };
    let real = live.file_system.link(ino, parent, name).map(drop);
    agree((real, live.model.reference.link(ino, parent, name)))
}

fn orphans(live: &Live) -> Vec<Ino> {
    let nodes = live.model.reference.nodes.iter();
    nodes.filter(|(_, node)| node.nlink == 0).map(|(ino, _)| *ino).collect()
}

fn close(live: &mut Live) -> Result<(), String> {
    for ino in orphans(live) {
        live.model.reference.nodes.remove(&ino);
        live.file_system.forget(ino).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn write(live: &mut Live, operation: Operation) -> Result<(), String> {
    let (ino, at, content) = match operation {
        Operation::Write(path, at, content) => (live.find(path), at, content),
        Operation::Append(path, content) => {
            let ino = live.find(path);
            let size = ino.map_or(0, |ino| live.model.reference.node(ino).content.len() as u64);
            (ino, size, content)
        }
        Operation::WriteOrphan(at, content) => (orphans(live).first().copied(), at, content),
        _ => return Ok(()),
    };
    let Some(ino) = ino else { return Ok(()) };
    let bytes = content.bytes();
    match live.file_system.write(ino, at, &bytes, BY_CALLER) {
        // Nothing has changed then, and the model does not count space.
        Err(Error::NoSpace) => Ok(()),
        real => agree((real.map(drop), live.model.reference.write(ino, at, &bytes))),
    }
}

fn change_range(live: &mut Live, operation: Operation) -> Result<(), String> {
    let (file_system, model) = (live.file_system.clone(), live);
    match operation {
        Operation::Truncate(path, size) => {
            let Some(ino) = model.find(path) else { return Ok(()) };
            let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
            match file_system.setattr(ino, &set) {
                Err(Error::NoSpace) => Ok(()),
                real => agree((real.map(drop), model.model.reference.setattr(ino, &set))),
            }
        }
        Operation::Allocate(path, at, len, mode) => {
            let Some(ino) = model.find(path) else { return Ok(()) };
            match file_system.fallocate(ino, at, len, mode, Privileges::Kept) {
                Err(Error::NoSpace) => Ok(()),
                real => agree((real, model.model.reference.fallocate(ino, at, len, mode))),
            }
        }
        Operation::Copy((source, from), (target, to), len) => {
            let (Some(source), Some(target)) = (model.find(source), model.find(target)) else { return Ok(()) };
            match file_system.copy_file_range(source, from, target, to, len, Privileges::Kept) {
                Err(Error::NoSpace) => {}
                // The part with room is copied.
                Ok(copied) if model.is_nearly_full => {
                    agree((Ok(copied), model.model.reference.copy(source, from, target, to, len.min(copied))))?;
                }
                real => agree((real, model.model.reference.copy(source, from, target, to, len)))?,
            }
            publish_reads(model)
        }
        _ => Ok(()),
    }
}

fn clone_file(live: &mut Live, source: Path, path: Path) -> Result<(), String> {
    let (Some(source), Some((parent, name))) = (live.find(source), live.split(path)) else { return Ok(()) };
    match live.file_system.clone_file(source, parent, name, &ROOT) {
        Err(Error::NoSpace) => Ok(()),
        made => {
            let ino = made.as_ref().ok().map(|attributes| attributes.ino);
            agree((made.map(drop), live.model.reference.clone_file(source, parent, name, ino)))
        }
    }
}

fn read(live: &mut Live, path: Path) -> Result<(), String> {
    let Some(ino) = live.find(path) else { return Ok(()) };
    let handle = live.file_system.opened(ino);
    let real = live.file_system.read_by(handle, ino, 0, usize::MAX >> 1, false).map(|bytes| bytes.to_vec());
    agree((real, live.model.reference.read(ino, 0, usize::MAX >> 1).map(<[u8]>::to_vec)))?;
    publish_reads(live)
}

fn read_apart(live: &mut Live, path: Path) -> Result<(), String> {
    const APART: usize = 3;
    let Some(ino) = live.find(path) else { return Ok(()) };
    let blocks = live.model.reference.node(ino).content.len().div_ceil(BLOCK_BYTES);
    let handle = live.file_system.opened(ino);
    for at in (0..APART).flat_map(|first| (first..blocks).step_by(APART)) {
        let at = (at * BLOCK_BYTES) as u64;
        let real = live.file_system.read_by(handle, ino, at, BLOCK_BYTES, false).map(|bytes| bytes.to_vec());
        agree((real, live.model.reference.read(ino, at, BLOCK_BYTES).map(<[u8]>::to_vec)))?;
    }
    publish_reads(live)
}

/// The model takes the noted reads from the file system. The comparison after the operation checks that all of them are
/// published at once.
fn publish_reads(live: &mut Live) -> Result<(), String> {
    learn_reads(live)?;
    live.file_system.publish_reads().map_err(|error| error.to_string())
}

/// Ranks until nothing is due. The ranker restarts the count of reads of a file with a new rank, so the model takes
/// that count from it.
fn rank(live: &mut Live) -> Result<(), String> {
    while live.store.run(BackgroundStep::Rank).map_err(told)? {}
    learn_reads(live)
}

fn learn_reads(live: &mut Live) -> Result<(), String> {
    for (ino, node) in &live.model.reference.nodes {
        if node.kind == FileKind::Regular && node.nlink > 0 {
            let usage = live.file_system.usage(*ino).map_err(|error| error.to_string())?;
            let blocks = u64::from(usage.reads().sequential) + u64::from(usage.reads().random);
            live.model.reads.insert(*ino, (blocks, usage.last_access().0));
        }
    }
    Ok(())
}

fn set_attributes(live: &mut Live, operation: Operation) -> Result<(), String> {
    let file_system = live.file_system.clone();
    let (path, set) = match operation {
        Operation::SetXattr(path, name, bytes) => {
            let Some(ino) = live.find(path) else { return Ok(()) };
            let value = Content::from(bytes as u64, bytes).bytes();
            live.model.reference.setxattr(ino, name.as_bytes(), &value);
            return agree((file_system.setxattr(ino, name.as_bytes(), &value, XattrMode::Any, true), Ok(())));
        }
        Operation::SetPolicy(path, policy) => {
            let Some(ino) = live.find(path) else { return Ok(()) };
            let model = live.model.reference.set_policy(ino, policy.as_bytes());
            return agree((
                file_system.setxattr(ino, POLICY_ATTRIBUTE, policy.as_bytes(), XattrMode::Any, true),
                model,
            ));
        }
        Operation::SetCompress(path, compress) => {
            let Some(ino) = live.find(path) else { return Ok(()) };
            let value = compress.as_bytes();
            let model = live.model.reference.set_compress(ino, value);
            return agree((file_system.setxattr(ino, COMPRESS_ATTRIBUTE, value, XattrMode::Any, true), model));
        }
        Operation::RemoveXattr(path, name) => {
            let Some(ino) = live.find(path) else { return Ok(()) };
            let model = live.model.reference.removexattr(ino, name.as_bytes());
            return agree((file_system.removexattr(ino, name.as_bytes()), model));
        }
        Operation::Chmod(path, mode) => (path, SetAttributes { permissions: Some(mode), ..SetAttributes::default() }),
        Operation::SetTimes(path, seconds) => {
            let time = SetTime::At(Timestamp { seconds, nanoseconds: 7 });
            (path, SetAttributes { mtime: Some(time), ..SetAttributes::default() })
        }
        _ => return Ok(()),
    };
    let Some(ino) = live.find(path) else { return Ok(()) };
    agree((file_system.setattr(ino, &set).map(drop), live.model.reference.setattr(ino, &set)))
}

fn doing(operation: &Operation) -> Doing {
    match operation {
        Operation::Commit => Doing::Commit,
        Operation::Grow(_) => Doing::Grow,
        Operation::Scrub => Doing::Scrub,
        Operation::Background(step) | Operation::Exhaust(step) => match step {
            BackgroundStep::Checkpoint | BackgroundStep::CatchUpRecords => Doing::Checkpoint,
            BackgroundStep::Reclaim => Doing::Reclaim,
            BackgroundStep::TakeLeaves => Doing::TakeLeaves,
            BackgroundStep::Release => Doing::Release,
            BackgroundStep::Punch => Doing::Punch,
            BackgroundStep::FillHints => Doing::FillHints,
            BackgroundStep::MergeHints => Doing::MergeHints,
            BackgroundStep::SweepHints => Doing::SweepHints,
            BackgroundStep::Revisit { .. } => Doing::Revisit,
            BackgroundStep::Compress { .. } => Doing::Compress,
            BackgroundStep::Repack { .. } => Doing::Repack,
            BackgroundStep::Expand { .. } => Doing::Expand,
            BackgroundStep::Rank => Doing::Rank,
            BackgroundStep::Repair | BackgroundStep::Scrub { .. } => Doing::Scrub,
            BackgroundStep::SaveSkipped => Doing::SaveSkipped,
            BackgroundStep::LeaveCleanly => Doing::Leave,
        },
        _ => Doing::Change,
    }
}
