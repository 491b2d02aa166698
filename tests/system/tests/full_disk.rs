//! Full disks: oncefs itself full, and the host below it full. An error comes with the write or at the latest
//! with fsync or close, what was acknowledged stays, deleting works, and then writing works again.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use oncefs_system_tests::{HostDisk, Mount, bytes, eventually, leave_free, oncefs, sys};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Writes one file and syncs it: what a program sees that checks every result.
fn write_synced(path: &Path, key: u64, len: usize) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&bytes(key, len))?;
    file.sync_all()
}

/// Fills the mount with files of 8 MiB until an error comes; returns the acknowledged ones.
fn fill_up(mount: &Mount, key: u64, limit: u64) -> Vec<(PathBuf, u64)> {
    let mut acknowledged = Vec::new();
    for number in 0..limit {
        let path = mount.join(format!("file-{key}-{number}"));
        match write_synced(&path, key + number, 8 * MIB as usize) {
            Ok(()) => acknowledged.push((path, key + number)),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "a full disk says so: {error}");
                fs::remove_file(&path).expect("deleting works on a full disk");
                return acknowledged;
            }
        }
    }
    panic!("{limit} files of 8 MiB were acknowledged on a disk that cannot hold them");
}

fn assert_all_there(files: &[(PathBuf, u64)]) {
    for (path, key) in files {
        assert!(fs::read(path).unwrap() == bytes(*key, 8 * MIB as usize), "{} changed", path.display());
    }
}

fn fill_delete_and_fill_again(mount: &mut Mount, limit: u64) {
    let files = fill_up(mount, 1000, limit);
    println!("{} MiB were acknowledged before the disk was full", files.len() * 8);
    assert!(files.len() >= 8, "only {} files fitted", files.len());
    assert_all_there(&files);
    mount.crash();
    assert_all_there(&files);

    let (gone, kept) = files.split_at(files.len() / 2);
    for (path, _) in gone {
        fs::remove_file(path).expect("deleting works on a full disk");
    }
    mount.wait_for("space", "available_bytes", |available| available > gone.len() as u64 * 7 * MIB);
    for number in 0..gone.len() as u64 / 2 {
        let written = write_synced(&mount.join(format!("again-{number}")), 5000 + number, 8 * MIB as usize);
        assert!(written.is_ok(), "file {number}: {written:?} with {:#}", mount.stats()["space"]);
    }
    assert_all_there(kept);
    mount.check();
    assert_all_there(kept);
}

#[test]
fn a_full_volume_reports_it_keeps_what_it_acknowledged_and_works_again_after_deleting() {
    let mut mount = Mount::new("256M");
    fill_delete_and_fill_again(&mut mount, 33);
}

#[test]
fn a_volume_that_was_full_is_synced_without_an_error_once_files_are_deleted() {
    let mount = Mount::new("64M");
    for round in 0..3 {
        let files = fill_up(&mount, 100 * round, 12);
        files.iter().for_each(|(path, _)| fs::remove_file(path).unwrap());
        let (code, said) = ends(Command::new(oncefs()).arg("sync").arg(mount.dir()));
        assert_eq!(code, 0, "round {round}: {said}");
        mount.wait_for("space", "available_bytes", |available| available > 40 * MIB);
    }
}

#[test]
fn a_full_host_is_reported_and_survived_like_a_full_volume() {
    let disk = HostDisk::new(640 * MIB);
    let mut mount = Mount::on(&disk.path(), "4G", &[]);
    fill_delete_and_fill_again(&mut mount, 80);
}

#[test]
fn a_host_filled_by_somebody_else_loses_nothing_acknowledged() {
    let disk = HostDisk::new(640 * MIB);
    let mut mount = Mount::on(&disk.path(), "4G", &[]);
    write_synced(&mount.join("kept"), 1, 32 * MIB as usize).unwrap();

    let ballast = disk.path().join("somebody-else");
    let mut other = File::create(&ballast).unwrap();
    while other.write_all(&bytes(2, MIB as usize)).is_ok() {}
    let _ = other.sync_all();
    let error = write_until_error(&mount).expect_err("the host is full");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");

    drop(other);
    fs::remove_file(&ballast).unwrap();
    mount.remount();
    assert!(fs::read(mount.join("kept")).unwrap() == bytes(1, 32 * MIB as usize));
    write_synced(&mount.join("new"), 3, 32 * MIB as usize).expect("there is space again");
    mount.check();
}

