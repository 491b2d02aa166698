//! What a change of a file leaves of its privileges: set-user-id, set-group-id and capabilities. Every way to change a
//! file, by everybody who may try, compared with ext4. The kernel keeps a copy of the mode for as long as it knows the
//! file, so what counts is what stat and exec see, before the call returns and ever after.

use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use oncefs_system_tests::{HostDisk, Mount, leave_free, run, sys};
use sys::errno;

use super::user::{User, file_of, mount_for_all, result, set_mode};

const OWNER: User = User::new(1000);
const STRANGER: User = User::new(1001);
const ROOT: User = User::new(0);
/// A group that only `MEMBER` belongs to, as one of several.
const GROUP: u32 = 3000;
const MEMBER: User = User { uid: 1002, gid: 1002, groups: &[4000, GROUP] };

/// Who changes the file, and the file's group.
const ACTORS: [(&str, User, u32); 6] = [
    ("a stranger", STRANGER, OWNER.gid),
    ("the owner", OWNER, OWNER.gid),
    ("the owner, outside the file's group", OWNER, GROUP),
    ("a stranger outside", STRANGER, GROUP),
    ("a member of the file's group", MEMBER, GROUP),
    ("root", ROOT, OWNER.gid),
];

/// With and without the right of the group to execute, without which set-group-id once marked mandatory locking.
const MODES: [u32; 6] = [0o6777, 0o4777, 0o2777, 0o2767, 0o6767, 0o0777];

const CONTENT_BYTES: usize = 16 << 10;
/// CAP_NET_RAW of a file, permitted and effective, as `vfs_cap_data` of version 2.
const NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const KEEP: u32 = u32::MAX;

/// A block at an address that O_DIRECT takes.
#[repr(align(4096))]
struct Block([u8; 4096]);
static BLOCK: Block = Block([b'n'; 4096]);

/// Changes the file at the first path, with the second at hand to copy from. Only system calls: it runs in a child.
type Act = fn(&CStr, &CStr) -> i32;

const WAYS: [(&str, Act); 22] = [
    ("write", |path, _| on(path, libc::O_WRONLY, |file| write(file, 1))),
    ("append", |path, _| on(path, libc::O_WRONLY | libc::O_APPEND, |file| write(file, 5))),
    ("write of a block", |path, _| on(path, libc::O_WRONLY, |file| write(file, 4096))),
    ("O_DIRECT", |path, _| on(path, libc::O_WRONLY | libc::O_DIRECT, |file| write(file, 4096))),
    ("O_SYNC", |path, _| on(path, libc::O_WRONLY | libc::O_SYNC, |file| write(file, 7))),
    ("write and fsync", |path, _| on(path, libc::O_RDWR, |file| first(write(file, 9), || fsync(file)))),
    ("nothing written", |path, _| on(path, libc::O_WRONLY, |file| write(file, 0))),
    ("mapping", |path, _| on(path, libc::O_RDWR, store)),
    ("fallocate", |path, _| fallocate(path, 0, 0, 100_000)),
    ("fallocate within", |path, _| fallocate(path, 0, 0, 4096)),
    ("fallocate, size kept", |path, _| fallocate(path, libc::FALLOC_FL_KEEP_SIZE, 0, 100_000)),
    ("punch", |path, _| fallocate(path, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 4096, 4096)),
    ("zero", |path, _| fallocate(path, libc::FALLOC_FL_ZERO_RANGE, 4096, 4096)),
    ("zero, size kept", |path, _| fallocate(path, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE, 0, 100_000)),
    ("copy_file_range of blocks", |path, other| copy(path, other, 8192)),
    ("copy_file_range of bytes", |path, other| copy(path, other, 77)),
    ("sendfile", |path, other| send(path, other)),
    // SAFETY: the string outlives the call; so below.
    ("truncate", |path, _| result(unsafe { libc::truncate(path.as_ptr(), 3) })),
    ("truncate to the same size", |path, _| {
        // SAFETY: as above.
        result(unsafe { libc::truncate(path.as_ptr(), CONTENT_BYTES as i64) })
    }),
    ("ftruncate", |path, _| {
        // SAFETY: plain system call.
        on(path, libc::O_WRONLY, |file| result(unsafe { libc::ftruncate(file, 100_000) }))
    }),
    ("O_TRUNC", |path, _| on(path, libc::O_WRONLY | libc::O_TRUNC, |_| 0)),
    // SAFETY: as above.
    ("chown to the same group", |path, _| result(unsafe { libc::chown(path.as_ptr(), KEEP, OWNER.gid) })),
];

