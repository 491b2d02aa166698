//! Damage that is found while a store is in use.

use std::fs;
use std::path::Path;

use super::*;
use crate::Copies;
use crate::format::checkpoint::Checkpoint;
use crate::format::keys;
use crate::kv::rocks::RocksKv;
use crate::kv::{Kv, tables_in};
use crate::tests::unreadable_sectors::Unreadable;

const RECORDS: u64 = 3_000;

fn record(n: u64, round: u8) -> (Vec<u8>, Vec<u8>) {
    ([&[0x69][..], &n.to_be_bytes()].concat(), vec![round; 100 + n as usize % 100])
}

fn batch(round: u8) -> Vec<crate::kv::Put> {
    (0..RECORDS).map(|n| record(n, round)).map(|(key, value)| (key, Some(value))).collect()
}

fn open(dir: &Path, read_only: bool) -> RocksKv {
    RocksKv::open(Place::of(dir, [1; 16]), Copies::Two, 8 << 20, read_only).unwrap()
}

/// A store with a flushed round of records that copies its files only on request.
fn store(dir: &Path) -> RocksKv {
    RocksKv::create(&dir.join("records")).unwrap();
    let mut kv = open(dir, false);
    kv.copy_late();
    kv.write(batch(1)).unwrap();
    kv.flush().unwrap();
    kv
}

fn assert_is(kv: &RocksKv, round: u8) {
    let found = kv.scan(&[0x69], &[0x6A], usize::MAX).unwrap();
    assert!(found == (0..RECORDS).map(|n| record(n, round)).collect::<Vec<_>>(), "not the records of round {round}");
}

fn newest(dir: &Path) -> std::path::PathBuf {
    tables_in(&dir.join("records")).pop().unwrap().1
}

fn change(path: &Path, places: &[usize]) {
    let mut bytes = fs::read(path).unwrap();
    places.iter().for_each(|at| bytes[*at] ^= 0x55);
    fs::write(path, bytes).unwrap();
}

/// Every listed file and its copy match the list, and prove themselves. No thread copies meanwhile.
fn assert_kept(dir: &Path) {
    let place = Place::of(dir, [1; 16]);
    let list = place.list().unwrap();
    assert_eq!(list.files.len(), tables_in(&place.copies).len());
    for entry in &list.files {
        for path in [place.table(entry.number), place.copy(entry.number)] {
            assert!(files::is_whole(&path, entry) && table_proof::proves_itself(&path).unwrap(), "{}", path.display());
        }
    }
}

fn compact(kv: &RocksKv) -> Result<()> {
    kv.records().try_with("compacting", |db| {
        // Otherwise a single file only gets another level.
        let mut options = rocksdb::CompactOptions::default();
        options.set_bottommost_level_compaction(rocksdb::BottommostLevelCompaction::Force);
        db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        db.flush()
    })
}

/// With one copy nothing else can restore it.
#[test]
fn a_wrong_byte_of_a_file_without_a_copy_is_put_right() {
    let dir = tempfile::tempdir().unwrap();
    drop(store(dir.path()));
    let kv = RocksKv::open(Place::of(dir.path(), [1; 16]), Copies::One, 8 << 20, false).unwrap();
    kv.write(vec![(vec![0x70], Some(vec![1]))]).unwrap();
    kv.flush().unwrap();
    let len = fs::metadata(newest(dir.path())).unwrap().len() as usize;
    // In the only block. The block is short, so the byte is found soon.
    change(&newest(dir.path()), &[3]);
    assert!(len < 2_000 && kv.get(&[0x70]).unwrap() == Some(vec![1]));
    assert!(table_proof::proves_itself(&newest(dir.path())).unwrap());
}

