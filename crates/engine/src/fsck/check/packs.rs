//! Fragments in the order of their places: no two of them share a byte, and the length of a pack in its last block's
//! entry is that of its fragments.

use std::collections::BTreeMap;

use super::CheckReport;
use super::fault::Fault;
use crate::format::fragment::FragmentPlace;
use crate::fsck::sort::Sorted;
use crate::{BLOCK_BYTES, Pbn, Result};

const BYTES_BITS: u32 = 12;
const AFTER_BITS: u32 = 4;

/// The lengths of packs, from their fragments. Blocks are asked after in ascending order.
pub struct PackSums {
    sorted: Sorted<2>,
    /// Lengths of packs that are not asked after yet, by their last block.
    open: BTreeMap<Pbn, u64>,
    /// The first byte after all fragments seen, and the number of the fragment there.
    end: (u64, Pbn),
}

impl PackSums {
    /// The item of a fragment, which sorts by its place.
    pub fn item(number: Pbn, place: &FragmentPlace) -> [u64; 2] {
        let length = place.at << BYTES_BITS | u64::from(place.bytes - 1);
        [length, number.0 << AFTER_BITS | u64::from(place.blocks_after)]
    }

    /// Sums up these items.
    pub fn new(sorted: Sorted<2>) -> Self {
        Self { sorted, open: BTreeMap::new(), end: (0, Pbn(0)) }
    }

    /// The length of the pack that ends with a block, 0 if none does. Reports fragments that overlap.
    pub fn bytes_of(&mut self, pbn: Pbn, report: &mut CheckReport) -> Result<u64> {
        self.pass(pbn.plus(1), report)?;
        self.open = self.open.split_off(&pbn);
        Ok(self.open.remove(&pbn).unwrap_or(0))
    }

    /// Takes in the fragments that begin before a block.
    pub fn pass(&mut self, end: Pbn, report: &mut CheckReport) -> Result<()> {
        let begins_before = |item: &[u64; 2]| (item[0] >> BYTES_BITS) / (BLOCK_BYTES as u64) < end.0;
        while let Some([length, number]) = self.sorted.peek()?.filter(begins_before) {
            self.sorted.pop()?;
            let (at, bytes) = (length >> BYTES_BITS, length % (1 << BYTES_BITS) + 1);
            let (pbn, after) = (Pbn(number >> AFTER_BITS), number % (1 << AFTER_BITS));
            if at < self.end.0 {
                report.note(Fault::Overlap { pbn, other: self.end.1 });
            }
            self.end = self.end.max((at + bytes, pbn));
            *self.open.entry(Pbn(at / BLOCK_BYTES as u64 + after)).or_default() += bytes;
        }
        Ok(())
    }
}
