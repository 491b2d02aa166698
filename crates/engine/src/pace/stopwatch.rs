//! A stopwatch for requests to a device: the machine's clock, or a stand-in that tests move.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tells the time since some start.
#[derive(Clone)]
pub struct Stopwatch(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Stopwatch {
    /// Reads the time from this function.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time since its start.
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

impl Default for Stopwatch {
    /// The machine's clock, from now on.
    fn default() -> Self {
        let start = Instant::now();
        Self::new(move || start.elapsed())
    }
}
