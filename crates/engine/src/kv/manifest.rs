//! A look at RocksDB's manifest before RocksDB reads it.
//!
//! Its reader does not come to an end where a record of a manifest has a type that only its recycled logs have
//! (`log::Reader::ReadPhysicalRecord` takes nothing from its buffer then, and is asked again): one wrong byte would have
//! mount, fsck and salvage run for ever. Whatever else is wrong, RocksDB tells by its checksums.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use super::files;
use crate::{Error, Result};

/// Records do not cross the ends of blocks.
const BLOCK_BYTES: usize = 32 << 10;
/// Checksum, length, type.
const HEADER_BYTES: usize = 7;
const LEN_AT: usize = 4;
const TYPE_AT: usize = 6;
/// A whole record, and the first, a middle and the last part of one.
const TYPES: RangeInclusive<u8> = 1..=4;
/// What follows in a block that ends with zeros.
const NO_TYPE: u8 = 0;

/// Refuses the manifest that `CURRENT` names if RocksDB would not come to its end. One that is missing is RocksDB's to
/// refuse.
pub fn check(records: &Path) -> Result<()> {
    let Some(name) = files::current_manifest(records).map(files::manifest_name) else { return Ok(()) };
    match fs::read(records.join(&name)).ok().and_then(|bytes| endless_at(&bytes)) {
        None => Ok(()),
        Some(at) => Err(Error::corrupt("the record store", format!("{name} has no valid record at byte {at}"))),
    }
}

/// Where a record begins whose type no manifest has.
fn endless_at(bytes: &[u8]) -> Option<usize> {
    bytes.chunks(BLOCK_BYTES).zip((0..).step_by(BLOCK_BYTES)).find_map(|(block, from)| {
        let mut at = 0;
        while let Some(header) = block.get(at..at + HEADER_BYTES).filter(|header| header[TYPE_AT] != NO_TYPE) {
            if !TYPES.contains(&header[TYPE_AT]) {
                return Some(from + at);
            }
            at += HEADER_BYTES + usize::from(u16::from_le_bytes([header[LEN_AT], header[LEN_AT + 1]]));
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Copies;
    use crate::kv::copies::Place;
    use crate::kv::{Kv, RocksKv};

    /// A store with several records in its manifest.
    fn store() -> (tempfile::TempDir, Place) {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(dir.path(), [1; 16]);
        RocksKv::create(&place.records).unwrap();
        let kv = RocksKv::open(place.clone(), Copies::One, 8 << 20, false).unwrap();
        for n in 0..3 {
            kv.write(vec![(vec![n], Some(vec![n; 100]))]).unwrap();
            kv.flush().unwrap();
        }
        (dir, place)
    }

    /// Where the records begin.
    fn records_of(manifest: &[u8]) -> Vec<usize> {
        let mut starts = vec![0];
        loop {
            let at = starts[starts.len() - 1];
            let next = at + HEADER_BYTES + usize::from(u16::from_le_bytes([manifest[at + 4], manifest[at + 5]]));
            if next >= manifest.len() {
                return starts;
            }
            starts.push(next);
        }
    }

    #[test]
    fn a_manifest_with_any_type_of_a_record_is_read_or_refused_and_never_read_for_ever() {
        let (_dir, place) = store();
        let number = files::current_manifest(&place.records).unwrap();
        let path = place.records.join(files::manifest_name(number));
        let whole = fs::read(&path).unwrap();
        check(&place.records).unwrap();
        let records = records_of(&whole);
        assert!(records.len() > 5, "{records:?}");
        for at in records {
            for kind in [5, 6, 7, 8, 11, 131, 200] {
                let mut bytes = whole.clone();
                bytes[at + TYPE_AT] = kind;
                fs::write(&path, &bytes).unwrap();
                assert_eq!(endless_at(&bytes), Some(at), "type {kind}");
                let opened = RocksKv::open(place.clone(), Copies::One, 8 << 20, true);
                assert!(matches!(opened, Err(Error::Corrupt { .. })), "type {kind} at byte {at}");
            }
        }
    }

    #[test]
    fn a_manifest_that_ends_early_or_with_zeros_is_left_to_rocksdb() {
        let (_dir, place) = store();
        let path = place.records.join(files::manifest_name(files::current_manifest(&place.records).unwrap()));
        let whole = fs::read(&path).unwrap();
        assert!((0..whole.len()).all(|len| endless_at(&whole[..len]).is_none()));
        assert_eq!(endless_at(&[&whole[..], &[0; 3 * BLOCK_BYTES]].concat()), None);
        let second = [&vec![0; BLOCK_BYTES][..], &whole, &[1, 1, 1, 1, 0, 0, 5]].concat();
        assert_eq!(endless_at(&second), Some(BLOCK_BYTES + whole.len()));
    }
}
