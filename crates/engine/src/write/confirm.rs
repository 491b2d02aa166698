//! Confirm: a candidate becomes a share only if the block table says that it is live and holds exactly this content.
//! The fingerprints decide. If the stored block has none yet, the bytes are compared, unless a program waits. All
//! blocks of a request that need a comparison are read at once. With `verify=share`, a block that would be shared for
//! the first time is always compared byte by byte: once the written block is dropped for it, nothing could replace it.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::part;
use crate::format::page::{Entry, page_of};
use crate::read::damage_reports::DamageReports;
use crate::read::parts::runs_into;
use crate::read::stored::BlockReader;
use crate::state::loading::Metadata;
use crate::write::batch::{Batch, Outcome};
use crate::write::place::Placer;
use crate::write::under_way::Awaits;
use crate::{BLOCK_BYTES, Pbn, WriteMode};

part! {
    /// Confirms the candidates of a written request.
    pub struct BatchConfirmer {
        base: inline, hints, stats, backlog, data;
        metadata: Metadata, placer: Placer, block_reader: BlockReader, damage_reports: DamageReports
    }
}

impl BatchConfirmer {
    /// Turns every `Candidate` into `Share` or `Anew`. The caller has the candidates pinned.
    pub fn confirm(&self, batch: &mut Batch) {
        let candidates = batch.indexes(|outcome| matches!(outcome, Outcome::Candidate(_)));
        if !candidates.is_empty() {
            let entries = self.entries_of(batch, &candidates);
            let live = self.keep_live(batch, &candidates, &entries);
            self.placer.fingerprint(batch, &live);
            self.confirm_by_fingerprint(batch, &live, &entries);
            if self.leaves_comparisons(batch) {
                leave_uncompared(batch);
            } else {
                self.confirm_by_bytes(batch, &entries);
            }
        }
        let is_sure = |outcome: &Outcome| !matches!(outcome, Outcome::Candidate(_));
        assert!(batch.outcomes.iter().all(is_sure), "a candidate is neither shared nor stored anew");
    }

    /// Counts the shares of a request whose blocks are all decided.
    pub fn note_shares(&self, batch: &Batch) {
        let shared = batch.indexes(|outcome| matches!(outcome, Outcome::Share(_) | Outcome::Twin(_)));
        self.inline.note_request(batch.len() as u64, shared.len() as u64);
    }

    /// The entries of candidates. A candidate whose entry cannot be read is not shared, because no write depends on it.
    fn entries_of(&self, batch: &Batch, candidates: &[usize]) -> Vec<Option<Entry>> {
        let pbn_of = |index: usize| match batch.outcomes[index] {
            Outcome::Candidate(pbn) => Some(pbn),
            _ => None,
        };
        let pages = || candidates.iter().filter_map(|index| pbn_of(*index)).map(page_of).collect();
        self.metadata.with_readable_pages(pages, |pages| {
            (0..batch.len()).map(|index| pbn_of(index).and_then(|pbn| pages.entry(pbn))).collect()
        })
    }

    /// Refuses candidates that are free, bad or hold another tag, and drops their hints.
    fn keep_live(&self, batch: &mut Batch, candidates: &[usize], entries: &[Option<Entry>]) -> Vec<usize> {
        let mut live = Vec::new();
        for &index in candidates {
            let Outcome::Candidate(pbn) = batch.outcomes[index] else { continue };
            let tag = batch.tags[index];
            if entries[index].is_some_and(|entry| entry.serves(tag)) {
                live.push(index);
            } else {
                self.hints.remove(tag, pbn);
                self.refuse(batch, index);
            }
        }
        live
    }

    fn refuse(&self, batch: &mut Batch, index: usize) {
        self.stats.counters.hints_refused.fetch_add(1, Relaxed);
        batch.outcomes[index] = Outcome::Anew(None);
    }

    /// Decides as many as possible by fingerprint. Blocks that stay candidates have to be read.
    fn confirm_by_fingerprint(&self, batch: &mut Batch, live: &[usize], entries: &[Option<Entry>]) {
        for &index in live {
            let (Outcome::Candidate(pbn), Some(entry)) = (batch.outcomes[index], entries[index]) else { continue };
            if entry.fingerprint.is_some() && entry.fingerprint != batch.fingerprints[index] {
                self.refuse(batch, index);
            } else if entry.fingerprint.is_some() && !self.block_reader.is_read_before_share(&entry) {
                batch.outcomes[index] = Outcome::Share(pbn);
            }
        }
    }

    /// The requests whose blocks this batch can confirm once they are published.
    pub fn awaits(&self, batch: &Batch) -> Awaits {
        if self.leaves_comparisons(batch) { Awaits::Fingerprinted } else { Awaits::All }
    }

    /// Whether blocks that would have to be read are stored anew, for the worker to compare later. With a worker, no
    /// program waits for a comparison.
    fn leaves_comparisons(&self, batch: &Batch) -> bool {
        batch.write_mode == WriteMode::Awaited && batch.policy.is_later && self.backlog.is_on()
    }

    /// Reads the targets that are still candidates and compares them. Lists those that get a fingerprint this way.
    fn confirm_by_bytes(&self, batch: &mut Batch, entries: &[Option<Entry>]) {
        let mut unsure: Vec<(Pbn, usize)> = Vec::new();
        for (index, outcome) in batch.outcomes.iter().enumerate() {
            if let Outcome::Candidate(pbn) = outcome {
                unsure.push((*pbn, index));
            }
        }
        unsure.sort_unstable();
        self.stats.counters.blocks_compared.fetch_add(unsure.len() as u64, Relaxed);
        self.compare_written(batch, &unsure);
        // Those that an earlier call compared have no entry here.
        batch.completed.retain(|index| entries[*index].is_none_or(|entry| entry.fingerprint.is_none()));
    }

    /// Compares blocks with their targets, which come in ascending order. A target that cannot be read, or that has the
    /// tag of the written block but other bytes, is probably damaged: it is not shared, and the worker checks it. It
    /// costs no other block its share: if a read fails, each half is read again.
    fn compare_written(&self, batch: &mut Batch, unsure: &[(Pbn, usize)]) {
        debug_assert!(unsure.is_sorted(), "targets out of order: {unsure:?}");
        if unsure.is_empty() {
            return;
        }
        let mut stored = self.data.take_buffer(unsure.len() * BLOCK_BYTES);
        if self.block_reader.read_targets(runs_into(unsure, &mut stored)).is_err() {
            if let [(pbn, index)] = unsure {
                self.damage_reports.suspect(*pbn);
                return self.refuse(batch, *index);
            }
            let (first, second) = unsure.split_at(unsure.len() / 2);
            self.compare_written(batch, first);
            return self.compare_written(batch, second);
        }
        for ((pbn, index), bytes) in unsure.iter().zip(stored.chunks_exact(BLOCK_BYTES)) {
            if bytes == batch.block(*index) {
                batch.outcomes[*index] = Outcome::Share(*pbn);
                batch.completed.push(*index);
            } else {
                self.damage_reports.suspect(*pbn);
                self.refuse(batch, *index);
            }
        }
    }
}

/// Stores the remaining candidates anew. They are reported to the worker with all other blocks stored anew.
fn leave_uncompared(batch: &mut Batch) {
    for outcome in &mut batch.outcomes {
        if matches!(outcome, Outcome::Candidate(_)) {
            *outcome = Outcome::Anew(None);
        }
    }
}
