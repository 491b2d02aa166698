//! Limits a block device to the speed of a slow disk, with cgroup v1's blkio limits in the root group.
//!
//! Limits in the root group also bind write-back of buffered data, whose requests belong to no other group.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{During, Failure, Result, tell};

/// The limits of a device.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes written per second.
    pub write_bytes: u64,
    /// Bytes read per second.
    pub read_bytes: u64,
    /// Write requests per second.
    pub write_requests: u64,
    /// Read requests per second.
    pub read_requests: u64,
}

/// A slow disk: 40 MB/s and 3,000 requests/s for writes, 100 MB/s and 4,000 requests/s for reads.
pub const SLOW_DISK: Limits =
    Limits { write_bytes: 40_000_000, read_bytes: 100_000_000, write_requests: 3_000, read_requests: 4_000 };

impl Limits {
    fn settings(self) -> [(&'static str, u64); 4] {
        [
            ("blkio.throttle.write_bps_device", self.write_bytes),
            ("blkio.throttle.read_bps_device", self.read_bytes),
            ("blkio.throttle.write_iops_device", self.write_requests),
            ("blkio.throttle.read_iops_device", self.read_requests),
        ]
    }
}

/// Limits in force on some devices; dropping it lifts them.
pub struct Throttle {
    group: PathBuf,
    limits: Limits,
    devices: Vec<String>,
}

impl Throttle {
    /// Puts the limits on every device, given as `MAJOR:MINOR`.
    pub fn apply(limits: Limits, devices: Vec<String>) -> Result<Throttle> {
        let throttle = Throttle { group: root_group()?, limits, devices };
        throttle.set(|limit| limit)?;
        Ok(throttle)
    }

    fn set(&self, limit: impl Fn(u64) -> u64) -> Result<()> {
        for device in &self.devices {
            for (file, value) in self.limits.settings() {
                let path = self.group.join(file);
                fs::write(&path, format!("{device} {}", limit(value)))
                    .during(|| format!("cannot set {}", path.display()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // A limit of 0 removes the rule.
        if let Err(error) = self.set(|_| 0) {
            tell(&format!("oncefs-bench: {error}"));
        }
    }
}

/// Lifts the limits of a device, given as `MAJOR:MINOR`, that a killed run left.
pub fn lift(device: &str) {
    // Without the controller there are none.
    if let Ok(group) = root_group() {
        drop(Throttle { group, limits: SLOW_DISK, devices: vec![device.to_owned()] });
    }
}

fn root_group() -> Result<PathBuf> {
    let group = Path::new("/sys/fs/cgroup/blkio");
    if !group.join("blkio.throttle.write_bps_device").exists() {
        return Err(Failure::new(
            "--throttled needs cgroup v1's blkio controller at /sys/fs/cgroup/blkio: mount it there",
        ));
    }
    Ok(group.to_owned())
}