fn write_until_error(mount: &Mount) -> io::Result<()> {
    for number in 0..64 {
        write_synced(&mount.join(format!("more-{number}")), 100 + number, 8 * MIB as usize)?;
    }
    Ok(())
}

#[test]
fn reserving_more_than_there_is_fails_and_a_reservation_can_be_written_on_a_full_disk() {
    let mount = Mount::new("256M");
    let reserved = File::create(mount.join("reserved")).unwrap();
    let error = sys::fallocate(&reserved, 0, 0, 4096 * MIB).expect_err("4 GiB cannot be promised");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    sys::fallocate(&reserved, 0, 0, 32 * MIB).unwrap();
    fill_up(&mount, 2000, 33);
    reserved.write_all_at(&bytes(7, 32 * MIB as usize), 0).unwrap();
    reserved.sync_all().expect("reserved space is there when it is needed");
    assert!(fs::read(mount.join("reserved")).unwrap() == bytes(7, 32 * MIB as usize));
}

#[test]
fn a_volume_that_is_all_reserved_opens_again_after_its_clones_were_cut() {
    let mut mount = Mount::new("256M");
    let source = mount.join("source");
    fs::write(&source, bytes(1, 4096)).unwrap();
    let from = File::open(&source).unwrap();
    let clone = |number| {
        let path = mount.join(format!("clone-{number}"));
        sys::copy_range_all(&from, 0, &File::create(&path).unwrap(), 0, 4096).unwrap();
        path
    };
    let clones: Vec<PathBuf> = (0..400).map(clone).collect();
    let space = sys::space(&mount.dir()).unwrap();
    let reserved = File::create(mount.join("reserved")).unwrap();
    sys::fallocate(&reserved, 0, 0, space.f_bavail * space.f_frsize).unwrap();
    let cut = |path: &PathBuf| File::options().write(true).open(path).and_then(|file| file.set_len(100));
    let refused: Vec<i32> = clones.iter().filter_map(|path| cut(path).err()?.raw_os_error()).collect();
    assert!(!refused.is_empty() && refused.iter().all(|errno| *errno == libc::ENOSPC), "{refused:?}");
    drop((from, reserved));
    mount.remount();
    fs::remove_file(mount.join("reserved")).expect("deleting works on a full disk");
    mount.wait_for("space", "available_bytes", |available| available > 100 * MIB);
    write_synced(&mount.join("new"), 7, 8 * MIB as usize).unwrap();
    mount.check();
}

/// A host disk that others fill, with a volume of five files of 16 MiB on it, unmounted.
fn volume_on_a_host_of(bytes: u64) -> (HostDisk, Mount) {
    let disk = HostDisk::new(bytes);
    let mut mount = Mount::on(&disk.path(), "2G", &[]);
    for number in 0..5 {
        write_synced(&mount.join(format!("file-{number}")), number, 16 * MIB as usize).unwrap();
    }
    mount.umount();
    (disk, mount)
}

/// Takes everything that the host has left, to the last block.
fn fill_host(disk: &HostDisk, name: &str) -> PathBuf {
    let path = disk.path().join(name);
    let mut other = File::create(&path).unwrap();
    for piece in [MIB as usize, 4096, 512] {
        while other.write_all(&bytes(2, piece)).is_ok() && other.sync_data().is_ok() {}
    }
    path
}

fn ballast_bytes(mount: &Mount) -> u64 {
    fs::metadata(mount.volume().join("ballast")).unwrap().len()
}

