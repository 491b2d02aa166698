//! The operations that a file's flags forbid, and that the flags stay with their file.

use crate::common::{ROOT, Volume, at, contradictions, directory, file};
use oncefs_fs::{
    AllocateMode, AtimePolicy, Error, FileFlags, FileSystem, Ino, Privileges, RenameMode, Result, SetAttributes,
    SetTime, WriteOrigin, XattrMode,
};

const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };

/// An operation that flags may forbid, by its name.
type Operation<'a> = (&'static str, Box<dyn Fn() -> Result<()> + 'a>);

/// A directory with a file and a directory of one name each, and a file next to it.
struct Tree {
    dir: Ino,
    inner: Ino,
    beside: Ino,
}

fn tree(fs: &FileSystem) -> Tree {
    let dir = directory(fs, Ino::ROOT, "dir").ino;
    let inner = file(fs, dir, "inner").ino;
    let beside = file(fs, Ino::ROOT, "beside").ino;
    for ino in [inner, beside] {
        fs.write(ino, 0, b"first line\n", BY_CALLER).unwrap();
    }
    Tree { dir, inner, beside }
}

fn set(fs: &FileSystem, ino: Ino, set: SetAttributes) -> Result<()> {
    fs.setattr(ino, &set).map(drop)
}

/// All changes of the file `inner`. A change that the flags allow may fail for another reason.
fn changes<'a>(fs: &'a FileSystem, tree: &'a Tree) -> Vec<Operation<'a>> {
    let Tree { dir, inner, beside } = *tree;
    let none = SetAttributes::default;
    let kept = Privileges::Kept;
    let reserve = AllocateMode::Reserve { keep_size: true };
    vec![
        ("open", Box::new(move || fs.check_opened_to_write(inner, false))),
        ("open to append", Box::new(move || fs.check_opened_to_write(inner, true))),
        ("overwrite", Box::new(move || fs.write(inner, 3, b"xx", BY_CALLER).map(drop))),
        ("append", Box::new(move || fs.write(inner, fs.getattr(inner)?.size, b"more", BY_CALLER).map(drop))),
        ("write what it holds", Box::new(move || fs.write(inner, 0, b"first", BY_CALLER).map(drop))),
        ("truncate", Box::new(move || set(fs, inner, SetAttributes { size: Some(4), ..none() }))),
        ("enlarge", Box::new(move || set(fs, inner, SetAttributes { size: Some(1 << 20), ..none() }))),
        ("chmod", Box::new(move || set(fs, inner, SetAttributes { permissions: Some(0o600), ..none() }))),
        ("chown", Box::new(move || set(fs, inner, SetAttributes { uid: Some(7), ..none() }))),
        ("set times", Box::new(move || set(fs, inner, SetAttributes { mtime: Some(SetTime::At(at(9))), ..none() }))),
        ("touch", Box::new(move || set(fs, inner, SetAttributes { mtime: Some(SetTime::Now), ..none() }))),
        // As the kernel sends it for a file whose write times it keeps.
        ("touch by the kernel's clock", {
            let now = SetAttributes { mtime: Some(SetTime::At(at(9))), ctime: Some(at(9)), ..none() };
            Box::new(move || set(fs, inner, SetAttributes { atime: Some(SetTime::Now), ..now }))
        }),
        ("set times beside a change", {
            let earlier = SetAttributes { mtime: Some(SetTime::At(at(8))), ctime: Some(at(9)), ..none() };
            Box::new(move || set(fs, inner, earlier))
        }),
        ("set an attribute", Box::new(move || fs.setxattr(inner, b"user.a", b"1", XattrMode::Any, true))),
        ("remove an attribute", Box::new(move || fs.removexattr(inner, b"user.old"))),
        ("reserve", Box::new(move || fs.fallocate(inner, 1 << 16, 4096, reserve, kept))),
        ("punch", Box::new(move || fs.fallocate(inner, 0, 4096, AllocateMode::PunchHole, kept))),
        ("copy over", Box::new(move || fs.copy_file_range(beside, 0, inner, 0, 4, kept).map(drop))),
        ("link", Box::new(move || fs.link(inner, Ino::ROOT, b"linked").map(drop))),
        ("rename", Box::new(move || fs.rename(dir, b"inner", dir, b"other", RenameMode::Replace).map(drop))),
        ("replace", Box::new(move || fs.rename(Ino::ROOT, b"beside", dir, b"inner", RenameMode::Replace).map(drop))),
        ("exchange", Box::new(move || fs.rename(Ino::ROOT, b"beside", dir, b"inner", RenameMode::Exchange).map(drop))),
        ("unlink", Box::new(move || fs.unlink(dir, b"inner").map(drop))),
    ]
}

/// The operations that are refused as not permitted, each in a volume of its own.
fn forbidden(flags: FileFlags, on: fn(&Tree) -> Ino) -> Vec<&'static str> {
    let names: Vec<&str> = {
        let volume = Volume::new(AtimePolicy::Never);
        let fs = volume.open();
        let tree = tree(&fs);
        changes(&fs, &tree).iter().map(|(name, _)| *name).collect()
    };
    let is_forbidden = |index: usize| {
        let volume = Volume::new(AtimePolicy::Never);
        let fs = volume.open();
        let tree = tree(&fs);
        fs.setxattr(tree.inner, b"user.old", b"1", XattrMode::Any, true).unwrap();
        fs.set_flags(on(&tree), flags).unwrap();
        let before = fs.getattr(tree.inner).unwrap();
        let result = changes(&fs, &tree)[index].1();
        assert_eq!(contradictions(&fs), Vec::<String>::new());
        match result {
            Err(Error::OperationNotPermitted) => {
                assert_eq!(fs.getattr(tree.inner).unwrap(), before, "{}", names[index]);
                true
            }
            result => {
                result.unwrap();
                false
            }
        }
    };
    (0..names.len()).filter(|index| is_forbidden(*index)).map(|index| names[index]).collect()
}

