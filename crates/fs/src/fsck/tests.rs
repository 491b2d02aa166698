//! Breaks each invariant alone, with records written directly to the store: the audit names the fault, fsck fixes it,
//! the volume is clean and opens, and all other files keep their bytes. Then breaks many at once, by seed.

use std::collections::BTreeSet;
use std::sync::Arc;

use oncefs_engine::format::keys;
use oncefs_engine::{
    Change, DataPlace, FilePolicy, MapId, OpenOptions, PolicyOverride, Profile, Rank, Remedy, Store, VolumeSpec,
};
use oncefs_toolbox::Random;
use tempfile::TempDir;

use crate::attributes::policy::POLICY_ATTRIBUTE;
use crate::format::dirent::{self, Names, Place};
use crate::format::inode::{self, InodeRecord};
use crate::format::ranking::{self, Ranking};
use crate::format::{lease, orphan, queue, symlink, xattr};
use crate::fsck::fix::{check_names, fix_names};
use crate::names::placement::Placement;
use crate::{
    AtimePolicy, Caller, FileKind, FileSystem, Ino, NameFindings, NamePlaces, Options, RenameMode, SystemClock,
    WriteOrigin, XattrMode,
};

mod lost_content;
mod overflow;
mod paths;

const USER: Caller<'_> = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };

/// A volume with a few files, closed.
struct Volume {
    dir: TempDir,
    a: Ino,
    b: Ino,
    d: Ino,
    e: Ino,
    f: Ino,
    link: Ino,
}

/// The volume as a test's fault gets it.
struct Broken<'a> {
    store: &'a Store,
    placement: Placement,
}

fn content(ino: Ino) -> Vec<u8> {
    (0..50_000_u64).flat_map(|n| (n / 7 * 977 + ino.0).to_le_bytes()).collect()
}

impl Volume {
    /// `/a` with an attribute, `/b` with the second name `/d/b2`, `/d/e/f`, and the symbolic link `/link`.
    fn new() -> Self {
        Self::with(NamePlaces::default())
    }

