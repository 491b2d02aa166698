//! What salvage saves of damaged stores, and what it must drop.

use super::*;

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
    use crate::format::keys::ShardKey;
    let shard = ShardKey { map: MapId(7), shard: 3 };
    let value = Shard::default().encode(shard);
    let never = |_: &[u8], _: &[u8]| true;
    assert!(proves_itself(&keys::shard(shard), &value, &never));
    let other = ShardKey { shard: 4, ..shard };
    assert!(!proves_itself(&keys::shard(other), &value, &never), "another part");
    assert!(!proves_itself(&keys::checkpoint(), &value, &never), "the engine's own, without a key in its checksum");
}