#[test]
fn a_damaged_new_file_is_never_copied_and_the_store_goes_back_to_its_copies() {
    let dir = tempfile::tempdir().unwrap();
    let kv = store(dir.path());
    compact(&kv).unwrap();
    change(&newest(dir.path()), &[20_000, 20_001]);
    kv.settle();
    assert_kept(dir.path());
    assert_is(&kv, 1);
    drop(kv);
    assert_is(&open(dir.path(), false), 1);
}

#[test]
fn a_read_of_a_new_file_that_is_beyond_repair_goes_back_to_its_copies() {
    let dir = tempfile::tempdir().unwrap();
    let kv = store(dir.path());
    compact(&kv).unwrap();
    change(&newest(dir.path()), &[20_000, 20_001]);
    assert_is(&kv, 1);
}

#[test]
fn a_flush_whose_file_is_not_what_was_written_fails_until_everything_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let kv = store(dir.path());
    kv.write(batch(2)).unwrap();
    kv.records().try_with("flushing", rocksdb::DB::flush).unwrap();
    change(&newest(dir.path()), &[20_000, 20_001]);
    kv.write(vec![(vec![0x70], Some(vec![1]))]).unwrap();
    assert!(matches!(kv.flush(), Err(Error::Corrupt { .. })));
    assert!(kv.restore(), "the checkpoint begins again");
    assert_is(&kv, 1);
    kv.write(batch(2)).unwrap();
    kv.flush().unwrap();
    assert_is(&kv, 2);
    assert_kept(dir.path());
}

#[test]
fn what_was_written_before_a_restoration_is_not_taken_for_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let kv = store(dir.path());
    compact(&kv).unwrap();
    kv.write(vec![(vec![0x70], Some(vec![1]))]).unwrap();
    change(&newest(dir.path()), &[20_000, 20_001]);
    assert_is(&kv, 1);
    assert!(matches!(kv.write(batch(2)), Err(Error::Corrupt { .. })));
    assert!(matches!(kv.flush(), Err(Error::Corrupt { .. })));
    assert!(kv.restore());
    kv.write(batch(2)).unwrap();
    kv.flush().unwrap();
    assert_is(&kv, 2);
}

#[test]
fn a_merge_that_meets_damage_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let kv = store(dir.path());
    kv.write(batch(2)).unwrap();
    kv.flush().unwrap();
    drop(kv);
    change(&newest(dir.path()), &[20_000]);
    let kv = open(dir.path(), false);
    drop(compact(&kv));
    assert_is(&kv, 2);
    let write = || kv.write(batch(3)).and_then(|()| kv.flush());
    write().or_else(|_| if kv.restore() { write() } else { Err(Error::Invalid("not restored".into())) }).unwrap();
    assert_is(&kv, 3);
    assert_eq!(kv.check_files(true).unwrap().left, Vec::<String>::new());
}

#[test]
fn a_sector_that_cannot_be_read_is_restored_as_wrong_bytes_are() {
    let dir = tempfile::tempdir().unwrap();
    drop(store(dir.path()));
    let _unreadable = Unreadable::at(&newest(dir.path()), 40_960..45_056);
    let kv = open(dir.path(), false);
    assert_is(&kv, 1);
    drop(kv);
    assert_kept(dir.path());
}

#[test]
fn a_store_that_is_read_only_reads_the_copies_and_changes_nothing() {
    for is_unreadable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        drop(store(dir.path()));
        let table = newest(dir.path());
        let unreadable = is_unreadable.then(|| Unreadable::at(&table, 40_960..45_056));
        if !is_unreadable {
            change(&table, &[20_000, 20_001]);
        }
        let before = fs::metadata(&table).unwrap();
        let kv = open(dir.path(), true);
        assert_is(&kv, 1);
        assert_eq!(kv.check_files(false).unwrap().left.len(), 1);
        drop((kv, unreadable));
        assert_eq!(fs::metadata(&table).unwrap().modified().unwrap(), before.modified().unwrap());
    }
}

