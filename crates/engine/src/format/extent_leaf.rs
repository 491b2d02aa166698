//! A leaf: the extents of 256 consecutive lbns of one map, in one record.

pub use super::keys::LEAF_BLOCKS;
use super::keys::LeafKey;
use super::{checksum, varint};
use crate::Pbn;

const CHECKSUM_BYTES: usize = 4;
const SEED: u64 = 0x7368_6172;

const RESERVED: u64 = 0;
const DATA: u64 = 1;

/// The target of a mapped block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nothing: reads as zeros.
    Hole,
    /// Reads as zeros; space is reserved for the first write.
    Reserved,
    /// Stored at this pbn; the extent's other blocks at the pbns after it.
    Data(Pbn),
}

impl Target {
    /// The target of the block `n` blocks later in the same extent.
    pub fn plus(self, n: u64) -> Self {
        match self {
            Target::Data(pbn) => Target::Data(pbn.plus(n)),
            other => other,
        }
    }
}

/// A run of blocks of a leaf with consecutive targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block, counted from the leaf's start: below 256.
    pub first: u16,
    /// Length, at least 1.
    pub blocks: u16,
    /// Never `Hole`.
    pub target: Target,
}

impl Extent {
    /// First block after the extent.
    pub fn end(&self) -> u16 {
        self.first + self.blocks
    }

    fn continued_by(&self, next: &Extent) -> bool {
        self.end() == next.first && self.target.plus(u64::from(self.blocks)) == next.target
    }
}

/// The seed makes the checksum of a record under another key fail.
fn seed_of(key: LeafKey) -> u64 {
    SEED ^ key.map.0.rotate_left(32) ^ key.leaf
}

/// The extents of one leaf. Invariants: (1) in order, (2) not overlapping, (3) none empty, none a hole,
/// (4) within `LEAF_BLOCKS`, (5) adjacent extents that continue each other are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentLeaf {
    extents: Vec<Extent>,
}

impl ExtentLeaf {
    /// The extents in order.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Whether everything is a hole.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Memory taken, in bytes, roughly.
    pub fn memory_bytes(&self) -> usize {
        64 + self.extents.capacity() * size_of::<Extent>()
    }

