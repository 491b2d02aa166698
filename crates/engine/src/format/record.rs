//! A log record: one commit group. Header, operations, padding to `ALIGN_BYTES`.
//!
//! A Hamming code locates one wrong byte, so that the record is neither lost nor mistaken for a write that a crash cut
//! off. The code is the XOR of the places of all set bits, so wrong bits change it by the XOR of their own places. An
//! odd number of them in one byte identifies the byte. An even number cancels all but their places within it, and each
//! byte is tried. A torn write changes the code arbitrarily. The record's checksum tells whether this was the only
//! damage.

use crate::device::ALIGN_BYTES;
use crate::format::{at, checksum};
use crate::{Blocks, MapId};

/// Size of a record's header.
pub const HEADER_BYTES: usize = 96;
const MAGIC: u64 = 0x6F6E_6365_6673_4C52;
const SUM_AT: usize = 0;
const MAGIC_AT: usize = 8;
const SEQUENCE_AT: usize = 16;
const BODY_LEN_AT: usize = 24;
const LOG_ID_AT: usize = 32;
const TOTALS_AT: usize = 48;
const PLACES_AT: usize = 88;
const HEADER_SUM_AT: usize = 92;
const SEED: u64 = 0x7265_636F;
const HEADER_SEED: u64 = 0x6865_6164;
/// In longer records an even number of wrong bits is not searched for: the time grows with the square of their length,
/// here to seconds.
const SOUGHT_BYTES_MAX: usize = 64 << 10;
const _: () = assert!(TOTALS_AT + Totals::BYTES == PLACES_AT && HEADER_SUM_AT + 4 == HEADER_BYTES);

/// The volume's space in blocks of [`crate::BLOCK_BYTES`]: every commit carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Size of the data area.
    pub data: Blocks,
    /// Blocks of the data area that are in use: those with a reference, and the label.
    pub used: Blocks,
    /// Blocks reserved by fallocate and not written yet; with `used` at most `data`.
    pub reserved: Blocks,
    /// References to blocks from all maps: the content of all files, counted without sharing.
    pub mapped: Blocks,
    /// The next map id to hand out.
    pub next_map: MapId,
}

impl Totals {
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

    /// Decodes `BYTES` bytes.
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

/// The decoded header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The group's number: one more than that of the record before.
    pub sequence: u64,
    /// Bytes of operations after the header.
    pub body_len: u64,
    /// The volume's totals after the group.
    pub totals: Totals,
}

impl Header {
    /// Bytes of the record in the log.
    pub fn record_bytes(&self) -> u64 {
        record_bytes(self.body_len)
    }
}

/// Bytes of a record with `body_len` bytes of operations in the log.
pub fn record_bytes(body_len: u64) -> u64 {
    (HEADER_BYTES as u64 + body_len).next_multiple_of(ALIGN_BYTES as u64)
}

/// Writes the header at the start of `record`; the operations are already in their place.
pub fn seal(record: &mut [u8], header: &Header, log_id: [u8; 16]) {
    record[MAGIC_AT..SEQUENCE_AT].copy_from_slice(&MAGIC.to_le_bytes());
    record[SEQUENCE_AT..BODY_LEN_AT].copy_from_slice(&header.sequence.to_le_bytes());
    record[BODY_LEN_AT..LOG_ID_AT].copy_from_slice(&header.body_len.to_le_bytes());
    record[LOG_ID_AT..TOTALS_AT].copy_from_slice(&log_id);
    record[TOTALS_AT..TOTALS_AT + Totals::BYTES].copy_from_slice(&header.totals.encode());
    let end = HEADER_BYTES + header.body_len as usize;
    record[PLACES_AT..HEADER_BYTES].fill(0);
    let places = set_places(&record[MAGIC_AT..end]);
    record[PLACES_AT..HEADER_SUM_AT].copy_from_slice(&places.to_le_bytes());
    let header_sum = header_sum(record);
    record[HEADER_SUM_AT..HEADER_BYTES].copy_from_slice(&header_sum.to_le_bytes());
    let sum = checksum(&record[MAGIC_AT..end], SEED);
    record[SUM_AT..MAGIC_AT].copy_from_slice(&sum.to_le_bytes());
}

