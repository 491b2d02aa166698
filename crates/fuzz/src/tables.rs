//! Reads record files of RocksDB as salvage does: block by block, without their index. A crafted volume may have any
//! bytes there.

use oncefs_engine::kv::{Found, is_sound_table, read_table};

use crate::memory::bounded;

/// Memory that an entry may take for each of its bytes.
const MEMORY_PER_BYTE: usize = 256;

/// The target: the bytes of a record file.
pub fn run(bytes: &[u8]) {
    let found = bounded(8192 + MEMORY_PER_BYTE * bytes.len(), || read_table(bytes));
    let keys: Vec<&Vec<u8>> = found.iter().filter_map(key_of).collect();
    assert!(keys.is_sorted_by(|one, next| one < next), "keys ascend");
    let gaps = found.windows(2).filter(|pair| pair[0] == Found::Gap && pair[1] == Found::Gap).count();
    assert_eq!(gaps, 0, "gaps that follow each other are one");
    assert!(!is_sound_table(bytes) || keys.len() == found.len(), "a sound file has no gap");
}

fn key_of(found: &Found) -> Option<&Vec<u8>> {
    match found {
        Found::Entry(key, _) | Found::Unproved(key, _) => Some(key),
        Found::Gap => None,
    }
}
