//! Accounts of files computed from their maps, and which blocks cost nothing.
//!
//! An account that is not in memory is computed from the map: from all its blocks, or from the last 64 MiB before the
//! place of a write, which must not wait for more. Such a window says nothing about the rest of the file.

use std::cmp::Reverse;

use hashbrown::{HashMap, HashSet};
use oncefs_dedup::{Candidates, FilePieces, PieceCounter};

use crate::format::extent_leaf::Target;
use crate::format::keys::{LEAF_BLOCKS, LeafKey};
use crate::policy::accounts::Counted;
use crate::policy::effective::FilePolicies;
use crate::{Lbn, MapId, Pbn, Result};

/// Blocks with this many references are in the memory of every reader of the volume: the read cache admits them first.
pub const REFS_FREE_MIN: u32 = 256;
/// Most such blocks in one request.
const FREE_BLOCKS_MAX: usize = 8;
/// Most leaves that a write reads.
const LEAVES_OF_WRITE_MAX: u64 = 64;
/// The same for a write that holds its map's lock, which other requests need.
const LEAVES_OF_LOCKED_MAX: u64 = 4;
/// Leaves read at a time.
const PORTION_LEAVES: usize = 64;
/// Most leaves that the worker reads: 16 GiB of a file. Blocks beyond these do not count.
const LEAVES_OF_WORKER_MAX: usize = 16_384;

impl FilePolicies {
    /// Begins the account of a file, or counts it anew: the whole file if it is small, otherwise its last blocks before
    /// a place, and only few of them while the map is locked. If they cannot be read it is empty, because no write
    /// depends on it.
    pub fn count_before(&self, map: MapId, place: Lbn, is_map_locked: bool) {
        let (leaves_max, part) = match is_map_locked {
            true => (LEAVES_OF_LOCKED_MAX, Counted::Few),
            false => (LEAVES_OF_WRITE_MAX, Counted::Window),
        };
        let end = place.0.div_ceil(LEAF_BLOCKS);
        let from = end.saturating_sub(leaves_max);
        let counted = self.count_pieces(map, from, leaves_max as usize);
        let (pieces, reaches_end) = counted.unwrap_or_else(|error| {
            log::debug!("cannot read map {} for its account: {error}", map.0);
            (FilePieces::default(), false)
        });
        let counted = if from == 0 && reaches_end { Counted::Whole } else { part };
        self.policy.accounts().set(map, pieces, counted);
    }

    /// The account of a file, computed from all its blocks if memory has none that counts them. The caller does not hold
    /// the map's lock.
    pub fn account(&self, map: MapId) -> Result<FilePieces> {
        let accounts = self.policy.accounts();
        let is_part = |counted| matches!(counted, Some(Counted::Window | Counted::Few));
        if let Some(known) = accounts.get(map).filter(|_| !is_part(accounts.counted(map))) {
            return Ok(known);
        }
        let (pieces, reaches_end) = self.count_pieces(map, 0, LEAVES_OF_WORKER_MAX)?;
        accounts.set(map, pieces, if reaches_end { Counted::Whole } else { Counted::Most });
        Ok(pieces)
    }

    /// Blocks and pieces of at most `leaves_max` leaves of a map, starting at `from`, and whether no leaf follows them.
    /// The result may be out of date.
    fn count_pieces(&self, map: MapId, from: u64, leaves_max: usize) -> Result<(FilePieces, bool)> {
        let gap_blocks_max = self.policy.device_reads().piece_cost().gap_blocks_max();
        let (mut blocks, mut counter) = (0, PieceCounter::default());
        let (mut from, mut left) = (from, leaves_max);
        let mut reaches_end = false;
        while left > 0 && !reaches_end {
            // One more than are counted, to know whether any follows.
            let portion = left.min(PORTION_LEAVES);
            let leaves = self.metadata.stored_leaves(map, from, portion + 1)?;
            reaches_end = leaves.len() <= portion;
            for &leaf in leaves.iter().take(portion) {
                for extent in self.metadata.leaf(LeafKey { map, leaf })?.extents() {
                    if let Target::Data(pbn) = extent.target {
                        blocks += u64::from(extent.blocks);
                        counter.add(pbn.0, u64::from(extent.blocks), gap_blocks_max);
                    }
                }
            }
            left -= portion;
            from = leaves.last().copied().unwrap_or(from);
        }
        Ok((FilePieces::of_file(blocks, counter.pieces()), reaches_end))
    }

    /// Which holders have so many references that every reader has them in memory, as far as the table is in memory:
    /// the few blocks with the most references. Each may cost a reader one read, and any user can refer to a block of
    /// their own many times. So the number of blocks that cost nothing is bounded.
    pub fn in_every_memory(&self, candidates: &[Candidates]) -> HashSet<Pbn> {
        let mut popular: HashMap<Pbn, usize> = HashMap::new();
        let holders = || candidates.iter().flat_map(|block| block.holders).copied();
        let references = self.metadata.references_of(holders());
        for (pbn, _) in holders().zip(references).filter(|(_, references)| *references >= REFS_FREE_MIN) {
            *popular.entry(pbn).or_default() += 1;
        }
        let mut most: Vec<(usize, Pbn)> = popular.into_iter().map(|(pbn, blocks)| (blocks, pbn)).collect();
        most.sort_unstable_by_key(|(blocks, pbn)| (Reverse(*blocks), *pbn));
        most.into_iter().take(FREE_BLOCKS_MAX).map(|(_, pbn)| pbn).collect()
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;
    use crate::Blocks;
    use crate::tests::fixture::{Devices, one_level, unique};

    #[test]
    fn of_blocks_that_somebody_made_popular_few_cost_nothing() {
        const BLOCKS: u64 = 20;
        let volume = Devices::new(Blocks(40_000), one_level()).open();
        let (source, target) = (MapId(1), MapId(2));
        volume.write(source, 0, &unique(BLOCKS as usize, 1), |_, _| ()).unwrap();
        for n in 0..u64::from(REFS_FREE_MIN) {
            volume.clone_blocks((source, Lbn(0)), (target, Lbn(n * BLOCKS)), Blocks(BLOCKS), |_, _| ()).unwrap();
        }
        let leaf = volume.metadata.leaf(LeafKey { map: source, leaf: 0 }).unwrap();
        let Target::Data(first) = leaf.extents()[0].target else { panic!("{leaf:?}") };
        let pbns: Vec<Pbn> = (0..BLOCKS).map(|n| first.plus(n)).collect();
        // The last one is the file's main content.
        let holders: Vec<&[Pbn]> = pbns.chunks(1).chain(pbns.chunks(1).skip(19)).collect();
        let blocks: Vec<Candidates> =
            holders.into_iter().map(|holders| Candidates { holders, current: None }).collect();
        let free = volume.file_policies.in_every_memory(&blocks);
        assert_eq!(free.len(), FREE_BLOCKS_MAX);
        assert!(free.contains(&pbns[19]) && free.contains(&pbns[0]) && !free.contains(&pbns[18]), "{free:?}");
    }
}