    /// The extents within `first..end`, including holes, in order.
    pub fn slice(&self, first: u16, end: u16) -> impl Iterator<Item = Extent> + '_ {
        debug_assert!(first <= end && u64::from(end) <= LEAF_BLOCKS, "(4) blocks {first} to {end} of a leaf");
        let mut at = first;
        let mut next = self.extents.partition_point(|extent| extent.end() <= first);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let part = match self.extents.get(next) {
                Some(extent) if extent.first <= at => {
                    next += 1;
                    let skipped = u64::from(at - extent.first);
                    Extent { first: at, blocks: extent.end().min(end) - at, target: extent.target.plus(skipped) }
                }
                Some(extent) => Extent { first: at, blocks: extent.first.min(end) - at, target: Target::Hole },
                None => Extent { first: at, blocks: end - at, target: Target::Hole },
            };
            at = part.end();
            Some(part)
        })
    }

    /// Replaces the targets of the blocks of `new`, which may be a hole.
    pub fn set(&mut self, new: Extent) {
        assert!(u64::from(new.end()) <= LEAF_BLOCKS, "(4) an extent ends at {}", new.end());
        let from = self.extents.partition_point(|extent| extent.end() <= new.first);
        let to = self.extents.partition_point(|extent| extent.first < new.end());
        let mut middle: [Option<Extent>; 3] = [None; 3];
        if let Some(cut) = self.extents[from..to].first().filter(|extent| extent.first < new.first) {
            middle[0] = Some(Extent { blocks: new.first - cut.first, ..*cut });
        }
        middle[1] = (new.target != Target::Hole && new.blocks > 0).then_some(new);
        if let Some(cut) = self.extents[from..to].last().filter(|extent| extent.end() > new.end()) {
            let skipped = new.end() - cut.first;
            middle[2] = Some(Extent {
                first: new.end(),
                blocks: cut.blocks - skipped,
                target: cut.target.plus(u64::from(skipped)),
            });
        }
        self.extents.splice(from..to, middle.into_iter().flatten());
        self.join(from.saturating_sub(1), 5);
    }

    /// Joins adjacent extents that continue each other among `count` extents from `from` on.
    fn join(&mut self, from: usize, count: usize) {
        let mut at = from;
        for _ in 0..count {
            let Some([left, right]) = self.extents.get(at..at + 2) else { return };
            if left.continued_by(right) {
                self.extents[at].blocks += right.blocks;
                self.extents.remove(at + 1);
            } else {
                at += 1;
            }
        }
    }

    /// The leaf of a clone of its map: reserved space becomes a hole. None: there is none.
    pub fn without_reserved(&self) -> Option<Self> {
        let is_data = |extent: &Extent| extent.target != Target::Reserved;
        let extents: Vec<Extent> = self.extents.iter().copied().filter(is_data).collect();
        (extents.len() < self.extents.len()).then_some(Self { extents })
    }

    /// Number of reserved blocks.
    pub fn reserved_blocks(&self) -> u64 {
        let reserved = self.extents.iter().filter(|extent| extent.target == Target::Reserved);
        reserved.map(|extent| u64::from(extent.blocks)).sum()
    }

    /// Number of blocks that are data or reserved.
    pub fn mapped_blocks(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.blocks)).sum()
    }

    /// The record's value: extents as differences, then a checksum.
    pub fn encode(&self, key: LeafKey) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + self.extents.len() * 5);
        debug_assert!(self.extents.len() as u64 <= LEAF_BLOCKS, "{} extents in a leaf", self.extents.len());
        let (mut block, mut pbn) = (0u16, 0u64);
        for extent in &self.extents {
            varint::put(&mut out, u64::from(extent.first - block));
            let kind = if extent.target == Target::Reserved { RESERVED } else { DATA };
            varint::put(&mut out, u64::from(extent.blocks) << 1 | kind);
            if let Target::Data(first) = extent.target {
                varint::put_signed(&mut out, first.0.wrapping_sub(pbn) as i64);
                pbn = first.0 + u64::from(extent.blocks);
            }
            block = extent.end();
        }
        let sum = checksum(&out, seed_of(key)) as u32;
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes the value of the record `key`. None: it is damaged, or another record's.
    pub fn decode(key: LeafKey, value: &[u8]) -> Option<Self> {
        let (mut body, sum) = value.split_at_checked(value.len().checked_sub(CHECKSUM_BYTES)?)?;
        if sum != (checksum(body, seed_of(key)) as u32).to_le_bytes() {
            return None;
        }
        let mut extents = Vec::new();
        let (mut block, mut pbn) = (0u64, 0u64);
        while !body.is_empty() {
            let first = block.checked_add(varint::take(&mut body)?)?;
            let length = varint::take(&mut body)?;
            let blocks = length >> 1;
            block = first.checked_add(blocks)?;
            if blocks == 0 || block > LEAF_BLOCKS {
                return None;
            }
            let target = match length & 1 {
                RESERVED => Target::Reserved,
                _ => {
                    let start = pbn.wrapping_add(varint::take_signed(&mut body)? as u64);
                    pbn = start.checked_add(blocks)?;
                    Target::Data(Pbn(start))
                }
            };
            extents.push(Extent { first: first as u16, blocks: blocks as u16, target });
        }
        Some(Self { extents })
    }

    /// Asserts the invariants of the type.
    pub fn check(&self) {
        let mut end = 0;
        for extent in &self.extents {
            assert!(extent.first >= end, "(1)(2) extent at {} begins before {end}", extent.first);
            assert!(extent.blocks > 0 && extent.target != Target::Hole, "(3) {extent:?}");
            end = extent.end();
        }
        assert!(u64::from(end) <= LEAF_BLOCKS, "(4) extents end at {end}");
        for pair in self.extents.windows(2) {
            assert!(!pair[0].continued_by(&pair[1]), "(5) {pair:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use oncefs_toolbox::Random;

    use super::*;
    use crate::MapId;

    const KEY: LeafKey = LeafKey { map: MapId(3), leaf: 5 };

    fn data(first: u16, blocks: u16, pbn: u64) -> Extent {
        Extent { first, blocks, target: Target::Data(Pbn(pbn)) }
    }

    #[test]
    fn a_leaf_has_its_golden_bytes_and_comes_back() {
        let mut leaf = ExtentLeaf::default();
        leaf.set(data(2, 3, 100));
        leaf.set(Extent { first: 10, blocks: 1, target: Target::Reserved });
        let bytes = leaf.encode(KEY);
        assert_eq!(bytes[..bytes.len() - 4], [2, 7, 200, 1, 5, 2]);
        assert_eq!(ExtentLeaf::decode(KEY, &bytes), Some(leaf));
    }

    #[test]
    fn damaged_and_cut_bytes_are_refused() {
        let mut leaf = ExtentLeaf::default();
        leaf.set(data(0, 256, 1 << 39));
        let bytes = leaf.encode(KEY);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ExtentLeaf::decode(KEY, &flipped), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(ExtentLeaf::decode(KEY, &bytes[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn the_value_of_another_record_is_refused() {
        let mut leaf = ExtentLeaf::default();
        leaf.set(data(0, 256, 7));
        let bytes = leaf.encode(KEY);
        assert_eq!(ExtentLeaf::decode(LeafKey { leaf: 6, ..KEY }, &bytes), None);
        assert_eq!(ExtentLeaf::decode(LeafKey { map: MapId(4), ..KEY }, &bytes), None);
    }

    #[test]
    fn random_changes_agree_with_a_plain_array() {
        let mut choices = Random::new(1);
        let mut random = |below: u64| choices.below(below);
        for _ in 0..200 {
            let mut leaf = ExtentLeaf::default();
            let mut plain = [Target::Hole; LEAF_BLOCKS as usize];
            for _ in 0..60 {
                let first = random(LEAF_BLOCKS) as u16;
                let blocks = 1 + random(u64::from(LEAF_BLOCKS as u16 - first).min(20)) as u16;
                let target = match random(4) {
                    0 => Target::Hole,
                    1 => Target::Reserved,
                    _ => Target::Data(Pbn(random(40) + u64::from(first))),
                };
                leaf.set(Extent { first, blocks, target });
                for block in 0..blocks {
                    plain[usize::from(first + block)] = target.plus(u64::from(block));
                }
                leaf.check();
                for part in leaf.slice(0, LEAF_BLOCKS as u16) {
                    for block in 0..part.blocks {
                        assert_eq!(plain[usize::from(part.first + block)], part.target.plus(u64::from(block)));
                    }
                }
                let mapped = plain.iter().filter(|target| **target != Target::Hole).count();
                assert_eq!(leaf.mapped_blocks(), mapped as u64);
            }
            assert_eq!(ExtentLeaf::decode(KEY, &leaf.encode(KEY)), Some(leaf));
        }
    }
}
