//! Clones and snapshots of trees: what is in them, that they are whole or not there, and that snapshots stay.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::common::{ROOT, Volume, at, contradictions, directory, file, names};
use oncefs_fs::{
    AllocateMode, AtimePolicy, Caller, CopyKind, Error, FileFlags, FileKind, FileSystem, Ino, NamePlaces, Privileges,
    RenameMode, SNAPSHOT_ATTRIBUTE, SetAttributes, SetTime, SnapshotFacts, TreeCopy, TreeProgress, WriteOrigin,
    XattrMode,
};

mod diff;
mod own;

const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };
const BLOCK: usize = 4096;

/// What a tree shows of an inode, by its path. Files with several names have the first one's path.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    kind: FileKind,
    about: (u32, u32, u32, u32, u64),
    times: (i64, i64),
    nlink: u32,
    flags: u16,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    content: Vec<u8>,
    same_as: String,
}

fn seen(fs: &FileSystem, top: Ino) -> BTreeMap<String, Seen> {
    let (mut all, mut first, mut left) = (BTreeMap::new(), BTreeMap::new(), vec![(String::new(), top)]);
    while let Some((path, ino)) = left.pop() {
        let it = fs.getattr(ino).unwrap();
        let list = fs.listxattr(ino).unwrap();
        let all_names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty() && *name != SNAPSHOT_ATTRIBUTE);
        let attributes = all_names.map(|name| (name.to_vec(), fs.getxattr(ino, name).unwrap())).collect();
        let content = match it.kind {
            FileKind::Regular => fs.read(ino, 0, it.size as usize, false).unwrap().to_vec(),
            FileKind::Symlink => fs.readlink(ino).unwrap(),
            _ => Vec::new(),
        };
        if it.kind == FileKind::Directory {
            for name in names(fs, ino) {
                let below = fs.lookup(ino, &name).unwrap().ino;
                left.push((format!("{path}/{}", String::from_utf8(name).unwrap()), below));
            }
        }
        let same_as = first.entry(ino).or_insert_with(|| path.clone()).clone();
        let found = Seen {
            kind: it.kind,
            about: (it.permissions, it.uid, it.gid, it.rdev, it.size),
            times: (it.atime.seconds, it.mtime.seconds),
            nlink: it.nlink,
            flags: fs.flags(ino).unwrap().bits(),
            attributes,
            content,
            same_as,
        };
        all.insert(path, found);
    }
    all
}

fn set(fs: &FileSystem, ino: Ino, name: &[u8], value: &[u8]) {
    fs.setxattr(ino, name, value, XattrMode::Any, false).unwrap();
}

