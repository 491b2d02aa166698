//! The shards of a range of a map, and how the range is split into parts that fit into one commit group each: by
//! shards, and by distinct pages of the block table.

use std::ops::Range;
use std::sync::Arc;

use crate::base::BaseParts;
use crate::commit::log::Journal;
use crate::commit::log_room::GroupBounds;
use crate::format::keys::{ShardKey, shard_parts};
use crate::format::page::page_of;
use crate::format::shard::{SHARD_BLOCKS, Target};
use crate::space::allocator::Run;
use crate::space::claim::FreeBlocks;
use crate::state::extents::{pages_in, pages_of, within_shard};
use crate::state::loading::Metadata;
use crate::state::published::Incref;
use crate::state::table::damaged_entry;
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId, Pbn, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;
const SHARD_BYTES: u64 = SHARD_BLOCKS * BLOCK;
/// Pages that are read ahead together.
const PORTION_PAGES: usize = 64;

/// Splits a range from its beginning.
struct Splitter {
    parts: Vec<Range<u64>>,
    from: u64,
    /// Shards of the open part.
    shards: u64,
    pages: u64,
}

impl Splitter {
    /// The open part ends where a shard begins.
    fn cut(&mut self, shard: u64) {
        let end = shard * SHARD_BYTES;
        assert!(end > self.from, "a part from {} to {end}", self.from);
        self.parts.push(self.from..end);
        (self.from, self.shards, self.pages) = (end, 0, 0);
    }
}

/// Splits changes of ranges, and claims room for them.
pub struct RangeParts {
    pub(super) journal: Arc<Journal>,
    pub(super) metadata: Arc<Metadata>,
    pub(super) free_blocks: Arc<FreeBlocks>,
}

impl RangeParts {
    /// It uses these parts.
    pub fn new(base: &BaseParts, metadata: &Arc<Metadata>, free_blocks: &Arc<FreeBlocks>) -> Self {
        Self { journal: base.journal.clone(), metadata: metadata.clone(), free_blocks: free_blocks.clone() }
    }
}

impl RangeParts {
    /// The bounds of a change of a range.
    pub fn bounds(&self) -> &GroupBounds {
        self.journal.bounds()
    }

    /// The maps.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl RangeParts {
    /// See [`crate::Store::parts`].
    pub fn parts(&self, map: MapId, bytes: &Range<u64>, fills_holes: bool) -> Result<Vec<Range<u64>>> {
        let bounds = *self.journal.bounds();
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        let mut split = Splitter { parts: Vec::new(), from: bytes.start, shards: 0, pages: 0 };
        let cut_long = |split: &mut Splitter, end: u64| {
            while fills_holes && end - split.from / SHARD_BYTES > bounds.gated_shards_max {
                split.cut(split.from / SHARD_BYTES + bounds.gated_shards_max);
            }
        };
        self.metadata.each_shard(map, &blocks, |shard| {
            // Includes this shard, so that no later cut comes before a shard that the part already counts.
            cut_long(&mut split, shard + 1);
            let (first, end) = within_shard(shard, &blocks);
            let pages = pages_in(self.metadata.shard(ShardKey { map, shard })?.slice(first, end)).len() as u64;
            let is_full = split.shards >= bounds.gated_shards_max || split.pages + pages > bounds.group_pages;
            if is_full && split.shards > 0 {
                split.cut(shard);
            }
            split.shards += 1;
            split.pages += pages;
            Ok(true)
        })?;
        cut_long(&mut split, bytes.end.div_ceil(SHARD_BYTES));
        split.parts.push(split.from..bytes.end);
        Ok(split.parts)
    }

