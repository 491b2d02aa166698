//! The first page of the file `hints`: its volume, and up to which commit it is complete for which sample.

use oncefs_dedup::Sample;

use super::{at, checksum};

/// Size of the header: one page.
pub const BYTES: usize = 4096;
const MAGIC: &[u8; 16] = b"oncefs hints\n\0\0\0";
const ID_AT: usize = 16;
const INCARNATION_AT: usize = 32;
const SAMPLE_AT: usize = 36;
const COMPLETE_AT: usize = 40;
const CHECKSUM_AT: usize = 48;
const END: usize = 56;
const SEED: u64 = 0x6869_6864;

/// The content of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintHeader {
    /// The volume that the hints are about.
    pub volume_id: [u8; 16],
    /// How often the file was started over; pages of earlier incarnations do not count.
    pub incarnation: u32,
    /// The contents that have hints in the file.
    pub sample: Sample,
    /// The last commit of the clean unmount after which the file had a hint for every live block of the sample; 0:
    /// there was none.
    pub complete_at: u64,
}

impl HintHeader {
    /// The bytes of the page.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..ID_AT].copy_from_slice(MAGIC);
        bytes[ID_AT..INCARNATION_AT].copy_from_slice(&self.volume_id);
        bytes[INCARNATION_AT..INCARNATION_AT + 4].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[SAMPLE_AT..COMPLETE_AT].copy_from_slice(&self.sample.number().to_le_bytes());
        bytes[COMPLETE_AT..CHECKSUM_AT].copy_from_slice(&self.complete_at.to_le_bytes());
        let sum = checksum(&bytes[..CHECKSUM_AT], SEED);
        bytes[CHECKSUM_AT..END].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the page. None: it is not a header, or damaged.
    pub fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let is_sound = &bytes[..ID_AT] == MAGIC && at::u64(bytes, CHECKSUM_AT) == checksum(&bytes[..CHECKSUM_AT], SEED);
        is_sound.then(|| Self {
            volume_id: bytes[ID_AT..INCARNATION_AT].try_into().expect("sixteen bytes"),
            incarnation: at::u32(bytes, INCARNATION_AT),
            sample: Sample::one_of(at::u32(bytes, SAMPLE_AT)),
            complete_at: at::u64(bytes, COMPLETE_AT),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_its_golden_bytes_comes_back_and_notices_damage() {
        let header = HintHeader { volume_id: [7; 16], incarnation: 2, sample: Sample::one_of(64), complete_at: 0x0102 };
        let good = header.encode();
        assert_eq!(&good[..16], b"oncefs hints\n\0\0\0");
        assert_eq!(good[32..48], [2, 0, 0, 0, 64, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(HintHeader::decode(&good), Some(header));
        // Nothing but a sample of 0, which stands for every block.
        let mut unsampled = good;
        unsampled[SAMPLE_AT] = 0;
        let sum = checksum(&unsampled[..CHECKSUM_AT], SEED);
        unsampled[CHECKSUM_AT..END].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(HintHeader::decode(&unsampled), Some(HintHeader { sample: Sample::ALL, ..header }));
        for at in 0..END {
            let mut bad = good;
            bad[at] ^= 1;
            assert_eq!(HintHeader::decode(&bad), None, "byte {at}");
        }
    }
}
