//! Names chosen to crowd one place of a directory: no other name is refused because of them, and all of them can be
//! found, listed, moved and removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{ROOT, Volume, contradictions, directory, file};
use oncefs_engine::Change;
use oncefs_fs::{AtimePolicy, Error, FileSystem, Ino, NamePlaces, RenameMode};
use oncefs_toolbox::Random;

/// Key of the placement record. Older volumes have none.
const PLACEMENT: &[u8] = b"p";

/// The names of a directory with their cookies, in the order of a listing that continues at a cookie after each name.
fn listed(file_system: &FileSystem, directory: Ino) -> Vec<(Vec<u8>, u64)> {
    let mut found: Vec<(Vec<u8>, u64)> = Vec::new();
    loop {
        let (from, before) = (found.last().map_or(2, |(_, cookie)| *cookie), found.len());
        let mut add = |entry: &oncefs_fs::Entry| {
            found.push((entry.name.to_vec(), entry.cookie));
            false
        };
        file_system.readdir(directory, from, &mut add).unwrap();
        if found.len() == before {
            return found;
        }
    }
}

fn make(file_system: &FileSystem, name: &[u8]) -> Ino {
    file_system.mknod(Ino::ROOT, name, libc::S_IFREG | 0o644, 0, &ROOT).unwrap().ino
}

fn assert_clean(file_system: &FileSystem) {
    assert_eq!(contradictions(file_system), Vec::<String>::new());
}

/// Records of names in a directory.
fn records(file_system: &FileSystem, directory: Ino) -> usize {
    let key = |number: u64| [&b"d"[..], &number.to_be_bytes()].concat();
    file_system.store().scan(&key(directory.0), &key(directory.0 + 1), usize::MAX).unwrap().len()
}

/// An empty volume as older versions made it, without a placement record.
fn older(volume: &Volume) -> Arc<FileSystem> {
    let file_system = volume.open_without_threads();
    let mut change = Change::new();
    change.delete(PLACEMENT.to_vec());
    file_system.store().publish(change).unwrap();
    file_system.close().unwrap();
    drop(file_system);
    volume.open()
}

#[test]
fn a_listing_does_not_give_out_how_names_are_placed() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    for name in ["a", "b", "c", "d"] {
        file(&file_system, Ino::ROOT, name);
    }
    let cookies = listed(&file_system, Ino::ROOT);
    assert_eq!(
        crate::attack::seed_from(&cookies),
        None,
        "a seed gives these cookies, so names can be aimed at a place"
    );
    let other = directory(&file_system, Ino::ROOT, "other").ino;
    for name in ["a", "b", "c", "d"] {
        file(&file_system, other, name);
    }
    assert_ne!(listed(&file_system, other), cookies, "what is learned in one directory serves in another");
}

#[test]
fn names_chosen_to_crowd_out_another_do_not() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = older(&volume);
    for name in ["a", "b", "c"] {
        file(&file_system, Ino::ROOT, name);
    }
    let seed = crate::attack::seed_from(&listed(&file_system, Ino::ROOT)).expect("an older volume gives its seed out");
    let chosen = crate::attack::names_beside(b"report", seed);
    assert!(chosen.len() > 400, "{} names", chosen.len());
    for name in &chosen {
        make(&file_system, name);
    }
    let report = make(&file_system, b"report");
    assert_eq!(file_system.lookup(Ino::ROOT, b"report").unwrap().ino, report);
    assert!(matches!(file_system.mknod(Ino::ROOT, b"report", 0o644, 0, &ROOT), Err(Error::Exists)));
    assert_clean(&file_system);

    let all = listed(&file_system, Ino::ROOT);
    assert_eq!(all.len(), chosen.len() + 4);
    assert!(all.is_sorted_by(|one, next| one.1 < next.1), "cookies are unique and ascend");
    file_system.close().unwrap();
    drop(file_system);
    let file_system = volume.open();
    assert_eq!(listed(&file_system, Ino::ROOT), all, "after a remount");

    file_system.rename(Ino::ROOT, b"report", Ino::ROOT, b"moved", RenameMode::NoReplace).unwrap();
    file_system.rename(Ino::ROOT, b"moved", Ino::ROOT, b"report", RenameMode::NoReplace).unwrap();
    file_system.link(report, Ino::ROOT, b"link").unwrap();
    file_system.rename(Ino::ROOT, b"report", Ino::ROOT, &chosen[0], RenameMode::Exchange).unwrap();
    assert_eq!(file_system.lookup(Ino::ROOT, &chosen[0]).unwrap().ino, report);
    assert_clean(&file_system);
    for name in chosen.iter().map(Vec::as_slice).chain([&b"a"[..], b"b", b"c", b"report", b"link"]) {
        file_system.unlink(Ino::ROOT, name).unwrap();
        assert!(matches!(file_system.lookup(Ino::ROOT, name), Err(Error::NotFound)));
    }
    assert_clean(&file_system);
    assert_eq!(records(&file_system, Ino::ROOT), 0, "no count is left of places that overflowed");
}

