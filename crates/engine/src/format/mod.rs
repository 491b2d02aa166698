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
pub mod hint_header;
pub mod hint_page;
pub mod history;
pub mod keys;
pub mod label;
pub mod ops;
pub mod page;
pub mod pending_clone;
pub mod record;
pub mod record_list;
pub mod superblock;
pub mod varint;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Newest format version of a whole volume: it has, or had, compressed blocks.
pub const VERSION: u32 = 3;
/// Format version of a volume that has, or had, lazy clones, and never had compressed blocks.
pub const VERSION_WITHOUT_FRAGMENTS: u32 = 2;
/// Format version of a volume that never had lazy clones.
pub const VERSION_WITHOUT_CLONES: u32 = 1;

/// Checksum of structured bytes. The seed differs by structure, so that one structure in the place of another is
/// detected.
pub fn checksum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
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
