//! What Linux programs expect of a file system beyond the names that `pjdfstest` covers, one property a test.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use oncefs_system_tests::{BLOCK, Mount, bytes, elapsed, gate_or_drill, run, sys};
use sys::errno;

const MIB: u64 = 1 << 20;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

fn small() -> Mount {
    Mount::new("1G")
}

fn read_write(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn rename_refuses_or_exchanges_as_its_flags_say() {
    let mount = small();
    let (a, b, missing) = (mount.join("a"), mount.join("b"), mount.join("missing"));
    fs::write(&a, "a").unwrap();
    fs::create_dir(&b).unwrap();
    fs::write(b.join("inside"), "b").unwrap();
    assert_eq!(errno(sys::rename(&a, &b, libc::RENAME_NOREPLACE)), libc::EEXIST);
    assert_eq!(errno(sys::rename(&a, &missing, libc::RENAME_EXCHANGE)), libc::ENOENT);
    sys::rename(&a, &b, libc::RENAME_EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(a.join("inside")).unwrap(), "b");
    assert_eq!(fs::read_to_string(&b).unwrap(), "a");
    sys::rename(&b, &missing, libc::RENAME_NOREPLACE).unwrap();
    assert_eq!(errno(sys::rename(&missing, &b, 1 << 20)), libc::EINVAL);
}

#[test]
fn an_unlinked_open_file_stays_usable_and_gives_its_space_back_when_closed() {
    let mount = small();
    let used = mount.figure("space", "stored_bytes");
    let file = read_write(&mount.join("gone"));
    file.write_all_at(&bytes(1, 16 << 20), 0).unwrap();
    fs::remove_file(mount.join("gone")).unwrap();
    file.write_all_at(b"more", 16 << 20).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let mut found = vec![0; 16 << 20];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == bytes(1, 16 << 20));
    drop(file);
    mount.wait_for("space", "stored_bytes", |now| now <= used + MIB);
}

#[test]
fn seeking_finds_data_and_holes_exactly() {
    let mut mount = small();
    let path = mount.join("sparse");
    let file = read_write(&path);
    file.set_len(100 * MIB).unwrap();
    file.write_all_at(&bytes(1, 2 * BLOCK as usize), 10 * MIB).unwrap();
    file.write_all_at(&bytes(2, 1), 50 * MIB + 5).unwrap();
    // The kernel asks a FUSE daemon about data and holes without writing back first.
    file.sync_all().unwrap();
    let check = |file: &File| {
        assert_eq!(sys::seek(file, 0, libc::SEEK_DATA).unwrap(), 10 * MIB);
        assert_eq!(sys::seek(file, 0, libc::SEEK_HOLE).unwrap(), 0);
        assert_eq!(sys::seek(file, 10 * MIB + 1, libc::SEEK_HOLE).unwrap(), 10 * MIB + 2 * BLOCK);
        assert_eq!(sys::seek(file, 11 * MIB, libc::SEEK_DATA).unwrap(), 50 * MIB);
        assert_eq!(errno(sys::seek(file, 60 * MIB, libc::SEEK_DATA)), libc::ENXIO);
        assert_eq!(sys::seek(file, 60 * MIB, libc::SEEK_HOLE).unwrap(), 60 * MIB);
        assert_eq!(errno(sys::seek(file, 100 * MIB, libc::SEEK_HOLE)), libc::ENXIO);
        assert_eq!(file.metadata().unwrap().blocks() * 512, 3 * BLOCK, "only data counts as blocks");
    };
    check(&file);
    drop(file);
    mount.remount();
    check(&File::open(&path).unwrap());
}

