//! The record of how much is compressed: every group that stores or frees fragments carries it.

use super::{sealed, unsealed};
use crate::BLOCK_BYTES;

const SEED: u64 = 0x6672_6167;

/// Sums over all fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentTotals {
    /// How many there are: each stands for a block of content.
    pub fragments: u64,
    /// Their lengths together.
    pub bytes: u64,
    /// How many blocks of the data area hold them.
    pub blocks: u64,
}

impl FragmentTotals {
    /// Bytes of those blocks that no fragment has: gaps, directories of packs, and their ends.
    pub fn gap_bytes(&self) -> u64 {
        // After damage the record may say anything.
        (self.blocks.saturating_mul(BLOCK_BYTES as u64)).saturating_sub(self.bytes)
    }

    /// The record's value: the numbers, and a checksum.
    pub fn encode(&self) -> Vec<u8> {
        sealed(&[self.fragments, self.bytes, self.blocks], SEED)
    }

    /// Decodes the record's value. None: it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        unsealed(bytes, SEED).map(|[fragments, bytes, blocks]| Self { fragments, bytes, blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_has_its_golden_bytes_and_any_flipped_bit_is_noticed() {
        let record = FragmentTotals { fragments: 3, bytes: 0x0102, blocks: 4 };
        let bytes = record.encode();
        assert_eq!(bytes[..18], [3, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 4, 0]);
        assert_eq!(FragmentTotals::decode(&bytes), Some(record));
        assert_eq!(FragmentTotals::decode(&bytes[..31]), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FragmentTotals::decode(&flipped), None, "bit {bit}");
        }
    }
}
