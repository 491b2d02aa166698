//! The operations in a log record. Each is absolute, so that doing one twice does no harm.
//!
//! Numbers are stored as differences from the operation before, so an operation takes few bytes:
//! a random 4 KiB write about 25 (40 with an eager fingerprint).

use super::extent_leaf::{LEAF_BLOCKS, Target};
use super::fragment::{FragmentPlace, PLACE_BYTES};
use super::keys::LeafKey;
use super::varint;
use crate::{BLOCK_BYTES, Fingerprint, Lbn, MapId, Pbn, Tag};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const STORE: u8 = 3;
const STORE_FINGERPRINTED: u8 = 4;
const COUNT: u8 = 5;
const MAP_HOLE: u8 = 6;
const MAP_RESERVED: u8 = 7;
const MAP_DATA: u8 = 8;
const DROP_LEAF: u8 = 9;
const FINGERPRINT: u8 = 10;
const DATA: u8 = 11;
const FLAGS: u8 = 12;
const FRAGMENT: u8 = 13;
const FRAGMENT_FINGERPRINTED: u8 = 14;
const PACK: u8 = 15;
const PLACE: u8 = 16;
const PACK_BYTES: u8 = 17;

/// One change, as in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Sets a record.
    Put {
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Removes a record.
    Delete {
        /// Its key.
        key: &'a [u8],
    },
    /// Stores a block of new content, with one reference.
    Store {
        /// The block.
        pbn: Pbn,
        /// The tag of its content.
        tag: Tag,
        /// The fingerprint of its content, if computed.
        fingerprint: Option<Fingerprint>,
    },
    /// Sets the refcount of adjacent blocks.
    Count {
        /// The first.
        pbn: Pbn,
        /// How many.
        blocks: u64,
        /// The new refcount of each.
        count: u32,
    },
    /// Sets the target of adjacent blocks of a map, within one leaf.
    Map {
        /// The map.
        map: MapId,
        /// The first block.
        lbn: Lbn,
        /// How many.
        blocks: u16,
        /// Their new target.
        target: Target,
    },
    /// Removes a whole leaf.
    DropLeaf {
        /// The leaf.
        key: LeafKey,
    },
    /// Sets a block's fingerprint, which was computed later.
    Fingerprint {
        /// The block.
        pbn: Pbn,
        /// Its fingerprint.
        fingerprint: Fingerprint,
    },
    /// Sets a block's flags.
    Flags {
        /// The block.
        pbn: Pbn,
        /// Its new flags.
        flags: u8,
    },
    /// Stores a fragment of new content, with one reference.
    Fragment {
        /// Its number.
        pbn: Pbn,
        /// Where it lies.
        place: FragmentPlace,
        /// The tag of its content.
        tag: Tag,
        /// The fingerprint of its content, if computed.
        fingerprint: Option<Fingerprint>,
    },
    /// Makes free blocks hold fragments.
    Pack {
        /// The first.
        pbn: Pbn,
        /// How many.
        blocks: u64,
    },
    /// Gives a fragment another place with the same bytes.
    Place {
        /// Its number.
        pbn: Pbn,
        /// Where it lies now.
        place: FragmentPlace,
    },
    /// Sets the length of all fragments of a pack.
    PackBytes {
        /// The last block of the pack.
        pbn: Pbn,
        /// Bytes.
        bytes: u64,
    },
    /// Carries the content of an allocated block in the log.
    Data {
        /// The block.
        pbn: Pbn,
        /// `BLOCK_BYTES` bytes.
        bytes: &'a [u8],
    },
}

/// The numbers that the next operation's differences refer to.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    pbn: u64,
    map: u64,
    lbn: u64,
}

/// The encoded operations of one group.
#[derive(Debug, Default)]
pub struct OpWriter {
    bytes: Vec<u8>,
    before: Before,
}

