//! Faults below real mounts: a device that fails, one that is slow, a host that goes away, limits of the process.
//! A program gets an errno, or the volume is read-only and says so once; nothing hangs; afterwards what was synced is
//! there. Every operation one by one, in memory: `fault_tests` of the engine. Full hosts: `full_disk`; memory: `cgroup`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use oncefs_system_tests::{HostDisk, Mount, bytes, elapsed, run, test_dir};
use tempfile::TempDir;

const MIB: usize = 1 << 20;
/// A program that waits for longer than this is held to hang. The slowest device here needs a tenth of it.
const HANG: Duration = Duration::from_secs(120);

fn write_synced(path: &Path, key: u64, len: usize) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&bytes(key, len))?;
    file.sync_all()
}

/// Writes until an error comes, and gives it.
fn write_until_error(mount: &Mount, files: u64) -> io::Error {
    let start = Instant::now();
    for number in 0..files {
        if let Err(error) = write_synced(&mount.join(format!("more-{number}")), 100 + number, 4 * MIB) {
            assert!(start.elapsed() < HANG, "the error came after {:?}", start.elapsed());
            return error;
        }
    }
    panic!("{files} files were acknowledged with a fault below\n{}", mount.said());
}

/// What a fault may lead to: no panic, and at most one line on it.
fn assert_said_at_most_once(mount: &Mount) {
    let said = mount.said();
    assert!(!said.contains("panicked"), "{said}");
    let lines = said.lines().filter(|line| line.contains("is read-only from now on")).count();
    println!("the daemon said:\n{said}");
    assert!(lines <= 1, "the same was said {lines} times");
}

/// The fault is gone: what was synced is there, fsck is content, and new files can be written.
fn assert_recovers(mount: &mut Mount, kept: &[(&str, u64, usize)]) {
    mount.mount();
    for (name, key, len) in kept {
        assert!(fs::read(mount.join(name)).unwrap() == bytes(*key, *len), "{name} changed");
    }
    write_synced(&mount.join("afterwards"), 99, MIB).unwrap();
    mount.check();
}

/// A loop device whose file lies on a small tmpfs: when that is full, writing to the device fails with ENOSPC.
struct FullDevice {
    scratch: TempDir,
    device: PathBuf,
}

impl FullDevice {
    fn new(device_mib: u64, tmpfs_mib: u64) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={tmpfs_mib}m"), "tmpfs"])
            .arg(scratch.path()));
        let image = scratch.path().join("image");
        File::create(&image).unwrap().set_len(device_mib << 20).unwrap();
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&image)).trim().into();
        Self { scratch, device }
    }

    fn filler(&self) -> PathBuf {
        self.scratch.path().join("filler")
    }

    /// From now on what the device has no space for fails.
    fn fail(&self) {
        let mut filler = File::create(self.filler()).unwrap();
        while filler.write_all(&[1; MIB]).is_ok() {}
    }

    fn mend(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for FullDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
        let _ = Command::new("umount").arg("--lazy").arg(self.scratch.path()).status();
    }
}

/// A loop device on memory that can be sealed: then each write to the device fails with EIO.
struct BrokenDevice {
    memory: File,
    scratch: TempDir,
    device: PathBuf,
}

impl BrokenDevice {
    fn new(device_mib: u64) -> Self {
        // SAFETY: the name ends with NUL; the new descriptor belongs to nobody else.
        let memory = unsafe {
            let fd = libc::memfd_create(c"oncefs-test".as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC);
            assert!(fd >= 0, "memfd_create: {}", io::Error::last_os_error());
            File::from_raw_fd(fd)
        };
        memory.set_len(device_mib << 20).unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
        let device = run(Command::new("losetup").args(["--find", "--show", &path])).trim().into();
        Self { memory, scratch: tempfile::tempdir_in(test_dir()).unwrap(), device }
    }

    fn fail(&self) {
        // SAFETY: fcntl takes a number here.
        let sealed = unsafe { libc::fcntl(self.memory.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) };
        assert_eq!(sealed, 0, "sealing: {}", io::Error::last_os_error());
    }

    /// What is on the device goes to one that works, under the same name.
    fn mend(&self) {
        let image = self.scratch.path().join("image");
        let mut from = &self.memory;
        io::copy(&mut from, &mut File::create(&image).unwrap()).unwrap();
        run(Command::new("losetup").arg("--detach").arg(&self.device));
        run(Command::new("losetup").arg(&self.device).arg(&image));
    }
}

impl Drop for BrokenDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

#[test]
fn a_device_that_takes_no_more_writes_makes_the_volume_read_only_and_loses_nothing_acknowledged() {
    let device = BrokenDevice::new(128);
    let mut mount = Mount::with_data_on(&device.device);
    write_synced(&mount.join("kept"), 1, 16 * MIB).unwrap();
    device.fail();
    let error = write_until_error(&mount, 16);
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "a write that fails is the writer's: {error}");
    // Many small writes are acknowledged and then written together: that this fails is the volume's.
    let scattered = File::create(mount.join("scattered")).unwrap();
    for block in 0..60u64 {
        scattered.write_all_at(&bytes(200 + block, 4096), block * 3 * 4096).unwrap();
    }
    assert_eq!(scattered.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    drop(scattered);
    let refused = fs::create_dir(mount.join("refused")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS), "{refused}");
    assert!(fs::read(mount.join("kept")).unwrap() == bytes(1, 16 * MIB), "reading goes on");
    mount.end();
    assert_said_at_most_once(&mount);
    assert!(mount.said().contains("is read-only from now on"));
    device.mend();
    assert_recovers(&mut mount, &[("kept", 1, 16 * MIB)]);
}

