//! Kernel settings for a mount: dirty limit, read-ahead.
//!
//! Owns the knobs of the mount's own backing device (BDI), which vanish with the mount. The global ones are the
//! transport's. The values come from pure functions, which are tested below. The rest writes them to sysfs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Read-ahead: as much as one READ carries, so that a sequential reader costs one request per MiB.
const READ_AHEAD_KIB: u64 = 1024;

/// The dirty limit's share of RAM. With a lower limit, random writes reach the daemon unmerged. Without a limit,
/// nothing is written back before the application calls fsync.
const DIRTY_SHARE_OF_RAM: u64 = 16;

/// On small machines a lower limit would split every write into single requests.
const DIRTY_BYTES_MIN: u64 = 32 * MIB;

/// Above this, merging does not improve measurably, and fsync only takes longer.
const DIRTY_BYTES_MAX: u64 = 1024 * MIB;

/// Near a full volume a writer still gets this much, to learn of ENOSPC by fsync or close.
const DIRTY_BYTES_FLOOR: u64 = MIB;

/// Room kept free of dirty data, for commits in flight and metadata until the next check of the volume.
const AVAILABLE_MARGIN: u64 = 16 * MIB;

/// The share of the rest that may be dirty. At the next check at least half of the room is left
/// ([`bytes_until_look`](crate::room_watch)), and what is dirty then, or sent and not answered, fits into half of that.
const DIRTY_SHARE_OF_ROOM: u64 = 4;

/// How many dirty bytes the kernel may hold for a mount, from the machine's RAM and the volume's free room.
///
/// With writeback caching the kernel accepts writes before oncefs sees them, so the dirty data must fit.
pub fn dirty_bytes_max(ram_bytes: u64, available_bytes: u64) -> u64 {
    let by_ram = (ram_bytes / DIRTY_SHARE_OF_RAM).clamp(DIRTY_BYTES_MIN, DIRTY_BYTES_MAX);
    let by_space = (available_bytes.saturating_sub(AVAILABLE_MARGIN) / DIRTY_SHARE_OF_ROOM).max(DIRTY_BYTES_FLOOR);
    by_ram.min(by_space)
}

/// Whether a new limit is worth a write to sysfs: any fall near full, otherwise a change by an eighth.
pub(crate) fn worth_setting(current: u64, wanted: u64) -> bool {
    current.abs_diff(wanted) > current / 8 || (wanted < current && wanted < DIRTY_BYTES_MIN)
}

/// The knobs of a [`BackingDevice`].
const KNOBS: [&str; 6] = ["read_ahead_kb", "strict_limit", "min_ratio", "max_ratio", "min_bytes", "max_bytes"];

/// The kernel's knobs for one mount, in `/sys/class/bdi`. The files stay open, so they always belong to this mount:
/// once it is gone, the kernel refuses to turn them, even if another file system gets its number.
#[derive(Clone, Debug)]
pub struct BackingDevice {
    /// Where they are, for messages.
    name: Arc<str>,
    /// The knobs that this kernel has.
    knobs: Arc<[(&'static str, File)]>,
}

impl BackingDevice {
    /// The backing device of the file system with this number. The caller holds the mount meanwhile, because a free
    /// number may go to another file system.
    ///
    /// # Errors
    /// The device does not exist, or this process may not change it.
    pub fn of((major, minor): (u32, u32)) -> io::Result<Self> {
        let name = format!("/sys/class/bdi/{major}:{minor}");
        let open = |knob| match OpenOptions::new().write(true).open(format!("{name}/{knob}")) {
            Ok(file) => Some(Ok((knob, file))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => Some(Err(e)),
        };
        let knobs: Vec<_> = KNOBS.into_iter().filter_map(open).collect::<io::Result<_>>()?;
        match knobs.is_empty() {
            true => Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no {name}"))),
            false => Ok(Self { name: name.into(), knobs: knobs.into() }),
        }
    }

    /// Where its knobs are, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn set(&self, knob: &str, value: u64) -> io::Result<()> {
        let found = self.knobs.iter().find(|(name, _)| *name == knob).ok_or(io::ErrorKind::NotFound)?;
        found.1.write_all_at(value.to_string().as_bytes(), 0)
    }

    /// Sets the knobs that stay the same for the life of the mount. To be called after INIT, which overwrites them.
    pub(crate) fn set_fixed(&self) {
        for (knob, value) in [("read_ahead_kb", READ_AHEAD_KIB), ("strict_limit", 1)] {
            if let Err(e) = self.set(knob, value) {
                log::warn!("cannot set {knob} of {}: {e}", self.name);
            }
        }
    }

    /// Bounds the dirty bytes, and grants half of the bound at once: a mount that was quiet would otherwise start with
    /// a hundredth of the global limit. The kernel refuses a bound above the global limit, and then the global limit
    /// applies. It also refuses a bound below the grant, so the grant is taken back first and set again last.
    pub(crate) fn set_dirty_max(&self, bytes: u64) -> io::Result<()> {
        self.set("min_ratio", 0)?;
        match self.set("max_bytes", bytes) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => self.set("max_ratio", 100),
            Err(e) => Err(e),
            Ok(()) => {
                // Refused if other mounts hold all grants. This mount then starts slower.
                let _ = self.set("min_bytes", bytes / 2);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * MIB;

    #[test]
    fn the_dirty_limit_is_a_share_of_ram_on_an_empty_volume() {
        assert_eq!(dirty_bytes_max(8 * GIB, 1024 * GIB), 512 * MIB);
    }

    #[test]
    fn the_dirty_limit_stays_between_its_bounds_whatever_the_ram() {
        assert_eq!(dirty_bytes_max(128 * MIB, 1024 * GIB), DIRTY_BYTES_MIN);
        assert_eq!(dirty_bytes_max(1024 * GIB, 1024 * GIB), DIRTY_BYTES_MAX);
    }

    #[test]
    fn the_dirty_limit_falls_with_the_available_space_and_never_reaches_zero() {
        assert_eq!(dirty_bytes_max(8 * GIB, 100 * MIB), 21 * MIB);
        assert_eq!(dirty_bytes_max(8 * GIB, 17 * MIB), MIB);
        assert_eq!(dirty_bytes_max(8 * GIB, 0), MIB);
    }

    #[test]
    fn small_changes_are_not_carried_to_the_kernel_unless_space_runs_out() {
        assert!(!worth_setting(256 * MIB, 250 * MIB));
        assert!(worth_setting(256 * MIB, 200 * MIB));
        assert!(worth_setting(20 * MIB, 19 * MIB));
        assert!(!worth_setting(19 * MIB, 20 * MIB));
    }

    #[test]
    fn what_is_no_device_has_no_knobs() {
        assert_eq!(BackingDevice::of((0, u32::MAX)).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
