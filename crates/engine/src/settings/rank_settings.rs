//! The settings of ranks that `fs` asks for with each request: copies that are read without a lock.

use std::sync::atomic::Ordering::Relaxed;

use crate::Store;
use crate::settings::values::Settings;
use crate::sync::{AtomicBool, AtomicU64};

/// Copies of settings.
pub struct RankSettings {
    ranks_files: AtomicBool,
    /// The bits of a signed number.
    clock_offset_seconds: AtomicU64,
}

impl RankSettings {
    /// Copies of these.
    pub fn of(settings: &Settings) -> Self {
        Self {
            ranks_files: AtomicBool::new(settings.ranks_files()),
            clock_offset_seconds: AtomicU64::new(settings.rank_clock_offset_seconds.cast_unsigned()),
        }
    }

    /// The settings are these now.
    pub fn follow(&self, settings: &Settings) {
        self.ranks_files.store(settings.ranks_files(), Relaxed);
        self.clock_offset_seconds.store(settings.rank_clock_offset_seconds.cast_unsigned(), Relaxed);
    }
}

impl Store {
    /// Whether files are ranked by their use.
    pub fn ranks_files(&self) -> bool {
        self.core.tuning.rank_settings.ranks_files.load(Relaxed)
    }

    /// How far the clock of ranks is ahead of the machine's.
    pub fn rank_clock_offset_seconds(&self) -> i64 {
        self.core.tuning.rank_settings.clock_offset_seconds.load(Relaxed).cast_signed()
    }
}
