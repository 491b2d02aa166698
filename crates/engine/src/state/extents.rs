//! The leaves and extents that maps have, read in portions: of a range, of one map, or of all maps.

use std::ops::Range;

use crate::format::extent_leaf::{Extent, LEAF_BLOCKS, Target};
use crate::format::keys::{self, LeafKey};
use crate::format::page::page_of;
use crate::state::loading::Metadata;
use crate::{Error, MapId, Pbn, Result};

/// Leaves that are loaded together.
const PORTION_LEAVES: usize = 64;
/// A range of so few leaves is not searched for those that hold something: a look-up of one leaf costs less than a
/// scan.
const FEW_LEAVES: u64 = 2;

impl Metadata {
    /// Calls `visit` with each leaf of a range that may hold something, in order, until `visit` returns false.
    pub fn each_leaf(&self, map: MapId, blocks: &Range<u64>, mut visit: impl FnMut(u64) -> Result<bool>) -> Result<()> {
        let mut at = blocks.start / LEAF_BLOCKS;
        let end = blocks.end.div_ceil(LEAF_BLOCKS);
        if end.saturating_sub(at) <= FEW_LEAVES {
            (at..end).try_fold(true, |goes_on, leaf| if goes_on { visit(leaf) } else { Ok(false) })?;
            return Ok(());
        }
        loop {
            let leaves = self.stored_leaves(map, at, PORTION_LEAVES)?;
            for &leaf in leaves.iter().take_while(|leaf| **leaf * LEAF_BLOCKS < blocks.end) {
                if !visit(leaf)? {
                    return Ok(());
                }
            }
            match leaves.last() {
                Some(last) if leaves.len() == PORTION_LEAVES && (last + 1) * LEAF_BLOCKS < blocks.end => at = last + 1,
                _ => return Ok(()),
            }
        }
    }

    /// Visits the extents that the leaves of a range have.
    pub fn visit_extents(&self, map: MapId, blocks: &Range<u64>, mut visit: impl FnMut(Extent)) -> Result<()> {
        self.each_leaf(map, blocks, |leaf| {
            let (start, end) = within_leaf(leaf, blocks);
            if start < end {
                self.leaf(LeafKey { map, leaf })?.slice(start, end).for_each(&mut visit);
            }
            Ok(true)
        })
    }

    /// Leaves of a map that may hold something, from number `from` on, in order, at most `limit`. Those that a pending
    /// clone lacks are its source's.
    pub fn stored_leaves(&self, map: MapId, from: u64, limit: usize) -> Result<Vec<u64>> {
        let sources = self.state.lock().clones.sources(map);
        let mut leaves = Vec::new();
        // The last source first: a leaf that a clone takes meanwhile is seen in one of the two.
        for (source, within) in sources.into_iter().rev() {
            let stored = self.own_leaves(source, from.max(within.start), limit)?;
            leaves.extend(stored.into_iter().filter(|leaf| *leaf < within.end));
        }
        leaves.extend(self.own_leaves(map, from, limit)?);
        leaves.sort_unstable();
        leaves.dedup();
        leaves.truncate(limit);
        Ok(leaves)
    }

    /// The same, without those that a pending clone lacks.
    pub fn own_leaves(&self, map: MapId, from: u64, limit: usize) -> Result<Vec<u64>> {
        let mut leaves = self.state.lock().leaves.in_memory(map, from, limit);
        let bounds = (keys::leaf(LeafKey { map, leaf: from }), keys::leaf(LeafKey { map: MapId(map.0 + 1), leaf: 0 }));
        let stored = self.stored.scan(&bounds.0, &bounds.1, limit)?;
        leaves.extend(stored.iter().filter_map(|(key, _)| keys::parse_leaf(key)).map(|key| key.leaf));
        leaves.sort_unstable();
        leaves.dedup();
        leaves.truncate(limit);
        Ok(leaves)
    }

    /// Leaves of all maps that may hold something, from one on, in order, about `limit` of them, and where to continue.
    pub fn leaves_from(&self, from: LeafKey, limit: usize) -> Result<(Vec<LeafKey>, Option<LeafKey>)> {
        let end = keys::leaf(LeafKey { map: MapId(u64::MAX), leaf: u64::MAX });
        // Memory first: a checkpoint in between moves leaves from memory into the sorted state.
        let in_memory = self.state.lock().leaves.keys_from(from, limit);
        let stored = self.stored.scan(&keys::leaf(from), &end, limit)?;
        let mut found: Vec<LeafKey> = stored.iter().filter_map(|(key, _)| keys::parse_leaf(key)).collect();
        let mut last = found.last().copied().filter(|_| stored.len() == limit);
        if in_memory.len() == limit {
            last = [last, in_memory.last().copied()].into_iter().flatten().min();
        }
        found.extend(in_memory);
        found.sort_unstable();
        found.dedup();
        found.retain(|key| last.is_none_or(|last| *key <= last));
        Ok((found, last.map(|last| LeafKey { map: last.map, leaf: last.leaf + 1 })))
    }

    /// Refuses a map that was detached. While its lock is held it cannot be detached.
    pub fn attached(&self, map: MapId) -> Result<()> {
        if self.state.lock().is_detached(map) { Err(Error::MapDetached) } else { Ok(()) }
    }
}

/// The part of `blocks` that lies in a leaf, in block numbers of the leaf.
pub fn within_leaf(leaf: u64, blocks: &Range<u64>) -> (u16, u16) {
    let inside = |block: u64| block.saturating_sub(leaf * LEAF_BLOCKS).min(LEAF_BLOCKS) as u16;
    (inside(blocks.start), inside(blocks.end))
}

/// The distinct pages of the block table that extents refer to, in order.
pub fn pages_in(extents: impl Iterator<Item = Extent>) -> Vec<u64> {
    pages_of(extents.map(|extent| (extent.target, u64::from(extent.blocks))))
}

/// As [`pages_in`], for targets and their numbers of blocks.
pub fn pages_of(targets: impl Iterator<Item = (Target, u64)>) -> Vec<u64> {
    let mut pages: Vec<u64> = targets
        .filter_map(|(target, blocks)| match target {
            Target::Data(pbn) => Some(page_of(pbn)..=page_of(Pbn(pbn.0 + blocks - 1))),
            Target::Hole | Target::Reserved => None,
        })
        .flatten()
        .collect();
    pages.sort_unstable();
    pages.dedup();
    pages
}

impl Metadata {
    /// Maps that wait to be freed, according to their records.
    pub fn detached_maps(&self) -> Result<Vec<MapId>> {
        let (from, to) = keys::all_detached();
        let records = self.scan(&from, &to, usize::MAX)?;
        Ok(records.iter().filter_map(|(key, _)| keys::parse_detached(key)).collect())
    }
}
