//! Free space of an open volume: which blocks are free or promised, how much room the host has left, and which freed
//! pieces can go back to it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::format::fragment::{FIRST_NUMBER, is_fragment};
use crate::objects::pool_room::ObjectRoom;
use crate::space::allocator::{Allocator, REGION_BLOCKS, Request, Run, Step, blocks_in};
use crate::space::ballast::Ballast;
use crate::space::bitmap::Bitmap;
use crate::space::host::{HOST_MARGIN_BYTES, Host};
use crate::space::pins::{EndedEpoch, Pins};
use crate::sync::{AtomicU64, LockRank, Mutex, MutexGuard};
use crate::{BLOCK_BYTES, Blocks, Error, Pbn, Result};

/// Regions (128 MiB of the data area) searched for one free run: each may have to be read from the block table.
const REGIONS_SEARCHED_MAX: usize = 64;

/// Builds a region's bitmap from the block table, without the allocator's lock.
pub type LoadRegion<'a> = &'a mut dyn FnMut(u64) -> Result<Bitmap>;

/// The blocks and numbers that are handed out and given back.
struct Allocators {
    /// Blocks of the data area.
    blocks: Allocator,
    /// Numbers of fragments, counted from the first one.
    numbers: Allocator,
}

impl Allocators {
    fn release(&mut self, run: Run) {
        match run.pbn.0.checked_sub(FIRST_NUMBER) {
            None => self.blocks.release(run),
            Some(number) => self.numbers.release(Run { pbn: Pbn(number), ..run }),
        }
    }
}

/// What is wrong with the pools of a volume in objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolShortage {
    /// The pool takes no new data.
    pub own: bool,
    /// The pool of the data area alone takes none.
    pub data: bool,
    /// The cluster does not answer.
    pub silent: bool,
}

/// Free blocks and host bytes.
pub struct FreeSpace {
    allocators: Mutex<Allocators>,
    /// Held while the table of fragments grows, so that two writers do not take the same pages for new ones.
    growing_numbers: Mutex<()>,
    /// Pins of readers: blocks that they may see are not reused.
    pins: Arc<Pins>,
    /// Bytes that the host can still take, as last looked up, less those written since.
    host_bytes: AtomicU64,
    /// The provider of the data area's space, unless it is a raw device.
    host: Option<Host>,
    /// Pieces of the data area with freed blocks whose space was not returned to the host yet.
    punchable: Mutex<Pieces>,
    /// Space set aside on the host, for a full one.
    ballast: Ballast,
}

impl FreeSpace {
    /// Free space of a volume that was just opened.
    pub fn new(blocks: Allocator, numbers: Allocator, pins: Arc<Pins>, host: Option<Host>, ballast: Ballast) -> Self {
        Self {
            allocators: Mutex::new(LockRank::Allocator, Allocators { blocks, numbers }),
            growing_numbers: Mutex::new(LockRank::Numbers, ()),
            pins,
            host_bytes: AtomicU64::new(u64::MAX),
            host,
            punchable: Mutex::new(LockRank::Part, Default::default()),
            ballast,
        }
    }

    /// Begins a new epoch of pins, and returns the old one, which tells whether its readers are done.
    pub fn end_epoch(&self) -> EndedEpoch {
        self.pins.advance()
    }

    /// Calls the allocator until it has what it needs. A region is loaded without the allocator's lock, because every
    /// writer and every commit that frees blocks waits for that.
    fn ask<T>(&self, load: LoadRegion<'_>, mut ask: impl FnMut(&mut Allocator) -> Step<T>) -> Result<T> {
        loop {
            let step = ask(&mut self.allocators.lock().blocks);
            match step {
                Step::Done(found) => return Ok(found),
                Step::Load(region) => {
                    let bitmap = load(region)?;
                    self.allocators.lock().blocks.admit(region, bitmap);
                }
            }
        }
    }

    /// Takes free numbers of fragments, in as few runs as possible. Fewer: no more are free.
    pub fn take_numbers(&self, count: u64, load: LoadRegion<'_>) -> Result<Vec<Run>> {
        let mut request = Request::new(count);
        loop {
            let step = self.allocators.lock().numbers.allocate(&mut request);
            let Step::Load(region) = step else { break };
            match load(region) {
                Ok(bitmap) => self.allocators.lock().numbers.admit(region, bitmap),
                Err(error) => {
                    let taken = request.into_runs();
                    taken.iter().for_each(|run| self.allocators.lock().numbers.release(*run));
                    return Err(error);
                }
            }
        }
        let absolute = |run: Run| Run { pbn: run.pbn.plus(FIRST_NUMBER), ..run };
        Ok(request.into_runs().into_iter().map(absolute).collect())
    }

