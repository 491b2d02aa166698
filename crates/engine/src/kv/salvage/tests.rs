//! What salvage saves of damaged stores, and what it must drop.

use super::*;
use crate::Copies;
use crate::kv::{Kv, RocksKv};

type Pair = (Box<[u8]>, Box<[u8]>);

const OLD: &[u8] = b"superseded";
const NEW: &[u8] = b"new";
const SOUND: &[u8] = b"has a checksum of its own";

fn key(n: u8) -> Vec<u8> {
    vec![0x69, n]
}

fn entry(n: u8) -> Found {
    Found::Entry(key(n), Some(NEW.to_vec()))
}

/// The values of older records 1 to 9, by their number, after a file with this content.
fn after(found: &[Found], bounds: &Bounds) -> Vec<(u8, Vec<u8>)> {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, dir.path()).unwrap();
    (1..10).for_each(|n| db.put(key(n), OLD).unwrap());
    add(&db, found, bounds, &|_, value| value == SOUND, &mut Salvaged::default()).unwrap();
    let pair_of = |pair: std::result::Result<Pair, rocksdb::Error>| {
        let (key, value) = pair.unwrap();
        (key[1], value.into_vec())
    };
    db.iterator(IteratorMode::Start).map(pair_of).collect()
}

fn values(of: &[(u8, &[u8])]) -> Vec<(u8, Vec<u8>)> {
    of.iter().map(|(n, value)| (*n, value.to_vec())).collect()
}

const ALL: Bounds = Bounds { from: Bound::Unbounded, to: Bound::Unbounded };

#[test]
fn a_gap_gives_up_all_that_it_may_have_superseded_and_nothing_unproved_replaces_anything() {
    let unproved = |n, value: &[u8]| Found::Unproved(key(n), value.to_vec());
    let found = [entry(2), Found::Gap, unproved(4, b"damaged"), unproved(5, SOUND), entry(7)];
    let kept = values(&[(1, OLD), (2, NEW), (5, SOUND), (7, NEW), (8, OLD), (9, OLD)]);
    assert_eq!(after(&found, &ALL), kept);
}

#[test]
fn a_gap_at_an_end_of_a_file_reaches_no_further_than_the_file() {
    let bounds = Bounds { from: Bound::Included(key(3)), to: Bound::Included(key(8)) };
    let kept = values(&[(1, OLD), (2, OLD), (5, NEW), (6, OLD), (7, OLD), (8, OLD), (9, OLD)]);
    assert_eq!(after(&[Found::Gap, entry(5)], &bounds), kept, "at its beginning");
    let kept = values(&[(1, OLD), (2, OLD), (3, OLD), (4, OLD), (5, NEW), (9, OLD)]);
    assert_eq!(after(&[entry(5), Found::Gap], &bounds), kept, "at its end");
    let kept = values(&[(1, OLD), (2, OLD), (9, OLD)]);
    assert_eq!(after(&[Found::Gap], &bounds), kept, "a file that is gone");
}

#[test]
fn a_part_of_a_map_proves_itself_only_under_its_own_key() {
    use crate::MapId;
    use crate::format::keys::LeafKey;
    let leaf = LeafKey { map: MapId(7), leaf: 3 };
    let value = ExtentLeaf::default().encode(leaf);
    let never = |_: &[u8], _: &[u8]| true;
    assert!(proves_itself(&keys::leaf(leaf), &value, &never));
    let other = LeafKey { leaf: 4, ..leaf };
    assert!(!proves_itself(&keys::leaf(other), &value, &never), "another part");
    assert!(!proves_itself(&keys::checkpoint(), &value, &never), "the engine's own, without a key in its checksum");
}

const KEYS: u8 = 200;

