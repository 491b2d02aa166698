//! The security labels of new files.

use crate::common::{ROOT, Volume, contradictions, directory, names};
use oncefs_fs::{AtimePolicy, Caller, Error, FileSystem, Ino, LABELS_BYTES_MAX, Label, Result, XattrMode};

const SELINUX: Label<'_> = Label { name: b"security.selinux", value: b"system_u:object_r:tmp_t:s0\0" };
const SMACK: Label<'_> = Label { name: b"security.SMACK64", value: b"web" };

/// Makes one inode of each kind below `parent`, with these labels.
fn make_each_kind(fs: &FileSystem, parent: Ino, labels: &[Label<'_>]) -> [Result<Ino>; 4] {
    let caller = Caller { uid: 1000, gid: 1000, umask: 0o022, labels };
    [
        fs.mknod(parent, b"file", 0o644, 0, &caller),
        fs.mkdir(parent, b"directory", 0o755, &caller),
        fs.symlink(parent, b"symlink", b"target", &caller),
        fs.tmpfile(parent, 0o600, &caller),
    ]
    .map(|made| made.map(|attributes| attributes.ino))
}

#[test]
fn every_kind_of_inode_begins_with_its_labels() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let made = make_each_kind(&fs, Ino::ROOT, &[SELINUX, SMACK]).map(Result::unwrap);
    assert_eq!(contradictions(&fs), Vec::<String>::new());
    // All except the last, which has no name, exist after the next mount.
    for ino in made {
        assert_eq!(fs.getxattr(ino, SELINUX.name).unwrap(), SELINUX.value, "inode {}", ino.0);
        assert_eq!(fs.getxattr(ino, SMACK.name).unwrap(), SMACK.value, "inode {}", ino.0);
    }
    fs.setxattr(made[0], SELINUX.name, b"another", XattrMode::Replace, false).unwrap();
    fs.close().unwrap();
    drop(fs);
    let fs = volume.open();
    assert_eq!(fs.getxattr(made[0], SELINUX.name).unwrap(), b"another");
    assert_eq!(fs.listxattr(made[1]).unwrap(), b"security.SMACK64\0security.selinux\0");
    assert_eq!(fs.getxattr(made[2], SMACK.name).unwrap(), SMACK.value);
    assert_eq!(contradictions(&fs), Vec::<String>::new());
}

#[test]
fn labels_go_with_what_the_directory_hands_down_and_with_the_inode() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let parent = directory(&fs, Ino::ROOT, "parent").ino;
    // Owner, a user, group, mask, others: rwx r-- r-- r-- ---.
    let entries: [(u16, u16, u32); 5] = [(1, 7, !0), (2, 4, 7), (4, 4, !0), (16, 4, !0), (32, 0, !0)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    fs.setxattr(parent, b"system.posix_acl_default", &acl, XattrMode::Any, false).unwrap();
    let [file, directory, ..] = make_each_kind(&fs, parent, &[SELINUX]).map(Result::unwrap);
    assert_eq!(fs.listxattr(file).unwrap(), b"security.selinux\0system.posix_acl_access\0");
    assert_eq!(
        fs.listxattr(directory).unwrap(),
        b"security.selinux\0system.posix_acl_access\0system.posix_acl_default\0"
    );
    fs.unlink(parent, b"file").unwrap();
    fs.forget(file).unwrap();
    assert!(matches!(fs.getxattr(file, SELINUX.name), Err(Error::Stale)));
    assert_eq!(contradictions(&fs), Vec::<String>::new());
}

#[test]
fn what_is_no_label_makes_no_inode() {
    let volume = Volume::new(AtimePolicy::Never);
    let fs = volume.open();
    let long = [b"security.".as_slice(), &[b'l'; 247]].concat();
    for name in
        [b"user.label".as_slice(), b"security.", b"", b"system.posix_acl_access", b"trusted.overlay.opaque", &long]
    {
        for made in make_each_kind(&fs, Ino::ROOT, &[Label { name, value: b"" }]) {
            assert!(matches!(made, Err(Error::Invalid(_))), "{} is taken for a label", name.escape_ascii());
        }
    }
    for made in make_each_kind(&fs, Ino::ROOT, &[SELINUX, SMACK, SELINUX]) {
        assert!(matches!(made, Err(Error::Invalid(_))), "a label comes twice");
    }
    let value = vec![1; LABELS_BYTES_MAX - SELINUX.name.len() - SMACK.name.len() - SMACK.value.len()];
    let largest = Label { name: SELINUX.name, value: &value };
    let too_large = [value.as_slice(), &[1]].concat();
    for made in make_each_kind(&fs, Ino::ROOT, &[SMACK, Label { name: SELINUX.name, value: &too_large }]) {
        assert!(matches!(made, Err(Error::TooBig)), "labels of more than {LABELS_BYTES_MAX} bytes are taken");
    }
    assert!(names(&fs, Ino::ROOT).is_empty());
    let [file, ..] = make_each_kind(&fs, Ino::ROOT, &[SMACK, largest]).map(Result::unwrap);
    assert_eq!(fs.getxattr(file, SELINUX.name).unwrap(), value);
    assert_eq!(fs.mkdir(Ino::ROOT, b"plain", 0o755, &ROOT).map(|made| fs.listxattr(made.ino).unwrap()).unwrap(), b"");
}
