//! The shards of a range of a map, and how the range is split into parts that fit into one commit group each: by
//! shards, and by distinct pages of the block table.

use std::ops::Range;

use crate::core::Core;
use crate::format::keys::{ShardKey, shard_parts};
use crate::format::shard::SHARD_BLOCKS;
use crate::state::extents::{pages_in, pages_of, within_shard};
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId, Result};

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

impl Core {
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
