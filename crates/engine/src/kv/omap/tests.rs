//! The store in objects on the twin in memory: beside a model, at every crash, and in every tear between objects.

use oncefs_rados::{
    Change, Guard, Hold, KeyScan, MemoryObjects, Objects, Pending, Read, Result as ObjectResult, WhenFull,
};
use oncefs_toolbox::Random;

use super::*;
use crate::format::records_index::{INDEX, header};
use crate::kv::{MemoryKv, RocksKv};

const ID: [u8; 16] = [5; 16];

/// Objects that keep what a crash after each change may leave.
struct Watched {
    inner: MemoryObjects,
    crashes: Mutex<Vec<MemoryObjects>>,
    random: Mutex<Random>,
}

impl Watched {
    fn new(inner: MemoryObjects) -> Arc<Self> {
        Arc::new(Self { inner, crashes: Mutex::default(), random: Mutex::new(Random::new(7)) })
    }

    fn take(&self) -> Vec<MemoryObjects> {
        std::mem::take(&mut *self.crashes.lock())
    }
}

impl Objects for Watched {
    fn read_all(&self, reads: &mut [Read<'_>]) {
        self.inner.read_all(reads);
    }

    fn begin(&self, object: &str, change: Change<'_>, guard: Option<Guard<'_>>, full: WhenFull) -> Box<dyn Pending> {
        let pending = self.inner.begin(object, change, guard, full);
        let mut random = self.random.lock();
        let torn = || self.inner.after_crash(|_, count| random.below(count as u64 + 1) as usize);
        let ends = [self.inner.after_crash(|_, _| 0), self.inner.after_crash(|_, count| count)];
        self.crashes.lock().extend(ends.into_iter().chain(std::iter::repeat_with(torn).take(3)));
        pending
    }

    fn sizes(&self, objects: &[String]) -> ObjectResult<Vec<Option<u64>>> {
        self.inner.sizes(objects)
    }

    fn names(&self) -> ObjectResult<Vec<String>> {
        self.inner.names()
    }

    fn hold(&self, place: &str, succeeds: Option<&str>) -> ObjectResult<Hold> {
        self.inner.hold(place, succeeds)
    }

    fn holder(&self) -> ObjectResult<Option<String>> {
        self.inner.holder()
    }

    fn has_room(&self) -> ObjectResult<bool> {
        self.inner.has_room()
    }
}

impl KeyedObjects for Watched {
    fn scan_all(&self, scans: &mut [KeyScan<'_>]) {
        self.inner.scan_all(scans);
    }

    fn look_up_all(&self, look_ups: &mut [KeyLookUp<'_>]) {
        self.inner.look_up_all(look_ups);
    }
}

fn terms(keys_max: u64) -> OmapTerms {
    OmapTerms { volume_id: ID, cache_bytes_max: 4 << 10, keys_max, read_only: false }
}

fn open_on(objects: Arc<dyn KeyedObjects>, terms: OmapTerms) -> OmapKv {
    let room = Arc::new(ObjectRoom::of(objects.clone()));
    OmapKv::open(objects, room, terms).unwrap()
}

fn made(keys_max: u64) -> (MemoryObjects, OmapKv) {
    let objects = MemoryObjects::default();
    OmapKv::create(&objects, ID).unwrap();
    let kv = open_on(Arc::new(objects.clone()), terms(keys_max));
    (objects, kv)
}

fn key(n: u64) -> Vec<u8> {
    [&[2][..], &n.to_be_bytes()].concat()
}

fn put(n: u64, value: u64) -> Put {
    (key(n), Some(value.to_le_bytes().to_vec()))
}

fn all(kv: &dyn Kv) -> Vec<Pair> {
    kv.scan(&[], &[0xFF], usize::MAX).unwrap()
}

/// Every object is named by the index, and has no key outside of its range.
fn assert_tidy(objects: &MemoryObjects, kv: &OmapKv) {
    let mut names = objects.names().unwrap();
    names.sort();
    let ranges = kv.ranges.read();
    let (mut expected, mut first) = (vec![INDEX.to_owned()], Some(Vec::new()));
    while let Some(here) = first {
        let range = ranges.of(&here);
        let found = objects.scan(object(range.number), &[], usize::MAX).unwrap();
        for (key, _) in found.pairs {
            assert_eq!(ranges.of(&key).number, range.number, "{key:?} is in the wrong object");
        }
        expected.push(object(range.number));
        first = range.end.map(<[u8]>::to_vec);
    }
    expected.sort();
    assert_eq!(names, expected);
}

fn random_batch(random: &mut Random, keys: u64, round: u64) -> Vec<Put> {
    let one = |random: &mut Random| {
        let n = random.below(keys);
        if random.one_in(3) { (key(n), None) } else { put(n, round) }
    };
    (0..1 + random.below(12)).map(|_| one(random)).collect()
}

#[test]
fn all_stores_give_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    let place = crate::kv::copies::Place::of(dir.path(), ID);
    RocksKv::create(&place.records).unwrap();
    let rocks = RocksKv::open(place, crate::Copies::One, 4 << 20, false).unwrap();
    let (model, (objects, omap)) = (MemoryKv::default(), made(6));
    let mut random = Random::new(3);
    for round in 0..300 {
        let batch = random_batch(&mut random, 60, round);
        for kv in [&model as &dyn Kv, &rocks, &omap] {
            kv.write(batch.clone()).unwrap();
            match round % 7 {
                3 => kv.flush().unwrap(),
                5 => kv.seal(put(60, round)).unwrap(),
                _ => {}
            }
        }
        let (from, to) = (key(random.below(62)), key(random.below(62)));
        let limit = random.below(9) as usize;
        let keys: Vec<Vec<u8>> = (0..5).map(|_| key(random.below(62))).collect();
        let expected = (model.get(&from).unwrap(), model.scan(&from, &to, limit).unwrap());
        for kv in [&rocks as &dyn Kv, &omap] {
            assert_eq!((kv.get(&from).unwrap(), kv.scan(&from, &to, limit).unwrap()), expected, "round {round}");
            assert_eq!(kv.get_all(&keys).unwrap(), model.get_all(&keys).unwrap(), "round {round}");
        }
        assert_eq!(all(&omap), all(&model), "round {round}");
    }
    assert!(omap.objects() > 4, "{} objects", omap.objects());
    omap.flush().unwrap();
    drop(omap);
    let again = open_on(Arc::new(objects.clone()), terms(6));
    assert_eq!(all(&again), all(&model));
    assert_tidy(&objects, &again);
}

/// The values that a key may have after a crash, oldest first.
type Possible = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

/// Opens the store after a crash: each record has one of its possible values. With the last of `sealed`, all records
/// have their last.
fn check_crash(crashed: &MemoryObjects, possible: &Possible, sealed: Option<&Put>) {
    let kv = open_on(Arc::new(crashed.clone()), terms(4));
    let found: BTreeMap<Vec<u8>, Vec<u8>> = all(&kv).into_iter().collect();
    for (key, value) in &found {
        assert!(possible.get(key).is_some_and(|values| values.contains(&Some(value.clone()))), "{key:?}: {value:?}");
    }
    let is_sealed = sealed.is_some_and(|(key, value)| found.get(key) == value.as_ref());
    for (key, values) in possible {
        let value = found.get(key).cloned();
        assert!(values.contains(&value), "{key:?} is {value:?}");
        assert!(!is_sealed || values.last() == Some(&value), "{key:?} is {value:?} in spite of the seal");
        assert_eq!(kv.get(key).unwrap(), value);
    }
    assert_tidy(crashed, &kv);
    kv.write((0..9).map(|n| put(200 + n, 1)).collect()).unwrap();
    kv.flush().unwrap();
    assert_eq!(all(&kv).len(), found.len() + 9, "the store goes on after the crash");
}

#[test]
fn a_crash_anywhere_leaves_each_record_old_or_new_and_the_seal_last() {
    let inner = MemoryObjects::default();
    OmapKv::create(&inner, ID).unwrap();
    let watched = Watched::new(inner);
    let kv = open_on(watched.clone(), terms(4));
    let (mut possible, mut random) = (Possible::new(), Random::new(11));
    let note = |possible: &mut Possible, batch: &[Put]| {
        let last: Changes = batch.iter().cloned().collect();
        for (key, value) in last {
            possible.entry(key).or_insert_with(|| vec![None]).push(value);
        }
    };
    let mut states = 0;
    for round in 0..60 {
        // First the keys grow, then all go.
        let batch = match round {
            0..40 => random_batch(&mut random, 40, round),
            _ => (0..40).filter(|_| random.one_in(4)).map(|n| (key(n), None)).collect(),
        };
        note(&mut possible, &batch);
        kv.write(batch).unwrap();
        let mut crashes = watched.take();
        crashes.iter().for_each(|crashed| check_crash(crashed, &possible, None));
        states += crashes.len();
        if round % 3 == 2 {
            let last = put(100, round);
            note(&mut possible, std::slice::from_ref(&last));
            kv.seal(last.clone()).unwrap();
            crashes = watched.take();
            crashes.iter().for_each(|crashed| check_crash(crashed, &possible, Some(&last)));
            states += crashes.len();
            possible.values_mut().for_each(|values| drop(values.drain(..values.len() - 1)));
            let now = watched.inner.after_crash(|_, count| {
                assert_eq!(count, 0, "a change was not awaited");
                0
            });
            check_crash(&now, &possible, Some(&last));
        }
    }
    assert!(states > 1000 && kv.index_next() > 8, "{states} states, {} objects were made", kv.index_next());
}

#[test]
fn a_range_is_split_at_its_bound_and_goes_when_it_is_empty() {
    let (objects, kv) = made(8);
    for n in 0..100 {
        kv.write(vec![put(n, n)]).unwrap();
        kv.write(vec![put(n, n + 1)]).unwrap();
    }
    kv.flush().unwrap();
    for number in 0..kv.index_next() {
        let keys = objects.scan(object(number), &[], 100).unwrap().pairs.len();
        assert!((1..=8).contains(&keys), "object {number} has {keys} keys");
    }
    assert_tidy(&objects, &kv);
    kv.write((0..100).map(|n| (key(n), None)).collect()).unwrap();
    kv.flush().unwrap();
    assert_eq!((kv.objects(), all(&kv)), (1, Vec::new()));
    assert_tidy(&objects, &kv);
}

#[test]
fn records_that_were_read_stay_in_memory_and_changes_reach_readers_at_once() {
    let (_, kv) = made(1000);
    kv.write((0..10).map(|n| put(n, n)).collect()).unwrap();
    assert_eq!(kv.get(&key(3)).unwrap(), put(3, 3).1, "what is in flight is read");
    kv.flush().unwrap();
    assert_eq!(kv.get(&key(4)).unwrap(), put(4, 4).1);
    let before = kv.memory();
    for n in 0..12 {
        assert_eq!(kv.get(&key(n)).unwrap(), (n < 10).then(|| put(n, n).1).flatten());
        assert_eq!(kv.get(&key(n)).unwrap(), (n < 10).then(|| put(n, n).1).flatten());
    }
    let after = kv.memory();
    assert!(after.hits - before.hits >= 22 && after.bytes <= after.bytes_max, "{after:?}");
    kv.write(vec![put(4, 40), (key(5), None)]).unwrap();
    assert_eq!((kv.get(&key(4)).unwrap(), kv.get(&key(5)).unwrap()), (put(4, 40).1, None));
}

#[test]
fn a_full_pool_takes_records_in_its_reserve_and_says_so() {
    let (objects, kv) = made(1000);
    objects.set_full(true);
    kv.write(vec![put(1, 1)]).unwrap();
    kv.flush().unwrap();
    assert!(kv.room.is_full());
    assert_eq!(kv.get(&key(1)).unwrap(), put(1, 1).1);
}

#[test]
fn a_store_that_is_dropped_leaves_no_change_under_way() {
    let (objects, kv) = made(6);
    kv.write(vec![put(1, 7), put(2, 8)]).unwrap();
    drop(kv);
    let crashed = objects.after_crash(|name, under_way| {
        assert_eq!(under_way, 0, "{name}");
        0
    });
    assert_eq!(all(&open_on(Arc::new(crashed), terms(6))).len(), 2);
}

#[test]
fn a_full_pool_is_not_asked_for_the_room_of_a_split() {
    let (objects, kv) = made(8);
    objects.set_full(true);
    for n in 0..40 {
        kv.write(vec![put(n, n)]).unwrap();
    }
    kv.flush().unwrap();
    assert!(kv.room.is_full());
    assert_eq!((kv.objects(), all(&kv).len()), (1, 40));
    assert_tidy(&objects, &kv);
    objects.set_full(false);
    kv.room.ask();
    kv.write(vec![put(40, 40)]).unwrap();
    kv.flush().unwrap();
    assert!(kv.objects() > 2, "{} objects", kv.objects());
    assert_eq!(all(&kv), (0..41).map(|n| (key(n), put(n, n).1.unwrap())).collect::<Vec<_>>());
    assert_tidy(&objects, &kv);
}

#[test]
fn a_split_copies_more_records_than_one_copy_has() {
    let (objects, kv) = made(300);
    let large = |n: u64| (key(n), Some(vec![n as u8; 4000]));
    for batch in 0..8 {
        kv.write((50 * batch..50 * (batch + 1)).map(large).collect()).unwrap();
    }
    kv.flush().unwrap();
    assert_eq!(kv.objects(), 2);
    assert_eq!(all(&kv), (0..400).map(|n| (key(n), large(n).1.unwrap())).collect::<Vec<_>>());
    assert_tidy(&objects, &kv);
}

#[test]
fn an_object_lost_under_a_mounted_volume_fails_the_next_checkpoint_and_is_not_made_again() {
    let (objects, kv) = made(100);
    kv.write((0..6).map(|n| put(n, n)).collect()).unwrap();
    kv.seal(put(50, 1)).unwrap();
    objects.change(&object(0), Change::Remove).unwrap();
    let lost = kv.write(vec![put(1, 2)]).and_then(|()| kv.seal(put(50, 2))).unwrap_err();
    assert!(matches!(&lost, Error::Corrupt { detail, .. } if detail.contains("is missing")), "{lost}");
    assert_eq!(objects.names().unwrap(), [INDEX]);
    assert!(kv.write(vec![put(1, 3)]).is_err(), "nothing follows a change that failed");
    assert!(all_result(&open_on(Arc::new(objects), terms(100))).is_err());
}

#[test]
fn an_object_of_another_volume_is_refused_when_it_is_first_used() {
    let (objects, kv) = made(100);
    kv.write(vec![put(1, 1)]).unwrap();
    kv.flush().unwrap();
    kv.read_all().unwrap();
    for foreign in [header([6; 16], Some(0)), header(ID, Some(1)), header(ID, None)] {
        objects.change(&object(0), Change::WriteFull { bytes: &foreign }).unwrap();
        let opened = || open_on(Arc::new(objects.clone()), terms(100));
        assert!(opened().get(&key(1)).is_err());
        assert!(opened().get_all(&[key(1)]).is_err());
        assert!(opened().scan(&[], &[0xFF], 9).is_err());
        assert!(opened().write(vec![put(1, 2)]).is_err());
        assert!(kv.read_all().is_err(), "it looks again");
    }
}

#[test]
fn a_process_that_lost_the_objects_changes_the_index_no_more() {
    let (objects, old) = made(4);
    old.write(vec![put(1, 1)]).unwrap();
    old.flush().unwrap();
    let new = open_on(Arc::new(objects), terms(4));
    let refused =
        old.write((0..20).map(|n| put(n, 7)).collect()).and_then(|()| old.write((20..40).map(|n| put(n, 7)).collect()));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("another epoch") || refused.contains("index"), "{refused}");
    assert!(old.flush().is_err(), "nothing follows a change that failed");
    new.write(vec![put(2, 2)]).unwrap();
    new.flush().unwrap();
}

#[test]
fn a_read_only_store_and_a_missing_object_are_refused() {
    let (objects, kv) = made(4);
    kv.write((0..9).map(|n| put(n, n)).collect()).unwrap();
    kv.write((9..20).map(|n| put(n, n)).collect()).unwrap();
    kv.flush().unwrap();
    let read_only = open_on(Arc::new(objects.clone()), OmapTerms { read_only: true, ..terms(4) });
    assert_eq!(all(&read_only).len(), 20);
    assert!(read_only.write(vec![put(1, 1)]).is_err());
    read_only.flush().unwrap();
    kv.write(vec![put(30, 30)]).unwrap();
    kv.flush().unwrap();
    objects.change(&object(0), Change::Remove).unwrap();
    let missing = all_result(&open_on(Arc::new(objects.clone()), terms(4))).unwrap_err();
    assert!(matches!(&missing, Error::Corrupt { detail, .. } if detail.contains("records.0000")), "{missing}");
    objects.change(INDEX, Change::Remove).unwrap();
    let room = Arc::new(ObjectRoom::of(Arc::new(objects.clone())));
    assert!(matches!(OmapKv::open(Arc::new(objects), room, terms(4)).err(), Some(Error::Corrupt { .. })));
}

fn all_result(kv: &dyn Kv) -> Result<Vec<Pair>> {
    kv.scan(&[], &[0xFF], usize::MAX)
}
