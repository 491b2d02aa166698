//! Second copies of superblock and record files: damage is restored, whatever a crash left of copies and restored
//! files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::host_files::{copy_volume, files, open_and_compare, volume};
use super::*;
use crate::Store;
use crate::kv::copies::Place;
use crate::kv::{Kv, RocksKv};
use crate::volume::files::metadata_bytes;

/// Names of the files that everything depends on, in the volume's directory.
fn needed(volume: &Path) -> Vec<PathBuf> {
    let is_needed = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name == "superblock" || name == "CURRENT" || name.starts_with("MANIFEST") || name.ends_with(".sst")
    };
    let all = files(volume).into_iter().filter(is_needed);
    all.map(|path| path.strip_prefix(volume).unwrap().to_owned()).collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x20;
    fs::write(path, bytes).unwrap();
}

/// Repairs like fsck, and returns its findings about the record files.
fn fsck(volume: &Path) -> crate::FilesFound {
    // A child of another test may hold the lock from its fork to its exec.
    let store = loop {
        match Store::open_for_fsck(volume, &OpenOptions::new(32 << 20)) {
            Err(Error::InUse(_)) => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    let found = store.check_record_files(true).unwrap();
    store.close().unwrap();
    found
}

#[test]
fn a_flipped_byte_in_what_all_files_depend_on_costs_nothing() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (volume, content) = volume(dir.path());
    let mut random = Random::new(3);
    let names = needed(&volume);
    assert!(names.len() >= 4, "superblock, CURRENT, a manifest and a record file: {names:?}");
    for name in names {
        let len = fs::metadata(volume.join(&name)).unwrap().len();
        for _ in 0..12 {
            let at = random.below(len) as usize;
            let damaged = dir.path().join("damaged");
            copy_volume(&volume, &damaged);
            flip(&damaged.join(&name), at);
            assert_eq!(open_and_compare(&damaged, &content), None, "byte {at} of {name:?}");
            let found = fsck(&damaged);
            assert!(found.left.is_empty(), "byte {at} of {name:?}: {found:?}");
            assert_eq!(fsck(&damaged), crate::FilesFound::default(), "byte {at} of {name:?}: the second look");
            fs::remove_dir_all(&damaged).unwrap();
        }
    }
}

/// The version stands before the checksum: a wrong byte there reads as a version of the future.
#[test]
fn a_flipped_byte_anywhere_in_the_first_bytes_of_the_superblock_costs_nothing() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (volume, content) = volume(dir.path());
    for at in 0..64 {
        flip(&volume.join("superblock"), at);
        assert!(Store::profile_of(&volume).is_ok(), "byte {at}");
        flip(&volume.join("superblock"), at);
    }
    flip(&volume.join("superblock"), 16);
    assert_eq!(open_and_compare(&volume, &content), None);
    let both = ["superblock", "copies/superblock"].map(|name| fs::read(volume.join(name)).unwrap());
    assert!(both[0] == both[1], "the damaged one is restored");
}

#[test]
fn a_file_that_is_cut_emptied_or_gone_comes_back_from_its_copy() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (volume, content) = volume(dir.path());
    for name in needed(&volume) {
        let len = fs::metadata(volume.join(&name)).unwrap().len();
        for cut in [None, Some(0), Some(len / 2), Some(len - 1)] {
            let damaged = dir.path().join("damaged");
            copy_volume(&volume, &damaged);
            let target = damaged.join(&name);
            match cut {
                None => fs::remove_file(&target).unwrap(),
                Some(len) => fs::File::options().write(true).open(&target).unwrap().set_len(len).unwrap(),
            }
            assert_eq!(open_and_compare(&damaged, &content), None, "{name:?} cut to {cut:?}");
            fs::remove_dir_all(&damaged).unwrap();
        }
    }
}

