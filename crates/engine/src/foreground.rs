//! What programs ask for: when the last request came, and how long requests take. The worker keeps out of their way.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Counts requests of programs. Times are since the volume was opened.
pub struct Foreground {
    opened: Instant,
    /// Nanoseconds at the last request's end; 0: there was none.
    last: AtomicU64,
    requests: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Default for Foreground {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self { opened: Instant::now(), last: zero(), requests: zero(), nanoseconds: zero() }
    }
}

impl Foreground {
    /// Time since the volume was opened.
    pub fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Does the work of a request.
    pub fn serve<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = self.now();
        self.last.store(began.as_nanos() as u64, Relaxed);
        let result = work();
        let ended = self.now();
        self.last.store(ended.as_nanos() as u64, Relaxed);
        self.requests.fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add((ended - began).as_nanos() as u64, Relaxed);
        result
    }

    /// When the last request came.
    pub fn last(&self) -> Option<Duration> {
        let last = self.last.load(Relaxed);
        (last > 0).then(|| Duration::from_nanos(last))
    }

    /// Requests since the last call, and their times added up.
    pub fn take(&self) -> (u64, Duration) {
        (self.requests.swap(0, Relaxed), Duration::from_nanos(self.nanoseconds.swap(0, Relaxed)))
    }
}
