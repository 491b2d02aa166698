//! Owner, group and others; sticky and set-group-id directories; access control lists; the umask.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;

use oncefs_system_tests::{run, sys};

use super::user::{User, directory_of, file_of, mount_for_all, open, result, set_mode};

const GROUP: u32 = 2000;
const OWNER: User = User { uid: 1000, gid: GROUP, groups: &[] };
/// In the group by its primary one, and by a supplementary one.
const MEMBERS: [User; 2] = [User { uid: 1001, gid: GROUP, groups: &[] }, User::new(1002).with(&[3000, GROUP])];
const STRANGER: User = User::new(1003);

#[test]
fn the_bits_of_owner_group_and_others_decide_and_the_first_that_fits_counts() {
    let mount = mount_for_all(&[]);
    let path = mount.join("file");
    file_of(OWNER, &path, 0);
    for (access, flags) in [(4, libc::O_RDONLY), (2, libc::O_WRONLY)] {
        for classes in 0..8 {
            let bit = |class: u32| if classes & class != 0 { access } else { 0 };
            let (owner, group, others) = (bit(4), bit(2), bit(1));
            set_mode(&path, owner << 6 | group << 3 | others);
            let expected = |allowed: u32| if allowed != 0 { 0 } else { libc::EACCES };
            assert_eq!(OWNER.opens(&path, flags), expected(owner), "owner, {classes:o} of {access}");
            for member in MEMBERS {
                assert_eq!(member.opens(&path, flags), expected(group), "{member:?}, {classes:o} of {access}");
            }
            assert_eq!(STRANGER.opens(&path, flags), expected(others), "stranger, {classes:o} of {access}");
        }
    }
    set_mode(&path, 0o640);
    for (user, mode, expected) in [
        (OWNER, libc::R_OK | libc::W_OK, 0),
        (OWNER, libc::X_OK, libc::EACCES),
        (MEMBERS[1], libc::R_OK, 0),
        (MEMBERS[1], libc::W_OK, libc::EACCES),
        (STRANGER, libc::R_OK, libc::EACCES),
        (STRANGER, libc::F_OK, 0),
    ] {
        assert_eq!(user.accesses(&path, mode), expected, "access {mode} of {user:?}");
    }
}

#[test]
fn a_directory_is_listed_entered_and_changed_by_whom_its_bits_let() {
    let mount = mount_for_all(&[]);
    let dir = mount.join("dir");
    directory_of(OWNER, &dir, 0o710);
    file_of(OWNER, &dir.join("open"), 0o644);
    let list = libc::O_RDONLY | libc::O_DIRECTORY;
    assert_eq!(OWNER.opens(&dir, list), 0);
    assert_eq!(MEMBERS[0].opens(&dir, list), libc::EACCES, "x without r: no list");
    assert_eq!(MEMBERS[0].opens(&dir.join("open"), libc::O_RDONLY), 0, "but whose name is known opens");
    assert_eq!(STRANGER.opens(&dir.join("open"), libc::O_RDONLY), libc::EACCES);
    assert_eq!(STRANGER.opens(&dir.join("none"), libc::O_RDONLY), libc::EACCES, "nor does it tell what is there");
    assert_eq!(MEMBERS[1].creates(&dir.join("new"), 0o644), libc::EACCES);
    set_mode(&dir, 0o730);
    assert_eq!(MEMBERS[1].creates(&dir.join("new"), 0o644), 0);
    assert_eq!(MEMBERS[0].unlinks(&dir.join("open")), 0, "the directory's bits count, not the file's");
    set_mode(&dir, 0o704);
    assert_eq!(STRANGER.opens(&dir, list), 0, "r without x: names");
    assert_eq!(STRANGER.opens(&dir.join("new"), libc::O_RDONLY), libc::EACCES, "and no more");

    directory_of(OWNER, &mount.join("source"), 0o777);
    fs::write(mount.join("source/a"), "").unwrap();
    assert_eq!(STRANGER.renames(&mount.join("source/a"), &dir.join("a")), libc::EACCES);
    assert_eq!(STRANGER.links(&mount.join("source/a"), &dir.join("a")), libc::EACCES);
}

#[test]
fn in_a_sticky_directory_everybody_keeps_what_is_theirs() {
    let mount = mount_for_all(&[]);
    let dir = mount.join("tmp");
    directory_of(OWNER, &dir, 0o1777);
    let (a, b) = (User::new(1004), User::new(1005));
    let (of_a, of_b) = (dir.join("a"), dir.join("b"));
    assert_eq!(a.creates(&of_a, 0o666), 0);
    assert_eq!(b.creates(&of_b, 0o666), 0);
    assert_eq!(b.unlinks(&of_a), libc::EPERM);
    assert_eq!(b.renames(&of_a, &dir.join("mine")), libc::EPERM);
    assert_eq!(b.renames(&of_b, &of_a), libc::EPERM, "not over another's file either");
    let (first, second) = (sys::c_path(&of_b), sys::c_path(&of_a));
    let exchange = || {
        let (at, flags) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
        // SAFETY: both strings outlive the call.
        result(unsafe { libc::renameat2(at, first.as_ptr(), at, second.as_ptr(), flags) })
    };
    assert_eq!(b.does(exchange), libc::EPERM);
    assert_eq!(a.renames(&of_a, &dir.join("c")), 0);
    assert_eq!(OWNER.unlinks(&of_b), 0, "the directory's owner may");
}