/// A change of owner that changes nothing. Of it the kernel tells a FUSE file system no more than that the time of last
/// change is to be set, so that set-user-id and set-group-id stay where ext4 clears them.
fn chown_to_nobody(path: &CStr, _: &CStr) -> i32 {
    // SAFETY: the string outlives the call.
    result(unsafe { libc::chown(path.as_ptr(), KEEP, KEEP) })
}

/// Opens, acts, and says what fstat(2) shows of the privileges before the file is closed.
fn on(path: &CStr, flags: i32, act: impl FnOnce(i32) -> i32) -> i32 {
    // SAFETY: the string outlives the call, the buffer is the kernel's to fill.
    unsafe {
        let file = libc::open(path.as_ptr(), flags);
        if file == -1 {
            return sys::last_errno();
        }
        let failed = act(file);
        if failed != 0 {
            return failed;
        }
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(file, &raw mut stat) != 0 {
            return sys::last_errno();
        }
        // No errno is as large.
        200 + ((stat.st_mode & (libc::S_ISUID | libc::S_ISGID)) >> 10) as i32
    }
}

fn first(failed: i32, then: impl FnOnce() -> i32) -> i32 {
    if failed != 0 { failed } else { then() }
}

fn write(file: i32, bytes: usize) -> i32 {
    // SAFETY: so many bytes are there.
    if unsafe { libc::write(file, BLOCK.0.as_ptr().cast(), bytes) } == bytes as isize { 0 } else { sys::last_errno() }
}

fn fsync(file: i32) -> i32 {
    // SAFETY: plain system call.
    result(unsafe { libc::fsync(file) })
}

fn store(file: i32) -> i32 {
    // SAFETY: the mapping is of a file that is long enough, and nobody else has its address.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_WRITE, libc::MAP_SHARED, file, 0);
        if start == libc::MAP_FAILED {
            return sys::last_errno();
        }
        start.cast::<u8>().write(b'm');
        result(libc::msync(start, 4096, libc::MS_SYNC))
    }
}

fn fallocate(path: &CStr, mode: i32, at: i64, len: i64) -> i32 {
    // SAFETY: plain system call.
    on(path, libc::O_WRONLY, |file| result(unsafe { libc::fallocate64(file, mode, at, len) }))
}

fn copy(path: &CStr, other: &CStr, bytes: usize) -> i32 {
    on(path, libc::O_WRONLY, |file| {
        // SAFETY: the string outlives the calls; null offsets stand for the files' own.
        unsafe {
            let from = libc::open(other.as_ptr(), libc::O_RDONLY);
            let none = std::ptr::null_mut();
            let copied = libc::copy_file_range(from, none, file, none, bytes, 0);
            if copied == bytes as isize { 0 } else { sys::last_errno() }
        }
    })
}

fn send(path: &CStr, other: &CStr) -> i32 {
    on(path, libc::O_WRONLY, |file| {
        // SAFETY: the string outlives the calls; a null offset stands for the file's own.
        unsafe {
            let from = libc::open(other.as_ptr(), libc::O_RDONLY);
            if libc::sendfile(file, from, std::ptr::null_mut(), 5000) == 5000 { 0 } else { sys::last_errno() }
        }
    })
}