#[test]
fn fallocate_reserves_punches_zeroes_and_keeps_sizes() {
    let mut mount = small();
    let path = mount.join("file");
    let file = read_write(&path);
    file.write_all_at(&bytes(1, 64 * BLOCK as usize), 0).unwrap();
    sys::fallocate(&file, PUNCH, 3 * BLOCK + 100, 10 * BLOCK).unwrap();
    sys::fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, 20 * BLOCK + 7, 5 * BLOCK).unwrap();
    sys::fallocate(&file, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE, 63 * BLOCK, 10 * BLOCK).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 64 * BLOCK);
    sys::fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 64 * BLOCK, 256 * BLOCK).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 64 * BLOCK);
    sys::fallocate(&file, 0, 64 * BLOCK, 36 * BLOCK).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100 * BLOCK);
    let mut wanted = bytes(1, 64 * BLOCK as usize);
    let block = BLOCK as usize;
    wanted[3 * block + 100..13 * block + 100].fill(0);
    wanted[20 * block + 7..25 * block + 7].fill(0);
    wanted[63 * block..].fill(0);
    wanted.resize(100 * block, 0);
    assert!(fs::read(&path).unwrap() == wanted);
    drop(file);
    mount.remount();
    assert!(fs::read(&path).unwrap() == wanted);
    let file = read_write(&path);
    assert_eq!(errno(sys::fallocate(&file, libc::FALLOC_FL_COLLAPSE_RANGE, 0, BLOCK)), libc::EOPNOTSUPP);
    assert_eq!(errno(sys::fallocate(&file, 0, 0, 0)), libc::EINVAL);
    drop(file);
    mount.check();
}

#[test]
fn extended_attributes_of_all_sizes_survive() {
    let mut mount = small();
    let path = mount.join("file");
    fs::write(&path, "").unwrap();
    let large = bytes(3, 32_768);
    let attributes: [(&str, &[u8]); 4] =
        [("user.empty", b""), ("user.small", b"\0\xff"), ("user.large", &large), ("trusted.overlay", b"y")];
    for (name, value) in attributes {
        sys::set_xattr(&path, name, value).unwrap();
    }
    mount.remount();
    for (name, value) in attributes {
        assert_eq!(sys::get_xattr(&path, name).unwrap(), value, "{name}");
    }
    assert_eq!(sys::list_xattr(&path).unwrap(), ["trusted.overlay", "user.empty", "user.large", "user.small"]);
    sys::remove_xattr(&path, "user.large").unwrap();
    assert_eq!(errno(sys::get_xattr(&path, "user.large")), libc::ENODATA);
    assert_eq!(errno(sys::remove_xattr(&path, "user.large")), libc::ENODATA);
    assert_eq!(errno(sys::set_xattr(&path, "no_such_space.x", b"")), libc::EOPNOTSUPP);
}

/// errno of opening `path` for reading as another user, 0 if that works.
fn open_as(path: &Path, uid: u32, flags: i32) -> i32 {
    let path = sys::c_path(path);
    sys::in_child(|| {
        // SAFETY: plain system calls in a child with one thread.
        unsafe {
            if libc::setgroups(0, std::ptr::null()) != 0 || libc::setgid(uid) != 0 || libc::setuid(uid) != 0 {
                return 255;
            }
            if libc::open(path.as_ptr(), flags) == -1 { sys::last_errno() } else { 0 }
        }
    })
}

fn acl_of(path: &Path) -> String {
    run(Command::new("getfacl").args(["--omit-header", "--numeric", "--absolute-names"]).arg(path))
}

