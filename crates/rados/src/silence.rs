//! A cluster that does not answer: requests wait for it, and the log says so once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Whether the log said that the cluster is silent.
pub struct Silence {
    conf: String,
    is_told: AtomicBool,
}

impl Silence {
    /// A request that waits longer than this is worth a message. A frozen OSD is replaced after twice the default
    /// grace.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    /// For the cluster of a configuration file.
    pub fn of(conf: String) -> Self {
        Self { conf, is_told: AtomicBool::new(false) }
    }

    /// A request waits for longer than the patience.
    pub fn noticed(&self) {
        if !self.is_told.swap(true, Relaxed) {
            log::warn!("the cluster of {} does not answer: requests wait until it does", self.conf);
        }
    }

    /// A request that waited so long got its answer.
    pub fn ended(&self) {
        if self.is_told.swap(false, Relaxed) {
            log::info!("the cluster of {} answers again", self.conf);
        }
    }

    /// Whether requests wait.
    pub fn is_told(&self) -> bool {
        self.is_told.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_told_once_and_ends_once() {
        let silence = Silence::of("c".to_owned());
        assert!(!silence.is_told());
        silence.noticed();
        silence.noticed();
        assert!(silence.is_told());
        silence.ended();
        assert!(!silence.is_told());
    }
}