/// What came of a change: what the caller saw, the mode, and whether the file has its capability.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    by_the_caller: i32,
    mode: u32,
    has_capability: bool,
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn has_capability(path: &Path) -> bool {
    match sys::get_xattr(path, "security.capability") {
        Ok(value) => value == NET_RAW,
        Err(error) => {
            assert_eq!(errno::<()>(Err(error)), libc::ENODATA);
            false
        }
    }
}

/// Makes a file with these privileges, changes it, and looks.
fn changed(path: &Path, other: &Path, actor: User, group: u32, bits: u32, act: Act) -> Seen {
    fs::write(path, vec![b'o'; CONTENT_BYTES]).unwrap();
    sys::chown(path, OWNER.uid, group).unwrap();
    set_mode(path, bits);
    sys::set_xattr(path, "security.capability", &NET_RAW).unwrap();
    assert_eq!((mode(path), has_capability(path)), (bits, true));
    let (c_path, c_other) = (sys::c_path(path), sys::c_path(other));
    let by_the_caller = actor.does(|| act(&c_path, &c_other));
    Seen { by_the_caller, mode: mode(path), has_capability: has_capability(path) }
}

/// Every way, by everybody, with every mode, below `dir`: what was done, the file, and what came of it. Where room is
/// short, no file is kept.
fn every_change(dir: &Path, keeps_files: bool) -> Vec<(String, PathBuf, Seen)> {
    let other = dir.join("other");
    fs::write(&other, vec![b'c'; CONTENT_BYTES]).unwrap();
    set_mode(&other, 0o644);
    let mut all = Vec::new();
    for (who, actor, group) in ACTORS {
        for bits in MODES {
            for (way, act) in WAYS {
                let path = dir.join(format!("{}", all.len()));
                let seen = changed(&path, &other, actor, group, bits, act);
                if !keeps_files {
                    fs::remove_file(&path).unwrap();
                }
                all.push((format!("{way} by {who}, mode {bits:o}"), path, seen));
            }
        }
    }
    all
}

