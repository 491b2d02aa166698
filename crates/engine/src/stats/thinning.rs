//! Which points of a volume's history are kept: one per hour for a week, one per day for two years.

use crate::format::history::HistoryPoint;

/// Most points kept: the hours of a week (168), and the days of two years (732).
pub const POINTS_KEPT_MAX: usize = 7 * 24 + 2 * 366;
const HOUR_SECONDS: u64 = 3600;
const DAY_SECONDS: u64 = 24 * HOUR_SECONDS;
const HOURS_KEPT_SECONDS: u64 = 7 * DAY_SECONDS;

/// Keeps the last point of each hour of the week before `now`, and the last point of each other day, oldest first. A
/// dropped point's reads and writes are added to the next one.
///
/// No point is dropped because of its age alone. If there are too many, the oldest ones are dropped. So a clock that
/// was wrong for a while costs no history.
pub fn thin(mut points: Vec<HistoryPoint>, now: u64) -> Vec<HistoryPoint> {
    points.sort_by_key(|point| point.seconds);
    let mut kept: Vec<HistoryPoint> = Vec::new();
    for mut point in points {
        if let Some(before) = kept.pop_if(|before| period(before.seconds, now) == period(point.seconds, now)) {
            point.read = point.read.saturating_add(before.read);
            point.written = point.written.saturating_add(before.written);
        }
        kept.push(point);
    }
    let surplus = kept.len().saturating_sub(POINTS_KEPT_MAX);
    kept.split_off(surplus)
}

/// The start of the hour or day that a moment belongs to, and its length, in seconds.
fn period(seconds: u64, now: u64) -> (u64, u64) {
    let is_recent = seconds <= now && now - seconds < HOURS_KEPT_SECONDS;
    let length = if is_recent { HOUR_SECONDS } else { DAY_SECONDS };
    (seconds / length * length, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(seconds: u64) -> HistoryPoint {
        HistoryPoint { seconds, held: seconds, read: 1, written: 2, ..HistoryPoint::default() }
    }

    fn moments(points: &[HistoryPoint]) -> Vec<u64> {
        points.iter().map(|point| point.seconds).collect()
    }

    #[test]
    fn hours_are_kept_for_a_week_and_days_before_it() {
        let now = 100 * DAY_SECONDS;
        let points: Vec<HistoryPoint> = (0..=100 * 48).map(|half| point(half * HOUR_SECONDS / 2)).collect();
        let kept = thin(points.clone(), now);
        let of = |range: std::ops::RangeInclusive<u64>| kept.iter().filter(|s| range.contains(&s.seconds)).count();
        let week = now - HOURS_KEPT_SECONDS;
        assert_eq!(of(0..=week - DAY_SECONDS), 92, "the first seconds of a day belong to it");
        assert_eq!(of(week + 1..=now), 7 * 24 + 1, "the hour of now has begun");
        let sum = |points: &[HistoryPoint]| points.iter().fold((0, 0), |sum, s| (sum.0 + s.read, sum.1 + s.written));
        assert_eq!(sum(&kept), sum(&points), "no traffic is lost");
        assert!(kept.is_sorted_by_key(|point| point.seconds));
        assert_eq!(kept.last(), points.last());
        assert_eq!(thin(kept.clone(), now), kept, "what was thinned stays");
    }

    #[test]
    fn the_oldest_go_where_there_are_too_many() {
        let kept = thin((0..10_000).map(|day| point(day * DAY_SECONDS)).collect(), 9_999 * DAY_SECONDS);
        assert_eq!(kept.len(), POINTS_KEPT_MAX);
        assert_eq!(kept.last().unwrap().seconds, 9_999 * DAY_SECONDS);
    }

    #[test]
    fn a_clock_that_was_wrong_costs_no_history() {
        let now = 20_000 * DAY_SECONDS;
        let good = [now - 40 * DAY_SECONDS, now - DAY_SECONDS, now];
        let wrong = [5, now + 4_000 * DAY_SECONDS];
        let points = || good.iter().chain(&wrong).map(|seconds| point(*seconds)).collect();
        for clock in [now, 5, wrong[1]] {
            let kept = moments(&thin(points(), clock));
            assert!(good.iter().all(|moment| kept.contains(moment)), "{kept:?} at {clock}");
        }
    }
}
