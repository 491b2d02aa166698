//! A user does the worst calls known while another one goes on, on a mount whose daemon counts what calls cost: reads and
//! work under locks, and memory (docs/architecture.md, what a call may cost). The daemon has to be built with the feature
//! `checked`. Judged by counts and never by time, and by counts alone: nobody waits behind a lock for more than what is
//! done under it, which the daemon counts for every lock that is held. Not counted: CPU time, and what other threads than
//! the serving one take.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use oncefs_system_tests::{BLOCK, Mount, bytes, oncefs, run, sys, test_dir};

use crate::security::user::{User, let_everybody_in};

const MIB: u64 = 1 << 20;
const ATTACKER: u32 = 1001;
const VICTIM: u32 = 1002;

/// Bounds of the rule, for a mount with 64 MiB of memory.
const READS_HELD_MAX: u64 = 32;
const LOOKS_HELD_MAX: u64 = 4096;
const REQUEST_BYTES_MAX: u64 = 4 << 20;

/// Files of one cloned block per MiB, and of reservations.
const LEAVES: u64 = 600;
const ATTRIBUTES: usize = 600;
const DEPTH: usize = 300;
const OPEN_FILES: usize = 2000;

/// Makes this thread another user's. Other threads of the process stay root's: the calls are the kernel's own, not those of
/// the C library, which change all threads.
fn become_user(id: u32) {
    let keep = libc::c_long::from(-1);
    let id = libc::c_long::from(id);
    // SAFETY: plain numbers; an empty list of groups is not looked at.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setgroups, 0_i64, std::ptr::null::<libc::gid_t>()), 0);
        assert_eq!(libc::syscall(libc::SYS_setresgid, id, id, keep), 0);
        assert_eq!(libc::syscall(libc::SYS_setresuid, id, id, keep), 0);
    }
}

/// Does something as a user, in a thread of its own.
fn as_user<T: Send>(id: u32, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_user(id);
            work()
        });
        thread.join().unwrap()
    })
}

/// Has very many files without a name open at once, in a process of their own: gives an errno.
fn open_many(dir: &Path) -> i32 {
    let path = sys::c_path(dir);
    User::new(ATTACKER).does(|| {
        sys::close_files();
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: plain calls on what outlives them, in a child that has no other thread.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        let flags = libc::O_TMPFILE | libc::O_RDWR;
        // SAFETY: the path outlives the call.
        let is_open = |_| unsafe { libc::open(path.as_ptr(), flags, 0o600) } >= 0;
        if (0..OPEN_FILES).all(is_open) { 0 } else { sys::last_errno() }
    })
}

/// Directories below one another, whose names are short enough for a path.
fn deep(top: &Path) -> PathBuf {
    (0..DEPTH).fold(top.to_owned(), |at, _| at.join("d"))
}

/// What the calls need, made by the attacker: everything of it is on disk afterwards.
fn prepare(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let source = File::create_new(dir.join("source")).unwrap();
    source.write_all_at(&bytes(1, 8 << 20), 0).unwrap();
    let source = File::open(dir.join("source")).unwrap();
    // One block per leaf, and of its neighbours in the source each in another page of the block table.
    let scattered = File::create_new(dir.join("scattered")).unwrap();
    for n in 0..LEAVES {
        let from = n * 97 % (8 * MIB / BLOCK) * BLOCK;
        assert_eq!(sys::copy_range(&source, from, &scattered, n * MIB, BLOCK).unwrap(), BLOCK);
    }
    let punched = File::create_new(dir.join("punched")).unwrap();
    punched.write_all_at(&bytes(2, 8 << 20), 0).unwrap();
    let holes = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    (0..8 * MIB).step_by(2 * BLOCK as usize).for_each(|at| sys::fallocate(&punched, holes, at, BLOCK).unwrap());
    let reserved = File::create_new(dir.join("reserved")).unwrap();
    reserved.write_all_at(&bytes(3, BLOCK as usize), 0).unwrap();
    sys::fallocate(&reserved, 0, 0, LEAVES * MIB).unwrap();
    let mut at = dir.to_owned();
    for _ in 0..DEPTH {
        at.push("d");
        fs::create_dir(&at).unwrap();
    }
    fs::create_dir(dir.join("moved")).unwrap();
    File::create_new(dir.join("attributes")).unwrap();
    (0..ATTRIBUTES).for_each(|n| sys::set_xattr(&dir.join("attributes"), &format!("user.{n}"), b"v").unwrap());
    reserved.sync_all().unwrap();
}

