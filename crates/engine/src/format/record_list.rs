//! The file `copies/list`: which record files were live at the last checkpoint, their content, and the manifest that
//! named them. It tells a damaged file from a sound one, and a live file from a superseded one.

use super::{at, checksum};

const MAGIC: &[u8; 16] = b"oncefs records\n\0";
const ID_AT: usize = 16;
const FILES_AT: usize = 32;
const MANIFEST_LEN_AT: usize = 36;
const MANIFEST_NUMBER_AT: usize = 40;
const CHECKPOINT_AT: usize = 48;
const CHECKPOINT_BYTES: usize = 64;
/// Size of the part before the files.
pub const HEADER_BYTES: usize = CHECKPOINT_AT + CHECKPOINT_BYTES;
/// Size of a file's entry.
pub const ENTRY_BYTES: usize = 36;
const CHECKSUM_BYTES: usize = 8;
/// Flag in the manifest's length: one copy is kept, and the list does not contain it.
const NOT_HERE: u32 = 1 << 31;
const SEED: u64 = 0x6C69_7374;
/// The seed of a file's checksum.
pub const FILE_SEED: u64 = 0x6669_6C65;

/// A record file that was live at a checkpoint. Its content never changes, and its number is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFile {
    /// Its number, which is its name.
    pub number: u64,
    /// Bytes in it.
    pub len: u64,
    /// Checksum of all of them.
    pub sum: u64,
    /// Checksum of its end: index, filter and footer, which are needed to find anything in it.
    pub end_sum: u64,
    /// Its level: a file of a lower one is newer.
    pub level: u32,
}

impl RecordFile {
    /// How many of the last bytes [`RecordFile::end_sum`] covers.
    pub fn end_bytes(len: u64) -> u64 {
        len.min(len / 16 + (64 << 10))
    }
}

/// The record files of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordList {
    /// The live files, newer ones before older ones that have keys in common with them.
    pub files: Vec<RecordFile>,
    /// Number of the manifest that names them.
    pub manifest_number: u64,
    /// Its content up to the checkpoint. Empty if one copy is enough.
    pub manifest: Vec<u8>,
    /// How many bytes of it were intact then. 0: unknown, as in lists of older versions with one copy.
    pub manifest_len: u32,
    /// The checkpoint record.
    pub checkpoint: Vec<u8>,
}

impl RecordList {
    /// The list's entry of a file.
    pub fn entry(&self, number: u64) -> Option<&RecordFile> {
        self.files.iter().find(|file| file.number == number)
    }

    /// The bytes of the file, in this volume.
    pub fn encode(&self, volume_id: [u8; 16]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.files.len() * ENTRY_BYTES + self.manifest.len() + 8);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&volume_id);
        bytes.extend_from_slice(&(self.files.len() as u32).to_le_bytes());
        let manifest_len = match (self.manifest.len() as u32, self.manifest_len) {
            (0, 0) => 0,
            (0, len) => len | NOT_HERE,
            (len, _) => len,
        };
        bytes.extend_from_slice(&manifest_len.to_le_bytes());
        bytes.extend_from_slice(&self.manifest_number.to_le_bytes());
        let mut checkpoint = [0; CHECKPOINT_BYTES];
        if self.checkpoint.len() == CHECKPOINT_BYTES {
            checkpoint.copy_from_slice(&self.checkpoint);
        }
        bytes.extend_from_slice(&checkpoint);
        for RecordFile { number, len, sum, end_sum, level } in &self.files {
            [number, len, sum, end_sum].iter().for_each(|field| bytes.extend_from_slice(&field.to_le_bytes()));
            bytes.extend_from_slice(&level.to_le_bytes());
        }
        bytes.extend_from_slice(&self.manifest);
        let sum = checksum(&bytes, SEED);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the file's bytes. None: they are damaged, or another volume's.
    pub fn decode(bytes: &[u8], volume_id: [u8; 16]) -> Option<Self> {
        let end = bytes.len().checked_sub(CHECKSUM_BYTES).filter(|end| *end >= HEADER_BYTES)?;
        let is_ours = &bytes[..ID_AT] == MAGIC && bytes[ID_AT..FILES_AT] == volume_id;
        if !is_ours || at::u64(bytes, end) != checksum(&bytes[..end], SEED) {
            return None;
        }
        let (files, manifest_len) = (at::u32(bytes, FILES_AT) as usize, at::u32(bytes, MANIFEST_LEN_AT));
        let manifest_at = files.checked_mul(ENTRY_BYTES)?.checked_add(HEADER_BYTES)?;
        let here = if manifest_len & NOT_HERE == 0 { manifest_len as usize } else { 0 };
        if manifest_at.checked_add(here)? != end || manifest_len == NOT_HERE {
            return None;
        }
        let checkpoint = &bytes[CHECKPOINT_AT..HEADER_BYTES];
        Some(Self {
            files: bytes[HEADER_BYTES..manifest_at].chunks_exact(ENTRY_BYTES).map(entry).collect(),
            manifest_number: at::u64(bytes, MANIFEST_NUMBER_AT),
            manifest: bytes[manifest_at..end].to_vec(),
            manifest_len: manifest_len & !NOT_HERE,
            checkpoint: if checkpoint == [0; CHECKPOINT_BYTES] { Vec::new() } else { checkpoint.to_vec() },
        })
    }
}

fn entry(bytes: &[u8]) -> RecordFile {
    RecordFile {
        number: at::u64(bytes, 0),
        len: at::u64(bytes, 8),
        sum: at::u64(bytes, 16),
        end_sum: at::u64(bytes, 24),
        level: at::u32(bytes, 32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> RecordList {
        let file = |number| RecordFile { number, len: 70_000, sum: 0x1122, end_sum: 0x3344, level: 6 };
        let (manifest, checkpoint) = (b"manifest".to_vec(), vec![9; CHECKPOINT_BYTES]);
        RecordList { files: vec![file(12), file(11)], manifest_number: 5, manifest, manifest_len: 8, checkpoint }
    }

    #[test]
    fn a_list_without_the_manifest_has_its_length() {
        let list = RecordList { manifest: Vec::new(), manifest_len: 700, ..sample() };
        let bytes = list.encode([3; 16]);
        assert_eq!(bytes[36..40], [0xBC, 2, 0, 0x80]);
        assert_eq!(RecordList::decode(&bytes, [3; 16]), Some(list));
    }

    #[test]
    fn a_list_has_its_golden_bytes_and_comes_back() {
        let bytes = sample().encode([3; 16]);
        assert_eq!(&bytes[..16], MAGIC);
        assert_eq!(bytes[32..48], [2, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[112..124], [12, 0, 0, 0, 0, 0, 0, 0, 0x70, 0x11, 1, 0]);
        assert_eq!(bytes.len(), HEADER_BYTES + 2 * ENTRY_BYTES + 8 + 8);
        assert_eq!(RecordList::decode(&bytes, [3; 16]), Some(sample()));
        assert_eq!(RecordList::decode(&bytes, [4; 16]), None, "another volume's");
        let empty = RecordList::default();
        assert_eq!(RecordList::decode(&empty.encode([3; 16]), [3; 16]), Some(empty));
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let good = sample().encode([3; 16]);
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordList::decode(&bytes, [3; 16]), None, "bit {bit}");
        }
        assert!((0..good.len()).all(|len| RecordList::decode(&good[..len], [3; 16]).is_none()));
    }
}
