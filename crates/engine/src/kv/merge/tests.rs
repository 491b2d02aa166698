//! What a merge leaves to a checkpoint, and what a crash leaves of it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::Copies;
use crate::kv::rocks::{self, RocksKv};
use crate::kv::{Kv, Put, table_proof, tables_in};

const RECORDS: u64 = 3_000;
/// RocksDB merges as many files of one level.
const ROUNDS: u8 = 4;

fn record(n: u64, round: u8) -> (Vec<u8>, Vec<u8>) {
    ([&[0x69][..], &n.to_be_bytes()].concat(), vec![round; 100 + n as usize % 100])
}

fn batch(round: u8) -> Vec<Put> {
    (0..RECORDS).map(|n| record(n, round)).map(|(key, value)| (key, Some(value))).collect()
}

fn place(dir: &Path) -> Place {
    Place::of(dir, [1; 16])
}

fn open(dir: &Path, copies: Copies) -> RocksKv {
    RocksKv::open(place(dir), copies, 8 << 20, false).unwrap()
}

fn set_merging(kv: &RocksKv, is_on: bool) {
    let value = if is_on { "false" } else { "true" };
    kv.records().try_with("setting", |db| db.set_options(&[("disable_auto_compactions", value)])).unwrap();
}

fn live(kv: &RocksKv) -> Vec<u64> {
    kv.records().try_with("looking", rocks::live_numbers).unwrap()
}

fn fill(kv: &RocksKv) {
    for round in 1..=ROUNDS {
        kv.write(batch(round)).unwrap();
        kv.flush().unwrap();
    }
}

/// A store whose files were merged after its last list, which names the files before.
fn merged(dir: &Path, copies: Copies) -> RocksKv {
    RocksKv::create(&dir.join("records")).unwrap();
    let mut kv = open(dir, copies);
    kv.list_late();
    set_merging(&kv, false);
    fill(&kv);
    assert_eq!(live(&kv).len(), usize::from(ROUNDS));
    set_merging(&kv, true);
    // RocksDB then removes the files before. A copy of the directory must not meet that.
    while live(&kv).len() == usize::from(ROUNDS) || tables_in(&dir.join("records")).len() != live(&kv).len() {
        std::thread::yield_now();
    }
    kv
}

fn assert_is(kv: &RocksKv, round: u8) {
    let found = kv.scan(&[0x69], &[0x6A], usize::MAX).unwrap();
    assert!(found == (0..RECORDS).map(|n| record(n, round)).collect::<Vec<_>>(), "not the records of round {round}");
}

/// The files in the folder of copies are those of the list, and each is sound.
fn assert_kept(dir: &Path) {
    let place = place(dir);
    let list = place.list().unwrap();
    let copies: Vec<u64> = tables_in(&place.copies).iter().map(|(number, _)| *number).collect();
    let mut listed: Vec<u64> = list.files.iter().map(|entry| entry.number).collect();
    listed.sort_unstable();
    assert_eq!(copies, listed);
    for entry in &list.files {
        for path in [place.table(entry.number), place.copy(entry.number)] {
            assert!(files::is_whole(&path, entry) && table_proof::proves_itself(&path).unwrap(), "{}", path.display());
        }
    }
}

/// What the next checkpoint has to copy before it may trim the log.
fn bytes_to_copy(kv: &RocksKv, dir: &Path) -> u64 {
    let (place, list) = (place(dir), place(dir).list().unwrap());
    let is_known = |number: u64| {
        let entry = list.entry(number).copied().or_else(|| kv.records().keeper.ahead().entry(number));
        entry.is_some_and(|entry| files::is_whole(&place.copy(number), &entry))
    };
    let len = |number: u64| fs::metadata(place.table(number)).unwrap().len();
    live(kv).into_iter().filter(|number| !is_known(*number)).map(len).sum()
}

fn inodes(dir: &Path) -> BTreeMap<u64, u64> {
    tables_in(&dir.join("copies"))
        .into_iter()
        .map(|(number, path)| (number, fs::metadata(path).unwrap().ino()))
        .collect()
}