/// Decodes the header of a record if it looks like one of this log. Does not verify the checksum.
pub fn peek(bytes: &[u8], log_id: [u8; 16]) -> Option<Header> {
    let header = bytes.get(..HEADER_BYTES)?;
    if at::u64(header, MAGIC_AT) != MAGIC || header[LOG_ID_AT..TOTALS_AT] != log_id {
        return None;
    }
    Some(Header {
        sequence: at::u64(header, SEQUENCE_AT),
        body_len: at::u64(header, BODY_LEN_AT),
        totals: Totals::decode(&header[TOTALS_AT..]),
    })
}

/// Checks a whole record and returns its header and operations. None: it is damaged, or another log's.
pub fn open(record: &[u8], log_id: [u8; 16]) -> Option<(Header, &[u8])> {
    let header = peek(record, log_id)?;
    let end = HEADER_BYTES.checked_add(usize::try_from(header.body_len).ok()?)?;
    let covered = record.get(MAGIC_AT..end)?;
    (at::u64(record, SUM_AT) == checksum(covered, SEED)).then(|| (header, &record[HEADER_BYTES..end]))
}

/// The checksum that the header should have.
fn header_sum(record: &[u8]) -> u32 {
    checksum(&record[MAGIC_AT..HEADER_SUM_AT], HEADER_SEED) as u32
}

/// The header of group `sequence` in the first bytes of a record, after correcting one wrong byte if that makes it
/// valid. None: the bytes are not such a header.
pub fn mend_header(bytes: &mut [u8], log_id: [u8; 16], sequence: u64) -> Option<Header> {
    let whole = |bytes: &[u8]| {
        let is_whole = at::u32(bytes, HEADER_SUM_AT) == header_sum(bytes);
        peek(bytes, log_id).filter(|header| is_whole && header.sequence == sequence)
    };
    let bytes = bytes.get_mut(..HEADER_BYTES)?;
    if let Some(header) = whole(bytes) {
        return Some(header);
    }
    // Bytes that are not a header differ in more than one of the known bytes.
    let known = known_bytes(log_id, sequence);
    let mut wrong = known.iter().filter(|(at, value)| bytes[*at] != *value);
    let sought = match (wrong.next(), wrong.next()) {
        (None, _) => MAGIC_AT..HEADER_BYTES,
        (Some((at, _)), None) => *at..at + 1,
        _ => return None,
    };
    for at in sought {
        let found = bytes[at];
        for bits in 1..=u8::MAX {
            bytes[at] = found ^ bits;
            if let Some(header) = whole(bytes) {
                return Some(header);
            }
        }
        bytes[at] = found;
    }
    None
}

