//! The hint store of an open volume: its memory level, its disk level, and the known coverage of both.
//!
//! All of it is advice. If a decision needs the block table (is a hint live, what is it worth), the caller is asked,
//! and meanwhile only the disk level is locked here.

use std::sync::atomic::Ordering::Relaxed;

use oncefs_dedup::{Hint, HintOptions, HintStore, Sample};

use crate::hints::coverage::Coverage;
use crate::hints::disk_level::{Condition, DiskHints, in_use};
use crate::settings::values::Settings;
use crate::stats::counters::Counters;
use crate::sync::{AtomicBool, LockRank, Mutex};
use crate::{Blocks, Pbn, Tag};

/// Most hints that left memory and wait to be merged: 256 KiB. More are dropped, and a scan finds them again.
const WAITING_MAX: usize = 16_384;
/// This many of them are worth waking the worker.
const WAITING_MANY: usize = WAITING_MAX / 4;
/// If more memory than this is in use, hints are not written out at unmount: the next mount reads the block table.
const WRITTEN_OUT_BYTES_MAX: u64 = 64 << 20;
/// Approximate memory of a hint: tells whether the block table's hints fit into the memory level.
const HINT_BYTES: u64 = 11;

/// Both levels.
///
/// A hint that moves from memory to disk is in memory, then in `waiting`, then on disk. While it is being merged, it
/// can only be reached through the lock of `disk`. Lock order: `disk`, `waiting`, `memory`.
pub struct Hints {
    /// Which contents hints name, the same in both levels.
    sample: Sample,
    /// The memory level.
    memory: Mutex<HintStore>,
    /// Hints that left memory and wait to be merged into the disk level.
    waiting: Mutex<Vec<Hint>>,
    /// The disk level, if it exists.
    disk: Mutex<Option<DiskHints>>,
    /// Whether a working disk level exists.
    has_disk_level: AtomicBool,
    coverage: Coverage,
}

/// Whether so many hints wait that the worker should merge them now.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreManyWaiting(pub bool);

impl Hints {
    /// An empty memory level over a disk level whose pages are not adopted yet.
    pub fn new(settings: &Settings, disk: Option<DiskHints>) -> Self {
        let sample = Sample::one_of(settings.hint_sample);
        let options = HintOptions {
            bytes_max: settings.hint_bytes,
            prefix_bits: settings.prefix_bits,
            eviction: settings.eviction,
            keep_evicted: disk.is_some(),
            sample,
        };
        Self {
            sample,
            memory: Mutex::new(LockRank::Hints, HintStore::new(options)),
            waiting: Mutex::new(LockRank::Leaf, Vec::new()),
            has_disk_level: AtomicBool::new(disk.is_some()),
            disk: Mutex::new(LockRank::DiskHints, disk),
            coverage: Coverage::new(),
        }
    }

    /// The known coverage of both levels.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Whether a content is in the sample. Other contents have no hints.
    pub fn is_sampled(&self, tag: Tag) -> bool {
        self.sample.has(tag)
    }

    /// Whether the sample leaves out some contents.
    pub fn is_sample_partial(&self) -> bool {
        self.sample != Sample::ALL
    }

    /// Whether the memory level names every live block, except for holders beyond the maximum of a content.
    pub fn memory_names_all(&self) -> bool {
        self.sample == Sample::ALL && self.coverage.is_all_in_memory()
    }

    /// Whether the memory level has room for the hints of this many used blocks.
    pub fn have_room_for(&self, used: Blocks) -> bool {
        let named = used.0 / u64::from(self.sample.number());
        named.saturating_mul(HINT_BYTES) < self.memory.lock().bytes_max()
    }

    /// Bytes of the memory level, and their bound.
    pub fn memory_size(&self) -> (u64, u64) {
        let memory = self.memory.lock();
        (memory.bytes(), memory.bytes_max())
    }

    /// For each tag, the pbns that may hold its content according to the memory level, ascending. Counts as a use.
    pub fn look_up(&self, tags: impl Iterator<Item = Option<Tag>>) -> Vec<Vec<Pbn>> {
        let mut memory = self.memory.lock();
        let look_up = |tag| {
            let mut pbns = Vec::new();
            if let Some(tag) = tag {
                memory.lookup(tag, &mut pbns);
            }
            debug_assert!(pbns.is_sorted(), "holders of {tag:?} are not ascending: {pbns:?}");
            pbns
        };
        tags.map(look_up).collect()
    }

