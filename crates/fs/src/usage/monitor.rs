//! The I/O monitor: how files are used, as far as the kernel shows it (the paper Selective, sections 4.1 and 4.2.1).
//!
//! Owns what is seen of reads until it is published, and what a change of content leaves in a file's usage. Leaves what
//! follows from usage to those who rank, and the numbers themselves to `dedup`.
//!
//! A change of content is part of the inode record that it publishes anyway. Reads publish nothing: they are noted in
//! memory, 4 MB at most for all files and handles together, and published in batches: with a time of last access that
//! is set anyway, 30 seconds after the first of them, when a part of the memory is full, before files are ranked, and
//! when the file system is closed. A crash forgets those that were noted since. Where files are not ranked, and on what
//! was opened for reading, nothing of all this is done.
//!
//! Lock order: the locks of this module are the innermost.

use std::ops::Range;
use std::sync::Arc;

use oncefs_engine::{BLOCK_BYTES, Change, Reads, Usage};

use crate::content::data::{Bytes, map_and_size};
use crate::format::inode::InodeRecord;
use crate::inodes::cache::Inode;
use crate::inodes::staged::Staged;
use crate::{FileKind, FileSystem, Ino, Result};

use crate::usage::noted::{self, Filled, Noted, NotedReads};
use crate::usage::positions::{self, Positions};
use crate::usage::publisher::{Due, Publisher};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bound on everything here.
const BYTES_MAX: usize = 4 << 20;
const _: () = assert!(noted::BYTES_MAX + positions::BYTES_MAX <= BYTES_MAX);

/// Inodes locked at a time, to be published together.
const BATCH_INODES: usize = 64;

/// A file as one program has it open. Reads that follow each other are told from others by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

pub(crate) struct Monitor {
    noted: Noted,
    positions: Positions,
    publisher: Publisher,
}

impl Monitor {
    pub fn new() -> Self {
        Self { noted: Noted::new(), positions: Positions::default(), publisher: Publisher::default() }
    }
}

impl FileSystem {
    /// A handle for a file that is being made.
    pub fn new_handle(&self) -> Handle {
        self.monitor.positions.new_handle()
    }

    /// A program opens a regular file. That is an access: what it reads may lie in the kernel's cache, and is then not
    /// seen.
    pub fn opened(&self, ino: Ino) -> Handle {
        self.note(ino, Reads::default());
        self.new_handle()
    }

    /// As [`FileSystem::read`], for a program that has the file open: it is noted how it reads.
    pub fn read_by(&self, handle: Handle, ino: Ino, at: u64, len: usize, update_atime: bool) -> Result<Bytes> {
        let inode = self.inode(ino)?;
        let bytes = self.read_inode(&inode, at, len)?;
        if self.is_monitored() && !bytes.is_empty() {
            let (first, blocks) = blocks_of(at..at + bytes.len() as u64);
            self.note(ino, self.monitor.positions.read(handle, first, blocks));
        }
        if update_atime {
            self.touch_atime(&inode);
        }
        Ok(bytes)
    }

    /// How a regular file is used, with everything that is noted.
    pub fn usage(&self, ino: Ino) -> Result<Usage> {
        let inode = self.inode(ino)?;
        map_and_size(&inode)?;
        let now = self.rank_clock();
        let mut usage = inode.lock().usage;
        self.add_noted(ino, &mut usage);
        usage.clamp(now);
        Ok(usage)
    }

    /// Publishes what is noted of reads. What is noted meanwhile may stay. After an error what was not published is
    /// forgotten: it is advice.
    pub fn publish_reads(&self) -> Result<()> {
        self.monitor.publisher.begins();
        self.monitor.noted.take_parts().try_for_each(|files| self.publish_noted(files))
    }

    /// Starts the thread that publishes what was noted.
    pub(crate) fn start_monitor(self: &Arc<Self>) -> Result<()> {
        self.monitor.publisher.start(self)
    }

    /// Ends that thread and publishes the rest.
    pub(crate) fn end_monitor(&self) {
        self.monitor.publisher.end();
        if let Err(error) = self.publish_reads() {
            log::debug!("how files were read was not noted: {error}");
        }
    }

    /// Whether it is noted how files are used.
    pub(crate) fn is_monitored(&self) -> bool {
        !self.read_only && self.store.ranks_files()
    }

    /// The usage of a file that is being made.
    pub(crate) fn usage_of_new(&self) -> Usage {
        if self.is_monitored() { Usage::created(self.rank_clock()) } else { Usage::default() }
    }

    /// The content of a file changes, in the change that publishes its record.
    pub(crate) fn note_written(&self, record: &mut InodeRecord, is_rewrite: bool) {
        if self.is_monitored() {
            record.usage.written(self.rank_clock(), is_rewrite);
        }
    }

    /// A file is copied: `bytes` of it were read for that, in sequence, and what else was copied is shared without
    /// being read.
    pub(crate) fn note_copied(&self, ino: Ino, bytes: u64) {
        let blocks = u32::try_from(bytes.div_ceil(BLOCK)).unwrap_or(u32::MAX);
        self.note(ino, Reads { sequential: blocks, random: 0 });
    }

