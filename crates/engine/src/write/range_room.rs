//! Room for the reservations of a range: counted and claimed before the first piece of its change, so that no later one
//! can want for it.

use std::ops::Range;

use crate::core::Core;
use crate::format::keys::ShardKey;
use crate::format::shard::{Extent, SHARD_BLOCKS, Target};
use crate::space::claim::RoomClaim;
use crate::write::range::within_shard;
use crate::{BLOCK_BYTES, Error, MapId, Pbn, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Shards that are looked at together.
const PORTION_SHARDS: usize = 64;

/// What blocks are counted.
#[derive(Clone, Copy)]
enum Filled {
    /// Those with data.
    Data,
    /// Those with neither data nor a reservation.
    Holes,
}

impl Core {
    /// See [`crate::Store::check_room`].
    pub fn check_room(&self, map: MapId, bytes: &Range<u64>) -> Result<()> {
        let _map = self.maps.lock(map).read();
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        self.claim_for_holes(map, &blocks).map(drop)
    }

    /// Claims room for the reservations that take the place of a range's holes.
    pub fn claim_for_holes(&self, map: MapId, blocks: &Range<u64>) -> Result<RoomClaim<'_>> {
        self.claim_reservations(self.count_in(map, blocks, Filled::Holes)?)
    }

    /// Claims room for the reservations that take the place of a range: of its holes, and of the data in the blocks of
    /// `whole`. If that is more than there is, only data that others share is claimed for: the rest frees as much as it
    /// takes. What becomes shared meanwhile is then refused when it is published, so it has to be one publication.
    pub fn claim_for_zeros(&self, map: MapId, touched: &Range<u64>, whole: &Range<u64>) -> Result<RoomClaim<'_>> {
        let holes = self.count_in(map, touched, Filled::Holes)?;
        match self.claim_reservations(holes + self.count_in(map, whole, Filled::Data)?) {
            Err(Error::NoSpace) if whole.end.saturating_sub(whole.start) < self.whole_blocks_max() => {
                self.claim_reservations(holes + self.shared_in(map, whole)?)
            }
            claimed => claimed,
        }
    }

    /// A range of fewer whole blocks is zeroed and reserved in one publication, with the holes at its ends: each of its
    /// shards comes twice, and so may one at either end.
    fn whole_blocks_max(&self) -> u64 {
        (self.journal.bounds().piece_shards / 4) as u64 * SHARD_BLOCKS
    }

    /// How many blocks of a range are as said. Only shards that exist are looked at.
    fn count_in(&self, map: MapId, blocks: &Range<u64>, filled: Filled) -> Result<u64> {
        let (mut data, mut reserved) = (0, 0);
        self.visit_extents(map, blocks, |extent| match extent.target {
            Target::Data(_) => data += u64::from(extent.blocks),
            Target::Reserved => reserved += u64::from(extent.blocks),
            Target::Hole => {}
        })?;
        let all = blocks.end.saturating_sub(blocks.start);
        assert!(data + reserved <= all, "{data} blocks of data and {reserved} reserved ones among {all}");
        Ok(match filled {
            Filled::Data => data,
            Filled::Holes => all - data - reserved,
        })
    }

    /// How many references of a range would free nothing if they went.
    fn shared_in(&self, map: MapId, blocks: &Range<u64>) -> Result<u64> {
        let mut pbns = Vec::new();
        self.visit_extents(map, blocks, |extent| {
            if let Target::Data(pbn) = extent.target {
                pbns.extend((0..u64::from(extent.blocks)).map(|n| pbn.plus(n)));
            }
        })?;
        pbns.sort_unstable();
        let references = pbns.len() as u64;
        let runs: Vec<(Pbn, u32)> = pbns.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect();
        pbns.dedup();
        let entries = self.known_entries(&pbns);
        let is_freed = |pbn: &Pbn, own: u32| entries.get(pbn).is_some_and(|entry| entry.count == own);
        Ok(references - runs.iter().filter(|(pbn, own)| is_freed(pbn, *own)).count() as u64)
    }

    /// Visits the extents of a range that shards know of.
    fn visit_extents(&self, map: MapId, blocks: &Range<u64>, mut visit: impl FnMut(Extent)) -> Result<()> {
        let mut at = blocks.start / SHARD_BLOCKS;
        loop {
            let mut shards = self.stored_shards(map, at, PORTION_SHARDS)?;
            shards.retain(|shard| shard * SHARD_BLOCKS < blocks.end);
            for &shard in &shards {
                let (start, end) = within_shard(shard, blocks);
                if start < end {
                    self.shard(ShardKey { map, shard })?.slice(start, end).for_each(&mut visit);
                }
            }
            if shards.len() < PORTION_SHARDS {
                return Ok(());
            }
            at = shards.last().expect("a full piece") + 1;
        }
    }
}