#[test]
fn a_device_without_space_of_its_own_is_an_error_and_loses_nothing_acknowledged() {
    let device = FullDevice::new(128, 96);
    let mut mount = Mount::with_data_on(&device.device);
    write_synced(&mount.join("kept"), 1, 16 * MIB).unwrap();
    device.fail();
    let error = write_until_error(&mount, 16);
    assert!(matches!(error.raw_os_error(), Some(libc::EIO | libc::EROFS | libc::ENOSPC)), "{error}");
    assert!(fs::read(mount.join("kept")).unwrap() == bytes(1, 16 * MIB), "reading goes on");
    mount.end();
    assert_said_at_most_once(&mount);
    device.mend();
    assert_recovers(&mut mount, &[("kept", 1, 16 * MIB)]);
}

/// Bytes per second that may be written to a device; lifted when dropped.
struct Slow {
    number: String,
}

impl Slow {
    const FILE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

    fn new(device: &Path, bytes_per_second: u64) -> Self {
        let id = fs::metadata(device).unwrap().rdev();
        let slow = Self { number: format!("{}:{}", libc::major(id), libc::minor(id)) };
        slow.set(bytes_per_second);
        slow
    }

    fn set(&self, bytes_per_second: u64) {
        let set = fs::write(Self::FILE, format!("{} {bytes_per_second}", self.number));
        set.unwrap_or_else(|error| panic!("the blkio controller of cgroup v1 is needed, {}: {error}", Self::FILE));
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[test]
fn a_device_that_takes_seconds_for_a_commit_is_slow_and_nothing_else() {
    let disk = HostDisk::new(640 * MIB as u64);
    let mut mount = Mount::on(&disk.path(), "256M", &[]);
    write_synced(&mount.join("before"), 1, MIB).unwrap();
    let slow = Slow::new(disk.device(), MIB as u64);
    let (before, path) = (mount.join("before"), mount.join("slow"));
    let writer = std::thread::spawn(move || elapsed("4 MiB, synced", || write_synced(&path, 2, 4 * MIB).unwrap()).1);
    let mut asked = 0;
    while !writer.is_finished() {
        assert!(fs::metadata(&before).is_ok());
        asked += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    let time = writer.join().unwrap();
    assert!(time > Duration::from_secs(1), "the device was not slow: {time:?}");
    assert!(time < HANG, "{time:?}");
    assert!(asked > 1, "others are served meanwhile");
    File::create(mount.join("unsynced")).unwrap().write_all(&bytes(3, 2 * MIB)).unwrap();
    elapsed("unmounting", || mount.end());
    drop(slow);
    assert_said_at_most_once(&mount);
    assert_recovers(&mut mount, &[("before", 1, MIB), ("slow", 2, 4 * MIB), ("unsynced", 3, 2 * MIB)]);
}

/// Sets a limit of the running daemon, as an administrator would.
fn limit(mount: &Mount, option: &str, value: u64) {
    run(Command::new("prlimit").arg(format!("--pid={}", mount.pid())).arg(format!("--{option}={value}:")));
}

#[test]
fn a_limit_on_the_size_of_files_ends_no_daemon() {
    let mut mount = Mount::new("256M");
    write_synced(&mount.join("kept"), 1, 8 * MIB).unwrap();
    limit(&mount, "fsize", 16 * MIB as u64);
    let error = write_until_error(&mount, 32);
    println!("writing beyond the limit: {error}");
    assert!(fs::read(mount.join("kept")).unwrap() == bytes(1, 8 * MIB), "reading goes on");
    mount.end();
    assert_said_at_most_once(&mount);
    assert_recovers(&mut mount, &[("kept", 1, 8 * MIB)]);
}

#[test]
fn a_daemon_without_file_descriptors_loses_nothing_acknowledged() {
    let mut mount = Mount::new("256M");
    write_synced(&mount.join("kept"), 1, 8 * MIB).unwrap();
    let open = fs::read_dir(format!("/proc/{}/fd", mount.pid())).unwrap().count() as u64;
    limit(&mount, "nofile", open);
    let mut kept = vec![("kept", 1, 8 * MIB)];
    // The log and the data area are open: a commit needs no other file. A checkpoint may.
    match write_synced(&mount.join("later"), 2, 8 * MIB) {
        Ok(()) => kept.push(("later", 2, 8 * MIB)),
        Err(error) => println!("writing without descriptors: {error}"),
    }
    mount.end();
    assert_said_at_most_once(&mount);
    assert_recovers(&mut mount, &kept);
}

#[test]
fn a_host_that_goes_away_takes_nothing_acknowledged_along() {
    let disk = HostDisk::new(640 * MIB as u64);
    let mut mount = Mount::on(&disk.path(), "256M", &[]);
    write_synced(&mount.join("kept"), 1, 8 * MIB).unwrap();
    // The mount point of oncefs lies on the disk, so it goes out of sight with it; who is inside stays.
    let inside = File::create(mount.join("inside")).unwrap();
    run(Command::new("umount").arg("--lazy").arg(disk.path()));
    let mut writer = &inside;
    let written = writer.write_all(&bytes(2, 8 * MIB)).and_then(|()| inside.sync_all());
    println!("writing when the host is gone: {written:?}");
    drop(inside);
    run(Command::new("mount").args(["-t", "ext4"]).arg(disk.device()).arg(disk.path()));
    mount.terminate();
    assert_said_at_most_once(&mount);
    let mut kept = vec![("kept", 1, 8 * MIB)];
    if written.is_ok() {
        kept.push(("inside", 2, 8 * MIB));
    }
    assert_recovers(&mut mount, &kept);
}
