//! The two levels of the hint store as an open volume keeps them (SmartDedup, section 3.2): hints that leave memory
//! are merged into the file `hints` by a background thread, never by a writer.
//!
//! All of it is advice. Durable is nothing but a mark of a clean unmount; after a crash, or when the file was
//! damaged, cut or deleted, the block table fills both levels again.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use hashbrown::HashMap;
use oncefs_dedup::{Hint, Merged, Sample};

use crate::core::Core;
use crate::format::page::{Entry, page_of};
use crate::hints::disk::{DiskHints, FAILURES_MAX, in_use};
use crate::{Blocks, Pbn, Result, Tag};

/// Hints that left memory and wait to be merged, at most: 256 KiB. More are dropped, and found again by a scan.
const WAITING_MAX: usize = 16_384;
/// So many of them are worth waking the worker.
const WAITING_MANY: usize = WAITING_MAX / 4;
/// With more memory than this in use, hints are not written out at unmount: the next mount reads the block table.
const WRITTEN_OUT_BYTES_MAX: u64 = 64 << 20;
/// How often a file that was given up and then took a write again is used again.
const RETRIES_MAX: u32 = 8;
/// Memory that a hint takes, about: tells whether the block table's hints fit into the memory level.
const HINT_BYTES: u64 = 11;

impl Core {
    /// Takes what a publication changed into the memory level.
    pub fn update_hints(&self, freed: &[(Tag, Pbn)], placed: &[(Tag, Pbn)]) {
        let (evicted, count) = {
            let mut hints = self.hints.memory.lock();
            for (tag, pbn) in freed {
                hints.remove(*tag, *pbn);
            }
            let count: usize = placed.iter().map(|(tag, pbn)| hints.insert(*tag, *pbn).evicted).sum();
            (hints.take_evicted(), count)
        };
        if count > evicted.len() {
            self.drop_hints(count - evicted.len());
        }
        self.demote_later(&evicted);
    }

    /// Keeps hints that left memory until the worker merges them into the disk level.
    pub fn demote_later(&self, evicted: &[Hint]) {
        if evicted.is_empty() {
            return;
        }
        self.hints.left_memory.store(true, Relaxed);
        let mut waiting = self.hints.evicted.lock();
        let (kept, dropped) = evicted.split_at(evicted.len().min(WAITING_MAX - waiting.len()));
        waiting.extend_from_slice(kept);
        let are_many = waiting.len() >= WAITING_MANY;
        drop(waiting);
        if !dropped.is_empty() {
            self.drop_hints(dropped.len());
        }
        if are_many {
            self.signals.wake_worker();
        }
    }

    fn drop_hints(&self, count: usize) {
        self.stats.counters.hints_dropped.fetch_add(count as u64, Relaxed);
        self.hints.left_memory.store(true, Relaxed);
        self.hints.are_complete.store(false, Relaxed);
        if self.hints.has_disk_level.load(Relaxed) {
            self.hints.scan_is_wanted.store(true, Relaxed);
        }
    }

    /// Whether the scan has to wait until hints are merged.
    pub fn must_merge(&self) -> bool {
        self.hints.evicted.lock().len() >= WAITING_MANY
    }

    /// Merges the hints that wait into the disk level.
    pub fn merge_evicted(&self) {
        let mut guard = self.hints.disk.lock();
        let mut hints = std::mem::take(&mut *self.hints.evicted.lock());
        if hints.is_empty() {
            return;
        }
        let Some(disk) = in_use(&mut guard) else {
            return self.drop_hints(hints.len());
        };
        hints.sort_unstable();
        self.merge(disk, &hints);
        self.hints.memory.lock().set_eviction_span_bits(Some(disk.level.span_bits()));
    }

    fn merge(&self, disk: &mut DiskHints, hints: &[Hint]) {
        let merged = disk.level.merge(&mut disk.file, hints, |hints| self.worth_of(hints));
        if let Some(Merged { dropped, lost, .. }) = self.checked(disk, merged) {
            // Of contents that more blocks hold than are named: a scan would find no place for them either.
            self.stats.counters.hints_demoted.fetch_add(hints.len() as u64 - dropped, Relaxed);
            self.stats.counters.hints_dropped.fetch_add(dropped, Relaxed);
            if lost > 0 {
                self.drop_hints(lost as usize);
            }
        }
    }