/// A tree with one of everything.
fn sample(fs: &FileSystem, volume: &Volume) -> Ino {
    volume.clock.set(100);
    let top = directory(fs, Ino::ROOT, "top").ino;
    let inner = fs.mkdir(top, b"inner", 0o2750, &Caller { uid: 3, gid: 4, umask: 0, labels: &[] }).unwrap().ino;
    directory(fs, inner, "empty");
    let one = fs.mknod(inner, b"one", libc::S_IFREG | 0o4755, 0, &Caller { uid: 7, gid: 8, umask: 0, labels: &[] });
    let one = one.unwrap().ino;
    fs.write(one, 0, &[1; 3 * BLOCK + 77], BY_CALLER).unwrap();
    fs.link(one, top, b"another-name").unwrap();
    fs.link(one, inner, b"one-more").unwrap();
    file(fs, top, "empty-file");
    let sparse = file(fs, top, "sparse").ino;
    fs.write(sparse, (3 << 20) + 5, b"far", BY_CALLER).unwrap();
    fs.write(sparse, (9 << 20) + 5, b"farther", BY_CALLER).unwrap();
    fs.setattr(sparse, &SetAttributes { size: Some(12 << 20), ..SetAttributes::default() }).unwrap();
    let hole = file(fs, top, "hole").ino;
    fs.setattr(hole, &SetAttributes { size: Some(5 << 20), ..SetAttributes::default() }).unwrap();
    let reserved = file(fs, top, "reserved").ino;
    fs.write(reserved, 0, b"begin", BY_CALLER).unwrap();
    fs.fallocate(reserved, 0, 40 * BLOCK as u64, AllocateMode::Reserve { keep_size: true }, Privileges::Kept).unwrap();
    fs.symlink(top, b"link", b"inner/one", &ROOT).unwrap();
    fs.mknod(top, b"pipe", libc::S_IFIFO | 0o600, 0, &ROOT).unwrap();
    fs.mknod(top, b"device", libc::S_IFCHR | 0o600, 0x0105, &ROOT).unwrap();
    set(fs, one, b"user.small", b"value");
    set(fs, one, b"security.capability", b"\x01\x02");
    set(fs, inner, b"user.oncefs.policy", b"off");
    set(fs, sparse, b"user.oncefs.policy", b"run=4");
    let many = file(fs, top, "attributes").ino;
    (0..150).for_each(|n| set(fs, many, format!("user.n{n}").as_bytes(), &[n; 40]));
    (0..3).for_each(|n| set(fs, many, format!("user.large{n}").as_bytes(), &vec![n; 60_000]));
    set(fs, many, b"user.oncefs.policy", b"later");
    fs.write(many, 0, b"content", BY_CALLER).unwrap();
    fs.set_flags(many, FileFlags::NO_DUMP.with(FileFlags::APPEND_ONLY)).unwrap();
    let times = SetAttributes {
        atime: Some(SetTime::At(at(11))),
        mtime: Some(SetTime::At(at(12))),
        ..SetAttributes::default()
    };
    fs.setattr(one, &times).unwrap();
    fs.setattr(inner, &times).unwrap();
    volume.clock.set(200);
    top
}

fn copy(fs: &FileSystem, source: Ino, parent: Ino, name: &[u8], kind: CopyKind) -> Ino {
    let order = TreeCopy { source, parent, name, kind, of: b"/top" };
    fs.copy_tree(&order, &TreeProgress::default(), &|| true).unwrap().unwrap().ino
}

fn refused(fs: &FileSystem, source: Ino, parent: Ino, name: &[u8]) -> Error {
    let order = TreeCopy { source, parent, name, kind: CopyKind::Clone, of: b"" };
    fs.copy_tree(&order, &TreeProgress::default(), &|| true).unwrap_err().error
}

fn assert_sound(fs: &FileSystem) {
    assert_eq!(contradictions(fs), Vec::<String>::new());
}

/// Records of inodes.
fn inodes(fs: &FileSystem) -> usize {
    fs.store().scan(b"i", b"j", usize::MAX).unwrap().len()
}

#[test]
fn a_clone_has_all_that_the_source_has_and_takes_no_blocks() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let top = sample(&fs, &volume);
    let used = fs.store().totals().used;
    let clone = copy(&fs, top, Ino::ROOT, b"clone", CopyKind::Clone);
    assert_eq!(fs.store().totals().used, used);
    assert_sound(&fs);
    let (mut source, shown) = (seen(&fs, top), seen(&fs, clone));
    // An append-only file becomes an ordinary one.
    source.get_mut("/attributes").unwrap().flags = FileFlags::NO_DUMP.bits();
    assert_eq!(source, shown);
    let made = fs.getattr(fs.lookup(clone, b"another-name").unwrap().ino).unwrap();
    assert_eq!((made.ctime, made.btime, made.nlink), (at(200), at(200), 3));
    assert_eq!(fs.getattr(Ino::ROOT).unwrap().nlink, 4);
    // Both change for themselves.
    fs.write(made.ino, 0, &[9; BLOCK], BY_CALLER).unwrap();
    let one = fs.lookup(top, b"another-name").unwrap().ino;
    assert!(fs.read(one, 0, BLOCK, false).unwrap().iter().all(|byte| *byte == 1));
    fs.write(one, BLOCK as u64, &[8; BLOCK], BY_CALLER).unwrap();
    assert!(fs.read(made.ino, BLOCK as u64, BLOCK, false).unwrap().iter().all(|byte| *byte == 1));
    fs.close().unwrap();
    drop(fs);
    let fs = volume.open();
    assert_sound(&fs);
    assert_eq!(seen(&fs, clone).len(), shown.len());
}

