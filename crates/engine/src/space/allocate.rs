//! How much can still be written: bounded by the data area, by promises to fallocate, and by the host below.

use crate::core::Core;
use crate::space::allocator::Run;
use crate::{Blocks, Error, Pbn, Result, Totals};

/// Kept back from ordinary writes, so that truncating a file on a full volume can store its last block.
const KEPT_BACK_BLOCKS: u64 = 256;

/// By what right blocks are allocated.
#[derive(Clone, Copy, Debug)]
pub enum Claim {
    /// From what is neither promised nor kept back, save what was promised to this very write.
    Ordinary {
        /// Blocks promised to it.
        from_reserved: u64,
    },
    /// Also from what is kept back: the change cannot be refused any more, or frees more than it takes.
    MustSucceed,
}

impl Core {
    /// Allocates exactly `blocks` blocks. They are in flight until they are published or given back.
    pub fn allocate(&self, blocks: u64, claim: Claim) -> Result<Vec<Run>> {
        let others = self.space.count_in_flight(blocks);
        let mut load = |region| self.load_region(region);
        let runs = self.check_claim(blocks, claim, others).and_then(|()| self.space.allocate(blocks, &mut load));
        runs.inspect_err(|_| self.space.landed(blocks))
    }

    /// Refuses an ordinary claim that would take what is promised, kept back, or not there. `others` blocks are
    /// in flight already.
    fn check_claim(&self, blocks: u64, claim: Claim, others: u64) -> Result<()> {
        let Claim::Ordinary { from_reserved } = claim else { return Ok(()) };
        self.space.take_host_bytes(blocks)?;
        let (free, reserved) = {
            let state = self.state.lock();
            (state.totals.data - state.totals.used, state.totals.reserved)
        };
        let untouchable = match from_reserved >= blocks {
            true => 0,
            false => reserved.0.saturating_sub(from_reserved) + KEPT_BACK_BLOCKS,
        };
        if free.0 < blocks + untouchable + others { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Allocated blocks are published or given back.
    pub fn landed(&self, runs: &[Run]) {
        self.space.landed(runs.iter().map(|run| run.blocks).sum());
    }

    /// Gives back blocks that were allocated and never published.
    pub fn give_back(&self, runs: &[Run]) {
        self.landed(runs);
        self.space.give_back(runs);
    }

    /// Allocates one block, far from another one. It is in flight as those of `allocate`.
    pub fn allocate_far(&self, from: Pbn) -> Result<Run> {
        let others = self.space.count_in_flight(1);
        let claimed = self.check_claim(1, Claim::Ordinary { from_reserved: 0 }, others);
        let placed = claimed.and_then(|()| self.space.allocate_far(from, &mut |region| self.load_region(region)));
        placed.inspect_err(|_| self.space.landed(1))
    }

    /// Allocates blocks that follow each other, for work that can wait; in flight as those of `allocate`. None: there
    /// is no such free run, as far as was looked, or less than `left_min` would be left for others.
    pub fn allocate_contiguous(&self, blocks: u64, left_min: Blocks) -> Result<Option<Run>> {
        if self.available().0 < blocks + left_min.0 {
            return Ok(None);
        }
        let others = self.space.count_in_flight(blocks);
        let claimed = self.check_claim(blocks, Claim::Ordinary { from_reserved: 0 }, others);
        let taken = claimed.and_then(|()| self.space.allocate_run(blocks, &mut |region| self.load_region(region)));
        if !matches!(taken, Ok(Some(_))) {
            self.space.landed(blocks);
        }
        match taken {
            Err(Error::NoSpace) => Ok(None),
            other => other,
        }
    }

    /// The volume's totals now.
    pub fn totals(&self) -> Totals {
        self.state.lock().totals
    }

    /// Unique blocks that can still be written: bounded by the data area, by what is promised, and by the host.
    pub fn available(&self) -> Blocks {
        let totals = self.totals();
        let kept = totals.reserved.0 + KEPT_BACK_BLOCKS;
        let free = (totals.data - totals.used).0.saturating_sub(kept);
        Blocks(free.min(self.space.host_blocks_left()))
    }

    /// See [`crate::Store::make_room`].
    pub fn make_room(&self) -> Result<bool> {
        let (before, _) = self.reusable();
        if self.space.is_host_short() {
            while self.punch_some() {}
        }
        let waits_for_trim = !self.state.lock().wait_for_trim.is_empty();
        if waits_for_trim {
            self.checkpoint()?
        } else {
            self.commit()?
        }
        self.release_waiting();
        self.space.look_up_host();
        let (now, is_coming) = self.reusable();
        Ok(now > before || is_coming || self.signals.is_reclaiming())
    }

    /// Free blocks that can be handed out now, and whether more are on their way.
    fn reusable(&self) -> (u64, bool) {
        let state = self.state.lock();
        let waiting = state.waiting.iter().flat_map(|waiting| &waiting.runs);
        let pending = waiting.chain(&state.group.freed).chain(&state.wait_for_trim).map(|run| run.blocks).sum::<u64>();
        ((state.totals.data - state.totals.used).0.saturating_sub(pending), pending > 0)
    }
}
