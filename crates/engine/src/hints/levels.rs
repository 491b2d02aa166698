//! How the two levels of the hint store work together (SmartDedup, section 3.2): a background thread, never a writer,
//! merges hints that left memory into the file `hints`. The block table decides which hints are live.
//!
//! All of it is advice. The only durable part is the mark of a clean unmount. After a crash, or if the file is damaged,
//! truncated or deleted, the block table fills both levels again.

use oncefs_dedup::Hint;

use crate::base::part;
use crate::format::page::Entry;
use crate::hints::store::AreManyWaiting;
use crate::state::loading::Metadata;
use crate::{Pbn, Tag};

part! {
    /// Keeps the two levels of the hint store in step with the block table.
    pub struct HintLevels {
        pub(super) base: hints, stats, signals, state, stored, journal;
        metadata: Metadata
    }
}

impl HintLevels {
    /// Applies the changes of a publication to the memory level.
    pub fn update_hints(&self, freed: &[(Tag, Pbn)], placed: &[(Tag, Pbn)]) {
        self.wake_to_merge(self.hints.update(freed, placed, &self.stats.counters));
    }

    /// Wakes the worker if many hints wait for the disk level.
    pub fn wake_to_merge(&self, many: AreManyWaiting) {
        if many.0 {
            self.signals.wake_worker();
        }
    }

    /// Merges the hints that wait into the disk level.
    pub fn merge_waiting_hints(&self) {
        self.hints.merge_waiting(&self.stats.counters, |hints| self.worth_of(hints));
    }

    /// At a clean unmount, after the last publication: brings the disk level up to date, if that is worth it.
    pub fn write_out_hints(&self) {
        self.merge_waiting_hints();
        let (used, sequence) = {
            let state = self.state.lock();
            (state.totals.used, state.durable_sequence)
        };
        self.hints.write_out(used, sequence, &self.stats.counters, |hints| self.worth_of(hints));
    }

    /// Drops the hints of one page of the disk level that the block table does not confirm. False: it was the last
    /// page, and the next call starts over.
    pub fn sweep_hint_page(&self) -> bool {
        let are_live = |hints: &[Hint]| self.worth_of(hints).into_iter().map(|references| references > 0).collect();
        self.hints.sweep_page(&self.stats.counters, are_live)
    }

    /// The refcount of each hint's block. 0 if the table does not confirm the hint, or if its content is not in the
    /// sample, because an earlier mount may have had a denser sample. A hint that cannot be looked up counts as live.
    fn worth_of(&self, hints: &[Hint]) -> Vec<u32> {
        let mut pbns: Vec<Pbn> = hints.iter().map(|hint| hint.pbn).collect();
        pbns.sort_unstable();
        let entries = match self.metadata.entries_at(&pbns) {
            Ok(entries) => entries,
            Err(error) => {
                log::debug!("cannot compare hints with the block table, keeping them: {error}");
                return vec![1; hints.len()];
            }
        };
        let names = |hint: &Hint, entry: &&Entry| {
            entry.serves(entry.tag) && self.hints.is_sampled(entry.tag) && Hint::new(entry.tag, hint.pbn) == *hint
        };
        let worth =
            |hint: &Hint| entries.get(&hint.pbn).filter(|entry| names(hint, entry)).map_or(0, |entry| entry.count);
        let worth: Vec<u32> = hints.iter().map(worth).collect();
        assert_eq!(worth.len(), hints.len(), "references of the blocks of {} hints", hints.len());
        worth
    }
}