#[test]
fn access_control_lists_grant_mask_and_are_inherited() {
    let mut mount = small();
    let dir = mount.join("dir");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(mount.dir(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(mount.dir().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.join("before"), "x").unwrap();
    fs::set_permissions(dir.join("before"), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(open_as(&dir.join("before"), 1234, libc::O_RDONLY), libc::EACCES);
    run(Command::new("setfacl").args(["-m", "u:1234:rw"]).arg(dir.join("before")));
    assert_eq!(open_as(&dir.join("before"), 1234, libc::O_RDWR), 0, "the list grants");
    assert_eq!(open_as(&dir.join("before"), 1235, libc::O_RDONLY), libc::EACCES);
    assert_eq!(fs::metadata(dir.join("before")).unwrap().mode() & 0o777, 0o660, "group bits show the mask");
    fs::set_permissions(dir.join("before"), Permissions::from_mode(0o640)).unwrap();
    assert_eq!(open_as(&dir.join("before"), 1234, libc::O_RDWR), libc::EACCES, "chmod sets the mask");

    run(Command::new("setfacl").args(["-d", "-m", "u:1234:rwx,g::rx,o::-"]).arg(&dir));
    OpenOptions::new().write(true).create_new(true).mode(0o666).open(dir.join("file")).unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    mount.remount();
    assert_eq!(
        acl_of(&dir.join("file")).trim(),
        "user::rw-\nuser:1234:rwx\t#effective:rw-\ngroup::r-x\t#effective:r--\nmask::rw-\nother::---"
    );
    assert!(acl_of(&dir.join("sub")).contains("default:user:1234:rwx"), "directories pass the default on");
    assert_eq!(open_as(&dir.join("file"), 1234, libc::O_RDWR), 0, "inherited by the file");
}

#[test]
fn locks_exclude_other_processes() {
    let mount = small();
    let path = mount.join("file");
    let file = read_write(&path);
    file.write_all_at(&[0; 100], 0).unwrap();
    let c_path = sys::c_path(&path);
    // SAFETY: plain system calls in a child with one thread, here and below.
    let flock_in_child = || {
        sys::in_child(|| unsafe {
            let other = libc::open(c_path.as_ptr(), libc::O_RDWR);
            if libc::flock(other, libc::LOCK_EX | libc::LOCK_NB) == 0 { 0 } else { sys::last_errno() }
        })
    };
    let record_in_child = |at| {
        sys::in_child(|| {
            // SAFETY: as above.
            let other = unsafe { libc::open(c_path.as_ptr(), libc::O_RDWR) };
            sys::record_lock(other, libc::F_WRLCK, at, 10)
        })
    };
    file.lock().unwrap();
    assert_eq!(flock_in_child(), libc::EWOULDBLOCK);
    file.unlock().unwrap();
    assert_eq!(flock_in_child(), 0);

    assert_eq!(sys::record_lock(file.as_raw_fd(), libc::F_WRLCK, 10, 10), 0);
    assert_eq!(record_in_child(15), libc::EAGAIN);
    assert_eq!(record_in_child(30), 0, "another range is free");
    assert_eq!(sys::record_lock(file.as_raw_fd(), libc::F_UNLCK, 10, 10), 0);
    assert_eq!(record_in_child(15), 0);
}

#[test]
fn mappings_share_or_keep_to_themselves() {
    let mut mount = small();
    let path = mount.join("file");
    let file = read_write(&path);
    file.write_all_at(&bytes(1, 10_000), 0).unwrap();
    let mut shared = sys::Mapping::new(&file, 10_000, libc::MAP_SHARED).unwrap();
    let mut private = sys::Mapping::new(&file, 10_000, libc::MAP_PRIVATE).unwrap();
    shared.bytes()[5000..5005].copy_from_slice(b"mappd");
    private.bytes()[0..5].copy_from_slice(b"mine!");
    let mut found = [0; 5];
    file.read_exact_at(&mut found, 5000).unwrap();
    assert_eq!(&found, b"mappd", "read sees what a shared mapping wrote");
    file.write_all_at(b"write", 9000).unwrap();
    assert_eq!(&shared.bytes()[9000..9005], b"write", "a mapping sees what write wrote");
    shared.sync().unwrap();
    drop((shared, private, file));
    mount.crash();
    let mut wanted = bytes(1, 10_000);
    wanted[5000..5005].copy_from_slice(b"mappd");
    let found = fs::read(&path).unwrap();
    assert!(found[..9000] == wanted[..9000], "msync made the shared mapping durable, the private one is gone");
}

#[test]
fn direct_io_works_aligned_and_not_and_agrees_with_the_page_cache() {
    let mount = small();
    let path = mount.join("file");
    let open = |flags| {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(&path).unwrap()
    };
    let (direct, cached) = (open(libc::O_DIRECT), open(0));
    let memory = tempfile::tempfile().unwrap();
    memory.set_len(MIB).unwrap();
    let mut aligned = sys::Mapping::new(&memory, MIB as usize, libc::MAP_SHARED).unwrap();
    aligned.bytes().copy_from_slice(&bytes(1, MIB as usize));
    direct.write_all_at(aligned.bytes(), 0).unwrap();
    let mut wanted = bytes(1, MIB as usize);
    for (at, len) in [(5, 10), (4096, 100), (8191, 4097), (100_000, 70_001)] {
        let data = bytes(at as u64, len);
        direct.write_all_at(&data, at as u64).unwrap();
        wanted[at..at + len].copy_from_slice(&data);
        let mut found = vec![0; len];
        cached.read_exact_at(&mut found, at as u64).unwrap();
        assert!(found == data, "the page cache sees the direct write at {at}");
    }
    cached.write_all_at(b"cached", 300_000).unwrap();
    wanted[300_000..300_006].copy_from_slice(b"cached");
    aligned.bytes().fill(0);
    direct.read_exact_at(aligned.bytes(), 0).unwrap();
    assert!(aligned.bytes() == wanted, "a direct read sees the cached write");
}

#[test]
fn a_synchronous_write_is_durable_when_it_returns() {
    let mut mount = small();
    let path = mount.join("file");
    for flag in [libc::O_SYNC, libc::O_DSYNC] {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flag).open(&path).unwrap();
        file.write_all(&bytes(flag as u64, 50_000)).unwrap();
        mount.kill();
        drop(file);
        mount.mount();
        assert!(fs::read(&path).unwrap() == bytes(flag as u64, 50_000));
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

#[test]
fn times_have_nanoseconds_and_reading_updates_access_times_as_relatime_says() {
    let mut mount = small();
    let path = mount.join("file");
    fs::write(&path, "x").unwrap();
    let exact = (1_234_567_890, 123_456_789);
    sys::set_times(&path, exact, (now() - 100, 999_999_999)).unwrap();
    mount.remount();
    let attributes = fs::metadata(&path).unwrap();
    assert_eq!((attributes.atime(), attributes.atime_nsec(), attributes.mtime_nsec()), (exact.0, exact.1, 999_999_999));
    fs::read(&path).unwrap();
    assert!(fs::metadata(&path).unwrap().atime() > now() - 60, "older than the modification: updated");

    // Setting times sets the change time to now, so only a later access time is younger than both others.
    let later = now() + 1000;
    sys::set_times(&path, (later, 5), (now() - 100, 0)).unwrap();
    mount.remount();
    fs::read(&path).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.atime(), after.atime_nsec()), (later, 5), "younger than both changes: left alone");
    assert!(after.ctime() > now() - 60);
}

#[test]
fn df_adds_up_and_follows_what_is_written() {
    let mount = small();
    let before = sys::space(&mount.dir()).unwrap();
    assert_eq!(before.f_blocks * before.f_frsize, 1 << 30, "total is the size of the data area");
    assert!(before.f_bavail <= before.f_bfree && before.f_bfree <= before.f_blocks);
    assert_eq!(before.f_namemax, 255);
    let file = read_write(&mount.join("file"));
    file.write_all_at(&bytes(1, 64 << 20), 0).unwrap();
    file.sync_all().unwrap();
    let after = sys::space(&mount.dir()).unwrap();
    assert_eq!((before.f_bfree - after.f_bfree) * after.f_frsize, 64 << 20);
}

#[test]
fn names_are_bytes_up_to_255_of_them() {
    let mut mount = small();
    let names: [Vec<u8>; 4] = [vec![b'n'; 255], vec![0xff, 0xfe, b'x'], b"new\nline".to_vec(), b" . ".to_vec()];
    for name in &names {
        fs::write(mount.join(OsStr::from_bytes(name)), name).unwrap();
    }
    assert_eq!(errno(fs::write(mount.join("n".repeat(256)), "")), libc::ENAMETOOLONG);
    mount.remount();
    for name in &names {
        assert_eq!(&fs::read(mount.join(OsStr::from_bytes(name))).unwrap(), name);
    }
    assert_eq!(fs::read_dir(mount.dir()).unwrap().count(), names.len());
}

#[test]
fn special_files_and_links_keep_their_kind_and_device() {
    let mut mount = small();
    sys::mknod(&mount.join("pipe"), libc::S_IFIFO | 0o600, 0).unwrap();
    sys::mknod(&mount.join("zero"), libc::S_IFCHR | 0o666, libc::makedev(1, 5)).unwrap();
    sys::mknod(&mount.join("disk"), libc::S_IFBLK | 0o600, libc::makedev(259, 70_000)).unwrap();
    std::os::unix::fs::symlink("x".repeat(4000), mount.join("symlink")).unwrap();
    std::os::unix::net::UnixListener::bind(mount.join("socket")).unwrap();
    mount.remount();
    let kind = |name: &str| fs::symlink_metadata(mount.join(name)).unwrap();
    assert_eq!(kind("pipe").mode(), libc::S_IFIFO | 0o600);
    assert_eq!((kind("zero").mode(), kind("zero").rdev()), (libc::S_IFCHR | 0o666, libc::makedev(1, 5)));
    assert_eq!((kind("disk").mode(), kind("disk").rdev()), (libc::S_IFBLK | 0o600, libc::makedev(259, 70_000)));
    assert_eq!(fs::read_link(mount.join("symlink")).unwrap().as_os_str().len(), 4000);
    assert_eq!(kind("socket").mode() & libc::S_IFMT, libc::S_IFSOCK);
    let mut zeros = [1; 10];
    File::open(mount.join("zero")).unwrap().read_exact(&mut zeros).unwrap();
    assert_eq!(zeros, [0; 10], "root may use devices");
}

#[test]
fn a_directory_of_many_entries_lists_each_once_and_empties() {
    let entries = gate_or_drill(20_000, 1_000_000);
    let mut mount = Mount::new("4G");
    let dir = mount.join("dir");
    fs::create_dir(&dir).unwrap();
    elapsed(&format!("creating {entries} files"), || {
        (0..entries).for_each(|n| drop(File::create(dir.join(format!("file-{n}"))).unwrap()))
    });
    mount.remount();
    let (names, _) =
        elapsed("listing them", || fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>());
    assert_eq!(names.len() as u64, entries);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len() as u64, entries, "no name twice");
    elapsed("deleting while listing", || {
        fs::read_dir(&dir).unwrap().for_each(|e| fs::remove_file(e.unwrap().path()).unwrap())
    });
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "deleting while listing misses no name");
    fs::remove_dir(&dir).unwrap();
    mount.check();
}