#[test]
fn damage_to_a_copy_is_made_good_from_the_file() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (volume, content) = volume(dir.path());
    let copies: Vec<PathBuf> =
        fs::read_dir(volume.join("copies")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(copies.len() >= 3, "superblock, list and a record file: {copies:?}");
    for copy in copies {
        let damaged = dir.path().join("damaged");
        copy_volume(&volume, &damaged);
        let copy = damaged.join(copy.strip_prefix(&volume).unwrap());
        let len = fs::metadata(&copy).unwrap().len() as usize;
        flip(&copy, len / 2);
        assert!(fsck(&damaged).left.is_empty(), "{copy:?}");
        assert_eq!(fsck(&damaged), crate::FilesFound::default(), "{copy:?}");
        assert_eq!(open_and_compare(&damaged, &content), None, "{copy:?}");
        fs::remove_dir_all(&damaged).unwrap();
    }
}

#[test]
fn a_volume_with_one_copy_keeps_second_names_of_its_record_files_and_no_copies() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (volume, content) = volume(dir.path());
    let settings = vec![("copies".to_owned(), "1".to_owned())];
    let options = OpenOptions { settings, ..OpenOptions::new(32 << 20) };
    let store = Store::open(&volume, &options).unwrap();
    store.write(MapId(1), 0, &content[..BLOCK_BYTES], |_, _| ()).unwrap();
    store.close().unwrap();
    drop(store);
    let of = |folder: &str| crate::kv::tables_in(&volume.join(folder));
    assert!(!of("copies").is_empty() && of("copies").len() == of("records").len());
    for ((number, name), (_, table)) in of("copies").into_iter().zip(of("records")) {
        assert_eq!(fs::metadata(name).unwrap().ino(), fs::metadata(table).unwrap().ino(), "{number}");
    }
    let counted = metadata_bytes(&volume);
    of("copies").into_iter().for_each(|(_, name)| fs::remove_file(name).unwrap());
    assert_eq!(metadata_bytes(&volume), counted, "a file with two names counts once");
}

/// A crash between two steps of a checkpoint's copies leaves the old list with any of the new copies, or the new list
/// with any of the old copies. Either way the file that is damaged comes back, or the volume is refused.
#[test]
fn whatever_a_crash_leaves_of_copies_no_stale_one_is_believed() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (before, first) = volume(dir.path());
    let after = dir.path().join("after");
    copy_volume(&before, &after);
    let store = Store::open(&after, &OpenOptions::new(32 << 20)).unwrap();
    let second = unique(2, 300 * BLOCK);
    store.write(MapId(1), 0, &second, |_, _| ()).unwrap();
    store.close().unwrap();
    let (old, new) = (before.join("copies"), after.join("copies"));
    let names: Vec<_> = fs::read_dir(&new).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let mut restored = 0;
    for cut in 0..=names.len() {
        let crashed = dir.path().join("crashed");
        for (list, is_torn) in [(&old, false), (&old, true), (&new, false)] {
            for damage in needed(&after) {
                copy_volume(&after, &crashed);
                let copies = crashed.join("copies");
                names[cut..].iter().for_each(|name| {
                    drop(fs::remove_file(copies.join(name)));
                    drop(fs::copy(old.join(name), copies.join(name)));
                });
                if is_torn
                    && let Some(name) = names.get(cut)
                    && new.join(name).metadata().unwrap().len() > 100
                {
                    let whole = fs::read(new.join(name)).unwrap();
                    fs::write(copies.join(name), &whole[..whole.len() / 2]).unwrap();
                }
                fs::copy(list.join("list"), copies.join("list")).unwrap();
                let len = fs::metadata(crashed.join(&damage)).unwrap().len() as usize;
                flip(&crashed.join(&damage), len - 30.min(len));
                // As of the old checkpoint and the whole log, or as of the new one: both give the last commit.
                let said = open_and_compare(&crashed, &second);
                restored += u32::from(said.is_none());
                fs::remove_dir_all(&crashed).unwrap();
            }
        }
    }
    assert!(restored > 0, "nothing was restored");
    assert_ne!(first, second);
}

