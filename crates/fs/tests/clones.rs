//! Lazy clones of files: content, block counts, policies and names.

use std::sync::Arc;

use oncefs_engine::BackgroundStep;
use oncefs_fs::{
    AllocateMode, AtimePolicy, Error, FileSystem, Ino, POLICY_ATTRIBUTE, Privileges, SetAttributes, WriteOrigin,
    XattrMode,
};

use crate::common::{ROOT, Volume, contradictions, directory, file, names};

const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };

/// Closes the volume and audits it: nothing works in the background then.
fn assert_consistent_at_the_end(volume: &Volume, fs: Arc<FileSystem>) -> Arc<FileSystem> {
    fs.close().unwrap();
    drop(fs);
    let fs = volume.open_read_only();
    assert_eq!(contradictions(&fs), Vec::<String>::new());
    fs
}

fn content(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn a_clone_has_the_content_of_one_moment_its_own_blocks_and_the_permissions_of_its_source() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let (source, data) = (file(&fs, Ino::ROOT, "source").ino, content(5_000_001));
    fs.write(source, 0, &data, BY_CALLER).unwrap();
    fs.setattr(source, &SetAttributes { permissions: Some(0o4750), ..SetAttributes::default() }).unwrap();
    fs.fallocate(source, 6 << 20, 1 << 20, AllocateMode::Reserve { keep_size: true }, Privileges::Kept).unwrap();
    let parent = directory(&fs, Ino::ROOT, "clones").ino;
    let clone = fs.clone_file(source, parent, b"clone", &ROOT).unwrap();
    let blocks = data.len().div_ceil(4096) as u64;
    assert_eq!((clone.size, clone.blocks, clone.permissions), (data.len() as u64, blocks, 0o750));
    fs.write(source, 1 << 20, b"later", BY_CALLER).unwrap();
    assert!(*fs.read(clone.ino, 0, data.len(), true).unwrap() == data[..]);
    fs.write(clone.ino, 4 << 20, b"too", BY_CALLER).unwrap();
    let attributes = fs.setattr(clone.ino, &SetAttributes { size: Some(3 << 20), ..SetAttributes::default() });
    assert_eq!(attributes.unwrap().blocks, 768);
    let fs = assert_consistent_at_the_end(&volume, fs);
    assert!(*fs.read(clone.ino, 0, data.len(), true).unwrap() == data[..3 << 20]);
}

#[test]
fn the_first_clone_marks_both_superblocks_and_earlier_volumes_stay_as_they_are() {
    let volume = Volume::new(AtimePolicy::Never);
    let versions = || {
        let read = |name: &str| std::fs::read(volume.path().join(name)).unwrap()[16];
        [read("superblock"), read("copies/superblock")]
    };
    let fs = volume.open();
    let source = file(&fs, Ino::ROOT, "source").ino;
    fs.write(source, 0, &content(10_000), BY_CALLER).unwrap();
    assert_eq!(versions(), [1, 1]);
    fs.clone_file(source, Ino::ROOT, b"clone", &ROOT).unwrap();
    assert_eq!(versions(), [2, 2]);
    let fs = assert_consistent_at_the_end(&volume, fs);
    drop(fs);
    let fs = volume.open();
    fs.clone_file(source, Ino::ROOT, b"another", &ROOT).unwrap();
    assert_eq!(versions(), [2, 2]);
    assert_consistent_at_the_end(&volume, fs);
}

#[test]
fn a_clone_that_is_refused_leaves_nothing() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let source = file(&fs, Ino::ROOT, "source").ino;
    fs.write(source, 0, &content(10_000), BY_CALLER).unwrap();
    let parent = directory(&fs, Ino::ROOT, "folder").ino;
    let refused = [
        (fs.clone_file(source, Ino::ROOT, b"source", &ROOT), "there is one"),
        (fs.clone_file(source, source, b"name", &ROOT), "no directory"),
        (fs.clone_file(parent, Ino::ROOT, b"name", &ROOT), "no file"),
        (fs.clone_file(source, Ino::ROOT, b"a/b", &ROOT), "no name"),
    ];
    for (result, why) in refused {
        assert!(result.is_err(), "{why}");
    }
    assert!(matches!(fs.clone_file(source, Ino::ROOT, b"source", &ROOT), Err(Error::Exists)));
    assert_eq!(names(&fs, Ino::ROOT), [b"folder".to_vec(), b"source".to_vec()]);
    assert_consistent_at_the_end(&volume, fs);
}

#[test]
fn a_clone_has_the_policy_of_its_directory_and_an_empty_file_can_be_cloned() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let parent = directory(&fs, Ino::ROOT, "folder").ino;
    fs.setxattr(parent, POLICY_ATTRIBUTE, b"off", XattrMode::Any, true).unwrap();
    let source = file(&fs, Ino::ROOT, "source").ino;
    let empty = fs.clone_file(source, parent, b"empty", &ROOT).unwrap();
    assert_eq!((empty.size, empty.blocks), (0, 0));
    fs.write(source, 0, &content(10_000), BY_CALLER).unwrap();
    let clone = fs.clone_file(source, parent, b"clone", &ROOT).unwrap().ino;
    assert_eq!(fs.getxattr(clone, POLICY_ATTRIBUTE).unwrap(), b"off");
    while fs.store().run(BackgroundStep::TakeLeaves).unwrap() {}
    fs.unlink(parent, b"clone").unwrap();
    fs.forget(clone).unwrap();
    assert!(*fs.read(source, 0, 10_000, true).unwrap() == content(10_000)[..]);
    assert_consistent_at_the_end(&volume, fs);
}
