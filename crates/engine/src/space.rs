//! How much can still be written: bounded by the data area, by promises to fallocate, and by the host below.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use crate::allocator::Run;
use crate::core::Core;
use crate::{BLOCK_BYTES, Blocks, Error, Result, Totals};

/// Kept back from ordinary writes, so that cutting a file on a full volume can store its last block.
const KEPT_BACK_BLOCKS: u64 = 256;
/// Kept free on the host for the log's followers: block table, record store, their compaction.
pub const HOST_MARGIN_BYTES: u64 = 64 << 20;

/// How often and how long a writer on a full volume waits for deleted files to be freed: 10 s in all.
const ROOM_TRIES_MAX: usize = 200;
const ROOM_TRY: Duration = Duration::from_millis(50);

impl Core {
    /// Allocates exactly `blocks` blocks. `from_reserved` of them were promised before.
    pub fn allocate(&self, blocks: u64, from_reserved: u64) -> Result<Vec<Run>> {
        self.take_host_space(blocks)?;
        let (free, reserved) = {
            let state = self.state.lock();
            (state.sums.data - state.sums.used, state.sums.reserved)
        };
        let promised = reserved.0.saturating_sub(from_reserved);
        if free.0 < blocks + promised + KEPT_BACK_BLOCKS.min(free.0 / 2) {
            return Err(Error::NoSpace);
        }
        self.allocate_runs(blocks)
    }

    /// Allocates for a change that must succeed on a full volume.
    pub fn allocate_kept_back(&self, blocks: u64) -> Result<Vec<Run>> {
        self.allocate_runs(blocks)
    }

    fn allocate_runs(&self, blocks: u64) -> Result<Vec<Run>> {
        let mut allocator = self.allocator.lock();
        let mut load = |region| self.load_region(region);
        let mut runs = allocator.allocate(blocks, &mut load)?;
        let got = |runs: &[Run]| runs.iter().map(|run| run.blocks).sum::<u64>();
        if got(&runs) < blocks {
            allocator.distrust_advice();
            runs.extend(allocator.allocate(blocks - got(&runs), &mut load)?);
        }
        if got(&runs) < blocks {
            runs.iter().for_each(|run| allocator.release(*run));
            return Err(Error::NoSpace);
        }
        Ok(runs)
    }

    fn take_host_space(&self, blocks: u64) -> Result<()> {
        let bytes = blocks * BLOCK_BYTES as u64;
        let enough = |left: u64| left.checked_sub(bytes).filter(|left| *left >= HOST_MARGIN_BYTES);
        match self.host_bytes.fetch_update(Relaxed, Relaxed, enough) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::NoSpace),
        }
    }

    /// The volume's sums, and what can still be written.
    pub fn totals(&self) -> Totals {
        let sums = self.state.lock().sums;
        let free = (sums.data - sums.used).0.saturating_sub(sums.reserved.0 + KEPT_BACK_BLOCKS);
        let host = self.host_bytes.load(Relaxed).saturating_sub(HOST_MARGIN_BYTES) / BLOCK_BYTES as u64;
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
        for _ in 0..ROOM_TRIES_MAX {
            if self.state.lock().wait_for_trim.is_empty() { self.commit()? } else { self.checkpoint()? }
            self.release_waiting();
            let (now, coming) = self.reusable();
            if now > before || !(coming || self.signals.is_reclaiming()) {
                return Ok(now > before);
            }
            thread::sleep(ROOM_TRY);
        }
        Ok(false)
    }

    /// Free blocks that can be handed out now, and whether more are on their way.
    fn reusable(&self) -> (u64, bool) {
        let state = self.state.lock();
        let waiting = state.waiting.iter().flat_map(|waiting| &waiting.runs);
        let pending = waiting.chain(&state.group.freed).chain(&state.wait_for_trim).map(|run| run.blocks).sum::<u64>();
        ((state.sums.data - state.sums.used).0.saturating_sub(pending), pending > 0)
    }
}