impl OpWriter {
    /// The encoded operations.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends an operation.
    pub fn push(&mut self, op: &Op<'_>) {
        match *op {
            Op::Put { key, value } => {
                self.bytes.push(PUT);
                self.text(key);
                self.text(value);
            }
            Op::Delete { key } => {
                self.bytes.push(DELETE);
                self.text(key);
            }
            Op::Store { pbn, tag, fingerprint } => {
                self.begin(if fingerprint.is_some() { STORE_FINGERPRINTED } else { STORE }, pbn, 1);
                self.bytes.extend_from_slice(&tag.0.to_le_bytes());
                self.bytes.extend_from_slice(fingerprint.as_ref().map_or(&[], |f| &f.0));
            }
            Op::Count { pbn, blocks, count } => {
                self.begin(COUNT, pbn, blocks);
                varint::put(&mut self.bytes, blocks);
                varint::put(&mut self.bytes, u64::from(count));
            }
            Op::Map { map, lbn, blocks, target } => self.map(map, lbn, blocks, target),
            Op::DropLeaf { key } => {
                self.bytes.push(DROP_LEAF);
                self.map_and_lbn(key.map, Lbn(key.leaf * LEAF_BLOCKS), LEAF_BLOCKS);
            }
            Op::Fingerprint { pbn, fingerprint } => {
                self.begin(FINGERPRINT, pbn, 1);
                self.bytes.extend_from_slice(&fingerprint.0);
            }
            Op::Flags { pbn, flags } => {
                self.begin(FLAGS, pbn, 1);
                self.bytes.push(flags);
            }
            Op::Fragment { pbn, place, tag, fingerprint } => {
                self.begin(if fingerprint.is_some() { FRAGMENT_FINGERPRINTED } else { FRAGMENT }, pbn, 1);
                self.bytes.extend_from_slice(&place.encode());
                self.bytes.extend_from_slice(&tag.0.to_le_bytes());
                self.bytes.extend_from_slice(fingerprint.as_ref().map_or(&[], |f| &f.0));
            }
            Op::Pack { pbn, blocks } => {
                self.begin(PACK, pbn, blocks);
                varint::put(&mut self.bytes, blocks);
            }
            Op::Place { pbn, place } => {
                self.begin(PLACE, pbn, 1);
                self.bytes.extend_from_slice(&place.encode());
            }
            Op::PackBytes { pbn, bytes } => {
                self.begin(PACK_BYTES, pbn, 1);
                varint::put(&mut self.bytes, bytes);
            }
            Op::Data { pbn, bytes } => {
                assert_eq!(bytes.len(), BLOCK_BYTES, "data in the log is in whole blocks");
                self.begin(DATA, pbn, 1);
                self.bytes.extend_from_slice(bytes);
            }
        }
    }

    fn map(&mut self, map: MapId, lbn: Lbn, blocks: u16, target: Target) {
        let room = LEAF_BLOCKS - lbn.0 % LEAF_BLOCKS;
        assert!(blocks > 0 && u64::from(blocks) <= room, "{blocks} blocks from {} on cross a leaf", lbn.0);
        self.bytes.push(match target {
            Target::Hole => MAP_HOLE,
            Target::Reserved => MAP_RESERVED,
            Target::Data(_) => MAP_DATA,
        });
        self.map_and_lbn(map, lbn, u64::from(blocks));
        varint::put(&mut self.bytes, u64::from(blocks));
        if let Target::Data(pbn) = target {
            self.pbn(pbn, u64::from(blocks));
        }
    }

    fn text(&mut self, text: &[u8]) {
        debug_assert!(u32::try_from(text.len()).is_ok(), "a key or value of {} bytes", text.len());
        varint::put(&mut self.bytes, text.len() as u64);
        self.bytes.extend_from_slice(text);
    }

    /// Begins an operation on these blocks.
    fn begin(&mut self, kind: u8, pbn: Pbn, blocks: u64) {
        self.bytes.push(kind);
        self.pbn(pbn, blocks);
    }

    fn pbn(&mut self, pbn: Pbn, blocks: u64) {
        varint::put_signed(&mut self.bytes, pbn.0.wrapping_sub(self.before.pbn) as i64);
        self.before.pbn = pbn.0 + blocks;
    }

    fn map_and_lbn(&mut self, map: MapId, lbn: Lbn, blocks: u64) {
        varint::put_signed(&mut self.bytes, map.0.wrapping_sub(self.before.map) as i64);
        varint::put_signed(&mut self.bytes, lbn.0.wrapping_sub(self.before.lbn) as i64);
        self.before.map = map.0;
        self.before.lbn = lbn.0 + blocks;
    }
}

/// Decodes operations, in order. Ends early, with `is_damaged`, at bytes that are not an operation.
#[derive(Debug)]
pub struct OpReader<'a> {
    rest: &'a [u8],
    before: Before,
    is_damaged: bool,
}