#[test]
fn the_policies_of_a_clone_are_in_force() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let top = sample(&fs, &volume);
    let clone = copy(&fs, top, Ino::ROOT, b"clone", CopyKind::Clone);
    for name in [&b"sparse"[..], b"attributes", b"inner", b"empty-file"] {
        let policy = |parent| fs.effective(fs.lookup(parent, name).unwrap().ino).unwrap().policy.policy_override;
        assert_eq!(policy(clone), policy(top), "{}", name.escape_ascii());
    }
}

#[test]
fn a_file_a_link_and_a_pipe_can_be_cloned_alone() {
    let volume = Volume::ranked(AtimePolicy::Never);
    let fs = volume.open();
    let top = sample(&fs, &volume);
    for name in [&b"another-name"[..], b"sparse", b"attributes", b"link", b"pipe", b"device"] {
        let source = fs.lookup(top, name).unwrap().ino;
        let mut was = seen(&fs, source);
        let clone = copy(&fs, source, top, &[name, b".2"].concat(), CopyKind::Clone);
        let found = was.get_mut("").unwrap();
        (found.nlink, found.flags) = (1, found.flags & !FileFlags::APPEND_ONLY.bits());
        assert_eq!(was, seen(&fs, clone), "{}", name.escape_ascii());
    }
    assert_sound(&fs);
}

#[test]
fn a_copy_may_lie_in_its_source_and_is_not_in_itself() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let top = sample(&fs, &volume);
    let before = seen(&fs, top).len();
    let inner = fs.lookup(top, b"inner").unwrap().ino;
    let clone = copy(&fs, top, inner, b"clone", CopyKind::Clone);
    assert_eq!(seen(&fs, clone).len(), before);
    assert_eq!(seen(&fs, top).len(), 2 * before);
    let all = copy(&fs, Ino::ROOT, top, b"all", CopyKind::Clone);
    assert_eq!(names(&fs, all), [b"top"]);
    assert_sound(&fs);
}

#[test]
fn wide_and_deep_trees_are_copied_and_removed_whole() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let top = directory(&fs, Ino::ROOT, "top").ino;
    let mut deep = top;
    for level in 0..600 {
        deep = directory(&fs, deep, "d").ino;
        if level % 100 == 0 {
            file(&fs, deep, "file");
        }
    }
    for number in 0..700 {
        let made = file(&fs, top, &format!("file {number}")).ino;
        if number % 5 == 0 {
            fs.link(made, top, format!("link {number}").as_bytes()).unwrap();
        }
        if number % 7 == 0 {
            directory(&fs, top, &format!("directory {number}"));
        }
    }
    let before = inodes(&fs);
    let snapshot = copy(&fs, top, Ino::ROOT, b"snapshot", CopyKind::Snapshot);
    let (mut source, mut target) = (seen(&fs, top), seen(&fs, snapshot));
    source.values_mut().chain(target.values_mut()).for_each(|it| it.flags = 0);
    assert_eq!(source, target);
    assert_sound(&fs);
    let progress = TreeProgress::default();
    fs.remove_snapshot(Ino::ROOT, b"snapshot", || (), &|_| false, &progress).unwrap();
    assert_eq!(inodes(&fs), before);
    assert_eq!(progress.names.into_inner() as usize, target.len() - 1);
    assert_sound(&fs);
}

