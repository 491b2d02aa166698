//! A cluster that does not answer: requests wait for it, and the log says so once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Requests that waited for long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many had no answer for longer than a second after they were sent.
    pub count: u64,
    /// The longest time to an answer, also of shorter ones.
    pub longest: Duration,
}

/// Whether the log said that the cluster is silent, and how long requests waited.
pub struct Silence {
    conf: String,
    is_told: AtomicBool,
    long_waits: AtomicU64,
    longest_nanos: AtomicU64,
}

impl Silence {
    /// A request that waits longer than this is worth a message. A frozen OSD is replaced after twice the default
    /// grace.
    pub const PATIENCE: Duration = Duration::from_secs(10);
    /// A wait that is longer than this counts as a long one.
    const LONG: Duration = Duration::from_secs(1);

    /// For the cluster of a configuration file.
    pub fn of(conf: String) -> Self {
        let (long_waits, longest_nanos) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { conf, is_told: AtomicBool::new(false), long_waits, longest_nanos }
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

    /// A request got its answer after this time.
    pub fn waited(&self, time: Duration) {
        self.longest_nanos.fetch_max(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        if time > Self::LONG {
            self.long_waits.fetch_add(1, Relaxed);
        }
    }

    /// What was waited for so far.
    pub fn waits(&self) -> Waits {
        let longest = Duration::from_nanos(self.longest_nanos.load(Relaxed));
        Waits { count: self.long_waits.load(Relaxed), longest }
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

    #[test]
    fn waits_of_more_than_a_second_are_counted_and_the_longest_of_all_is_kept() {
        let silence = Silence::of("c".to_owned());
        [900, 1000].iter().for_each(|millis| silence.waited(Duration::from_millis(*millis)));
        assert_eq!(silence.waits(), Waits { count: 0, longest: Duration::from_secs(1) });
        [7000, 2000].iter().for_each(|millis| silence.waited(Duration::from_millis(*millis)));
        assert_eq!(silence.waits(), Waits { count: 2, longest: Duration::from_secs(7) });
    }
}