/// The sequence in a header of this log with at most one wrong byte, or in bytes that still look like one although more
/// are wrong. None: they do not begin like a header of this log.
pub fn likely_sequence(bytes: &[u8], log_id: [u8; 16]) -> Option<u64> {
    let mut header: [u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().expect("its own length");
    let wrong = known_bytes(log_id, 0)
        .into_iter()
        .filter(|(at, value)| !(SEQUENCE_AT..BODY_LEN_AT).contains(at) && header[*at] != *value);
    if wrong.count() > 1 {
        return None;
    }
    let claimed = at::u64(&header, SEQUENCE_AT);
    // Wherever the wrong byte is: in another field, it leaves the sequence as claimed.
    let others = (SEQUENCE_AT..BODY_LEN_AT).flat_map(|at| (1..=u8::MAX).map(move |bits| (at, bits)));
    let mended = others.map(|(at, bits)| claimed ^ u64::from(bits) << ((at - SEQUENCE_AT) * 8));
    header[MAGIC_AT..SEQUENCE_AT].copy_from_slice(&MAGIC.to_le_bytes());
    header[LOG_ID_AT..TOTALS_AT].copy_from_slice(&log_id);
    let found = [claimed].into_iter().chain(mended).find(|sequence| {
        header[SEQUENCE_AT..BODY_LEN_AT].copy_from_slice(&sequence.to_le_bytes());
        at::u32(&header, HEADER_SUM_AT) == header_sum(&header)
    });
    Some(found.unwrap_or(claimed))
}

/// Whether these are the first bytes of the record of group `sequence`, with at most one wrong byte in its header.
pub fn is_of_group(block: &[u8], log_id: [u8; 16], sequence: u64) -> bool {
    let Some(header) = block.get(..HEADER_BYTES) else { return false };
    let is_claimed = peek(header, log_id).is_some_and(|header| header.sequence == sequence);
    is_claimed || mend_header(&mut header.to_vec(), log_id, sequence).is_some()
}

/// The bytes that are the same in every header of group `sequence`, with their places.
fn known_bytes(log_id: [u8; 16], sequence: u64) -> Vec<(usize, u8)> {
    let fields = [(MAGIC_AT, &MAGIC.to_le_bytes()[..]), (SEQUENCE_AT, &sequence.to_le_bytes()), (LOG_ID_AT, &log_id)];
    fields.into_iter().flat_map(|(from, bytes)| (from..).zip(bytes.iter().copied())).collect()
}

/// Corrects one wrong byte of a record whose header is intact. False: more is wrong, as in an incompletely written
/// record, or an even number of bits of one byte in a record of more than 64 KiB.
pub fn mend(record: &mut [u8], header: &Header, log_id: [u8; 16]) -> bool {
    let Some(end) = usize::try_from(header.body_len).ok().and_then(|len| HEADER_BYTES.checked_add(len)) else {
        return false;
    };
    if end > record.len() {
        return false;
    }
    let (stored, computed) = (at::u64(record, SUM_AT), checksum(&record[MAGIC_AT..end], SEED));
    if (stored ^ computed).to_le_bytes().iter().filter(|byte| **byte != 0).count() <= 1 {
        record[SUM_AT..MAGIC_AT].copy_from_slice(&computed.to_le_bytes());
        return true;
    }
    let wrong = wrong_places(record, end);
    mend_covered(&mut record[MAGIC_AT..end], wrong, stored) && open(record, log_id).is_some()
}

/// The XOR of the places of all wrong bits of a record of `end` bytes.
fn wrong_places(record: &mut [u8], end: usize) -> u32 {
    let places = at::u32(record, PLACES_AT);
    let tail: [u8; HEADER_BYTES - PLACES_AT] = record[PLACES_AT..HEADER_BYTES].try_into().expect("eight bytes");
    record[PLACES_AT..HEADER_BYTES].fill(0);
    let wrong = places ^ set_places(&record[MAGIC_AT..end]);
    record[PLACES_AT..HEADER_BYTES].copy_from_slice(&tail);
    wrong
}

/// Makes the checksum of `covered` right by changing one byte. The places of its wrong bits have the XOR `wrong`.
fn mend_covered(covered: &mut [u8], wrong: u32, sum: u64) -> bool {
    let (word, within, len) = (wrong >> 3, wrong & 7, covered.len());
    let mut is_mended_at = |at: usize, is_odd: bool| {
        let Some(found) = covered.get(at).copied() else { return false };
        for bits in
            (1..=u8::MAX).filter(|bits| (bits.count_ones() % 2 == 1) == is_odd && places_within(*bits) == within)
        {
            covered[at] = found ^ bits;
            if checksum(covered, SEED) == sum {
                return true;
            }
        }
        covered[at] = found;
        false
    };
    if let Some(at) = (word as usize).checked_sub(WORD_BYTES) {
        return is_mended_at(at, true);
    }
    word == 0 && len <= SOUGHT_BYTES_MAX && (0..len).any(|at| is_mended_at(at, false))
}

/// The XOR of the places within a byte of its set bits.
fn places_within(bits: u8) -> u32 {
    (0..8).filter(|bit| bits >> bit & 1 == 1).fold(0, |places, bit| places ^ bit)
}

/// For each of the 6 bits of a place within a word, the places with that bit set.
const PLACES_WITH: [u64; 6] = [
    0xAAAA_AAAA_AAAA_AAAA,
    0xCCCC_CCCC_CCCC_CCCC,
    0xF0F0_F0F0_F0F0_F0F0,
    0xFF00_FF00_FF00_FF00,
    0xFFFF_0000_FFFF_0000,
    0xFFFF_FFFF_0000_0000,
];
const WORD_BYTES: usize = 8;

/// The XOR of the places of all set bits in `covered`, counted from one word before it, so that no place is 0. Places
/// are unique up to 512 MiB.
fn set_places(covered: &[u8]) -> u32 {
    let (mut all, mut places) = (0, 0);
    let mut add = |word: u64, number: usize| {
        all ^= word;
        let is_odd = word.count_ones() % 2;
        places ^= ((number as u32 + 1) << 6) & 0u32.wrapping_sub(is_odd);
    };
    let (words, rest) = covered.as_chunks::<WORD_BYTES>();
    words.iter().enumerate().for_each(|(number, word)| add(u64::from_le_bytes(*word), number));
    let mut last = [0; WORD_BYTES];
    last[..rest.len()].copy_from_slice(rest);
    add(u64::from_le_bytes(last), words.len());
    let within = PLACES_WITH.iter().enumerate().map(|(bit, with)| ((all & with).count_ones() % 2) << bit);
    within.fold(places, |places, bit| places | bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let totals =
            Totals { data: Blocks(1), used: Blocks(2), reserved: Blocks(3), mapped: Blocks(4), next_map: MapId(5) };
        let mut record = vec![0; 4096];
        record[HEADER_BYTES..HEADER_BYTES + 3].copy_from_slice(b"ops");
        seal(&mut record, &Header { sequence: 9, body_len: 3, totals }, [1; 16]);
        record
    }

    #[test]
    fn a_record_has_its_golden_bytes_and_comes_back() {
        let record = sample();
        assert_eq!(&record[8..16], b"RLsfecno");
        assert_eq!(record[16..32], [9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let (header, body) = open(&record, [1; 16]).unwrap();
        assert_eq!((header.sequence, body, header.record_bytes()), (9, b"ops".as_slice(), 4096));
        assert_eq!(header.totals.next_map, MapId(5));
        assert_eq!(record[PLACES_AT..HEADER_SUM_AT], [0x31, 2, 0, 0]);
        assert_eq!(record[HEADER_SUM_AT..HEADER_BYTES], [9, 2, 101, 185]);
        assert_eq!(record[SUM_AT..MAGIC_AT], [122, 97, 219, 206, 86, 153, 253, 104]);
    }

    /// Like a reader: the header first.
    fn mended(record: &mut [u8]) -> bool {
        mend_header(record, [1; 16], 9).is_some_and(|header| mend(record, &header, [1; 16]))
    }

    #[test]
    fn any_one_wrong_byte_is_put_right() {
        let record = sample();
        for at in 0..HEADER_BYTES + 3 {
            for bits in 1..=u8::MAX {
                let mut wrong = record.clone();
                wrong[at] ^= bits;
                assert!(mended(&mut wrong) && wrong == record, "byte {at} changed by {bits:#x}");
            }
        }
    }

    #[test]
    fn a_header_with_one_wrong_byte_still_tells_its_group() {
        let record = sample();
        for at in 0..HEADER_BYTES {
            for bits in [1, 0x11, 0xFF] {
                let mut wrong = record.clone();
                wrong[at] ^= bits;
                assert_eq!(likely_sequence(&wrong, [1; 16]), Some(9), "byte {at} changed by {bits:#x}");
                assert!(is_of_group(&wrong, [1; 16], 9), "byte {at} changed by {bits:#x}");
                assert!(!is_of_group(&wrong, [1; 16], 7), "byte {at} changed by {bits:#x}");
            }
        }
        assert_eq!(likely_sequence(&record, [2; 16]), None);
        assert_eq!(likely_sequence(&[0; 4096], [1; 16]), None);
    }

    #[test]
    fn an_even_number_of_wrong_bits_is_sought_in_records_of_64_kib_and_less() {
        for (len, is_sought) in [(1_500, true), (SOUGHT_BYTES_MAX + 100, false)] {
            let mut record = sample();
            record.resize(HEADER_BYTES + len, 0);
            let header = Header { body_len: len as u64, ..peek(&record, [1; 16]).unwrap() };
            seal(&mut record, &header, [1; 16]);
            for (at, bits) in [(HEADER_BYTES, 0x81), (HEADER_BYTES + 700, 0xF0), (HEADER_BYTES + 1_499, 0x11)] {
                let mut wrong = record.clone();
                wrong[at] ^= bits;
                assert_eq!(mended(&mut wrong), is_sought, "byte {at} of {len}");
                assert_eq!(wrong == record, is_sought, "byte {at} of {len}");
                wrong = record.clone();
                wrong[at] ^= bits ^ 0x02;
                assert!(mended(&mut wrong) && wrong == record, "an odd number in byte {at} of {len}");
            }
        }
    }

    #[test]
    fn two_wrong_bytes_other_groups_and_torn_records_are_not() {
        let mut long = sample();
        long.resize(8192, 0);
        long[HEADER_BYTES..].iter_mut().zip(0u32..).for_each(|(byte, n)| *byte = ((n * n) >> 5) as u8 | 1);
        let header = Header { body_len: 8000, ..peek(&long, [1; 16]).unwrap() };
        seal(&mut long, &header, [1; 16]);
        for bit in (HEADER_BYTES * 8..8096 * 8).step_by(97) {
            let mut flipped = long.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            flipped[5000] ^= 0x11;
            assert!(!mended(&mut flipped), "bit {bit}");
        }
        for sector in 0..15 {
            let mut torn = long.clone();
            torn[sector * 512..(sector + 1) * 512].fill(0);
            assert!(!mended(&mut torn), "sector {sector}");
        }
        assert!(mend_header(&mut long, [1; 16], 8).is_none() && mend_header(&mut long, [2; 16], 9).is_none());
    }

    #[test]
    fn a_record_of_a_version_without_these_sums_is_read_and_not_mended() {
        let mut old = sample();
        old[PLACES_AT..HEADER_BYTES].fill(0);
        let sum = checksum(&old[MAGIC_AT..HEADER_BYTES + 3], SEED);
        old[SUM_AT..MAGIC_AT].copy_from_slice(&sum.to_le_bytes());
        assert!(open(&old, [1; 16]).is_some());
        old[HEADER_BYTES] ^= 1;
        assert!(open(&old, [1; 16]).is_none() && !mended(&mut old));
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

#[cfg(test)]
mod tests_of_places {
    use oncefs_toolbox::Random;

    use super::*;

    #[test]
    fn wrong_bits_change_the_places_by_their_own_and_are_put_right() {
        let mut random = Random::new(1);
        for len in [1, 7, 8, 9, 64, 300] {
            let whole: Vec<u8> = (0..len).map(|_| random.word() as u8).collect();
            for at in 0..len {
                for bits in [1, 0x80, 0x11, 0x70, 0xFF] {
                    let mut wrong = whole.clone();
                    wrong[at] ^= bits;
                    let places = set_places(&whole) ^ set_places(&wrong);
                    assert!(mend_covered(&mut wrong, places, checksum(&whole, SEED)));
                    assert!(wrong == whole, "byte {at} of {len} changed by {bits:#x}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_changed_that_does_not_make_the_checksum_right() {
        let mut bytes = [0; 16];
        for places in [0, 7, 63, 64, 64 + 127, 64 + 128, u32::MAX] {
            assert!(!mend_covered(&mut bytes, places, 1), "{places}");
            assert_eq!(bytes, [0; 16]);
        }
    }
}
