//! A host disk of its own for a volume: a loop device with ext4, whose block layer counts what reaches it.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncefs_toolbox::waiting::{PATIENCE, eventually};
use tempfile::TempDir;

use crate::{run, sys};

/// Bytes in a block.
pub const BLOCK: u64 = 4096;

/// Where tests put their files: on a real disk, since memory file systems lack O_DIRECT and hide costs.
pub fn test_dir() -> PathBuf {
    std::env::var_os("ONCEFS_TEST_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// An ext4 on a loop device, unmounted and removed when dropped.
pub struct HostDisk {
    scratch: TempDir,
    device: String,
}

impl HostDisk {
    /// Makes and mounts a disk of `bytes`.
    pub fn new(bytes: u64) -> Self {
        let scratch = tempfile::Builder::new().prefix("oncefs-host-").tempdir_in(test_dir()).unwrap();
        let image = scratch.path().join("image");
        File::create(&image).unwrap().set_len(bytes).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(&image));
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&image)).trim().to_owned();
        let disk = HostDisk { scratch, device };
        fs::create_dir(disk.path()).unwrap();
        run(Command::new("mount").args(["-t", "ext4"]).arg(&disk.device).arg(disk.path()));
        disk
    }

    /// Where the disk is mounted.
    pub fn path(&self) -> PathBuf {
        self.scratch.path().join("disk")
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        Path::new(&self.device)
    }

    /// Bytes written to the device since it was made, once everything written so far has reached it.
    pub fn bytes_written(&self) -> u64 {
        sys::sync_file_system(&self.path()).unwrap();
        let name = Path::new(&self.device).file_name().unwrap().to_str().unwrap();
        let line = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        let sectors: u64 = line.split_whitespace().nth(6).unwrap().parse().unwrap();
        sectors * 512
    }

    /// From now on nothing reaches the device, and what was not flushed is lost: the file system is shut down without a
    /// flush of its journal (`EXT4_IOC_SHUTDOWN`).
    pub fn lose_power(&self) {
        const SHUTDOWN: libc::c_ulong = 0x8004_587d;
        const NO_LOG_FLUSH: u32 = 2;
        let (root, mut flags) = (File::open(self.path()).unwrap(), NO_LOG_FLUSH);
        // SAFETY: the descriptor is open, and the argument is a number that outlives the call.
        let done = unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN, &raw mut flags) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Mounts it anew after [`HostDisk::lose_power`], once nothing uses it any more.
    pub fn power_is_back(&self) {
        eventually("nothing uses the disk", || Command::new("umount").arg(self.path()).status().unwrap().success());
        run(Command::new("mount").args(["-t", "ext4"]).arg(&self.device).arg(self.path()));
    }

    /// Bytes of the host that its files occupy.
    pub fn bytes_used(&self) -> u64 {
        let space = sys::space(&self.path()).unwrap();
        (space.f_blocks - space.f_bfree) * space.f_frsize
    }
}

impl Drop for HostDisk {
    fn drop(&mut self) {
        let start = Instant::now();
        // Children of other tests have what this test has open, until they execute a program or end.
        while sys::is_mounted(&self.path()) && start.elapsed() < PATIENCE {
            if !Command::new("umount").arg(self.path()).status().is_ok_and(|status| status.success()) {
                thread::sleep(Duration::from_millis(10));
            }
        }
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}
