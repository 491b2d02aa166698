//! When released blocks become free: after the group that released them is durable, after the readers that may see them,
//! and after the trim of the log records that carry their data.

use crate::format::page::Page;
use crate::space::allocator::Run;
use crate::state::published::{State, Waiting};
use crate::{Error, Pbn, Result};

impl State {
    /// Refuses a page of the block table written by a group that the log does not have.
    pub fn check_age(&self, number: u64, page: &Page) -> Result<()> {
        let (found, newest) = (page.newest_sequence(), self.durable_sequence);
        if found <= newest {
            return Ok(());
        }
        Err(Error::corrupt(
            format!("page {number} of the block table"),
            format!(
                "it was written by group {found}, but the log ends at group {newest}: log and table do not belong together"
            ),
        ))
    }

    /// Takes blocks that may become free: released by a durable group, and read by nobody any more. Those whose data
    /// rides in the log wait for its trim instead. None: no release is over.
    pub fn take_released(&mut self) -> Option<Vec<Run>> {
        let durable = self.durable_sequence;
        let is_over = |waiting: &mut Waiting| waiting.sequence <= durable && waiting.epoch.is_over();
        if !self.waiting.front_mut().is_some_and(is_over) {
            return None;
        }
        let over = self.waiting.pop_front()?;
        let (logged, free): (Vec<Run>, Vec<Run>) =
            over.runs.iter().flat_map(single_blocks).partition(|run| self.logged.contains(&run.pbn));
        self.wait_for_trim.extend(logged);
        Some(joined(&free))
    }

    /// A checkpoint of everything up to group `sequence` is durable, and the log without the data of the blocks in
    /// `logged`. Gives the blocks that waited for that and become free.
    pub fn trimmed(&mut self, sequence: u64, logged: &[Pbn]) -> Vec<Run> {
        assert!(sequence <= self.durable_sequence, "group {sequence} of {} is trimmed", self.durable_sequence);
        self.records.thaw();
        self.shards.thaw();
        self.table.thaw(sequence);
        for pbn in logged {
            self.logged.remove(pbn);
        }
        let waiting = std::mem::take(&mut self.wait_for_trim);
        let (still, free): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|run| self.logged.contains(&run.pbn));
        self.wait_for_trim = still;
        free
    }
}

fn single_blocks(run: &Run) -> impl Iterator<Item = Run> + use<> {
    run.pbns().map(|pbn| Run { pbn, blocks: 1 })
}

/// Joins runs that follow each other.
fn joined(runs: &[Run]) -> Vec<Run> {
    let mut joined: Vec<Run> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.end() == run.pbn => last.blocks += run.blocks,
            _ => joined.push(*run),
        }
    }
    joined
}
