//! A hint's nine bytes in memory, and the leaf of the prefix tree that holds them sorted.
//!
//! Owns the layout and the search within a leaf. Leaves it to the tree which tags belong to a leaf.

use std::ops::Range;

use super::{HINT_PBN_BITS, Pbn};

pub(super) const ENTRY_BYTES: usize = 9;

/// 32 bits of a tag, the mark "matched" and 39 bits of a pbn, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry([u8; ENTRY_BYTES]);

impl Entry {
    const MATCHED: u8 = 0x80;

    pub(super) fn new(tag_bits: u32, pbn: Pbn) -> Self {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&tag_bits.to_be_bytes());
        bytes[4..].copy_from_slice(&pbn.0.to_be_bytes()[3..]);
        Self(bytes)
    }

    pub(super) fn tag_bits(&self) -> u32 {
        u32::from_be_bytes(*self.0.first_chunk().expect("an entry has 9 bytes"))
    }

    pub(super) fn pbn(&self) -> Pbn {
        let low = u64::from_be_bytes(*self.0.last_chunk().expect("an entry has 9 bytes"));
        Pbn(low & ((1 << HINT_PBN_BITS) - 1))
    }

    pub(super) fn rank(&self) -> (u32, Pbn) {
        (self.tag_bits(), self.pbn())
    }

    /// Whether a look-up found the entry since the eviction hand passed.
    pub(super) fn matched(&self) -> bool {
        self.0[4] & Self::MATCHED != 0
    }

    pub(super) fn set_matched(&mut self, matched: bool) {
        self.0[4] = self.0[4] & !Self::MATCHED | if matched { Self::MATCHED } else { 0 };
    }
}

/// Where the hints of a tag are.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    /// The leaf's index in the tree's array.
    pub(super) address: usize,
    /// Leading bits of the tag that name the leaf.
    pub(super) leaf_bits: u32,
    /// The 32 bits of the tag that an entry keeps.
    pub(super) tag_bits: u32,
    /// How many of these are equal throughout the leaf.
    pub(super) shared_bits: u32,
}

/// The hints of one or more neighbouring groups, sorted by tag bits, then by pbn.
#[derive(Clone, Default)]
pub(super) struct Leaf(pub(super) Vec<Entry>);

impl Leaf {
    /// The entries that agree with a tag. The search starts where an even spread would put them,
    /// typically within a cache line of the goal; halving would touch one line per step.
    pub(super) fn holders(&self, spot: Spot) -> Range<usize> {
        let fraction = u64::from(spot.tag_bits << spot.shared_bits);
        let mut start = ((fraction * self.0.len() as u64) >> u32::BITS) as usize;
        while start > 0 && self.0[start - 1].tag_bits() >= spot.tag_bits {
            start -= 1;
        }
        while self.0.get(start).is_some_and(|entry| entry.tag_bits() < spot.tag_bits) {
            start += 1;
        }
        let rest = self.0[start..].iter();
        start..start + rest.take_while(|entry| entry.tag_bits() == spot.tag_bits).count()
    }

    /// Index of the first of these holders that is not below the pbn.
    pub(super) fn place_among(&self, holders: Range<usize>, pbn: Pbn) -> usize {
        holders.start + self.0[holders].partition_point(|entry| entry.pbn() < pbn)
    }

    pub(super) fn bytes(&self) -> u64 {
        allocation_bytes(self.0.capacity())
    }
}

/// Bytes that the allocator takes for this many entries: 8 bytes of overhead, rounded up to 16, and an
/// eighth for the gaps between allocations of many sizes. This gives 10.3 bytes a hint. With glibc
/// 12.3 resident bytes were measured in a store of 3 MiB that was replaced many times over, as
/// small stores suffer more from gaps, and 10.3 in one of 40 MiB that was replaced once.
pub(super) fn allocation_bytes(entries: usize) -> u64 {
    if entries == 0 {
        return 0;
    }
    let asked = (entries * ENTRY_BYTES + 8).next_multiple_of(16).max(32) as u64;
    asked + asked / 8
}
