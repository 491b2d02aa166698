//! What in-line deduplication leaves to the worker: noted after a publication, kept in a file across mounts. A crash
//! loses what came after the last checkpoint of the file; then everything is looked at once.

use std::sync::atomic::Ordering::Relaxed;

use oncefs_dedup::Skipped;

use crate::core::Core;
use crate::format::skipped::Checkpoint;
use crate::write::batch::{Batch, Outcome};
use crate::{Lbn, MapId};

impl Core {
    /// At a clean unmount, when nothing is published any more: leaves what the next mount goes on from.
    pub fn leave_cleanly(&self) {
        self.write_out_hints();
        let sequence = self.state.lock().durable_sequence;
        if self.backlog.skipped.lock().bytes_max() > 0 {
            self.checkpoint_skipped(sequence);
        }
    }

    /// Takes in what an earlier mount left. `fresh`: nothing was ever written to the volume.
    pub fn restore_skipped(&self, newest: Option<Checkpoint>, is_fresh: bool) {
        if self.tuning.with(|settings| settings.skipped_bytes) == 0 {
            return;
        }
        let is_whole =
            newest.as_ref().is_some_and(|newest| newest.clean_at == self.journal.opened_at() && newest.clean_at > 0);
        let mut skipped = self.backlog.skipped.lock();
        for record in newest.into_iter().flat_map(|newest| newest.records) {
            skipped.restore(record);
        }
        drop(skipped);
        if !is_whole && !is_fresh {
            // After what is known one by one: a full pass finds what the crash lost.
            self.begin_full_pass();
        }
    }

    /// Notes which blocks of a published batch the worker has yet to look at, and which not any more.
    pub fn note_skipped(&self, map: MapId, batch: &Batch) {
        if !self.is_later(map) {
            return;
        }
        let mut skipped = self.backlog.skipped.lock();
        if skipped.bytes_max() == 0 {
            return;
        }
        let is_final = final_refusals(batch);
        // A block equal to what was there is as known or unknown as before.
        let state_of = |index: usize| match batch.outcomes[index] {
            Outcome::Anew(_) => Some(!is_final[index]),
            _ if batch.unchanged.contains(&index) => None,
            _ => Some(false),
        };
        let mut first = 0;
        while first < batch.len() {
            let state = state_of(first);
            let end = (first..batch.len()).find(|index| state_of(*index) != state).unwrap_or(batch.len());
            let (lbn, blocks) = (batch.first.plus(first as u64), (end - first) as u64);
            match state {
                Some(true) => skipped.add(map.0, lbn, blocks),
                Some(false) => skipped.remove(map.0, lbn, blocks),
                None => {}
            }
            first = end;
        }
    }

    /// Leaves blocks of a file to the worker, where there is one.
    pub fn leave_to_worker(&self, map: MapId, lbns: impl IntoIterator<Item = Lbn>) {
        if !self.is_later(map) {
            return;
        }
        let mut skipped = self.backlog.skipped.lock();
        if skipped.bytes_max() > 0 {
            lbns.into_iter().for_each(|lbn| skipped.add(map.0, lbn, 1));
        }
    }

    /// Writes the skipped buffer to disk. `clean_at`: nothing was published after this commit; 0: something may be.
    pub fn checkpoint_skipped(&self, clean_at: u64) {
        let mut file = self.backlog.file.lock();
        let Some(open) = &mut *file else { return };
        let records: Vec<Skipped> = {
            let pass = self.worker.pass.lock();
            let skipped = self.backlog.skipped.lock();
            pass.left().into_iter().chain(skipped.contents()).collect()
        };
        let written = open.write(clean_at, records);
        self.stats.counters.skipped_bytes_written.store(open.bytes_written, Relaxed);
        if let Err(error) = written {
            log::warn!("the skipped buffer cannot be written ({error}): after a crash every block is looked at");
            *file = None;
        }
    }
}

/// Which blocks were refused for good, because their run is too short: those stay until `run_blocks_min` of their file
/// falls. Where a run ends at a block of which memory knows nothing, the disk level may know that it goes on.
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
