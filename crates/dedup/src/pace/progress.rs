//! The worker's progress, and when it will be done.

use std::time::Duration;

/// How many of the blocks to process are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Blocks processed.
    pub done: u64,
    /// Blocks to process, including those done.
    pub all: u64,
    /// Time spent on the blocks done.
    pub spent: Duration,
}

impl Progress {
    /// The share that is done, 0 to 1; 1 if there is nothing to do.
    pub fn share(&self) -> f64 {
        if self.all == 0 { 1.0 } else { self.done.min(self.all) as f64 / self.all as f64 }
    }

    /// Time left at the rate so far. None: nothing was done yet, so there is no rate.
    pub fn eta(&self) -> Option<Duration> {
        let left = self.all.saturating_sub(self.done);
        if left == 0 {
            return Some(Duration::ZERO);
        }
        let seconds = self.spent.as_secs_f64() * left as f64 / self.done as f64;
        Duration::try_from_secs_f64(seconds).ok()
    }
}