    /// The hints of the memory level for these tags. Does not count as a use.
    pub fn peek(&self, tags: &[Tag]) -> Vec<(Tag, Pbn)> {
        let mut memory = self.memory.lock();
        let (mut hints, mut pbns) = (Vec::new(), Vec::new());
        for tag in tags {
            pbns.clear();
            memory.peek(*tag, &mut pbns);
            hints.extend(pbns.iter().map(|pbn| (*tag, *pbn)));
        }
        hints
    }

    /// The hints for these tags that left memory and are not on disk yet. The tags come in ascending order.
    pub fn peek_waiting(&self, tags: &[Tag]) -> Vec<(Tag, Pbn)> {
        assert!(tags.is_sorted(), "{} tags to look up are not ascending", tags.len());
        let waiting = self.waiting.lock().clone();
        let same = |Hint { tag, pbn }| {
            let from = tags.partition_point(|whole| Hint::new(*whole, pbn).tag < tag);
            let same = tags[from..].iter().take_while(move |whole| Hint::new(**whole, pbn).tag == tag);
            same.map(move |whole| (*whole, pbn))
        };
        waiting.into_iter().flat_map(same).collect()
    }

    /// The disk level's hints for whole tags, of which it knows the beginning. The tags come in ascending order. Tags
    /// outside the sample cost no read.
    pub fn look_up_on_disk(&self, tags: &[Tag], counters: &Counters) -> Vec<(Tag, Pbn)> {
        assert!(tags.is_sorted(), "{} tags to look up are not ascending", tags.len());
        let tags: Vec<Tag> = tags.iter().copied().filter(|tag| self.sample.has(*tag)).collect();
        let mut found = Vec::new();
        if let Some(disk) = in_use(&mut self.disk.lock()) {
            let looked_up = disk.look_up(&tags, &mut found);
            self.settle(disk, looked_up, counters);
        }
        let mut hints = Vec::with_capacity(found.len());
        for tag in tags {
            let kept = Hint::new(tag, Pbn(0)).tag;
            let from = found.partition_point(|hint| hint.tag < kept);
            hints.extend(found[from..].iter().take_while(|hint| hint.tag == kept).map(|hint| (tag, hint.pbn)));
        }
        hints
    }

    /// Drops a stale hint from the memory level.
    pub fn remove(&self, tag: Tag, pbn: Pbn) {
        self.memory.lock().remove(tag, pbn);
    }

    /// Drops hints from the memory level and adds others.
    pub fn update(&self, freed: &[(Tag, Pbn)], placed: &[(Tag, Pbn)], counters: &Counters) -> AreManyWaiting {
        let (evicted, count) = {
            let mut memory = self.memory.lock();
            for (tag, pbn) in freed {
                memory.remove(*tag, *pbn);
            }
            let count: usize = placed.iter().map(|(tag, pbn)| memory.insert(*tag, *pbn).evicted).sum();
            (memory.take_evicted(), count)
        };
        if count > evicted.len() {
            self.note_dropped(count - evicted.len(), counters);
        }
        self.demote_later(&evicted, counters)
    }

    /// Brings hints of shared blocks back to memory, as used. Returns how many were not in memory.
    pub fn promote(&self, shared: &[(Tag, Pbn)], counters: &Counters) -> (u64, AreManyWaiting) {
        let mut promoted = 0;
        let evicted = {
            let mut memory = self.memory.lock();
            let mut used = Vec::new();
            for (tag, pbn) in shared {
                promoted += u64::from(memory.insert(*tag, *pbn).added);
                memory.lookup(*tag, &mut used);
                used.clear();
            }
            memory.take_evicted()
        };
        (promoted, self.demote_later(&evicted, counters))
    }

    /// Sets the bound of the memory level.
    pub fn set_memory_bytes_max(&self, bytes_max: u64, counters: &Counters) -> AreManyWaiting {
        let evicted = {
            let mut memory = self.memory.lock();
            if memory.bytes_max() != bytes_max {
                memory.set_bytes_max(bytes_max);
            }
            memory.take_evicted()
        };
        self.demote_later(&evicted, counters)
    }

