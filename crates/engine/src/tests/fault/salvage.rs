//! Power cuts in a salvage. Whatever part of it is on disk by then, the result is the old volume, which can be salvaged
//! again, or the salvaged one.

use std::fs;
use std::path::{Path, PathBuf};

use super::host_files::{copy_volume, volume};
use super::*;
use crate::kv::copies::Place;
use crate::kv::salvage::{STEPS, build};
use crate::kv::{RocksKv, Terms};
use crate::{Remedy, Store};

const RECORDS: u64 = 1_500;
/// A first byte of keys that the engine leaves to its callers.
const LETTER: u8 = 0x69;
/// Of the volume that `host_files` makes.
const VOLUME_ID: [u8; 16] = [5; 16];

/// The callers' records and the content of the file. None: some of it cannot be read.
type Seen = Option<(Vec<(Vec<u8>, Vec<u8>)>, Vec<u8>)>;

fn options(copies: u8) -> OpenOptions {
    OpenOptions { settings: vec![("copies".to_owned(), copies.to_string())], ..OpenOptions::new(32 << 20) }
}

fn record(n: u64, round: u8) -> (Vec<u8>, Vec<u8>) {
    ([&[LETTER][..], &n.to_be_bytes()].concat(), vec![round; 20 + n as usize % 200])
}

/// Records here have values of one repeated byte. A damaged one does not.
fn is_record(_key: &[u8], value: &[u8]) -> bool {
    value.windows(2).all(|pair| pair[0] == pair[1])
}

/// A closed volume with many records, half of them over older ones.
fn with_records(dir: &Path, copies: u8) -> PathBuf {
    let (volume, _) = volume(dir);
    for (round, step) in [(1, 1), (2, 2)] {
        let store = Store::open(&volume, &options(copies)).unwrap();
        for part in (0..RECORDS).step_by(step).collect::<Vec<u64>>().chunks(500) {
            let mut change = Change::new();
            part.iter().map(|n| record(*n, round)).for_each(|(key, value)| change.put(key, value));
            store.publish(change).unwrap();
        }
        store.close().unwrap();
    }
    volume
}

fn largest_table(volume: &Path) -> PathBuf {
    let tables = crate::kv::tables_in(&volume.join("records")).into_iter().map(|(_, path)| path);
    tables.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}

/// Takes a sector out of the largest record file, and out of its copy if there is one.
fn damage_a_sector(volume: &Path) {
    let table = largest_table(volume);
    let copy = volume.join("copies").join(table.file_name().unwrap());
    for path in [table, copy].iter().filter(|path| path.exists()) {
        let mut bytes = fs::read(path).unwrap();
        bytes[100 * 512..101 * 512].copy_from_slice(&Random::new(1).bytes(512));
        fs::write(path, bytes).unwrap();
    }
}

fn remove_manifests(volume: &Path) {
    for path in fs::read_dir(volume.join("records")).unwrap().map(|entry| entry.unwrap().path()) {
        if path.file_name().unwrap().to_str().unwrap().starts_with("MANIFEST") {
            fs::remove_file(path).unwrap();
        }
    }
}

/// What a mount of the volume finds.
fn seen(volume: &Path) -> Seen {
    let store = Store::open(volume, &options(1)).ok()?;
    let records = store.scan(&[LETTER], &[LETTER + 1], usize::MAX);
    let content = store.read(MapId(1), 0, 200 * BLOCK_BYTES).map(|read| read.to_vec());
    drop(store.close());
    Some((records.ok()?, content.ok()?))
}

/// Like `fsck --salvage`.
fn salvage(volume: &Path) {
    Store::salvage(volume, &is_record, &[]).unwrap();
    let store = Store::open_for_fsck(volume, &options(1)).unwrap();
    store.repair(Remedy::Asked, &mut |_, _, _| ()).unwrap();
    store.close().unwrap();
    assert!(!volume.join("records.new").exists() && volume.join("records.damaged").is_dir(), "what is left over");
}

/// Copies of a volume, one after the other.
struct Copier {
    dir: PathBuf,
    made: u32,
}