    /// As `new`, with these name places.
    fn with(places: NamePlaces) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spec = VolumeSpec {
            data_bytes: Some(64 << 20),
            data: DataPlace::File,
            profile: Profile::Lrlfs,
            log_bytes: 4 << 20,
            copies: None,
        };
        Store::format(&dir.path().join("volume"), &spec, [7; 64]).unwrap();
        let root = Ino::ROOT;
        let mut volume = Self { dir, a: root, b: root, d: root, e: root, f: root, link: root };
        let store = volume.store();
        FileSystem::format_with(&store, &SystemClock, places).unwrap();
        let fs = volume.file_system(store);
        let file = |parent, name: &[u8]| {
            let ino = fs.mknod(parent, name, libc::S_IFREG | 0o644, 0, &USER).unwrap().ino;
            fs.write(ino, 0, &content(ino), WriteOrigin::PageCache).unwrap();
            ino
        };
        (volume.a, volume.b) = (file(root, b"a"), file(root, b"b"));
        volume.d = fs.mkdir(root, b"d", 0o755, &USER).unwrap().ino;
        volume.e = fs.mkdir(volume.d, b"e", 0o755, &USER).unwrap().ino;
        volume.f = file(volume.e, b"f");
        fs.link(volume.b, volume.d, b"b2").unwrap();
        volume.link = fs.symlink(root, b"link", b"d/e/f", &USER).unwrap().ino;
        fs.setxattr(volume.a, b"user.x", b"value", XattrMode::Any, true).unwrap();
        fs.close().unwrap();
        drop(fs);
        volume
    }

    fn store(&self) -> Arc<Store> {
        Store::open_for_fsck(&self.dir.path().join("volume"), &OpenOptions::new(16 << 20)).unwrap()
    }

    /// With the threads that make room for many changes.
    fn store_in_use(&self) -> Arc<Store> {
        Store::open(&self.dir.path().join("volume"), &OpenOptions::new(16 << 20)).unwrap()
    }

    fn file_system(&self, store: Arc<Store>) -> Arc<FileSystem> {
        let options = Options { memory_bytes_max: 0, atime: AtimePolicy::Never, read_only: false, generation: None };
        FileSystem::open(store, Arc::new(SystemClock), &options).unwrap()
    }

    /// Breaks something. The audit must report a fault that contains `said`, and fsck must fix everything.
    fn break_and_fix(&self, said: &str, harm: impl FnOnce(&Broken<'_>)) -> NameFindings {
        let store = self.store();
        harm(&Broken::of(&store));
        store.commit().unwrap();
        let findings = check_names(&store, &mut |_, _, _| ()).unwrap();
        assert!(findings.left.iter().any(|line| line.contains(said)), "no '{said}' in {:#?}", findings.left);
        let repaired = self.fix(&store);
        store.close().unwrap();
        drop(store);
        let store = self.store();
        self.assert_clean(&store);
        let fs = self.file_system(store);
        let new = fs.mkdir(Ino::ROOT, b"new", 0o755, &USER).unwrap().ino;
        fs.rmdir(Ino::ROOT, b"new").unwrap();
        fs.forget(new).unwrap();
        fs.close().unwrap();
        repaired
    }

    fn fix(&self, store: &Store) -> NameFindings {
        let blocks = store.repair(Remedy::Asked, &mut |_, _, _| ()).unwrap();
        assert!(blocks.left.is_clean(), "{:#?}", blocks.left.problems);
        let repaired = fix_names(store, &SystemClock, Remedy::Asked, &mut |_, _, _| ()).unwrap();
        assert_eq!(repaired.left, Vec::<String>::new(), "after {:#?}", repaired.fixed);
        repaired
    }

    fn assert_clean(&self, store: &Store) {
        let blocks = store.check(true, &mut |_, _| ()).unwrap();
        assert_eq!(blocks.problems, Vec::<String>::new());
        assert_eq!(check_names(store, &mut |_, _, _| ()).unwrap().left, Vec::<String>::new());
    }

    /// The bytes of a file found by its path. None: there is no such path.
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let fs = self.file_system(self.store());
        let mut ino = Ino::ROOT;
        for name in path.split('/') {
            let Ok(found) = fs.lookup(ino, name.as_bytes()) else {
                fs.close().unwrap();
                return None;
            };
            ino = found.ino;
        }
        let attributes = fs.getattr(ino).unwrap();
        let bytes = match attributes.kind {
            FileKind::Directory => Vec::new(),
            FileKind::Symlink => fs.readlink(ino).unwrap(),
            _ => fs.read(ino, 0, attributes.size as usize, false).unwrap().to_vec(),
        };
        fs.close().unwrap();
        Some(bytes)
    }

    fn assert_files(&self, paths: &[(&str, Ino)]) {
        for (path, ino) in paths {
            assert!(self.read(path).as_ref() == Some(&content(*ino)), "{path} is not as it was");
        }
    }

    fn all(&self) -> [(&'static str, Ino); 4] {
        [("a", self.a), ("b", self.b), ("d/b2", self.b), ("d/e/f", self.f)]
    }
}

impl<'a> Broken<'a> {
    fn of(store: &'a Store) -> Self {
        Self { store, placement: Placement::read_or_tell(store).unwrap().0 }
    }

    /// The first place of a name.
    fn place(&self, parent: Ino, name: &[u8]) -> Place {
        self.placement.places(parent, name).next().unwrap()
    }

    fn put(&self, key: Vec<u8>, value: Vec<u8>) {
        let mut change = Change::new();
        change.put(key, value);
        self.store.publish(change).unwrap();
    }

    fn delete(&self, key: Vec<u8>) {
        let mut change = Change::new();
        change.delete(key);
        self.store.publish(change).unwrap();
    }

    fn edit(&self, ino: Ino, edit: impl FnOnce(&mut InodeRecord)) {
        let mut record = InodeRecord::decode(ino, &self.store.get(&inode::key(ino)).unwrap().unwrap()).unwrap();
        edit(&mut record);
        self.put(inode::key(ino), record.encode(ino));
    }

    fn names(&self, parent: Ino, name: &[u8], edit: impl FnOnce(&mut Names)) {
        let place = self.place(parent, name);
        let stored = self.store.get(&dirent::key(parent, place)).unwrap();
        let mut names = stored.map_or_else(Names::default, |bytes| Names::decode(parent, &bytes).unwrap());
        edit(&mut names);
        match names.is_empty() {
            true => self.delete(dirent::key(parent, place)),
            false => self.put(dirent::key(parent, place), names.encode(parent)),
        }
    }

