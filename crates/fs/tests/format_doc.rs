//! Checks the tables of `docs/format.md` about names against the code, with the records of a real volume.

use crate::common::{ROOT, Volume, at, directory, file};
use oncefs_engine::{BackgroundStep, Change};
use oncefs_fs::{
    AtimePolicy, FileFlags, FileSystem, Ino, NamePlaces, Privileges, SetAttributes, WriteOrigin, XattrMode,
};
use oncefs_words::layout::{assert_key, hexadecimal};
use oncefs_words::page::Section;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const PAGE: &str = "docs/format.md";
/// Inode numbers that a mount leases at a time.
const LEASE: u64 = 1024;

/// The key and value of the only record whose key starts with `beginning`.
fn record(file_system: &FileSystem, beginning: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut end = beginning.to_vec();
    *end.last_mut().unwrap() += 1;
    let mut found = file_system.store().scan(beginning, &end, 2).unwrap();
    assert_eq!(found.len(), 1, "records with keys from {beginning:?} on");
    found.remove(0)
}

fn of_inode(kind: u8, ino: Ino) -> Vec<u8> {
    [&[kind], &ino.0.to_be_bytes()[..]].concat()
}

/// The checksum that the page promises for a record under this number.
fn sum(value: &[u8], number: u64) -> Vec<u8> {
    let body = &value[..value.len() - 4];
    (xxh3_64_with_seed(body, number) as u32).to_le_bytes().to_vec()
}

fn small(value: u32) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn large(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

#[test]
fn an_inode_is_as_the_page_says() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    volume.clock.set(1_000);
    let parent = directory(&file_system, Ino::ROOT, "directory").ino;
    let ino = file(&file_system, parent, "file").ino;
    file_system.link(ino, Ino::ROOT, b"second name").unwrap();
    let flags = FileFlags::APPEND_ONLY.with(FileFlags::NO_ATIME);
    file_system.set_flags(parent, flags).unwrap();
    volume.clock.set(2_000);
    file_system.write(ino, 0, &[1; 5000], WriteOrigin::Caller { privileges: Privileges::Kept }).unwrap();
    file_system.setxattr(ino, b"user.a", b"value", XattrMode::Any, true).unwrap();
    let owner = SetAttributes { uid: Some(1000), gid: Some(1001), ..SetAttributes::default() };
    let shown = file_system.setattr(ino, &owner).unwrap();
    assert_eq!((shown.size, shown.blocks, shown.nlink), (5000, 2, 2));
    file_system.set_flags(ino, flags).unwrap();
    let shown = file_system.getattr(ino).unwrap();
    for (ino, shown, kind_bits) in [(ino, shown, 0o100_000), (parent, file_system.getattr(parent).unwrap(), 0o040_000)]
    {
        let is_file = kind_bits == 0o100_000;
        let (key, value) = record(&file_system, &of_inode(b'i', ino));
        assert_key("inode", &key, &[ino.0], b"");
        let map = if is_file { value[88..96].to_vec() } else { large(0) };
        assert_eq!(map == large(0), !is_file, "a file with blocks has a map, a directory has none");
        let times = [shown.atime, shown.mtime, shown.ctime, shown.btime];
        assert!(is_file || times.iter().all(|time| *time == at(1_000)));
        let seconds = times.map(|time| time.seconds.to_le_bytes().to_vec());
        let nanoseconds = times.map(|time| small(time.nanoseconds));
        Section::of(PAGE, "Inode").assert_layout(
            &value,
            0,
            &[
                ("version", vec![1, 0]),
                ("flags", vec![0b1010, 0]),
                ("mode", small(kind_bits | shown.permissions)),
                ("uid", small(shown.uid)),
                ("gid", small(shown.gid)),
                ("nlink", small(shown.nlink)),
                ("rdev", small(0)),
                ("size", large(if is_file { 5000 } else { 0 })),
                ("blocks", large(shown.blocks)),
                ("atime", seconds[0].clone()),
                ("mtime", seconds[1].clone()),
                ("ctime", seconds[2].clone()),
                ("btime", seconds[3].clone()),
                ("atime nanoseconds", nanoseconds[0].clone()),
                ("mtime nanoseconds", nanoseconds[1].clone()),
                ("ctime nanoseconds", nanoseconds[2].clone()),
                ("btime nanoseconds", nanoseconds[3].clone()),
                ("map", map),
                ("parent", large(if is_file { 0 } else { Ino::ROOT.0 })),
                ("entries", large(u64::from(!is_file))),
                ("generation", file_system.store().volume_id()[..4].to_vec()),
                ("xattrs", small(u32::from(is_file))),
                ("usage", vec![0; 16]),
                ("checksum", sum(&value, ino.0)),
            ],
        );
    }
}