    /// Keeps other threads from enlarging the table of fragments.
    pub fn begin_growing_numbers(&self) -> MutexGuard<'_, ()> {
        self.growing_numbers.lock()
    }

    /// Adds numbers of fragments, up to this many. Their entries have room already.
    pub fn grow_numbers(&self, numbers: u64) {
        self.allocators.lock().numbers.grow(Blocks(numbers));
    }

    /// Allocates exactly `blocks` blocks in as few runs as possible, or none and returns `NoSpace`.
    pub fn allocate(&self, blocks: u64, load: LoadRegion<'_>) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        // Advice may be too low. If it yields too little, every region is searched.
        for is_advised in [true, false] {
            if !is_advised {
                self.allocators.lock().blocks.distrust_advice();
            }
            let mut request = Request::new(blocks - blocks_in(&runs));
            let found = self.ask(&mut *load, |allocator| allocator.allocate(&mut request));
            runs.extend(request.into_runs());
            if let Err(error) = found {
                self.give_back(&runs);
                return Err(error);
            }
            if blocks_in(&runs) == blocks {
                return Ok(runs);
            }
        }
        self.give_back(&runs);
        Err(Error::NoSpace)
    }

    /// Allocates one block, far from another one if possible.
    pub fn allocate_far(&self, from: Pbn, load: LoadRegion<'_>) -> Result<Run> {
        let taken = self.ask(load, |allocator| allocator.allocate_far(from))?;
        taken.map(|pbn| Run { pbn, blocks: 1 }).ok_or(Error::NoSpace)
    }

    /// Allocates consecutive blocks. None: the searched regions have no such free run.
    pub fn allocate_run(&self, blocks: u64, load: LoadRegion<'_>) -> Result<Option<Run>> {
        let found = self.ask(load, |allocator| allocator.allocate_run(blocks, REGIONS_SEARCHED_MAX))?;
        assert!(found.is_none_or(|run| run.blocks == blocks), "{found:?} for {blocks} blocks");
        Ok(found)
    }

    /// Takes the free runs of at least `run_blocks_min` blocks in a piece of one region, so that no write goes there.
    pub fn take_free_within(&self, piece: Run, run_blocks_min: u64, load: LoadRegion<'_>) -> Result<Vec<Run>> {
        self.ask(load, |allocator| allocator.take_free_within(piece, run_blocks_min))
    }

    /// Frees blocks and numbers that were taken and never published.
    pub fn give_back(&self, runs: &[Run]) {
        let mut allocators = self.allocators.lock();
        runs.iter().for_each(|run| allocators.release(*run));
    }

    /// Frees blocks and numbers that were once published. `find` names them under the allocator's lock, so that none is
    /// handed out before its state is settled. `forget` drops their cached content. False: `find` found nothing to do.
    pub fn release(&self, find: impl FnOnce() -> Option<Vec<Run>>, forget: impl Fn(Run)) -> bool {
        let mut allocators = self.allocators.lock();
        let Some(mut runs) = find() else { return false };
        for run in &runs {
            forget(*run);
            allocators.release(*run);
        }
        runs.retain(|run| !is_fragment(run.pbn));
        self.punchable.lock().note(&runs);
        true
    }

    /// Adds the blocks of a larger data area. Its device has the space already.
    pub fn grow(&self, data: Blocks) {
        self.allocators.lock().blocks.grow(data);
    }

    /// Free counts of all regions, if they changed since the last call.
    pub fn changed_advice(&self) -> Option<Vec<u16>> {
        self.allocators.lock().blocks.changed_advice()
    }

    /// Whether a block is free, as far as its region is known.
    pub fn is_known_free(&self, pbn: Pbn) -> bool {
        let allocators = self.allocators.lock();
        match pbn.0.checked_sub(FIRST_NUMBER) {
            None => allocators.blocks.is_known_free(pbn),
            Some(number) => allocators.numbers.is_known_free(Pbn(number)),
        }
    }

    /// Some pieces of the data area that may have holes to punch. Each is returned once. Empty: none are left.
    pub fn take_punchable(&self) -> Vec<Run> {
        self.punchable.lock().take_some()
    }

    /// Takes host bytes for this many blocks. Returns `NoSpace` if that would cut into the margin.
    pub fn take_host_bytes(&self, blocks: u64) -> Result<()> {
        if self.host.as_ref().is_some_and(Host::is_full) {
            return Err(Error::NoSpace);
        }
        let bytes = blocks * BLOCK_BYTES as u64;
        let enough = |left: u64| left.checked_sub(bytes).filter(|left| *left >= HOST_MARGIN_BYTES);
        match self.host_bytes.fetch_update(Relaxed, Relaxed, enough) {
            Ok(_) => {
                self.host.iter().for_each(|host| host.take(bytes));
                Ok(())
            }
            Err(_) => Err(Error::NoSpace),
        }
    }

    /// Which pool with the volume's objects takes no new data, and whether the cluster does not answer.
    pub fn pool_shortage(&self) -> PoolShortage {
        let Some(Host::Pools(rooms)) = &self.host else { return PoolShortage::default() };
        let is_short = |room: &ObjectRoom| room.is_full() || room.look() < HOST_MARGIN_BYTES;
        let (own, data) = match &rooms.data {
            Some(data) => (is_short(&rooms.own), is_short(data)),
            // By the bytes that decide on writes.
            None => (rooms.is_full() || self.host_bytes.load(Relaxed) < HOST_MARGIN_BYTES, false),
        };
        PoolShortage { own, data, silent: rooms.is_silent() }
    }

    /// Asks the host how much it can still take.
    pub fn look_up_host(&self) {
        if let Some(bytes) = self.host.as_ref().and_then(Host::bytes_left) {
            self.set_host_bytes(bytes);
        }
    }

    /// Whether the host has no room by figures that are older than what was taken of it, and later ones may show some.
    pub fn awaits_figures(&self) -> bool {
        self.is_host_short() && self.host.as_ref().is_some_and(Host::may_turn_out_larger)
    }

    /// Sets how many bytes the host can still take.
    pub fn set_host_bytes(&self, bytes: u64) {
        self.host_bytes.store(bytes, Relaxed);
    }

    /// Whether the host is so full that the rest is kept for the requests of programs.
    pub fn is_host_short(&self) -> bool {
        self.host_bytes.load(Relaxed) < 2 * HOST_MARGIN_BYTES
    }

    /// Blocks that the host can still take, excluding its margin.
    pub fn host_blocks_left(&self) -> u64 {
        self.host_bytes.load(Relaxed).saturating_sub(HOST_MARGIN_BYTES) / BLOCK_BYTES as u64
    }

    /// Writes to the data area. If the data area takes its space from the host and the host is full, it uses the
    /// ballast.
    pub fn with_host_room<T>(&self, mut write: impl FnMut() -> Result<T>) -> Result<T> {
        if matches!(self.host, Some(Host::Directory(_))) {
            self.ballast.retry_releasing_reserve(write)
        } else {
            write()
        }
    }

    /// Space set aside on the host.
    pub fn ballast(&self) -> &Ballast {
        &self.ballast
    }
}

