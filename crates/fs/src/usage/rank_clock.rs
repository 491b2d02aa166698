//! The clock of ranks: the machine's clock plus an offset from the settings.
//!
//! Ranks do not use the times that `stat` shows: programs can set those, and noatime does not keep them. Only reads and
//! writes take moments from this clock. It may jump either way, with the machine's clock or with the setting. The next
//! look at a moment that is then in the future sets it to now (`Usage::clamp`).

use oncefs_engine::Moment;

use crate::FileSystem;

impl FileSystem {
    /// The present moment, in seconds since 1970 plus the setting `rank_clock_offset`. Clamped to the range of
    /// [`Moment`], which ends in 2106.
    pub fn rank_clock(&self) -> Moment {
        moment(self.clock.now().seconds, self.store.rank_clock_offset_seconds())
    }
}

/// The nearest representable moment: they begin in 1970 and end in 2106.
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
