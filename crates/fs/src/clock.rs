//! Time comes in through a trait, so that tests decide what time it is.

/// A moment: seconds since 1970 (negative before) and nanoseconds below one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds, rounded towards the past.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// Where the file system learns the time.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The kernel's coarse clock.
///
/// It has to be the coarse one: with writeback caching the kernel stamps writes from it, and a finer clock
/// here would make a file created first look newer than one written a moment later.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid timespec to write to; the clock exists on every Linux, so the call cannot fail.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
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
