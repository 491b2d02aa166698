//! Room of the data area that operations under way have claimed, for blocks that they allocated but have not published,
//! and for reservations that they are about to make.
//!
//! Invariant: used, reserved and claimed blocks together never exceed the data area. Every growth of `used` and
//! `reserved` is claimed beforehand, under the publish lock, and its claim ends in the publication that causes it. So
//! no publication that begins can run out of room. A volume that an earlier version left overcommitted takes no new
//! claim until enough of it is given back.

use crate::Blocks;
use crate::format::record::Totals;

/// Blocks claimed by all operations under way. Claims are not stored: a crash ends them all.
#[derive(Default)]
pub struct Claims {
    blocks: u64,
}

impl Claims {
    /// Claims `blocks` blocks, provided that `kept_back` others stay free. False: the room is short, and nothing is
    /// claimed.
    pub fn take(&mut self, totals: &Totals, blocks: u64, kept_back: u64) -> bool {
        let is_room = self.free(totals).0 >= blocks.saturating_add(kept_back);
        if is_room {
            self.blocks += blocks;
        }
        is_room
    }

    /// Ends the claim of blocks that were published or given back.
    pub fn release(&mut self, blocks: u64) {
        assert!(self.blocks >= blocks, "{blocks} blocks are released, but {} were claimed", self.blocks);
        self.blocks -= blocks;
    }

    /// Blocks that are neither used nor reserved nor claimed.
    pub fn free(&self, totals: &Totals) -> Blocks {
        let taken = totals.used.0.saturating_add(totals.reserved.0).saturating_add(self.blocks);
        Blocks(totals.data.0.saturating_sub(taken))
    }

    /// Blocks that are claimed.
    #[cfg(test)]
    pub fn blocks(&self) -> Blocks {
        Blocks(self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MapId;

    fn totals(data: u64, used: u64, reserved: u64) -> Totals {
        let (data, used, reserved) = (Blocks(data), Blocks(used), Blocks(reserved));
        Totals { data, used, reserved, mapped: Blocks(0), next_map: MapId(1) }
    }

    #[test]
    fn claims_reservations_and_used_blocks_share_the_data_area() {
        let (mut claims, totals) = (Claims::default(), totals(100, 40, 30));
        assert!(!claims.take(&totals, 21, 10) && claims.blocks() == Blocks(0));
        assert!(claims.take(&totals, 20, 10));
        assert_eq!(claims.free(&totals), Blocks(10));
        assert!(!claims.take(&totals, 11, 0) && claims.take(&totals, 10, 0));
        claims.release(25);
        assert_eq!((claims.blocks(), claims.free(&totals)), (Blocks(5), Blocks(25)));
    }

    #[test]
    fn a_volume_that_promises_more_than_it_has_takes_no_claim() {
        let mut claims = Claims::default();
        assert!(!claims.take(&totals(100, 60, 50), 1, 0));
        assert!(!claims.take(&totals(100, u64::MAX, u64::MAX), 1, 0));
        assert!(claims.take(&totals(100, 60, 50), 0, 0), "nothing is claimed");
    }
}
