//! Reading and seeking, and the time of last access.

use std::ops::Deref;

use oncefs_engine::{Change, ReadBuf};

use crate::content::map::with_map;
use crate::format::inode::InodeRecord;
use crate::inodes::cache::Inode;
use crate::{AtimePolicy, Error, FileSystem, Ino, Result};

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
