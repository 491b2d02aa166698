//! What callers rely on, on the twin in memory and on a real cluster. The latter needs `ONCEFS_CEPH_CONF`, the
//! configuration file of a cluster with a pool `oncefs`; `scripts/beyond` starts one and sets it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use oncefs_rados::{
    Access, Change, Cluster, Error, Guard, KeyLookUp, KeyedObjects, MemoryObjects, Objects, Pool, Read, Standbys,
    WhenFull,
};

const EPOCH: Guard<'_> = Guard { name: "epoch", value: b"1" };

/// The real cluster, if there is one. A test without it says so, and passes.
fn cluster(namespace: &str) -> Option<(Access, Pool)> {
    let Some(conf) = std::env::var_os("ONCEFS_CEPH_CONF") else {
        println!("SKIPPED on a real cluster: ONCEFS_CEPH_CONF is not set; scripts/beyond starts one");
        return None;
    };
    let access = Access {
        pool: "oncefs".to_owned(),
        namespace: format!("test-{namespace}-{}", std::process::id()),
        id: "admin".to_owned(),
        conf: PathBuf::from(conf),
        record_keys_max: None,
        data_pool: None,
    };
    let pool = Pool::open(&Cluster::connect(&access).unwrap(), &access).unwrap();
    Some((access, pool))
}

pub fn on_both(name: &str, test: impl Fn(&dyn KeyedObjects)) {
    test(&MemoryObjects::default());
    if let Some((_, pool)) = cluster(name) {
        test(&pool);
        remove_all(&pool);
    }
}

fn remove_all(objects: &dyn Objects) {
    objects.names().unwrap().iter().for_each(|name| objects.change(name, Change::Remove).unwrap());
}

fn read(objects: &dyn Objects, object: &str, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    let mut reads = [Read::new(object.to_owned(), at, &mut bytes)];
    objects.read_all(&mut reads);
    reads.into_iter().try_for_each(|read| read.result).unwrap();
    bytes
}

#[test]
fn what_is_written_is_read_and_what_is_missing_reads_as_zeros() {
    on_both("read", |objects| {
        objects.change("a", Change::Write { at: 4, bytes: b"data" }).unwrap();
        assert_eq!(read(objects, "a", 0, 10), b"\0\0\0\0data\0\0");
        assert_eq!(read(objects, "a", 100, 2), [0, 0]);
        assert_eq!(read(objects, "b", 0, 2), [0, 0]);
        assert_eq!(objects.sizes(&["b".to_owned(), "a".to_owned()]).unwrap(), [None, Some(8)]);
        objects.change("a", Change::WriteFull { bytes: b"new" }).unwrap();
        assert_eq!(objects.content("a", 64).unwrap().unwrap(), b"new");
        assert_eq!(objects.content("b", 64).unwrap(), None);
    });
}

#[test]
fn an_object_is_made_once_and_removed_once() {
    on_both("create", |objects| {
        objects.change("a", Change::Create { bytes: b"first" }).unwrap();
        assert_eq!(objects.change("a", Change::Create { bytes: b"second" }), Err(Error::Exists("a".to_owned())));
        assert_eq!(objects.content("a", 64).unwrap().unwrap(), b"first");
        assert_eq!(objects.names().unwrap(), ["a"]);
        objects.change("a", Change::Remove).unwrap();
        assert_eq!(objects.change("a", Change::Remove), Err(Error::NotFound("a".to_owned())));
        assert_eq!(objects.names().unwrap(), Vec::<String>::new());
    });
}

#[test]
fn a_zeroed_range_reads_as_zeros_and_makes_no_object() {
    on_both("zero", |objects| {
        objects.change("a", Change::Write { at: 0, bytes: &[7; 12] }).unwrap();
        objects.change("a", Change::Zero { at: 4, len: 4 }).unwrap();
        assert_eq!(read(objects, "a", 0, 12), [7, 7, 7, 7, 0, 0, 0, 0, 7, 7, 7, 7]);
        objects.change("a", Change::Zero { at: 8, len: 100 }).unwrap();
        assert_eq!(read(objects, "a", 6, 6), [0; 6]);
        objects.change("b", Change::Zero { at: 0, len: 4 }).unwrap();
        assert_eq!(objects.names().unwrap(), ["a"]);
    });
}

