//! The differences between two trees, as they are found from inodes and maps.

use oncefs_fs::{DiffCursor, Difference, Stamp};

use super::*;

/// All differences between two directories: signs and paths.
fn differences(fs: &FileSystem, older: Ino, newer: Ino) -> Vec<String> {
    let (mut all, mut left) = (Vec::new(), vec![(String::new(), Some(older), Some(newer))]);
    while let Some((path, older, newer)) = left.pop() {
        let mut from = Some(DiffCursor::default());
        while let Some(cursor) = from {
            let portion = fs.diff_directories(older, newer, cursor, &|| true).unwrap().unwrap();
            for diff in portion.names {
                let path = format!("{path}/{}", String::from_utf8(diff.name).unwrap());
                if diff.older.or(diff.newer).is_some_and(|stamp| stamp.kind == FileKind::Directory) {
                    let number = |stamp: Option<Stamp>| stamp.map(|stamp| stamp.ino);
                    left.push((path.clone(), number(diff.older), number(diff.newer)));
                }
                match diff.difference {
                    Difference::Added => all.push(format!("+ {path}")),
                    Difference::Removed => all.push(format!("- {path}")),
                    Difference::Modified => all.push(format!("M {path}")),
                    Difference::Attributes => all.push(format!("a {path}")),
                    Difference::Same => {}
                }
            }
            from = portion.next;
        }
    }
    all.sort();
    all
}

#[test]
fn the_difference_between_trees_is_what_was_changed() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let top = sample(&fs, &volume);
    for number in 0..600 {
        file(&fs, top, &format!("many {number}"));
    }
    let before = copy(&fs, top, Ino::ROOT, b"before", CopyKind::Snapshot);
    let clone = copy(&fs, top, Ino::ROOT, b"clone", CopyKind::Clone);
    for (older, newer) in [(before, top), (top, before), (before, before), (clone, top)] {
        let found = differences(&fs, older, newer);
        // A clone lost one flag.
        let is_flag = |line: &String| line == "a /attributes" && older == clone;
        assert!(found.iter().all(is_flag), "{found:?}");
    }
    volume.clock.set(300);
    let find = |name: &[u8]| fs.lookup(top, name).unwrap().ino;
    let inner = find(b"inner");
    fs.write(find(b"sparse"), (9 << 20) + 5, b"FARTHER", BY_CALLER).unwrap();
    fs.write(find(b"empty-file"), 0, b"no longer", BY_CALLER).unwrap();
    fs.fallocate(find(b"hole"), 0, 4096, AllocateMode::Reserve { keep_size: true }, Privileges::Kept).unwrap();
    set(&fs, inner, b"user.new", b"1");
    fs.setattr(find(b"pipe"), &SetAttributes { permissions: Some(0o644), ..SetAttributes::default() }).unwrap();
    fs.unlink(top, b"link").unwrap();
    fs.symlink(top, b"link", b"elsewhere", &ROOT).unwrap();
    fs.unlink(top, b"device").unwrap();
    directory(&fs, top, "device");
    fs.rename(top, b"many 1", inner, b"moved", RenameMode::Replace).unwrap();
    fs.rmdir(inner, b"empty").unwrap();
    let added = directory(&fs, top, "new").ino;
    file(&fs, added, "below");
    let expected = [
        "+ /device",
        "+ /inner/moved",
        "+ /new",
        "+ /new/below",
        "- /device",
        "- /inner/empty",
        "- /many 1",
        "M /empty-file",
        "M /link",
        "M /sparse",
        "a /inner",
        "a /pipe",
    ];
    let mut found = differences(&fs, before, top);
    // The reservation changed a time.
    found.retain(|line| line != "a /hole");
    assert_eq!(found, expected);
    let after = copy(&fs, top, Ino::ROOT, b"after", CopyKind::Snapshot);
    assert_eq!(differences(&fs, top, after), Vec::<String>::new());
    let mut found = differences(&fs, before, after);
    found.retain(|line| line != "a /hole");
    assert_eq!(found, expected);
    assert!(fs.diff_directories(Some(before), Some(after), DiffCursor::default(), &|| false).unwrap().is_none());
    let file = find(b"sparse");
    assert!(matches!(
        fs.diff_directories(Some(file), None, DiffCursor::default(), &|| true),
        Err(Error::NotADirectory)
    ));
}