#[test]
fn a_read_only_store_opens_where_the_index_of_a_file_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    drop(store(dir.path()));
    let table = newest(dir.path());
    let len = fs::metadata(&table).unwrap().len() as usize;
    change(&table, &[len - 10]);
    assert_is(&open(dir.path(), true), 1);
}

#[test]
fn what_rocksdb_merges_is_copied_without_another_flush() {
    let dir = tempfile::tempdir().unwrap();
    RocksKv::create(&dir.path().join("records")).unwrap();
    let kv = open(dir.path(), false);
    // Four files of one level are merged.
    for round in 0..5 {
        kv.write(batch(round)).unwrap();
        kv.flush().unwrap();
    }
    let is_listed = || {
        let live = kv.records().try_with("looking", rocks::live_numbers).unwrap();
        let list = Place::of(dir.path(), [1; 16]).list().unwrap();
        // Superseded copies are removed after the list is written.
        let copies = tables_in(&dir.path().join("copies")).len();
        [live.len(), copies] == [list.files.len(); 2] && live.iter().all(|number| list.entry(*number).is_some())
    };
    let is_merged = || kv.records().try_with("looking", rocks::live_numbers).unwrap().len() < 4;
    while !is_merged() || !is_listed() {
        std::thread::yield_now();
    }
    drop(kv);
    assert_kept(dir.path());
}

#[test]
fn a_manifest_that_rots_in_use_is_never_listed_and_costs_nothing() {
    for (at, is_unreadable) in [(0, false), (0, true), (60, false)] {
        let dir = tempfile::tempdir().unwrap();
        drop(store(dir.path()));
        let kv = open(dir.path(), false);
        let number = files::current_manifest(&dir.path().join("records")).unwrap();
        let path = dir.path().join("records").join(files::manifest_name(number));
        let unreadable = is_unreadable.then(|| Unreadable::at(&path, 0..512));
        if !is_unreadable {
            change(&path, &[at]);
        }
        let write = || kv.write(batch(2)).and_then(|()| kv.flush());
        write().or_else(|_| if kv.restore() { write() } else { Err(Error::Invalid("not restored".into())) }).unwrap();
        kv.settle();
        drop((kv, unreadable));
        let kv = open(dir.path(), false);
        assert_is(&kv, 2);
        drop(kv);
        assert_kept(dir.path());
    }
}

/// The host has no room for copies, the log is trimmed, and the power fails while RocksDB appends to its manifest.
#[test]
fn a_manifest_with_a_torn_end_keeps_a_checkpoint_that_the_list_does_not_have() {
    let checkpoint = |sequence| Checkpoint { sequence, ..Checkpoint::default() }.encode([1; 16]);
    let put = |sequence| (keys::checkpoint(), Some(checkpoint(sequence)));
    for end in [&[][..], &[0; 40], &[1, 2, 3, 4, 200, 0, 1, 7, 7]] {
        let dir = tempfile::tempdir().unwrap();
        let kv = store(dir.path());
        kv.write(vec![put(5)]).unwrap();
        kv.flush().unwrap();
        kv.write([batch(2), vec![put(6)]].concat()).unwrap();
        // The copies are not updated.
        kv.records().try_with("flushing", rocksdb::DB::flush).unwrap();
        // As after a kill: nothing is settled.
        let killed = tempfile::tempdir().unwrap();
        let status = std::process::Command::new("cp").arg("-a").arg(dir.path().join(".")).arg(killed.path()).status();
        assert!(status.unwrap().success());
        let records = killed.path().join("records");
        let manifest = records.join(files::manifest_name(files::current_manifest(&records).unwrap()));
        fs::write(&manifest, [&fs::read(&manifest).unwrap()[..], end].concat()).unwrap();
        let kv = open(killed.path(), false);
        assert_eq!(kv.get(&keys::checkpoint()).unwrap(), Some(checkpoint(6)), "the end is {end:?}");
        assert_is(&kv, 2);
    }
}
