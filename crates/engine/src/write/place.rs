//! Place: new blocks are allocated, and written to the data area or kept in memory. Nothing is visible yet.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::part;
use crate::place::free_blocks::{Claim, FreeBlocks};
use crate::place::write_out::{BlockWriter, Look};
use crate::space::allocator::Run;
use crate::write::batch::{Batch, Outcome};
use crate::write::under_way::UnderWay;
use crate::{BLOCK_BYTES, Result};

/// Writes of at least this many new blocks go to the data area at once. Smaller ones are collected in memory, so that
/// scattered small writes become few large ones, or ride in the log.
const DIRECT_BLOCKS_MIN: usize = 32;

part! {
    /// Places new blocks.
    pub struct Placer {
        pub(super) base: stats, hasher, staging;
        free_blocks: FreeBlocks, block_writer: BlockWriter, under_way: UnderWay
    }
}

impl Placer {
    /// Computes the missing fingerprints of these blocks.
    pub fn fingerprint(&self, batch: &mut Batch, indexes: &[usize]) {
        let unknown: Vec<usize> =
            indexes.iter().copied().filter(|index| batch.fingerprints[*index].is_none()).collect();
        let blocks: Vec<&[u8]> = unknown.iter().map(|index| batch.block(*index)).collect();
        let mut fingerprints = Vec::with_capacity(blocks.len());
        self.hasher.fingerprints(&blocks, &mut fingerprints);
        self.stats.counters.blocks_fingerprinted.fetch_add(blocks.len() as u64, Relaxed);
        for (index, fingerprint) in unknown.into_iter().zip(fingerprints) {
            batch.fingerprints[index] = Some(fingerprint);
        }
    }

    /// Allocates new blocks and writes or stages them. Nothing is visible yet.
    pub fn place(&self, batch: &mut Batch, claim: Claim) -> Result<Vec<Run>> {
        let anew = batch.indexes(|outcome| outcome == Outcome::Anew(None));
        if anew.is_empty() {
            return Ok(Vec::new());
        }
        let runs = self.free_blocks.allocate(anew.len() as u64, claim)?;
        let from_reserved = if let Claim::Ordinary { from_reserved } = claim { from_reserved } else { 0 };
        batch.from_reserved += from_reserved;
        batch.claimed += anew.len() as u64 - from_reserved;
        let allocated: u64 = runs.iter().map(|run| run.blocks).sum();
        assert_eq!(allocated, anew.len() as u64, "as many blocks are allocated as are placed");
        let pbns = runs.iter().flat_map(|run| (0..run.blocks).map(|n| run.pbn.plus(n)));
        for (&index, pbn) in anew.iter().zip(pbns) {
            batch.outcomes[index] = Outcome::Anew(Some(pbn));
        }
        self.stats.counters.blocks_placed.fetch_add(anew.len() as u64, Relaxed);
        let direct = anew.len() - batch.open.len().min(anew.len());
        let direct = if direct < DIRECT_BLOCKS_MIN { 0 } else { direct };
        self.announce(batch, &anew, runs.clone());
        if let Err(error) = self.write_placed(batch, &anew[..direct], &first_blocks(&runs, direct as u64)) {
            self.free_blocks.unclaim(std::mem::take(&mut batch.claimed));
            self.free_blocks.give_back_unclaimed(&runs);
            return Err(error);
        }
        if batch.fingerprints_all {
            self.fingerprint(batch, &anew[direct..]);
        }
        // After everything that can fail: blocks that are given back must not be in memory.
        anew[direct..].iter().for_each(|index| self.stage(batch, *index));
        Ok(runs)
    }

    /// Writes blocks to the runs where they are placed. If they get fingerprints, these are computed while the device
    /// writes, so they cost device time instead of the writer's.
    fn write_placed(&self, batch: &mut Batch, indexes: &[usize], runs: &[Run]) -> Result<()> {
        let mut blocks = indexes.iter().map(|index| batch.block(*index));
        let mut fingerprints = Vec::new();
        let mut hash = |bytes: &[u8]| {
            let blocks: Vec<&[u8]> = bytes.chunks_exact(BLOCK_BYTES).collect();
            self.hasher.fingerprints(&blocks, &mut fingerprints);
        };
        for run in runs {
            let look: Option<Look<'_>> = if batch.fingerprints_all { Some(&mut hash) } else { None };
            self.block_writer.write_run_while(*run, &mut blocks, look)?;
        }
        self.stats.counters.blocks_fingerprinted.fetch_add(fingerprints.len() as u64, Relaxed);
        for (index, fingerprint) in indexes.iter().zip(fingerprints) {
            batch.fingerprints[*index] = Some(fingerprint);
        }
        Ok(())
    }

    /// Lets other requests find these blocks, which lie or are numbered in `runs`, while the device writes them.
    pub(super) fn announce(&self, batch: &mut Batch, indexes: &[usize], runs: Vec<Run>) {
        let blocks: Vec<_> =
            indexes.iter().filter_map(|index| Some((batch.tags[*index], batch.pbn(*index)?))).collect();
        assert_eq!(blocks.len(), indexes.len(), "each announced block is placed");
        batch.announced.push(self.under_way.announce(&blocks, runs, batch.fingerprints_all));
    }

    /// Ends the claims of a batch that is not published, and frees what was allocated for it.
    pub fn give_up(&self, batch: &mut Batch, runs: &[Run]) {
        self.staging.remove(runs.iter().flat_map(|run| run.pbns()));
        self.free_blocks.unclaim(std::mem::take(&mut batch.claimed));
        self.free_blocks.give_back_unclaimed(runs);
        let placed = (0..batch.len()).filter_map(|index| match batch.outcomes[index] {
            Outcome::Anew(Some(pbn)) => Some((batch.tags[index], pbn)),
            _ => None,
        });
        self.under_way.withdraw(&placed.collect::<Vec<_>>());
        batch.announced.clear();
    }

    /// Keeps a placed block's content in memory.
    pub fn stage(&self, batch: &mut Batch, index: usize) {
        let pbn = batch.pbn(index).expect("a block is placed before it is staged");
        self.staging.put(pbn, batch.block(index));
        batch.staged.push(pbn);
    }
}

/// The first blocks of some runs.
fn first_blocks(runs: &[Run], mut blocks: u64) -> Vec<Run> {
    let mut first = Vec::with_capacity(runs.len());
    for run in runs {
        let part = run.blocks.min(blocks);
        if part > 0 {
            first.push(Run { pbn: run.pbn, blocks: part });
        }
        blocks -= part;
    }
    assert_eq!(blocks, 0, "the runs hold so many blocks");
    first
}