    /// See [`crate::Store::clone_part`].
    pub fn clone_part(&self, source: (MapId, Lbn), target: (MapId, Lbn), blocks: Blocks) -> Result<Blocks> {
        let bounds = *self.journal.bounds();
        let (mut done, mut pages, mut shards) = (0, 0, 0);
        for (key, start, end) in shard_parts(target.0, target.1, blocks.0) {
            let here = u64::from(end - start);
            pages += pages_in(self.metadata.shard(key)?.slice(start, end)).len() as u64;
            // A clone shares a bad block's replacement, which may lie anywhere.
            let shared = self.targets_to_share(source.0, source.1.plus(done), here)?;
            pages += pages_of(shared.into_iter()).len() as u64;
            shards += 1;
            if done > 0 && (pages > bounds.group_pages || shards > bounds.gated_shards_max) {
                break;
            }
            done += here;
        }
        Ok(Blocks(done))
    }

    /// Reads the pages of the block table that a change of a range needs, before its map is locked: as many as one
    /// group may have. If a page cannot be read, or leaves memory again, the change itself deals with it.
    pub fn read_ahead_of_change(&self, map: MapId, blocks: &Range<u64>) {
        let bounds = *self.journal.bounds();
        let (mut pages, mut shards) = (Vec::new(), 0);
        let found = self.metadata.each_shard(map, blocks, |shard| {
            let (first, end) = within_shard(shard, blocks);
            pages.extend(pages_in(self.metadata.shard(ShardKey { map, shard })?.slice(first, end)));
            shards += 1;
            Ok(shards < bounds.gated_shards_max && (pages.len() as u64) < bounds.group_pages)
        });
        pages.sort_unstable();
        pages.dedup();
        let loaded = found.and_then(|()| {
            pages.chunks(PORTION_PAGES).try_for_each(|portion| self.metadata.with_pages(|| portion.to_vec(), |_| ()))
        });
        if let Err(error) = loaded {
            log::debug!("cannot read ahead of a change of map {}: {error}", map.0);
        }
    }

    /// Reads the shards of a range whose holes are filled, before its map is locked. It also reads shards that hold
    /// nothing yet, because only a look-up tells that they are empty. At most as many as a part may have. If one leaves
    /// memory again, the change itself reads it.
    pub fn read_ahead_of_filling(&self, map: MapId, blocks: &Range<u64>) {
        let shards = shard_parts(map, Lbn(blocks.start), blocks.end.saturating_sub(blocks.start));
        let shards_max = self.journal.bounds().gated_shards_max as usize;
        if let Err(error) = shards.take(shards_max).try_for_each(|(key, _, _)| self.metadata.shard(key).map(drop)) {
            log::debug!("cannot read ahead of a change of map {}: {error}", map.0);
        }
    }
}

impl RangeParts {
    /// The targets that a clone of a map's blocks refers to. A bad block's replacement is shared, and reserved space
    /// becomes a hole.
    pub(super) fn targets_to_share(&self, map: MapId, from: Lbn, blocks: u64) -> Result<Vec<(Target, u64)>> {
        let mut wanted = Vec::new();
        for (key, start, end) in shard_parts(map, from, blocks) {
            let shard = self.metadata.shard(key)?;
            wanted.extend(shard.slice(start, end).map(|extent| (extent.target, u64::from(extent.blocks))));
        }
        let mut wanted = self.metadata.around_bad(&wanted)?.unwrap_or(wanted);
        for (target, _) in &mut wanted {
            if *target == Target::Reserved {
                *target = Target::Hole;
            }
        }
        Ok(wanted)
    }

    /// References to live blocks of a map whose lock is held: their tags are read from the table.
    pub(super) fn takes_of(&self, runs: &[Run]) -> Result<Vec<Incref>> {
        let pbns = || runs.iter().flat_map(|run| (0..run.blocks).map(|n| run.pbn.plus(n)));
        let pages = || {
            let mut pages: Vec<u64> = pbns().map(page_of).collect();
            pages.dedup();
            pages
        };
        self.metadata.with_pages(pages, |state| {
            let take = |pbn: Pbn| match state.table.is_damaged(pbn) {
                true => Err(damaged_entry(pbn)),
                false => Ok(Incref { pbn, tag: state.table.entry(pbn).expect("its page is in memory").tag }),
            };
            pbns().map(take).collect()
        })?
    }
}