fn ends(command: &mut Command) -> (i32, String) {
    let output = command.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn oncefs_says(arguments: &[&str], volume: &Path, more: &[&Path]) -> (i32, String) {
    ends(Command::new(oncefs()).args(arguments).arg(volume).args(more))
}

#[test]
fn on_a_full_host_a_volume_is_checked_mounted_and_emptied() {
    let (disk, mut mount) = volume_on_a_host_of(400 * MIB);
    let other = fill_host(&disk, "somebody-else");
    for check in ["-n", "-p", "-y"] {
        let (code, said) = oncefs_says(&["fsck", check], &mount.volume(), &[]);
        assert_eq!(code, 0, "fsck {check}: {said}");
    }
    mount.mount();
    let refused = File::create(mount.join("new")).expect_err("what the host has left is for deleting");
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
    for number in 0..4 {
        fs::remove_file(mount.join(format!("file-{number}"))).expect("deleting works on a full host");
    }
    mount.remount();
    assert!(fs::read(mount.join("file-4")).unwrap() == bytes(4, 16 * MIB as usize));
    assert_eq!(fs::read_dir(mount.dir()).unwrap().count(), 1);
    assert!(ballast_bytes(&mount) < 32 * MIB, "the ballast was used");

    fs::remove_file(other).unwrap();
    eventually("the ballast comes back", || ballast_bytes(&mount) >= 32 * MIB);
    write_synced(&mount.join("new"), 9, 16 * MIB as usize).expect("there is space again");
    mount.check();
}

#[test]
fn without_the_ballast_a_volume_can_be_read_and_says_what_to_free() {
    let (disk, mut mount) = volume_on_a_host_of(400 * MIB);
    File::options().write(true).open(mount.volume().join("ballast")).unwrap().set_len(0).unwrap();
    let other = fill_host(&disk, "somebody-else");
    let volume = mount.volume();
    let dir = mount.dir();
    for (arguments, more) in [(&["mount"][..], vec![dir.as_path()]), (&["fsck", "-y"], Vec::new())] {
        let (code, said) = oncefs_says(arguments, &volume, &more);
        assert_ne!(code, 0, "{said}");
        let wanted = ["is full: free at least", volume.to_str().unwrap(), "-o ro", "fsck -n"];
        wanted.iter().for_each(|word| assert!(said.contains(word), "no '{word}': {said}"));
    }
    let (code, said) = oncefs_says(&["fsck", "-n"], &volume, &[]);
    assert_eq!(code, 0, "{said}");
    mount.set_options(&["ro"]);
    mount.mount();
    for number in 0..5 {
        assert!(fs::read(mount.join(format!("file-{number}"))).unwrap() == bytes(number, 16 * MIB as usize));
    }
    mount.umount();

    let (_, said) = oncefs_says(&["fsck", "-y"], &volume, &[]);
    let mebibytes: u64 = said.split("at least ").nth(1).unwrap().split(" MiB").next().unwrap().parse().unwrap();
    let other = File::options().write(true).open(other).unwrap();
    other.set_len(other.metadata().unwrap().len() - mebibytes * MIB).unwrap();
    mount.set_options(&[]);
    mount.mount();
    fs::remove_file(mount.join("file-0")).expect("what was asked for is enough");
    mount.check();
}

#[test]
fn a_mount_whose_host_others_fill_deletes_and_ends_cleanly() {
    let (disk, mut mount) = volume_on_a_host_of(400 * MIB);
    mount.mount();
    write_synced(&mount.join("late"), 7, MIB as usize).unwrap();
    fill_host(&disk, "somebody-else");
    for number in 0..5 {
        fs::remove_file(mount.join(format!("file-{number}"))).expect("deleting works on a full host");
    }
    mount.umount();
    mount.assert_clean();
    mount.mount();
    assert!(fs::read(mount.join("late")).unwrap() == bytes(7, MIB as usize));
}

#[test]
fn df_shows_an_empty_volume_as_empty_also_on_a_small_host() {
    let disk = HostDisk::new(400 * MIB);
    let mount = Mount::on(&disk.path(), "2G", &[]);
    let (space, host) = (sys::space(&mount.dir()).unwrap(), sys::space(&disk.path()).unwrap());
    let (total, free) = (space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize);
    assert!(total <= host.f_bavail * host.f_frsize, "{total} bytes do not fit on the host");
    assert!(free > 100 * MIB && total - free < 4 * MIB, "{free} of {total} bytes are free");
    write_synced(&mount.join("file"), 1, 32 * MIB as usize).unwrap();
    let after = sys::space(&mount.dir()).unwrap();
    let used = (after.f_blocks - after.f_bfree) * after.f_frsize;
    assert!((32 * MIB..40 * MIB).contains(&used), "{used} bytes are used");
}

/// Times of last modification and change, in nanoseconds.
fn times(path: &Path) -> (i64, i64) {
    let found = fs::metadata(path).unwrap();
    (found.mtime() * 1_000_000_000 + found.mtime_nsec(), found.ctime() * 1_000_000_000 + found.ctime_nsec())
}

#[test]
fn on_a_nearly_full_volume_every_write_sets_the_times() {
    let mut mount = Mount::new("256M");
    let early = File::create(mount.join("early")).unwrap();
    leave_free(&mount, 3 * MIB);
    let late = File::create(mount.join("late")).unwrap();
    let mut direct = File::options();
    let direct = direct.write(true).create_new(true).custom_flags(libc::O_DIRECT).open(mount.join("direct")).unwrap();
    let mut block = sys::Mapping::new(&late_block(&mount), 4096, libc::MAP_PRIVATE).unwrap();
    let files = [("early", early), ("late", late), ("direct", direct)];
    for round in 0..3_u8 {
        for (name, file) in &files {
            let path = mount.join(name);
            let before = times(&path);
            std::thread::sleep(Duration::from_millis(20));
            block.bytes().fill(round);
            file.write_all_at(block.bytes(), 0).unwrap();
            let after = times(&path);
            assert!(before.0 < after.0 && before.1 < after.1, "{name}, round {round}: {before:?}, then {after:?}");
        }
    }
    let seen: Vec<_> = files.iter().map(|(name, _)| times(&mount.join(name))).collect();
    drop((files, block));
    mount.remount();
    let kept: Vec<_> = ["early", "late", "direct"].iter().map(|name| times(&mount.join(name))).collect();
    assert_eq!(kept, seen, "after a remount");
}

/// A file of one block to map.
fn late_block(mount: &Mount) -> File {
    fs::write(mount.join("block"), [0; 4096]).unwrap();
    File::options().read(true).write(true).open(mount.join("block")).unwrap()
}

/// Writes until an error comes, without syncing; returns it with the bytes that write(2) took.
fn write_until_refused(file: &File, key: u64, step: usize) -> (u64, io::Error) {
    let mut taken = 0;
    while taken < GIB {
        match file.write_at(&bytes(key + taken, step), taken) {
            Ok(written) => taken += written as u64,
            Err(error) => return (taken, error),
        }
    }
    panic!("write(2) took 1 GiB on a volume that is smaller");
}

/// Everything that write(2) took is there, and only what it did not take is reported as an error by nobody else.
fn assert_taken(mount: &mut Mount, name: &str, file: File, key: u64, step: usize) {
    let (taken, error) = write_until_refused(&file, key, step);
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{name}: {error}");
    file.sync_all().unwrap_or_else(|error| panic!("{name}: write(2) took what did not fit: {error}"));
    drop(file);
    mount.remount();
    let kept = fs::read(mount.join(name)).unwrap();
    assert!(kept.len() as u64 >= taken, "{name}: {taken} bytes were taken, {} are there", kept.len());
    for at in (0..taken).step_by(step) {
        let len = step.min((taken - at) as usize);
        let is_there = kept[at as usize..at as usize + len] == bytes(key + at, step)[..len];
        assert!(is_there, "{name}: {len} bytes at {at} are not there");
    }
}

#[test]
fn write_itself_reports_a_full_volume_also_to_a_file_that_was_opened_before() {
    for (size, step) in [("64M", 1 << 20), ("256M", 1 << 20), ("256M", 64 << 10)] {
        let mut mount = Mount::new(size);
        let file = File::create(mount.join("file")).unwrap();
        assert_taken(&mut mount, "file", file, 1 << 40, step);
        fs::remove_file(mount.join("file")).expect("deleting works on a full disk");
        mount.check();
    }
}

#[test]
fn once_there_is_room_again_writes_are_buffered_again() {
    let mount = Mount::new("256M");
    assert!(!mount.is_synchronous());
    leave_free(&mount, 3 * MIB);
    fs::remove_file(mount.join("rest")).unwrap();
    eventually("writes are buffered again", || !mount.is_synchronous());
}
