//! The shards and extents that maps have, read in portions: of a range, of one map, or of all maps.

use std::ops::Range;

use crate::format::keys::{self, ShardKey};
use crate::format::page::page_of;
use crate::format::shard::{Extent, SHARD_BLOCKS, Target};
use crate::state::loading::Metadata;
use crate::{Error, MapId, Pbn, Result};

/// Shards that are loaded together.
const PORTION_SHARDS: usize = 64;

impl Metadata {
    /// Calls `visit` with each shard of a range that may hold something, in order, until `visit` returns false.
    pub fn each_shard(
        &self,
        map: MapId,
        blocks: &Range<u64>,
        mut visit: impl FnMut(u64) -> Result<bool>,
    ) -> Result<()> {
        let mut at = blocks.start / SHARD_BLOCKS;
        loop {
            let shards = self.stored_shards(map, at, PORTION_SHARDS)?;
            for &shard in shards.iter().take_while(|shard| **shard * SHARD_BLOCKS < blocks.end) {
                if !visit(shard)? {
                    return Ok(());
                }
            }
            match shards.last() {
                Some(last) if shards.len() == PORTION_SHARDS && (last + 1) * SHARD_BLOCKS < blocks.end => at = last + 1,
                _ => return Ok(()),
            }
        }
    }

    /// Visits the extents that the shards of a range have.
    pub fn visit_extents(&self, map: MapId, blocks: &Range<u64>, mut visit: impl FnMut(Extent)) -> Result<()> {
        self.each_shard(map, blocks, |shard| {
            let (start, end) = within_shard(shard, blocks);
            if start < end {
                self.shard(ShardKey { map, shard })?.slice(start, end).for_each(&mut visit);
            }
            Ok(true)
        })
    }

    /// Shards of a map that may hold something, from number `from` on, in order, at most `limit`.
    pub fn stored_shards(&self, map: MapId, from: u64, limit: usize) -> Result<Vec<u64>> {
        let mut shards = self.state.lock().shards.in_memory(map, from, limit);
        let bounds =
            (keys::shard(ShardKey { map, shard: from }), keys::shard(ShardKey { map: MapId(map.0 + 1), shard: 0 }));
        let stored = self.stored.scan(&bounds.0, &bounds.1, limit)?;
        shards.extend(stored.iter().filter_map(|(key, _)| keys::parse_shard(key)).map(|key| key.shard));
        shards.sort_unstable();
        shards.dedup();
        shards.truncate(limit);
        Ok(shards)
    }
}

impl Metadata {
    /// Shards of all maps that may hold something, from one on, in order, about `limit` of them, and where to continue.
    pub fn shards_from(&self, from: ShardKey, limit: usize) -> Result<(Vec<ShardKey>, Option<ShardKey>)> {
        let end = keys::shard(ShardKey { map: MapId(u64::MAX), shard: u64::MAX });
        // Memory first: a checkpoint in between moves shards from memory into the sorted state.
        let in_memory = self.state.lock().shards.keys_from(from, limit);
        let stored = self.stored.scan(&keys::shard(from), &end, limit)?;
        let mut found: Vec<ShardKey> = stored.iter().filter_map(|(key, _)| keys::parse_shard(key)).collect();
        let mut last = found.last().copied().filter(|_| stored.len() == limit);
        if in_memory.len() == limit {
            last = [last, in_memory.last().copied()].into_iter().flatten().min();
        }
        found.extend(in_memory);
        found.sort_unstable();
        found.dedup();
        found.retain(|key| last.is_none_or(|last| *key <= last));
        Ok((found, last.map(|last| ShardKey { map: last.map, shard: last.shard + 1 })))
    }
}

impl Metadata {
    /// Refuses a map that was detached. While its lock is held it cannot be detached.
    pub fn attached(&self, map: MapId) -> Result<()> {
        if self.state.lock().is_detached(map) { Err(Error::MapDetached) } else { Ok(()) }
    }
}

/// The part of `blocks` that lies in a shard, in block numbers of the shard.
pub fn within_shard(shard: u64, blocks: &Range<u64>) -> (u16, u16) {
    let inside = |block: u64| block.saturating_sub(shard * SHARD_BLOCKS).min(SHARD_BLOCKS) as u16;
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
