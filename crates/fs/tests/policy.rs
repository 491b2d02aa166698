//! Policies of files: the refused values, the inodes that inherit them, and the agreement of attribute and blocks after
//! all changes of the file.

use crate::common::{ROOT, Volume, contradictions, directory, file};
use oncefs_engine::{Compress, FilePolicy, PolicyOverride};
use oncefs_fs::{
    AtimePolicy, COMPRESS_ATTRIBUTE, Error, FileFlags, FileSystem, Ino, POLICY_ATTRIBUTE, Privileges, RenameMode,
    SetAttributes, WriteOrigin, XattrMode,
};

const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };

fn set(fs: &FileSystem, ino: Ino, value: &str) -> oncefs_fs::Result<()> {
    fs.setxattr(ino, POLICY_ATTRIBUTE, value.as_bytes(), XattrMode::Any, true)
}

fn own(fs: &FileSystem, ino: Ino) -> Option<String> {
    match fs.getxattr(ino, POLICY_ATTRIBUTE) {
        Ok(value) => Some(String::from_utf8(value).unwrap()),
        Err(Error::NoData) => None,
        Err(error) => panic!("{error}"),
    }
}

/// How the engine deduplicates a file's blocks.
fn told(fs: &FileSystem, ino: Ino) -> Option<PolicyOverride> {
    fs.effective(ino).unwrap().policy.policy_override
}

fn write(fs: &FileSystem, ino: Ino, first: u8, blocks: usize) {
    if blocks == 0 {
        return;
    }
    let data: Vec<u8> = (0..blocks).flat_map(|n| [[first + n as u8; 2048], [7; 2048]].concat()).collect();
    fs.write(ino, 0, &data, BY_CALLER).unwrap();
}

fn truncate(fs: &FileSystem, ino: Ino, size: u64) {
    fs.setattr(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).unwrap();
}

fn assert_consistent(fs: &FileSystem) {
    assert_eq!(contradictions(fs), Vec::<String>::new());
}

#[test]
fn only_policies_are_taken_and_only_for_files_and_directories() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let (ino, below) = (file(&fs, Ino::ROOT, "file").ino, directory(&fs, Ino::ROOT, "d").ino);
    for value in ["", "on", "Off", "off ", "off\0", "run", "run=", "run=0", "run=257", "run=08", "run=+8", "inline,off"]
    {
        for ino in [ino, below] {
            let refused = set(&fs, ino, value).unwrap_err();
            assert!(
                matches!(refused, Error::Invalid(_)) && refused.to_string().contains("run=N"),
                "{value}: {refused}"
            );
        }
    }
    assert!(fs.setxattr(ino, POLICY_ATTRIBUTE, b"\xff", XattrMode::Any, true).is_err());
    assert_eq!((own(&fs, ino), told(&fs, ino)), (None, None));
    for value in ["off", "inline", "later", "selective", "run=1", "run=256"] {
        set(&fs, ino, value).unwrap();
        set(&fs, below, value).unwrap();
        assert_eq!((own(&fs, ino).as_deref(), own(&fs, below).as_deref()), (Some(value), Some(value)));
        assert_eq!(told(&fs, ino).unwrap().to_string(), value);
    }
    let link = fs.symlink(Ino::ROOT, b"link", b"file", &ROOT).unwrap().ino;
    let pipe = fs.mknod(Ino::ROOT, b"pipe", libc::S_IFIFO | 0o644, 0, &ROOT).unwrap().ino;
    for other in [link, pipe] {
        assert!(matches!(set(&fs, other, "off"), Err(Error::OperationNotPermitted)));
        assert!(matches!(fs.effective(other), Err(Error::Invalid(_))));
    }
    assert!(matches!(fs.setxattr(ino, POLICY_ATTRIBUTE, b"off", XattrMode::Create, true), Err(Error::Exists)));
    assert_consistent(&fs);
}

