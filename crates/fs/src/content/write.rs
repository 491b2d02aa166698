//! Writing.
//!
//! Blocks are the store's. Here is what goes with them in one commit group: size, block count, times. So a function
//! hands the store a closure that locks the inode under the map's lock. A map that was detached in between
//! (truncate to zero) is looked up again.

use crate::content::edit::{WriteOrigin, written};
use crate::content::map::with_map;
use crate::usage::rewrite::replaces;
use crate::{Error, FILE_BYTES_MAX, FileSystem, Ino, Result};

impl FileSystem {
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
}

/// End of a range that may be written.
pub(super) fn end_of_range(at: u64, len: u64) -> Result<u64> {
    at.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Error::FileTooLarge)
}
