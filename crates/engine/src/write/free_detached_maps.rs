//! Reclaim: frees the blocks of detached maps, in portions, also after a crash.

use crate::base::part;
use crate::format::group_bytes::GroupBytes;
use crate::format::keys::{self, LeafKey};
use crate::state::extents::pages_in;
use crate::state::loading::Metadata;
use crate::write::lazy_clone::LazyClones;
use crate::write::map_edit::MapEdit;
use crate::write::publish::Publisher;
use crate::{MapId, Result};

/// Most leaves freed in one publication: bounds its memory and the time that other threads wait for the lock. A
/// publication ends earlier with the leaf that brings it to as many pages of the block table as a piece of a change
/// has.
const PORTION_LEAVES: usize = 8;

part! {
    /// Frees the blocks of detached maps.
    pub struct Reclaimer {
        base: signals, state;
        metadata: Metadata, lazy_clones: LazyClones, publisher: Publisher
    }
}

impl Reclaimer {
    /// Frees a detached map. A crash in the middle leaves its record, so that the next opening continues.
    pub fn reclaim(&self, map: MapId) -> Result<()> {
        let mut from = 0;
        while !self.reclaim_portion(map, &mut from)? {
            if self.signals.is_stopped() {
                return Ok(());
            }
            self.publisher.room().wait_for_background_room();
        }
        Ok(())
    }

    /// Frees some leaves of a detached map from number `from` on, and moves `from` past them. True: nothing is left.
    pub fn reclaim_portion(&self, map: MapId, from: &mut u64) -> Result<bool> {
        self.publisher.usable()?;
        // A detached map is changed by no other thread, and cloned by none.
        let leaves = self.metadata.stored_leaves(map, *from, PORTION_LEAVES)?;
        self.lazy_clones.own(map, leaves.iter().copied())?;
        let _map = self.metadata.lock_of(map).write();
        let mut edit = MapEdit::new(&self.metadata, map);
        let (mut pages, mut taken) = (0, 0);
        for &leaf in &leaves {
            let key = LeafKey { map, leaf };
            pages += pages_in(self.metadata.leaf(key)?.extents().iter().copied()).len() as u64;
            edit.drop_leaf(key)?;
            taken += 1;
            if pages >= self.publisher.room().bounds().piece_pages {
                break;
            }
        }
        let mut plan = edit.into_plan();
        let is_last = taken == leaves.len() && taken < PORTION_LEAVES;
        if is_last {
            plan.change.delete(keys::detached(map));
        }
        plan.map = None;
        // Read before the publication, so that no other thread that wants room in the log waits for a read.
        self.metadata.keep_pages(&plan.pages().into_iter().collect::<Vec<u64>>())?;
        self.publisher.claim_and_apply(GroupBytes::of_leaves(PORTION_LEAVES as u64), plan)?;
        *from = leaves[..taken].last().map_or(0, |last| last + 1);
        if is_last {
            self.state.lock().forget_detached(map);
        }
        Ok(is_last)
    }
}