#[test]
fn files_and_directories_inherit_and_links_and_pipes_do_not() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let above = directory(&fs, Ino::ROOT, "above").ino;
    let before = file(&fs, above, "before").ino;
    set(&fs, above, "run=8").unwrap();
    let below = directory(&fs, above, "below").ino;
    let inside = file(&fs, below, "inside").ino;
    assert_eq!((own(&fs, below).as_deref(), own(&fs, inside).as_deref()), (Some("run=8"), Some("run=8")));
    assert_eq!((told(&fs, inside), own(&fs, before), told(&fs, before)), (Some(PolicyOverride::Run(8)), None, None));
    let link = fs.symlink(below, b"link", b"inside", &ROOT).unwrap().ino;
    let pipe = fs.mknod(below, b"pipe", libc::S_IFIFO | 0o644, 0, &ROOT).unwrap().ino;
    assert_eq!((fs.listxattr(link).unwrap(), fs.listxattr(pipe).unwrap()), (Vec::new(), Vec::new()));
    // A change of a directory's policy affects only files created later.
    set(&fs, below, "off").unwrap();
    let later = file(&fs, below, "later").ino;
    assert_eq!((told(&fs, inside), told(&fs, later)), (Some(PolicyOverride::Run(8)), Some(PolicyOverride::Off)));
    fs.removexattr(below, POLICY_ATTRIBUTE).unwrap();
    assert_eq!(own(&fs, file(&fs, below, "last").ino), None);
    assert_consistent(&fs);
}

#[test]
fn a_policy_stays_with_its_file_through_rename_link_truncate_and_reopening() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let (one, other) = (directory(&fs, Ino::ROOT, "one").ino, directory(&fs, Ino::ROOT, "other").ino);
    set(&fs, one, "later").unwrap();
    set(&fs, other, "off").unwrap();
    let ino = file(&fs, one, "file").ino;
    write(&fs, ino, 1, 4);
    fs.rename(one, b"file", other, b"moved", RenameMode::Replace).unwrap();
    fs.link(ino, one, b"again").unwrap();
    assert_eq!(told(&fs, ino), Some(PolicyOverride::Later), "a file that moves keeps what is said of it");
    truncate(&fs, ino, 0);
    write(&fs, ino, 9, 4);
    truncate(&fs, ino, 5_000);
    truncate(&fs, ino, 0);
    assert_eq!((own(&fs, ino).as_deref(), told(&fs, ino)), (Some("later"), Some(PolicyOverride::Later)));
    assert_consistent(&fs);
    fs.close().unwrap();
    drop(fs);
    let fs = volume.open();
    assert_eq!(told(&fs, ino), Some(PolicyOverride::Later));
    write(&fs, ino, 3, 2);
    fs.removexattr(ino, POLICY_ATTRIBUTE).unwrap();
    assert_eq!((own(&fs, ino), told(&fs, ino)), (None, None));
    assert!(matches!(fs.removexattr(ino, POLICY_ATTRIBUTE), Err(Error::NoData)));
    assert_consistent(&fs);
}

#[test]
fn what_is_said_of_a_file_goes_with_it_whether_it_held_something_or_not() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    set(&fs, Ino::ROOT, "off").unwrap();
    for (name, blocks) in [("empty", 0), ("full", 5)] {
        let ino = file(&fs, Ino::ROOT, name).ino;
        write(&fs, ino, 1, blocks);
        fs.unlink(Ino::ROOT, name.as_bytes()).unwrap();
        assert_consistent(&fs);
        fs.forget(ino).unwrap();
        assert_consistent(&fs);
    }
    assert_eq!(fs.store().scan(&[8], &[9], 10).unwrap(), Vec::new(), "no record is left");
}

#[test]
fn blocks_are_treated_as_the_attribute_says_at_once() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let used = || fs.store().totals().used.0;
    let source = file(&fs, Ino::ROOT, "source").ino;
    write(&fs, source, 1, 8);
    let before = used();
    let alone = file(&fs, Ino::ROOT, "alone").ino;
    set(&fs, alone, "off").unwrap();
    write(&fs, alone, 1, 8);
    assert_eq!(used(), before + 8);
    let shared = file(&fs, Ino::ROOT, "shared").ino;
    set(&fs, shared, "off").unwrap();
    set(&fs, shared, "run=4").unwrap();
    write(&fs, shared, 1, 8);
    assert_eq!(used(), before + 8);
    let effective = fs.effective(shared).unwrap();
    assert_eq!((effective.run_blocks_min, effective.why.as_str()), (Some(4), "set by its policy"));
    let effective = fs.effective(alone).unwrap();
    assert_eq!((effective.effective_policy.is_inline, effective.effective_policy.is_later), (false, false));
    assert_eq!((effective.why.as_str(), effective.policy.policy_override), ("policy off", Some(PolicyOverride::Off)));
    assert_consistent(&fs);
}

