//! Read-around: the request that reads a small file also brings in the blocks around it.
//!
//! Small files that were written together lie side by side, and a program that reads one of them mostly reads the
//! others, in any order. Each would wait for the device, though reading a region of them takes little longer than
//! reading one. So if a small file is read as a whole and is not in memory, its region is read and enters the read
//! cache. Fragments of small files that were compressed together have adjacent numbers and lie side by side: their
//! region is one of numbers.
//!
//! Only blocks enter that are referred to now, are on the device, and have the content of their tag. The caller's pin
//! keeps all of them from being reused meanwhile.

use std::sync::atomic::Ordering::Relaxed;

use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::fragment::{PAGE_NUMBERS, is_fragment};
use crate::format::keys::LeafKey;
use crate::format::page::page_of;
use crate::read::cache::AROUND;
use crate::read::parts::{cut_spans, runs_into};
use crate::read::steps::Reader;
use crate::{BLOCK_BYTES, Lbn, MapId, Pbn, Result};

/// A file of at most this many blocks is small.
const SMALL_BLOCKS_MAX: u64 = 16;
/// Blocks of a region. Regions are aligned to this size, so files that are read in any order bring in each region once.
const REGION_BLOCKS: u64 = 32;
/// Fragments of a region lie at most this far apart.
const REGION_BYTES: u64 = REGION_BLOCKS * BLOCK_BYTES as u64;
const _: () = assert!(PAGE_NUMBERS.is_multiple_of(REGION_BLOCKS));
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
        let there = self.near(asked_for.start, pbns.into_iter().filter(is_there).collect());
        let others = there.iter().filter(|pbn| !asked_for.contains(pbn)).count();
        if others == 0 {
            return;
        }
        let mut buffer = self.data_reader.take_buffer(there.len() * BLOCK_BYTES);
        if !self.read_region(&there, &mut buffer) {
            return;
        }
        for (pbn, block) in there.iter().zip(buffer.chunks_exact(BLOCK_BYTES)) {
            let entry = &entries[pbn];
            if self.hasher.tag(block) == entry.tag {
                self.read_cache.admit_awaited(*pbn, AROUND, entry.count, block, &self.stats.counters);
            }
        }
        self.stats.counters.blocks_read_around.fetch_add(others as u64, Relaxed);
        self.policy.read_around().note_brought((there.len() - others) as u64, others as u64);
    }

    /// Of fragments those that lie near the one that was asked for: others of its region may have moved. The region's
    /// entries are in one page.
    fn near(&self, asked_for: Pbn, there: Vec<Pbn>) -> Vec<Pbn> {
        if !is_fragment(asked_for) {
            return there;
        }
        let places = self.metadata.with_pages(
            || vec![page_of(asked_for)],
            |pages| {
                let own = pages.fragment_place(asked_for);
                there.iter().map(|pbn| Some(own?.at.abs_diff(pages.fragment_place(*pbn)?.at))).collect::<Vec<_>>()
            },
        );
        let is_near = |distance: &Option<u64>| distance.is_some_and(|bytes| bytes <= REGION_BYTES);
        let near = there.into_iter().zip(places.unwrap_or_default()).filter(|(_, distance)| is_near(distance));
        near.map(|(pbn, _)| pbn).collect()
    }

    /// Reads blocks of a region, which come in ascending order, one behind the other into `bytes`: what is not
    /// compressed in one request, with the gaps. False: some cannot be read.
    fn read_region(&self, there: &[Pbn], bytes: &mut [u8]) -> bool {
        let blocks: Vec<(Pbn, ())> = there.iter().map(|pbn| (*pbn, ())).collect();
        let mut parts = runs_into(&blocks, bytes);
        let read = match is_fragment(there[0]) {
            true => self.data_reader.read_spans(&mut cut_spans(&mut parts), &[], &mut [], self.counting()),
            false => self.data_reader.read_spans(&mut [&mut parts[..]], &[], &mut [], self.counting()),
        };
        read.is_ok_and(|results| results.iter().all(Result::is_ok))
    }

    fn counting(&self) -> impl Fn(u64) {
        move |blocks| self.policy.device_reads().count(blocks)
    }
}

/// The region that a block lies in, without block 0, which is the label.
fn region_of(pbn: Pbn) -> std::ops::Range<Pbn> {
    let start = pbn.0 - pbn.0 % REGION_BLOCKS;
    Pbn(start.max(1))..Pbn(start + REGION_BLOCKS)
}