/// The value of a key after some rounds: the second one overwrites every second key, the third removes every third.
fn after_rounds(n: u8, rounds: u8) -> Option<Vec<u8>> {
    let is_removed = rounds == 3 && n.is_multiple_of(3);
    let last = if rounds > 1 && n.is_multiple_of(2) { 2 } else { 1 };
    (!is_removed).then(|| vec![last; 100])
}

/// A store with one copy whose daemon was killed after RocksDB merged its files, and deleted them, and before the list
/// of that.
fn killed_after_a_merge() -> (tempfile::TempDir, Place) {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::of(dir.path(), [1; 16]);
    RocksKv::create(&place.records).unwrap();
    let mut kv = RocksKv::open(place.clone(), Copies::One, 8 << 20, false).unwrap();
    kv.copy_late();
    let checkpoint = Checkpoint { sequence: 5, ..Checkpoint::default() }.encode([1; 16]);
    for rounds in 1..=3 {
        let keys = (0..KEYS).filter(|n| n.is_multiple_of(rounds));
        let batch =
            keys.map(|n| (key(n), after_rounds(n, rounds))).chain([(keys::checkpoint(), Some(checkpoint.clone()))]);
        kv.write(batch.collect()).unwrap();
        kv.flush().unwrap();
    }
    let listed: Vec<u64> = place.list().unwrap().files.iter().map(|file| file.number).collect();
    let merge = |db: &DB| {
        db.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(())
    };
    kv.records().try_with("merging", merge).unwrap();
    // RocksDB deletes what it merged after it says so.
    while listed.iter().any(|number| place.table(*number).exists()) {
        std::thread::yield_now();
    }
    let killed = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("cp").arg("-a").arg(dir.path().join(".")).arg(killed.path()).status();
    assert!(status.unwrap().success());
    let place = Place::of(killed.path(), [1; 16]);
    assert!(listed.len() >= 3 && place.list().unwrap().files.len() == listed.len(), "{listed:?}");
    (killed, place)
}

fn salvaged(place: &Place, reaches_back: bool) -> Result<Salvaged> {
    let terms = Terms { is_record: &|_, _| false, without: &[], reaches_back: &|_| reaches_back };
    RocksKv::salvage(place, terms)
}

#[test]
fn a_manifest_lost_between_a_merge_and_the_list_costs_nothing_and_revives_nothing() {
    let damage: [fn(&Path); 3] = [
        |manifest| {
            let mut bytes = fs::read(manifest).unwrap();
            bytes[20] ^= 1;
            fs::write(manifest, bytes).unwrap();
        },
        |manifest| fs::write(manifest, "").unwrap(),
        |manifest| fs::remove_file(manifest).unwrap(),
    ];
    for damage in damage {
        let (_dir, place) = killed_after_a_merge();
        let (_, manifest) = files::manifests_in(&place.records).pop().unwrap();
        damage(&manifest);
        assert!(matches!(RocksKv::open(place.clone(), Copies::One, 8 << 20, false), Err(Error::Corrupt { .. })));
        let salvaged = salvaged(&place, true).unwrap();
        assert_eq!((salvaged.gaps, salvaged.given_up), (0, 0), "{salvaged:?}");
        let kv = RocksKv::open(place, Copies::One, 8 << 20, false).unwrap();
        for n in 0..KEYS {
            assert_eq!(kv.get(&key(n)).unwrap(), after_rounds(n, 3), "key {n}");
        }
    }
}

#[test]
fn a_lost_manifest_is_refused_where_the_log_or_the_listed_files_do_not_lead_on() {
    let (_dir, place) = killed_after_a_merge();
    fs::remove_file(&files::manifests_in(&place.records).pop().unwrap().1).unwrap();
    assert!(salvaged(&place, false).is_err(), "what was written later is gone from the log");
    for (_, path) in files::tables_in(&place.copies) {
        fs::remove_file(path).unwrap();
    }
    assert!(salvaged(&place, true).is_err(), "the host has no second names");
    assert!(!place.records.with_file_name(DAMAGED).exists());
}
