//! A page of the file `hints`: the hints of one prefix of tags, sorted (SmartDedup, section 3.2).
//!
//! Advice: a page that is damaged, from an earlier incarnation of the file or in another page's place counts as
//! missing. An entry has bits 8 to 39 of its tag and 3 to 5 bytes of its pbn; the first 8 bits are in the prefix.

use oncefs_dedup::{Hint, HintPage, PREFIX_BITS_MIN, Prefix, TAG_BITS_KEPT};

use super::{at, checksum};
use crate::{Pbn, Tag};

/// Size of a page.
pub const BYTES: usize = 4096;
const CHECKSUM_AT: usize = 0;
const INCARNATION_AT: usize = 8;
const NUMBER_AT: usize = 12;
const PREFIX_AT: usize = 16;
const DEPTH_AT: usize = 20;
const PBN_BYTES_AT: usize = 21;
const COUNT_AT: usize = 22;
const ENTRIES_AT: usize = 24;
const TAG_BYTES: usize = 4;
const SEED: u64 = 0x6869_6E74;
/// Bits of the tag that an entry leaves to the prefix.
const _: () = assert!(PREFIX_BITS_MIN + 8 * TAG_BYTES as u32 == TAG_BITS_KEPT);

/// Bytes of a pbn below `blocks` in a page: 3, 4 or 5.
pub fn pbn_bytes(blocks: u64) -> usize {
    let bits = u64::BITS - blocks.saturating_sub(1).leading_zeros();
    (bits.div_ceil(8) as usize).clamp(3, 5)
}

/// Hints that fit into a page whose pbns have this many bytes.
pub fn capacity(pbn_bytes: usize) -> usize {
    (BYTES - ENTRIES_AT) / (TAG_BYTES + pbn_bytes)
}

/// The bytes of a page. `incarnation`: how often the file was started over.
pub fn encode(page: &HintPage, incarnation: u32, number: u32, pbn_bytes: usize) -> [u8; BYTES] {
    assert!(page.hints.len() <= capacity(pbn_bytes), "{} hints are too many for a page", page.hints.len());
    let mut bytes = [0; BYTES];
    bytes[INCARNATION_AT..NUMBER_AT].copy_from_slice(&incarnation.to_le_bytes());
    bytes[NUMBER_AT..PREFIX_AT].copy_from_slice(&number.to_le_bytes());
    bytes[PREFIX_AT..DEPTH_AT].copy_from_slice(&page.prefix.bits.to_le_bytes());
    bytes[DEPTH_AT] = page.prefix.depth as u8;
    bytes[PBN_BYTES_AT] = pbn_bytes as u8;
    bytes[COUNT_AT..ENTRIES_AT].copy_from_slice(&(page.hints.len() as u16).to_le_bytes());
    let entries = bytes[ENTRIES_AT..].chunks_exact_mut(TAG_BYTES + pbn_bytes);
    for (entry, hint) in entries.zip(&page.hints) {
        let tag_bits = (hint.tag.0 >> (u64::BITS - TAG_BITS_KEPT)) as u32;
        entry[..TAG_BYTES].copy_from_slice(&tag_bits.to_be_bytes());
        entry[TAG_BYTES..].copy_from_slice(&hint.pbn.0.to_be_bytes()[8 - pbn_bytes..]);
    }
    let sum = checksum(&bytes[INCARNATION_AT..], SEED);
    bytes[CHECKSUM_AT..INCARNATION_AT].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A decoded page of the file.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A page of this incarnation.
    Page(HintPage),
    /// Never written, or from an earlier incarnation.
    Unused,
    /// Its checksum does not match, or it belongs elsewhere.
    Damaged,
}