/// The worst calls known, each on what is cold or much.
fn attack(dir: &Path) {
    let open = |name: &str| File::options().read(true).write(true).open(dir.join(name)).unwrap();
    // Data and holes among many leaves.
    let (scattered, reserved) = (open("scattered"), open("reserved"));
    assert_eq!(sys::seek(&reserved, BLOCK, libc::SEEK_HOLE).unwrap(), BLOCK);
    assert_eq!(sys::errno(sys::seek(&reserved, BLOCK, libc::SEEK_DATA)), libc::ENXIO);
    assert_eq!(sys::seek(&scattered, BLOCK, libc::SEEK_DATA).unwrap(), MIB);
    // Writes over a block before many reservations, and reservations where all is reserved.
    reserved.write_all_at(&bytes(4, BLOCK as usize), 0).unwrap();
    reserved.sync_all().unwrap();
    sys::fallocate(&reserved, 0, 0, LEAVES * MIB).unwrap();
    let zeros = libc::FALLOC_FL_ZERO_RANGE;
    sys::fallocate(&reserved, zeros, 0, LEAVES * MIB).unwrap();
    // Scattered blocks: read, cloned, zeroed, punched, truncated, deleted.
    let mut block = vec![0; BLOCK as usize];
    (0..LEAVES).step_by(16).for_each(|n| scattered.read_exact_at(&mut block, n * MIB).unwrap());
    let clone = File::create_new(dir.join("clone")).unwrap();
    sys::copy_range_all(&scattered, 0, &clone, 0, (LEAVES - 1) * MIB + BLOCK).unwrap();
    sys::fallocate(&clone, zeros, 0, LEAVES / 2 * MIB).unwrap();
    let holes = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    sys::fallocate(&clone, holes, 0, LEAVES * MIB).unwrap();
    scattered.set_len(BLOCK + 1).unwrap();
    fs::remove_file(dir.join("clone")).unwrap();
    // Free space in pieces: those of the punched file, as soon as a commit has given them back.
    let pieces = File::create_new(dir.join("pieces")).unwrap();
    for n in 0..8 {
        pieces.write_all_at(&bytes(10 + n, 1 << 20), n * MIB).unwrap();
        pieces.sync_all().unwrap();
    }
    // Attributes and directories.
    let attributes = dir.join("attributes");
    sys::set_xattr(&attributes, "user.more", b"v").unwrap();
    assert_eq!(sys::list_xattr(&attributes).unwrap().len(), ATTRIBUTES + 1);
    let deepest = deep(dir);
    fs::rename(dir.join("moved"), deepest.join("moved")).unwrap();
    fs::rename(deepest.join("moved"), dir.join("moved")).unwrap();
    assert_eq!(fs::rename(dir.join("d"), deepest.join("moved")).unwrap_err().raw_os_error(), Some(libc::EINVAL));
}

/// Runs `oncefs disk`, as root.
fn disk(mount: &Mount, what: &str, more: &[&str]) {
    run(Command::new(oncefs()).args(["disk", what]).arg(mount.dir()).args(more));
}

/// A disk of one cloned block per MiB.
fn prepare_disk(mount: &Mount, dir: &Path) {
    disk(mount, "create", &["disk", &format!("{LEAVES}M")]);
    let source = File::open(dir.join("source")).unwrap();
    let scattered = File::options().write(true).open(mount.join(".oncefs/disks/disk")).unwrap();
    for n in 0..LEAVES {
        let from = n * 61 % (8 * MIB / BLOCK) * BLOCK;
        assert_eq!(sys::copy_range(&source, from, &scattered, n * MIB, BLOCK).unwrap(), BLOCK);
    }
    scattered.sync_all().unwrap();
}