#[test]
fn a_directory_shows_what_its_files_will_have() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let above = directory(&fs, Ino::ROOT, "above").ino;
    assert_eq!(fs.effective(above).unwrap().policy, FilePolicy::default());
    set(&fs, above, "later").unwrap();
    let effective = fs.effective(above).unwrap();
    assert_eq!((effective.effective_policy.is_inline, effective.effective_policy.is_later), (false, true));
}

/// What the engine knows of a file's compression.
fn compressed(fs: &FileSystem, ino: Ino) -> Option<Compress> {
    let told = fs.effective(ino).unwrap().policy.compress;
    assert_eq!(told, fs.compress_override(ino).unwrap());
    told
}

/// How many attributes an inode has.
fn attributes(fs: &FileSystem, ino: Ino) -> usize {
    fs.listxattr(ino).unwrap().iter().filter(|byte| **byte == 0).count()
}

fn set_compress(fs: &FileSystem, ino: Ino, value: &str) -> oncefs_fs::Result<()> {
    fs.setxattr(ino, COMPRESS_ATTRIBUTE, value.as_bytes(), XattrMode::Any, true)
}

#[test]
fn compression_has_a_policy_of_its_own_beside_that_of_deduplication() {
    let mut volume = Volume::compressed(AtimePolicy::Never);
    let fs = volume.open();
    let above = directory(&fs, Ino::ROOT, "above").ino;
    for value in ["", "on", "Off", "zstd", "none"] {
        assert!(matches!(set_compress(&fs, above, value), Err(Error::Invalid(_))), "{value}");
    }
    let pipe = fs.mknod(Ino::ROOT, b"pipe", libc::S_IFIFO | 0o644, 0, &ROOT).unwrap().ino;
    assert!(matches!(set_compress(&fs, pipe, "off"), Err(Error::OperationNotPermitted)));
    set_compress(&fs, above, "later").unwrap();
    set(&fs, above, "run=8").unwrap();
    let ino = file(&fs, above, "file").ino;
    assert_eq!((compressed(&fs, ino), told(&fs, ino)), (Some(Compress::Later), Some(PolicyOverride::Run(8))));
    assert_eq!(attributes(&fs, ino), 2);
    assert_eq!(fs.effective(ino).unwrap().compress, Compress::Later);
    // Each of the two stays when the other one goes.
    fs.removexattr(ino, POLICY_ATTRIBUTE).unwrap();
    assert_eq!((compressed(&fs, ino), told(&fs, ino)), (Some(Compress::Later), None));
    set(&fs, ino, "off").unwrap();
    fs.removexattr(ino, COMPRESS_ATTRIBUTE).unwrap();
    assert_eq!((compressed(&fs, ino), told(&fs, ino)), (None, Some(PolicyOverride::Off)));
    set_compress(&fs, ino, "inline").unwrap();
    write(&fs, ino, 1, 3);
    truncate(&fs, ino, 0);
    assert_eq!(compressed(&fs, ino), Some(Compress::Inline));
    assert_consistent(&fs);
    fs.close().unwrap();
    drop(fs);
    volume.settings.clear();
    let fs = volume.open();
    assert_eq!((compressed(&fs, ino), told(&fs, ino)), (Some(Compress::Inline), Some(PolicyOverride::Off)));
    // A mount that compresses nothing compresses nothing of it.
    assert_eq!(fs.effective(ino).unwrap().compress, Compress::Off);
    fs.unlink(above, b"file").unwrap();
    assert_consistent(&fs);
}