    fn damage(&self, key: Vec<u8>) {
        let mut value = self.store.get(&key).unwrap().unwrap();
        value[0] ^= 0x40;
        self.put(key, value);
    }
}

/// The call must return an error, because an assertion would end the daemon.
#[test]
fn a_directory_that_counts_less_than_it_has_refuses_to_lose_more() {
    let volume = Volume::new();
    let store = volume.store();
    let broken = Broken::of(&store);
    broken.edit(volume.e, |record| record.entries = 0);
    broken.edit(volume.d, |record| record.entries = 0);
    let fs = volume.file_system(store);
    let refused =
        |result: crate::Result<()>| matches!(result, Err(crate::Error::Engine(oncefs_engine::Error::Corrupt { .. })));
    assert!(refused(fs.unlink(volume.e, b"f").map(drop)));
    assert!(refused(fs.rename(volume.e, b"f", Ino::ROOT, b"f", RenameMode::Replace).map(drop)));
    assert!(refused(fs.rename(volume.d, b"e", Ino::ROOT, b"e", RenameMode::Replace).map(drop)));
    assert_eq!(fs.lookup(volume.e, b"f").unwrap().ino, volume.f, "nothing was changed");
    assert_eq!(fs.lookup(volume.d, b"e").unwrap().ino, volume.e, "nothing was changed");
    fs.close().unwrap();
}

#[test]
fn counts_of_inodes_are_set_from_what_they_count() {
    let volume = Volume::new();
    let (a, b, d, link) = (volume.a, volume.b, volume.d, volume.link);
    volume.break_and_fix("inode 3: its link count should be 2 and is 9", |v| v.edit(b, |r| r.nlink = 9));
    volume.break_and_fix("its link count should be 3 and is 7", |v| v.edit(d, |r| r.nlink = 7));
    volume.break_and_fix("its number of entries should be 2 and is 0", |v| v.edit(d, |r| r.entries = 0));
    volume.break_and_fix("its number of extended attributes", |v| v.edit(a, |r| r.xattrs = 0));
    volume.break_and_fix("its size should be 5 and is 3", |v| v.edit(link, |r| r.size = 3));
    volume.break_and_fix("its number of blocks", |v| v.edit(a, |r| r.blocks = 1));
    volume.assert_files(&volume.all());
}

#[test]
fn a_root_that_is_damaged_missing_or_wrong_is_made_again_around_its_names() {
    let volume = Volume::new();
    volume.break_and_fix("[rule 1]", |v| v.edit(Ino::ROOT, |r| r.parent = Ino(9)));
    volume.break_and_fix("[rule 1]", |v| v.delete(inode::key(Ino::ROOT)));
    volume.break_and_fix("[rule 1]", |v| v.damage(inode::key(Ino::ROOT)));
    volume.break_and_fix("[rule 1]", |v| v.edit(Ino::ROOT, |r| r.kind = FileKind::Fifo));
    volume.assert_files(&volume.all());
}

#[test]
fn a_name_is_moved_to_its_place_and_gets_its_kind() {
    let volume = Volume::new();
    let (a, d) = (volume.a, volume.d);
    volume.break_and_fix("directory 1: 'a' is stored where no lookup finds it", |v| {
        v.names(Ino::ROOT, b"a", |names| names.remove(b"a"));
        v.names(Ino::ROOT, b"elsewhere", |names| assert!(names.set(b"a", a, FileKind::Regular)));
    });
    volume.break_and_fix("directory 1: the name of inode", |v| {
        v.names(Ino::ROOT, b"d", |names| assert!(names.set(b"d", d, FileKind::Regular)));
    });
    volume.assert_files(&volume.all());
}

#[test]
fn a_name_for_nothing_goes_and_a_lost_inode_s_map_becomes_a_file() {
    let volume = Volume::new();
    let a = volume.a;
    let map = std::cell::Cell::new(0);
    let findings = volume.break_and_fix("directory 1 has a name for inode 2, which does not exist", |v| {
        v.edit(a, |record| map.set(record.map.0));
        v.delete(inode::key(a));
    });
    assert!(
        findings.fixed.iter().any(|line| line.contains("inode 2 does not exist but has attributes")),
        "its attribute goes too"
    );
    assert_eq!(volume.read("a"), None);
    let mut found = volume.read(&format!("lost+found/#{}", map.get())).unwrap();
    found.truncate(content(a).len());
    assert_eq!(found, content(a));
    volume.assert_files(&volume.all()[1..]);
}