#[test]
fn a_set_group_id_directory_hands_its_group_down() {
    let mount = mount_for_all(&[]);
    let dir = mount.join("shared");
    directory_of(User { uid: 0, gid: GROUP, groups: &[] }, &dir, 0o2777);
    let made = |name: &str| fs::metadata(dir.join(name)).unwrap();
    assert_eq!(STRANGER.creates(&dir.join("file"), 0o664), 0);
    assert_eq!((made("file").uid(), made("file").gid()), (STRANGER.uid, GROUP));
    let sub = sys::c_path(dir.join("sub"));
    // SAFETY: the string outlives the call.
    assert_eq!(STRANGER.does(|| result(unsafe { libc::mkdir(sub.as_ptr(), 0o755) })), 0);
    assert_eq!((made("sub").gid(), made("sub").mode() & 0o7777), (GROUP, 0o2755));
    assert_eq!(STRANGER.creates(&dir.join("run"), 0o2775), 0);
    assert_eq!(made("run").mode() & 0o7777, 0o775, "no set-group-id program for a group that one is not in");
    assert_eq!(MEMBERS[1].creates(&dir.join("member"), 0o2775), 0);
    assert_eq!(made("member").mode() & 0o7777, 0o2775, "for one's own groups it is allowed");
    assert_eq!(STRANGER.creates(&mount.join("plain"), 0o644), 0);
    assert_eq!(fs::metadata(mount.join("plain")).unwrap().gid(), STRANGER.gid, "elsewhere it is the maker's");
}

#[test]
fn the_umask_takes_bits_from_what_is_made() {
    let mount = mount_for_all(&[]);
    let (file, dir, fifo) = (mount.join("file"), mount.join("dir"), mount.join("fifo"));
    let [c_file, c_dir, c_fifo] = [&file, &dir, &fifo].map(sys::c_path);
    let make = || {
        // SAFETY: the strings outlive the calls.
        unsafe {
            libc::umask(0o027);
            let made = open(&c_file, libc::O_CREAT | libc::O_WRONLY, 0o666);
            made | result(libc::mkdir(c_dir.as_ptr(), 0o777)) | result(libc::mkfifo(c_fifo.as_ptr(), 0o666))
        }
    };
    assert_eq!(STRANGER.does(make), 0);
    let mode = |path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!((mode(&file), mode(&dir), mode(&fifo)), (0o640, 0o750, 0o640));
}

#[test]
fn access_control_lists_name_users_and_groups_under_a_mask() {
    let mut mount = mount_for_all(&[]);
    let path = mount.join("file");
    file_of(OWNER, &path, 0o600);
    let setfacl = |entries: &str| run(Command::new("setfacl").args(["-m", entries]).arg(&path));
    setfacl("u:1003:rw,g:3000:r");
    let in_named_group = User::new(1007).with(&[3000]);
    assert_eq!(STRANGER.opens(&path, libc::O_RDWR), 0, "a named user");
    assert_eq!(in_named_group.opens(&path, libc::O_RDONLY), 0, "a named group, supplementary");
    assert_eq!(in_named_group.opens(&path, libc::O_WRONLY), libc::EACCES);
    assert_eq!(User::new(1008).opens(&path, libc::O_RDONLY), libc::EACCES);
    setfacl("m::r");
    assert_eq!(STRANGER.opens(&path, libc::O_WRONLY), libc::EACCES, "the mask bounds it");
    assert_eq!(STRANGER.opens(&path, libc::O_RDONLY), 0);
    assert_eq!(OWNER.opens(&path, libc::O_RDWR), 0, "but not the owner");
    setfacl("u:1003:-");
    assert_eq!(STRANGER.opens(&path, libc::O_RDONLY), libc::EACCES, "a named user with nothing, others or not");

    let list = sys::get_xattr(&path, "system.posix_acl_access").unwrap();
    assert_eq!(STRANGER.sets_xattr(&path, c"system.posix_acl_access", &list), libc::EPERM, "only the owner sets it");
    assert_eq!(OWNER.sets_xattr(&path, c"system.posix_acl_access", &list), 0);
    assert_eq!(OWNER.sets_xattr(&path, c"system.posix_acl_access", b"nonsense"), libc::EOPNOTSUPP);

    let dir = mount.join("dir");
    directory_of(OWNER, &dir, 0o777);
    run(Command::new("setfacl").args(["-d", "-m", "u:1003:rwx,o::-"]).arg(&dir));
    assert_eq!(MEMBERS[0].creates(&dir.join("made"), 0o666), 0);
    mount.remount();
    assert_eq!(STRANGER.opens(&dir.join("made"), libc::O_RDWR), 0, "the default list is handed down");
    assert_eq!(User::new(1008).opens(&dir.join("made"), libc::O_RDONLY), libc::EACCES, "instead of the mode's others");
}

#[test]
fn a_link_is_followed_with_the_rights_of_who_follows() {
    let mount = mount_for_all(&[]);
    directory_of(OWNER, &mount.join("private"), 0o700);
    file_of(OWNER, &mount.join("private/file"), 0o666);
    symlink("private/file", mount.join("link")).unwrap();
    assert_eq!(OWNER.opens(&mount.join("link"), libc::O_RDONLY), 0);
    assert_eq!(STRANGER.opens(&mount.join("link"), libc::O_RDONLY), libc::EACCES);
    // The kernel follows it on the whole machine, the daemon never does.
    symlink("/etc/shadow", mount.join("out")).unwrap();
    assert_eq!(STRANGER.opens(&mount.join("out"), libc::O_RDONLY), libc::EACCES);
    assert_eq!(fs::read_link(mount.join("out")).unwrap().to_str(), Some("/etc/shadow"));
}
