//! Little space and little memory: errors arrive in time, acknowledged data stays, deleting works, and no call hangs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{BINARY, Place, Run, content, oncefs};
use oncefs_toolbox::waiting::PATIENCE;

const MIB: usize = 1 << 20;

/// Writes and syncs. Ok means that the data was acknowledged.
fn write_synced(path: &Path, data: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(data)?;
    file.sync_all()
}

/// Fills the mount with files of 8 MiB until one is refused. Returns the seeds of the acknowledged ones.
fn fill(place: &Place) -> Vec<u64> {
    let mut kept = Vec::new();
    for seed in 100..1000 {
        match write_synced(&place.file(&format!("f{seed}")), &content(seed, 8 * MIB)) {
            Ok(()) => kept.push(seed),
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "{e}");
                return kept;
            }
        }
    }
    panic!("the mount takes more than it can hold");
}

#[track_caller]
fn assert_kept(place: &Place, seeds: &[u64]) {
    for &seed in seeds {
        assert!(fs::read(place.file(&format!("f{seed}"))).unwrap() == content(seed, 8 * MIB), "f{seed} changed");
    }
}

/// Fills the mount, and requires that it works again after deletions. A writer waits for deletions, but not forever: a
/// busy daemon may get closed files and freed blocks later than that.
fn goes_through_being_full(place: &Place, files_min: usize) {
    let kept = fill(place);
    assert!(kept.len() >= files_min, "only {} files fit", kept.len());
    assert_kept(place, &kept);
    for seed in &kept[..kept.len() / 2] {
        fs::remove_file(place.file(&format!("f{seed}"))).expect("deleting works on a full disk");
    }
    let rest = &kept[kept.len() / 2..];
    let deadline = Instant::now() + PATIENCE;
    while let Err(e) = write_synced(&place.file("after"), &content(1, 4 * MIB)) {
        assert!(Instant::now() < deadline, "deleting makes no room: {e}");
        std::thread::sleep(Duration::from_millis(100));
    }
    place.umount().succeeds();
    oncefs(&["fsck", "--data", place.volume_str()]).succeeds();
    place.mount(&[]).succeeds();
    assert_kept(place, rest);
    assert!(fs::read(place.file("after")).unwrap() == content(1, 4 * MIB));
}

#[test]
fn a_full_volume_says_so_keeps_what_it_acknowledged_and_recovers_by_deleting() {
    let place = Place::new();
    oncefs(&["mkfs", "--size", "128M", place.volume_str()]).succeeds();
    place.mount(&[]).succeeds();
    goes_through_being_full(&place, 12);
}

#[test]
fn a_full_host_says_so_keeps_what_was_acknowledged_and_recovers_by_deleting() {
    let place = Place::new();
    let host = Host::with(&place, 512);
    oncefs(&["mkfs", "--size", "2G", place.volume_str()]).succeeds();
    place.mount(&[]).succeeds();
    goes_through_being_full(&place, 16);
    place.umount().succeeds();
    drop(host);
}

/// A small ext4 that hosts the volume.
struct Host {
    dir: PathBuf,
}

impl Host {
    fn with(place: &Place, mib: u64) -> Self {
        let (image, dir) = (place.str("image"), place.volume());
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        Run::of(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-O", "^has_journal", &image])).succeeds();
        fs::create_dir(&dir).unwrap();
        Run::of(Command::new("mount").args(["-o", "loop", &image]).arg(&dir)).succeeds();
        fs::remove_dir(dir.join("lost+found")).unwrap();
        Self { dir }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        Run::of(Command::new("umount").args(["-i", "-l"]).arg(&self.dir));
    }
}

#[test]
fn heavy_writing_in_a_small_memory_cgroup_comes_to_an_end() {
    let place = Place::with_volume();
    let group = MemoryGroup::of(160 * MIB);
    let (volume, mnt) = (place.volume_str(), place.mnt_str());
    // Daemon and writer share the limit, so reclaim in one waits for writeback by the other.
    let script = format!(
        "echo $$ >{}/cgroup.procs
         {BINARY} mount {volume} {mnt} --memory 32M
         dd if=/dev/urandom of={mnt}/file bs=1M count=200 conv=fsync status=none
         md5sum <{mnt}/file
         echo 1 >/proc/sys/vm/drop_caches
         md5sum <{mnt}/file
         {BINARY} umount {mnt}",
        group.dir.display()
    );
    let run = Run::of(Command::new("timeout").args(["120", "sh", "-ec", &script])).succeeds();
    let sums: Vec<&str> = run.out.lines().collect();
    assert_eq!((sums.len(), sums[0]), (2, sums[1]));
}

/// A memory cgroup, version 1 or 2.
struct MemoryGroup {
    dir: PathBuf,
}

impl MemoryGroup {
    fn of(bytes: usize) -> Self {
        let name = format!("oncefs-test-{}", std::process::id());
        let (root, limit) = match Path::new("/sys/fs/cgroup/memory").is_dir() {
            true => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            false => ("/sys/fs/cgroup", "memory.max"),
        };
        let dir = Path::new(root).join(name);
        fs::create_dir(&dir).expect("this test needs a memory cgroup");
        fs::write(dir.join(limit), bytes.to_string()).unwrap();
        Self { dir }
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Empty once the daemon is gone. A failed test may leave it.
        let _ = fs::remove_dir(&self.dir);
    }
}
