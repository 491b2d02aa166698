//! Publishes how files were read, which the monitor notes in memory.
//!
//! Noted reads are published along with a time of last access, 30 seconds after the first of them, when a part of the
//! memory is full, before files are ranked, and when the file system is closed. A crash loses the reads noted since.

use std::sync::Arc;

use oncefs_engine::{BLOCK_BYTES, Change, Moment, Reads, Usage};

use crate::inodes::cache::Inode;
use crate::inodes::staged::Staged;
use crate::usage::note_reads_and_writes::{Files, Handle, NotedReads};
use crate::{FileKind, FileSystem, Ino, Result};

/// Inodes locked at a time, to be published together.
const BATCH_INODES: usize = 64;

impl FileSystem {
    /// A handle for a file that is being created. Creating is an access already, so this notes none.
    pub fn new_handle(&self) -> Handle {
        self.monitor.new_handle()
    }

    /// Notes that a program opens a regular file, and returns a handle for it. Opening counts as an access, because
    /// later reads may be served by the kernel's cache and never get here.
    pub fn opened(&self, ino: Ino) -> Handle {
        self.note(ino, Reads::default());
        self.new_handle()
    }

    /// Notes that a file is copied. `bytes` of it were read in sequence; the rest was shared without a read.
    pub(crate) fn note_copied(&self, ino: Ino, bytes: u64) {
        let blocks = u32::try_from(bytes.div_ceil(BLOCK_BYTES as u64)).unwrap_or(u32::MAX);
        self.note(ino, Reads { sequential: blocks, random: 0 });
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
        inode.map_and_size()?;
        let now = self.rank_clock();
        let mut usage = inode.lock().usage;
        self.monitor.add_noted(ino, &mut usage);
        usage.clamp(now);
        Ok(usage)
    }

    /// The present moment of the clock of ranks: seconds since 1970 plus the setting `rank_clock_offset`. Clamped to the
    /// range of [`Moment`], which ends in 2106.
    pub fn rank_clock(&self) -> Moment {
        self.monitor.now()
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
        self.monitor.take_noted().try_for_each(|files| self.publish_noted(files))
    }

    /// Starts the thread that publishes noted reads.
    pub(crate) fn start_monitor(self: &Arc<Self>) -> Result<()> {
        let file_system = Arc::downgrade(self);
        let publish = move || file_system.upgrade().map(|file_system| file_system.publish_reads());
        self.monitor.start_publishing(Box::new(publish))
    }

    /// Ends that thread and publishes the reads that are left.
    pub(crate) fn end_monitor(&self) {
        self.monitor.end_publishing();
        if let Err(error) = self.publish_reads() {
            log::debug!("cannot publish how files were read: {error}");
        }
    }

    fn note(&self, ino: Ino, reads: Reads) {
        if let Some(full) = self.monitor.note(ino, reads) {
            self.publish_full(full);
        }
    }

    /// Publishes noted reads that memory has no room for. A failure is logged and does not fail the read.
    pub(crate) fn publish_full(&self, files: Files) {
        if let Err(error) = self.publish_noted(files) {
            log::debug!("cannot publish how files were read: {error}");
        }
    }

    fn publish_noted(&self, files: Files) -> Result<()> {
        let mut files: Vec<(Ino, NotedReads)> = files.into_iter().collect();
        files.sort_unstable_by_key(|(ino, _)| *ino);
        files.chunks(BATCH_INODES).try_for_each(|batch| self.publish_batch(batch))
    }

    /// Publishes the reads of some files. Leaves out deleted files and files with damaged inodes.
    fn publish_batch(&self, files: &[(Ino, NotedReads)]) -> Result<()> {
        assert!(files.len() <= BATCH_INODES, "{} inodes in a batch of {BATCH_INODES}", files.len());
        let _room = self.store.room_for_records();
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
                if !used.is_ranked_as(record) {
                    self.follow_use(&mut change, inode.ino, record, &used);
                }
                staged.edit(inode.ino).usage = used.usage;
                is_anything_new = true;
            }
        }
        if is_anything_new { staged.publish(&self.store, change) } else { Ok(()) }
    }
}
