//! Faults of names that met at full places, and of the placement record.

use super::*;
use crate::format::placement;

/// Seven places of one name each, so names meet.
const CROWDED: NamePlaces = NamePlaces { bits: 3, names_max: 1 };
const MADE: [&[u8]; 5] = [b"one", b"two", b"three", b"four", b"five"];

/// A volume with six names in `/d/e`.
fn crowded() -> Volume {
    let volume = Volume::with(CROWDED);
    let fs = volume.file_system(volume.store());
    for name in MADE {
        fs.mknod(volume.e, name, libc::S_IFREG | 0o644, 0, &USER).unwrap();
    }
    fs.close().unwrap();
    volume
}

/// A full place of the directory, with its names.
fn full_place(v: &Broken<'_>, directory: Ino) -> (Place, Names) {
    let (from, to) = dirent::range(directory);
    let records = v.store.scan(&from, &to, usize::MAX).unwrap();
    let found = records
        .iter()
        .map(|(key, value)| (dirent::parse_key(key).unwrap().1, Names::decode(directory, value).unwrap()));
    found.into_iter().find(|(_, names)| names.has_overflowed()).expect("six names at seven places meet")
}

fn assert_all_are_found(volume: &Volume) {
    for name in MADE {
        let path = format!("d/e/{}", String::from_utf8_lossy(name));
        assert_eq!(volume.read(&path), Some(Vec::new()), "{path}");
    }
    volume.assert_files(&volume.all());
}

#[test]
fn a_place_counts_the_names_that_passed_it_anew() {
    let volume = crowded();
    volume.assert_clean(&volume.store());
    for wrong in [0, 200] {
        let says = format!("names passed a full place, which counts {wrong}");
        volume.break_and_fix(&says, |v| {
            let (place, mut names) = full_place(v, volume.e);
            names.set_passed(wrong);
            v.put(dirent::key(volume.e, place), names.encode(volume.e));
        });
        assert_all_are_found(&volume);
    }
}

#[test]
fn a_full_place_that_is_lost_hides_no_name_that_passed_it() {
    let volume = crowded();
    let mut lost = Vec::new();
    volume.break_and_fix("names passed a full place, which counts 0", |v| {
        let (place, names) = full_place(v, volume.e);
        lost = names.iter().map(|dirent| dirent.name.clone()).collect();
        v.delete(dirent::key(volume.e, place));
    });
    assert_eq!(lost.len(), 1, "a place has one name");
    for name in MADE.iter().filter(|name| **name != lost[0]) {
        assert!(volume.read(&format!("d/e/{}", String::from_utf8_lossy(name))).is_some(), "{name:?}");
    }
}

#[test]
fn a_name_of_a_crowded_directory_is_moved_to_one_of_its_places() {
    let volume = crowded();
    volume.break_and_fix("is stored where no lookup finds it", |v| {
        let (from, to) = dirent::range(volume.e);
        let (key, value) = v.store.scan(&from, &to, 1).unwrap().pop().unwrap();
        let names = Names::decode(volume.e, &value).unwrap();
        v.delete(key);
        // This volume has no place with such a number.
        v.put(dirent::key(volume.e, Place::of_cookie(1 << 40)), names.encode(volume.e));
    });
    assert_all_are_found(&volume);
}

#[test]
fn how_names_are_placed_is_told_from_the_names() {
    let volume = Volume::new();
    let record = |v: &Broken<'_>| v.store.get(placement::KEY).unwrap().unwrap();
    let mut right = Vec::new();
    volume.break_and_fix("the record of how names are placed", |v| {
        right = record(v);
        v.delete(placement::KEY.to_vec());
    });
    volume.break_and_fix("the record of how names are placed", |v| v.damage(placement::KEY.to_vec()));
    assert_eq!(record(&Broken::of(&volume.store())), right);
    volume.assert_files(&volume.all());
}

#[test]
fn a_volume_that_lost_how_its_names_are_placed_is_not_opened_as_if_it_were_empty() {
    let volume = Volume::new();
    let store = volume.store();
    Broken::of(&store).delete(placement::KEY.to_vec());
    let options = Options { memory_bytes_max: 0, atime: AtimePolicy::Never, read_only: true, generation: None };
    let opened = FileSystem::open(store.clone(), Arc::new(SystemClock), &options);
    assert!(opened.is_err_and(|error| error.to_string().contains("placement of names")));
    store.close().unwrap();
}
