//! Notes the blocks that in-line deduplication leaves to the worker: after each publication, and in a file across
//! mounts. A crash loses the notes after the file's last checkpoint. Then the worker visits every block once.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::part;
use crate::policy::effective::FilePolicies;
use crate::write::batch::{Batch, Outcome};
use crate::{Lbn, MapId};

part! {
    /// Notes the blocks that the worker has to visit, in memory and in the file of skipped blocks.
    pub struct BacklogNotes {
        base: backlog, worker, stats;
        file_policies: FilePolicies
    }
}

impl BacklogNotes {
    /// Notes which blocks of a published batch the worker has yet to visit, and which no longer.
    pub fn note_skipped(&self, map: MapId, batch: &Batch) {
        if batch.policy.is_later && self.backlog.is_on() {
            self.backlog.note(map, ranges_to_note(batch));
        }
    }

    /// Leaves blocks of a file to the worker, if it deduplicates the file.
    pub fn leave_to_worker(&self, map: MapId, lbns: impl IntoIterator<Item = Lbn>) {
        if !self.file_policies.is_later(map) {
            return;
        }
        self.backlog.note(map, lbns.into_iter().map(|lbn| (lbn, 1, true)));
    }

    /// Writes the backlog to its file, if it exists. `clean_at`: nothing was published after this commit. 0: something
    /// may have been.
    pub fn checkpoint_backlog(&self, clean_at: u64) {
        let records = || self.worker.unfinished(|| self.backlog.contents());
        if let Some(bytes) = self.backlog.write_file(clean_at, records) {
            self.stats.counters.skipped_bytes_written.store(bytes, Relaxed);
        }
    }
}

/// The ranges of a published batch to note: first block, number of blocks, and whether the blocks wait from now on or
/// no longer do.
fn ranges_to_note(batch: &Batch) -> Vec<(Lbn, u64, bool)> {
    let is_final = final_refusals(batch);
    // A block that equals the previous content is as known or unknown as before.
    let waits = |index: usize| match batch.outcomes[index] {
        Outcome::Anew(_) => Some(!is_final[index]),
        _ if batch.unchanged.contains(&index) => None,
        _ => Some(false),
    };
    let states: Vec<Option<bool>> = (0..batch.len()).map(waits).collect();
    let mut ranges = Vec::new();
    let mut first = batch.first;
    for equal in states.chunk_by(|a, b| a == b) {
        let blocks = equal.len() as u64;
        ranges.extend(equal[0].map(|waits| (first, blocks, waits)));
        first = first.plus(blocks);
    }
    assert_eq!(first, batch.first.plus(batch.len() as u64), "ranges of a batch of {} blocks", batch.len());
    ranges
}

/// Which blocks were refused for good, because their run is too short. They stay until `run_blocks_min` of their file
/// falls. If a run ends at a block without a hint in memory, the disk level may know that it continues.
fn final_refusals(batch: &Batch) -> Vec<bool> {
    let mut is_final = vec![false; batch.len()];
    for &index in batch.refused.iter().chain(&batch.open) {
        is_final[index] = true;
    }
    let is_unknown = |index: usize| matches!(batch.outcomes[index], Outcome::Anew(_));
    for (index, next) in (0..batch.len()).zip(1..batch.len()) {
        is_final[next] &= is_final[index] || !is_unknown(index);
    }
    for (index, next) in (0..batch.len()).zip(1..batch.len()).rev() {
        is_final[index] &= is_final[next] || !is_unknown(next);
    }
    is_final
}