/// Returns what came of each change of a file on the mount.
fn compare_with_ext4(mount: &Mount, keeps_files: bool) -> Vec<(String, PathBuf, Seen)> {
    let host = HostDisk::new(256 << 20);
    set_mode(host.path().parent().unwrap(), 0o755);
    set_mode(&host.path(), 0o777);
    let (ours, theirs) = (every_change(&mount.dir(), keeps_files), every_change(&host.path(), keeps_files));
    let mut wrong = Vec::new();
    for ((what, _, seen), (_, _, expected)) in ours.iter().zip(&theirs) {
        if seen != expected {
            wrong.push(format!("{what}: {seen:?}, on ext4 {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ from ext4:\n{}", wrong.len(), ours.len(), wrong.join("\n"));
    ours
}

#[test]
fn every_change_leaves_the_privileges_that_ext4_leaves() {
    let mut mount = mount_for_all(&[]);
    let changes = compare_with_ext4(&mount, true);
    mount.remount();
    for (what, path, seen) in &changes {
        assert_eq!((mode(path), has_capability(path)), (seen.mode, seen.has_capability), "{what}, after a remount");
    }
}

#[test]
fn every_change_on_a_nearly_full_volume_leaves_the_privileges_that_ext4_leaves() {
    let mount = mount_for_all(&[]);
    leave_free(&mount, 3 << 20);
    compare_with_ext4(&mount, false);
}

#[test]
fn nobody_takes_the_capability_of_a_program_that_only_others_may_write() {
    let mount = mount_for_all(&[]);
    let host = HostDisk::new(64 << 20);
    set_mode(host.path().parent().unwrap(), 0o755);
    for (who, actor, group) in ACTORS {
        for bits in [0o755, 0o4755] {
            let make = |dir: &Path| changed(&dir.join("ping"), dir, actor, group, bits, chown_to_nobody);
            let (ours, theirs) = (make(&mount.dir()), make(&host.path()));
            let is_foreign = actor.uid != OWNER.uid && actor.uid != 0;
            assert_eq!(ours.has_capability, is_foreign, "{who}, mode {bits:o}: {ours:?}, on ext4 {theirs:?}");
        }
    }
}

/// By mode, group and others may write; the list, or the rule that a member of the group is none of the others, says no.
#[test]
fn only_who_may_write_by_the_access_control_list_takes_a_capability() {
    let mount = mount_for_all(&[]);
    let takes = |name: &str, mode: u32, entries: Option<&str>, actor: User, act: &dyn Fn(&Path) -> i32| {
        let path = mount.join(name);
        fs::write(&path, [b'o'; CONTENT_BYTES]).unwrap();
        sys::chown(&path, OWNER.uid, GROUP).unwrap();
        set_mode(&path, mode);
        if let Some(entries) = entries {
            run(Command::new("setfacl").args(["-m", entries]).arg(&path));
        }
        sys::set_xattr(&path, "security.capability", &NET_RAW).unwrap();
        let failed = act(&path);
        (failed, !has_capability(&path), actor.opens(&path, libc::O_WRONLY))
    };
    let cases = [
        ("named", 0o777, Some("u:1001:r,m::rwx"), STRANGER, false),
        ("named for more", 0o755, Some("u:1001:rw"), STRANGER, true),
        ("masked", 0o755, Some("u:1001:rw,m::r"), STRANGER, false),
        ("in a named group", 0o755, Some("g:4000:rw"), MEMBER, true),
        ("in the group of a list", 0o757, Some("u:1009:rw,g::r"), MEMBER, false),
        ("in the group", 0o757, None, MEMBER, false),
        ("another", 0o757, Some("u:1009:rw,g::r"), STRANGER, true),
    ];
    for (who, mode, entries, actor, may) in cases {
        let touch = |path: &Path| actor.does(|| chown_to_nobody(&sys::c_path(path), c""));
        let (_, is_gone, opens) = takes(who, mode, entries, actor, &touch);
        assert_eq!((is_gone, opens == 0), (may, may), "{who}: by a change of owner that changes nothing");
        let (failed, is_gone, _) = takes(who, mode, entries, actor, &|path| actor.truncates(path, 3));
        assert_eq!((failed == 0, is_gone), (may, may), "{who}: by truncate(2)");
    }
}

#[test]
fn a_program_that_a_stranger_wrote_into_does_not_run_as_root() {
    let mount = mount_for_all(&[]);
    let program = mount.join("id");
    fs::copy("/usr/bin/id", &program).unwrap();
    let run_by_stranger = || {
        let command = format!("setpriv --reuid {0} --regid {0} --clear-groups {1} -u", STRANGER.uid, program.display());
        run(Command::new("sh").arg("-c").arg(command)).trim().to_owned()
    };
    set_mode(&program, 0o4777);
    assert_eq!(run_by_stranger(), "0", "a set-user-id program of root's");
    // The first block again: the program stays what it is, and only who wrote last changes.
    let block = mount.join("block");
    fs::write(&block, &fs::read(&program).unwrap()[..4096]).unwrap();
    set_mode(&block, 0o644);
    let write = format!(
        "setpriv --reuid {0} --regid {0} --clear-groups dd if={1} of={2} bs=4096 count=1 conv=notrunc status=none",
        STRANGER.uid,
        block.display(),
        program.display()
    );
    run(Command::new("sh").arg("-c").arg(write));
    assert_eq!(run_by_stranger(), STRANGER.uid.to_string(), "after a stranger wrote into it");
}

#[test]
fn a_descriptor_from_before_chmod_takes_the_privileges_too() {
    let mount = mount_for_all(&[]);
    let path = mount.join("file");
    file_of(OWNER, &path, 0o777);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    assert_eq!(STRANGER.does(|| write(fd, 1)), 0);
    for round in 0..3 {
        set_mode(&path, 0o6777);
        assert_eq!(mode(&path), 0o6777);
        assert_eq!(STRANGER.does(|| write(fd, 1)), 0);
        assert_eq!(mode(&path), 0o777, "round {round}");
    }
}
