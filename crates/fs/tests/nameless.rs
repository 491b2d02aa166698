//! Files made without a name (O_TMPFILE), and whiteouts that a rename leaves behind.

use crate::common::{ROOT, Volume, at, contradictions, directory, file, names};
use oncefs_fs::{
    AtimePolicy, Caller, Error, FileFlags, FileKind, FileSystem, Ino, Privileges, RenameMode, SetAttributes, SetTime,
    WriteOrigin,
};

const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };

fn assert_consistent(fs: &FileSystem) {
    assert_eq!(contradictions(fs), Vec::<String>::new());
}

#[test]
fn a_file_without_a_name_gets_one_and_stays() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let dir = directory(&fs, Ino::ROOT, "dir").ino;
    let made = fs.tmpfile(dir, 0o640, &Caller { uid: 3, gid: 4, umask: 0o022, labels: &[] }).unwrap();
    assert_eq!((made.kind, made.nlink, made.permissions, made.uid, made.gid), (FileKind::Regular, 0, 0o640, 3, 4));
    assert!(names(&fs, dir).is_empty());
    fs.write(made.ino, 0, b"content", BY_CALLER).unwrap();
    assert_consistent(&fs);
    assert_eq!(fs.link(made.ino, dir, b"named").unwrap().nlink, 1);
    fs.forget(made.ino).unwrap();
    assert_consistent(&fs);
    fs.close().unwrap();
    drop(fs);
    let fs = volume.open();
    assert_eq!(fs.lookup(dir, b"named").unwrap().ino, made.ino);
    assert_eq!(&fs.read(made.ino, 0, 100, false).unwrap()[..], b"content");
}

#[test]
fn a_file_that_never_gets_a_name_is_deleted_when_it_is_forgotten_or_by_the_next_mount() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let [forgotten, left] = [(); 2].map(|()| fs.tmpfile(Ino::ROOT, 0o600, &ROOT).unwrap().ino);
    fs.write(left, 0, &[7; 9000], BY_CALLER).unwrap();
    fs.forget(forgotten).unwrap();
    assert!(matches!(fs.getattr(forgotten), Err(Error::Stale)));
    fs.close().unwrap();
    drop(fs);
    let fs = volume.open();
    assert!(matches!(fs.getattr(left), Err(Error::Stale)));
    assert_consistent(&fs);
}

#[test]
fn a_file_that_lost_its_last_name_gets_no_other() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let removed = file(&fs, Ino::ROOT, "removed").ino;
    fs.unlink(Ino::ROOT, b"removed").unwrap();
    assert!(matches!(fs.link(removed, Ino::ROOT, b"again"), Err(Error::NotFound)));
    let named = fs.tmpfile(Ino::ROOT, 0o600, &ROOT).unwrap().ino;
    fs.link(named, Ino::ROOT, b"named").unwrap();
    assert_eq!(fs.unlink(Ino::ROOT, b"named").unwrap(), Some(named));
    assert!(matches!(fs.link(named, Ino::ROOT, b"again"), Err(Error::NotFound)));
    assert_consistent(&fs);
}

#[test]
fn a_rename_can_leave_a_whiteout_at_the_old_name() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let dir = directory(&fs, Ino::ROOT, "dir").ino;
    let moved = directory(&fs, dir, "old").ino;
    let replaced = directory(&fs, Ino::ROOT, "new").ino;
    let owner = Caller { uid: 1000, gid: 1001, umask: 0, labels: &[] };
    let gone = fs.rename_leaving_whiteout(dir, b"old", Ino::ROOT, b"new", RenameMode::Replace, &owner).unwrap();
    assert_eq!(gone, Some(replaced));
    assert_eq!(fs.lookup(Ino::ROOT, b"new").unwrap().ino, moved);
    let whiteout = fs.lookup(dir, b"old").unwrap();
    assert_eq!((whiteout.kind, whiteout.rdev, whiteout.permissions), (FileKind::CharDevice, 0, 0));
    assert_eq!((whiteout.uid, whiteout.gid, whiteout.nlink), (1000, 1001, 1));
    assert_eq!(fs.getattr(dir).unwrap().nlink, 2, "the directory that moved away");
    fs.forget(replaced).unwrap();
    assert_consistent(&fs);
    fs.close().unwrap();
    drop(fs);
    let fs = volume.open();
    assert_eq!(fs.lookup(dir, b"old").unwrap(), whiteout);
    fs.unlink(dir, b"old").unwrap();
    fs.rmdir(Ino::ROOT, b"dir").unwrap();
    assert_consistent(&fs);
}

#[test]
fn a_whiteout_is_left_also_within_one_directory_and_not_by_an_exchange() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    for name in ["a", "b"] {
        file(&fs, Ino::ROOT, name);
    }
    let leave = |mode| fs.rename_leaving_whiteout(Ino::ROOT, b"a", Ino::ROOT, b"c", mode, &ROOT);
    assert!(matches!(leave(RenameMode::Exchange), Err(Error::Invalid(_))));
    leave(RenameMode::NoReplace).unwrap();
    assert_eq!(names(&fs, Ino::ROOT), [b"a", b"b", b"c"]);
    assert_eq!(fs.lookup(Ino::ROOT, b"a").unwrap().kind, FileKind::CharDevice);
    assert_consistent(&fs);
}

#[test]
fn times_of_a_removed_file_are_shown_and_cost_no_commit() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open_without_threads();
    let removed = file(&fs, Ino::ROOT, "removed").ino;
    assert_eq!(fs.unlink(Ino::ROOT, b"removed").unwrap(), Some(removed));
    fs.store().commit().unwrap();
    let committed = || fs.report().counters["groups_committed"];
    let before = committed();
    let times = SetAttributes { mtime: Some(SetTime::At(at(77))), ctime: Some(at(78)), ..SetAttributes::default() };
    let shown = fs.setattr(removed, &times).unwrap();
    assert_eq!((shown.mtime, shown.ctime), (at(77), at(78)));
    fs.store().commit().unwrap();
    assert_eq!(committed(), before, "there was something to commit");
    // Far more than the cache holds.
    for number in 0..3000 {
        file(&fs, Ino::ROOT, &format!("other {number}"));
    }
    assert_eq!(fs.getattr(removed).unwrap().mtime, at(77), "nobody else has this time");
    // Any other attribute is published, with the times.
    fs.setattr(removed, &SetAttributes { permissions: Some(0o600), ctime: Some(at(79)), ..SetAttributes::default() })
        .unwrap();
    fs.store().commit().unwrap();
    assert!(committed() > before);
    fs.forget(removed).unwrap();
    assert!(matches!(fs.getattr(removed), Err(Error::Stale)));
    assert_consistent(&fs);
}

#[test]
fn a_removed_file_that_is_immutable_keeps_its_times() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let removed = file(&fs, Ino::ROOT, "removed").ino;
    fs.unlink(Ino::ROOT, b"removed").unwrap();
    fs.set_flags(removed, FileFlags::IMMUTABLE).unwrap();
    let times = SetAttributes { mtime: Some(SetTime::At(at(77))), ..SetAttributes::default() };
    assert!(matches!(fs.setattr(removed, &times), Err(Error::OperationNotPermitted)));
}
