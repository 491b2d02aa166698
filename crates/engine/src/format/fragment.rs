//! Fragments: blocks that are kept compressed. A fragment has a number, which maps, hints and records use as they use
//! a pbn, and a place on the data area, which only its entry in the block table knows.
//!
//! Numbers begin above every block of a data area. The pages of their entries lie in a file of their own, `fragments`,
//! and have 96 entries of 40 bytes: those of blocks, followed by the place. So the last 32 numbers of each page do not
//! exist.

use oncefs_compress::{Coding, FRAGMENT_BYTES_MAX};

use crate::{BLOCK_BYTES, Pbn};

/// The first number. A data area with compressed blocks has fewer blocks.
pub const FIRST_NUMBER: u64 = 1 << 38;
/// Numbers of a page, whether they exist or not: as many as a page of blocks has entries.
pub const PAGE_NUMBERS: u64 = 128;
/// The page of the block table with the first number.
pub const FIRST_PAGE: u64 = FIRST_NUMBER / PAGE_NUMBERS;
/// Numbers of a page that exist.
pub const PAGE_FRAGMENTS: u64 = 96;

const BYTES_BITS: u32 = 12;
const CODING_BITS: u32 = 2;
const AT_SHIFT: u32 = BYTES_BITS + CODING_BITS;
const LZ4: u64 = 1;
const ZSTD: u64 = 2;
const _: () = assert!(FRAGMENT_BYTES_MAX <= 1 << BYTES_BITS);
const _: () = assert!(FIRST_NUMBER * BLOCK_BYTES as u64 <= 1 << (u64::BITS - AT_SHIFT));

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
}

impl FragmentPlace {
    /// The blocks that it has a byte in: one or two.
    pub fn blocks(&self) -> impl Iterator<Item = Pbn> + use<> {
        let block = BLOCK_BYTES as u64;
        (self.at / block..=(self.at + u64::from(self.bytes) - 1) / block).map(Pbn)
    }

    /// The first byte after it.
    pub fn end(&self) -> u64 {
        self.at + u64::from(self.bytes)
    }

    /// Eight bytes: place, length less one, coding.
    pub fn encode(&self) -> u64 {
        debug_assert!(self.bytes > 0 && usize::from(self.bytes) <= FRAGMENT_BYTES_MAX, "a fragment: {self:?}");
        let coding = match self.coding {
            Coding::Lz4 => LZ4,
            Coding::Zstd => ZSTD,
        };
        self.at << AT_SHIFT | u64::from(self.bytes - 1) << CODING_BITS | coding
    }

    /// Decodes eight bytes. None: they are no place, or one before the first block of the data area.
    pub fn decode(encoded: u64) -> Option<Self> {
        let coding = match encoded % (1 << CODING_BITS) {
            LZ4 => Coding::Lz4,
            ZSTD => Coding::Zstd,
            _ => return None,
        };
        let bytes = (encoded >> CODING_BITS) % (1 << BYTES_BITS) + 1;
        let at = encoded >> AT_SHIFT;
        let is_place = bytes as usize <= FRAGMENT_BYTES_MAX && at >= BLOCK_BYTES as u64;
        is_place.then_some(Self { at, bytes: bytes as u16, coding })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_its_golden_number_and_comes_back() {
        let place = FragmentPlace { at: 3 * 4096 + 5, bytes: 1_000, coding: Coding::Zstd };
        assert_eq!(place.encode(), (3 * 4096 + 5) << 14 | 999 << 2 | 2);
        for place in [
            place,
            FragmentPlace { at: 4096, bytes: 1, coding: Coding::Lz4 },
            FragmentPlace { at: (1 << 50) - 1, bytes: FRAGMENT_BYTES_MAX as u16, coding: Coding::Zstd },
        ] {
            assert_eq!(FragmentPlace::decode(place.encode()), Some(place));
        }
    }

    #[test]
    fn numbers_that_are_no_place_are_refused() {
        let lz4_at = |at: u64, bytes: u64| at << 14 | (bytes - 1) << 2 | 1;
        for encoded in [0, 3, lz4_at(4096, 1) & !3, lz4_at(4095, 7), lz4_at(4096, FRAGMENT_BYTES_MAX as u64 + 1)] {
            assert_eq!(FragmentPlace::decode(encoded), None, "{encoded:#x}");
        }
    }

    #[test]
    fn a_fragment_lies_in_one_block_or_in_two() {
        let blocks = |at, bytes| {
            let place = FragmentPlace { at, bytes, coding: Coding::Lz4 };
            place.blocks().map(|pbn| pbn.0).collect::<Vec<_>>()
        };
        assert_eq!(blocks(8192, 100), [2]);
        assert_eq!(blocks(8191, 1), [1]);
        assert_eq!(blocks(8191, 2), [1, 2]);
        assert_eq!(blocks(5_000, 3_584), [1, 2]);
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
