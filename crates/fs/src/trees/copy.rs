//! The copy of a tree: the walk over the source, and the publications that make the copy.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use oncefs_engine::{Change, FilePolicy};

use crate::format::inode::{InodeRecord, put_inode};
use crate::format::{symlink, xattr};
use crate::inodes::cache::Inode;
use crate::inodes::staged::Staged;
use crate::names::directory::check_new_name;
use crate::names::name_change::NameChange;
use crate::names::used_places::UsedPlaces;
use crate::trees::content::ContentCopy;
use crate::trees::plan::{Listed, Planned};
use crate::trees::work::TreeProgress;
use crate::{Attributes, Error, FileFlags, FileKind, FileSystem, Ino, Result, SYMLINK_BYTES_MAX, Timestamp};

/// Most names copied in one publication.
const NAMES_MAX: usize = 128;
/// Bytes of the records of one publication, about: less than half of what a change of records may take.
const BATCH_BYTES_MAX: usize = 64 << 10;
/// Files of which some names have been met and others have not, at most: about 48 MiB of memory.
const LINKED_MAX: usize = 1 << 20;

/// The purpose of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyKind {
    /// It can be changed. Its inodes are new: created and changed now, neither immutable nor append-only.
    Clone,
    /// It never changes, and shows all times and flags of the source.
    Snapshot,
}

/// A copy to make: its source and its target.
#[derive(Clone, Copy, Debug)]
pub struct TreeCopy<'a> {
    /// A directory with everything below it, or any other inode. A copy of the root is without the directory of oncefs
    /// itself.
    pub source: Ino,
    /// The directory that gets the copy.
    pub parent: Ino,
    /// The name of the copy in it.
    pub name: &'a [u8],
    /// Its purpose.
    pub kind: CopyKind,
    /// The source of a snapshot as text. Its attribute shows it.
    pub of: &'a [u8],
}

/// Why a copy failed, and where.
#[derive(Debug)]
pub struct CopyFailed {
    /// The path below the source. Empty: the source itself, or the name of the copy.
    pub at: Vec<u8>,
    /// The cause.
    pub error: Error,
}

impl From<Error> for CopyFailed {
    fn from(error: Error) -> Self {
        Self { at: Vec::new(), error }
    }
}

/// A directory whose names are being copied, or wait for it.
struct Frame {
    source: Ino,
    copy: Ino,
    /// After which name of the source to go on.
    cookie: u64,
    /// Whether all names were copied, so that only the directories below it are left.
    is_listed: bool,
    name: Vec<u8>,
    /// The frame of the directory above.
    above: usize,
}

/// A copy of a file with further names.
struct Linked {
    copy: Ino,
    names_left: u32,
}

/// A copy that is being built.
struct Builder<'a> {
    file_system: &'a FileSystem,
    kind: CopyKind,
    now: Timestamp,
    top: Ino,
    /// Subdirectories of the top. Its link count is 0 until it has a name.
    top_subdirectories: u32,
    stack: Vec<Frame>,
    linked: HashMap<Ino, Linked>,
    /// Places with names of the directories that are being copied.
    used: UsedPlaces,
    progress: &'a TreeProgress,
    goes_on: &'a dyn Fn() -> bool,
}

/// A name to publish.
struct Entry {
    listed: Listed,
    /// Its new inode. None: it is a further name.
    planned: Option<Planned>,
    /// The copy whose further name it is.
    copy_of_link: Option<Ino>,
}

