//! The directory of a pack: which fragments it was written with, at the end of its last block. It gives places back if
//! their entries in the block table are damaged, and finds the fragments of a pack that has gaps.
//!
//! A directory says what was written, not what is live: the number of a fragment that left the pack may name other
//! content by now. Of the directories of live packs that name a number, the one with the highest order is right,
//! because orders are given out after numbers. Its checksum is keyed and has the pbn in it, so no user's data passes
//! for one.

use oncefs_compress::Coding;

use super::at;
use super::fragment::{
    FIRST_NUMBER, FragmentPlace, LENGTH_BITS, PACK_BLOCKS_MAX, decode_length, encode_length, is_number,
};
use crate::{BLOCK_BYTES, Pbn, Tag};

const ENTRY_BYTES: usize = 16;
const FOOTER_BYTES: usize = 32;
/// Most fragments of a pack: their directory fits into the last block.
pub const FRAGMENTS_MAX: usize = (BLOCK_BYTES - FOOTER_BYTES) / ENTRY_BYTES;

const TAG_AT: usize = 8;
const FOOTER_AT: usize = BLOCK_BYTES - FOOTER_BYTES;
const ORDER_AT: usize = FOOTER_AT;
const FRAGMENTS_AT: usize = FOOTER_AT + 8;
const BLOCKS_AT: usize = FOOTER_AT + 10;
const MAGIC_AT: usize = FOOTER_AT + 16;
const CHECKSUM_AT: usize = FOOTER_AT + 24;
const MAGIC: u64 = 0x6F6E_6365_7061_636B;
const _: () = assert!(FRAGMENTS_MAX <= u8::MAX as usize && PACK_BLOCKS_MAX <= u8::MAX as u64);
const _: () = assert!((2 * FIRST_NUMBER - 1) << LENGTH_BITS >> LENGTH_BITS == 2 * FIRST_NUMBER - 1);

/// A fragment that a pack was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub number: Pbn,
    /// Its length in bytes.
    pub bytes: u16,
    /// How it is compressed.
    pub coding: Coding,
    /// The tag of its content.
    pub tag: Tag,
}

/// The directory of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackDirectory {
    /// Higher than that of every directory written before.
    pub order: u64,
    /// How many blocks the pack had.
    pub blocks: u8,
    /// Its fragments, one behind the other from the first byte of its first block on.
    pub fragments: Vec<Listed>,
}

/// Size of the directory of this many fragments.
pub const fn directory_bytes(fragments: usize) -> usize {
    FOOTER_BYTES + fragments * ENTRY_BYTES
}

impl PackDirectory {
    /// Writes it to the end of its block. `sum` is the volume's keyed checksum.
    pub fn write(&self, pbn: Pbn, block: &mut [u8], sum: impl Fn(&[u8]) -> u64) {
        assert!(block.len() == BLOCK_BYTES && self.fragments.len() <= FRAGMENTS_MAX, "a directory of one block");
        let from = BLOCK_BYTES - directory_bytes(self.fragments.len());
        for (listed, entry) in self.fragments.iter().zip(block[from..FOOTER_AT].chunks_exact_mut(ENTRY_BYTES)) {
            let what = listed.number.0 << LENGTH_BITS | encode_length(listed.bytes, listed.coding);
            entry[..TAG_AT].copy_from_slice(&what.to_le_bytes());
            entry[TAG_AT..].copy_from_slice(&listed.tag.0.to_le_bytes());
        }
        block[FOOTER_AT..].fill(0);
        block[ORDER_AT..FRAGMENTS_AT].copy_from_slice(&self.order.to_le_bytes());
        block[FRAGMENTS_AT..BLOCKS_AT].copy_from_slice(&(self.fragments.len() as u16).to_le_bytes());
        block[BLOCKS_AT] = self.blocks;
        block[MAGIC_AT..CHECKSUM_AT].copy_from_slice(&MAGIC.to_le_bytes());
        let checksum = sum(&block[from..CHECKSUM_AT]) ^ pbn.0;
        block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads the directory at the end of a block. None: there is none, or it is damaged.
    pub fn read(pbn: Pbn, block: &[u8], sum: impl Fn(&[u8]) -> u64) -> Option<Self> {
        assert_eq!(block.len(), BLOCK_BYTES, "a directory lies in one block");
        let fragments = usize::from(block[FRAGMENTS_AT]) | usize::from(block[FRAGMENTS_AT + 1]) << 8;
        if at::u64(block, MAGIC_AT) != MAGIC || fragments > FRAGMENTS_MAX {
            return None;
        }
        let from = BLOCK_BYTES - directory_bytes(fragments);
        if at::u64(block, CHECKSUM_AT) != sum(&block[from..CHECKSUM_AT]) ^ pbn.0 {
            return None;
        }
        let fragments = block[from..FOOTER_AT].chunks_exact(ENTRY_BYTES).map(listed).collect::<Option<Vec<_>>>()?;
        let directory = Self { order: at::u64(block, ORDER_AT), blocks: block[BLOCKS_AT], fragments };
        let bytes = directory.fragments.iter().map(|listed| usize::from(listed.bytes)).sum::<usize>();
        let whole = bytes + directory_bytes(directory.fragments.len());
        let blocks = u64::from(directory.blocks);
        let has_room = whole <= usize::from(directory.blocks) * BLOCK_BYTES;
        let is_possible = (1..=PACK_BLOCKS_MAX).contains(&blocks) && pbn.0 >= blocks;
        (has_room && is_possible).then_some(directory)
    }

    /// The fragments with their places, if the pack ends with this block.
    pub fn places(&self, end: Pbn) -> impl Iterator<Item = (Listed, FragmentPlace)> + '_ {
        let first = end.0 + 1 - u64::from(self.blocks);
        let mut next = first * BLOCK_BYTES as u64;
        self.fragments.iter().map(move |listed| {
            let at = next;
            next += u64::from(listed.bytes);
            let blocks_after = (end.0 - at / BLOCK_BYTES as u64) as u8;
            (*listed, FragmentPlace { at, bytes: listed.bytes, coding: listed.coding, blocks_after })
        })
    }
}

