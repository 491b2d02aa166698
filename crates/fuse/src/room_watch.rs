//! Watches the room that is left on a volume. The kernel's dirty limit follows it. On a nearly full volume writes are
//! synchronous, so that write(2) itself reports a full volume.
//!
//! Until then, the data that the kernel accepted must fit. So the room is checked not only from time to time, but
//! whenever enough was written to use up the difference.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use crate::mount_flags::MountFlags;
use crate::tuning::{BackingDevice, dirty_bytes_max, worth_setting};

const MIB: u64 = 1 << 20;

/// How often the room is checked without writes. Other programs may fill the host.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The share of a data area below which writes are synchronous, and its bounds. The data that is dirty at this point is
/// sent first, and as much may become dirty meanwhile. Both fit into the share, also where the kernel does not wait for
/// the answers (it does not since 7.0, and where its change was taken over).
const SYNCHRONOUS_SHARE: u64 = 64;
const SYNCHRONOUS_BYTES_MIN: u64 = 8 * MIB;
const SYNCHRONOUS_BYTES_MAX: u64 = 24 * MIB;

/// Close to that, this much may be written between two checks.
const STEP_BYTES: u64 = MIB;

/// With less than this available, writes are synchronous.
pub fn synchronous_below(data_bytes: u64) -> u64 {
    (data_bytes / SYNCHRONOUS_SHARE).clamp(SYNCHRONOUS_BYTES_MIN, SYNCHRONOUS_BYTES_MAX)
}

/// Whether writes are to be synchronous. They become buffered again only once there is twice the room.
fn wants_synchronous(is_synchronous: bool, available: u64, below: u64) -> bool {
    available < if is_synchronous { 2 * below } else { below }
}

/// How much may be written before the next check, if `dirty_max` bytes may be dirty: at most half of the room.
fn bytes_until_look(available: u64, dirty_max: u64, below: u64) -> u64 {
    if available > 4 * below { ((available - dirty_max.min(available)) / 2).max(STEP_BYTES) } else { STEP_BYTES }
}

/// Counts written bytes, and wakes the watch when a check is due.
#[derive(Debug, Default)]
pub struct RoomGauge {
    bytes_left: AtomicI64,
    watch: OnceLock<Thread>,
    remounted: AtomicBool,
}

impl RoomGauge {
    /// Counts a request that takes at most `bytes` bytes.
    pub(crate) fn take(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self.bytes_left.fetch_sub(bytes, Ordering::Relaxed);
        if before > 0 && before <= bytes {
            self.look();
        }
    }

    /// The mount's flags were set again.
    pub fn remounted(&self) {
        self.remounted.store(true, Ordering::Release);
        self.look();
    }

    fn look(&self) {
        if let Some(watch) = self.watch.get() {
            watch.unpark();
        }
    }
}

/// The room on a volume.
#[derive(Clone, Copy, Debug)]
pub struct RoomLeft {
    /// Bytes that can still be written.
    pub available_bytes: u64,
    /// The size of the data area, which may grow.
    pub data_bytes: u64,
}

/// The state that is watched.
pub struct Watched<Left, SetSynchronous> {
    /// The mount's knobs, if they are available.
    pub device: Option<BackingDevice>,
    /// The machine's memory.
    pub ram_bytes: u64,
    /// The flags that the mount was given.
    pub flags: Arc<MountFlags>,
    /// The room that is left.
    pub left: Left,
    /// Makes writes synchronous, or buffered again. May wait for requests.
    pub set_synchronous: SetSynchronous,
}

