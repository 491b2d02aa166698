//! Reclaim: frees the blocks of detached maps, in portions, also after a crash.

use crate::core::Core;
use crate::format::group_bytes::GroupBytes;
use crate::format::keys::{self, ShardKey};
use crate::state::extents::pages_in;
use crate::write::publish::MapEdit;
use crate::{MapId, Result};

/// Most shards freed in one publication: bounds its memory and the time that other threads wait for the lock. A
/// publication ends earlier with the shard that brings it to as many pages of the block table as a piece of a change
/// has.
const PORTION_SHARDS: usize = 8;

impl Core {
    /// Frees a detached map. A crash in the middle leaves its record, so that the next opening continues.
    pub fn reclaim(&self, map: MapId) -> Result<()> {
        let mut from = 0;
        while !self.reclaim_portion(map, &mut from)? {
            if self.signals.is_stopped() {
                return Ok(());
            }
            self.change_room.wait_for_background_room();
        }
        Ok(())
    }

    /// Frees some shards of a detached map from number `from` on, and moves `from` past them. True: nothing is left.
    pub fn reclaim_portion(&self, map: MapId, from: &mut u64) -> Result<bool> {
        self.health.usable()?;
        let _map = self.maps.lock(map).write();
        let shards = self.metadata.stored_shards(map, *from, PORTION_SHARDS)?;
        let mut edit = MapEdit::new(self, map);
        let (mut pages, mut taken) = (0, 0);
        for &shard in &shards {
            let key = ShardKey { map, shard };
            pages += pages_in(self.metadata.shard(key)?.extents().iter().copied()).len() as u64;
            edit.drop_shard(key)?;
            taken += 1;
            if pages >= self.journal.bounds().piece_pages {
                break;
            }
        }
        let mut plan = edit.into_plan();
        let is_last = taken == shards.len() && taken < PORTION_SHARDS;
        if is_last {
            plan.change.delete(keys::detached(map));
        }
        plan.map = None;
        // Read before the publication, so that no other thread that wants room in the log waits for a read.
        self.keep_pages(&plan.pages().into_iter().collect::<Vec<u64>>())?;
        let _room = self.change_room.claim_log_room(GroupBytes::of_shards(PORTION_SHARDS as u64));
        self.apply_certain(plan)?;
        *from = shards[..taken].last().map_or(0, |last| last + 1);
        if is_last {
            self.state.lock().forget_detached(map);
        }
        Ok(is_last)
    }

    /// Maps that wait to be freed, according to their records.
    pub fn detached_maps(&self) -> Result<Vec<MapId>> {
        let (from, to) = keys::all_detached();
        let records = self.metadata.scan(&from, &to, usize::MAX)?;
        Ok(records.iter().filter_map(|(key, _)| keys::parse_detached(key)).collect())
    }
}
