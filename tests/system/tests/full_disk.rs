//! Full disks: oncefs itself full, and the host below it full. An error comes with the write or at the latest
//! with fsync or close, what was acknowledged stays, deleting works, and then writing works again.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails, and the panic says where")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncefs_system_tests::{HostDisk, Mount, bytes, oncefs, sys};

const MIB: u64 = 1 << 20;

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
    mount.wait_for("space", "available_bytes", 60, |available| available > gone.len() as u64 * 7 * MIB);
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
    std::os::unix::fs::FileExt::write_all_at(&reserved, &bytes(7, 32 * MIB as usize), 0).unwrap();
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
    mount.wait_for("space", "available_bytes", 60, |available| available > 100 * MIB);
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
    let patience = Instant::now() + Duration::from_secs(10);
    while ballast_bytes(&mount) < 32 * MIB {
        assert!(Instant::now() < patience, "the ballast does not come back");
        thread::sleep(Duration::from_millis(100));
    }
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
    let wanted: u64 = said.split("at least ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let other = File::options().write(true).open(other).unwrap();
    other.set_len(other.metadata().unwrap().len() - wanted).unwrap();
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
