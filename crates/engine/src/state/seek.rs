//! Where a map has data, and where it has holes.
//!
//! Nothing is locked meanwhile: a map may have a million shards, and maps share their locks. Each shard is as it was at
//! some moment of the call.

use crate::format::keys::{ShardKey, shard_parts};
use crate::format::shard::{SHARD_BLOCKS, Target};
use crate::state::extents::within_shard;
use crate::state::loading::Metadata;
use crate::{BLOCK_BYTES, Lbn, MapId, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Shards after a block that are checked to find out whether it is the last one: reservations may span a million
/// shards.
const END_SHARDS_MAX: usize = 8;

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
        self.each_shard(map, &(from.0..stop.0), |shard| {
            found = self.stored_in(map, shard, from)?;
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    /// The first block with data in a shard, at or after an lbn.
    fn stored_in(&self, map: MapId, shard: u64, from: Lbn) -> Result<Option<Lbn>> {
        let (first, end) = within_shard(shard, &(from.0..u64::MAX));
        let extents = self.shard(ShardKey { map, shard })?;
        let data = extents.slice(first, end).find(|extent| matches!(extent.target, Target::Data(_)));
        Ok(data.map(|extent| Lbn(shard * SHARD_BLOCKS + u64::from(extent.first))))
    }

    /// Whether no data is stored after a block, judging by a few shards. A block followed by long reservations counts
    /// as not the last one. Every write over the end of a file asks this.
    pub fn is_end(&self, map: MapId, last: Lbn) -> Result<bool> {
        let behind = last.plus(1);
        let shards = self.stored_shards(map, behind.0 / SHARD_BLOCKS, END_SHARDS_MAX + 1)?;
        if shards.len() > END_SHARDS_MAX {
            return Ok(false);
        }
        for shard in shards {
            if self.stored_in(map, shard, behind)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// See [`crate::Store::seek_hole`].
    pub fn seek_hole(&self, map: MapId, from: u64, end: u64) -> Result<u64> {
        let first = from / BLOCK;
        let mut hole = end;
        for (key, start, stop) in shard_parts(map, Lbn(first), end.div_ceil(BLOCK).saturating_sub(first)) {
            let shard = self.shard(key)?;
            if let Some(extent) = shard.slice(start, stop).find(|extent| !matches!(extent.target, Target::Data(_))) {
                let byte = (key.shard * SHARD_BLOCKS + u64::from(extent.first)) * BLOCK;
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
    const SHARD_BYTES: u64 = SHARD_BLOCKS * BLOCK;

    fn volume() -> Volume {
        let core = Devices::new(Blocks(40_000), one_level()).open();
        core.write(MAP, 0, &unique(10, 1), |_, _| ()).unwrap();
        core
    }

    #[test]
    fn the_end_of_a_file_with_long_reservations_behind_it_is_not_looked_for() {
        let core = volume();
        let last = Lbn(9);
        assert!(core.metadata.is_end(MAP, last).unwrap() && !core.metadata.is_end(MAP, Lbn(8)).unwrap());
        core.reserve_in_parts(MAP, 0..4 * SHARD_BYTES);
        assert!(core.metadata.is_end(MAP, last).unwrap(), "a few reserved shards are looked at");
        core.reserve_in_parts(MAP, 0..40 * SHARD_BYTES);
        let looked_at = || {
            let report = core.base.state.lock().shards.report();
            report.hits + report.misses
        };
        let before = looked_at();
        assert!(!core.metadata.is_end(MAP, last).unwrap());
        assert_eq!(looked_at(), before, "no shard is looked at");
    }

    #[test]
    fn nobody_waits_for_who_looks_for_data_and_who_looks_waits_for_nobody() {
        let core = volume();
        core.write(MAP, 100 * SHARD_BYTES, &unique(1, 2), |_, _| ()).unwrap();
        core.reserve_in_parts(MAP, 0..90 * SHARD_BYTES);
        let (found, is_found) = mpsc::channel();
        // A writer of this map, or of any other with the same lock.
        let locked = core.base.maps.lock(MAP).write();
        thread::scope(|scope| {
            let core = &core;
            scope.spawn(move || {
                let data = core.metadata.seek_data(MAP, 10 * BLOCK, u64::MAX).unwrap();
                let hole = core.metadata.seek_hole(MAP, 0, 200 * SHARD_BYTES).unwrap();
                let room = core.range_parts.check_room(MAP, &(0..1 << 50)).is_err();
                found.send((data, hole, room)).unwrap();
            });
            let answer = is_found.recv_timeout(Duration::from_secs(60));
            drop(locked);
            assert_eq!(answer, Ok((Some(100 * SHARD_BYTES), 10 * BLOCK, true)));
        });
    }

    #[test]
    fn a_detached_map_has_neither_data_nor_holes() {
        let core = volume();
        core.range_changes.detach(MAP, |_| ()).unwrap();
        assert!(matches!(core.metadata.seek_data(MAP, 0, 100), Err(crate::Error::MapDetached)));
        assert!(matches!(core.metadata.seek_hole(MAP, 0, 100), Err(crate::Error::MapDetached)));
    }
}