#[test]
fn an_immutable_file_takes_no_change_at_all() {
    let all = forbidden(FileFlags::IMMUTABLE, |tree| tree.inner);
    assert_eq!(all.len(), 23, "{all:?}");
}

#[test]
fn an_append_only_file_grows_and_does_nothing_else() {
    let all = forbidden(FileFlags::APPEND_ONLY, |tree| tree.inner);
    let allowed =
        ["open to append", "append", "write what it holds", "touch", "touch by the kernel's clock", "reserve"];
    assert!(allowed.iter().all(|name| !all.contains(name)), "{all:?}");
    assert_eq!(all.len(), 23 - allowed.len(), "{all:?}");
}

#[test]
fn an_immutable_directory_keeps_its_names_and_its_files_change() {
    assert_eq!(
        forbidden(FileFlags::IMMUTABLE, |tree| tree.dir),
        ["rename", "replace", "exchange", "unlink"],
        "the names in it"
    );
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let tree = tree(&fs);
    fs.set_flags(tree.dir, FileFlags::IMMUTABLE).unwrap();
    let refused = |result: Result<()>| matches!(result, Err(Error::OperationNotPermitted));
    assert!(refused(fs.mknod(tree.dir, b"new", libc::S_IFREG | 0o644, 0, &ROOT).map(drop)));
    assert!(refused(fs.tmpfile(tree.dir, 0o644, &ROOT).map(drop)));
    assert!(refused(fs.link(tree.beside, tree.dir, b"new").map(drop)));
    assert!(refused(fs.rename(Ino::ROOT, b"beside", tree.dir, b"new", RenameMode::Replace).map(drop)));
    let empty = directory(&fs, Ino::ROOT, "empty").ino;
    fs.set_flags(empty, FileFlags::IMMUTABLE).unwrap();
    assert!(refused(fs.rmdir(Ino::ROOT, b"empty").map(drop)));
    // Also for a directory with names: the permission error comes before the check for names.
    assert!(refused(fs.rmdir(Ino::ROOT, b"dir").map(drop)));
    directory(&fs, Ino::ROOT, "moved");
    assert!(refused(fs.rename(Ino::ROOT, b"moved", Ino::ROOT, b"dir", RenameMode::Replace).map(drop)));
}

#[test]
fn an_append_only_directory_takes_names_and_gives_none() {
    let all = forbidden(FileFlags::APPEND_ONLY, |tree| tree.dir);
    assert_eq!(all, ["rename", "replace", "exchange", "unlink"]);
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let tree = tree(&fs);
    fs.set_flags(tree.dir, FileFlags::APPEND_ONLY).unwrap();
    file(&fs, tree.dir, "new");
    fs.link(tree.beside, tree.dir, b"linked").unwrap();
    fs.rename(Ino::ROOT, b"beside", tree.dir, b"moved", RenameMode::Replace).unwrap();
}

#[test]
fn flags_stay_with_their_file_and_can_be_taken_back() {
    let volume = Volume::new(AtimePolicy::Strict);
    let fs = volume.open();
    let inner = tree(&fs).inner;
    let flags = FileFlags::IMMUTABLE.with(FileFlags::NO_DUMP);
    volume.clock.set(5);
    fs.set_flags(inner, flags).unwrap();
    assert_eq!(fs.getattr(inner).unwrap().ctime, at(5));
    fs.close().unwrap();
    drop(fs);
    let fs = volume.open();
    assert_eq!(fs.flags(inner).unwrap(), flags);
    assert!(fs.write(inner, 0, b"x", BY_CALLER).is_err());
    fs.set_flags(inner, FileFlags::default()).unwrap();
    fs.write(inner, 0, b"x", BY_CALLER).unwrap();
}

#[test]
fn what_the_kernel_hands_over_of_times_is_taken_in_spite_of_flags() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let inner = tree(&fs).inner;
    fs.set_flags(inner, FileFlags::IMMUTABLE).unwrap();
    let mtime = Some(SetTime::At(at(3)));
    set(&fs, inner, SetAttributes { mtime, is_write_back: true, ..SetAttributes::default() }).unwrap();
    assert_eq!(fs.getattr(inner).unwrap().mtime, at(3));
}

#[test]
fn a_file_without_atime_keeps_its_time_of_last_access() {
    let volume = Volume::new(AtimePolicy::Strict);
    let fs = volume.open();
    let Tree { inner, beside, .. } = tree(&fs);
    fs.set_flags(inner, FileFlags::NO_ATIME).unwrap();
    volume.clock.set(100);
    for (ino, expected) in [(inner, at(0)), (beside, at(100))] {
        fs.read(ino, 0, 4, true).unwrap();
        assert_eq!(fs.getattr(ino).unwrap().atime, expected);
    }
}

#[test]
fn only_files_and_directories_have_flags() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let link = fs.symlink(Ino::ROOT, b"link", b"target", &ROOT).unwrap().ino;
    assert!(matches!(fs.set_flags(link, FileFlags::IMMUTABLE), Err(Error::NotSupported)));
}
