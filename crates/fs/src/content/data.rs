//! File contents: reading, writing, reserving, punching, seeking; the times and bits that follow from them.
//!
//! Blocks are the store's. Here is what goes with them in one commit group: size, block count, times. So a function
//! hands the store a closure that locks the inode under the map's lock. A map that was detached in between
//! (truncate to zero) is looked up again.

use std::ops::{Deref, Range};
use std::sync::Arc;

use oncefs_engine::{Change, DefragOptions, DefragOutcome, MapId, OnPublish, ReadBuf};
use parking_lot::MutexGuard;

use crate::format::inode::InodeRecord;
use crate::inodes::cache::Inode;
use crate::names::directory::put_inode;
use crate::usage::monitor::replaces;
use crate::{AtimePolicy, Error, FILE_BYTES_MAX, FileKind, FileSystem, Ino, Result, Timestamp};

/// With `AtimePolicy::Relative` an older time of last access is renewed.
const ATIME_SECONDS_MAX: i64 = 24 * 60 * 60;

/// Bytes of a file. They return to their pool when dropped.
pub struct Bytes(Option<ReadBuf>);

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// Where written bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOrigin {
    /// The kernel's page cache writes back: it has stamped the times and dropped the privileges already.
    PageCache,
    /// A program's write(2).
    Caller {
        /// The caller may not keep set-user-id and set-group-id of what it writes to.
        drop_privileges: bool,
    },
}

/// What `fallocate` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserves space.
    Reserve {
        /// Does not enlarge the file.
        keep_size: bool,
    },
    /// Makes a hole.
    PunchHole,
    /// Makes zeros and keeps the space.
    ZeroRange {
        /// Does not enlarge the file.
        keep_size: bool,
    },
}

/// What `lseek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// SEEK_DATA.
    Data,
    /// SEEK_HOLE; the end of the file counts as one.
    Hole,
}

impl FileSystem {
    /// Reads up to `len` bytes at `at`; less at the end of the file. Who looks and does not use the file reads so: it is
    /// noted nowhere but in the time of last access.
    pub fn read(&self, ino: Ino, at: u64, len: usize, update_atime: bool) -> Result<Bytes> {
        let inode = self.inode(ino)?;
        if update_atime {
            self.touch_atime(&inode);
        }
        self.read_inode(&inode, at, len)
    }

    pub(crate) fn read_inode(&self, inode: &Inode, at: u64, len: usize) -> Result<Bytes> {
        with_map(inode, |map, size| {
            let len = size.saturating_sub(at).min(len as u64);
            // Fits: it is not larger than `len`.
            let len = len as usize;
            if len == 0 {
                return Ok(Bytes(None));
            }
            Ok(Bytes(Some(self.store.read(map, at, len)?)))
        })
    }

    /// Writes all of `data` at `at`. Returns by how many blocks the file's count changed.
    pub fn write(&self, ino: Ino, at: u64, data: &[u8], origin: WriteOrigin) -> Result<i64> {
        self.check_writable()?;
        let end = end_of_range(at, data.len() as u64)?;
        let inode = self.inode(ino)?;
        let now = self.clock.now();
        with_map(&inode, |map, _| {
            let mut blocks_added = 0;
            self.store.write(map, at, data, |mapped, change| {
                blocks_added = mapped;
                self.commit_content(&inode, change, mapped, |record| {
                    let is_rewrite = replaces(record.size, at..end, mapped);
                    self.note_written(record, is_rewrite);
                    record.size = record.size.max(end);
                    written(record, origin, now);
                })
            })?;
            Ok(blocks_added)
        })
    }

    /// Reserves, punches or zeroes a range.
    pub fn fallocate(&self, ino: Ino, at: u64, len: u64, mode: AllocateMode, drop_privileges: bool) -> Result<()> {
        self.check_writable()?;
        if len == 0 {
            return Err(Error::Invalid("the range is empty"));
        }
        let end = end_of_range(at, len)?;
        let inode = self.inode(ino)?;
        let now = self.clock.now();
        let (_, size) = map_and_size(&inode)?;
        let is_rewrite = !matches!(mode, AllocateMode::Reserve { .. }) && replaces(size, at..end, 0);
        let edit = |record: &mut InodeRecord| {
            self.note_written(record, is_rewrite);
            if let AllocateMode::Reserve { keep_size: false } | AllocateMode::ZeroRange { keep_size: false } = mode {
                record.size = record.size.max(end);
            }
            written(record, WriteOrigin::Caller { drop_privileges }, now);
        };
        match mode {
            AllocateMode::Reserve { .. } => self.reserve(&inode, at, len, edit),
            AllocateMode::PunchHole => self.zero(&inode, at, len, false, edit),
            AllocateMode::ZeroRange { .. } => {
                // First, so that nothing is zeroed if there is no space.
                self.reserve(&inode, at, len, |_| {})?;
                self.zero(&inode, at, len, true, edit)
            }
        }
    }