impl Copier {
    fn copy(&mut self, volume: &Path) -> PathBuf {
        // A name of its own: RocksDB remembers what this process has open by name.
        self.made += 1;
        let copy = self.dir.join(format!("copy {}", self.made));
        copy_volume(volume, &copy);
        copy
    }
}

/// The volumes that power cuts may leave of a salvage, each with the steps done by then. Cuts come between steps,
/// because each is one change of names. The new store does not count before its own step, whatever part of it is on
/// disk.
fn cuts(copier: &mut Copier, damaged: &Path) -> Vec<(String, PathBuf)> {
    let place = |volume: &Path| Place::of(volume, VOLUME_ID);
    let built = copier.copy(damaged);
    // The remains of an earlier salvage.
    fs::create_dir(built.join("records.damaged")).unwrap();
    ["one", "two"].iter().for_each(|name| fs::write(built.join("records.damaged").join(name), name).unwrap());
    let terms = Terms { is_record: &is_record, without: &[], reaches_back: &|_| true };
    build(&place(&built), &RocksKv::salvage_options(), terms).unwrap();
    let mut cuts = Vec::new();
    for name in ["CURRENT", "IDENTITY"] {
        let volume = copier.copy(&built);
        let in_part = volume.join("records.new");
        crate::kv::tables_in(&in_part).into_iter().for_each(|(_, path)| fs::write(path, "part").unwrap());
        fs::remove_file(in_part.join(name)).unwrap();
        cuts.push((format!("a new store in part, without its {name}"), volume));
    }
    for steps in 0..=STEPS.len() {
        let volume = copier.copy(&built);
        STEPS[..steps].iter().for_each(|step| step(&place(&volume)).unwrap());
        cuts.push((format!("{steps} steps"), volume));
    }
    // The last step begins by removing the remains of an earlier salvage.
    let removing = copier.copy(&built);
    STEPS[..STEPS.len() - 1].iter().for_each(|step| step(&place(&removing)).unwrap());
    fs::remove_file(removing.join("records.damaged/one")).unwrap();
    cuts.push(("one file of an earlier salvage is removed".to_owned(), removing));
    cuts
}

fn assert_old_or_salvaged(copies: u8, damage: &dyn Fn(&Path)) {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let damaged = with_records(dir.path(), copies);
    damage(&damaged);
    let mut copier = Copier { dir: dir.path().to_owned(), made: 0 };
    assert_eq!(seen(&copier.copy(&damaged)), None, "the damage shows");
    let whole = copier.copy(&damaged);
    salvage(&whole);
    let salvaged = seen(&whole);
    let kept = salvaged.as_ref().map_or(0, |(records, _)| records.len() as u64);
    assert!((RECORDS * 9 / 10..RECORDS).contains(&kept), "{kept} records are kept");
    for (done, volume) in cuts(&mut copier, &damaged) {
        let mounted = copier.copy(&volume);
        let found = seen(&mounted);
        assert!(found.is_none() || found == salvaged, "{done}: neither the old volume nor the salvaged one");
        for (volume, what) in [(volume, "salvage"), (mounted, "mount and salvage")] {
            salvage(&volume);
            assert!(seen(&volume) == salvaged, "{done}, then {what}: not what an uninterrupted salvage gives");
            fs::remove_dir_all(&volume).unwrap();
        }
    }
}

#[test]
fn a_power_cut_while_a_damaged_sector_is_salvaged_leaves_the_old_volume_or_the_salvaged_one() {
    assert_old_or_salvaged(1, &damage_a_sector);
}

#[test]
fn a_power_cut_while_a_sector_that_is_damaged_in_both_copies_is_salvaged_does_too() {
    assert_old_or_salvaged(2, &damage_a_sector);
}

#[test]
fn a_power_cut_while_a_store_without_its_manifest_is_salvaged_does_too() {
    assert_old_or_salvaged(1, &|volume| {
        damage_a_sector(volume);
        remove_manifests(volume);
        // What RocksDB was about to write when it was closed.
        let whole = fs::read(largest_table(volume)).unwrap();
        fs::write(volume.join("records/900000.sst"), &whole[..whole.len() / 2]).unwrap();
    });
}
