//! The faults that an audit can find in blocks, as values: their descriptions, and whether they can be repaired.

use std::fmt;

use crate::format::extent_leaf::{Extent, LEAF_BLOCKS};
use crate::format::fragment::is_fragment;
use crate::format::fragment_totals::FragmentTotals;
use crate::format::keys::LeafKey;
use crate::{MapId, Pbn, Tag};

/// The permitted action against a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedy {
    /// Repaired without a question: nothing is lost, and there is one right answer.
    Safe,
    /// Repaired on request: there is one right answer, but something was lost or is moved.
    Asked,
    /// Not repaired: every answer would be a guess. The fault stays and is reported.
    None,
}

/// One of the totals that every commit carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// Blocks with a reference, and the label.
    Used,
    /// References from all maps.
    Mapped,
    /// Blocks promised to fallocate.
    Reserved,
}

/// A contradiction. The numbers are those of the invariants in `check.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// (1) A part of a map that names blocks outside the data area.
    Outside {
        /// Where.
        key: LeafKey,
        /// The part.
        extent: Extent,
    },
    /// (2) Adjacent blocks whose refcount differs from the number of their references.
    Count {
        /// The first.
        pbn: Pbn,
        /// How many.
        blocks: u64,
        /// The count in the table.
        stored: u32,
        /// References found.
        found: u32,
        /// Whether a damaged part of a map may hold references that were not found.
        in_doubt: bool,
    },
    /// (3) A total that differs from the sum.
    Sum {
        /// Which.
        sum: Sum,
        /// The sum in the last commit.
        stored: u64,
        /// The sum found.
        found: u64,
    },
    /// (3) The sums over all fragments differ from the record of them.
    FragmentTotals {
        /// The record.
        stored: FragmentTotals,
        /// The totals that were found.
        found: FragmentTotals,
    },
    /// (3) More is promised than the data area has.
    Promised {
        /// Used and reserved blocks.
        promised: u64,
        /// Blocks of the data area.
        data: u64,
    },
    /// (4) A live block that the allocator would hand out.
    Free {
        /// The block.
        pbn: Pbn,
    },
    /// (5) Content that differs from what was stored.
    Rot {
        /// The block.
        pbn: Pbn,
        /// The tag of the stored content.
        stored: Tag,
        /// The tag of the present content.
        found: Tag,
    },
    /// (5) Content that the device cannot read.
    Unreadable {
        /// The block.
        pbn: Pbn,
        /// The error of the device.
        error: String,
    },
    /// (5) A fragment without a place on the data area: its content is lost.
    NoPlace {
        /// Its number.
        pbn: Pbn,
    },
    /// (6) A part of a map that cannot be decoded.
    Leaf {
        /// Where.
        key: LeafKey,
    },
    /// (6) Sectors of a page of the block table with a wrong checksum.
    Page {
        /// The page.
        number: u64,
        /// One bit for each sector.
        sectors: u8,
    },
    /// (6) A page written by groups that the log does not have.
    PageAge {
        /// The page.
        number: u64,
        /// The newest group in it.
        found: u64,
        /// The last group of the log.
        newest: u64,
    },
    /// (7) A map whose id was not handed out yet.
    MapNumber {
        /// The map.
        map: MapId,
        /// The next id to hand out.
        next: MapId,
    },
    /// (8) A record whose key has a form that this format does not know.
    Key {
        /// The key.
        key: Vec<u8>,
    },
    /// (9) A record of a pending clone that is damaged or names a map that does not exist, or a mark of no such clone.
    Clone {
        /// The key.
        key: Vec<u8>,
        /// The clone, if the key names one.
        map: Option<MapId>,
    },
    /// (10) Two fragments that share bytes.
    Overlap {
        /// The number of the one that begins later.
        pbn: Pbn,
        /// That of the other.
        other: Pbn,
    },
    /// (10) A block whose entry has another length of a pack than its fragments.
    PackBytes {
        /// The block.
        pbn: Pbn,
        /// The length in the table.
        stored: u64,
        /// The length of the fragments.
        found: u64,
    },
}

impl Fault {
    /// The permitted action against it.
    pub fn remedy(&self) -> Remedy {
        match self {
            Fault::Count { found, stored, in_doubt: true, .. } if found < stored => Remedy::None,
            Fault::Count { stored: 0, .. } | Fault::Outside { .. } | Fault::Page { .. } => Remedy::Asked,
            Fault::Key { .. } | Fault::Clone { .. } => Remedy::Asked,
            Fault::Count { .. } | Fault::Sum { .. } | Fault::MapNumber { .. } => Remedy::Safe,
            Fault::FragmentTotals { .. } | Fault::PackBytes { .. } => Remedy::Safe,
            Fault::Promised { .. }
            | Fault::Free { .. }
            | Fault::Rot { .. }
            | Fault::Unreadable { .. }
            | Fault::NoPlace { .. }
            | Fault::Overlap { .. }
            | Fault::Leaf { .. }
            | Fault::PageAge { .. } => Remedy::None,
        }
    }

