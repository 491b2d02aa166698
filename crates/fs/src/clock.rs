//! The clock. A trait, so that tests can set the time.

/// A point in time: seconds since 1970 (negative before) and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// A source of the current time.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// The kernel's coarse clock (`CLOCK_REALTIME_COARSE`).
///
/// With writeback caching the kernel takes the times of writes from it. A finer clock here could make a new file look
/// newer than one written a moment later.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid timespec to write to; the clock exists on every Linux, so the call cannot fail.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
        debug_assert!((0..1_000_000_000).contains(&time.tv_nsec), "the clock gave {} ns", time.tv_nsec);
        Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_agrees_with_the_standard_library() {
        let library = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
        assert!((SystemClock.now().seconds - library).abs() <= 1);
    }
}