#[test]
fn a_guarded_change_is_made_only_at_its_epoch() {
    on_both("guard", |objects| {
        objects.change("log", Change::Write { at: 0, bytes: b"old" }).unwrap();
        objects.change("log", Change::SetAttribute { guard: EPOCH }).unwrap();
        let guarded =
            |bytes, guard| objects.begin("log", Change::Write { at: 0, bytes }, Some(guard), WhenFull::Fails).wait();
        guarded(b"one", EPOCH).unwrap();
        let next = Guard { value: b"2", ..EPOCH };
        objects.change("log", Change::SetAttribute { guard: next }).unwrap();
        assert_eq!(guarded(b"bad", EPOCH), Err(Error::Guarded("log".to_owned())));
        assert_eq!(objects.content("log", 64).unwrap().unwrap(), b"one");
        guarded(b"two", next).unwrap();
        assert_eq!(objects.content("log", 64).unwrap().unwrap(), b"two");
    });
}

#[test]
fn changes_of_one_object_keep_the_order_in_which_they_began() {
    on_both("order", |objects| {
        let begin = |byte: u8| objects.begin("a", Change::Write { at: 0, bytes: &[byte; 512] }, None, WhenFull::Fails);
        let begun: Vec<_> = (0..100).map(begin).collect();
        begun.iter().rev().for_each(|change| change.wait().unwrap());
        assert_eq!(read(objects, "a", 0, 512), [99; 512]);
    });
}

#[test]
fn objects_have_one_holder_and_a_dead_one_of_the_same_place_is_fenced() {
    let Some((access, pool)) = cluster("hold") else { return };
    // A user of its own gets a connection of its own, as another process would have.
    let other = Cluster::connect(&Access { id: "other".to_owned(), ..access.clone() }).unwrap();
    let other = Pool::open(&other, &access).unwrap();
    let held = pool.hold("/srv/volume", None).unwrap();
    let refused = other.hold("/srv/copy", Some("10.9.8.7:0/6")).err().unwrap();
    assert!(matches!(&refused, Error::Locked { holder, .. } if holder.ends_with("/srv/volume")), "{refused}");
    drop(held);
    assert_eq!(pool.holder().unwrap(), None);
    let held = other.hold("/srv/copy", None).unwrap();
    assert_eq!(pool.holder().unwrap().as_deref(), Some(held.address()));
    other.change("a", Change::WriteFull { bytes: b"mine" }).unwrap();
    let taken = pool.hold("/srv/copy", None).unwrap();
    assert_eq!(other.change("a", Change::WriteFull { bytes: b"late" }), Err(Error::Fenced));
    assert_eq!(pool.content("a", 64).unwrap().unwrap(), b"mine");
    drop(held);
    drop(taken);
    remove_all(&pool);
}

#[test]
fn a_holder_whose_lease_ran_out_is_fenced_by_its_successor() {
    let Some((access, pool)) = cluster("succeed") else { return };
    let conf = access.conf.with_file_name("succeeded.conf");
    std::fs::copy(&access.conf, &conf).unwrap();
    // A connection of its own, which this test ruins.
    let other = Cluster::connect(&Access { id: "other".to_owned(), conf, ..access.clone() }).unwrap();
    let other = Pool::open(&other, &access).unwrap();
    let held = other.hold("/srv/volume", None).unwrap();
    let taken = pool.hold("/var/standby", Some(held.address())).unwrap();
    assert_eq!(other.change("a", Change::WriteFull { bytes: b"late" }), Err(Error::Fenced));
    drop(held);
    assert_eq!(pool.holder().unwrap().as_deref(), Some(taken.address()), "the fenced one cannot unlock");
    drop(taken);
    remove_all(&pool);
}