    /// Keeps hints that left memory until the worker merges them into the disk level.
    pub fn demote_later(&self, evicted: &[Hint], counters: &Counters) -> AreManyWaiting {
        if evicted.is_empty() {
            return AreManyWaiting(false);
        }
        self.coverage.note_left_memory();
        let (dropped, waiting) = {
            let mut waiting = self.waiting.lock();
            let (kept, dropped) = evicted.split_at(evicted.len().min(WAITING_MAX - waiting.len()));
            waiting.extend_from_slice(kept);
            assert!(waiting.len() <= WAITING_MAX, "{} hints wait, at most {WAITING_MAX} may", waiting.len());
            (dropped.len(), waiting.len())
        };
        if dropped > 0 {
            self.note_dropped(dropped, counters);
        }
        AreManyWaiting(waiting >= WAITING_MANY)
    }

    /// Whether the scan has to wait until hints are merged.
    pub fn are_many_waiting(&self) -> bool {
        self.waiting.lock().len() >= WAITING_MANY
    }

    fn note_dropped(&self, count: usize, counters: &Counters) {
        assert!(count > 0, "{count} hints were dropped");
        counters.hints_dropped.fetch_add(count as u64, Relaxed);
        self.coverage.note_left_memory();
        if self.has_disk_level.load(Relaxed) {
            self.coverage.want_scan();
        } else {
            self.coverage.note_incomplete();
        }
    }

    /// Merges the hints that wait into the disk level. `worth` gives the references of each hint's block.
    pub fn merge_waiting(&self, counters: &Counters, worth: impl FnMut(&[Hint]) -> Vec<u32>) {
        let mut guard = self.disk.lock();
        let mut hints = std::mem::take(&mut *self.waiting.lock());
        if hints.is_empty() {
            return;
        }
        let Some(disk) = in_use(&mut guard) else {
            return self.note_dropped(hints.len(), counters);
        };
        hints.sort_unstable();
        self.merge(disk, &hints, counters, worth);
        self.memory.lock().set_eviction_range_bits(Some(disk.eviction_range_bits()));
    }

    fn merge(&self, disk: &mut DiskHints, hints: &[Hint], counters: &Counters, worth: impl FnMut(&[Hint]) -> Vec<u32>) {
        debug_assert!(!hints.is_empty(), "{} hints to merge", hints.len());
        let merged = disk.merge(hints, worth);
        let Some(merged) = self.settle(disk, merged, counters) else { return };
        // Hints are dropped if their content has more holders than the store names. A scan would find no room for them
        // either.
        counters.hints_demoted.fetch_add(hints.len() as u64 - merged.dropped, Relaxed);
        counters.hints_dropped.fetch_add(merged.dropped, Relaxed);
        if merged.lost > 0 {
            self.note_dropped(merged.lost as usize, counters);
        }
    }

    /// Handles the outcome of work on the disk level. If the file failed or is damaged, continues without the lost
    /// hints, and asks for a scan of the block table.
    fn settle<T>(&self, disk: &mut DiskHints, outcome: std::io::Result<T>, counters: &Counters) -> Option<T> {
        let (read, written) = disk.traffic();
        counters.disk_level_bytes_read.store(read, Relaxed);
        counters.disk_level_bytes_written.store(written, Relaxed);
        match disk.settle(outcome.as_ref().err()) {
            Condition::Sound => {}
            Condition::Emptied => self.coverage.want_scan(),
            Condition::Unusable => {
                self.has_disk_level.store(false, Relaxed);
                self.coverage.note_incomplete();
            }
        }
        outcome.ok()
    }

    /// On an idle volume: retries a disk level that failed too often.
    pub fn retry_disk_level(&self) {
        if self.disk.lock().as_mut().is_some_and(DiskHints::retry) {
            log::info!("the hint file works again: refilling it from the block table");
            self.has_disk_level.store(true, Relaxed);
            self.coverage.want_scan();
        }
    }