#[test]
fn a_usage_is_as_the_page_says() {
    const DAY: i64 = 86_400;
    let volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.write(ino, 0, &[1; 500_000], WriteOrigin::PageCache).unwrap();
    for day in [4095, 4096 + 0x123] {
        volume.clock.set(day * DAY);
        file_system.write(ino, 0, &[day as u8; 4096], WriteOrigin::PageCache).unwrap();
    }
    volume.clock.set(5_000 * DAY);
    let handle = file_system.opened(ino);
    for at in [0, 400_000, 200_000] {
        file_system.read_by(handle, ino, at, 4096, false).unwrap();
    }
    file_system.publish_reads().unwrap();
    let (_, value) = record(&file_system, &of_inode(b'i', ino));
    Section::of(PAGE, "Usage").assert_layout(
        &value[120..136],
        0,
        &[
            ("last access", small(5_000 * DAY as u32)),
            ("last write", small((4096 + 0x123) * DAY as u32)),
            // Both runs that start within a block reach into the next one.
            ("sequential", vec![3, 0, 0]),
            ("random", vec![2, 0, 0]),
            ("marks", (0x1230_u16 | 2 << 2).to_le_bytes().to_vec()),
        ],
    );
}

/// The first place of a name on an older volume, computed as the page describes.
fn place_on_older(file_system: &FileSystem, name: &[u8]) -> u64 {
    let id = file_system.store().volume_id();
    let half = |from: usize| u64::from_le_bytes(id[from..from + 8].try_into().unwrap());
    let hash = xxh3_64_with_seed(name, half(0) ^ half(8)) >> 1;
    (hash & !0xFF).max(0x100)
}

/// The first place of a name in a directory, computed as the page describes.
fn place(file_system: &FileSystem, parent: Ino, name: &[u8]) -> u64 {
    let key = file_system.store().derived_key("oncefs volume secret to SipHash key of places of names, version 1");
    let input = [&parent.0.to_le_bytes(), &[0][..], name].concat();
    #[expect(deprecated, reason = "the standard library's SipHash-2-4 is an independent one")]
    let hash = {
        let half = |from: usize| u64::from_le_bytes(key[from..from + 8].try_into().unwrap());
        let mut hasher = std::hash::SipHasher::new_with_keys(half(0), half(8));
        std::hash::Hasher::write(&mut hasher, &input);
        std::hash::Hasher::finish(&hasher)
    };
    (1 + hash % ((1 << 23) - 1)) << 8
}

#[test]
fn a_name_is_as_the_page_says() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let name = b"a name of a directory";
    let parent = directory(&file_system, Ino::ROOT, "parent").ino;
    let child = file_system.mkdir(parent, name, 0o755, &ROOT).unwrap().ino;
    let (key, value) = record(&file_system, &of_inode(b'd', parent));
    assert_key("directory names", &key, &[parent.0, place(&file_system, parent, name)], b"");
    Section::of(PAGE, "Directory names").assert_layout(
        &value,
        name.len(),
        &[
            ("version", vec![1]),
            ("sequence", vec![0]),
            ("kind", vec![0o040_000_u32.wrapping_shr(12) as u8]),
            ("inode", large(child.0)),
            ("name length", vec![name.len() as u8]),
            ("name", name.to_vec()),
            ("checksum", sum(&value, parent.0)),
        ],
    );
}

#[test]
fn a_place_that_overflowed_is_as_the_page_says() {
    let volume = Volume::with_places(NamePlaces { bits: 1, names_max: 2 });
    let file_system = volume.open();
    let parent = directory(&file_system, Ino::ROOT, "parent").ino;
    let (key, value) = record(&file_system, b"p");
    assert_key("placement of names", &key, &[], b"");
    Section::of(PAGE, "Placement of names").assert_layout(
        &value,
        0,
        &[("version", vec![1]), ("bits", vec![1]), ("names", vec![2, 0]), ("checksum", sum(&value, 0))],
    );
    let ino = file(&file_system, parent, "a name").ino;
    // The directory has one place, so no name can pass it. The count is set as after a name that passed.
    let (key, value) = record(&file_system, &of_inode(b'd', parent));
    let body = [&[2][..], &small(7), &value[1..value.len() - 4]].concat();
    let value = [&body[..], &(xxh3_64_with_seed(&body, parent.0) as u32).to_le_bytes()].concat();
    assert_eq!(oncefs_fs::format::recode(&key, &value).unwrap(), value);
    Section::of(PAGE, "Directory names at a full place").assert_layout(
        &value,
        6,
        &[
            ("version", vec![2]),
            ("passed", small(7)),
            ("sequence", vec![0]),
            ("kind", vec![8]),
            ("inode", large(ino.0)),
            ("name length", vec![6]),
            ("name", b"a name".to_vec()),
            ("checksum", sum(&value, parent.0)),
        ],
    );
}