    /// The number of the broken invariant.
    pub fn rule(&self) -> u8 {
        match self {
            Fault::Outside { .. } => 1,
            Fault::Count { .. } => 2,
            Fault::Sum { .. } | Fault::FragmentTotals { .. } | Fault::Promised { .. } => 3,
            Fault::Free { .. } => 4,
            Fault::Rot { .. } | Fault::Unreadable { .. } | Fault::NoPlace { .. } => 5,
            Fault::Leaf { .. } | Fault::Page { .. } | Fault::PageAge { .. } => 6,
            Fault::MapNumber { .. } => 7,
            Fault::Key { .. } => 8,
            Fault::Clone { .. } => 9,
            Fault::Overlap { .. } | Fault::PackBytes { .. } => 10,
        }
    }

    /// Lower ranks are repaired first: counts are right only when all references are, those of blocks that hold
    /// fragments when the entries of fragments are, and totals when all counts are.
    pub fn rank(&self) -> u8 {
        match self {
            Fault::Sum { .. } | Fault::FragmentTotals { .. } => 4,
            Fault::PackBytes { .. } => 3,
            Fault::Count { pbn, stored: 0, .. } if is_fragment(*pbn) => 1,
            Fault::Count { .. } => 2,
            _ => 0,
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sum::Used => "blocks in use",
            Sum::Mapped => "references",
            Sum::Reserved => "reserved blocks",
        })
    }
}

impl Fault {
    /// A description of the fault.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Outside { key, extent } => {
                let first = key.leaf * LEAF_BLOCKS + u64::from(extent.first);
                let (map, blocks, target) = (key.map.0, extent.blocks, extent.target);
                write!(f, "map {map}: {blocks} blocks from {first} on are {target:?}, outside the data area")
            }
            Fault::Count { pbn, blocks, stored, found, in_doubt } => {
                let doubt = if *in_doubt && found < stored { ", or more: a part of a map is damaged" } else { "" };
                match blocks {
                    1 => write!(f, "block {pbn} has count {stored} and {found} references{doubt}"),
                    _ => {
                        write!(f, "{blocks} blocks from {pbn} on have count {stored} and {found} references{doubt}")
                    }
                }
            }
            Fault::Sum { sum, stored, found } => write!(f, "the totals say {stored} {sum}, {found} are there"),
            Fault::FragmentTotals { stored, found } => write!(
                f,
                "the record says {} fragments of {} bytes, {} of {} are there",
                stored.fragments, stored.bytes, found.fragments, found.bytes
            ),
            Fault::Promised { promised, data } => {
                write!(f, "{promised} blocks are used or promised, the data area has {data}")
            }
            Fault::Free { pbn } => write!(f, "block {pbn} is live, but the allocator would hand it out"),
            Fault::Rot { pbn, stored, found } => {
                let (found, stored) = (found.0, stored.0);
                write!(f, "block {pbn} has content with tag {found:016x}, the table says {stored:016x}")
            }
            Fault::Overlap { pbn, other } => write!(f, "fragments {pbn} and {other} share bytes of the data area"),
            Fault::PackBytes { pbn, stored, found } => {
                write!(f, "the pack that ends with block {pbn} has {found} bytes of fragments, the table says {stored}")
            }
            Fault::NoPlace { pbn } => write!(f, "fragment {pbn} has no place on the data area: its content is lost"),
            Fault::Unreadable { pbn, error } => write!(f, "block {pbn} cannot be read: {error}"),
            Fault::Leaf { key } => {
                let first = key.leaf * LEAF_BLOCKS;
                write!(f, "map {}: the record of its blocks from {first} on is damaged", key.map.0)
            }
            Fault::Page { number, sectors } => {
                let sectors = (0..8).filter(|n| sectors & (1 << n) != 0).map(|n| n.to_string()).collect::<Vec<_>>();
                write!(f, "page {number} of the block table is damaged in sectors {}", sectors.join(", "))
            }
            Fault::PageAge { number, found, newest } => {
                write!(f, "page {number} of the block table is of group {found}, the log ends at group {newest}")
            }
            Fault::MapNumber { map, next } => {
                write!(f, "map {} exists, but {} is the next to be handed out", map.0, next.0)
            }
            Fault::Key { key } => write!(f, "a record has the unknown key {key:02x?}"),
            Fault::Clone { key, map: None } => write!(f, "the record {key:02x?} marks a part of no clone"),
            Fault::Clone { map: Some(map), .. } => {
                write!(f, "map {}: the record of what it still shares as a clone is damaged", map.0)
            }
        }
    }
}

/// The faulty object, the fault, and in brackets the number of the broken invariant.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(f)?;
        write!(f, " [rule {}]", self.rule())
    }
}