#[test]
fn what_cannot_be_copied_is_refused_and_leaves_nothing() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let top = sample(&fs, &volume);
    let plain = fs.lookup(top, b"empty-file").unwrap().ino;
    let immutable = directory(&fs, Ino::ROOT, "immutable").ino;
    fs.set_flags(immutable, FileFlags::IMMUTABLE).unwrap();
    let gone = directory(&fs, Ino::ROOT, "gone").ino;
    fs.rmdir(Ino::ROOT, b"gone").unwrap();
    let before = inodes(&fs);
    assert!(matches!(refused(&fs, top, Ino::ROOT, b"top"), Error::Exists));
    assert!(matches!(refused(&fs, top, Ino::ROOT, b".."), Error::Exists));
    assert!(matches!(refused(&fs, top, Ino::ROOT, b"a/b"), Error::Invalid(_)));
    assert!(matches!(refused(&fs, top, Ino::ROOT, &[b'n'; 256]), Error::NameTooLong));
    assert!(matches!(refused(&fs, top, plain, b"new"), Error::NotADirectory));
    assert!(matches!(refused(&fs, top, gone, b"new"), Error::NotFound));
    assert!(matches!(refused(&fs, top, immutable, b"new"), Error::OperationNotPermitted));
    assert!(matches!(refused(&fs, Ino(999_999), Ino::ROOT, b"new"), Error::Stale));
    assert!(matches!(refused(&fs, top, Ino(999_999), b"new"), Error::Stale));
    assert_eq!(inodes(&fs), before);
    // The name is taken while the copy is made.
    let order = TreeCopy { source: top, parent: Ino::ROOT, name: b"taken", kind: CopyKind::Clone, of: b"" };
    let is_taken = Cell::new(false);
    let goes_on = || {
        if !is_taken.replace(true) {
            file(&fs, Ino::ROOT, "taken");
        }
        true
    };
    let failed = fs.copy_tree(&order, &TreeProgress::default(), &goes_on).unwrap_err();
    assert!(matches!(failed.error, Error::Exists) && failed.at.is_empty(), "{failed:?}");
    assert_eq!(inodes(&fs), before + 1);
    assert_sound(&fs);
    drop(fs);
    let fs = volume.open_read_only();
    assert!(matches!(refused(&fs, top, Ino::ROOT, b"new"), Error::ReadOnly(_)));
}

#[test]
fn a_copy_that_is_ended_at_any_step_leaves_nothing() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let top = sample(&fs, &volume);
    let (before, used) = (inodes(&fs), fs.store().totals());
    for steps in 0.. {
        let asked = Cell::new(0);
        let goes_on = || asked.replace(asked.get() + 1) < steps;
        let order = TreeCopy { source: top, parent: Ino::ROOT, name: b"clone", kind: CopyKind::Clone, of: b"" };
        if fs.copy_tree(&order, &TreeProgress::default(), &goes_on).unwrap().is_some() {
            assert!(steps > 3, "it ended after {steps} steps");
            break;
        }
        assert_eq!(inodes(&fs), before, "after {steps} steps");
        assert_eq!(names(&fs, Ino::ROOT), [b"top"]);
    }
    assert_sound(&fs);
    assert_eq!(fs.store().totals().used, used.used);
}

