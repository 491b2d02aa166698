//! Released blocks: blocks that lost their last reference become free after their group is durable, after the readers
//! that may see them are done, and after the trim of the log records that carry their data.

use std::ops::Bound;

use crate::Pbn;
use crate::space::allocator::Run;
use crate::state::published::{State, Waiting};

/// Most blocks that become free at a time, 64 MiB of data. Bounds how long the locks of space and publications are
/// held.
const RELEASED_BLOCKS_MAX: u64 = 16 << 10;

impl State {
    /// Takes some blocks that may become free: a durable group released them, and no reader sees them any more. Those
    /// whose data rides in the log wait for its trim instead. None: no release is ready.
    pub fn take_released(&mut self) -> Option<Vec<Run>> {
        let durable = self.durable_sequence;
        let is_over = |waiting: &mut Waiting| waiting.sequence <= durable && waiting.epoch.is_over();
        let front = self.waiting.front_mut()?;
        if !is_over(front) {
            return None;
        }
        let over = take_blocks(&mut front.runs, RELEASED_BLOCKS_MAX);
        if front.runs.is_empty() {
            self.waiting.pop_front();
        }
        let mut free = Vec::with_capacity(over.len());
        for run in over {
            self.take_unlogged(run, &mut free);
        }
        Some(free)
    }

    /// Adds the parts of a run whose data is in no log record. The others wait for the trim.
    fn take_unlogged(&mut self, run: Run, free: &mut Vec<Run>) {
        let mut from = run.pbn;
        for logged in self.logged.range((Bound::Included(run.pbn), Bound::Excluded(run.end()))) {
            free.extend(run_between(from, *logged));
            self.wait_for_trim.push(Run { pbn: *logged, blocks: 1 });
            from = logged.plus(1);
        }
        free.extend(run_between(from, run.end()));
    }

    /// Learns that a checkpoint up to group `sequence` is durable, and that the log has lost the data of the blocks in
    /// `logged`. Returns the blocks that waited for that and become free.
    pub fn trimmed(&mut self, sequence: u64, logged: &[Pbn]) -> Vec<Run> {
        assert!(sequence <= self.durable_sequence, "group {sequence} of {} is trimmed", self.durable_sequence);
        self.records.thaw();
        self.leaves.thaw();
        self.table.thaw(sequence);
        for pbn in logged {
            self.logged.remove(pbn);
        }
        self.logged_frozen = 0;
        let waiting = std::mem::take(&mut self.wait_for_trim);
        let (still, free): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|run| self.logged.contains(&run.pbn));
        self.wait_for_trim = still;
        free
    }
}

/// Takes runs of at most `blocks` blocks in total from the end of `runs`.
fn take_blocks(runs: &mut Vec<Run>, blocks: u64) -> Vec<Run> {
    let (mut taken, mut left) = (Vec::new(), blocks);
    while left > 0
        && let Some(last) = runs.last_mut()
    {
        let count = last.blocks.min(left);
        last.blocks -= count;
        taken.push(Run { pbn: last.end(), blocks: count });
        left -= count;
        if last.blocks == 0 {
            runs.pop();
        }
    }
    taken
}

/// The blocks from one pbn up to another. None if there are none.
fn run_between(from: Pbn, end: Pbn) -> Option<Run> {
    debug_assert!(from <= end, "blocks from {from} to {end}");
    (from < end).then(|| Run { pbn: from, blocks: end.0 - from.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Blocks;
    use crate::format::record::Totals;
    use crate::space::pins::Pins;
    use crate::state::maps::Leaves;
    use crate::state::table::Table;

    #[test]
    fn blocks_are_taken_from_the_end_in_portions_and_runs_are_split() {
        let run = |pbn, blocks| Run { pbn: Pbn(pbn), blocks };
        let mut runs = vec![run(10, 5), run(100, 1), run(200, 6)];
        assert_eq!(take_blocks(&mut runs, 4), [run(202, 4)]);
        assert_eq!(take_blocks(&mut runs, 5), [run(200, 2), run(100, 1), run(13, 2)]);
        assert_eq!(take_blocks(&mut runs, 5), [run(10, 3)]);
        assert!(runs.is_empty() && take_blocks(&mut runs, 5).is_empty());
    }

    #[test]
    fn a_large_file_that_was_freed_is_released_in_portions() {
        let mut state = State::new(Table::new(1 << 20), Leaves::new(1 << 20), Totals::default(), 7);
        let epoch = Pins::default().advance();
        let runs = vec![Run { pbn: Pbn(1), blocks: 1 << 38 }, Run { pbn: Pbn(1 << 39), blocks: 9 }];
        state.waiting.push_back(Waiting { sequence: 7, epoch, runs });
        let first = state.take_released().expect("the group is durable, and nobody reads");
        assert_eq!(first.iter().map(|run| run.blocks).sum::<u64>(), RELEASED_BLOCKS_MAX);
        assert_eq!(first[0], Run { pbn: Pbn(1 << 39), blocks: 9 });
        let left: u64 = state.waiting[0].runs.iter().map(|run| run.blocks).sum();
        assert_eq!(left, (1 << 38) + 9 - RELEASED_BLOCKS_MAX, "the rest waits");
    }

    #[test]
    fn what_rides_in_the_log_waits_for_its_trim_and_the_rest_of_a_run_does_not() {
        let totals = Totals { data: Blocks(1_000), ..Totals::default() };
        let mut state = State::new(Table::new(1 << 20), Leaves::new(1 << 20), totals, 7);
        state.logged.extend([9, 10, 12, 13, 20].map(Pbn));
        let mut free = Vec::new();
        state.take_unlogged(Run { pbn: Pbn(10), blocks: 10 }, &mut free);
        assert_eq!(free, [Run { pbn: Pbn(11), blocks: 1 }, Run { pbn: Pbn(14), blocks: 6 }]);
        assert_eq!(state.wait_for_trim, [10, 12, 13].map(|pbn| Run { pbn: Pbn(pbn), blocks: 1 }));
    }
}
