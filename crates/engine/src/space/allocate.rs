//! How much can still be written: bounded by the data area, by promises to fallocate, and by the host below.

use std::sync::atomic::Ordering::Relaxed;

use crate::core::Core;
use crate::space::allocator::Run;
use crate::volume::files as volume;
use crate::{BLOCK_BYTES, Blocks, Error, Pbn, Result, Totals};

/// Kept back from ordinary writes, so that cutting a file on a full volume can store its last block.
const KEPT_BACK_BLOCKS: u64 = 256;
/// Parts of the data area of 128 MiB that are looked at for one free run: each may have to be read from the block table.
const REGIONS_LOOKED_AT_MAX: usize = 64;
/// Kept free on the host for the log's followers: block table, record store, their compaction.
pub const HOST_MARGIN_BYTES: u64 = 64 << 20;

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
        let others = self.space.blocks_in_flight.fetch_add(blocks, Relaxed);
        let runs = self.check_claim(blocks, claim, others).and_then(|()| self.allocate_runs(blocks));
        if runs.is_err() {
            self.space.blocks_in_flight.fetch_sub(blocks, Relaxed);
        }
        runs
    }

    /// Refuses an ordinary claim that would take what is promised, kept back, or not there. `others` blocks are
    /// in flight already.
    fn check_claim(&self, blocks: u64, claim: Claim, others: u64) -> Result<()> {
        let Claim::Ordinary { from_reserved } = claim else { return Ok(()) };
        self.take_host_space(blocks)?;
        let (free, reserved) = {
            let state = self.state.lock();
            (state.sums.data - state.sums.used, state.sums.reserved)
        };
        let untouchable = match from_reserved >= blocks {
            true => 0,
            false => reserved.0.saturating_sub(from_reserved) + KEPT_BACK_BLOCKS,
        };
        if free.0 < blocks + untouchable + others { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Allocated blocks are published or given back.
    pub fn landed(&self, runs: &[Run]) {
        self.space.blocks_in_flight.fetch_sub(runs.iter().map(|run| run.blocks).sum(), Relaxed);
    }

    fn allocate_runs(&self, blocks: u64) -> Result<Vec<Run>> {
        let mut allocator = self.space.allocator.lock();
        let mut load = |region| self.load_region(region);
        let mut runs = allocator.allocate(blocks, &mut load)?;
        let got = |runs: &[Run]| runs.iter().map(|run| run.blocks).sum::<u64>();
        if got(&runs) < blocks {
            allocator.distrust_advice();
            match allocator.allocate(blocks - got(&runs), &mut load) {
                Ok(more) => runs.extend(more),
                Err(error) => {
                    runs.iter().for_each(|run| allocator.release(*run));
                    return Err(error);
                }
            }
        }
        if got(&runs) < blocks {
            runs.iter().for_each(|run| allocator.release(*run));
            return Err(Error::NoSpace);
        }
        Ok(runs)
    }

    /// Allocates one block, far from another one. It is in flight as those of `allocate`.
    pub fn allocate_far(&self, from: Pbn) -> Result<Run> {
        let others = self.space.blocks_in_flight.fetch_add(1, Relaxed);
        let placed = self.check_claim(1, Claim::Ordinary { from_reserved: 0 }, others).and_then(|()| {
            let taken = self.space.allocator.lock().allocate_far(from, &mut |region| self.load_region(region))?;
            taken.map(|pbn| Run { pbn, blocks: 1 }).ok_or(Error::NoSpace)
        });
        placed.inspect_err(|_| {
            self.space.blocks_in_flight.fetch_sub(1, Relaxed);
        })
    }

    /// Allocates blocks that follow each other, for work that can wait; in flight as those of `allocate`. None: there
    /// is no such free run, as far as was looked, or less than `left_min` would be left for others.
    pub fn allocate_contiguous(&self, blocks: u64, left_min: Blocks) -> Result<Option<Run>> {
        if self.totals().available.0 < blocks + left_min.0 {
            return Ok(None);
        }
        let others = self.space.blocks_in_flight.fetch_add(blocks, Relaxed);
        let claimed = self.check_claim(blocks, Claim::Ordinary { from_reserved: 0 }, others);
        let taken = claimed.and_then(|()| {
            let mut load = |region| self.load_region(region);
            self.space.allocator.lock().allocate_run(blocks, REGIONS_LOOKED_AT_MAX, &mut load)
        });
        if !matches!(taken, Ok(Some(_))) {
            self.space.blocks_in_flight.fetch_sub(blocks, Relaxed);
        }
        match taken {
            Err(Error::NoSpace) => Ok(None),
            other => other,
        }
    }

    fn take_host_space(&self, blocks: u64) -> Result<()> {
        let bytes = blocks * BLOCK_BYTES as u64;
        let enough = |left: u64| left.checked_sub(bytes).filter(|left| *left >= HOST_MARGIN_BYTES);
        match self.space.host_bytes.fetch_update(Relaxed, Relaxed, enough) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::NoSpace),
        }
    }

    /// Asks the host how much it can still take.
    pub fn look_up_host(&self) {
        if let Some(bytes) = self.space.host.as_deref().and_then(volume::host_bytes) {
            self.space.host_bytes.store(bytes, Relaxed);
        }
    }

    /// Whether the host is so full that what it has left is for what programs ask for.
    pub fn is_host_short(&self) -> bool {
        self.space.host_bytes.load(Relaxed) < 2 * HOST_MARGIN_BYTES
    }

    /// The volume's sums, and what can still be written.
    pub fn totals(&self) -> Totals {
        let sums = self.state.lock().sums;
        let free = (sums.data - sums.used).0.saturating_sub(sums.reserved.0 + KEPT_BACK_BLOCKS);
        let host = self.space.host_bytes.load(Relaxed).saturating_sub(HOST_MARGIN_BYTES) / BLOCK_BYTES as u64;
        Totals {
            data: sums.data,
            used: sums.used,
            reserved: sums.reserved,
            mapped: sums.mapped,
            available: Blocks(free.min(host)),
        }
    }

    /// See [`crate::Store::make_room`].
    pub fn make_room(&self) -> Result<bool> {
        let (before, _) = self.reusable();
        if self.is_host_short() {
            while self.punch_some() {}
        }
        let waits_for_trim = !self.state.lock().wait_for_trim.is_empty();
        if waits_for_trim {
            self.checkpoint()?
        } else {
            self.commit()?
        }
        self.release_waiting();
        self.look_up_host();
        let (now, is_coming) = self.reusable();
        Ok(now > before || is_coming || self.signals.is_reclaiming())
    }

    /// Free blocks that can be handed out now, and whether more are on their way.
    fn reusable(&self) -> (u64, bool) {
        let state = self.state.lock();
        let waiting = state.waiting.iter().flat_map(|waiting| &waiting.runs);
        let pending = waiting.chain(&state.group.freed).chain(&state.wait_for_trim).map(|run| run.blocks).sum::<u64>();
        ((state.sums.data - state.sums.used).0.saturating_sub(pending), pending > 0)
    }
}
