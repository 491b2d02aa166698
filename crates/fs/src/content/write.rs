//! Writing to a file, and the inode record that changes with the content: size, block count, times and privilege bits.
//!
//! Record and blocks change in one commit group. So the store gets a closure, which locks the inode under the map's
//! lock and adds its record to the change. The store writes the blocks.

use std::ops::Range;

use oncefs_engine::sync::MutexGuard;
use oncefs_engine::{BLOCK_BYTES, Change, OnPublish};

use crate::format::inode::{InodeRecord, put_inode};
use crate::inodes::cache::Inode;
use crate::usage::note_reads_and_writes::replaces;
use crate::{Error, FILE_BYTES_MAX, FileSystem, Ino, Privileges, Result, Timestamp};

/// The origin of written bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOrigin {
    /// The kernel's page cache writes back. It has set the times and dropped the privileges already.
    PageCache,
    /// The page cache writes at once, for a program that waits (O_SYNC).
    PageCacheAwaited,
    /// A program's write(2).
    Caller {
        /// Which of set-user-id and set-group-id the write leaves.
        privileges: Privileges,
    },
}

impl FileSystem {
    /// Writes all of `data` at byte `at`, enlarging the file if needed. Returns the change of the file's block count,
    /// in blocks of 4 KiB. The bytes are visible on return, and durable after [`FileSystem::fsync`].
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `OperationNotPermitted`: the file is immutable, or append-only and the bytes change its content.
    /// - `FileTooLarge`: the range ends after [`FILE_BYTES_MAX`].
    /// - `Stale`: the inode does not exist.
    /// - `IsADirectory`, `Invalid`: the inode is not a regular file.
    /// - `NoSpace`: the data area or the host's file system is full; see [`FileSystem::make_room`].
    /// - `Engine`: a device failed, or metadata is damaged.
    pub fn write(&self, ino: Ino, at: u64, data: &[u8], origin: WriteOrigin) -> Result<i64> {
        self.check_writable()?;
        let end = end_of_range(at, data.len() as u64)?;
        let inode = self.inode(ino)?;
        self.check_written(&inode, at, data)?;
        let now = self.clock.now();
        inode.with_map(|map, _| {
            let mut blocks_added = 0;
            let with = |mapped, change: &mut Change| {
                assert_growth_fits(at, end, mapped);
                blocks_added = mapped;
                self.commit_content(&inode, change, mapped, |record| {
                    let is_rewrite = replaces(record.size, at..end, mapped);
                    self.monitor.note_written(&mut record.usage, is_rewrite);
                    record.size = record.size.max(end);
                    written(record, origin, now);
                })
            };
            match origin {
                WriteOrigin::PageCache => self.store.write(map, at, data, with)?,
                WriteOrigin::PageCacheAwaited | WriteOrigin::Caller { .. } => {
                    self.store.write_awaited(map, at, data, with)?;
                }
            }
            Ok(blocks_added)
        })
    }

    /// Locks the inode, edits its record and adds it to the change. For closures under a map's lock.
    pub(super) fn edit_inode<'a>(
        &'a self,
        inode: &'a Inode,
        change: &mut Change,
        edit: impl FnOnce(&mut InodeRecord),
    ) -> Edited<'a> {
        inode.count_content_change();
        let current = inode.lock();
        let mut edited = current.clone();
        edit(&mut edited);
        self.put_inode_requeued(change, inode.ino, &current, &edited);
        Edited { file_system: self, ino: inode.ino, current, edited }
    }

    /// As `edit_inode`, for a change that makes the map grow by `mapped` blocks (negative: shrink).
    pub(crate) fn commit_content<'a>(
        &'a self,
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

    /// Reports that a change of the content took privileges. Every cache of the mode must learn this before the reply.
    pub(super) fn tell_if_dropped(&self, ino: Ino, before: &InodeRecord, after: &InodeRecord) {
        if before.permissions != after.permissions
            && let Some(tell) = self.on_privileges_dropped.get()
        {
            tell(ino);
        }
    }

    /// Adds an inode's record to a change, with the consequences of its new usage.
    pub(super) fn put_inode_requeued(&self, change: &mut Change, ino: Ino, before: &InodeRecord, after: &InodeRecord) {
        put_inode(change, ino, after);
        if !after.is_ranked_as(before) {
            self.follow_use(change, ino, before, after);
        }
    }
}

/// A locked inode and its edited record, which takes effect when the change is published and is dropped otherwise.
pub(crate) struct Edited<'a> {
    file_system: &'a FileSystem,
    ino: Ino,
    current: MutexGuard<'a, InodeRecord>,
    edited: InodeRecord,
}

impl OnPublish for Edited<'_> {
    fn published(self) {
        let Edited { file_system, ino, mut current, edited } = self;
        debug_assert_eq!(current.kind, edited.kind, "an edit changed the kind of inode {}", ino.0);
        let before = std::mem::replace(&mut *current, edited);
        file_system.tell_if_dropped(ino, &before, &current);
    }
}

/// Sets the times and drops the privilege bits, as a write requires.
pub(crate) fn written(record: &mut InodeRecord, origin: WriteOrigin, now: Timestamp) {
    if let WriteOrigin::Caller { privileges } = origin {
        (record.mtime, record.ctime) = (now, now);
        record.permissions = privileges.left_of(record.permissions);
    }
}

/// How many blocks a range of bytes touches.
pub(super) fn blocks_touched(start: u64, end: u64) -> u64 {
    debug_assert!(start <= end, "the range ends at {end} before it starts at {start}");
    end.div_ceil(BLOCK_BYTES as u64) - start / BLOCK_BYTES as u64
}

/// Checks that the map grew by no more blocks than the range touches, so that no block is counted twice.
pub(super) fn assert_growth_fits(start: u64, end: u64, mapped: i64) {
    let touched = blocks_touched(start, end);
    debug_assert!(
        mapped.unsigned_abs() <= touched,
        "{touched} blocks from byte {start} to {end} changed the count by {mapped}"
    );
}

/// Checks that the parts of a range follow each other from `start` to `end`.
pub(super) fn assert_covered(parts: &[Range<u64>], start: u64, end: u64) {
    let ends = parts.first().map(|part| part.start).zip(parts.last().map(|part| part.end));
    assert_eq!(ends, Some((start, end)), "{} parts of the range from {start} to {end}", parts.len());
    debug_assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "gaps from {start} to {end}: {parts:?}");
}

/// The end of a range of bytes, if a file may reach that far.
pub(super) fn end_of_range(at: u64, len: u64) -> Result<u64> {
    at.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Error::FileTooLarge)
}