#[test]
fn a_file_is_found_again_by_its_handle_without_its_name() {
    let mut mount = small();
    fs::create_dir(mount.join("dir")).unwrap();
    let path = mount.join("dir/file");
    fs::write(&path, "found").unwrap();
    let handle = sys::handle_of(&path).unwrap();
    fs::rename(&path, mount.join("renamed")).unwrap();
    mount.remount();
    let mut said = String::new();
    sys::open_by_handle(&mount.dir(), &handle).unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "found");
    fs::remove_file(mount.join("renamed")).unwrap();
    fs::write(mount.join("another"), "other").unwrap();
    mount.remount();
    assert_eq!(
        errno(sys::open_by_handle(&mount.dir(), &handle).map(|_| ())),
        libc::ESTALE,
        "a handle never finds another file"
    );
}

/// After a crash numbers may be given again, so each mount has a generation of its own for the files that it makes.
#[test]
fn handles_of_the_files_of_two_mounts_have_different_generations() {
    let mut mount = small();
    let generation = |mount: &Mount, name: &str| {
        fs::write(mount.join(name), name).unwrap();
        sys::generation_of(&sys::handle_of(&mount.join(name)).unwrap())
    };
    let first = [generation(&mount, "first"), generation(&mount, "second")];
    assert_eq!(first[0], first[1]);
    mount.remount();
    assert_ne!(generation(&mount, "third"), first[0]);
    assert_eq!(sys::generation_of(&sys::handle_of(&mount.join("first")).unwrap()), first[0]);
}