impl<'a> OpReader<'a> {
    /// Decodes what `OpWriter` wrote.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, before: Before::default(), is_damaged: false }
    }

    /// Whether decoding ended at bytes that are not an operation.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    fn take(&mut self) -> Option<Op<'a>> {
        let kind = varint::take_bytes(&mut self.rest, 1)?[0];
        Some(match kind {
            PUT => Op::Put { key: self.text()?, value: self.text()? },
            DELETE => Op::Delete { key: self.text()? },
            STORE | STORE_FINGERPRINTED => {
                let (pbn, tag) = (self.block()?, Tag(self.number()?));
                let fingerprint = if kind == STORE { None } else { Some(self.fingerprint()?) };
                Op::Store { pbn, tag, fingerprint }
            }
            FRAGMENT | FRAGMENT_FINGERPRINTED => {
                let (pbn, place, tag) = (self.block()?, self.place()?, Tag(self.number()?));
                let fingerprint = if kind == FRAGMENT { None } else { Some(self.fingerprint()?) };
                Op::Fragment { pbn, place, tag, fingerprint }
            }
            PACK => {
                let (pbn, blocks) = self.blocks()?;
                Op::Pack { pbn, blocks }
            }
            PLACE => Op::Place { pbn: self.block()?, place: self.place()? },
            PACK_BYTES => Op::PackBytes { pbn: self.block()?, bytes: varint::take(&mut self.rest)? },
            COUNT => {
                let (pbn, blocks) = self.blocks()?;
                let count = u32::try_from(varint::take(&mut self.rest)?).ok()?;
                Op::Count { pbn, blocks, count }
            }
            MAP_HOLE | MAP_RESERVED | MAP_DATA => self.map(kind)?,
            DROP_LEAF => {
                let (map, lbn) = self.map_and_lbn()?;
                self.before.lbn = lbn.0.checked_add(LEAF_BLOCKS)?;
                Op::DropLeaf { key: LeafKey { map, leaf: lbn.0 / LEAF_BLOCKS } }
            }
            FINGERPRINT => Op::Fingerprint { pbn: self.block()?, fingerprint: self.fingerprint()? },
            DATA => Op::Data { pbn: self.block()?, bytes: varint::take_bytes(&mut self.rest, BLOCK_BYTES)? },
            FLAGS => Op::Flags { pbn: self.block()?, flags: varint::take_bytes(&mut self.rest, 1)?[0] },
            _ => return None,
        })
    }

    fn map(&mut self, kind: u8) -> Option<Op<'a>> {
        let (map, lbn) = self.map_and_lbn()?;
        let blocks = varint::take(&mut self.rest)?;
        if blocks == 0 || blocks > LEAF_BLOCKS - lbn.0 % LEAF_BLOCKS {
            return None;
        }
        self.before.lbn = lbn.0.checked_add(blocks)?;
        let target = match kind {
            MAP_HOLE => Target::Hole,
            MAP_RESERVED => Target::Reserved,
            _ => {
                let pbn = self.pbn()?;
                self.before.pbn = pbn.0.checked_add(blocks)?;
                Target::Data(pbn)
            }
        };
        Some(Op::Map { map, lbn, blocks: blocks as u16, target })
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(varint::take(&mut self.rest)?).ok()?;
        varint::take_bytes(&mut self.rest, len)
    }

    fn number(&mut self) -> Option<u64> {
        let bytes = varint::take_bytes(&mut self.rest, 8)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn place(&mut self) -> Option<FragmentPlace> {
        let bytes = varint::take_bytes(&mut self.rest, PLACE_BYTES)?;
        FragmentPlace::decode(bytes.try_into().expect("nine bytes"))
    }

    fn fingerprint(&mut self) -> Option<Fingerprint> {
        let bytes = varint::take_bytes(&mut self.rest, 16)?;
        Some(Fingerprint(bytes.try_into().expect("sixteen bytes")))
    }

    fn pbn(&mut self) -> Option<Pbn> {
        Some(Pbn(self.before.pbn.wrapping_add(varint::take_signed(&mut self.rest)? as u64)))
    }

    fn block(&mut self) -> Option<Pbn> {
        let pbn = self.pbn()?;
        self.before.pbn = pbn.0.checked_add(1)?;
        Some(pbn)
    }

    fn blocks(&mut self) -> Option<(Pbn, u64)> {
        let (pbn, blocks) = (self.pbn()?, varint::take(&mut self.rest)?);
        self.before.pbn = pbn.0.checked_add(blocks)?;
        Some((pbn, blocks))
    }

    fn map_and_lbn(&mut self) -> Option<(MapId, Lbn)> {
        let map = self.before.map.wrapping_add(varint::take_signed(&mut self.rest)? as u64);
        let lbn = self.before.lbn.wrapping_add(varint::take_signed(&mut self.rest)? as u64);
        self.before.map = map;
        Some((MapId(map), Lbn(lbn)))
    }
}

impl<'a> Iterator for OpReader<'a> {
    type Item = Op<'a>;

    fn next(&mut self) -> Option<Op<'a>> {
        if self.rest.is_empty() || self.is_damaged {
            return None;
        }
        let op = self.take();
        self.is_damaged = op.is_none();
        op
    }
}

#[cfg(test)]
mod tests {
    use oncefs_toolbox::Random;