#[test]
fn a_damaged_inode_is_told_from_what_is_left_of_it() {
    let volume = Volume::new();
    let (d, link) = (volume.d, volume.link);
    volume.break_and_fix("inode 4 is damaged", |v| v.damage(inode::key(d)));
    volume.break_and_fix("inode 7 is damaged", |v| v.damage(inode::key(link)));
    volume.assert_files(&volume.all());
    assert_eq!(volume.read("link").unwrap(), b"d/e/f");
}

#[test]
fn what_lost_its_name_gets_one_in_lost_and_found() {
    let volume = Volume::new();
    let (a, d, e, f) = (volume.a, volume.d, volume.e, volume.f);
    volume.break_and_fix("inode 2 has no name and is not an orphan", |v| {
        v.names(Ino::ROOT, b"a", |names| names.remove(b"a"));
    });
    volume.break_and_fix("inode 5 has no name", |v| v.names(d, b"e", |names| names.remove(b"e")));
    volume.assert_files(&[("lost+found/#2", a), ("lost+found/#5/f", f), ("b", volume.b)]);
    volume.break_and_fix("directory 5 is damaged", |v| v.damage(dirent::key(e, v.place(e, b"f"))));
    volume.assert_files(&[("lost+found/#6", f)]);
}

#[test]
fn a_lost_and_found_that_is_a_file_stays_one() {
    let volume = Volume::new();
    let fs = volume.file_system(volume.store());
    fs.mknod(Ino::ROOT, b"lost+found", libc::S_IFREG | 0o644, 0, &USER).unwrap();
    fs.close().unwrap();
    drop(fs);
    volume.break_and_fix("no name", |v| v.names(Ino::ROOT, b"a", |names| names.remove(b"a")));
    volume.assert_files(&[("lost+found.1/#2", volume.a)]);
}

#[test]
fn a_directory_has_one_name_in_its_parent() {
    let volume = Volume::new();
    let (d, e) = (volume.d, volume.e);
    volume.break_and_fix("directory 5 has an extra name, in directory 1", |v| {
        v.names(Ino::ROOT, b"again", |names| assert!(names.set(b"again", e, FileKind::Directory)));
    });
    assert_eq!(volume.read("again"), None);
    volume.break_and_fix("directory 5: its parent should be 4 and is 1", |v| v.edit(e, |r| r.parent = Ino::ROOT));
    volume.break_and_fix("directory 1 has an extra name", |v| {
        v.names(d, b"up", |names| assert!(names.set(b"up", Ino::ROOT, FileKind::Directory)));
    });
    volume.assert_files(&volume.all());
}

#[test]
fn directories_in_a_cycle_or_cut_off_come_to_lost_and_found() {
    let volume = Volume::new();
    let (d, e) = (volume.d, volume.e);
    volume.break_and_fix("directory 4, in directory 5, is not below the root", |v| {
        v.names(Ino::ROOT, b"d", |names| names.remove(b"d"));
        v.names(e, b"d", |names| assert!(names.set(b"d", d, FileKind::Directory)));
        v.edit(d, |record| record.parent = e);
    });
    volume.assert_files(&[("lost+found/#4/e/f", volume.f), ("lost+found/#4/b2", volume.b), ("a", volume.a)]);
}

#[test]
fn names_in_what_is_no_directory_go() {
    let volume = Volume::new();
    let (a, b) = (volume.a, volume.b);
    volume.break_and_fix("inode 2 has entries but is not a directory", |v| {
        v.names(a, b"in", |names| assert!(names.set(b"in", b, FileKind::Regular)));
    });
    volume.assert_files(&volume.all());
}

#[test]
fn orphan_records_and_targets_belong_to_their_inodes() {
    let volume = Volume::new();
    let (a, link) = (volume.a, volume.link);
    volume.break_and_fix("inode 2 is an orphan but has a name", |v| v.put(orphan::key(a), orphan::encode(a, 0)));
    volume.break_and_fix("orphan 2 is damaged", |v| v.put(orphan::key(a), vec![1, 2, 3]));
    volume.break_and_fix("inode 2 has a target", |v| v.put(symlink::key(a), symlink::encode(a, b"x")));
    volume.break_and_fix("inode 900 does not exist", |v| v.put(orphan::key(Ino(900)), orphan::encode(Ino(900), 0)));
    volume.break_and_fix("extended attribute of inode 2", |v| v.damage(xattr::key(a, b"user.x")));
    volume.assert_files(&volume.all());
    volume.break_and_fix("symbolic link 7 has no target", |v| v.delete(symlink::key(link)));
    assert_eq!(volume.read("link"), None);
}

