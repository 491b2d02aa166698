//! A point of a volume's history: one record of the file `history`. Each has its own checksum, so a damaged one costs
//! only itself.
//!
//! Advice: only reports depend on it.

use super::{at, checksum};

/// Bytes of a record.
pub const POINT_BYTES: usize = 64;
const HELD_AT: usize = 8;
const STORED_AT: usize = 16;
const FREE_AT: usize = 24;
const BACKLOG_AT: usize = 32;
const READ_AT: usize = 40;
const WRITTEN_AT: usize = 48;
const CHECKSUM_AT: usize = 56;
const SEED: u64 = 0x6869_7374;
const _: () = assert!(CHECKSUM_AT + 8 == POINT_BYTES);

/// A volume's figures at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryPoint {
    /// The moment, in seconds since 1970.
    pub seconds: u64,
    /// The content of all files.
    pub held: u64,
    /// The blocks that the data area holds for them.
    pub stored: u64,
    /// How much could still be written.
    pub free: u64,
    /// How much the worker had yet to visit.
    pub backlog: u64,
    /// Read from the data area since the point before.
    pub read: u64,
    /// Written to the data area, the log, the block table and the records since the point before.
    pub written: u64,
}

impl HistoryPoint {
    /// The record.
    pub fn encode(&self) -> [u8; POINT_BYTES] {
        let Self { seconds, held, stored, free, backlog, read, written } = *self;
        let mut bytes = [0; POINT_BYTES];
        let numbers = [seconds, held, stored, free, backlog, read, written];
        for (field, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let sum = checksum(&bytes[..CHECKSUM_AT], SEED);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a record. None: it is damaged, or was never written.
    pub fn decode(bytes: &[u8; POINT_BYTES]) -> Option<Self> {
        let number = |place| at::u64(bytes, place);
        (number(CHECKSUM_AT) == checksum(&bytes[..CHECKSUM_AT], SEED)).then(|| Self {
            seconds: number(0),
            held: number(HELD_AT),
            stored: number(STORED_AT),
            free: number(FREE_AT),
            backlog: number(BACKLOG_AT),
            read: number(READ_AT),
            written: number(WRITTEN_AT),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINT: HistoryPoint =
        HistoryPoint { seconds: 1, held: 2, stored: 3, free: 4, backlog: 5, read: 6, written: 7 };

    #[test]
    fn a_point_has_its_golden_bytes() {
        let bytes = POINT.encode();
        for (at, field) in bytes[..CHECKSUM_AT].chunks_exact(8).enumerate() {
            assert_eq!(field, (at as u64 + 1).to_le_bytes());
        }
        assert_eq!(bytes[CHECKSUM_AT..], [228, 204, 187, 64, 46, 167, 3, 117]);
        assert_eq!(HistoryPoint::decode(&bytes), Some(POINT));
    }

    #[test]
    fn any_flipped_bit_and_a_record_of_zeros_are_refused() {
        for bit in 0..POINT_BYTES * 8 {
            let mut flipped = POINT.encode();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(HistoryPoint::decode(&flipped), None, "bit {bit}");
        }
        assert_eq!(HistoryPoint::decode(&[0; POINT_BYTES]), None);
    }
}
