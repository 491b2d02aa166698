//! The checkpoint record: the last group that is complete in the sorted state and the block table,
//! and where the next group begins in the log.

use super::record::Totals;
use super::{at, checksum};

const BYTES: usize = 64;
const SEQUENCE_AT: usize = 0;
const LOG_AT: usize = 8;
const TOTALS_AT: usize = 16;
const CHECKSUM_AT: usize = 56;
const SEED: u64 = 0x6368_6563;
const _: () = assert!(TOTALS_AT + Totals::BYTES == CHECKSUM_AT && CHECKSUM_AT + 8 == BYTES);

/// A finished checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last group whose changes are all in their places.
    pub sequence: u64,
    /// The offset in the log, in bytes, at which the group after it begins.
    pub log_at: u64,
    /// The volume's totals after that group.
    pub totals: Totals,
}

impl Checkpoint {
    /// The record's value in this volume.
    pub fn encode(&self, volume_id: [u8; 16]) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        bytes[SEQUENCE_AT..LOG_AT].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[LOG_AT..TOTALS_AT].copy_from_slice(&self.log_at.to_le_bytes());
        bytes[TOTALS_AT..CHECKSUM_AT].copy_from_slice(&self.totals.encode());
        let sum = checksum(&bytes[..CHECKSUM_AT], seed_of(volume_id));
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the record's value. None: it is damaged, or another volume's.
    pub fn decode(bytes: &[u8], volume_id: [u8; 16]) -> Option<Self> {
        if bytes.len() != BYTES || at::u64(bytes, CHECKSUM_AT) != checksum(&bytes[..CHECKSUM_AT], seed_of(volume_id)) {
            return None;
        }
        Some(Self {
            sequence: at::u64(bytes, SEQUENCE_AT),
            log_at: at::u64(bytes, LOG_AT),
            totals: Totals::decode(&bytes[TOTALS_AT..CHECKSUM_AT]),
        })
    }
}

/// The seed makes the checksum of another volume's record fail.
fn seed_of(volume_id: [u8; 16]) -> u64 {
    SEED ^ at::u64(&volume_id, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_has_its_golden_bytes_and_comes_back() {
        let checkpoint = Checkpoint { sequence: 3, log_at: 8192, totals: Totals::default() };
        let bytes = checkpoint.encode([1; 16]);
        assert_eq!(bytes[..16], [3, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Checkpoint::decode(&bytes, [1; 16]), Some(checkpoint));
        assert_eq!(Checkpoint::decode(&bytes, [2; 16]), None, "another volume's");
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let bytes = Checkpoint::default().encode([1; 16]);
        for bit in 0..BYTES * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Checkpoint::decode(&flipped, [1; 16]), None, "bit {bit}");
        }
    }
}
