//! The figures of a mounted volume at one moment: its daemon's answers and the host's free space.

use std::io;
use std::path::{Path, PathBuf};

use oncefs_engine::{BLOCK_BYTES, DedupStatus, Report, ScrubStatus};

use crate::control::answers::About;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{OrFail, Outcome, exit};
use crate::mounting::mount_table;
use crate::names::shown;
use crate::size::Size;

/// The reason why a volume became read-only, among the settings of a report.
const READ_ONLY_BECAUSE: &str = "read_only_because";

/// The number of writes that wait for room, among the figures of space of a report.
pub const WAITING_FOR_ROOM: &str = "waiting_for_room";

/// The number of writes that waited for room, and of those for which none came, among the figures of space of a report.
pub const WAITED_FOR_ROOM: &str = "waited_for_room";
pub const WAITED_IN_VAIN: &str = "waited_in_vain";

/// How much room disks leave to files, among the figures of space of a report.
pub const DISK_RESERVE_BYTES: &str = "disk_reserve_bytes";

/// Whether the pool with the volume's objects is full, among the figures of space of a report.
pub const POOL_FULL: &str = "pool_full";
/// The same for the pool of the data area alone.
pub const DATA_POOL_FULL: &str = "data_pool_full";

/// Whether the cluster with the volume's objects does not answer, among the figures of space of a report.
pub const CLUSTER_SILENT: &str = "cluster_silent";

/// Figures of one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The volume's directory.
    pub volume: PathBuf,
    /// Where it is mounted, if it still is.
    pub mount: Option<PathBuf>,
    /// Version of the daemon's program.
    pub program: String,
    /// Whether it was mounted read-only.
    pub read_only: bool,
    /// The error that made it read-only.
    pub read_only_because: Option<String>,
    /// The counts of the engine and the file system.
    pub report: Report,
    /// Out-of-line deduplication.
    pub worker: DedupStatus,
    /// The scrub.
    pub scrub: ScrubStatus,
    /// The file system that the volume's directory lies on.
    pub host: HostSpace,
}

/// The space of the host's file system, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostSpace {
    /// The total.
    pub size: u64,
    /// The space that can still be used.
    pub available: u64,
}

impl HostSpace {
    /// A note about a volume whose data, beyond what it has stored, finds no room here.
    pub fn too_small_for(&self, volume: &Path, missing_bytes: u64) -> Option<String> {
        let (volume, available) = (shown(volume), Size(self.available));
        (missing_bytes > self.available).then(|| {
            format!("note: the file system below {volume} has {available} free, and is full before the volume is")
        })
    }

    /// The space of the file system that a directory lies on.
    pub fn at(dir: &Path) -> io::Result<Self> {
        let found = rustix::fs::statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Self { size: bytes(found.f_blocks), available: bytes(found.f_bavail) })
    }
}

impl Snapshot {
    /// Asks the daemon.
    pub fn take(daemon: &Daemon) -> Outcome<Self> {
        let about: About = daemon.ask(Request::Version)?;
        let (worker, scrub) = (daemon.ask(Request::DedupStatus)?, daemon.ask(Request::ScrubStatus)?);
        let volume = daemon.volume.clone();
        let host = HostSpace::at(&volume).or_fail_doing(exit::FAILED, format!("cannot look at {}", shown(&volume)))?;
        let mount = mount_table::of_volume(&volume).or_fail(exit::FAILED)?.map(|mount| mount.dir);
        let snapshot = Self { volume, mount, host, worker, scrub, ..Self::default() };
        Ok(snapshot.with(about, daemon.ask(Request::Stats)?))
    }

    /// The snapshot with the daemon's description of itself and its counts.
    pub fn with(self, about: About, mut report: Report) -> Self {
        let read_only_because = report.settings.remove(READ_ONLY_BECAUSE);
        Self { program: about.program, read_only: about.read_only, read_only_because, report, ..self }
    }

    /// One of the figures of space, in bytes.
    pub fn space(&self, name: &str) -> u64 {
        self.report.space.get(name).copied().unwrap_or(0)
    }

    /// The bytes that the files hold.
    pub fn held_bytes(&self) -> u64 {
        self.space("mapped_bytes")
    }

    /// The bytes that the data area stores for them.
    pub fn stored_bytes(&self) -> u64 {
        self.space("used_bytes")
    }

    /// The bytes that sharing saves.
    pub fn saved_bytes(&self) -> u64 {
        saved_bytes(&self.report)
    }

    /// Held bytes divided by stored bytes. `None`: nothing is stored.
    pub fn ratio(&self) -> Option<f64> {
        (self.stored_bytes() > 0).then(|| self.held_bytes() as f64 / self.stored_bytes() as f64)
    }

    /// The bytes that the worker has still to examine, as far as it knows the blocks one by one.
    pub fn left_bytes(&self) -> u64 {
        self.worker.skipped_blocks * BLOCK_BYTES as u64
    }

    /// The name for messages: the mount point, otherwise the volume.
    pub fn place(&self) -> &Path {
        self.mount.as_deref().unwrap_or(&self.volume)
    }
}

/// Bytes that sharing saves.
pub fn saved_bytes(report: &Report) -> u64 {
    let bytes = |name: &str| report.space.get(name).copied().unwrap_or(0);
    bytes("mapped_bytes").saturating_sub(bytes("used_bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_larger_than_its_host_is_told_so() {
        let host = HostSpace { size: 100 << 30, available: 28 << 30 };
        let note = host.too_small_for(Path::new("/srv/volume"), 10 << 40).expect("10 TiB do not fit");
        assert_eq!(note, "note: the file system below /srv/volume has 28.0 GiB free, and is full before the volume is");
        assert_eq!(host.too_small_for(Path::new("/srv/volume"), 28 << 30), None);
    }
}
