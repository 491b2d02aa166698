//! Free space of an open volume: which blocks are free, which are promised, and what the host has left.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use crate::space::allocator::{Allocator, LoadRegion, Run};
use crate::space::pieces::Pieces;
use crate::state::pins::{EndedEpoch, Pin, Pins};
use crate::sync::{AtomicU64, LockRank, Mutex};
use crate::volume::ballast::Ballast;
use crate::volume::files;
use crate::{BLOCK_BYTES, Blocks, Error, Pbn, Result};

/// Parts of the data area of 128 MiB searched for one free run: each may have to be read from the block table.
const REGIONS_SEARCHED_MAX: usize = 64;
/// Kept free on the host for what follows the log: block table, record store and its compaction.
pub const HOST_MARGIN_BYTES: u64 = 64 << 20;

/// Free blocks and host bytes.
pub struct FreeSpace {
    allocator: Mutex<Allocator>,
    /// Readers: what they may see is not reused.
    pins: Pins,
    /// Bytes that the host can still take, as last looked up, less what was written since.
    host_bytes: AtomicU64,
    /// Blocks allocated by writes that are not published yet.
    blocks_in_flight: AtomicU64,
    /// The volume's directory, if the data area takes its space from the host file system.
    host: Option<PathBuf>,
    /// Pieces of the data area with freed blocks whose space the host does not have back yet.
    punchable: Mutex<Pieces>,
    /// Space set aside on the host, for a full one.
    ballast: Ballast,
}

impl FreeSpace {
    /// Free space of a volume that was just opened.
    pub fn new(allocator: Allocator, host: Option<PathBuf>, ballast: Ballast) -> Self {
        Self {
            allocator: Mutex::new(LockRank::Allocator, allocator),
            pins: Pins::default(),
            host_bytes: AtomicU64::new(u64::MAX),
            blocks_in_flight: AtomicU64::new(0),
            host,
            punchable: Mutex::new(LockRank::Part, Default::default()),
            ballast,
        }
    }

    /// Keeps every block that is reachable now from being reused. Take the pin before looking at a map.
    pub fn pin(&self) -> Pin {
        self.pins.pin()
    }

    /// Begins a new epoch of pins, and gives the old one, to be asked whether its readers are done.
    pub fn end_epoch(&self) -> EndedEpoch {
        self.pins.advance()
    }

    /// Counts `blocks` blocks as in flight. Gives how many others were.
    pub fn count_in_flight(&self, blocks: u64) -> u64 {
        self.blocks_in_flight.fetch_add(blocks, Relaxed)
    }

    /// Blocks in flight were published or given back.
    pub fn landed(&self, blocks: u64) {
        let before = self.blocks_in_flight.fetch_sub(blocks, Relaxed);
        assert!(before >= blocks, "{blocks} blocks landed, but {before} were in flight");
    }

    /// Allocates exactly `blocks` blocks: as few runs, or none and `NoSpace`.
    pub fn allocate(&self, blocks: u64, load: LoadRegion<'_>) -> Result<Vec<Run>> {
        let mut allocator = self.allocator.lock();
        let mut runs = allocator.allocate(blocks, load)?;
        let length = |runs: &[Run]| runs.iter().map(|run| run.blocks).sum::<u64>();
        if length(&runs) < blocks {
            allocator.distrust_advice();
            match allocator.allocate(blocks - length(&runs), load) {
                Ok(more) => runs.extend(more),
                Err(error) => {
                    runs.iter().for_each(|run| allocator.release(*run));
                    return Err(error);
                }
            }
        }
        if length(&runs) < blocks {
            runs.iter().for_each(|run| allocator.release(*run));
            return Err(Error::NoSpace);
        }
        assert_eq!(length(&runs), blocks, "blocks allocated, and asked for");
        Ok(runs)
    }

    /// Allocates one block, far from another one if possible.
    pub fn allocate_far(&self, from: Pbn, load: LoadRegion<'_>) -> Result<Run> {
        let taken = self.allocator.lock().allocate_far(from, load)?;
        taken.map(|pbn| Run { pbn, blocks: 1 }).ok_or(Error::NoSpace)
    }