    /// After a mount: finds the pages of the disk level. `opened_at`: the recovered commit. True: the level names every
    /// live block of the sample.
    pub fn adopt_disk_level(&self, opened_at: u64, counters: &Counters) -> bool {
        let mut guard = self.disk.lock();
        let Some(disk) = in_use(&mut guard) else { return false };
        let adopted = disk.adopt(self.sample);
        let complete_at = self.settle(disk, adopted, counters).unwrap_or(0);
        self.memory.lock().set_eviction_range_bits(Some(disk.eviction_range_bits()));
        complete_at == opened_at && complete_at > 0
    }

    /// Learns that the data area has grown: pbns may need more bytes in a page of the disk level.
    pub fn grow_disk_level(&self, data: Blocks) {
        if let Some(disk) = &mut *self.disk.lock() {
            disk.grow(data);
        }
    }

    /// At a clean unmount, after the last publication: writes the memory level's hints to the disk level, and marks
    /// that it names every live block of the sample. Does nothing if the next mount reads the block table anyway:
    /// because the level is not complete, because memory has room for the hints of the `used` blocks, or because that
    /// is faster.
    pub fn write_out(
        &self,
        used: Blocks,
        sequence: u64,
        counters: &Counters,
        mut worth: impl FnMut(&[Hint]) -> Vec<u32>,
    ) {
        let mut guard = self.disk.lock();
        let Some(disk) = in_use(&mut guard) else { return };
        let is_worth_it = self.coverage.is_complete()
            && !self.have_room_for(used)
            && self.memory.lock().bytes() <= WRITTEN_OUT_BYTES_MAX;
        if !is_worth_it {
            return;
        }
        let mut memory = self.memory.lock();
        let mut batch = memory.drain_next();
        while !batch.is_empty() {
            while batch.len() < WAITING_MAX && !memory.is_empty() {
                batch.extend(memory.drain_next());
            }
            batch.sort_unstable();
            self.merge(disk, &batch, counters, &mut worth);
            batch = memory.drain_next();
        }
        assert!(memory.is_empty(), "{} hints are left in memory after all were written out", memory.len());
        if self.coverage.is_complete() {
            let marked = disk.mark_complete(sequence, self.sample);
            self.settle(disk, marked, counters);
        }
    }

    /// Drops the hints of one page of the disk level that are not live. False: it was the last page, and the next call
    /// starts over.
    pub fn sweep_page(&self, counters: &Counters, are_live: impl FnMut(&[Hint]) -> Vec<bool>) -> bool {
        let mut guard = self.disk.lock();
        let Some(disk) = in_use(&mut guard) else { return false };
        let swept = disk.sweep(are_live);
        let swept = self.settle(disk, swept, counters).unwrap_or_default();
        counters.hints_swept.fetch_add(swept.stale, Relaxed);
        swept.next.is_some()
    }

    /// The next sweep takes the first page.
    pub fn restart_sweep(&self) {
        if let Some(disk) = &mut *self.disk.lock() {
            disk.restart_sweep();
        }
    }

    /// Bytes of the hint file, and hints in it.
    pub fn disk_level_size(&self) -> (u64, u64) {
        self.disk.lock().as_ref().map_or((0, 0), DiskHints::size)
    }
}

/// Access to the levels for tests.
#[cfg(all(test, not(feature = "schedules")))]
impl Hints {
    /// Which contents hints name.
    pub fn sample(&self) -> Sample {
        self.sample
    }

    /// Loses the memory level.
    pub fn clear_memory(&self) {
        self.memory.lock().clear();
    }

    /// Whether the disk level names a block, whatever the sample.
    pub fn is_on_disk(&self, tag: Tag, pbn: Pbn) -> bool {
        let mut found = Vec::new();
        if let Some(disk) = in_use(&mut self.disk.lock()) {
            disk.look_up(&[tag], &mut found).expect("its device works");
        }
        found.contains(&Hint::new(tag, pbn))
    }

    /// Loses the disk level.
    pub fn clear_disk_level(&self) {
        self.disk.lock().as_mut().expect("there is a disk level").reset().expect("its device works");
    }

    /// Hints in memory.
    pub fn len(&self) -> usize {
        self.memory.lock().len()
    }

    /// Hints between the levels.
    pub fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Asserts the invariants of the memory level.
    pub fn check(&self) {
        self.memory.lock().check();
    }
}