#[test]
fn flags_and_compression_change_together() {
    let volume = Volume::compressed(AtimePolicy::Never);
    let fs = volume.open();
    let (ino, below) = (file(&fs, Ino::ROOT, "file").ino, directory(&fs, Ino::ROOT, "below").ino);
    for ino in [ino, below] {
        fs.set_flags_and_compression(ino, FileFlags::NO_DUMP, Some(Compress::Inline)).unwrap();
        assert_eq!((compressed(&fs, ino), fs.flags(ino).unwrap()), (Some(Compress::Inline), FileFlags::NO_DUMP));
        fs.set_flags(ino, FileFlags::default()).unwrap();
        assert_eq!(compressed(&fs, ino), Some(Compress::Inline), "flags alone leave it");
        fs.set_flags_and_compression(ino, FileFlags::NO_ATIME, Some(Compress::Off)).unwrap();
        assert_eq!((compressed(&fs, ino), attributes(&fs, ino)), (Some(Compress::Off), 1));
    }
    assert_eq!(compressed(&fs, file(&fs, below, "new").ino), Some(Compress::Off), "it is inherited");
    for _ in 0..2 {
        fs.set_flags_and_compression(ino, FileFlags::default(), None).unwrap();
        assert_eq!((compressed(&fs, ino), attributes(&fs, ino)), (None, 0));
    }
    let pipe = fs.mknod(Ino::ROOT, b"pipe", libc::S_IFIFO | 0o644, 0, &ROOT).unwrap().ino;
    let refused = fs.set_flags_and_compression(pipe, FileFlags::default(), Some(Compress::Off));
    assert!(matches!(refused, Err(Error::NotSupported)));
    assert_consistent(&fs);
}

/// The version of the volume's format, as the superblock has it.
fn version(volume: &Volume) -> u8 {
    std::fs::read(volume.path().join("superblock")).unwrap()[16]
}

#[test]
fn a_volume_that_earlier_versions_open_takes_no_policy_for_compression() {
    let mut volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let (ino, above) = (file(&fs, Ino::ROOT, "file").ino, directory(&fs, Ino::ROOT, "above").ino);
    for ino in [ino, above] {
        for value in ["off", "later", "inline", "auto"] {
            assert!(matches!(set_compress(&fs, ino, value), Err(Error::NeverCompressed)), "{value}");
        }
        let refused = fs.set_flags_and_compression(ino, FileFlags::NO_DUMP, Some(Compress::Off));
        assert!(matches!(refused, Err(Error::NeverCompressed)));
        assert_eq!((fs.flags(ino).unwrap(), attributes(&fs, ino)), (FileFlags::default(), 0));
        fs.set_flags_and_compression(ino, FileFlags::NO_DUMP, None).unwrap();
        assert_eq!(fs.flags(ino).unwrap(), FileFlags::NO_DUMP, "nothing is to be removed");
    }
    assert!(matches!(set_compress(&fs, ino, "on"), Err(Error::Invalid(_))));
    fs.close().unwrap();
    drop(fs);
    assert!(version(&volume) < 3);

    // Once it was mounted with compression, it takes them, and files with one keep it from earlier versions.
    volume.settings = vec![("compress".to_owned(), "later".to_owned())];
    let fs = volume.open();
    set_compress(&fs, ino, "off").unwrap();
    set_compress(&fs, above, "inline").unwrap();
    fs.close().unwrap();
    drop(fs);
    volume.settings.clear();
    let fs = volume.open();
    fs.close().unwrap();
    drop(fs);
    assert_eq!(version(&volume), 3);
    let fs = volume.open();
    fs.removexattr(ino, COMPRESS_ATTRIBUTE).unwrap();
    fs.close().unwrap();
    drop(fs);
    assert!(version(&volume) < 3);

    // What is left is an attribute of a directory, which no file of such a volume inherits.
    let fs = volume.open();
    assert_eq!(fs.compress_override(above).unwrap(), Some(Compress::Inline));
    let (new, below) = (file(&fs, above, "new").ino, directory(&fs, above, "below").ino);
    assert_eq!((compressed(&fs, new), attributes(&fs, new), attributes(&fs, below)), (None, 0, 0));
    assert_consistent(&fs);
}
