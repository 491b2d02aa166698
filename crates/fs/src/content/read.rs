//! Reading and seeking, and the time of last access.

use std::ops::{Deref, Range};

use oncefs_engine::{BLOCK_BYTES, Change, Lbn, ReadBuf, holds_blocks};

use crate::format::inode::InodeRecord;
use crate::inodes::cache::Inode;
use crate::usage::note_reads_and_writes::Handle;
use crate::{AtimePolicy, Error, FileFlags, FileSystem, Ino, Result};

/// With `AtimePolicy::Relative` a read renews a time of last access that is this old.
const ATIME_SECONDS_MAX: i64 = 24 * 60 * 60;

/// Bytes read from a file. Dropping them returns their buffer to its pool.
pub struct Bytes(Option<ReadBuf>);

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// The target of `lseek`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// Data (SEEK_DATA).
    Data,
    /// A hole (SEEK_HOLE). The end of the file counts as one.
    Hole,
}

impl FileSystem {
    /// Reads up to `len` bytes at byte `at`; fewer at the end of the file, none after it. For readers that inspect a file
    /// rather than use it: the read does not count for ranking. With `update_atime` it sets the time of last access.
    ///
    /// # Errors
    ///
    /// - `Stale`: the inode does not exist.
    /// - `IsADirectory`, `Invalid`: the inode is not a regular file.
    /// - `Engine`: a block cannot be read, or is damaged and no replica is left.
    pub fn read(&self, ino: Ino, at: u64, len: usize, update_atime: bool) -> Result<Bytes> {
        let inode = self.inode(ino)?;
        if update_atime {
            self.touch_atime(&inode);
        }
        self.read_inode(&inode, at, len)
    }

    /// Reads up to `len` bytes at byte `at`, as [`FileSystem::read`] does, and notes the read for `handle`.
    ///
    /// # Errors
    ///
    /// As [`FileSystem::read`].
    pub fn read_by(&self, handle: Handle, ino: Ino, at: u64, len: usize, update_atime: bool) -> Result<Bytes> {
        let inode = self.inode(ino)?;
        let bytes = self.read_inode(&inode, at, len)?;
        self.note_read(handle, &inode, at..at + bytes.len() as u64, update_atime);
        Ok(bytes)
    }

    /// Reads up to `room.len()` bytes into `room`, as [`FileSystem::read_by`] does, and returns their number. Whole
    /// blocks of an aligned `room` are read without a copy.
    ///
    /// # Errors
    ///
    /// As [`FileSystem::read`].
    pub fn read_into(&self, handle: Handle, ino: Ino, at: u64, room: &mut [u8], update_atime: bool) -> Result<usize> {
        let inode = self.inode(ino)?;
        let len = self.read_inode_into(&inode, at, room)?;
        self.note_read(handle, &inode, at..at + len as u64, update_atime);
        Ok(len)
    }

    /// Notes a read through a handle that may also write the file. Only these reads decide whether sharing treats the
    /// file as read in sequence, so a user who may only read a file cannot change how it is split into pieces.
    pub fn note_read_of_writer(&self, ino: Ino, at: u64, len: u64) {
        // A file deleted meanwhile needs no note.
        let _ = self.inode(ino).and_then(|inode| {
            inode.with_map(|map, _| {
                self.store.note_read(map, at, len);
                Ok(())
            })
        });
    }

    fn note_read(&self, handle: Handle, inode: &Inode, read: Range<u64>, update_atime: bool) {
        if let Some(full) = self.monitor.note_read(handle, inode.ino, read) {
            self.publish_full(full);
        }
        if update_atime {
            self.touch_atime(inode);
        }
    }

    fn read_inode_into(&self, inode: &Inode, at: u64, room: &mut [u8]) -> Result<usize> {
        if !at.is_multiple_of(BLOCK_BYTES as u64) || !holds_blocks(room) {
            let bytes = self.read_inode(inode, at, room.len())?;
            room[..bytes.len()].copy_from_slice(&bytes);
            return Ok(bytes.len());
        }
        inode.with_map(|map, size| {
            let len = size.saturating_sub(at).min(room.len() as u64);
            // Fits: it is not larger than the room.
            let len = len as usize;
            if len > 0 {
                let blocks = &mut room[..len.next_multiple_of(BLOCK_BYTES)];
                self.store.read_blocks(map, Lbn(at / BLOCK_BYTES as u64), blocks)?;
            }
            Ok(len)
        })
    }

    pub(crate) fn read_inode(&self, inode: &Inode, at: u64, len: usize) -> Result<Bytes> {
        inode.with_map(|map, size| {
            let len = size.saturating_sub(at).min(len as u64);
            // Fits: it is not larger than the `len` of the caller.
            let len = len as usize;
            if len == 0 {
                return Ok(Bytes(None));
            }
            let bytes = self.store.read(map, at, len)?;
            debug_assert_eq!(bytes.len(), len, "inode {}: a read at {at} is short", inode.ino.0);
            Ok(Bytes(Some(bytes)))
        })
    }

    /// The offset in bytes of the first data or hole at or after byte `from`. The result is below the size of the file for
    /// data, and at most the size for a hole.
    ///
    /// # Errors
    ///
    /// - `NoSuchOffset`: `from` is at or after the end of the file, or no data follows it.
    /// - `Stale`: the inode does not exist.
    /// - `IsADirectory`, `Invalid`: the inode is not a regular file.
    /// - `Engine`: the map cannot be read or is damaged.
    pub fn lseek(&self, ino: Ino, from: u64, whence: Whence) -> Result<u64> {
        let inode = self.inode(ino)?;
        inode.with_map(|map, size| {
            if from >= size {
                return Err(Error::NoSuchOffset);
            }
            match whence {
                Whence::Data => {
                    let data = self.store.seek_data(map, from, size)?.ok_or(Error::NoSuchOffset)?;
                    debug_assert!((from..size).contains(&data), "data at {data}, outside {from} to {size}");
                    Ok(data)
                }
                Whence::Hole => {
                    let hole = self.store.seek_hole(map, from, size)?.min(size);
                    debug_assert!(hole >= from, "a hole at {hole}, before {from}");
                    Ok(hole)
                }
            }
        })
    }

    /// Sets the time of last access according to the policy. A failure is logged and does not fail the read.
    pub(crate) fn touch_atime(&self, inode: &Inode) {
        let policy = self.atime_policy();
        if policy == AtimePolicy::Never {
            return;
        }
        let now = self.clock.now();
        let is_due = |record: &InodeRecord| {
            let keeps = [FileFlags::NO_ATIME, FileFlags::IMMUTABLE, FileFlags::SNAPSHOT];
            let may_change = !keeps.iter().any(|flag| record.flags.contains(*flag));
            let is_old = record.atime <= record.mtime.max(record.ctime)
                || now.seconds.saturating_sub(record.atime.seconds) >= ATIME_SECONDS_MAX;
            may_change && record.atime != now && (is_old || policy != AtimePolicy::Relative)
        };
        if !is_due(&inode.lock()) {
            return;
        }
        let _room = self.store.room_for_records();
        let mut record = inode.lock();
        if !is_due(&record) {
            return;
        }
        let mut change = Change::new();
        let mut touched = InodeRecord { atime: now, ..record.clone() };
        self.monitor.publish_along(inode.ino, &mut touched.usage);
        self.put_inode_requeued(&mut change, inode.ino, &record, &touched);
        match self.store.publish(change) {
            Ok(()) => *record = touched,
            Err(error) => log::debug!("cannot set the time of last access of inode {}: {error}", inode.ino.0),
        }
    }
}
