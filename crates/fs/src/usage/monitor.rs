//! The I/O monitor: how files are used, as far as the kernel shows it (the paper Selective, sections 4.1 and 4.2.1).
//!
//! Owns what it has seen of reads until that is published, and what a change of content leaves in a file's usage. Leaves
//! ranks to `ranking`, and the arithmetic of usage to `dedup`.
//!
//! A change of content is part of the inode record that is published with it anyway. Reads publish nothing by
//! themselves: the monitor notes them in memory, at most 4 MB for all files and handles, and publishes them in batches:
//! along with a time of last access, 30 seconds after the first of them, when a part of the memory is full, before files
//! are ranked, and when the file system is closed. A crash loses the reads noted since. The monitor does nothing where
//! files are not ranked, and on a read-only mount.
//!
//! Lock order: the locks of this room are the innermost.

use std::ops::Range;
use std::sync::Arc;

use oncefs_engine::{BLOCK_BYTES, Change, Reads, Usage};

use crate::content::map::map_and_size;
use crate::content::read::Bytes;
use crate::format::inode::InodeRecord;
use crate::inodes::cache::Inode;
use crate::inodes::staged::Staged;
use crate::usage::noted::{self, Filled, NotedReads};
use crate::usage::positions::Handle;
use crate::usage::publisher::Due;
use crate::{FileKind, FileSystem, Ino, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Inodes locked at a time, to be published together.
const BATCH_INODES: usize = 64;

impl FileSystem {
    /// A handle for a file that is being created. Creating is an access already, so this notes none.
    pub fn new_handle(&self) -> Handle {
        self.monitor.positions.new_handle()
    }

    /// Notes that a program opens a regular file, and returns a handle for it. Opening counts as an access, because
    /// later reads may be served by the kernel's cache and never get here.
    pub fn opened(&self, ino: Ino) -> Handle {
        self.note(ino, Reads::default());
        self.new_handle()
    }

    /// Reads up to `len` bytes at byte `at`, as [`FileSystem::read`] does, and notes the read for `handle`.
    ///
    /// # Errors
    ///
    /// As [`FileSystem::read`].
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

    /// The usage of a regular file, including reads not published yet.
    ///
    /// # Errors
    ///
    /// - `Stale`: the inode does not exist.
    /// - `IsADirectory`, `Invalid`: the inode is not a regular file.
    /// - `Engine`: the record cannot be read or is damaged.
    pub fn usage(&self, ino: Ino) -> Result<Usage> {
        let inode = self.inode(ino)?;
        map_and_size(&inode)?;
        let now = self.rank_clock();
        let mut usage = inode.lock().usage;
        self.add_noted(ino, &mut usage);
        usage.clamp(now);
        Ok(usage)
    }

    /// Publishes the noted reads of all files. Reads noted meanwhile may stay noted. After an error the reads not yet
    /// published are lost; they only guide ranking.
    ///
    /// # Errors
    ///
    /// - `NoSpace`: the host's file system is full.
    /// - `ReadOnly`: an earlier failure made the volume read-only.
    /// - `Engine`: the store failed.
    pub fn publish_reads(&self) -> Result<()> {
        self.monitor.publisher.begins();
        self.monitor.noted.take_parts().try_for_each(|files| self.publish_noted(files))
    }

    /// Starts the thread that publishes noted reads.
    pub(crate) fn start_monitor(self: &Arc<Self>) -> Result<()> {
        let file_system = Arc::downgrade(self);
        let publish = move || file_system.upgrade().map(|file_system| file_system.publish_reads());
        self.monitor.publisher.start(Box::new(publish))
    }

    /// Ends that thread and publishes the reads that are left.
    pub(crate) fn end_monitor(&self) {
        self.monitor.publisher.end();
        if let Err(error) = self.publish_reads() {
            log::debug!("cannot publish how files were read: {error}");
        }
    }

    /// Whether the monitor is on.
    pub(crate) fn is_monitored(&self) -> bool {
        !self.read_only && self.store.ranks_files()
    }

    /// The usage of a new file.
    pub(crate) fn usage_of_new(&self) -> Usage {
        if self.is_monitored() { Usage::created(self.rank_clock()) } else { Usage::default() }
    }

    /// Records a change of content in the inode record that is published with it.
    pub(crate) fn note_written(&self, record: &mut InodeRecord, is_rewrite: bool) {
        if self.is_monitored() {
            record.usage.written(self.rank_clock(), is_rewrite);
        }
    }

    /// Notes that a file is copied. `bytes` of it were read in sequence; the rest was shared without a read.
    pub(crate) fn note_copied(&self, ino: Ino, bytes: u64) {
        let blocks = u32::try_from(bytes.div_ceil(BLOCK)).unwrap_or(u32::MAX);
        self.note(ino, Reads { sequential: blocks, random: 0 });
    }

    /// Adds the noted reads of a file to a copy of its usage. They stay noted.
    pub(crate) fn add_noted(&self, ino: Ino, usage: &mut Usage) {
        if let Some(noted) = self.monitor.noted.get(ino) {
            noted.add_to(usage, self.rank_clock());
        }
    }

    /// Moves the noted reads of a file into its record, which is about to be published.
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
            // The thread cannot keep up: the reader publishes, which slows it down.
            Filled::Full(files) => {
                if let Err(error) = self.publish_noted(files) {
                    log::debug!("cannot publish how files were read: {error}");
                }
            }
        }
    }

    fn publish_noted(&self, files: noted::Files) -> Result<()> {
        let mut files: Vec<(Ino, NotedReads)> = files.into_iter().collect();
        files.sort_unstable_by_key(|(ino, _)| *ino);
        files.chunks(BATCH_INODES).try_for_each(|batch| self.publish_batch(batch))
    }

    /// Publishes the reads of some files. Leaves out deleted files and files with damaged inodes.
    fn publish_batch(&self, files: &[(Ino, NotedReads)]) -> Result<()> {
        assert!(files.len() <= BATCH_INODES, "{} inodes in a batch of {BATCH_INODES}", files.len());
        let inode = |(ino, noted): &(Ino, NotedReads)| Some((self.inode(*ino).ok()?, *noted));
        let (inodes, noted): (Vec<Arc<Inode>>, Vec<NotedReads>) = files.iter().filter_map(inode).unzip();
        let mut staged = Staged::lock(&inodes);
        let mut change = Change::new();
        let now = self.rank_clock();
        let mut is_anything_new = false;
        for (inode, noted) in inodes.iter().zip(&noted) {
            let record = staged.get(inode.ino);
            let mut used = record.clone();
            // A file without a name may be deleted at any moment, and publishing its inode would bring it back.
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

/// The number of the first block that a range of bytes touches, and how many blocks it touches.
fn blocks_of(bytes: Range<u64>) -> (u64, u32) {
    debug_assert!(bytes.start < bytes.end, "the range from {} to {} is empty", bytes.start, bytes.end);
    let first = bytes.start / BLOCK;
    (first, u32::try_from(bytes.end.div_ceil(BLOCK) - first).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_counted_in_blocks_begun() {
        assert_eq!((blocks_of(0..1), blocks_of(0..4096), blocks_of(4095..4097)), ((0, 1), (0, 1), (0, 2)));
        assert_eq!(blocks_of(3 << 20..4 << 20), (768, 256));
    }
}
