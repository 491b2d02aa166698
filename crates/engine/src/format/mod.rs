//! Every byte that the engine puts on disk: one file per structure, each with encode, decode,
//! a size check, a golden-bytes test and a corruption test. No I/O here.
//!
//! Numbers are little-endian, except in keys (big-endian, so that they sort).

pub mod backlog;
pub mod checkpoint;
pub mod damage_records;
pub mod device_record;
pub mod extent_leaf;
pub mod file_policy;
pub mod fragment;
pub mod fragment_totals;
pub mod group_bytes;
pub mod head_record;
pub mod hint_header;
pub mod hint_page;
pub mod history;
pub mod image;
pub mod keys;
pub mod label;
pub mod ops;
pub mod pack_directory;
pub mod page;
pub mod pending_clone;
pub mod record;
pub mod record_list;
pub mod records_index;
pub mod sealed_superblock;
pub mod superblock;
pub mod varint;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Newest format version of a whole volume: its data area lies in a pool of its own.
pub const VERSION: u32 = 4;
/// Format version of a volume that has, or had, compressed blocks, and whose objects, if it has some, lie in one pool.
pub const VERSION_WITHOUT_DATA_POOL: u32 = 3;
/// Format version of a volume that has, or had, lazy clones, and never had compressed blocks.
pub const VERSION_WITHOUT_FRAGMENTS: u32 = 2;
/// Format version of a volume that never had lazy clones.
pub const VERSION_WITHOUT_CLONES: u32 = 1;

/// Checksum of structured bytes. The seed differs by structure, so that one structure in the place of another is
/// detected.
pub fn checksum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// The shape of small records: numbers, followed by their checksum.
pub fn sealed(numbers: &[u64], seed: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let sum = checksum(&bytes, seed);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// The numbers of such a record. None: it is damaged, or has another length.
pub fn unsealed<const N: usize>(bytes: &[u8], seed: u64) -> Option<[u64; N]> {
    if bytes.len() != 8 * (N + 1) || at::u64(bytes, 8 * N) != checksum(&bytes[..8 * N], seed) {
        return None;
    }
    Some(std::array::from_fn(|n| at::u64(bytes, 8 * n)))
}

/// Reads fixed-width numbers at given offsets. Callers pass arrays that are long enough: the lengths are
/// constants that each structure checks.
pub mod at {
    /// The u16 at `at`.
    pub fn u16(bytes: &[u8], at: usize) -> u16 {
        u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
    }
    /// The u32 at `at`.
    pub fn u32(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    }
    /// The u64 at `at`.
    pub fn u64(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    }
}

/// Texts in fields of a fixed length, padded with zeros.
pub mod padded {
    /// Puts a text into a field of zeros, as far as it fits.
    pub fn put(field: &mut [u8], text: &str) {
        let len = text.len().min(field.len());
        field[..len].copy_from_slice(&text.as_bytes()[..len]);
    }

    /// The text of a field.
    pub fn text(field: &[u8]) -> String {
        let len = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..len]).into_owned()
    }
}
