//! Shares the blocks that an earlier request of a file left open, once a later one made their run long enough.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::part;
use crate::policy::inline::{OPEN_BLOCKS_MAX, OpenBlock};
use crate::state::loading::Metadata;
use crate::write::confirm_remaps::RemapConfirmer;
use crate::write::remap::Remapper;
use crate::write::visit::{Remap, Visit};
use crate::{Error, MapId, Pbn, Result, Tag};

part! {
    /// Shares blocks that were left open.
    pub struct OpenRunSharer {
        base: stats;
        metadata: Metadata, remap_confirmer: RemapConfirmer, remapper: Remapper
    }
}

impl OpenRunSharer {
    /// Makes places that were open refer to the blocks that hold their content. This is a publication of its own, after
    /// that of the request that made the run long enough. A crash between the two leaves the copies. Blocks that can no
    /// longer be shared stay as they are.
    pub fn share_open(&self, map: MapId, wanted: &[(OpenBlock, Pbn)]) -> Result<()> {
        debug_assert!(wanted.len() <= OPEN_BLOCKS_MAX, "{} open blocks of one file", wanted.len());
        let mut pbns: Vec<Pbn> = wanted.iter().flat_map(|(block, target)| [block.pbn, *target]).collect();
        pbns.sort_unstable();
        pbns.dedup();
        let entries = self.metadata.known_entries(&pbns);
        let live = |pbn: &Pbn, tag: Tag| entries.get(pbn).filter(|entry| entry.serves(tag)).copied();
        let remap = |(block, target): &(OpenBlock, Pbn)| {
            let entry = live(&block.pbn, block.tag)?;
            let of_target = live(target, block.tag)?;
            Some(Remap { visit: Visit { map, lbn: block.lbn, pbn: block.pbn, entry }, target: (*target, of_target) })
        };
        // A run may continue from the temporary place of an open block. Then that block stays where it is.
        let moving = wanted.iter().filter(|(block, target)| block.pbn != *target);
        let confirmed = self.remap_confirmer.confirm_remaps(moving.filter_map(remap).collect());
        if confirmed.is_empty() {
            return Ok(());
        }
        let shared = match self.remapper.remap_portion(map, &confirmed) {
            // The file was deleted, so its blocks are being freed.
            Err(Error::MapDetached) => 0,
            shared => shared?,
        };
        self.stats.counters.blocks_shared.fetch_add(shared, Relaxed);
        Ok(())
    }
}
