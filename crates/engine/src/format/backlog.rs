//! A checkpoint of the skipped buffer: the file `skipped` has two slots, written in turn; the newer intact one counts.
//!
//! Advice: without it, or with an old one, the worker visits every block once.

use oncefs_dedup::Skipped;

use super::{at, checksum, varint};

/// Offset of the second slot in bytes; a checkpoint is far smaller.
pub const SLOT_BYTES: u64 = 16 << 20;
/// Bytes that are read first: they tell how many more there are.
pub const HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 16] = b"oncefs skipped\n\0";
const ID_AT: usize = 16;
const NUMBER_AT: usize = 32;
const CLEAN_AT: usize = 40;
const LENGTH_AT: usize = 48;
const CHECKSUM_AT: usize = 56;
const SEED: u64 = 0x736B_6970;

/// Kinds of records.
const CHUNK: u64 = 0;
const OWNER: u64 = 1;
const EVERYTHING: u64 = 2;

/// Blocks that in-line deduplication skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The volume.
    pub volume_id: [u8; 16],
    /// The number of the checkpoint.
    pub number: u64,
    /// The last commit of the clean unmount that wrote it; 0: it was written while mounted.
    pub clean_at: u64,
    /// The blocks, files or everything to visit.
    pub records: Vec<Skipped>,
}

impl Checkpoint {
    /// The bytes of a slot.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..ID_AT].copy_from_slice(MAGIC);
        bytes[ID_AT..NUMBER_AT].copy_from_slice(&self.volume_id);
        bytes[NUMBER_AT..CLEAN_AT].copy_from_slice(&self.number.to_le_bytes());
        bytes[CLEAN_AT..LENGTH_AT].copy_from_slice(&self.clean_at.to_le_bytes());
        for record in &self.records {
            match *record {
                Skipped::Chunk { owner, chunk, mask } => {
                    [CHUNK, owner, chunk].iter().for_each(|number| varint::put(&mut bytes, *number));
                    bytes.extend_from_slice(&mask.to_le_bytes());
                }
                Skipped::Owner(owner) => [OWNER, owner].iter().for_each(|number| varint::put(&mut bytes, *number)),
                Skipped::Everything => varint::put(&mut bytes, EVERYTHING),
            }
        }
        let length = (bytes.len() - HEADER_BYTES) as u64;
        bytes[LENGTH_AT..CHECKSUM_AT].copy_from_slice(&length.to_le_bytes());
        let sum = Self::sum(&bytes);
        bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The checksum of header and body, without itself.
    fn sum(bytes: &[u8]) -> u64 {
        checksum(&bytes[HEADER_BYTES..], checksum(&bytes[..CHECKSUM_AT], SEED))
    }

    /// Bytes of the whole slot, from its header. None: nothing was written there.
    pub fn length(header: &[u8; HEADER_BYTES]) -> Option<usize> {
        let length = at::u64(header, LENGTH_AT);
        (&header[..ID_AT] == MAGIC && length < SLOT_BYTES - HEADER_BYTES as u64).then(|| HEADER_BYTES + length as usize)
    }

    /// Decodes a slot. None: it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        if Self::length(header)? != bytes.len() || at::u64(header, CHECKSUM_AT) != Self::sum(bytes) {
            return None;
        }
        let mut rest = &bytes[HEADER_BYTES..];
        let mut records = Vec::new();
        while !rest.is_empty() {
            records.push(take_record(&mut rest)?);
        }
        Some(Self {
            volume_id: header[ID_AT..NUMBER_AT].try_into().expect("sixteen bytes"),
            number: at::u64(header, NUMBER_AT),
            clean_at: at::u64(header, CLEAN_AT),
            records,
        })
    }
}

fn take_record(rest: &mut &[u8]) -> Option<Skipped> {
    match varint::take(rest)? {
        CHUNK => {
            let (owner, chunk) = (varint::take(rest)?, varint::take(rest)?);
            let (mask, behind) = rest.split_first_chunk()?;
            *rest = behind;
            Some(Skipped::Chunk { owner, chunk, mask: u64::from_le_bytes(*mask) })
        }
        OWNER => Some(Skipped::Owner(varint::take(rest)?)),
        EVERYTHING => Some(Skipped::Everything),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Checkpoint {
        let records = vec![Skipped::Chunk { owner: 1, chunk: 300, mask: 0xFF }, Skipped::Owner(7), Skipped::Everything];
        Checkpoint { volume_id: [5; 16], number: 3, clean_at: 9, records }
    }

    #[test]
    fn a_checkpoint_has_its_golden_bytes_and_comes_back() {
        let bytes = sample().encode();
        assert_eq!(&bytes[..16], b"oncefs skipped\n\0");
        assert_eq!(bytes[32..56], [3, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[64..], [0, 1, 0xAC, 2, 0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 7, 2]);
        assert_eq!(Checkpoint::length(bytes.first_chunk().unwrap()), Some(bytes.len()));
        assert_eq!(Checkpoint::decode(&bytes), Some(sample()));
    }

    #[test]
    fn damage_and_cuts_are_noticed() {
        let good = sample().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            assert_eq!(Checkpoint::decode(&bad), None, "byte {at}");
            assert_eq!(Checkpoint::decode(&good[..at]), None, "cut at {at}");
        }
        assert_eq!(Checkpoint::decode(&[]), None);
    }
}