    fn reserve(&self, inode: &Inode, at: u64, len: u64, edit: impl Fn(&mut InodeRecord)) -> Result<()> {
        with_map(inode, |map, _| {
            let parts = self.store.parts(map, at..at + len, true)?;
            if parts.len() > 1 {
                self.store.check_room(map, at..at + len)?;
            }
            for Range { start, end } in parts {
                let with = |mapped, change: &mut Change| self.commit_content(inode, change, mapped, &edit);
                self.store.reserve(map, start, end - start, with)?;
            }
            Ok(())
        })
    }

    fn zero(&self, inode: &Inode, at: u64, len: u64, reserve: bool, edit: impl Fn(&mut InodeRecord)) -> Result<()> {
        with_map(inode, |map, _| {
            for Range { start, end } in self.store.parts(map, at..at + len, reserve)? {
                let with = |mapped, change: &mut Change| self.commit_content(inode, change, mapped, &edit);
                self.store.zero(map, start, end - start, reserve, with)?;
            }
            Ok(())
        })
    }

    /// Lays a regular file out again, from where the options say, and gives what became of it; see [`Store::relayout`].
    /// No time of the file changes.
    ///
    /// [`Store::relayout`]: oncefs_engine::Store::relayout
    pub fn defrag(&self, ino: Ino, options: &DefragOptions) -> Result<DefragOutcome> {
        if !options.dry_run {
            self.check_writable()?;
        }
        let inode = self.inode(ino)?;
        with_map(&inode, |map, _| Ok(self.store.defrag(map, options)?))
    }

    /// The first data or hole at or after `from`.
    pub fn lseek(&self, ino: Ino, from: u64, whence: Whence) -> Result<u64> {
        let inode = self.inode(ino)?;
        with_map(&inode, |map, size| {
            if from >= size {
                return Err(Error::NoSuchOffset);
            }
            match whence {
                Whence::Data => self.store.seek_data(map, from, size)?.ok_or(Error::NoSuchOffset),
                Whence::Hole => Ok(self.store.seek_hole(map, from, size)?.min(size)),
            }
        })
    }