/// Changes of a disk just after its snapshots, which have not taken their leaves then. The background takes none for a
/// second after a snapshot; if it is quicker here, the calls only cost less.
fn change_snapshotted(mount: &Mount, dir: &Path) {
    let open = |path: PathBuf| File::options().read(true).write(true).open(path).unwrap();
    let changed = open(mount.join(".oncefs/disks/disk"));
    let source = open(dir.join("source"));
    let part = LEAVES / 4 * MIB;
    let holes = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let calls: [&dyn Fn(); 5] = [
        &|| sys::fallocate(&changed, libc::FALLOC_FL_ZERO_RANGE, 0, part).unwrap(),
        &|| sys::fallocate(&changed, 0, part, part).unwrap(),
        &|| sys::fallocate(&changed, holes, 2 * part, part / 2).unwrap(),
        &|| assert!(sys::copy_range_all(&source, 0, &changed, 2 * part, MIB).unwrap() > 0),
        &|| changed.set_len(part + BLOCK).unwrap(),
    ];
    for (number, call) in calls.iter().enumerate() {
        disk(mount, "snapshot", &["disk", &format!("s{number}")]);
        call();
    }
}

/// What another user does until the end: gives how often.
fn go_on(file: &Path, end: &AtomicBool) -> u64 {
    let file = File::options().read(true).write(true).create_new(true).open(file).unwrap();
    let mut turns = 0;
    while !end.load(Relaxed) {
        assert_eq!(file.metadata().unwrap().len(), if turns == 0 { 0 } else { BLOCK });
        file.write_all_at(&bytes(turns, BLOCK as usize), 0).unwrap();
        file.sync_all().unwrap();
        turns += 1;
    }
    turns
}

/// A figure of the line that a daemon says at its end.
fn cost(said: &str, name: &str) -> u64 {
    let line = said.lines().rfind(|line| line.contains("calls cost at most: "));
    let line = line.expect("the daemon counts what calls cost: it has to be built with the feature 'checked'");
    let figure = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    figure.unwrap_or_else(|| panic!("no {name} in: {line}")).parse().unwrap()
}

#[test]
fn the_worst_calls_of_a_user_cost_no_more_than_the_rule_allows_while_another_one_goes_on() {
    let mut mount = Mount::on(&test_dir(), "1G", &["memory=64M"]);
    let_everybody_in(&mount);
    let dir = mount.join("attacker");
    as_user(ATTACKER, || prepare(&dir));
    prepare_disk(&mount, &dir);
    mount.remount();
    let (end, theirs) = (AtomicBool::new(false), mount.join("victim"));
    let turns = thread::scope(|scope| {
        let victim = scope.spawn(|| as_user(VICTIM, || go_on(&theirs, &end)));
        let attacked = thread::scope(|scope| scope.spawn(|| as_user(ATTACKER, || attack(&dir))).join());
        let many_opened = open_many(&dir);
        let changed = catch_unwind(AssertUnwindSafe(|| change_snapshotted(&mount, &dir)));
        end.store(true, Relaxed);
        attacked.unwrap();
        changed.unwrap();
        assert_eq!(many_opened, 0, "the errno of open(2)");
        victim.join().unwrap()
    });
    assert!(turns > 0, "the other user did something");
    mount.umount();
    let said = mount.said();
    let (reads, looks) = (cost(&said, "reads_held"), cost(&said, "looks_held"));
    let request_bytes = cost(&said, "request_bytes");
    println!("{turns} turns of the other user; reads {reads}, looks {looks}, {request_bytes} bytes");
    assert!((1..=READS_HELD_MAX).contains(&reads), "{reads} reads under a lock");
    assert!((1..=LOOKS_HELD_MAX).contains(&looks), "{looks} looks under a lock");
    assert!((1..=REQUEST_BYTES_MAX).contains(&request_bytes), "{request_bytes} bytes for a request");
    mount.assert_clean();
}