impl FileSystem {
    /// Copies a tree: names, inodes, attributes, links between its files, and references to blocks. No data is read or
    /// written. The copy gets its name in the last step, so it is there as a whole or not at all, also after a crash.
    /// `goes_on` is asked between the steps; None: it ended the work, and nothing is left.
    ///
    /// A file has the content, size and times of one moment. Names that come, go or move meanwhile may or may not be
    /// copied. What the kernel holds back is not copied: the caller lets it be written back first.
    ///
    /// # Errors
    ///
    /// Errors about an inode below the source name its path there:
    ///
    /// - `Exists`: the name exists, before or at the end.
    /// - `NotADirectory`, `NotFound`, `Stale`: the parent is not a directory, was deleted, or does not exist.
    /// - `InSnapshot`, `OperationNotPermitted`: the parent is part of a snapshot, or immutable.
    /// - `Stale`: the source does not exist.
    /// - `TooManyLinks`: over a million files have names that were not met yet.
    /// - `Invalid`, `NameTooLong`: the name cannot be one.
    /// - `NoSpace`: the host's file system is full.
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `Engine`: the store failed, metadata is damaged, or a block of a file is known to be lost.
    pub fn copy_tree(
        &self,
        order: &TreeCopy<'_>,
        progress: &TreeProgress,
        goes_on: &dyn Fn() -> bool,
    ) -> std::result::Result<Option<Attributes>, CopyFailed> {
        check_new_name(order.name)?;
        self.check_writable()?;
        let _under_way = self.tree_work.begin();
        let goes_on = || goes_on() && !self.closing.load(Relaxed);
        self.check_free(order.parent, order.name)?;
        // They know neither an orphan with a tree below it nor the flag of a snapshot.
        self.store.refuse_older_versions().map_err(Error::from)?;
        let kind = self.inode(order.source)?.lock().kind;
        let planned = self.plan_copy(order.source, kind)?.ok_or(Error::Stale)?;
        let mut builder = Builder {
            file_system: self,
            kind: order.kind,
            now: self.clock.now(),
            top: Ino(0),
            top_subdirectories: 0,
            stack: Vec::new(),
            linked: HashMap::new(),
            used: UsedPlaces::default(),
            progress,
            goes_on: &goes_on,
        };
        builder.top = builder.make_top(order.parent, &planned)?;
        let copied = builder.build(&planned).and_then(|is_whole| match is_whole {
            true => Ok(Some(self.name_tree(order, builder.top, builder.top_subdirectories, progress)?)),
            false => Ok(None),
        });
        if !matches!(copied, Ok(Some(_)))
            && let Err(error) = self.remove_orphan_tree(builder.top, &|_| false, &TreeProgress::default())
        {
            log::warn!("cannot remove an unfinished copy of a tree, the next mount tries again: {error}");
        }
        copied
    }
}

