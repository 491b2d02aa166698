//! Read-around: the request that reads a small file also brings in the blocks around it.
//!
//! Small files that were written together lie side by side, and a program that reads one of them mostly reads the
//! others, in any order. Each would wait for the device, though reading a region of them takes little longer than
//! reading one. So if a small file is read as a whole and is not in memory, its region is read and enters the read
//! cache.
//!
//! Only blocks enter that are referred to now, are on the device, and have the content of their tag. The caller's pin
//! keeps all of them from being reused meanwhile.

use std::sync::atomic::Ordering::Relaxed;

use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::fragment::is_fragment;
use crate::format::keys::LeafKey;
use crate::read::steps::Reader;
use crate::{BLOCK_BYTES, Lbn, MapId, Pbn, Result};

/// A file of at most this many blocks is small.
const SMALL_BLOCKS_MAX: u64 = 16;
/// Blocks of a region. Regions are aligned to this size, so files that are read in any order bring in each region once.
const REGION_BLOCKS: u64 = 32;
const _: () = assert!(SMALL_BLOCKS_MAX < REGION_BLOCKS && SMALL_BLOCKS_MAX < LEAF_BLOCKS);

impl Reader {
    /// Whether this is all of a small file. The caller has the map locked.
    pub fn is_small_and_whole(&self, map: MapId, first: Lbn, blocks: u64) -> Result<bool> {
        if first > Lbn(0) || blocks > SMALL_BLOCKS_MAX {
            return Ok(false);
        }
        let key = LeafKey { map, leaf: 0 };
        // Both fit, given the constants above.
        let leaf = self.metadata.leaf(key)?;
        let mut behind = leaf.slice(blocks as u16, LEAF_BLOCKS as u16);
        Ok(!behind.any(|extent| matches!(extent.target, Target::Data(_))))
    }

    /// Brings the region of a small file with these runs into the read cache, unless the file is in memory. Unreadable
    /// or wrong blocks do not enter: their reader meets the error.
    pub fn read_around(&self, runs: &[(Target, u64)]) {
        let mut data = runs.iter().filter_map(|(target, blocks)| match target {
            Target::Data(pbn) => Some(*pbn..pbn.plus(*blocks)),
            Target::Hole | Target::Reserved => None,
        });
        // A file in pieces was not written together with the blocks around one of them.
        let (Some(asked_for), None) = (data.next(), data.next()) else { return };
        let is_in_memory = self.read_cache.holds(asked_for.start) || self.staging.get(asked_for.start).is_some();
        if is_in_memory
            || is_fragment(asked_for.start)
            || !self.read_cache.is_enabled()
            || self.damage.is_any_bad()
            || !self.policy.read_around().is_wanted()
        {
            return;
        }
        let region = region_of(asked_for.start);
        let pbns: Vec<Pbn> = (region.start.0..region.end.0).map(Pbn).collect();
        let entries = self.metadata.known_entries(&pbns);
        let is_there = |pbn: &Pbn| {
            entries.get(pbn).is_some_and(|entry| entry.count > 0 && !entry.is_pack())
                && self.staging.get(*pbn).is_none()
        };
        let there: Vec<Pbn> = pbns.into_iter().filter(is_there).collect();
        let others = there.iter().filter(|pbn| !asked_for.contains(pbn)).count();
        let (Some(first), Some(last)) = (there.first(), there.last()) else { return };
        if others == 0 {
            return;
        }
        let blocks = last.0 - first.0 + 1;
        let mut buffer = self.data.take_buffer(blocks as usize * BLOCK_BYTES);
        self.policy.device_reads().count(blocks);
        if self.data_reader.read_device(*first, &mut buffer).is_err() {
            return;
        }
        for pbn in &there {
            let block = &buffer[(pbn.0 - first.0) as usize * BLOCK_BYTES..][..BLOCK_BYTES];
            if self.hasher.tag(block) == entries[pbn].tag {
                self.read_cache.admit_around(*pbn, block);
            }
        }
        self.stats.counters.blocks_read_around.fetch_add(others as u64, Relaxed);
        self.policy.read_around().note_brought((there.len() - others) as u64, others as u64);
    }
}

/// The region that a block lies in, without block 0, which is the label.
fn region_of(pbn: Pbn) -> std::ops::Range<Pbn> {
    let start = pbn.0 - pbn.0 % REGION_BLOCKS;
    Pbn(start.max(1))..Pbn(start + REGION_BLOCKS)
}
