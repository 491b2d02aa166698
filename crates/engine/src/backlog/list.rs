//! The backlog: blocks that in-line deduplication left to the worker, in memory and in a file.

use oncefs_dedup::{Skipped, SkippedBuffer, Work};

use crate::backlog::file::SkippedFile;
use crate::settings::values::Settings;
use crate::sync::{LockRank, Mutex};
use crate::{Lbn, MapId};

/// Blocks left to the worker. With a bound of 0 bytes there is no backlog: nothing is noted.
pub struct Backlog {
    /// In memory.
    skipped: Mutex<SkippedBuffer>,
    /// Where they are kept across mounts; locked before `skipped`.
    file: Mutex<Option<SkippedFile>>,
}

/// The amount of waiting work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Blocks that are listed one by one.
    pub blocks: u64,
    /// Files that wait as a whole.
    pub files: u64,
    /// Whether a full pass is due.
    pub is_full_pass_due: bool,
}

impl Backlog {
    /// An empty backlog, kept in a file or not.
    pub fn new(settings: &Settings, file: Option<SkippedFile>) -> Self {
        Self {
            skipped: Mutex::new(LockRank::Part, SkippedBuffer::with_bytes_max(settings.skipped_bytes)),
            file: Mutex::new(LockRank::BacklogFile, file),
        }
    }

    /// Whether anything is noted.
    pub fn is_on(&self) -> bool {
        self.skipped.lock().bytes_max() > 0
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.skipped.lock().is_empty()
    }

    /// The waiting work.
    pub fn waiting(&self) -> Waiting {
        let skipped = self.skipped.lock();
        let (blocks, files) = (skipped.blocks(), skipped.owners());
        Waiting { blocks, files, is_full_pass_due: skipped.is_full_pass_due() }
    }

    /// Memory taken, and its bound.
    pub fn size(&self) -> (u64, u64) {
        let skipped = self.skipped.lock();
        (skipped.bytes(), skipped.bytes_max())
    }

    /// Which blocks of a map wait, listed or with their map.
    pub fn which_wait(&self, map: MapId, lbns: impl Iterator<Item = Lbn>) -> Vec<bool> {
        let skipped = self.skipped.lock();
        lbns.map(|lbn| skipped.has(map.0, lbn)).collect()
    }

    /// Notes ranges of a map: first block, number of blocks, and whether the blocks wait from now on or no longer do.
    pub fn note(&self, map: MapId, ranges: impl IntoIterator<Item = (Lbn, u64, bool)>) {
        let mut skipped = self.skipped.lock();
        if skipped.bytes_max() == 0 {
            return;
        }
        for (first, blocks, waits) in ranges {
            debug_assert!(blocks > 0, "{blocks} blocks of map {} are noted at block {}", map.0, first.0);
            match waits {
                true => skipped.add(map.0, first, blocks),
                false => skipped.remove(map.0, first, blocks),
            }
        }
    }

    /// Drops a map that was deleted.
    pub fn forget(&self, map: MapId) {
        self.skipped.lock().forget(map.0);
    }

    /// Takes out the worker's next work: at most `blocks_max` blocks of one map, or a whole map, or everything.
    pub fn take(&self, blocks_max: u64) -> Option<Work> {
        assert!(blocks_max > 0, "a batch of {blocks_max} blocks");
        let work = self.skipped.lock().take(blocks_max);
        if let Some(Work::Blocks { owner, runs }) = &work {
            let blocks: u64 = runs.iter().map(|(_, blocks)| blocks).sum();
            assert!((1..=blocks_max).contains(&blocks), "{blocks} blocks of map {owner}, at most {blocks_max} wanted");
        }
        work
    }

    /// Takes back places that the worker did not get to.
    pub fn put_back(&self, places: impl IntoIterator<Item = (MapId, Lbn)>) {
        let mut skipped = self.skipped.lock();
        places.into_iter().for_each(|(map, lbn)| skipped.add(map.0, lbn, 1));
    }

    /// Requeues a whole map, or everything.
    pub fn requeue(&self, work: Work) {
        let mut skipped = self.skipped.lock();
        if skipped.bytes_max() > 0 {
            skipped.put_back(work);
        }
    }

    /// Takes in the backlog of an earlier mount.
    pub fn restore(&self, records: impl IntoIterator<Item = Skipped>) {
        let mut skipped = self.skipped.lock();
        records.into_iter().for_each(|record| skipped.restore(record));
    }

    /// The whole backlog, in the form of the file's records.
    pub fn contents(&self) -> Vec<Skipped> {
        self.skipped.lock().contents().collect()
    }

    /// Sets the bound of the memory. True: until now nothing was noted.
    pub fn set_bytes_max(&self, bytes_max: u64) -> bool {
        let mut skipped = self.skipped.lock();
        let was_off = skipped.bytes_max() == 0 && bytes_max > 0;
        skipped.set_bytes_max(bytes_max);
        was_off
    }

    /// Writes records to the file, if it exists; `clean_at` as in [`crate::format::backlog::Checkpoint`]. Returns how
    /// many bytes were written since the mount. After a failure the file is not used any more.
    pub fn write_file(&self, clean_at: u64, records: impl FnOnce() -> Vec<Skipped>) -> Option<u64> {
        let mut file = self.file.lock();
        let open = file.as_mut()?;
        let written = open.write(clean_at, records());
        let bytes_written = open.bytes_written();
        if let Err(error) = written {
            log::warn!("cannot write the backlog ({error}): after a crash the worker looks at every block");
            *file = None;
        }
        Some(bytes_written)
    }

    /// Bytes that were written to the file.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn file_bytes_written(&self) -> Option<u64> {
        self.file.lock().as_ref().map(SkippedFile::bytes_written)
    }

    /// Asserts the invariants of the buffer.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn check(&self) {
        self.skipped.lock().check();
    }
}