/// RocksDB merges files after the checkpoint that wrote them, and a daemon may end without dropping its store.
#[test]
fn the_copies_of_a_closed_volume_are_of_the_files_that_it_has() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (volume, content) = volume(dir.path());
    for round in 0..12 {
        let store = Store::open(&volume, &OpenOptions::new(32 << 20)).unwrap();
        store.write(MapId(1), 0, &unique(round, 30 * BLOCK), |_, _| ()).unwrap();
        store.write(MapId(1), 0, &content, |_, _| ()).unwrap();
        store.close().unwrap();
        let list = Place::of(&volume, [5; 16]).list().unwrap();
        let there = crate::kv::tables_in(&volume.join("records"));
        let is_there = |number: u64| there.iter().any(|(other, _)| *other == number);
        assert!(list.files.iter().all(|file| is_there(file.number)), "round {round}: {:?}, {there:?}", list.files);
        let manifest = fs::read(volume.join(format!("records/MANIFEST-{:06}", list.manifest_number))).unwrap();
        assert_eq!(list.manifest.len(), manifest.len(), "round {round}: of the manifest");
        drop(store);
    }
}

/// Restoring goes table by table, then manifest, then CURRENT. The power may fail after any of these steps.
#[test]
fn restoring_goes_on_after_a_crash_at_any_step() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (volume, content) = volume(dir.path());
    let names: Vec<PathBuf> = needed(&volume).into_iter().filter(|name| name.starts_with("records")).collect();
    for done in 0..names.len() {
        let damaged = dir.path().join("damaged");
        copy_volume(&volume, &damaged);
        // Files restored so far are whole; the rest is gone, and the next one is half written under its temporary name.
        for name in &names[done..] {
            let bytes = fs::read(damaged.join(name)).unwrap();
            fs::write(damaged.join("records/000000.dbtmp"), &bytes[..bytes.len() / 2]).unwrap();
            fs::remove_file(damaged.join(name)).unwrap();
        }
        assert_eq!(open_and_compare(&damaged, &content), None, "{done} of {names:?} were restored");
        fs::remove_dir_all(&damaged).unwrap();
    }
}

/// A table file with many blocks: its damage shows when a block is read, long after opening.
#[test]
fn a_record_file_that_rots_while_the_volume_is_in_use_is_restored_there() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (volume, _) = volume(dir.path());
    let store = Store::open(&volume, &OpenOptions::new(32 << 20)).unwrap();
    let record = |n: u64| ([&[0x69][..], &n.to_be_bytes()].concat(), vec![n as u8; 200]);
    for part in (0..4_000).collect::<Vec<u64>>().chunks(500) {
        let mut change = Change::new();
        part.iter().map(|n| record(*n)).for_each(|(key, value)| change.put(key, value));
        store.publish(change).unwrap();
    }
    store.close().unwrap();
    drop(store);
    let tables = needed(&volume).into_iter().filter(|name| name.extension().is_some_and(|kind| kind == "sst"));
    let largest = tables.max_by_key(|name| fs::metadata(volume.join(name)).unwrap().len()).unwrap();
    flip(&volume.join(&largest), 300_000);
    let store = Store::open(&volume, &OpenOptions::new(32 << 20)).unwrap();
    let found = store.scan(&[0x69], &[0x6A], 10_000).unwrap();
    assert_eq!(found, (0..4_000).map(record).collect::<Vec<_>>());
    let told = store.check_record_files(true).unwrap();
    assert_eq!((told.mended.len(), told.left.len()), (1, 0), "{told:?}");
    store.close().unwrap();
}

/// Compactions end at arbitrary times.
#[test]
fn files_that_a_compaction_takes_away_meanwhile_do_not_pass_for_damaged() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let place = Place::of(dir.path(), [7; 16]);
    RocksKv::create(&place.records).unwrap();
    let kv = RocksKv::open(place, crate::Copies::Two, 8 << 20, false).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..100_u8 {
                kv.write((0..200).map(|n: u8| (vec![b'k', n], Some(vec![round; 1000]))).collect()).unwrap();
                kv.flush().unwrap();
            }
        });
        while !writer.is_finished() {
            assert_eq!(kv.check_files(false).unwrap(), crate::FilesFound::default());
        }
    });
}

#[test]
fn a_volume_is_nobody_else_s_until_its_record_store_is_closed_too() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (volume, _) = volume(dir.path());
    let store = Store::open(&volume, &OpenOptions::new(32 << 20)).unwrap();
    store.close().unwrap();
    let refused = Store::open(&volume, &OpenOptions::new(32 << 20)).err().unwrap();
    assert!(matches!(refused, Error::InUse(_)), "{refused}");
    drop(store);
    Store::open(&volume, &OpenOptions::new(32 << 20)).unwrap().close().unwrap();
}