#[test]
fn a_symbolic_link_of_which_only_the_target_is_left_comes_back() {
    let volume = Volume::new();
    let link = volume.link;
    volume.break_and_fix("inode 7 does not exist but has a target", |v| v.delete(inode::key(link)));
    assert_eq!(volume.read("link").unwrap(), b"d/e/f");
}

#[test]
fn every_file_has_a_map_of_its_own() {
    let volume = Volume::new();
    let (a, b, d) = (volume.a, volume.b, volume.d);
    let map = std::cell::Cell::new(MapId(0));
    volume.break_and_fix("inode 3: its map", |v| {
        v.edit(a, |record| map.set(record.map));
        v.edit(b, |record| record.map = map.get());
    });
    volume.assert_files(&[("a", a), ("b", a)]);
    volume.break_and_fix("file 2 has no map", |v| v.edit(a, |record| record.map = MapId(0)));
    volume.break_and_fix("inode 4 is not a file but has map", |v| v.edit(d, |record| record.map = MapId(77)));
    volume.assert_files(&[("b", a), ("d/e/f", volume.f)]);
}

#[test]
fn what_the_engine_is_told_is_what_a_file_s_attribute_says() {
    let volume = Volume::new();
    let (a, f) = (volume.a, volume.f);
    let tell = |v: &Broken<'_>, map, policy_override| {
        let mut change = Change::new();
        v.store.first_policy(&mut change, map, FilePolicy { policy_override, ..FilePolicy::default() });
        v.store.publish(change).unwrap();
    };
    let said = format!("inode {}: the policy of its map", a.0);
    volume.break_and_fix(&said, |v| {
        v.put(xattr::key(a, POLICY_ATTRIBUTE), xattr::encode(a, b"run=8"));
        v.edit(a, |record| record.xattrs += 1);
    });
    let of_map = |v: &Broken<'_>, ino| {
        let bytes = v.store.get(&inode::key(ino)).unwrap().unwrap();
        InodeRecord::decode(ino, &bytes).unwrap().map
    };
    let told = |ino| {
        let store = volume.store();
        let told = store.file_policy(of_map(&Broken::of(&store), ino)).policy_override;
        store.close().unwrap();
        told
    };
    assert_eq!(told(a), Some(PolicyOverride::Run(8)));
    volume.break_and_fix(&said, |v| tell(v, of_map(v, a), Some(PolicyOverride::Run(7))));
    volume.break_and_fix(&said, |v| tell(v, of_map(v, a), None));
    volume.break_and_fix(&said, |v| v.put(keys::file_policy(of_map(v, a)), vec![1, 2, 3]));
    assert_eq!(told(a), Some(PolicyOverride::Run(8)), "whatever was told, the attribute counts");
    volume.break_and_fix(&format!("inode {}: the policy of its map", f.0), |v| {
        tell(v, of_map(v, f), Some(PolicyOverride::Off))
    });
    assert_eq!(told(f), None);
    volume.break_and_fix("map 77 belongs to no inode", |v| tell(v, MapId(77), Some(PolicyOverride::Off)));
    volume.break_and_fix("map 77 belongs to no inode", |v| v.put(keys::file_policy(MapId(77)), Vec::new()));
    volume.assert_files(&volume.all());
}

#[test]
fn the_lease_is_above_every_inode() {
    let volume = Volume::new();
    volume.break_and_fix("inode 7 exists, but the next new inode would be 4", |v| {
        v.put(lease::KEY.to_vec(), lease::encode(Ino(4)));
    });
    volume.break_and_fix("the inode number lease is missing", |v| v.delete(lease::KEY.to_vec()));
    volume.break_and_fix("the inode number lease is missing", |v| v.damage(lease::KEY.to_vec()));
    volume.assert_files(&volume.all());
}

