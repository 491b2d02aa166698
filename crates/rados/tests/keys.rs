//! Keys with values in objects, on the twin in memory and on a real cluster.

use oncefs_rados::{
    Change, Error, Guard, KeyChange, KeyLookUp, KeyScan, KeyedObjects, MemoryObjects, Objects, Pair, SCANNED_KEYS_MAX,
    WhenFull,
};

use crate::objects::on_both;

const VERSION: Guard<'_> = Guard { name: "version", value: b"1" };

fn change(objects: &dyn KeyedObjects, object: &str, changes: &[KeyChange<'_>]) -> Result<(), Error> {
    objects.change(object, Change::Keys { changes, attribute: None })
}

fn make(objects: &dyn KeyedObjects, object: &str) {
    objects.change(object, Change::Create { bytes: b"header" }).unwrap();
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> KeyChange<'a> {
    KeyChange::Set { key, value }
}

fn pair(key: &[u8], value: &[u8]) -> Pair {
    (key.to_vec(), value.to_vec())
}

#[test]
fn keys_of_any_bytes_come_back_in_their_order() {
    on_both("keys", |objects| {
        let keys: [&[u8]; 7] = [&[], &[0], &[0, 0], &[0, 1], &[1], &[1, 0xFF, 0], &[0xFF, 0xFE]];
        let changes: Vec<KeyChange<'_>> = keys.iter().rev().map(|key| set(key, key)).collect();
        make(objects, "a");
        change(objects, "a", &changes).unwrap();
        for (n, from) in keys.iter().enumerate() {
            let found = objects.scan("a".to_owned(), from, 100).unwrap();
            assert_eq!(found.pairs, keys[n..].iter().map(|key| pair(key, key)).collect::<Vec<_>>(), "from {from:?}");
            assert!(!found.has_more);
        }
        let found = objects.scan("a".to_owned(), &[0, 0, 0], 2).unwrap();
        assert_eq!((found.pairs, found.has_more), (vec![pair(&[0, 1], &[0, 1]), pair(&[1], &[1])], true));
        assert_eq!(objects.scan("a".to_owned(), &[0xFF, 0xFF], 2).unwrap().pairs, []);
    });
}

#[test]
fn keys_are_changed_in_order_and_as_a_whole() {
    on_both("change-keys", |objects| {
        make(objects, "a");
        change(objects, "a", &[set(b"a", b"1"), set(b"b", b"2"), set(b"c", b""), set(b"d", b"4")]).unwrap();
        let remove = KeyChange::RemoveRange { from: b"b", to: b"d" };
        change(objects, "a", &[set(b"e", b"x"), remove, set(b"e", b"new"), KeyChange::Remove { key: b"a" }]).unwrap();
        let found = objects.scan("a".to_owned(), b"", 100).unwrap();
        assert_eq!(found.pairs, [pair(b"d", b"4"), pair(b"e", b"new")]);
        let guarded = |version: &'static [u8]| {
            let guard = Guard { value: version, ..VERSION };
            let next = Guard { value: b"2", ..VERSION };
            let change = Change::Keys { changes: &[set(b"d", b"5")], attribute: Some(next) };
            objects.begin("a", change, Some(guard), WhenFull::Fails).wait()
        };
        objects.change("a", Change::SetAttribute { guard: VERSION }).unwrap();
        guarded(b"1").unwrap();
        assert_eq!(guarded(b"1"), Err(Error::Guarded("a".to_owned())), "the first change set another version");
        guarded(b"2").unwrap();
    });
}

