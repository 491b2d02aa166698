//! The rule for ranks: a file's rank from its usage (Selective, section 4.2.1, figure 5).
//!
//! Owns the decision, in the order of the paper's text, and its three parameters (the paper's Table 2). Leaves to
//! `rank_queues` which files are judged when, to `file_policy` the meaning of a rank, and to fs (`ranker.rs`) examining
//! the files and storing their ranks.

use crate::out_of_range::{RangeError, within};
use crate::{Moment, Rank, Usage};

const SECONDS_PER_DAY: u32 = 86_400;
/// Ten years.
const SECONDS_MAX: f64 = 10.0 * 365.0 * SECONDS_PER_DAY as f64;
/// Far below the counters' value after halving.
const READS_MAX: f64 = 1e6;

/// When a file is judged, and how (Selective, Table 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankRule {
    /// A file without access for this long is cold (MAX_HOT_INT), up to ten years.
    pub hot_seconds_max: u32,
    /// A file written less than this long ago is not judged yet (MIN_EVALUATION_INT), up to ten years.
    pub evaluation_seconds_min: u32,
    /// A file with fewer blocks read than this is not judged yet, unless it is cold (MIN_EVALUATION_CNT), up to 10^6.
    pub evaluation_reads_min: u32,
}

impl Default for RankRule {
    /// The paper's values: two weeks, two days, 100.
    fn default() -> Self {
        Self {
            hot_seconds_max: 14 * SECONDS_PER_DAY,
            evaluation_seconds_min: 2 * SECONDS_PER_DAY,
            evaluation_reads_min: 100,
        }
    }
}

impl RankRule {
    /// Refuses values that make no sense.
    pub fn check(&self) -> Result<(), RangeError> {
        within("rank_hot_seconds_max", f64::from(self.hot_seconds_max), 0.0, SECONDS_MAX)?;
        within("rank_evaluation_seconds_min", f64::from(self.evaluation_seconds_min), 0.0, SECONDS_MAX)?;
        within("rank_evaluation_reads_min", f64::from(self.evaluation_reads_min), 0.0, READS_MAX)
    }

    /// The rank that a file deserves now (Selective, figure 5). A moment in the future counts as now.
    pub fn rank(&self, usage: &Usage, now: Moment) -> Rank {
        let reads = usage.reads();
        if self.is_recently_written(usage, now) {
            Rank::New
        } else if self.is_cold(usage, now) {
            Rank::Cold
        } else if reads.sequential.saturating_add(reads.random) < self.evaluation_reads_min {
            usage.rank()
        } else if reads.sequential > reads.random {
            Rank::Sequential
        } else {
            Rank::Random
        }
    }

    /// Whether the file was written too recently to be judged.
    pub fn is_recently_written(&self, usage: &Usage, now: Moment) -> bool {
        now.seconds_since(usage.last_write()) < self.evaluation_seconds_min
    }