impl Builder<'_> {
    /// Makes the top of the copy, an orphan without names in it.
    fn make_top(&self, parent: Ino, planned: &Planned) -> Result<Ino> {
        let fs = self.file_system;
        let _room = fs.begin_change()?;
        fs.check_host()?;
        let (ino, _being_made) = fs.numbers.take(&fs.store)?;
        let mut change = Change::new();
        let mut record = self.copied(planned, parent);
        record.nlink = 0;
        self.put_new(&mut change, ino, &record, planned);
        fs.put_orphan(&mut change, ino);
        fs.store.publish(change)?;
        Ok(ino)
    }

    /// Copies everything. False: it was ended.
    fn build(&mut self, planned: &Planned) -> std::result::Result<bool, CopyFailed> {
        self.complete(self.top, planned)?;
        if planned.record.is_directory() {
            self.stack.push(Frame::new(planned.source, self.top, Vec::new(), 0));
        }
        while !self.stack.is_empty() {
            if !(self.goes_on)() {
                return Ok(false);
            }
            let mut at = Vec::new();
            self.copy_some(&mut at).map_err(|error| CopyFailed { at: self.path(&at), error })?;
        }
        Ok((self.goes_on)())
    }

    /// The path below the source of a name in the directory that is being copied.
    fn path(&self, name: &[u8]) -> Vec<u8> {
        let (mut at, mut path) = (self.stack.len().saturating_sub(1), name.to_vec());
        while at > 0 {
            path = [&self.stack[at].name, &b"/"[..], &path].concat();
            at = self.stack[at].above;
            if path.len() > SYMLINK_BYTES_MAX {
                return [b".../", &path[..]].concat();
            }
        }
        path
    }

    /// Copies some names of the directory on top of the stack. `at` becomes the name that it works on.
    fn copy_some(&mut self, at: &mut Vec<u8>) -> Result<()> {
        self.forget_used_places();
        let here = self.stack.len() - 1;
        let frame = &self.stack[here];
        if frame.is_listed {
            self.stack.pop();
            return Ok(());
        }
        let copy = frame.copy;
        let listed = match self.file_system.names_after(frame.source, frame.cookie, NAMES_MAX) {
            // The directory was deleted meanwhile.
            Err(Error::Stale) => Vec::new(),
            listed => listed?,
        };
        let (is_last, names) = (listed.len() < NAMES_MAX, listed.len());
        let (entries, taken, cookie) = self.plan_some(listed, at)?;
        let numbers = self.publish(copy, &entries)?;
        let frame = &mut self.stack[here];
        (frame.cookie, frame.is_listed) = (cookie.unwrap_or(frame.cookie), is_last && taken == names);
        if self.linked.len() > LINKED_MAX {
            return Err(Error::TooManyLinks);
        }
        for (entry, ino) in entries.into_iter().zip(numbers) {
            let Entry { listed, planned, .. } = entry;
            at.clone_from(&listed.name);
            match planned {
                Some(planned) => {
                    self.complete(ino, &planned)?;
                    self.follow(here, listed, &planned, ino);
                }
                None => self.named_again(listed.ino),
            }
        }
        Ok(())
    }

    /// Empties the filter of used places if it is full, unless a directory on the way has only some of its names.
    fn forget_used_places(&mut self) {
        if self.used.is_full() && self.stack.iter().all(|frame| frame.is_listed || frame.cookie == 0) {
            self.used.clear();
        }
    }

    /// Reads what belongs to some names, as many as one publication takes. Returns also how many names that were, and
    /// the cookie of the last.
    fn plan_some(&self, listed: Vec<Listed>, at: &mut Vec<u8>) -> Result<(Vec<Entry>, usize, Option<u64>)> {
        let (mut entries, mut bytes, mut taken, mut cookie) = (Vec::<Entry>::new(), 0, 0, None);
        for listed in listed {
            at.clone_from(&listed.name);
            let is_here = |entry: &Entry| entry.planned.as_ref().is_some_and(|planned| planned.source == listed.ino);
            let next = listed.cookie;
            bytes += 2 * listed.name.len() + 64;
            if let Some(linked) = self.linked.get(&listed.ino) {
                entries.push(Entry { copy_of_link: Some(linked.copy), listed, planned: None });
            } else if entries.iter().any(is_here) {
                // The number of its copy is known after the publication.
                break;
            } else if let Some(planned) =
                self.file_system.plan_copy(listed.ino, listed.kind)?.filter(|it| it.record.nlink > 0)
            {
                bytes += planned.bytes();
                entries.push(Entry { copy_of_link: None, listed, planned: Some(planned) });
            }
            (taken, cookie) = (taken + 1, Some(next));
            if bytes > BATCH_BYTES_MAX {
                break;
            }
        }
        Ok((entries, taken, cookie))
    }

    /// Publishes names of the directory `copy` with their new inodes. Returns the inode of each name.
    fn publish(&mut self, copy: Ino, entries: &[Entry]) -> Result<Vec<Ino>> {
        let fs = self.file_system;
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let mut inodes: Vec<Arc<Inode>> = vec![fs.inode(copy)?];
        for link in entries.iter().filter_map(|entry| entry.copy_of_link) {
            inodes.push(fs.inode(link)?);
        }
        let _room = fs.begin_change()?;
        fs.check_host()?;
        // Reads the places before the directory is locked. Nothing else changes its names.
        let mut names = NameChange::of_unseen(fs, &self.used);
        for entry in entries {
            names.entry(copy, &entry.listed.name)?;
        }
        let mut staged = Staged::lock(&inodes);
        let new = entries.iter().filter(|entry| entry.planned.is_some()).count();
        let (numbers, _being_made) = fs.numbers.take_some(&fs.store, new)?;
        let (mut numbers, mut targets) = (numbers.into_iter(), Vec::with_capacity(entries.len()));
        let (mut change, mut subdirectories) = (Change::new(), 0);
        for entry in entries {
            let (ino, kind) = match (&entry.planned, entry.copy_of_link) {
                (Some(planned), _) => {
                    let ino = numbers.next().expect("a number was taken for each new inode");
                    let record = self.copied(planned, copy);
                    self.put_new(&mut change, ino, &record, planned);
                    (ino, record.kind)
                }
                (None, Some(link)) => {
                    let record = staged.edit(link);
                    record.nlink += 1;
                    (link, record.kind)
                }
                (None, None) => unreachable!("an entry is a new inode or a further name"),
            };
            subdirectories += u32::from(kind == FileKind::Directory);
            names.set(copy, &entry.listed.name, ino, kind)?;
            targets.push(ino);
        }
        let places = names.places();
        names.finish(&mut change);
        let directory = staged.edit(copy);
        directory.entries += entries.len() as u64;
        directory.nlink += if copy == self.top { 0 } else { subdirectories };
        staged.publish(&fs.store, change)?;
        places.into_iter().for_each(|(parent, place)| self.used.add(parent, place));
        self.top_subdirectories += if copy == self.top { subdirectories } else { 0 };
        Ok(targets)
    }

    /// The record of a copy in the directory `parent`, without entries and content.
    fn copied(&self, planned: &Planned, parent: Ino) -> InodeRecord {
        let (fs, source) = (self.file_system, &planned.record);
        let mut record = InodeRecord {
            nlink: if source.is_directory() { 2 } else { 1 },
            entries: 0,
            parent: if source.is_directory() { parent } else { Ino(0) },
            xattrs: planned.attributes.len() as u32,
            generation: fs.generation,
            ..source.clone()
        };
        if source.kind == FileKind::Regular {
            let map = if planned.has_content() { fs.store.new_map_to_fill() } else { fs.store.new_map() };
            (record.map, record.usage, record.blocks) = (map, fs.monitor.usage_of_new(), 0);
            record.size = if planned.has_content() { 0 } else { source.size };
        }
        self.mark(&mut record);
        record
    }

    /// Sets what differs between a copy and its source, by the kind of the copy.
    fn mark(&self, record: &mut InodeRecord) {
        match self.kind {
            CopyKind::Clone => {
                (record.ctime, record.btime) = (self.now, self.now);
                let bound = FileFlags::IMMUTABLE.with(FileFlags::APPEND_ONLY).with(FileFlags::SNAPSHOT);
                record.flags = record.flags.without(bound);
            }
            CopyKind::Snapshot => record.flags = record.flags.with(FileFlags::SNAPSHOT),
        }
    }

    /// Adds a new inode to a change, with what belongs to it.
    fn put_new(&self, change: &mut Change, ino: Ino, record: &InodeRecord, planned: &Planned) {
        put_inode(change, ino, record);
        if let Some(target) = &planned.target {
            change.put(symlink::key(ino), symlink::encode(ino, target));
        }
        for (name, value) in &planned.attributes {
            change.put(xattr::key(ino, name), xattr::encode(ino, value));
        }
        let policy = planned.overrides().on(&self.file_system.store).apply_to(FilePolicy::default());
        if policy != FilePolicy::default() && record.kind == FileKind::Regular {
            self.file_system.store.first_policy(change, record.map, policy);
        }
    }

    /// Copies what did not fit into the publication of a new inode: further attributes, and content.
    fn complete(&self, copy: Ino, planned: &Planned) -> Result<()> {
        if planned.has_more_attributes {
            self.file_system.copy_attributes(planned.source, copy)?;
        }
        if planned.has_content() {
            let also = |record: &mut InodeRecord, source: &InodeRecord| {
                (record.atime, record.mtime) = (source.atime, source.mtime);
                if self.kind == CopyKind::Snapshot {
                    record.ctime = source.ctime;
                }
            };
            let order = ContentCopy { source: planned.source, copy, also, goes_on: self.goes_on };
            self.file_system.copy_content(&order)?;
        }
        self.progress.names.fetch_add(1, Relaxed);
        if planned.record.kind == FileKind::Regular {
            self.progress.bytes.fetch_add(planned.record.size, Relaxed);
        }
        Ok(())
    }

    /// Remembers a new inode: a directory whose names are to be copied, or a file with further names.
    fn follow(&mut self, above: usize, listed: Listed, planned: &Planned, copy: Ino) {
        if planned.record.is_directory() {
            self.stack.push(Frame::new(planned.source, copy, listed.name, above));
        } else if planned.has_other_names() {
            self.linked.insert(planned.source, Linked { copy, names_left: planned.record.nlink - 1 });
        }
    }

    /// A file got a further name. After its last one it is forgotten.
    fn named_again(&mut self, source: Ino) {
        self.progress.names.fetch_add(1, Relaxed);
        let Some(linked) = self.linked.get_mut(&source) else { return };
        linked.names_left = linked.names_left.saturating_sub(1);
        if linked.names_left == 0 {
            self.linked.remove(&source);
        }
    }
}

impl Frame {
    fn new(source: Ino, copy: Ino, name: Vec<u8>, above: usize) -> Self {
        Self { source, copy, cookie: 0, is_listed: false, name, above }
    }
}