#[test]
fn the_next_mount_removes_what_a_crash_left_of_a_copy_or_of_a_removal() {
    for steps in 0..6 {
        let volume = Volume::new(AtimePolicy::Never);
        let fs = volume.open();
        let top = sample(&fs, &volume);
        copy(&fs, top, Ino::ROOT, b"snapshot", CopyKind::Snapshot);
        let before = inodes(&fs);
        let crash = |fs: &FileSystem| {
            fs.store().commit().unwrap();
            assert_eq!(contradictions(fs), Vec::<String>::new(), "before the crash in step {steps}");
            fs.store().shut_down();
        };
        if steps == 0 {
            fs.remove_snapshot(Ino::ROOT, b"snapshot", || crash(&fs), &|_| false, &TreeProgress::default())
                .unwrap_err();
        } else {
            let asked = Cell::new(0);
            let goes_on = || {
                asked.set(asked.get() + 1);
                if asked.get() == steps {
                    crash(&fs);
                }
                true
            };
            let order = TreeCopy { source: top, parent: Ino::ROOT, name: b"clone", kind: CopyKind::Clone, of: b"" };
            let failed = fs.copy_tree(&order, &TreeProgress::default(), &goes_on);
            assert!(failed.is_err(), "step {steps}");
        }
        assert!(fs.close().is_err(), "nothing becomes durable any more");
        drop(fs);
        let fs = volume.open_without_threads();
        assert_sound(&fs);
        assert!(inodes(&fs) > before || steps == 0, "step {steps}: nothing was left");
        fs.reclaim_left_behind().unwrap();
        assert_sound(&fs);
        let gone = if steps == 0 { before / 2 } else { 0 };
        assert!(inodes(&fs) <= before - gone, "step {steps}: {} inodes", inodes(&fs));
        assert_eq!(names(&fs, Ino::ROOT).len(), if steps == 0 { 1 } else { 2 });
    }
}

#[test]
fn nothing_in_a_snapshot_changes_and_its_files_can_be_read() {
    let volume = Volume::new(AtimePolicy::Strict);
    let fs = volume.open();
    let top = sample(&fs, &volume);
    let snapshot = copy(&fs, top, Ino::ROOT, b"snapshot", CopyKind::Snapshot);
    let was = seen(&fs, snapshot);
    let kept = Privileges::Kept;
    let one = fs.lookup(snapshot, b"another-name").unwrap().ino;
    let inner = fs.lookup(snapshot, b"inner").unwrap().ino;
    let outside = file(&fs, Ino::ROOT, "outside").ino;
    fs.write(outside, 0, &[3; 2 * BLOCK], BY_CALLER).unwrap();
    let mode = |permissions| SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    let touch = SetAttributes { mtime: Some(SetTime::Now), is_write_back: true, ..SetAttributes::default() };
    let (root, any) = (Ino::ROOT, RenameMode::Replace);
    let changes: Vec<(&str, Result<(), Error>)> = vec![
        ("write", fs.write(one, 0, b"x", BY_CALLER).map(drop)),
        ("write back", fs.write(one, 0, b"\x01", WriteOrigin::PageCache).map(drop)),
        ("open to write", fs.check_opened_to_write(one, false)),
        ("open to append", fs.check_opened_to_write(one, true)),
        ("truncate", fs.setattr(one, &size(1)).map(drop)),
        ("enlarge", fs.setattr(one, &size(1 << 20)).map(drop)),
        ("chmod", fs.setattr(one, &mode(0o600)).map(drop)),
        ("chmod of the top", fs.setattr(snapshot, &mode(0o700)).map(drop)),
        ("utimens", fs.setattr(one, &touch).map(drop)),
        ("fallocate", fs.fallocate(one, 1 << 20, 10, AllocateMode::Reserve { keep_size: true }, kept)),
        ("punch", fs.fallocate(one, 0, 10, AllocateMode::PunchHole, kept)),
        ("copy into", fs.copy_file_range(outside, 0, one, 0, 5000, kept).map(drop)),
        ("setxattr", fs.setxattr(one, b"user.x", b"", XattrMode::Any, false)),
        ("removexattr", fs.removexattr(one, b"user.small")),
        ("removexattr for a write", fs.removexattr_for_write(one, b"security.capability")),
        ("chattr", fs.set_flags(one, FileFlags::default())),
        ("create", fs.mknod(inner, b"new", libc::S_IFREG, 0, &ROOT).map(drop)),
        ("mkdir", fs.mkdir(snapshot, b"new", 0o755, &ROOT).map(drop)),
        ("symlink", fs.symlink(inner, b"new", b"x", &ROOT).map(drop)),
        ("tmpfile", fs.tmpfile(inner, 0o600, &ROOT).map(drop)),
        ("link within", fs.link(one, inner, b"new").map(drop)),
        ("link out", fs.link(one, root, b"new").map(drop)),
        ("link in", fs.link(outside, inner, b"new").map(drop)),
        ("unlink", fs.unlink(inner, b"one").map(drop)),
        ("rmdir", fs.rmdir(inner, b"empty").map(drop)),
        ("rename within", fs.rename(inner, b"one", snapshot, b"new", any).map(drop)),
        ("rename out", fs.rename(inner, b"one", root, b"new", any).map(drop)),
        ("rename in", fs.rename(root, b"outside", inner, b"new", any).map(drop)),
        ("exchange", fs.rename(root, b"outside", inner, b"one", RenameMode::Exchange).map(drop)),
        ("rename of the top", fs.rename(root, b"snapshot", root, b"new", any).map(drop)),
        ("rename over the top", fs.rename(root, b"outside", root, b"snapshot", RenameMode::Exchange).map(drop)),
        ("clone into", Err(refused(&fs, top, inner, b"new"))),
    ];
    for (what, outcome) in changes {
        assert!(matches!(outcome, Err(Error::InSnapshot)), "{what}: {outcome:?}");
    }
    assert!(matches!(fs.rmdir(root, b"snapshot"), Err(Error::InSnapshot)));
    volume.clock.set(100_000);
    assert_eq!(seen(&fs, snapshot), was, "also no time of access");
    fs.write(fs.lookup(top, b"another-name").unwrap().ino, 0, &[5; BLOCK], BY_CALLER).unwrap();
    assert_eq!(seen(&fs, snapshot), was);
    // A clone of a snapshot can be changed.
    let clone = copy(&fs, snapshot, root, b"back", CopyKind::Clone);
    assert!(matches!(fs.getxattr(clone, SNAPSHOT_ATTRIBUTE), Err(Error::NoData)));
    fs.write(fs.lookup(clone, b"another-name").unwrap().ino, 0, b"x", BY_CALLER).unwrap();
    fs.unlink(fs.lookup(clone, b"inner").unwrap().ino, b"one").unwrap();
    assert_sound(&fs);
}