    /// Adds what is noted of a file, and stays noted, to a copy of its usage.
    pub(crate) fn add_noted(&self, ino: Ino, usage: &mut Usage) {
        if let Some(noted) = self.monitor.noted.get(ino) {
            noted.add_to(usage, self.rank_clock());
        }
    }

    /// Adds what is noted of a file to its record, which is about to be published.
    pub(crate) fn publish_along(&self, ino: Ino, record: &mut InodeRecord) {
        if let Some(noted) = self.monitor.noted.take(ino) {
            noted.add_to(&mut record.usage, self.rank_clock());
        }
    }

    fn note(&self, ino: Ino, reads: Reads) {
        if !self.is_monitored() {
            return;
        }
        match self.monitor.noted.add(ino, self.rank_clock(), reads) {
            Filled::Little => self.monitor.publisher.ask(Due::Soon),
            Filled::Half => self.monitor.publisher.ask(Due::Now),
            // Nothing publishes as fast as files are read: whoever reads does it, and is slowed down by that.
            Filled::Full(files) => {
                if let Err(error) = self.publish_noted(files) {
                    log::debug!("how files were read was not noted: {error}");
                }
            }
        }
    }

    fn publish_noted(&self, files: noted::Files) -> Result<()> {
        let mut files: Vec<(Ino, NotedReads)> = files.into_iter().collect();
        files.sort_unstable_by_key(|(ino, _)| *ino);
        files.chunks(BATCH_INODES).try_for_each(|batch| self.publish_batch(batch))
    }

    /// Files that were deleted are left out, and damaged ones: who uses these is told.
    fn publish_batch(&self, files: &[(Ino, NotedReads)]) -> Result<()> {
        let inode = |(ino, noted): &(Ino, NotedReads)| Some((self.inode(*ino).ok()?, *noted));
        let (inodes, noted): (Vec<Arc<Inode>>, Vec<NotedReads>) = files.iter().filter_map(inode).unzip();
        let mut staged = Staged::lock(&inodes);
        let mut change = Change::new();
        let now = self.rank_clock();
        let mut is_anything_new = false;
        for (inode, noted) in inodes.iter().zip(&noted) {
            let record = staged.get(inode.ino);
            let mut used = record.clone();
            // Without a name it may be deleted at any moment, and is not to come back by this.
            let is_ranked = record.kind == FileKind::Regular && record.nlink > 0;
            if is_ranked && noted.add_to(&mut used.usage, now) {
                self.follow_use(&mut change, inode.ino, record, &used);
                staged.edit(inode.ino).usage = used.usage;
                is_anything_new = true;
            }
        }
        if is_anything_new { staged.publish(&self.store, change) } else { Ok(()) }
    }
}

/// Number of the first block of a range that is not empty, and of all.
fn blocks_of(bytes: Range<u64>) -> (u64, u32) {
    let first = bytes.start / BLOCK;
    (first, u32::try_from(bytes.end.div_ceil(BLOCK) - first).unwrap_or(u32::MAX))
}

/// Whether writing `bytes` replaced what a file of `size` bytes held, where its map grew by `mapped` blocks by that.
///
/// Not if it begins in the file's last block, unless that is full: the page cache writes whole pages, so whoever appends
/// writes the block that the file ended in again. And not if it only filled holes: of a file that is written back by
/// several threads a later part may come first. (Reserved blocks count as mapped: to fill them is to replace zeros.)
pub(crate) fn replaces(size: u64, bytes: Range<u64>, mapped: i64) -> bool {
    let blocks_behind = bytes.end.div_ceil(BLOCK).saturating_sub(size.div_ceil(BLOCK));
    bytes.start / BLOCK < size / BLOCK && mapped <= blocks_behind.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_where_the_file_ends_replaces_nothing() {
        assert!(!replaces(0, 0..10_000, 3));
        assert!(!replaces(5000, 5000..6000, 0));
        assert!(!replaces(5000, 4096..12_288, 1), "the page cache writes the last page as a whole");
        assert!(!replaces(8192, 8192..9000, 1));
        assert!(!replaces(100, 0..4096, 0), "a file within one block looks appended to");
    }

    #[test]
    fn what_is_written_over_is_replaced_also_where_the_file_grows_by_it() {
        assert!(replaces(8192, 4096..8192, 0));
        assert!(replaces(8192, 0..100, 0));
        assert!(replaces(8192, 4096..12_288, 1));
        assert!(replaces(5000, 0..12_288, 1));
        assert!(replaces(1 << 20, 0..8192, -2), "by zeros");
    }

    #[test]
    fn filling_holes_replaces_nothing() {
        assert!(!replaces(2 << 20, 0..1 << 20, 256));
        assert!(!replaces(2 << 20, 0..1 << 20, 255), "with a block of zeros among them");
        assert!(!replaces(1 << 20, 4096..8192, 1));
    }

    #[test]
    fn a_range_is_counted_in_blocks_begun() {
        assert_eq!((blocks_of(0..1), blocks_of(0..4096), blocks_of(4095..4097)), ((0, 1), (0, 1), (0, 2)));
        assert_eq!(blocks_of(3 << 20..4 << 20), (768, 256));
    }
}