#[test]
fn many_objects_are_read_in_one_round() {
    on_both("many", |objects| {
        let names: Vec<String> = (0..20).map(|n| format!("o{n}")).collect();
        for name in &names {
            make(objects, name);
            change(objects, name, &[set(b"k", name.as_bytes()), set(b"l", b"")]).unwrap();
        }
        let mut look_ups: Vec<KeyLookUp<'_>> =
            names.iter().map(|name| KeyLookUp::new(name.clone(), vec![b"l", b"k", b"none"])).collect();
        objects.look_up_all(&mut look_ups);
        let mut scans: Vec<KeyScan<'_>> = names.iter().map(|name| KeyScan::new(name.clone(), b"k", 1)).collect();
        objects.scan_all(&mut scans);
        for ((name, look_up), scan) in names.iter().zip(look_ups).zip(scans) {
            assert_eq!(look_up.result.unwrap(), [pair(b"k", name.as_bytes()), pair(b"l", b"")]);
            let found = scan.result.unwrap();
            assert_eq!((found.pairs, found.has_more), (vec![pair(b"k", name.as_bytes())], true));
        }
    });
}

#[test]
fn a_scan_of_many_keys_comes_in_portions() {
    on_both("portions", |objects| {
        let keys: Vec<[u8; 4]> = (0..3000u32).map(u32::to_be_bytes).collect();
        let changes: Vec<KeyChange<'_>> = keys.iter().map(|key| set(key, &[7; 64])).collect();
        make(objects, "a");
        change(objects, "a", &changes).unwrap();
        let (mut from, mut found) = (Vec::new(), 0);
        loop {
            let portion = objects.scan("a".to_owned(), &from, usize::MAX).unwrap();
            assert!(portion.pairs.len() <= SCANNED_KEYS_MAX);
            for (key, value) in &portion.pairs {
                assert_eq!((key.as_slice(), value.as_slice()), (&keys[found][..], &[7; 64][..]));
                found += 1;
            }
            if !portion.has_more {
                break;
            }
            from = [portion.pairs.last().unwrap().0.as_slice(), &[0]].concat();
        }
        assert_eq!(found, keys.len());
    });
}

#[test]
fn a_missing_object_is_an_error_and_keys_do_not_make_it() {
    on_both("missing-keys", |objects| {
        let missing = || Error::NotFound("a".to_owned());
        assert_eq!(objects.scan("a".to_owned(), b"", 1), Err(missing()));
        assert_eq!(change(objects, "a", &[KeyChange::Remove { key: b"k" }]), Err(missing()));
        assert_eq!(change(objects, "a", &[set(b"k", b"v")]), Err(missing()));
        assert_eq!(objects.names().unwrap(), [""; 0]);
        make(objects, "a");
        change(objects, "a", &[set(b"k", b"v")]).unwrap();
        change(objects, "a", &[KeyChange::Remove { key: b"k" }, KeyChange::Remove { key: b"never" }]).unwrap();
        assert_eq!(objects.scan("a".to_owned(), b"", 1).unwrap().pairs, []);
        objects.change("a", Change::Remove).unwrap();
        assert_eq!(objects.scan("a".to_owned(), b"", 1), Err(missing()));
    });
}

#[test]
fn a_crash_tears_changes_of_keys_between_objects_and_not_within_one() {
    let objects = MemoryObjects::default();
    let begin = |object: &str, value: &'static [u8]| {
        let changes = [set(b"k", value), set(b"l", value)];
        objects.begin(object, Change::Keys { changes: &changes, attribute: None }, None, WhenFull::Fails)
    };
    ["a", "b"].iter().for_each(|object| make(&objects, object));
    begin("a", b"1").wait().unwrap();
    let _unawaited = [begin("a", b"2"), begin("b", b"2")];
    for (of_a, of_b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let crashed = objects.after_crash(|name, _| if name == "a" { of_a } else { of_b });
        let value = if of_a == 0 { b"1" } else { b"2" };
        assert_eq!(crashed.scan("a".to_owned(), b"", 9).unwrap().pairs, [pair(b"k", value), pair(b"l", value)]);
        assert_eq!(crashed.scan("b".to_owned(), b"", 9).unwrap().pairs.len(), 2 * of_b);
    }
}
