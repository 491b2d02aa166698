//! Writing to a file.
//!
//! Owns size, block count and times, which are published with the blocks in one commit group. Leaves the blocks to the
//! store.

use crate::content::edit::{WriteOrigin, assert_growth_fits, written};
use crate::content::map::with_map;
use crate::usage::rewrite::replaces;
use crate::{Error, FILE_BYTES_MAX, FileSystem, Ino, Result};

impl FileSystem {
    /// Writes all of `data` at byte `at`, enlarging the file if needed. Returns by how many blocks of 4 KiB the file's
    /// block count changed. The bytes are visible on return, and durable after [`FileSystem::fsync`].
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `FileTooLarge`: the range ends after [`FILE_BYTES_MAX`].
    /// - `Stale`: the inode does not exist.
    /// - `IsADirectory`, `Invalid`: the inode is not a regular file.
    /// - `NoSpace`: the data area or the host's file system is full; see [`FileSystem::make_room`].
    /// - `Engine`: a device failed, or metadata is damaged.
    pub fn write(&self, ino: Ino, at: u64, data: &[u8], origin: WriteOrigin) -> Result<i64> {
        self.check_writable()?;
        let end = end_of_range(at, data.len() as u64)?;
        let inode = self.inode(ino)?;
        let now = self.clock.now();
        with_map(&inode, |map, _| {
            let mut blocks_added = 0;
            self.store.write(map, at, data, |mapped, change| {
                assert_growth_fits(at, end, mapped);
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
}

/// The end of a range of bytes, if a file may reach that far.
pub(super) fn end_of_range(at: u64, len: u64) -> Result<u64> {
    at.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Error::FileTooLarge)
}
