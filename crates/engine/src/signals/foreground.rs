//! Requests of programs: when the last one came, how long they take, and whether one came during work that yields to
//! them. The worker keeps out of their way.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::stats::counters::{Histogram, LiveHistogram};

thread_local! {
    /// Whether this thread does work of the daemon itself whose requests look like those of programs.
    static IS_ASIDE: Cell<bool> = const { Cell::new(false) };
}

/// No yielding work is running.
const UNWATCHED: u64 = u64::MAX;
/// Yielding work is running, and no request came yet.
const UNCALLED: u64 = 0;

/// Counts requests of programs. Times are since the volume was opened.
pub struct Foreground {
    opened: Instant,
    /// Nanoseconds at the last request's end; 0: there was none.
    last: AtomicU64,
    requests: AtomicU64,
    nanoseconds: AtomicU64,
    /// [`UNWATCHED`], [`UNCALLED`], or the time in nanoseconds of the first request during yielding work.
    called: AtomicU64,
    /// How long requests waited for yielding work.
    yield_time: LiveHistogram,
}

impl Default for Foreground {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        let called = AtomicU64::new(UNWATCHED);
        Self {
            opened: Instant::now(),
            last: zero(),
            requests: zero(),
            nanoseconds: zero(),
            called,
            yield_time: LiveHistogram::default(),
        }
    }
}

impl Foreground {
    /// Time since the volume was opened.
    pub fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Runs work of the daemon itself: requests that this thread serves meanwhile do not count as a program's.
    pub fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = IS_ASIDE.replace(true);
        let result = work();
        IS_ASIDE.set(before);
        result
    }

    /// Runs the work of a request.
    pub fn serve<T>(&self, work: impl FnOnce() -> T) -> T {
        if IS_ASIDE.get() {
            return work();
        }
        let began = self.now();
        self.last.store(began.as_nanos() as u64, Relaxed);
        if self.called.load(Relaxed) == UNCALLED {
            // Of several requests one is the first. A watch that ended meanwhile needs no call.
            let _ = self.called.compare_exchange(UNCALLED, began.as_nanos() as u64, Relaxed, Relaxed);
        }
        let result = work();
        let ended = self.now();
        debug_assert!(began <= ended, "a request began at {began:?} and ended at {ended:?}");
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

    /// Runs work of the worker. If it yields, it can ask [`Foreground::calls`] whether to end early, and the time from
    /// the first request during the work until the work's end is recorded.
    pub fn giving_way<T>(&self, gives_way: bool, work: impl FnOnce() -> T) -> T {
        if gives_way {
            self.watch();
        }
        let result = work();
        if let Some(time) = self.unwatch() {
            self.yield_time.record(time);
        }
        result
    }

    /// Times from a request until yielding work had ended.
    pub fn yield_time(&self) -> Histogram {
        self.yield_time.snapshot()
    }

    /// Begins work that yields to programs. Only one such work runs at a time, the worker's.
    pub fn watch(&self) {
        let before = self.called.swap(UNCALLED, Relaxed);
        debug_assert_eq!(before, UNWATCHED, "work that gives way begins beside other such work");
    }

    /// Whether a request came during yielding work, which should then end where it can.
    pub fn calls(&self) -> bool {
        !matches!(self.called.load(Relaxed), UNWATCHED | UNCALLED)
    }

    /// Whether yielding work is running.
    pub fn is_watched(&self) -> bool {
        self.called.load(Relaxed) != UNWATCHED
    }

    /// Ends the work. Returns the time since the first request during it. None: none came.
    pub fn unwatch(&self) -> Option<Duration> {
        match self.called.swap(UNWATCHED, Relaxed) {
            UNWATCHED | UNCALLED => None,
            called => Some(self.now().saturating_sub(Duration::from_nanos(called))),
        }
    }

    /// Number of requests since the last call, and the sum of their times.
    pub fn take(&self) -> (u64, Duration) {
        (self.requests.swap(0, Relaxed), Duration::from_nanos(self.nanoseconds.swap(0, Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_request_beside_work_that_gives_way_calls_it_and_is_measured() {
        let foreground = Foreground::default();
        foreground.serve(|| ());
        assert!(!foreground.calls() && !foreground.is_watched(), "nobody gives way");
        foreground.watch();
        assert!(foreground.is_watched() && !foreground.calls(), "what came before does not count");
        foreground.serve(|| assert!(foreground.calls(), "as soon as it comes"));
        std::thread::sleep(Duration::from_millis(2));
        foreground.serve(|| ());
        assert!(foreground.calls());
        assert!(foreground.unwatch().is_some_and(|time| time >= Duration::from_millis(2)), "since the first one");
        assert!(!foreground.calls() && foreground.unwatch().is_none(), "the work has ended");
        foreground.watch();
        assert_eq!(foreground.unwatch(), None, "none came");
    }
}