    use super::*;

    fn place() -> FragmentPlace {
        FragmentPlace { at: 4097, bytes: 3, coding: oncefs_compress::Coding::Lz4, blocks_after: 2 }
    }

    fn samples(block: &[u8]) -> Vec<Op<'_>> {
        vec![
            Op::Put { key: b"key", value: b"value" },
            Op::Store { pbn: Pbn(1000), tag: Tag(7), fingerprint: None },
            Op::Store { pbn: Pbn(1001), tag: Tag(8), fingerprint: Some(Fingerprint([3; 16])) },
            Op::Map { map: MapId(5), lbn: Lbn(300), blocks: 2, target: Target::Data(Pbn(1000)) },
            Op::Map { map: MapId(5), lbn: Lbn(302), blocks: 1, target: Target::Hole },
            Op::Map { map: MapId(4), lbn: Lbn(0), blocks: 256, target: Target::Reserved },
            Op::Count { pbn: Pbn(12), blocks: 30, count: 0 },
            Op::Fingerprint { pbn: Pbn(1000), fingerprint: Fingerprint([4; 16]) },
            Op::DropLeaf { key: LeafKey { map: MapId(4), leaf: 9 } },
            Op::Data { pbn: Pbn(1001), bytes: block },
            Op::Delete { key: b"key" },
            Op::Flags { pbn: Pbn(1003), flags: 5 },
            Op::Fragment { pbn: Pbn(1 << 38), place: place(), tag: Tag(9), fingerprint: None },
            Op::Fragment {
                pbn: Pbn((1 << 38) + 1),
                place: place(),
                tag: Tag(9),
                fingerprint: Some(Fingerprint([5; 16])),
            },
            Op::Pack { pbn: Pbn(77), blocks: 3 },
            Op::Place { pbn: Pbn((1 << 38) + 5), place: place() },
            Op::PackBytes { pbn: Pbn(79), bytes: 0x1234 },
        ]
    }

    fn encoded(ops: &[Op<'_>]) -> Vec<u8> {
        let mut writer = OpWriter::default();
        ops.iter().for_each(|op| writer.push(op));
        writer.bytes().to_vec()
    }

    #[test]
    fn operations_come_back() {
        let block = [0xAB; BLOCK_BYTES];
        let bytes = encoded(&samples(&block));
        let mut reader = OpReader::new(&bytes);
        assert_eq!(reader.by_ref().collect::<Vec<_>>(), samples(&block));
        assert!(!reader.is_damaged());
    }

    #[test]
    fn operations_have_their_golden_bytes() {
        let block = [0xAB; BLOCK_BYTES];
        let bytes = encoded(&samples(&block)[..5]);
        let golden: &[u8] = &[
            1, 3, b'k', b'e', b'y', 5, b'v', b'a', b'l', b'u', b'e', // put
            3, 0xD0, 0x0F, 7, 0, 0, 0, 0, 0, 0, 0, // store: pbn +1000
            4, 0, 8, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, // the pbn after it
            8, 10, 0xD8, 0x04, 2, 3, // map 5, lbn 300, 2 blocks, pbn -2
            6, 0, 0, 1, // the next lbn becomes a hole
        ];
        assert_eq!(bytes, golden);
        assert_eq!(encoded(&[Op::Flags { pbn: Pbn(3), flags: 5 }]), [12, 6, 5]);
        let fragment = Op::Fragment { pbn: Pbn(3), place: place(), tag: Tag(9), fingerprint: None };
        let golden = [13, 6, 2, 0x09, 0x40, 0, 4, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(encoded(&[fragment]), golden);
        assert_eq!(encoded(&[Op::Pack { pbn: Pbn(3), blocks: 5 }]), [15, 6, 5]);
        let moved = [16, 6, 2, 0x09, 0x40, 0, 4, 0, 0, 0, 0];
        assert_eq!(encoded(&[Op::Place { pbn: Pbn(3), place: place() }]), moved);
        assert_eq!(encoded(&[Op::PackBytes { pbn: Pbn(3), bytes: 300 }]), [17, 6, 0xAC, 2]);
    }

    #[test]
    fn cut_operations_are_noticed_and_no_bytes_panic() {
        let block = [0xAB; BLOCK_BYTES];
        let bytes = encoded(&samples(&block)[..9]);
        let whole = OpReader::new(&bytes).count();
        for len in 1..bytes.len() {
            let mut reader = OpReader::new(&bytes[..len]);
            assert!(reader.by_ref().count() < whole);
        }
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let noise: Vec<u8> = (0..24).map(|_| random.below(64) as u8).collect();
            OpReader::new(&noise).for_each(drop);
        }
    }
}