fn listed(entry: &[u8]) -> Option<Listed> {
    let what = at::u64(entry, 0);
    let (bytes, coding) = decode_length(what)?;
    let number = Pbn(what >> LENGTH_BITS);
    is_number(number).then_some(Listed { number, bytes, coding, tag: Tag(at::u64(entry, TAG_AT)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> u64 {
        super::super::checksum(bytes, 5)
    }

    fn sample() -> PackDirectory {
        let listed = |n: u64, bytes, coding| Listed { number: Pbn(FIRST_NUMBER + n), bytes, coding, tag: Tag(n + 7) };
        let fragments =
            vec![listed(3, 1_000, Coding::Zstd), listed(4, 3_584, Coding::Lz4), listed(130, 1, Coding::Lz4)];
        PackDirectory { order: 0x0102, blocks: 2, fragments }
    }

    #[test]
    fn a_directory_has_its_golden_bytes_and_any_flipped_bit_is_noticed() {
        let mut block = vec![0xEE; BLOCK_BYTES];
        let end = Pbn(77);
        sample().write(end, &mut block, sum);
        let from = BLOCK_BYTES - 32 - 3 * 16;
        assert_eq!(block[from - 1], 0xEE, "the fragments before it stay");
        assert_eq!(at::u64(&block, from), (FIRST_NUMBER + 3) << 14 | 999 << 2 | 2);
        assert_eq!(at::u64(&block, from + 8), 10);
        assert_eq!(block[4064..4080], [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 2, 0, 0, 0, 0, 0]);
        assert_eq!(block[4080..4088], *b"kcapecno");
        assert_eq!(PackDirectory::read(end, &block, sum), Some(sample()));
        assert_eq!(PackDirectory::read(Pbn(78), &block, sum), None, "it belongs to another block");
        for bit in from * 8..BLOCK_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(PackDirectory::read(end, &block, sum), None, "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn places_follow_from_lengths() {
        let places: Vec<FragmentPlace> = sample().places(Pbn(77)).map(|(_, place)| place).collect();
        let first = 76 * 4096;
        let ats: Vec<(u64, u8)> = places.iter().map(|place| (place.at - first, place.blocks_after)).collect();
        assert_eq!(ats, [(0, 1), (1_000, 1), (4_584, 0)]);
        assert!(places.iter().all(|place| place.pack_end() == Pbn(77)));
    }

    #[test]
    fn a_directory_of_more_than_the_pack_has_room_for_is_refused() {
        let mut block = vec![0; BLOCK_BYTES];
        for (blocks, is_read) in [(1, false), (2, true), (16, true), (17, false), (0, false)] {
            PackDirectory { blocks, ..sample() }.write(Pbn(77), &mut block, sum);
            assert_eq!(PackDirectory::read(Pbn(77), &block, sum).is_some(), is_read, "{blocks} blocks");
        }
        PackDirectory { blocks: 3, ..sample() }.write(Pbn(2), &mut block, sum);
        assert_eq!(PackDirectory::read(Pbn(2), &block, sum), None, "it begins before the data area");
    }
}