#[test]
fn appending_processes_do_not_overwrite_each_other() {
    let mount = small();
    let path = mount.join("log");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for line in 0..500 {
                    file.write_all(format!("{writer} {line}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    let lines: BTreeSet<&str> = text.lines().collect();
    assert_eq!((text.lines().count(), lines.len()), (2000, 2000));
}

#[test]
fn data_reaches_the_volume_soon_without_a_sync() {
    let mut mount = small();
    let path = mount.join("file");
    fs::write(&path, bytes(4, 100_000)).unwrap();
    File::open(&path).unwrap();
    // The kernel writes back what close handed over; oncefs commits by itself.
    mount.wait_for("counters", "blocks_placed", |placed| placed >= 25);
    mount.await_commit();
    mount.crash();
    assert!(fs::read(&path).unwrap() == bytes(4, 100_000));
}

#[test]
fn who_only_reads_sees_all_as_data_while_another_writes_and_drops_none_of_its_pages() {
    let mount = small();
    let path = mount.join("written");
    let writer = read_write(&path);
    writer.set_len(4 * MIB).unwrap();
    writer.write_all_at(&bytes(1, MIB as usize), MIB).unwrap();
    // What was written beyond the end that the daemon knows counts too, written back or not.
    writer.write_all_at(&bytes(2, 100), 4 * MIB).unwrap();
    let reader = File::open(&path).unwrap();
    let cached = || sys::cached_pages(&writer, 5 * MIB);
    let before = cached();
    for _ in 0..10 {
        assert_eq!(sys::seek(&reader, 0, libc::SEEK_DATA).unwrap(), 0);
        assert_eq!(sys::seek(&reader, 0, libc::SEEK_HOLE).unwrap(), 4 * MIB + 100);
        assert_eq!(sys::seek(&reader, 4 * MIB + 99, libc::SEEK_DATA).unwrap(), 4 * MIB + 99);
        assert_eq!(errno(sys::seek(&reader, 4 * MIB + 100, libc::SEEK_DATA)), libc::ENXIO);
    }
    // The page with the end alone, where the kernel has it no more.
    assert!(cached() + 1 >= before && before >= 256, "{} of {before} pages", cached());
    assert_eq!(sys::seek(&writer, 0, libc::SEEK_DATA).unwrap(), MIB, "who writes is told exactly");
}

#[test]
fn a_file_of_16_tb_is_sparse_and_its_ends_are_usable() {
    let mount = small();
    let path = mount.join("huge");
    let file = read_write(&path);
    let end = 16u64 << 40;
    file.set_len(end).unwrap();
    file.write_all_at(b"last", end - 4).unwrap();
    file.sync_all().unwrap();
    let mut found = [0; 4];
    file.read_exact_at(&mut found, end - 4).unwrap();
    assert_eq!(&found, b"last");
    assert_eq!(sys::seek(&file, 0, libc::SEEK_DATA).unwrap(), end - BLOCK);
    let changed = |mount: &Mount| mount.figure("counters", "log_bytes_written");
    let before = changed(&mount);
    elapsed("deleting 16 TB of hole", || fs::remove_file(&path).unwrap());
    File::open(mount.dir()).unwrap().sync_all().unwrap();
    let logged = changed(&mount) - before;
    assert!(logged < MIB, "{logged} bytes were logged for one block and holes");
}

/// readdir(3) of the standard library leaves the two out.
#[test]
fn a_directory_lists_itself_and_its_parent_with_their_numbers() {
    let mount = Mount::new("256M");
    fs::create_dir_all(mount.join("above/dir")).unwrap();
    fs::write(mount.join("above/dir/file"), "x").unwrap();
    for dir in [mount.dir(), mount.join("above"), mount.join("above/dir")] {
        let listed = run(Command::new("ls").args(["-1ai", "-U"]).arg(&dir));
        let number_of = |wanted: &str| {
            let of =
                |line: &str| line.trim().split_once(' ').filter(|(_, name)| *name == wanted)?.0.parse::<u64>().ok();
            listed.lines().find_map(of)
        };
        assert_eq!(number_of("."), Some(fs::metadata(&dir).unwrap().ino()), "{} lists {listed}", dir.display());
        // Above the mount's root ls shows what is mounted on.
        let above =
            if dir == mount.dir() { number_of("..") } else { Some(fs::metadata(dir.join("..")).unwrap().ino()) };
        assert!(number_of("..").is_some() && number_of("..") == above, "{} lists {listed}", dir.display());
    }
}