#[test]
fn records_with_unknown_keys_go() {
    let volume = Volume::new();
    for key in [&b"d"[..], b"i12", b"n2", b"zoo", b"x12345678", b"s", b"\x10\x01", b"o123456789"] {
        volume.break_and_fix("a record has the unknown key", |v| v.put(key.to_vec(), vec![1]));
    }
    volume.assert_files(&volume.all());
}

#[test]
fn safe_fixes_are_made_without_asking_and_other_faults_are_left() {
    let volume = Volume::new();
    let store = volume.store();
    let broken = Broken::of(&store);
    broken.edit(volume.b, |record| record.nlink = 9);
    broken.names(Ino::ROOT, b"a", |names| names.remove(b"a"));
    let findings = fix_names(&store, &SystemClock, Remedy::Safe, &mut |_, _, _| ()).unwrap();
    assert!(findings.left.len() == 1 && findings.left[0].contains("inode 2 has no name"), "{findings:#?}");
    store.close().unwrap();
}

/// One fault at a place that the number selects, in the records of `/link` and of everything below `/d`.
fn harm(volume: &Volume, v: &Broken<'_>, random: u64) {
    let inos = [volume.d, volume.e, volume.link];
    let ino = inos[(random / 16 % 3) as usize];
    let exists = v.store.get(&inode::key(ino)).unwrap().is_some_and(|bytes| InodeRecord::decode(ino, &bytes).is_ok());
    match random % 9 {
        0 if exists => v.edit(ino, |record| record.nlink = (random / 64 % 5) as u32),
        1 if exists => v.edit(ino, |record| record.entries = random / 64 % 5),
        2 if exists => v.edit(ino, |record| record.parent = Ino(random / 64 % 9)),
        3 => v.delete(inode::key(ino)),
        4 => v.put(inode::key(ino), vec![7; 140]),
        5 => v.names(volume.d, b"e", |names| names.remove(b"e")),
        6 => v.names(ino, b"new", |names| assert!(names.set(b"new", Ino(random / 64 % 12), FileKind::Fifo))),
        7 => v.put(orphan::key(ino), orphan::encode(ino, 1)),
        _ => v.put(vec![b'y', random as u8], vec![0]),
    }
}

#[test]
fn many_faults_at_once_are_fixed_and_other_files_keep_their_bytes() {
    let seeds = std::env::var("ONCEFS_FSCK_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        println!("seed {seed}");
        let volume = Volume::new();
        let store = volume.store();
        let broken = Broken::of(&store);
        let mut random = Random::new(seed);
        for _ in 0..1 + seed % 7 {
            harm(&volume, &broken, random.word() >> 33);
        }
        volume.fix(&store);
        store.close().unwrap();
        drop(store);
        volume.assert_clean(&volume.store());
        volume.assert_files(&volume.all()[..2]);
    }
}

#[test]
fn a_file_gets_its_place_in_a_queue_and_the_engine_learns_its_rank() {
    let volume = Volume::new();
    let (a, f) = (volume.a, volume.f);
    let known = Ranking { known_below: Ino(100), ..Ranking::default() };
    let know = |v: &Broken<'_>| v.put(ranking::KEY.to_vec(), ranking::encode(&known));
    volume.break_and_fix(&format!("inode {} has no place in a rank queue", a.0), know);
    let place_of = |v: &Broken<'_>, ino: Ino| {
        let places = v.store.scan(b"q", b"r", usize::MAX).unwrap();
        let found = places.into_iter().find(|(key, _)| queue::parse_key(key).unwrap().file == ino.0);
        found.unwrap().0
    };
    volume.break_and_fix(&format!("inode {} has no place", a.0), |v| v.delete(place_of(v, a)));
    volume.break_and_fix("place in a queue of inode", |v| v.damage(place_of(v, f)));
    volume.break_and_fix("ranking 0", |v| v.put(ranking::KEY.to_vec(), vec![7; 44]));
    volume.break_and_fix("a record has the unknown key [71", |v| v.put(b"q1".to_vec(), Vec::new()));
    volume.break_and_fix("a record has the unknown key [72", |v| v.put(b"r1".to_vec(), Vec::new()));
    volume.break_and_fix(&format!("inode {}: the policy of its map", a.0), |v| {
        v.edit(a, |record| record.usage.ranked(Rank::Random))
    });
    volume.assert_files(&volume.all());
}
