//! Fragments: blocks that are kept compressed. A fragment has a number, which maps, hints and records use as they use a
//! pbn, and a place on the data area, which its entry in the block table names.
//!
//! Fragments lie in packs of adjacent blocks. The last block of a pack ends with its directory (`pack_directory`),
//! which gives the places back if the entries are damaged. So every fragment of a pack keeps that block in use.
//!
//! Numbers begin above every block of a data area. The pages of their entries lie in a file of their own, `fragments`,
//! and have 96 entries of 40 bytes: those of blocks, followed by the place. So the last 32 numbers of each page do not
//! exist.

use oncefs_compress::{Coding, FRAGMENT_BYTES_MAX};

use super::at;
use crate::{BLOCK_BYTES, Pbn};

/// The first number. A data area with compressed blocks has fewer blocks.
pub const FIRST_NUMBER: u64 = 1 << 38;
/// Numbers of a page, whether they exist or not: as many as a page of blocks has entries.
pub const PAGE_NUMBERS: u64 = 128;
/// The page of the block table with the first number.
pub const FIRST_PAGE: u64 = FIRST_NUMBER / PAGE_NUMBERS;
/// Numbers of a page that exist.
pub const PAGE_FRAGMENTS: u64 = 96;

/// Most blocks of a pack.
pub const PACK_BLOCKS_MAX: u64 = 16;
/// Bytes of an encoded place.
pub const PLACE_BYTES: usize = 9;

const BYTES_BITS: u32 = 12;
const CODING_BITS: u32 = 2;
/// Bits of an encoded length with its coding.
pub(super) const LENGTH_BITS: u32 = BYTES_BITS + CODING_BITS;
const LZ4: u64 = 1;
const ZSTD: u64 = 2;
const _: () = assert!(FRAGMENT_BYTES_MAX <= 1 << BYTES_BITS);
const _: () = assert!(FIRST_NUMBER * BLOCK_BYTES as u64 <= 1 << (u64::BITS - LENGTH_BITS));

/// Whether a pbn is the number of a fragment.
pub fn is_fragment(pbn: Pbn) -> bool {
    pbn.0 >= FIRST_NUMBER
}

/// Whether a number exists: each page has room for the first 96 of its 128.
pub fn is_number(pbn: Pbn) -> bool {
    is_fragment(pbn) && pbn.0 < 2 * FIRST_NUMBER && pbn.0 % PAGE_NUMBERS < PAGE_FRAGMENTS
}

/// Where a fragment lies on the data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentPlace {
    /// Its first byte, within a pack.
    pub at: u64,
    /// Its length in bytes: 1 to [`FRAGMENT_BYTES_MAX`].
    pub bytes: u16,
    /// How it is compressed.
    pub coding: Coding,
    /// How many blocks of its pack follow the one with its first byte.
    pub blocks_after: u8,
}

impl FragmentPlace {
    /// The blocks that it has a byte in: one or two.
    pub fn blocks(&self) -> impl Iterator<Item = Pbn> + use<> {
        let block = BLOCK_BYTES as u64;
        (self.at / block..=(self.at + u64::from(self.bytes) - 1) / block).map(Pbn)
    }

    /// The last block of its pack, which has the directory.
    pub fn pack_end(&self) -> Pbn {
        Pbn(self.at / BLOCK_BYTES as u64 + u64::from(self.blocks_after))
    }

    /// The blocks that count it, ascending: those that it has a byte in, and the last one of its pack.
    pub fn holders(&self) -> impl Iterator<Item = Pbn> + use<> {
        let end = self.pack_end();
        self.blocks().filter(move |pbn| *pbn != end).chain([end])
    }

    /// The first byte after it.
    pub fn end(&self) -> u64 {
        self.at + u64::from(self.bytes)
    }

    /// Nine bytes: the blocks after it, then in eight bytes place, length less one, and coding.
    pub fn encode(&self) -> [u8; PLACE_BYTES] {
        debug_assert!(self.bytes > 0 && usize::from(self.bytes) <= FRAGMENT_BYTES_MAX, "a fragment: {self:?}");
        debug_assert!(self.blocks().all(|pbn| pbn <= self.pack_end()), "a fragment beyond its pack: {self:?}");
        let place = self.at << LENGTH_BITS | encode_length(self.bytes, self.coding);
        let mut encoded = [self.blocks_after; PLACE_BYTES];
        encoded[1..].copy_from_slice(&place.to_le_bytes());
        encoded
    }