#[test]
fn cookies_of_a_new_volume_fit_into_31_bits() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    for number in 0..500 {
        file(&file_system, Ino::ROOT, &format!("name {number}"));
    }
    let cookies = listed(&file_system, Ino::ROOT);
    assert_eq!(cookies.len(), 500);
    assert!(cookies.iter().all(|(_, cookie)| *cookie < 1 << 31), "{cookies:?}");
}

/// A directory under test with its expected names.
struct Work<'a> {
    file_system: &'a FileSystem,
    parent: Ino,
    /// Each name with its inode and its cookie.
    expected: BTreeMap<Vec<u8>, (Ino, u64)>,
}

impl Work<'_> {
    fn cookie_of(&self, name: &[u8]) -> u64 {
        listed(self.file_system, self.parent).iter().find(|(found, _)| found == name).unwrap().1
    }

    fn step(&mut self, random: &mut Random) {
        let (fs, parent) = (self.file_system, self.parent);
        let mut name = || format!("{}", random.below(20)).into_bytes();
        let (one, other) = (name(), name());
        let is_there = self.expected.contains_key(&one);
        match (random.below(6), self.expected.get(&other).copied()) {
            (0..3, _) if !is_there => {
                let ino = fs.mknod(parent, &one, libc::S_IFREG | 0o644, 0, &ROOT).unwrap().ino;
                let cookie = self.cookie_of(&one);
                self.expected.insert(one, (ino, cookie));
            }
            (0..3, _) => drop(self.expected.remove(&one).map(|_| fs.unlink(parent, &one).unwrap())),
            (3, Some((ino, _))) if !is_there => {
                fs.link(ino, parent, &one).unwrap();
                let cookie = self.cookie_of(&one);
                self.expected.insert(one, (ino, cookie));
            }
            (4, Some((theirs, cookie))) if is_there && one != other => {
                fs.rename(parent, &one, parent, &other, RenameMode::Exchange).unwrap();
                let mine = self.expected[&one];
                self.expected.insert(other, (mine.0, cookie));
                self.expected.insert(one, (theirs, mine.1));
            }
            (5, None) if is_there => {
                fs.rename(parent, &one, parent, &other, RenameMode::Replace).unwrap();
                let (ino, _) = self.expected.remove(&one).unwrap();
                let cookie = self.cookie_of(&other);
                self.expected.insert(other, (ino, cookie));
            }
            _ => {}
        }
    }

    fn compare(&self) {
        let mut expected: Vec<(Vec<u8>, u64)> =
            self.expected.iter().map(|(name, (_, cookie))| (name.clone(), *cookie)).collect();
        expected.sort_by_key(|(_, cookie)| *cookie);
        assert_eq!(listed(self.file_system, self.parent), expected, "every name keeps its cookie");
        for (name, (ino, _)) in &self.expected {
            assert_eq!(self.file_system.lookup(self.parent, name).unwrap().ino, *ino);
        }
        assert_clean(self.file_system);
    }
}

#[test]
fn names_that_meet_keep_their_cookies_while_others_come_go_and_move() {
    for (seed, places) in [(1, (2, 7)), (2, (3, 3)), (3, (5, 1))] {
        let volume = Volume::with_places(NamePlaces { bits: places.0, names_max: places.1 });
        let file_system = volume.open();
        let parent = directory(&file_system, Ino::ROOT, "directory").ino;
        let mut work = Work { file_system: &file_system, parent, expected: BTreeMap::new() };
        let mut random = Random::new(seed);
        for step in 0..400 {
            work.step(&mut random);
            if step % 10 == 0 {
                work.compare();
            }
        }
        work.compare();
        for name in work.expected.into_keys() {
            file_system.unlink(parent, &name).unwrap();
        }
        assert_eq!(records(&file_system, parent), 0);
        file_system.rmdir(Ino::ROOT, b"directory").unwrap();
        assert_clean(&file_system);
    }
}

#[test]
fn a_directory_is_full_only_when_all_its_places_are() {
    let volume = Volume::with_places(NamePlaces { bits: 2, names_max: 2 });
    let file_system = volume.open();
    for number in 0..6 {
        file(&file_system, Ino::ROOT, &format!("{number}"));
    }
    let one_more = file_system.mknod(Ino::ROOT, b"one more", libc::S_IFREG | 0o644, 0, &ROOT);
    assert!(matches!(one_more, Err(Error::NoSpace)));
    assert_clean(&file_system);
    file_system.rename(Ino::ROOT, b"0", Ino::ROOT, b"one more", RenameMode::Replace).unwrap();
    file_system.unlink(Ino::ROOT, b"3").unwrap();
    file(&file_system, Ino::ROOT, "0");
    assert_clean(&file_system);
}