/// Decodes a page.
pub fn decode(bytes: &[u8; BYTES], incarnation: u32, number: u32) -> Decoded {
    let sum = at::u64(bytes, CHECKSUM_AT);
    if sum == 0 && bytes.iter().all(|byte| *byte == 0) {
        return Decoded::Unused;
    }
    if sum != checksum(&bytes[INCARNATION_AT..], SEED) {
        return Decoded::Damaged;
    }
    if at::u32(bytes, INCARNATION_AT) != incarnation {
        return Decoded::Unused;
    }
    let (depth, pbn_bytes) = (u32::from(bytes[DEPTH_AT]), usize::from(bytes[PBN_BYTES_AT]));
    let count = usize::from(at::u16(bytes, COUNT_AT));
    let is_sound = at::u32(bytes, NUMBER_AT) == number
        && (PREFIX_BITS_MIN..u32::BITS).contains(&depth)
        && (3..=5).contains(&pbn_bytes)
        && count <= capacity(pbn_bytes);
    if !is_sound {
        return Decoded::Damaged;
    }
    let prefix = Prefix { bits: at::u32(bytes, PREFIX_AT), depth };
    let lead = prefix.first_tag().0 & !(u64::MAX >> PREFIX_BITS_MIN);
    let entries = bytes[ENTRIES_AT..].chunks_exact(TAG_BYTES + pbn_bytes).take(count);
    let hint = |entry: &[u8]| {
        let tag_bits = u32::from_be_bytes(entry[..TAG_BYTES].try_into().expect("four bytes"));
        let mut pbn = [0; 8];
        pbn[8 - pbn_bytes..].copy_from_slice(&entry[TAG_BYTES..]);
        let tag = lead | u64::from(tag_bits) << (u64::BITS - TAG_BITS_KEPT);
        Hint { tag: Tag(tag), pbn: Pbn(u64::from_be_bytes(pbn)) }
    };
    Decoded::Page(HintPage { prefix, hints: entries.map(hint).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> HintPage {
        let hint = |tag: u64, pbn| Hint { tag: Tag(tag << 24), pbn: Pbn(pbn) };
        HintPage {
            prefix: Prefix { bits: 0x123, depth: 12 },
            hints: vec![hint(0x12_3000_0001, 7), hint(0x12_3FFF_FFFF, 0xAB_CDEF)],
        }
    }

    #[test]
    fn a_page_has_its_golden_bytes_and_comes_back() {
        let bytes = encode(&sample(), 3, 9, 3);
        assert_eq!(bytes[8..24], [3, 0, 0, 0, 9, 0, 0, 0, 0x23, 1, 0, 0, 12, 3, 2, 0]);
        assert_eq!(bytes[24..38], [0x30, 0, 0, 1, 0, 0, 7, 0x3F, 0xFF, 0xFF, 0xFF, 0xAB, 0xCD, 0xEF]);
        assert!(bytes[38..].iter().all(|byte| *byte == 0));
        assert_eq!(decode(&bytes, 3, 9), Decoded::Page(sample()));
    }

    #[test]
    fn damaged_pages_those_of_others_and_those_of_before_are_told_apart() {
        let good = encode(&sample(), 3, 9, 4);
        assert_eq!(decode(&good, 4, 9), Decoded::Unused);
        assert_eq!(decode(&good, 3, 8), Decoded::Damaged);
        assert_eq!(decode(&[0; BYTES], 3, 9), Decoded::Unused);
        for at in 0..BYTES {
            let mut bad = good;
            bad[at] ^= 0x10;
            assert_eq!(decode(&bad, 3, 9), Decoded::Damaged, "byte {at}");
        }
    }

    #[test]
    fn a_page_holds_more_where_pbns_are_small() {
        assert_eq!([1 << 20, 1 << 24, (1 << 24) + 1, 1 << 32, 1 << 40].map(pbn_bytes), [3, 3, 4, 4, 5]);
        assert_eq!([3, 4, 5].map(capacity), [581, 509, 452]);
    }

    #[test]
    fn every_width_comes_back() {
        for width in 3..=5 {
            let hint = |n: u64| Hint { tag: Tag((0x77 << 32 | n) << 24), pbn: Pbn(n * 1_000) };
            let page = HintPage {
                prefix: Prefix { bits: 0x77, depth: 8 },
                hints: (0..capacity(width) as u64).map(hint).collect(),
            };
            assert_eq!(decode(&encode(&page, 1, 2, width), 1, 2), Decoded::Page(page));
        }
    }
}