/// Pieces are cut and joined at multiples of this many blocks (256 KiB).
const PIECE_BLOCKS: u64 = 64;
/// Pieces punched in one go.
const PORTION: usize = 256;
/// If this many pieces (64 GiB) wait on a volume that is never idle, the first ones are dropped: their space returns to
/// the host when they are freed again, and memory stays bounded.
const WAITING_MAX: usize = 1 << 18;

/// Pieces that wait to be punched, by number.
#[derive(Default)]
pub struct Pieces {
    waiting: BTreeSet<u64>,
}

impl Pieces {
    /// Notes freed runs.
    pub fn note(&mut self, runs: &[Run]) {
        self.waiting.extend(runs.iter().flat_map(pieces_of));
        while self.waiting.len() > WAITING_MAX {
            self.waiting.pop_first();
        }
    }

    /// Takes some pieces out, as runs. Neighbours within a region are joined.
    pub fn take_some(&mut self) -> Vec<Run> {
        let later = self.waiting.iter().nth(PORTION).copied();
        let later = later.map(|piece| self.waiting.split_off(&piece)).unwrap_or_default();
        let taken = std::mem::replace(&mut self.waiting, later);
        assert!(taken.len() <= PORTION, "{} pieces in one portion", taken.len());
        joined_pieces(&taken)
    }
}

/// Numbers of the aligned pieces that a run touches.
fn pieces_of(run: &Run) -> Range<u64> {
    assert!(run.blocks > 0, "no block was freed at {}", run.pbn);
    run.pbn.0 / PIECE_BLOCKS..run.end().0.div_ceil(PIECE_BLOCKS)
}

/// The pieces as runs. Neighbours within a region are joined.
fn joined_pieces(numbers: &BTreeSet<u64>) -> Vec<Run> {
    let mut pieces: Vec<Run> = Vec::new();
    for number in numbers {
        let pbn = Pbn(number * PIECE_BLOCKS);
        match pieces.last_mut() {
            Some(last) if last.end() == pbn && !pbn.0.is_multiple_of(REGION_BLOCKS) => last.blocks += PIECE_BLOCKS,
            _ => pieces.push(Run { pbn, blocks: PIECE_BLOCKS }),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_joined_and_end_at_regions() {
        let joined = |runs: &[Run]| joined_pieces(&runs.iter().flat_map(pieces_of).collect());
        let runs = [Run { pbn: Pbn(70), blocks: 10 }, Run { pbn: Pbn(100), blocks: 60 }];
        assert_eq!(joined(&runs), [Run { pbn: Pbn(64), blocks: 128 }]);
        let at_border = [Run { pbn: Pbn(REGION_BLOCKS - 1), blocks: 2 }];
        assert_eq!(joined(&at_border).len(), 2);
    }
}