    /// Whether the file's last access was so long ago that it is cold.
    pub fn is_cold(&self, usage: &Usage, now: Moment) -> bool {
        now.seconds_since(usage.last_access()) >= self.hot_seconds_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reads;

    const DAY: u32 = SECONDS_PER_DAY;
    const NOW: Moment = Moment(1_790_000_000);
    const RULE: RankRule =
        RankRule { hot_seconds_max: 14 * DAY, evaluation_seconds_min: 2 * DAY, evaluation_reads_min: 100 };

    fn ago(seconds: u32) -> Moment {
        Moment(NOW.0 - seconds)
    }

    /// A file of this rank, written and read this long ago.
    fn used(rank: Rank, written_ago: u32, read_ago: u32, sequential: u32, random: u32) -> Usage {
        let mut usage = Usage::created(ago(written_ago));
        usage.ranked(rank);
        usage.read(ago(read_ago), Reads { sequential, random });
        usage
    }

    #[test]
    fn the_defaults_are_the_papers() {
        assert_eq!(RankRule::default(), RULE);
    }

    #[test]
    fn first_a_file_written_recently_is_new_whatever_its_reads() {
        for (sequential, random) in [(0, 0), (1_000, 0), (0, 1_000)] {
            for rank in [Rank::New, Rank::Sequential, Rank::Random] {
                assert_eq!(RULE.rank(&used(rank, 2 * DAY - 1, 0, sequential, random), NOW), Rank::New);
            }
        }
        let strict = RankRule { hot_seconds_max: DAY, ..RULE };
        assert_eq!(strict.rank(&used(Rank::New, 2 * DAY - 1, 2 * DAY - 1, 0, 0), NOW), Rank::New, "before being cold");
    }

    #[test]
    fn then_a_file_not_accessed_for_long_is_cold_whatever_was_read_before() {
        for (sequential, random) in [(0, 0), (1_000, 0), (0, 1_000)] {
            for rank in [Rank::New, Rank::Sequential, Rank::Random] {
                assert_eq!(RULE.rank(&used(rank, 30 * DAY, 14 * DAY, sequential, random), NOW), Rank::Cold);
                assert_ne!(RULE.rank(&used(rank, 30 * DAY, 14 * DAY - 1, sequential, random), NOW), Rank::Cold);
            }
        }
    }

    #[test]
    fn then_a_file_with_too_few_reads_stays_what_it_is() {
        for rank in [Rank::New, Rank::Sequential, Rank::Random] {
            assert_eq!(RULE.rank(&used(rank, 2 * DAY, 0, 99, 0), NOW), rank);
            assert_eq!(RULE.rank(&used(rank, 2 * DAY, 0, 49, 50), NOW), rank);
        }
    }

    #[test]
    fn then_the_larger_counter_decides_and_a_tie_is_random() {
        for rank in [Rank::New, Rank::Sequential, Rank::Random] {
            let ranked = |sequential, random| RULE.rank(&used(rank, 2 * DAY, 0, sequential, random), NOW);
            assert_eq!((ranked(100, 0), ranked(51, 49)), (Rank::Sequential, Rank::Sequential));
            assert_eq!((ranked(0, 100), ranked(49, 51)), (Rank::Random, Rank::Random));
            assert_eq!((ranked(50, 50), ranked(5_000, 5_000)), (Rank::Random, Rank::Random));
        }
    }

    #[test]
    fn a_file_of_which_nothing_is_known_is_cold() {
        assert_eq!(RULE.rank(&Usage::default(), NOW), Rank::Cold);
    }

    #[test]
    fn a_clock_that_jumped_back_makes_files_recent_and_never_cold() {
        let year = 365 * DAY;
        let usage = used(Rank::New, 0, 0, 1_000, 0);
        assert_eq!(RULE.rank(&usage, ago(year)), Rank::New);
        let mut kept = usage;
        kept.clamp(ago(year));
        assert_eq!(RULE.rank(&kept, ago(year - 2 * DAY)), Rank::Sequential, "two days on by the new time");
        assert_eq!(RULE.rank(&kept, ago(year - 14 * DAY)), Rank::Cold);
        assert_eq!(RULE.rank(&usage, Moment(0)), Rank::New);
    }

    #[test]
    fn counters_full_to_the_brim_still_decide() {
        assert_eq!(RULE.rank(&used(Rank::New, 2 * DAY, 0, u32::MAX, u32::MAX / 2), NOW), Rank::Sequential);
        assert_eq!(RULE.rank(&used(Rank::New, 2 * DAY, 0, u32::MAX, u32::MAX), NOW), Rank::Random);
    }

    #[test]
    fn bounds_of_zero_judge_at_once() {
        let rule = RankRule { evaluation_seconds_min: 0, evaluation_reads_min: 0, ..RULE };
        assert_eq!((rule.check(), rule.rank(&Usage::created(NOW), NOW)), (Ok(()), Rank::Random));
        let rule = RankRule { hot_seconds_max: 0, ..rule };
        assert_eq!((rule.check(), rule.rank(&Usage::created(NOW), NOW)), (Ok(()), Rank::Cold));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (rule, name) in [
            (RankRule { hot_seconds_max: 400_000_000, ..RULE }, "rank_hot_seconds_max"),
            (RankRule { evaluation_seconds_min: u32::MAX, ..RULE }, "rank_evaluation_seconds_min"),
            (RankRule { evaluation_reads_min: 1_000_001, ..RULE }, "rank_evaluation_reads_min"),
        ] {
            assert_eq!(rule.check().unwrap_err().name, name);
        }
    }
}