/// The cluster answers as for a missing object, which would be a hole, an object that was removed, or no holder.
#[test]
fn a_pool_that_was_deleted_is_an_error_of_everything_and_no_hole() {
    let everything_fails = |objects: &dyn KeyedObjects, name: &str| {
        let gone = Error::Gone(name.to_owned());
        for object in ["a", "never-there"] {
            let mut bytes = [0xEE; 4];
            let mut reads = [Read::new(object.to_owned(), 0, &mut bytes)];
            objects.read_all(&mut reads);
            assert_eq!(reads[0].result, Err(gone.clone()));
            assert_eq!(objects.sizes(&[object.to_owned()]), Err(gone.clone()));
            assert_eq!(objects.change(object, Change::Remove), Err(gone.clone()));
            assert_eq!(objects.change(object, Change::Zero { at: 0, len: 2 }), Err(gone.clone()));
            assert_eq!(objects.change(object, Change::Write { at: 0, bytes: b"late" }), Err(gone.clone()));
            assert_eq!(objects.scan(object.to_owned(), b"", 10).err(), Some(gone.clone()));
            let mut look_ups = [KeyLookUp::new(object.to_owned(), vec![b"k"])];
            objects.look_up_all(&mut look_ups);
            assert_eq!(look_ups[0].result.as_ref().err(), Some(&gone));
        }
        assert_eq!(objects.names().err(), Some(gone));
    };
    let twin = MemoryObjects::default();
    twin.change("a", Change::Write { at: 0, bytes: b"data" }).unwrap();
    twin.delete_pool();
    everything_fails(&twin, "of the twin");

    let Some((access, _)) = cluster("doomed") else { return };
    let name = format!("doomed-{}", std::process::id());
    let ceph = |arguments: &[&str]| {
        let status = Command::new("ceph").arg("-c").arg(&access.conf).args(arguments).status().unwrap();
        assert!(status.success(), "ceph {arguments:?}");
    };
    ceph(&["config", "set", "mon", "mon_allow_pool_delete", "true"]);
    ceph(&["osd", "pool", "create", &name, "8"]);
    let access = Access { pool: name.clone(), ..access.clone() };
    let pool = Pool::open(&Cluster::connect(&access).unwrap(), &access).unwrap();
    pool.change("a", Change::Write { at: 0, bytes: b"data" }).unwrap();
    pool.change("b", Change::Write { at: 0, bytes: b"data" }).unwrap();
    let renamed = format!("{name}-renamed");
    ceph(&["osd", "pool", "rename", &name, &renamed]);
    assert_eq!(read(&pool, "a", 0, 4), b"data", "a new name is no new pool");
    assert_eq!(read(&pool, "never-there", 0, 4), [0; 4]);
    let mut held = pool.hold("/srv/volume", None).unwrap();
    ceph(&["osd", "pool", "rm", &renamed, &renamed, "--yes-i-really-really-mean-it"]);
    everything_fails(&pool, &name);
    // One of the same name has none of the objects.
    ceph(&["osd", "pool", "create", &name, "8"]);
    everything_fails(&pool, &name);
    let gone = Error::Gone(name.clone());
    assert_eq!(held.give_up(), Err(gone.clone()));
    assert_eq!(pool.holder(), Err(gone.clone()));
    assert_eq!(pool.waiting(), Err(gone.clone()));
    assert_eq!(pool.withdraw("/srv/volume"), Err(gone.clone()));
    assert_eq!(pool.has_room(), Err(gone));
    ceph(&["osd", "pool", "rm", &name, &name, "--yes-i-really-really-mean-it"]);
}

#[test]
fn those_that_wait_are_listed_until_they_withdraw_or_fall_silent() {
    let Some((access, pool)) = cluster("waiting") else { return };
    assert_eq!(pool.waiting().unwrap(), [""; 0]);
    let held = pool.hold("/srv/volume", None).unwrap();
    let long = Duration::from_secs(3600);
    pool.announce("/var/one", long).unwrap();
    pool.announce("/var/one", long).expect("it is renewed");
    let other = Cluster::connect(&Access { id: "other".to_owned(), ..access.clone() }).unwrap();
    let other = Pool::open(&other, &access).unwrap();
    let is_listed = |place: &str| pool.waiting().unwrap().iter().any(|waiting| waiting.ends_with(place));
    other.announce("/var/two", long).unwrap();
    assert!(is_listed("/var/two"));
    // From here on it is silent.
    other.announce("/var/two", Duration::from_millis(100)).unwrap();
    while is_listed("/var/two") {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(is_listed("/var/one"));
    assert_eq!(pool.holder().unwrap().as_deref(), Some(held.address()), "the lock of the holder is another");
    pool.withdraw("/var/one").unwrap();
    pool.withdraw("/var/one").expect("twice does no harm");
    assert_eq!(pool.waiting().unwrap(), [""; 0]);
    drop(held);
    remove_all(&pool);
}

#[test]
fn what_cannot_be_reached_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let conf = dir.path().join("ceph.conf");
    let access = |pool: &str, conf: PathBuf| Access {
        pool: pool.to_owned(),
        namespace: "x".to_owned(),
        id: "admin".to_owned(),
        conf,
        record_keys_max: None,
        data_pool: None,
    };
    match Cluster::prepare(&access("oncefs", conf.clone())) {
        Err(Error::Library(why)) => println!("SKIPPED: there is no librados here: {why}"),
        refused => assert!(matches!(refused, Err(Error::Config(why)) if why.contains("cannot be read"))),
    }
    let Some((real, _)) = cluster("missing") else { return };
    let access = access("no-such-pool", real.conf);
    let refused = Pool::open(&Cluster::connect(&access).unwrap(), &access).err();
    assert_eq!(refused, Some(Error::NoPool("no-such-pool".to_owned())));
}