#[test]
fn a_snapshot_keeps_times_and_flags_and_tells_what_it_is_of() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let top = sample(&fs, &volume);
    let progress = TreeProgress::default();
    let order = TreeCopy { source: top, parent: Ino::ROOT, name: b"snapshot", kind: CopyKind::Snapshot, of: b"/top" };
    let snapshot = fs.copy_tree(&order, &progress, &|| true).unwrap().unwrap().ino;
    let (mut source, shown) = (seen(&fs, top), seen(&fs, snapshot));
    source.values_mut().for_each(|it| it.flags |= FileFlags::SNAPSHOT.bits());
    assert_eq!(source, shown);
    for name in [&b"another-name"[..], b"hole", b"link"] {
        let times = |parent| {
            let it = fs.lookup(parent, name).unwrap();
            (it.ctime, it.btime, it.mtime)
        };
        assert_eq!(times(snapshot), times(top), "{}", name.escape_ascii());
    }
    let facts = SnapshotFacts::decode(&fs.getxattr(snapshot, SNAPSHOT_ATTRIBUTE).unwrap()).unwrap();
    let bytes: u64 = shown
        .iter()
        .filter(|(path, it)| it.kind == FileKind::Regular && **path == it.same_as)
        .map(|it| it.1.about.4)
        .sum();
    assert_eq!((facts.created_seconds, facts.names, facts.of), (200, shown.len() as u64, b"/top".to_vec()));
    assert_eq!(facts.bytes, bytes);
    assert_sound(&fs);
}

