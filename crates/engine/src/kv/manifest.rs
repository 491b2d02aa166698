//! Checks RocksDB's manifest before RocksDB reads it.
//!
//! RocksDB's reader loops forever at a manifest record with a type that only its recycled logs have
//! (`log::Reader::ReadPhysicalRecord` then takes nothing from its buffer, and is called again). So one wrong byte would
//! hang mount, fsck and salvage. It also mistakes a wrong length in the last block for an end that a crash left. It
//! detects all other damage by its checksums.

use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::files;
use super::paths::Place;
use crate::{Error, Result};

/// Records do not cross the ends of blocks.
const BLOCK_BYTES: usize = 32 << 10;
/// Checksum, length, type.
const HEADER_BYTES: usize = 7;
const LEN_AT: usize = 4;
const TYPE_AT: usize = 6;
/// A complete record, and the first, a middle and the last part of one.
const TYPES: RangeInclusive<u8> = 1..=4;
/// The type in a block that ends with zeros.
const NO_TYPE: u8 = 0;

/// Refuses the manifest that `CURRENT` names if RocksDB would loop in it, or would end it before the length that the
/// list knows: a wrong length in the last block reads as an end, and opening deletes the files that the rest names. Also
/// refuses a `CURRENT` that names none that is there, which RocksDB does not call damage. Other errors of the host are
/// left to RocksDB.
pub fn check(place: &Place) -> Result<()> {
    let is_missing = |path: &Path| fs::metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    let current = place.records.join(files::CURRENT);
    let Some(number) = files::current_manifest(&place.records) else {
        let is_damaged = is_missing(&current) || fs::read(&current).is_ok();
        let damaged = || Error::corrupt("the record store", format!("{} names no manifest", files::CURRENT));
        return if is_damaged { Err(damaged()) } else { Ok(()) };
    };
    let name = files::manifest_name(number);
    if is_missing(&place.records.join(&name)) {
        return Err(Error::corrupt("the record store", format!("{name}, which {} names, is missing", files::CURRENT)));
    }
    let Ok(bytes) = fs::read(place.records.join(&name)) else { return Ok(()) };
    let refused = |at: usize| Error::corrupt("the record store", format!("{name} has no valid record at byte {at}"));
    if let Some(at) = endless_at(&bytes) {
        return Err(refused(at));
    }
    let listed = place.list().filter(|list| list.manifest_number == number).map_or(0, |list| list.manifest_len);
    let whole = whole_len(&bytes);
    if whole < listed as usize { Err(refused(whole)) } else { Ok(()) }
}

/// How often, and at what interval, a manifest is read that RocksDB may be appending to.
const LOOKS: usize = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The complete manifest with this number. None: it is damaged, or cannot be read.
pub fn read_whole(place: &Place, number: u64) -> Option<Vec<u8>> {
    (0..LOOKS).find_map(|look| {
        if look > 0 {
            thread::sleep(LOOK_AGAIN);
        }
        let bytes = fs::read(place.records.join(files::manifest_name(number))).ok()?;
        (whole_len(&bytes) == bytes.len()).then_some(bytes)
    })
}

/// Makes the bytes read of a manifest durable, because RocksDB may not have synced its last appends. A manifest that
/// another one superseded may be gone.
pub fn sync(place: &Place, number: u64) -> io::Result<()> {
    match File::open(place.records.join(files::manifest_name(number))) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.sync_data(),
    }
}

/// The number of the only manifest there is, if `CURRENT` names none that exists, and this one is intact as far as the
/// list knows it. RocksDB removes a manifest only after `CURRENT` names the next one, so `CURRENT` named this one.
pub fn only_one(place: &Place) -> Option<u64> {
    let there = files::manifests_in(&place.records);
    let [(number, _)] = there[..] else { return None };
    let is_named = files::current_manifest(&place.records) == Some(number);
    let bytes = if is_named { None } else { read_whole(place, number) }?;
    let listed = place.list().filter(|list| list.manifest_number == number).map_or(0, |list| list.manifest_len);
    (!bytes.is_empty() && bytes.len() >= listed as usize).then_some(number)
}

/// Whether the manifest that `CURRENT` names exists and is intact.
pub fn is_whole(place: &Place) -> bool {
    files::current_manifest(&place.records).is_some_and(|number| read_whole(place, number).is_some())
}