    /// Decodes nine bytes. None: they are no place, or one before the first block of the data area.
    pub fn decode(encoded: &[u8; PLACE_BYTES]) -> Option<Self> {
        let (blocks_after, place) = (encoded[0], at::u64(encoded, 1));
        let (bytes, coding) = decode_length(place)?;
        let place = Self { at: place >> LENGTH_BITS, bytes, coding, blocks_after };
        let is_within = u64::from(blocks_after) < PACK_BLOCKS_MAX && place.blocks().all(|pbn| pbn <= place.pack_end());
        (is_within && place.at >= BLOCK_BYTES as u64).then_some(place)
    }
}

fn encode_coding(coding: Coding) -> u64 {
    match coding {
        Coding::Lz4 => LZ4,
        Coding::Zstd => ZSTD,
    }
}

/// The low 14 bits of a number: a length, less one, and a coding.
pub(super) fn encode_length(bytes: u16, coding: Coding) -> u64 {
    u64::from(bytes - 1) << CODING_BITS | encode_coding(coding)
}

/// Decodes the low 14 bits of a number. None: no fragment has this length or this coding.
pub(super) fn decode_length(encoded: u64) -> Option<(u16, Coding)> {
    let coding = match encoded % (1 << CODING_BITS) {
        LZ4 => Coding::Lz4,
        ZSTD => Coding::Zstd,
        _ => return None,
    };
    let bytes = (encoded >> CODING_BITS) % (1 << BYTES_BITS) + 1;
    (bytes as usize <= FRAGMENT_BYTES_MAX).then_some((bytes as u16, coding))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(at: u64, bytes: u16, coding: Coding, blocks_after: u8) -> FragmentPlace {
        FragmentPlace { at, bytes, coding, blocks_after }
    }

    #[test]
    fn a_place_has_its_golden_bytes_and_comes_back() {
        let sample = place(3 * 4096 + 5, 1_000, Coding::Zstd, 7);
        let encoded = sample.encode();
        assert_eq!((encoded[0], at::u64(&encoded, 1)), (7, (3 * 4096 + 5) << 14 | 999 << 2 | 2));
        for place in [
            sample,
            place(4096, 1, Coding::Lz4, 0),
            place((1 << 50) - 1, FRAGMENT_BYTES_MAX as u16, Coding::Zstd, PACK_BLOCKS_MAX as u8 - 1),
        ] {
            assert_eq!(FragmentPlace::decode(&place.encode()), Some(place));
        }
    }

    #[test]
    fn bytes_that_are_no_place_are_refused() {
        let lz4_at = |at: u64, bytes: u64| at << 14 | (bytes - 1) << 2 | 1;
        let decode = |blocks_after: u8, place: u64| {
            let mut encoded = [blocks_after; PLACE_BYTES];
            encoded[1..].copy_from_slice(&place.to_le_bytes());
            FragmentPlace::decode(&encoded)
        };
        for place in [0, 3, lz4_at(4096, 1) & !3, lz4_at(4095, 7), lz4_at(4096, FRAGMENT_BYTES_MAX as u64 + 1)] {
            assert_eq!(decode(1, place), None, "{place:#x}");
        }
        assert!(decode(0, lz4_at(8191, 1)).is_some());
        assert_eq!(decode(0, lz4_at(8191, 2)), None, "it goes beyond its pack");
        assert_eq!(decode(PACK_BLOCKS_MAX as u8, lz4_at(4096, 1)), None, "the pack is too long");
    }

    #[test]
    fn a_fragment_is_counted_where_it_lies_and_at_the_end_of_its_pack() {
        let blocks = |at, bytes| place(at, bytes, Coding::Lz4, 1).blocks().map(|pbn| pbn.0).collect::<Vec<_>>();
        assert_eq!(blocks(8192, 100), [2]);
        assert_eq!(blocks(8191, 1), [1]);
        assert_eq!(blocks(8191, 2), [1, 2]);
        assert_eq!(blocks(5_000, 3_584), [1, 2]);
        let holders = |after| place(8191, 2, Coding::Lz4, after).holders().map(|pbn| pbn.0).collect::<Vec<_>>();
        assert_eq!((holders(1), holders(5)), (vec![1, 2], vec![1, 2, 6]));
    }

    #[test]
    fn the_end_of_each_page_has_no_numbers() {
        let first = Pbn(FIRST_NUMBER);
        assert!(is_number(first) && is_number(first.plus(95)) && is_number(first.plus(128)));
        assert!(!is_number(first.plus(96)) && !is_number(first.plus(127)) && !is_number(Pbn(5)));
        assert!(!is_number(Pbn(2 * FIRST_NUMBER)));
        assert!(!is_fragment(Pbn(FIRST_NUMBER - 1)));
    }
}