#[test]
fn a_file_of_a_removed_snapshot_that_is_in_use_stays_until_it_is_forgotten() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let top = sample(&fs, &volume);
    let before = inodes(&fs);
    let snapshot = copy(&fs, top, Ino::ROOT, b"snapshot", CopyKind::Snapshot);
    let open = [snapshot, fs.lookup(snapshot, b"sparse").unwrap().ino, fs.lookup(snapshot, b"inner").unwrap().ino];
    assert!(matches!(
        fs.remove_snapshot(Ino::ROOT, b"top", || (), &|_| false, &TreeProgress::default()),
        Err(Error::Invalid(_))
    ));
    assert!(matches!(
        fs.remove_snapshot(Ino::ROOT, b"none", || (), &|_| false, &TreeProgress::default()),
        Err(Error::NotFound)
    ));
    let is_found = Cell::new(true);
    let unnamed = || is_found.set(fs.lookup(Ino::ROOT, b"snapshot").is_ok());
    fs.remove_snapshot(Ino::ROOT, b"snapshot", unnamed, &|ino| open.contains(&ino), &TreeProgress::default()).unwrap();
    assert!(!is_found.get());
    assert_eq!(&fs.read(open[1], (3 << 20) + 5, 3, false).unwrap()[..], b"far");
    assert!(names(&fs, open[0]).is_empty() && names(&fs, open[2]).is_empty());
    assert_sound(&fs);
    open.iter().for_each(|ino| fs.forget(*ino).unwrap());
    assert_eq!(inodes(&fs), before);
    assert_sound(&fs);
}

#[test]
fn the_directory_of_oncefs_itself_is_found_but_neither_listed_nor_copied() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let own = fs.mkdir(Ino::ROOT, b".oncefs", 0o700, &ROOT).unwrap().ino;
    let snapshots = fs.mkdir(own, b"snapshots", 0o700, &ROOT).unwrap().ino;
    let sub = directory(&fs, Ino::ROOT, "sub").ino;
    directory(&fs, sub, ".oncefs");
    assert_eq!(names(&fs, Ino::ROOT), [b"sub"]);
    assert_eq!(names(&fs, own), [b"snapshots"]);
    assert_eq!(fs.lookup(Ino::ROOT, b".oncefs").unwrap().ino, own);
    for name in [&b"first"[..], b"second"] {
        let snapshot = copy(&fs, Ino::ROOT, snapshots, name, CopyKind::Snapshot);
        assert!(matches!(fs.lookup(snapshot, b".oncefs"), Err(Error::NotFound)));
        assert_eq!(names(&fs, fs.lookup(snapshot, b"sub").unwrap().ino), [b".oncefs"], "elsewhere it is any name");
    }
    let moved = |from: &[u8], to: &[u8], mode| fs.rename(Ino::ROOT, from, Ino::ROOT, to, mode);
    for (from, to, mode) in [
        (&b".oncefs"[..], &b"other"[..], RenameMode::Replace),
        (b".oncefs", b"sub", RenameMode::Exchange),
        (b"sub", b".oncefs", RenameMode::Exchange),
    ] {
        assert!(matches!(moved(from, to, mode), Err(Error::OperationNotPermitted)), "it keeps its name");
    }
    fs.rename(sub, b".oncefs", sub, b"moved", RenameMode::Replace).unwrap();
    fs.mkdir(own, b"disks", 0o700, &ROOT).unwrap();
    fs.mkdir(own, b"receive", 0o700, &ROOT).unwrap();
    fs.mkdir(own, b"any", 0o700, &ROOT).unwrap();
    for name in [&b"disks"[..], b"snapshots", b"receive"] {
        for refused in [
            fs.rename(own, name, own, b"other", RenameMode::Replace),
            fs.rename(own, name, sub, b"other", RenameMode::Replace),
            fs.rename(own, name, own, b"any", RenameMode::Exchange),
            fs.rename(own, b"any", own, name, RenameMode::Exchange),
        ] {
            assert!(matches!(refused, Err(Error::OperationNotPermitted)), "it keeps its name");
        }
    }
    // A directory of this name elsewhere, and another one in that of oncefs, are like any other.
    fs.mkdir(sub, b"disks", 0o700, &ROOT).unwrap();
    fs.rename(sub, b"disks", sub, b"snapshots", RenameMode::Replace).unwrap();
    fs.rename(own, b"any", own, b"more", RenameMode::Replace).unwrap();
    assert_sound(&fs);
    // One that others may change is like any other.
    let open = SetAttributes { permissions: Some(0o777), ..SetAttributes::default() };
    fs.setattr(own, &open).unwrap();
    assert_eq!(names(&fs, Ino::ROOT).len(), 2);
    fs.rename(own, b"disks", own, b"other", RenameMode::Replace).unwrap();
    moved(b".oncefs", b"other", RenameMode::Replace).unwrap();
    assert_sound(&fs);
}

