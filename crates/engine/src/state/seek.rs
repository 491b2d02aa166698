//! Where a map has data, and where it has holes.
//!
//! Nothing is locked meanwhile: a map may have a million leaves, and maps share their locks. Each leaf is as it was at
//! some moment of the call.

use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::keys::{LeafKey, leaf_parts};
use crate::state::extents::within_leaf;
use crate::state::loading::Metadata;
use crate::{BLOCK_BYTES, Lbn, MapId, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Leaves after a block that are checked to find out whether it is the last one: reservations may span a million
/// leaves.
const END_LEAVES_MAX: usize = 8;

impl Metadata {
    /// See [`crate::Store::seek_data`].
    pub fn seek_data(&self, map: MapId, from: u64, end: u64) -> Result<Option<u64>> {
        let byte = self.next_stored(map, Lbn(from / BLOCK), Lbn(end.div_ceil(BLOCK)))?.map(|lbn| lbn.0 * BLOCK);
        // A map that was detached meanwhile gives no answer.
        self.attached(map)?;
        Ok(byte.map(|byte| byte.max(from)).filter(|byte| *byte < end))
    }

    /// The first block with data at or after an lbn, before `stop`.
    pub fn next_stored(&self, map: MapId, from: Lbn, stop: Lbn) -> Result<Option<Lbn>> {
        let mut found = None;
        self.each_leaf(map, &(from.0..stop.0), |leaf| {
            found = self.stored_in(map, leaf, from)?;
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    /// The first block with data in a leaf, at or after an lbn.
    fn stored_in(&self, map: MapId, leaf: u64, from: Lbn) -> Result<Option<Lbn>> {
        let (first, end) = within_leaf(leaf, &(from.0..u64::MAX));
        let extents = self.leaf(LeafKey { map, leaf })?;
        let data = extents.slice(first, end).find(|extent| matches!(extent.target, Target::Data(_)));
        Ok(data.map(|extent| Lbn(leaf * LEAF_BLOCKS + u64::from(extent.first))))
    }

    /// Whether no data is stored after a block, judging by a few leaves. A block followed by long reservations counts
    /// as not the last one. Every write over the end of a file asks this.
    pub fn is_end(&self, map: MapId, last: Lbn) -> Result<bool> {
        let behind = last.plus(1);
        let leaves = self.stored_leaves(map, behind.0 / LEAF_BLOCKS, END_LEAVES_MAX + 1)?;
        if leaves.len() > END_LEAVES_MAX {
            return Ok(false);
        }
        for leaf in leaves {
            if self.stored_in(map, leaf, behind)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// See [`crate::Store::seek_hole`].
    pub fn seek_hole(&self, map: MapId, from: u64, end: u64) -> Result<u64> {
        let first = from / BLOCK;
        let mut hole = end;
        for (key, start, stop) in leaf_parts(map, Lbn(first), end.div_ceil(BLOCK).saturating_sub(first)) {
            let leaf = self.leaf(key)?;
            if let Some(extent) = leaf.slice(start, stop).find(|extent| !matches!(extent.target, Target::Data(_))) {
                let byte = (key.leaf * LEAF_BLOCKS + u64::from(extent.first)) * BLOCK;
                hole = byte.clamp(from, end);
                break;
            }
        }
        self.attached(map)?;
        Ok(hole)
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::Blocks;
    use crate::tests::fixture::{Devices, one_level, unique};
    use crate::volume::assembly::Volume;

    const MAP: MapId = MapId(1);
    const LEAF_BYTES: u64 = LEAF_BLOCKS * BLOCK;

    fn volume() -> Volume {
        let volume = Devices::new(Blocks(40_000), one_level()).open();
        volume.write(MAP, 0, &unique(10, 1), |_, _| ()).unwrap();
        volume
    }

    #[test]
    fn the_end_of_a_file_with_long_reservations_behind_it_is_not_looked_for() {
        let volume = volume();
        let last = Lbn(9);
        assert!(volume.metadata.is_end(MAP, last).unwrap() && !volume.metadata.is_end(MAP, Lbn(8)).unwrap());
        volume.reserve_in_parts(MAP, 0..4 * LEAF_BYTES);
        assert!(volume.metadata.is_end(MAP, last).unwrap(), "a few reserved leaves are looked at");
        volume.reserve_in_parts(MAP, 0..40 * LEAF_BYTES);
        let looked_at = || {
            let report = volume.base.state.lock().leaves.report();
            report.hits + report.misses
        };
        let before = looked_at();
        assert!(!volume.metadata.is_end(MAP, last).unwrap());
        assert_eq!(looked_at(), before, "no leaf is looked at");
    }

    #[test]
    fn nobody_waits_for_who_looks_for_data_and_who_looks_waits_for_nobody() {
        let volume = volume();
        volume.write(MAP, 100 * LEAF_BYTES, &unique(1, 2), |_, _| ()).unwrap();
        volume.reserve_in_parts(MAP, 0..90 * LEAF_BYTES);
        let (found, is_found) = mpsc::channel();
        // A writer of this map, or of any other with the same lock.
        let locked = volume.base.maps.lock(MAP).write();
        thread::scope(|scope| {
            let volume = &volume;
            scope.spawn(move || {
                let data = volume.metadata.seek_data(MAP, 10 * BLOCK, u64::MAX).unwrap();
                let hole = volume.metadata.seek_hole(MAP, 0, 200 * LEAF_BYTES).unwrap();
                let room = volume.range_parts.check_room(MAP, &(0..1 << 50)).is_err();
                found.send((data, hole, room)).unwrap();
            });
            let answer = is_found.recv_timeout(Duration::from_secs(60));
            drop(locked);
            assert_eq!(answer, Ok((Some(100 * LEAF_BYTES), 10 * BLOCK, true)));
        });
    }

    #[test]
    fn a_detached_map_has_neither_data_nor_holes() {
        let volume = volume();
        volume.range_changes.detach(MAP, |_| ()).unwrap();
        assert!(matches!(volume.metadata.seek_data(MAP, 0, 100), Err(crate::Error::MapDetached)));
        assert!(matches!(volume.metadata.seek_hole(MAP, 0, 100), Err(crate::Error::MapDetached)));
    }
}
