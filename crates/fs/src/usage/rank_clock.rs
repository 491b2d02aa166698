//! The clock by which files are ranked: the machine's, and so far ahead of it as a setting says.
//!
//! It is not the clock of the times that `stat` shows: those can be set, and are not kept under noatime; moments of
//! this one only a read or a write makes. It may jump either way, with the machine's or with the setting. Moments that
//! are in the future then become the present where they are next looked at (`Usage::clamp`).

use oncefs_engine::Moment;

use crate::FileSystem;

impl FileSystem {
    /// The moment now.
    pub fn rank_clock(&self) -> Moment {
        moment(self.clock.now().seconds, self.store.rank_clock_offset_seconds())
    }
}

/// The nearest moment that there is: they begin in 1970 and end in 2106.
fn moment(seconds: i64, offset_seconds: i64) -> Moment {
    let seconds = seconds.saturating_add(offset_seconds).max(0);
    Moment(u32::try_from(seconds).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_a_moment_get_the_nearest_one() {
        let of = |seconds, offset| moment(seconds, offset).0;
        assert_eq!((of(1000, 0), of(1000, 500), of(1000, -500)), (1000, 1500, 500));
        assert_eq!((of(-5, 0), of(1000, -1001), of(i64::MIN, -1)), (0, 0, 0));
        assert_eq!((of(1 << 32, 0), of((1 << 32) - 1, 0), of(i64::MAX, 1)), (u32::MAX, u32::MAX, u32::MAX));
    }
}