    /// The outcome of work on the disk level. Where the file fails or is damaged, says so once, goes on without
    /// what is lost, and asks for a scan of the block table.
    pub fn checked<T>(&self, disk: &mut DiskHints, outcome: io::Result<T>) -> Option<T> {
        self.stats.counters.disk_level_bytes_written.store(disk.file.bytes_written, Relaxed);
        self.stats.counters.disk_level_bytes_read.store(disk.file.bytes_read, Relaxed);
        match outcome {
            Ok(value) => {
                let damaged = disk.file.damaged - disk.damage_known;
                if damaged > 0 {
                    disk.damage_known = disk.file.damaged;
                    self.begin_disk_level_anew(disk, &format!("{damaged} pages are damaged"));
                }
                Some(value)
            }
            Err(error) => {
                self.begin_disk_level_anew(disk, &error.to_string());
                None
            }
        }
    }

    /// The file failed. What cannot be used again and again is not used any more in this mount.
    fn begin_disk_level_anew(&self, disk: &mut DiskHints, error: &str) {
        disk.failures += 1;
        if disk.begin_anew().is_err() {
            disk.failures = FAILURES_MAX;
        }
        if disk.is_given_up() {
            log::warn!("the file of hints cannot be used ({error}): until it can be, some duplicates are missed");
            self.hints.has_disk_level.store(false, Relaxed);
            self.hints.are_complete.store(false, Relaxed);
        } else {
            log::warn!("the file of hints cannot be used ({error}): it is begun anew from the block table");
            self.want_scan();
        }
    }

    /// On an idle volume: tries a file that was given up once more.
    pub fn retry_disk_level(&self) {
        let mut guard = self.hints.disk.lock();
        let Some(disk) = guard.as_mut().filter(|disk| disk.is_given_up() && disk.retries < RETRIES_MAX) else { return };
        if disk.begin_anew().is_ok() {
            (disk.failures, disk.retries) = (0, disk.retries + 1);
            log::info!("the file of hints can be used again: it is filled from the block table");
            self.hints.has_disk_level.store(true, Relaxed);
            self.want_scan();
        }
    }

    fn want_scan(&self) {
        self.hints.are_complete.store(false, Relaxed);
        self.hints.scan_is_wanted.store(true, Relaxed);
    }

    /// After a mount: finds the pages of the disk level. True: it names every live block of the sample.
    pub fn adopt_disk_level(&self) -> bool {
        let mut guard = self.hints.disk.lock();
        let Some(disk) = in_use(&mut guard) else { return false };
        let adopted = disk.file.adopt();
        let damaged = disk.file.damaged - disk.damage_known;
        disk.damage_known = disk.file.damaged;
        if damaged > 0 {
            log::warn!("{damaged} pages of the file of hints are damaged: the block table fills them again");
        }
        let complete_at = disk.file.complete_at(self.hints.sample);
        // From here on pages may be written.
        let adopted = adopted.and_then(|level| disk.file.set_complete_at(0, self.hints.sample).map(|()| level));
        if let Some(level) = self.checked(disk, adopted) {
            disk.level = level;
        }
        self.hints.memory.lock().set_eviction_span_bits(Some(disk.level.span_bits()));
        complete_at == self.journal.opened_at() && complete_at > 0 && disk.file.damaged == 0
    }

    /// The data area has grown: pbns may need more bytes in a page.
    pub fn grow_disk_level(&self, data: Blocks) {
        if let Some(disk) = &mut *self.hints.disk.lock() {
            disk.file.set_data_blocks(data.0);
            disk.level.set_page_hints_max(disk.file.page_hints_max());
        }
    }

    /// Whether the memory level can name every block in use, as far as it is of the sample.
    pub fn hints_fit_into_memory(&self) -> bool {
        let named = self.state.lock().totals.used.0 / u64::from(self.hints.sample.number());
        named.saturating_mul(HINT_BYTES) < self.hints.memory.lock().bytes_max()
    }

    /// Whether the memory level names every live block, but for holders beyond what a content may have.
    pub fn memory_names_all(&self) -> bool {
        self.hints.sample == Sample::ALL
            && self.hints.are_complete.load(Relaxed)
            && !self.hints.left_memory.load(Relaxed)
            && self.hints.scan_pages.load(Relaxed) == 0
    }

