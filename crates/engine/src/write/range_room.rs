//! Room for the reservations of a range: counted and claimed before the first piece of its change, so that no later
//! piece can run out of room.

use std::ops::Range;

use crate::format::extent_leaf::Target;
use crate::place::free_blocks::RoomClaim;
use crate::write::pieces::Pieces;
use crate::write::range_parts::RangeParts;
use crate::{BLOCK_BYTES, Error, MapId, Pbn, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;

impl RangeParts {
    /// See [`crate::Store::check_room`]. The answer is advice, so it takes no lock: a range may have a million leaves.
    pub fn check_room(&self, map: MapId, bytes: &Range<u64>) -> Result<()> {
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        let all = blocks.end.saturating_sub(blocks.start);
        // If everything fits even without counting, no leaf has to be read.
        if self.free_blocks.claim_reservations(all).is_ok() {
            return Ok(());
        }
        let mut filled = 0;
        self.metadata.visit_extents(map, &blocks, |extent| {
            if extent.target != Target::Hole {
                filled += u64::from(extent.blocks);
            }
        })?;
        self.free_blocks.claim_reservations(all.saturating_sub(filled)).map(drop)
    }

    /// Claims room for the reservations that replace a range: its holes, and the data in the blocks of `whole`. If that
    /// is more than the free room, it claims room only for shared data: unshared data frees as much as its reservation
    /// takes. Data that becomes shared meanwhile is then refused at the publication, so it has to be a single
    /// publication.
    pub fn claim_for_zeros(&self, map: MapId, pieces: &Pieces, whole: &Range<u64>) -> Result<RoomClaim<'_>> {
        match self.free_blocks.claim_reservations(pieces.reserved()) {
            Err(Error::NoSpace) if pieces.is_one() => {
                let freed = self.data_in(map, whole)? - self.shared_in(map, whole)?;
                self.free_blocks.claim_reservations(pieces.reserved() - freed)
            }
            claimed => claimed,
        }
    }

    /// How many blocks of a range have data.
    fn data_in(&self, map: MapId, blocks: &Range<u64>) -> Result<u64> {
        let mut data = 0;
        self.metadata.visit_extents(map, blocks, |extent| {
            if let Target::Data(_) = extent.target {
                data += u64::from(extent.blocks);
            }
        })?;
        Ok(data)
    }

    /// How many references of a range would free nothing when released.
    fn shared_in(&self, map: MapId, blocks: &Range<u64>) -> Result<u64> {
        let mut pbns = Vec::new();
        self.metadata.visit_extents(map, blocks, |extent| {
            if let Target::Data(pbn) = extent.target {
                pbns.extend((0..u64::from(extent.blocks)).map(|n| pbn.plus(n)));
            }
        })?;
        pbns.sort_unstable();
        let references = pbns.len() as u64;
        let runs: Vec<(Pbn, u32)> = pbns.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect();
        pbns.dedup();
        let entries = self.metadata.known_entries(&pbns);
        let is_freed = |pbn: &Pbn, own: u32| entries.get(pbn).is_some_and(|entry| entry.count == own);
        Ok(references - runs.iter().filter(|(pbn, own)| is_freed(pbn, *own)).count() as u64)
    }
}
