//! The settings of an open volume, and those of them that requests ask for without a lock.

use crate::settings::rank_settings::RankSettings;
use crate::settings::values::Settings;
use crate::sync::{AtomicBool, Mutex};

/// What is set for this mount.
pub struct Tuning {
    /// All settings.
    pub settings: Mutex<Settings>,
    /// Held while settings change.
    pub one_at_a_time: Mutex<()>,
    /// What ranks do.
    pub rank_settings: RankSettings,
    /// Whether every block that is read is verified.
    pub verifies_reads: AtomicBool,
    /// Whether a block is read before it is shared for the first time.
    pub verifies_shares: AtomicBool,
}

impl Tuning {
    /// The settings of a mount.
    pub fn new(settings: Settings) -> Self {
        Self {
            verifies_reads: AtomicBool::new(settings.verify.covers_reads()),
            verifies_shares: AtomicBool::new(settings.verify.covers_shares()),
            rank_settings: RankSettings::of(&settings),
            settings: Mutex::new(settings),
            one_at_a_time: Mutex::new(()),
        }
    }
}