#[test]
fn a_large_file_has_the_content_of_one_moment() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let source = file(&fs, Ino::ROOT, "source").ino;
    let (near, far) = (0, 1_u64 << 40);
    let write = |to, number: u32| fs.write(source, to, &number.to_le_bytes(), BY_CALLER).map(drop).unwrap();
    for part in 0..4 {
        fs.write(source, (part << 38) + BLOCK as u64, &[7; BLOCK], BY_CALLER).unwrap();
    }
    write(near, 1);
    write(far, 1);
    // Each step in the copy of its parts is followed by a change of both ends, for a while.
    let read = |ino, from| u32::from_le_bytes(fs.read(ino, from, 4, false).unwrap()[..].try_into().unwrap());
    for busy_for in [0, 1, 2, 40] {
        let (asked, number) = (Cell::new(0), Cell::new(100 * busy_for + 1));
        let goes_on = || {
            asked.set(asked.get() + 1);
            if asked.get() <= busy_for {
                number.set(number.get() + 1);
                write(near, number.get());
                write(far, number.get());
            }
            true
        };
        let name = format!("clone {busy_for}");
        let order = TreeCopy { source, parent: Ino::ROOT, name: name.as_bytes(), kind: CopyKind::Clone, of: b"" };
        let clone = fs.copy_tree(&order, &TreeProgress::default(), &goes_on).unwrap().unwrap().ino;
        assert_eq!(read(clone, near), read(clone, far), "busy for {busy_for} steps");
        assert_eq!(fs.getattr(clone).unwrap().blocks, 6);
    }
    assert_sound(&fs);
}

#[test]
fn an_error_names_the_file_that_it_is_about() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let top = sample(&fs, &volume);
    let link = fs.lookup(fs.lookup(top, b"inner").unwrap().ino, b"one").unwrap().ino;
    let mut damage = oncefs_engine::Change::new();
    damage.put([&b"x"[..], &link.0.to_be_bytes(), b"user.small"].concat(), b"damaged".to_vec());
    fs.store().publish(damage).unwrap();
    let order = TreeCopy { source: Ino::ROOT, parent: Ino::ROOT, name: b"new", kind: CopyKind::Clone, of: b"" };
    let failed = fs.copy_tree(&order, &TreeProgress::default(), &|| true).unwrap_err();
    let at = String::from_utf8(failed.at).unwrap();
    assert!(["top/another-name", "top/inner/one", "top/inner/one-more"].contains(&&*at), "{at}");
    assert!(matches!(fs.lookup(Ino::ROOT, b"new"), Err(Error::NotFound)));
}

#[test]
fn names_of_a_clone_that_meet_at_places_stay_apart() {
    // 255 places of one name each, for 240 names that come in two portions.
    let volume = Volume::with_places(NamePlaces { bits: 8, names_max: 1 });
    let fs = volume.open();
    let top = directory(&fs, Ino::ROOT, "top").ino;
    for number in 0..240 {
        file(&fs, top, &format!("file{number}"));
    }
    let new = copy(&fs, top, Ino::ROOT, b"new", CopyKind::Clone);
    let sorted = |directory| {
        let mut all = names(&fs, directory);
        all.sort();
        all
    };
    assert_eq!(sorted(new), sorted(top));
    assert!((0..240).all(|number| fs.lookup(new, format!("file{number}").as_bytes()).is_ok()));
    assert_sound(&fs);
}