/// Follows the room of a volume from a thread of its own, until dropped.
#[derive(Debug)]
pub struct RoomWatch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RoomWatch {
    /// Sets everything now, then follows.
    pub fn start<Left, SetSynchronous>(
        watched: Watched<Left, SetSynchronous>,
        gauge: Arc<RoomGauge>,
    ) -> io::Result<Self>
    where
        Left: Fn() -> RoomLeft + Send + 'static,
        SetSynchronous: Fn(bool) -> io::Result<()> + Send + 'static,
    {
        if let Some(device) = &watched.device {
            device.set_fixed();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("room-watch".into()).spawn(move || {
            let _ = gauge.watch.set(std::thread::current());
            let mut state = State { dirty_max: None, is_synchronous: watched.flags.is_sync(), has_warned: false };
            while !stopped.load(Ordering::Acquire) {
                state.follow(&watched, &gauge);
                std::thread::park_timeout(LOOK_INTERVAL);
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for RoomWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread ends by itself; a panic in it has been logged by the hook.
            let _ = thread.join();
        }
    }
}

/// The settings last given to the kernel.
struct State {
    dirty_max: Option<u64>,
    is_synchronous: bool,
    has_warned: bool,
}

impl State {
    fn follow<Left, SetSynchronous>(&mut self, watched: &Watched<Left, SetSynchronous>, gauge: &RoomGauge)
    where
        Left: Fn() -> RoomLeft,
        SetSynchronous: Fn(bool) -> io::Result<()>,
    {
        let RoomLeft { available_bytes: available, data_bytes } = (watched.left)();
        let dirty_max = dirty_bytes_max(watched.ram_bytes, available);
        let below = synchronous_below(data_bytes);
        // Set before anything that waits, so that writes meanwhile count.
        let bytes_left = bytes_until_look(available, dirty_max, below);
        gauge.bytes_left.store(i64::try_from(bytes_left).unwrap_or(i64::MAX), Ordering::Relaxed);
        if let Some(device) = &watched.device {
            self.bound_dirty(device, dirty_max);
        }
        if gauge.remounted.swap(false, Ordering::Acquire) {
            self.is_synchronous = watched.flags.is_sync();
        }
        let wanted = watched.flags.is_sync() || wants_synchronous(self.is_synchronous, available, below);
        if wanted != self.is_synchronous {
            self.make_synchronous(wanted, &watched.set_synchronous);
        }
    }

    fn bound_dirty(&mut self, device: &BackingDevice, wanted: u64) {
        if self.dirty_max.is_some_and(|current| !worth_setting(current, wanted)) {
            return;
        }
        match device.set_dirty_max(wanted) {
            Ok(()) => self.dirty_max = Some(wanted),
            // Later errors mean that the mount is going away.
            Err(e) if self.dirty_max.is_none() => {
                log::warn!("cannot limit the dirty data of {}: {e}", device.name());
                self.dirty_max = Some(wanted);
            }
            Err(_) => {}
        }
    }

    fn make_synchronous(&mut self, wanted: bool, set: &impl Fn(bool) -> io::Result<()>) {
        match set(wanted) {
            Ok(()) => {
                self.is_synchronous = wanted;
                log::info!(
                    "{}",
                    if wanted { "little room is left: writes are synchronous" } else { "writes are buffered" }
                );
            }
            Err(e) if !self.has_warned => {
                self.has_warned = true;
                log::warn!(
                    "cannot make writes synchronous on a nearly full volume: {e}; fsync and close report errors"
                );
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_synchronous_in_the_last_part_of_a_volume_which_has_bounds() {
        assert_eq!(synchronous_below(64 * MIB), 8 * MIB);
        assert_eq!(synchronous_below(1024 * MIB), 16 * MIB);
        assert_eq!(synchronous_below(1 << 40), 24 * MIB);
    }

    #[test]
    fn writes_do_not_change_back_and_forth_with_every_block() {
        let below = 8 * MIB;
        assert!(!wants_synchronous(false, below, below) && wants_synchronous(false, below - 1, below));
        assert!(wants_synchronous(true, 2 * below - 1, below) && !wants_synchronous(true, 2 * below, below));
    }

    #[test]
    fn what_may_be_dirty_fits_when_the_next_look_is_due() {
        let ram = 8 << 30;
        for available in [0, 9, 17, 33, 97, 200, 1000, 100_000].map(|mib| mib * MIB) {
            let dirty_max = dirty_bytes_max(ram, available);
            let bytes = bytes_until_look(available, dirty_max, 8 * MIB);
            let fits = available.saturating_sub(bytes) >= 2 * dirty_max;
            assert!(fits || available < 8 * MIB, "{available}: {bytes}, {dirty_max}");
        }
    }

    #[test]
    fn the_watch_is_called_once_when_the_bytes_are_used_up() {
        let gauge = RoomGauge::default();
        gauge.bytes_left.store(100, Ordering::Relaxed);
        let _ = gauge.watch.set(std::thread::current());
        gauge.take(99);
        gauge.take(1);
        std::thread::park();
        gauge.take(u64::MAX);
        assert!(gauge.bytes_left.load(Ordering::Relaxed) < 0);
    }
}