    /// Sets the size of a regular file; `edit` changes other fields in the same commit group.
    pub(crate) fn truncate(&self, inode: &Arc<Inode>, size: u64, edit: impl Fn(&mut InodeRecord)) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(Error::FileTooLarge);
        }
        with_map(inode, |map, _| {
            if self.resize_record(inode, size, &edit)? {
                return Ok(());
            }
            if size > 0 {
                return self.cut(inode, map, size, &edit);
            }
            let fresh = self.store.new_map();
            Ok(self.store.detach(map, |change| {
                self.edit_inode(inode, change, |record| {
                    if record.size > 0 {
                        self.note_written(record, true);
                    }
                    (record.map, record.size, record.blocks) = (fresh, 0, 0);
                    edit(record);
                })
            })?)
        })
    }

    /// Drops what lies behind `size`: from the end, so that a crash between two parts leaves a file that is cut too,
    /// and not as far.
    fn cut(&self, inode: &Inode, map: MapId, size: u64, edit: impl Fn(&mut InodeRecord)) -> Result<()> {
        let mut parts = self.store.parts(map, size..FILE_BYTES_MAX, false)?;
        let first = parts.remove(0);
        for Range { start, end } in parts.into_iter().rev() {
            self.store.zero(map, start, end - start, false, |mapped, change| {
                self.commit_content(inode, change, mapped, |record| record.size = record.size.min(start))
            })?;
        }
        let with = |mapped, change: &mut Change| {
            self.commit_content(inode, change, mapped, |record| {
                self.note_written(record, false);
                record.size = size;
                edit(record);
            })
        };
        // What lies behind the first part is empty and yet listed: only its own range fits into one group.
        match first.end {
            FILE_BYTES_MAX => Ok(self.store.truncate(map, size, with)?),
            end => Ok(self.store.zero(map, size, end - size, false, with)?),
        }
    }

    /// Sets the size where that leaves the map as it is: growing, or emptying what is empty. False: it does not.
    fn resize_record(&self, inode: &Inode, size: u64, edit: impl Fn(&mut InodeRecord)) -> Result<bool> {
        let mut record = inode.lock();
        let empty = (size, record.size, record.blocks) == (0, 0, 0);
        if size <= record.size && !empty {
            return Ok(false);
        }
        let mut edited = record.clone();
        if !empty {
            self.note_written(&mut edited, false);
        }
        edited.size = size;
        edit(&mut edited);
        let mut change = Change::new();
        self.put_used(&mut change, inode.ino, &record, &edited);
        self.store.publish(change)?;
        *record = edited;
        Ok(true)
    }

    /// Locks the inode, edits its record and adds it to the change: what closures under a map's lock do.
    fn edit_inode<'a>(&self, inode: &'a Inode, change: &mut Change, edit: impl FnOnce(&mut InodeRecord)) -> Edited<'a> {
        let current = inode.lock();
        let mut edited = current.clone();
        edit(&mut edited);
        self.put_used(change, inode.ino, &current, &edited);
        Edited { current, edited }
    }

    /// As `edit_inode`, where the map grew by `mapped` blocks.
    pub(crate) fn commit_content<'a>(
        &self,
        inode: &'a Inode,
        change: &mut Change,
        mapped: i64,
        edit: impl FnOnce(&mut InodeRecord),
    ) -> Edited<'a> {
        self.edit_inode(inode, change, |record| {
            record.blocks = record.blocks.saturating_add_signed(mapped);
            edit(record);
        })
    }

    /// Adds the record of an inode to a change, and what follows from a use of the file that is another than before.
    fn put_used(&self, change: &mut Change, ino: Ino, before: &InodeRecord, after: &InodeRecord) {
        put_inode(change, ino, after);
        self.follow_use(change, ino, before, after);
    }

    /// Notes a read. What cannot be noted (a failed volume) does not make the read fail.
    pub(crate) fn touch_atime(&self, inode: &Inode) {
        let policy = self.atime_policy();
        if policy == AtimePolicy::Never {
            return;
        }
        let now = self.clock.now();
        let mut record = inode.lock();
        let due = match policy {
            AtimePolicy::Relative => {
                record.atime <= record.mtime.max(record.ctime)
                    || now.seconds.saturating_sub(record.atime.seconds) >= ATIME_SECONDS_MAX
            }
            _ => true,
        };
        if !due || record.atime == now {
            return;
        }
        let mut change = Change::new();
        let mut touched = InodeRecord { atime: now, ..record.clone() };
        self.publish_along(inode.ino, &mut touched);
        self.put_used(&mut change, inode.ino, &record, &touched);
        match self.store.publish(change) {
            Ok(()) => *record = touched,
            Err(error) => log::debug!("time of last access of inode {} not noted: {error}", inode.ino.0),
        }
    }
}

/// A locked inode and what a change on its way makes of it: taken over when that is published, else forgotten.
pub(crate) struct Edited<'a> {
    current: MutexGuard<'a, InodeRecord>,
    edited: InodeRecord,
}

impl OnPublish for Edited<'_> {
    fn published(mut self) {
        *self.current = self.edited;
    }
}

/// What writing does to an inode besides its size.
pub(crate) fn written(record: &mut InodeRecord, origin: WriteOrigin, now: Timestamp) {
    if let WriteOrigin::Caller { drop_privileges } = origin {
        (record.mtime, record.ctime) = (now, now);
        if drop_privileges {
            self::drop_privileges(record);
        }
    }
}

/// Clears set-user-id, and set-group-id where it is not the mark of mandatory locking.
pub(crate) fn drop_privileges(record: &mut InodeRecord) {
    record.permissions &= !libc::S_ISUID;
    if record.permissions & libc::S_IXGRP != 0 {
        record.permissions &= !libc::S_ISGID;
    }
}

/// Map and size of a regular file.
pub(crate) fn map_and_size(inode: &Inode) -> Result<(MapId, u64)> {
    let record = inode.lock();
    match record.kind {
        FileKind::Regular => Ok((record.map, record.size)),
        FileKind::Directory => Err(Error::IsADirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}

/// Calls `operation` with map and size of a regular file, again if the map was detached in between.
pub(crate) fn with_map<T>(inode: &Inode, mut operation: impl FnMut(MapId, u64) -> Result<T>) -> Result<T> {
    loop {
        let (map, size) = map_and_size(inode)?;
        match operation(map, size) {
            // A deleted file keeps its detached map: that is no reason to try again.
            Err(Error::Stale) if map_and_size(inode)?.0 != map => {}
            result => return result,
        }
    }
}

/// End of a range that may be written.
fn end_of_range(at: u64, len: u64) -> Result<u64> {
    at.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Error::FileTooLarge)
}
