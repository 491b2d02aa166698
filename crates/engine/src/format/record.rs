//! A log record: one commit group. Header, operations, padding to `ALIGN_BYTES`.

use super::{at, checksum};
use crate::device::ALIGN_BYTES;
use crate::{Blocks, MapId};

/// Size of a record's header.
pub const HEADER_BYTES: usize = 96;
const MAGIC: u64 = 0x6F6E_6365_6673_4C52;
const SUM_AT: usize = 0;
const MAGIC_AT: usize = 8;
const SEQUENCE_AT: usize = 16;
const BODY_LEN_AT: usize = 24;
const LOG_ID_AT: usize = 32;
const SUMS_AT: usize = 48;
const SEED: u64 = 0x7265_636F;
const _: () = assert!(SUMS_AT + Sums::BYTES <= HEADER_BYTES);

/// The volume's sums after a group: every commit carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Size of the data area.
    pub data: Blocks,
    /// Blocks with a reference, and the label.
    pub used: Blocks,
    /// Blocks promised to fallocate.
    pub reserved: Blocks,
    /// References from all maps.
    pub mapped: Blocks,
    /// The next map id to hand out.
    pub next_map: MapId,
}

impl Sums {
    /// Encoded size.
    pub const BYTES: usize = 40;

    /// Five numbers in the order of the fields.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [self.data.0, self.used.0, self.reserved.0, self.mapped.0, self.next_map.0];
        for (slot, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads `BYTES` bytes.
    pub fn decode(bytes: &[u8]) -> Self {
        Self {
            data: Blocks(at::u64(bytes, 0)),
            used: Blocks(at::u64(bytes, 8)),
            reserved: Blocks(at::u64(bytes, 16)),
            mapped: Blocks(at::u64(bytes, 24)),
            next_map: MapId(at::u64(bytes, 32)),
        }
    }
}

/// A record's header, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The group's number: one more than the record before.
    pub sequence: u64,
    /// Bytes of operations behind the header.
    pub body_len: u64,
    /// The volume's sums after the group.
    pub sums: Sums,
}

impl Header {
    /// Bytes that the record takes in the log.
    pub fn record_bytes(&self) -> u64 {
        record_bytes(self.body_len)
    }
}

/// Bytes that a record with `body_len` bytes of operations takes in the log.
pub fn record_bytes(body_len: u64) -> u64 {
    (HEADER_BYTES as u64 + body_len).next_multiple_of(ALIGN_BYTES as u64)
}

/// Writes the header into the front of `record`, whose operations are already in their place.
pub fn seal(record: &mut [u8], header: &Header, log_id: [u8; 16]) {
    record[MAGIC_AT..SEQUENCE_AT].copy_from_slice(&MAGIC.to_le_bytes());
    record[SEQUENCE_AT..BODY_LEN_AT].copy_from_slice(&header.sequence.to_le_bytes());
    record[BODY_LEN_AT..LOG_ID_AT].copy_from_slice(&header.body_len.to_le_bytes());
    record[LOG_ID_AT..SUMS_AT].copy_from_slice(&log_id);
    record[SUMS_AT..SUMS_AT + Sums::BYTES].copy_from_slice(&header.sums.encode());
    record[SUMS_AT + Sums::BYTES..HEADER_BYTES].fill(0);
    let end = HEADER_BYTES + header.body_len as usize;
    let sum = checksum(&record[MAGIC_AT..end], SEED);
    record[SUM_AT..MAGIC_AT].copy_from_slice(&sum.to_le_bytes());
}

/// Reads what the first bytes of a record claim, if they look like one of this log; the checksum is not looked at.
pub fn peek(bytes: &[u8], log_id: [u8; 16]) -> Option<Header> {
    let header = bytes.get(..HEADER_BYTES)?;
    if at::u64(header, MAGIC_AT) != MAGIC || header[LOG_ID_AT..SUMS_AT] != log_id {
        return None;
    }
    Some(Header {
        sequence: at::u64(header, SEQUENCE_AT),
        body_len: at::u64(header, BODY_LEN_AT),
        sums: Sums::decode(&header[SUMS_AT..]),
    })
}

/// Checks a whole record; gives its header and its operations.
pub fn open(record: &[u8], log_id: [u8; 16]) -> Option<(Header, &[u8])> {
    let header = peek(record, log_id)?;
    let end = HEADER_BYTES.checked_add(usize::try_from(header.body_len).ok()?)?;
    let covered = record.get(MAGIC_AT..end)?;
    (at::u64(record, SUM_AT) == checksum(covered, SEED)).then(|| (header, &record[HEADER_BYTES..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let sums =
            Sums { data: Blocks(1), used: Blocks(2), reserved: Blocks(3), mapped: Blocks(4), next_map: MapId(5) };
        let mut record = vec![0; 4096];
        record[HEADER_BYTES..HEADER_BYTES + 3].copy_from_slice(b"ops");
        seal(&mut record, &Header { sequence: 9, body_len: 3, sums }, [1; 16]);
        record
    }

    #[test]
    fn a_record_has_its_golden_bytes_and_comes_back() {
        let record = sample();
        assert_eq!(&record[8..16], b"RLsfecno");
        assert_eq!(record[16..32], [9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let (header, body) = open(&record, [1; 16]).unwrap();
        assert_eq!((header.sequence, body, header.record_bytes()), (9, b"ops".as_slice(), 4096));
        assert_eq!(header.sums.next_map, MapId(5));
    }

    #[test]
    fn any_flipped_bit_and_a_foreign_log_are_refused() {
        let record = sample();
        assert!(open(&record, [2; 16]).is_none());
        for bit in 0..(HEADER_BYTES + 3) * 8 {
            let mut flipped = record.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&flipped, [1; 16]).is_none(), "bit {bit}");
        }
    }
}
