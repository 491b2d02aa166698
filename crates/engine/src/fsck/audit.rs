//! The store as fsck sees it: audits, repairs, and what their messages need.

use hashbrown::HashSet;

use crate::format::keys::ShardKey;
use crate::format::shard::{Extent, SHARD_BLOCKS};
use crate::fsck::check::fault::Remedy;
use crate::fsck::check::{CheckReport, Progress, ShardRecord};
use crate::fsck::fix::Fixed;
use crate::{Blocks, Lbn, MapId, Pbn, Result, Store};

impl Store {
    /// Every map that holds something and is not detached, with its blocks, in the order of ids. None: a part of it is
    /// damaged, so they cannot be counted.
    pub fn for_each_map(&self, visit: &mut dyn FnMut(MapId, Option<Blocks>)) -> Result<()> {
        self.core.redo_all()?;
        // By their records: memory knows the ids of maps whose blocks are all freed, too, or are said to be.
        let detached: HashSet<MapId> = self.core.detached_maps()?.into_iter().collect();
        let mut current: Option<(MapId, Option<u64>)> = None;
        let mut finish = |done: Option<(MapId, Option<u64>)>| {
            if let Some((map, blocks)) = done.filter(|(map, _)| !detached.contains(map)) {
                visit(map, blocks.map(Blocks));
            }
        };
        self.core.for_each_shard_record(&mut |record| {
            let (map, blocks) = match record {
                ShardRecord::Whole(key, shard) => (key.map, Some(shard.mapped_blocks())),
                ShardRecord::Damaged(key) => (key.map, None),
                ShardRecord::Unknown(_) => return Ok(()),
            };
            match &mut current {
                Some((same, sum)) if *same == map => *sum = sum.zip(blocks).map(|(a, b)| a + b),
                _ => finish(current.replace((map, blocks))),
            }
            Ok(())
        })?;
        finish(current);
        Ok(())
    }

    /// Checks the volume, on which nothing else may happen meanwhile: every invariant across structures, and
    /// with `read_data` every live block against its tag. `progress` is told blocks done and blocks in all.
    pub fn check(&self, read_data: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        self.core.check(read_data, progress)
    }

    /// The same, told phase by phase.
    pub fn audit(&self, read_data: bool, progress: Progress<'_>) -> Result<CheckReport> {
        self.core.audit(read_data, progress)
    }

    /// Mends what is wrong with blocks, maps and totals and may be mended: see `docs/fsck.md`. The volume was opened
    /// with [`Store::open_for_fsck`].
    pub fn repair(&self, limit: Remedy, progress: Progress<'_>) -> Result<Fixed> {
        self.core.health.usable()?;
        self.core.repair(limit, progress)
    }

    /// Commits or checkpoints if much was published since: keeps memory bounded where no thread does.
    pub fn settle(&self) -> Result<()> {
        self.core.settle()
    }

    /// Which places of which maps have one of some blocks, at most `limit` of them.
    pub fn places_of(&self, blocks: &[Pbn], limit: usize) -> Result<Vec<(Pbn, MapId, Lbn)>> {
        self.core.places_of(blocks, limit)
    }

    /// First block behind everything that a map holds.
    pub fn end_of_map(&self, map: MapId) -> Result<Lbn> {
        let (mut from, mut end) = (0, 0);
        loop {
            let shards = self.core.stored_shards(map, from, SHARDS_LOOKED_AT)?;
            for shard in &shards {
                let last = self.core.shard(ShardKey { map, shard: *shard })?.extents().last().map(Extent::end);
                end = last.map_or(end, |last| shard * SHARD_BLOCKS + u64::from(last));
            }
            match shards.last() {
                Some(last) if shards.len() == SHARDS_LOOKED_AT => from = last + 1,
                _ => return Ok(Lbn(end)),
            }
        }
    }
}

/// Shards looked at in one go when a map's end is sought.
const SHARDS_LOOKED_AT: usize = 256;
