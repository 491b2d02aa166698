//! The settings of an open volume, with lock-free copies of those that every request asks for.

use std::sync::atomic::Ordering::Relaxed;

use crate::settings::values::Settings;
use crate::sync::{AtomicBool, AtomicU64, LockRank, Mutex, MutexGuard};

/// What is set for this mount.
pub struct Tuning {
    settings: Mutex<Settings>,
    /// Held while settings change.
    changing: Mutex<()>,
    verifies_reads: AtomicBool,
    verifies_shares: AtomicBool,
    ranks_files: AtomicBool,
    /// The bits of a signed number.
    rank_clock_offset_seconds: AtomicU64,
}

impl Tuning {
    /// The settings of a mount.
    pub fn new(settings: Settings) -> Self {
        Self {
            verifies_reads: AtomicBool::new(settings.verify.covers_reads()),
            verifies_shares: AtomicBool::new(settings.verify.covers_shares()),
            ranks_files: AtomicBool::new(settings.ranks_files()),
            rank_clock_offset_seconds: AtomicU64::new(settings.rank_clock_offset_seconds.cast_unsigned()),
            settings: Mutex::new(LockRank::Settings, settings),
            changing: Mutex::new(LockRank::Tuning, ()),
        }
    }

    /// A copy of all settings.
    pub fn settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    /// Asks something of the settings. `ask` takes no lock.
    pub fn with<T>(&self, ask: impl FnOnce(&Settings) -> T) -> T {
        ask(&self.settings.lock())
    }

    /// Holds off other changes of settings while the guard lives.
    pub fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// Requests follow these settings from now on, as far as they look at copies.
    pub fn follow(&self, settings: &Settings) {
        self.verifies_reads.store(settings.verify.covers_reads(), Relaxed);
        self.verifies_shares.store(settings.verify.covers_shares(), Relaxed);
        self.ranks_files.store(settings.ranks_files(), Relaxed);
        self.rank_clock_offset_seconds.store(settings.rank_clock_offset_seconds.cast_unsigned(), Relaxed);
    }

    /// Replaces the settings. `before` sees the old and the new ones, under the lock.
    pub fn replace(&self, settings: Settings, before: impl FnOnce(&Settings, &Settings)) {
        let mut now = self.settings.lock();
        before(&now, &settings);
        *now = settings;
    }

    /// Whether every block that is read is verified.
    pub fn verifies_reads(&self) -> bool {
        self.verifies_reads.load(Relaxed)
    }

    /// Whether a block is read before it is shared for the first time.
    pub fn verifies_shares(&self) -> bool {
        self.verifies_shares.load(Relaxed)
    }

    /// Whether files are ranked by their use.
    pub fn ranks_files(&self) -> bool {
        self.ranks_files.load(Relaxed)
    }

    /// How far the clock of ranks is ahead of the machine's.
    pub fn rank_clock_offset_seconds(&self) -> i64 {
        self.rank_clock_offset_seconds.load(Relaxed).cast_signed()
    }
}

#[cfg(test)]
impl Tuning {
    /// Whether nobody holds the settings for longer than `time`.
    #[cfg(not(feature = "schedules"))]
    pub fn is_free_within(&self, time: std::time::Duration) -> bool {
        self.settings.try_lock_for(time).is_some()
    }
}