    /// At a clean unmount, when nothing is published any more: the disk level gets what memory holds, and the mark
    /// that it names every live block of the sample.
    pub fn write_out_hints(&self) {
        self.merge_evicted();
        let mut guard = self.hints.disk.lock();
        let Some(disk) = in_use(&mut guard) else { return };
        let is_worth_it = self.hints.are_complete.load(Relaxed)
            && !self.hints_fit_into_memory()
            && self.hints.memory.lock().bytes() <= WRITTEN_OUT_BYTES_MAX;
        if !is_worth_it {
            return;
        }
        let mut hints = self.hints.memory.lock();
        let mut portion = hints.drain_next();
        while !portion.is_empty() {
            while portion.len() < WAITING_MAX && !hints.is_empty() {
                portion.extend(hints.drain_next());
            }
            portion.sort_unstable();
            self.merge(disk, &portion);
            portion = hints.drain_next();
        }
        let sequence = self.state.lock().durable_sequence;
        if self.hints.are_complete.load(Relaxed) {
            let marked = disk.file.set_complete_at(sequence, self.hints.sample);
            self.checked(disk, marked);
        }
    }

    /// Looks at one page of the disk level and drops what the block table does not confirm. False: it was the last
    /// page, the next call begins again.
    pub fn sweep_some(&self) -> bool {
        let mut guard = self.hints.disk.lock();
        let Some(disk) = in_use(&mut guard) else { return false };
        let swept = disk.level.sweep(&mut disk.file, disk.cursor, |hints| self.which_are_live(hints));
        let swept = self.checked(disk, swept).unwrap_or_default();
        disk.cursor = swept.next.unwrap_or(Tag(0));
        self.stats.counters.hints_swept.fetch_add(swept.stale, Relaxed);
        swept.next.is_some()
    }

    /// The next sweep begins at the first page.
    pub fn sweep_from_the_beginning(&self) {
        if let Some(disk) = &mut *self.hints.disk.lock() {
            disk.cursor = Tag(0);
        }
    }

    /// Which hints the table confirms. What cannot be looked up counts as live.
    fn which_are_live(&self, hints: &[Hint]) -> Vec<bool> {
        self.worth_of(hints).into_iter().map(|references| references > 0).collect()
    }

    /// How many references the block of each hint has; 0 where the table does not confirm it, or where its content is
    /// not in the sample: an earlier mount may have named more. What cannot be looked up counts as live.
    fn worth_of(&self, hints: &[Hint]) -> Vec<u32> {
        let mut pbns: Vec<Pbn> = hints.iter().map(|hint| hint.pbn).collect();
        pbns.sort_unstable();
        let entries = match self.entries_at(&pbns) {
            Ok(entries) => entries,
            Err(error) => {
                log::debug!("hints were not compared with the block table: {error}");
                return vec![1; hints.len()];
            }
        };
        let names = |hint: &Hint, entry: &&Entry| {
            entry.serves(entry.tag) && self.hints.sample.has(entry.tag) && Hint::new(entry.tag, hint.pbn) == *hint
        };
        let worth =
            |hint: &Hint| entries.get(&hint.pbn).filter(|entry| names(hint, entry)).map_or(0, |entry| entry.count);
        hints.iter().map(worth).collect()
    }

    /// What the table says of blocks, which come in ascending order; a block beyond the data area has no entry.
    pub fn entries_at(&self, pbns: &[Pbn]) -> Result<HashMap<Pbn, Entry>> {
        let end = self.state.lock().totals.data.0;
        let inside = &pbns[..pbns.partition_point(|pbn| pbn.0 < end)];
        let mut entries = HashMap::with_capacity(inside.len());
        for portion in inside.chunk_by(|a, b| page_of(*a) == page_of(*b)) {
            let page = page_of(portion[0]);
            self.with_pages(
                || vec![page],
                |state| {
                    let entry = |pbn: &Pbn| (*pbn, state.table.entry(*pbn).expect("its page is in memory"));
                    entries.extend(portion.iter().map(entry));
                },
            )?;
        }
        Ok(entries)
    }

    /// The disk level's holders of tags, which come in ascending order.
    pub fn look_up_on_disk(&self, tags: &[Tag]) -> Vec<Hint> {
        let mut guard = self.hints.disk.lock();
        let Some(disk) = in_use(&mut guard) else { return Vec::new() };
        let mut found = Vec::new();
        let looked_up = disk.level.lookup(&mut disk.file, tags, &mut found);
        self.checked(disk, looked_up);
        found
    }

    /// Bytes of the file of hints, and hints in it.
    pub fn disk_level_size(&self) -> (u64, u64) {
        let guard = self.hints.disk.lock();
        guard.as_ref().map_or((0, 0), |disk| (disk.file.bytes(disk.level.pages()), disk.level.len()))
    }
}