#[test]
fn an_older_volume_places_names_as_the_page_says() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open_without_threads();
    let mut change = Change::new();
    change.delete(b"p".to_vec());
    file_system.store().publish(change).unwrap();
    file_system.close().unwrap();
    drop(file_system);
    let file_system = volume.open();
    let parent = directory(&file_system, Ino::ROOT, "parent").ino;
    file(&file_system, parent, "a name");
    let (key, _) = record(&file_system, &of_inode(b'd', parent));
    assert_key("directory names", &key, &[parent.0, place_on_older(&file_system, b"a name")], b"");
}

#[test]
fn a_symbolic_link_and_an_extended_attribute_are_as_the_page_says() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let link = file_system.symlink(Ino::ROOT, b"link", b"../target", &ROOT).unwrap().ino;
    let (key, value) = record(&file_system, &of_inode(b's', link));
    assert_key("symbolic link", &key, &[link.0], b"");
    let fields = [("target", b"../target".to_vec()), ("checksum", sum(&value, link.0))];
    Section::of(PAGE, "Symbolic link").assert_layout(&value, 9, &fields);

    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.setxattr(ino, b"user.a", b"value", XattrMode::Any, true).unwrap();
    let (key, value) = record(&file_system, &of_inode(b'x', ino));
    assert_key("extended attribute", &key, &[ino.0], b"user.a");
    let fields = [("value", b"value".to_vec()), ("checksum", sum(&value, ino.0))];
    Section::of(PAGE, "Extended attribute").assert_layout(&value, 5, &fields);
}

#[test]
fn an_orphan_and_the_lease_are_as_the_page_says() {
    let volume = Volume::new(AtimePolicy::Never);
    let file_system = volume.open();
    let (key, value) = record(&file_system, b"n");
    assert_key("lease", &key, &[], b"");
    let next = u64::from_le_bytes(value[..8].try_into().unwrap());
    Section::of(PAGE, "Lease").assert_layout(&value, 0, &[("next", large(next)), ("checksum", sum(&value, 0))]);

    let ino = file(&file_system, Ino::ROOT, "file").ino;
    assert!(ino.0 < next, "inode {} was handed out and is not below the lease {next}", ino.0);
    file_system.unlink(Ino::ROOT, b"file").unwrap();
    let (key, value) = record(&file_system, &of_inode(b'o', ino));
    assert_key("orphan", &key, &[ino.0], b"");
    let fields = [("epoch", large(next - LEASE)), ("checksum", sum(&value, ino.0))];
    Section::of(PAGE, "Orphan").assert_layout(&value, 0, &fields);
}

#[test]
fn a_place_in_a_queue_and_the_ranking_are_as_the_page_says() {
    let volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open();
    volume.clock.set(7_000);
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    assert!(file_system.store().run(BackgroundStep::Rank).unwrap());
    let (key, value) = record(&file_system, b"q");
    let new_since = 7_000;
    assert_key("place in a queue", &key, &[new_since, ino.0], b"");
    Section::of(PAGE, "Place in a queue").assert_layout(&value, 0, &[("checksum", sum(&value, ino.0))]);

    let (key, value) = record(&file_system, b"r");
    assert_key("ranking", &key, &[], b"");
    Section::of(PAGE, "Ranking").assert_layout(
        &value,
        0,
        &[
            ("known below", large(ino.0 + 1)),
            ("new files", large(1)),
            ("sequential files", large(0)),
            ("random files", large(0)),
            ("cold files", large(0)),
            ("checksum", sum(&value, 0)),
        ],
    );
}

#[test]
fn every_record_that_the_file_system_stores_is_on_the_page() {
    let volume = Volume::ranked(AtimePolicy::Never);
    let file_system = volume.open();
    let ino = file(&file_system, Ino::ROOT, "file").ino;
    file_system.symlink(Ino::ROOT, b"link", b"target", &ROOT).unwrap();
    file_system.setxattr(ino, b"user.a", b"value", XattrMode::Any, true).unwrap();
    file_system.store().run(BackgroundStep::Rank).unwrap();
    file_system.unlink(Ino::ROOT, b"file").unwrap();
    let rows = Section::of(PAGE, "Keys").rows();
    let callers: Vec<u8> = rows.iter().map(|row| hexadecimal(&row[1]) as u8).filter(|kind| *kind >= 0x10).collect();
    let mut stored: Vec<u8> =
        file_system.store().scan(&[0x10], &[0xFF], usize::MAX).unwrap().iter().map(|(key, _)| key[0]).collect();
    stored.dedup();
    assert_eq!(stored, callers, "kinds of records: in the store, and on the page");
}