/// The length of the part of a manifest whose records match their checksums, with zeros at the ends of blocks.
pub fn whole_len(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let block_end = (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
        if block_end - at < HEADER_BYTES {
            at = block_end;
        }
        let Some(header) = bytes.get(at..at + HEADER_BYTES) else { return at.min(bytes.len()) };
        let len = usize::from(u16::from_le_bytes([header[LEN_AT], header[LEN_AT + 1]]));
        let end = at + HEADER_BYTES + len;
        let Some(covered) = bytes.get(at + TYPE_AT..end) else { return at };
        if !TYPES.contains(&header[TYPE_AT]) || header[..LEN_AT] != masked_sum(covered).to_le_bytes() {
            return at;
        }
        at = end;
    }
}

/// The checksum of a record: that of its type and content (CRC-32C), rotated and moved, as RocksDB stores it.
fn masked_sum(covered: &[u8]) -> u32 {
    let sum = !covered.iter().fold(!0_u32, |sum, byte| CRC[usize::from(sum as u8 ^ byte)] ^ (sum >> 8));
    sum.rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// The effect of each byte on a CRC-32C.
const CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = (sum >> 1) ^ (0x82F6_3B78 & 0_u32.wrapping_sub(sum & 1));
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

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

    #[test]
    fn a_damaged_current_is_made_anew_from_the_only_manifest_and_from_no_other() {
        let (_dir, place) = store();
        let (number, path) = files::manifests_in(&place.records).pop().unwrap();
        let (current, whole) = (place.records.join(files::CURRENT), fs::read(&path).unwrap());
        let sound = fs::read(&current).unwrap();
        // What is listed is behind, as between a merge and the list of it.
        let mut wrong: Vec<Vec<u8>> =
            (0..sound.len()).map(|at| [&sound[..at], b"+", &sound[at + 1..]].concat()).collect();
        wrong.extend([Vec::new(), vec![0; 512], b"MANIFEST-900000\n".to_vec()]);
        let open = |read_only| RocksKv::open(place.clone(), Copies::One, 8 << 20, read_only);
        for wrong in wrong {
            fs::write(&current, &wrong).unwrap();
            let refused = open(true).err().unwrap().to_string();
            assert!(refused.contains("fsck -p restores it"), "{refused}");
            assert_eq!(fs::read(&current).unwrap(), wrong, "reading changes nothing");
            let found = crate::kv::restore::current(&place).unwrap();
            assert!(found.mended.len() == 1 && fs::read(&current).unwrap() == sound, "{found:?}");
        }
        fs::remove_file(&current).unwrap();
        for damaged in [&whole[..whole.len() - 1], &[], &whole[..100]] {
            fs::write(&path, damaged).unwrap();
            assert!(open(false).is_err(), "{} bytes of the manifest", damaged.len());
        }
        fs::write(&path, &whole).unwrap();
        fs::write(place.records.join(files::manifest_name(number - 1)), &whole).unwrap();
        assert!(open(false).is_err(), "one of two manifests");
        fs::remove_file(place.records.join(files::manifest_name(number - 1))).unwrap();
        let kv = open(false).unwrap();
        assert_eq!(kv.get(&[2]).unwrap(), Some(vec![2; 100]));
        assert!(kv.check_files(true).unwrap().mended[0].contains("CURRENT"), "it says so");
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
        check(&place).unwrap();
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
    fn a_manifest_that_seems_to_end_before_what_is_listed_is_refused() {
        let (_dir, place) = store();
        let path = place.records.join(files::manifest_name(files::current_manifest(&place.records).unwrap()));
        let whole = fs::read(&path).unwrap();
        assert_eq!(whole_len(&whole), whole.len());
        assert_eq!(whole_len(&[&whole[..], &[0; 40]].concat()), whole.len());
        let tables = super::super::tables_in(&place.records);
        for at in records_of(&whole) {
            let mut bytes = whole.clone();
            bytes[at + LEN_AT + 1] ^= 0x70;
            fs::write(&path, &bytes).unwrap();
            for read_only in [true, false] {
                let opened = RocksKv::open(place.clone(), Copies::One, 8 << 20, read_only);
                assert!(matches!(opened, Err(Error::Corrupt { .. })), "the record at byte {at}");
            }
            assert_eq!(super::super::tables_in(&place.records), tables, "no record file is deleted");
        }
        fs::write(&path, &whole).unwrap();
        RocksKv::open(place, Copies::One, 8 << 20, false).unwrap();
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