    /// Allocates consecutive blocks. None: the regions that were searched have no such free run.
    pub fn allocate_run(&self, blocks: u64, load: LoadRegion<'_>) -> Result<Option<Run>> {
        let found = self.allocator.lock().allocate_run(blocks, REGIONS_SEARCHED_MAX, load)?;
        assert!(found.is_none_or(|run| run.blocks == blocks), "{found:?} for {blocks} blocks");
        Ok(found)
    }

    /// Takes the free runs of at least `run_blocks_min` blocks in a piece of one region, so that nobody writes there.
    pub fn take_free_within(&self, piece: Run, run_blocks_min: u64, load: LoadRegion<'_>) -> Result<Vec<Run>> {
        self.allocator.lock().take_free_within(piece, run_blocks_min, load)
    }

    /// Makes blocks free again that were taken and never published.
    pub fn give_back(&self, runs: &[Run]) {
        let mut allocator = self.allocator.lock();
        runs.iter().for_each(|run| allocator.release(*run));
    }

    /// Makes blocks free that were published once. `find` names them under the allocator's lock, so that none is handed
    /// out before its state is settled; `forget` drops what memory has of them. False: `find` found nothing to do.
    pub fn release(&self, find: impl FnOnce() -> Option<Vec<Run>>, forget: impl Fn(Run)) -> bool {
        let mut allocator = self.allocator.lock();
        let Some(runs) = find() else { return false };
        for run in &runs {
            forget(*run);
            allocator.release(*run);
        }
        self.punchable.lock().note(&runs);
        true
    }

    /// Takes a larger data area into use. Its device has the space already.
    pub fn grow(&self, data: Blocks) {
        self.allocator.lock().grow(data);
    }

    /// Free counts of all regions, if they changed since the last call.
    pub fn changed_advice(&self) -> Option<Vec<u16>> {
        self.allocator.lock().changed_advice()
    }

    /// Whether a block is free, as far as its region was looked at.
    pub fn is_known_free(&self, pbn: Pbn) -> bool {
        self.allocator.lock().is_known_free(pbn)
    }

    /// Some pieces of the data area that may have holes to punch; they are not given again. None are left: empty.
    pub fn take_punchable(&self) -> Vec<Run> {
        self.punchable.lock().take_some()
    }

    /// Takes host bytes for so many blocks; `NoSpace` if the margin would suffer.
    pub fn take_host_bytes(&self, blocks: u64) -> Result<()> {
        let bytes = blocks * BLOCK_BYTES as u64;
        let enough = |left: u64| left.checked_sub(bytes).filter(|left| *left >= HOST_MARGIN_BYTES);
        match self.host_bytes.fetch_update(Relaxed, Relaxed, enough) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::NoSpace),
        }
    }

    /// Asks the host how much it can still take.
    pub fn look_up_host(&self) {
        if let Some(bytes) = self.host.as_deref().and_then(files::host_bytes) {
            self.set_host_bytes(bytes);
        }
    }

    /// The host can take so much more.
    pub fn set_host_bytes(&self, bytes: u64) {
        self.host_bytes.store(bytes, Relaxed);
    }

    /// Whether the host is so full that what it has left is for the requests of programs.
    pub fn is_host_short(&self) -> bool {
        self.host_bytes.load(Relaxed) < 2 * HOST_MARGIN_BYTES
    }

    /// Blocks that the host can still take, its margin left out.
    pub fn host_blocks_left(&self) -> u64 {
        self.host_bytes.load(Relaxed).saturating_sub(HOST_MARGIN_BYTES) / BLOCK_BYTES as u64
    }

    /// Sets space aside on the host.
    pub fn fill_ballast(&self) -> io::Result<()> {
        self.ballast.fill()
    }

    /// Gives the host the space that was set aside. True: there was some.
    pub fn drop_ballast(&self) -> bool {
        self.ballast.drop_it()
    }
}

#[cfg(test)]
impl FreeSpace {
    /// Blocks allocated and neither published nor given back.
    pub fn blocks_in_flight(&self) -> u64 {
        self.blocks_in_flight.load(Relaxed)
    }
}