/// An fsync that waits for room in the log waits for the copies that a checkpoint makes.
#[test]
fn a_merge_leaves_nothing_to_copy_to_the_checkpoint_that_trims_the_log() {
    for copies in [Copies::One, Copies::Two] {
        let dir = tempfile::tempdir().unwrap();
        let kv = merged(dir.path(), copies);
        assert_eq!(bytes_to_copy(&kv, dir.path()), 0, "{copies:?}");
        let (before, files) = (inodes(dir.path()), live(&kv));
        kv.write(vec![(vec![0x70], Some(vec![1]))]).unwrap();
        kv.flush().unwrap();
        let after = inodes(dir.path());
        assert!(files.iter().all(|number| after[number] == before[number]), "{copies:?}: the merge's copies stayed");
        assert_is(&kv, ROUNDS);
        drop(kv);
        assert_kept(dir.path());
    }
}

#[test]
fn a_merged_file_that_no_list_names_comes_back_from_its_copy() {
    let dir = tempfile::tempdir().unwrap();
    let kv = merged(dir.path(), Copies::Two);
    let number = live(&kv)[0];
    let path = place(dir.path()).table(number);
    let whole = fs::read(&path).unwrap();
    let mut wrong = whole.clone();
    [20_000, 20_001, 60_000].iter().for_each(|at: &usize| wrong[*at] ^= 0x55);
    fs::write(&path, wrong).unwrap();
    assert_is(&kv, ROUNDS);
    assert!(live(&kv).contains(&number) && fs::read(&path).unwrap() == whole, "the store did not go back to the list");
    drop(kv);
    assert_kept(dir.path());
}

#[test]
fn a_crash_between_a_merge_and_the_list_of_it_leaves_all_records_and_two_copies() {
    for copies in [Copies::One, Copies::Two] {
        let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let kv = merged(dir.path(), copies);
        assert!(Command::new("cp").arg("-a").arg(dir.path().join(".")).arg(killed.path()).status().unwrap().success());
        drop(kv);
        let list = place(killed.path()).list().unwrap();
        assert!(list.files.iter().all(|entry| files::is_whole(&place(killed.path()).copy(entry.number), entry)));
        let kv = open(killed.path(), copies);
        assert_is(&kv, ROUNDS);
        kv.flush().unwrap();
        drop(kv);
        assert_kept(killed.path());
    }
}

/// The merge may be at its beginning, at its copies or at its end.
#[test]
fn a_store_that_is_closed_while_it_merges_leaves_no_copies_of_other_files() {
    let dir = tempfile::tempdir().unwrap();
    RocksKv::create(&dir.path().join("records")).unwrap();
    for _ in 0..3 {
        let kv = open(dir.path(), Copies::Two);
        fill(&kv);
        drop(kv);
        assert_kept(dir.path());
        assert_is(&open(dir.path(), Copies::Two), ROUNDS);
    }
}

#[test]
fn a_host_that_refuses_copies_holds_no_merge_up_and_the_next_checkpoint_makes_them() {
    let dir = tempfile::tempdir().unwrap();
    RocksKv::create(&dir.path().join("records")).unwrap();
    let mut kv = open(dir.path(), Copies::Two);
    kv.list_late();
    set_merging(&kv, false);
    fill(&kv);
    let aside = dir.path().join("aside");
    fs::rename(dir.path().join("copies"), &aside).unwrap();
    fs::write(dir.path().join("copies"), b"not a folder").unwrap();
    set_merging(&kv, true);
    while live(&kv).len() == usize::from(ROUNDS) {
        std::thread::yield_now();
    }
    fs::remove_file(dir.path().join("copies")).unwrap();
    fs::rename(&aside, dir.path().join("copies")).unwrap();
    kv.write(vec![(vec![0x70], Some(vec![1]))]).unwrap();
    kv.flush().unwrap();
    assert_eq!(bytes_to_copy(&kv, dir.path()), 0);
    assert_is(&kv, ROUNDS);
    drop(kv);
    assert_kept(dir.path());
}

#[test]
fn a_file_that_a_flush_is_still_writing_is_left_to_its_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    drop(merged(dir.path(), Copies::Two));
    let place = place(dir.path());
    let (number, path) = tables_in(&place.records).pop().unwrap();
    let whole = fs::read(path).unwrap();
    let ahead = Ahead::new(place.clone(), Copies::Two);
    let (unfinished, finished) = (number + 10, number + 11);
    fs::write(place.table(unfinished), &whole[..whole.len() / 2]).unwrap();
    fs::write(place.table(finished), &whole).unwrap();
    ahead.copy_from(number + 1);
    assert!(!ahead.is_taken(unfinished) && !place.copy(unfinished).exists());
    assert!(files::is_whole(&place.copy(finished), &ahead.entry(finished).unwrap()));
}
