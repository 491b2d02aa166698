//! Forecasts when a volume will be full, from the trend of its stored data and its free space.
//!
//! The slope is the median of the slopes between any two days (Theil and Sen), so one large copy or deletion hardly
//! moves it. The spread of the slopes shows how certain it is.

use oncefs_engine::HistoryPoint;
use serde::Serialize;

use crate::size::Size;
use crate::text::utc;

const DAY_SECONDS: u64 = 86_400;
/// Older days do not reflect the present pace.
const DAYS_MAX: u64 = 90;
/// Least days from the first to the last point, and least number of days with points, for a trend.
const DAYS_MIN: u64 = 3;
const POINTS_MIN: usize = 4;
/// A forecast beyond this names no date.
const FAR_DAYS: f64 = 3650.0;

/// The growth of the stored data, in bytes a day.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// The median of the slopes.
    pub bytes_per_day: f64,
    /// A quarter of the slopes is below this.
    pub bytes_per_day_low: f64,
    /// A quarter of the slopes is above this.
    pub bytes_per_day_high: f64,
    /// Days from the first point to the last.
    pub days: u64,
    /// Number of points used, one a day.
    pub points: usize,
}

impl Trend {
    /// The trend of points that are sorted by time and not in the future. None: there are too few points or too few
    /// days.
    pub fn of(points: &[HistoryPoint]) -> Option<Self> {
        let last = points.last()?.seconds;
        let mut days: Vec<&HistoryPoint> = Vec::new();
        for point in points.iter().filter(|point| last - point.seconds <= DAYS_MAX * DAY_SECONDS) {
            days.pop_if(|before| before.seconds / DAY_SECONDS == point.seconds / DAY_SECONDS);
            days.push(point);
        }
        let span = (last - days.first()?.seconds) / DAY_SECONDS;
        if span < DAYS_MIN || days.len() < POINTS_MIN {
            return None;
        }
        let mut slopes: Vec<f64> = Vec::with_capacity(days.len() * days.len() / 2);
        for (at, earlier) in days.iter().enumerate() {
            slopes.extend(days[at + 1..].iter().map(|later| slope(earlier, later)));
        }
        slopes.sort_by(f64::total_cmp);
        let quantile = |quarters: usize| slopes[(slopes.len() - 1) * quarters / 4];
        let [bytes_per_day_low, bytes_per_day, bytes_per_day_high] = [1, 2, 3].map(quantile);
        Some(Self { bytes_per_day, bytes_per_day_low, bytes_per_day_high, days: span, points: days.len() })
    }

    /// Days until `free` bytes are filled at this pace. None: never, or not within ten years.
    fn days_to_fill(free: u64, bytes_per_day: f64) -> Option<f64> {
        let days = free as f64 / bytes_per_day;
        (bytes_per_day > 0.0 && days <= FAR_DAYS).then_some(days)
    }

    /// Days until the volume is full. None: not within ten years.
    pub fn full_in_days(&self, free: u64) -> Option<f64> {
        Self::days_to_fill(free, self.bytes_per_day)
    }

    /// The forecast for people. `now` is in seconds since 1970.
    pub fn words(&self, free: u64, now: u64) -> String {
        let rests = format!(
            "This rests on {} days with {} points: the median of the slopes between each two of them.",
            self.days, self.points
        );
        let pace = format!("What is stored grows by {} a day", per_day(self.bytes_per_day));
        let between = format!(
            "half of the slopes lie between {} and {}",
            per_day(self.bytes_per_day_low),
            per_day(self.bytes_per_day_high)
        );
        let Some(days) = self.full_in_days(free) else {
            let does = if self.bytes_per_day > 0.0 {
                format!("{pace} ({between}): the {} that are free last for more than ten years.", Size(free))
            } else {
                format!("What is stored does not grow ({between}), so the volume does not become full.")
            };
            return format!("{does} {rests}");
        };
        let date = &utc(now + (days * DAY_SECONDS as f64) as u64)[..10];
        let early = Self::days_to_fill(free, self.bytes_per_day_high).unwrap_or(days);
        let late = Self::days_to_fill(free, self.bytes_per_day_low)
            .map_or_else(|| "more than ten years".to_owned(), count_of_days);
        format!(
            "{pace} ({between}). At this pace the {} that are free are full in {}, about {date}; at those paces in {} \
             to {late}. {rests}",
            Size(free),
            count_of_days(days),
            count_of_days(early)
        )
    }
}

/// Why there is no forecast.
pub const TOO_SHORT: &str =
    "Too short to say when the volume is full: a forecast takes points of four days, three days apart or more.";

fn slope(earlier: &HistoryPoint, later: &HistoryPoint) -> f64 {
    let days = (later.seconds - earlier.seconds) as f64 / DAY_SECONDS as f64;
    (later.stored as f64 - earlier.stored as f64) / days
}

fn count_of_days(days: f64) -> String {
    if days.round() == 1.0 { "1 day".to_owned() } else { format!("{days:.0} days") }
}

fn per_day(bytes: f64) -> String {
    let size = Size(bytes.abs() as u64);
    if bytes < 0.0 { format!("-{size}") } else { size.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const START: u64 = 1_800_000_000 / DAY_SECONDS * DAY_SECONDS;

    fn points(stored: impl IntoIterator<Item = u64>) -> Vec<HistoryPoint> {
        let point = |(day, stored)| HistoryPoint { seconds: START + day * DAY_SECONDS, stored, ..Default::default() };
        (0..).zip(stored).map(point).collect()
    }

    #[test]
    fn a_steady_growth_is_found_and_one_large_copy_does_not_move_it() {
        let steady = Trend::of(&points((0..30).map(|day| (100 + 2 * day) * GIB))).unwrap();
        assert_eq!((steady.bytes_per_day, steady.days, steady.points), (2.0 * GIB as f64, 29, 30));
        assert_eq!(steady.full_in_days(40 * GIB), Some(20.0));
        let step = Trend::of(&points((0..30).map(|day| (100 + 2 * day + if day == 29 { 500 } else { 0 }) * GIB)));
        assert_eq!(step.unwrap().bytes_per_day, 2.0 * GIB as f64);
    }

    #[test]
    fn the_last_point_of_a_day_counts_and_old_days_do_not() {
        let mut all = points((0..200).map(|day| if day < 109 { 1000 * GIB } else { day * GIB }));
        let mut noon = all[150];
        (noon.seconds, noon.stored) = (noon.seconds - 3600, 0);
        all.insert(150, noon);
        let trend = Trend::of(&all).unwrap();
        assert_eq!((trend.bytes_per_day_low, trend.bytes_per_day_high), (GIB as f64, GIB as f64));
        assert_eq!((trend.days, trend.points), (90, 91));
    }

    #[test]
    fn what_is_too_short_gets_no_forecast() {
        assert_eq!(Trend::of(&[]), None);
        assert_eq!(Trend::of(&points([1, 2, 3])), None);
        assert!(Trend::of(&points([1, 2, 3, 4])).is_some());
        let hours = |hour| HistoryPoint { seconds: START + hour * 3600, stored: hour, ..Default::default() };
        assert_eq!(Trend::of(&(0..60).map(hours).collect::<Vec<_>>()), None, "two days and a half");
    }

    #[test]
    fn the_words_say_when_and_what_they_rest_on() {
        let now = START + 29 * DAY_SECONDS;
        let words = |per_day: [f64; 3]| {
            let [bytes_per_day_low, bytes_per_day, bytes_per_day_high] = per_day.map(|gib| gib * GIB as f64);
            let trend = Trend { bytes_per_day, bytes_per_day_low, bytes_per_day_high, days: 29, points: 30 };
            trend.words(20 * GIB, now)
        };
        let date = &utc(now + 10 * DAY_SECONDS)[..10];
        let full = words([1.0, 2.0, 4.0]);
        let expected =
            format!("full in 10 days, about {date}; at those paces in 5 days to 20 days. This rests on 29 days");
        assert!(full.contains(&expected), "{full}");
        assert!(words([-1.0, 2.0, 4.0]).contains("in 5 days to more than ten years"));
        assert!(words([-2.0, -1.0, 0.0]).contains("does not grow (half of the slopes lie between -2.00 GiB and 0 B)"));
        assert!(words([0.0, 0.001, 0.001]).contains("last for more than ten years"));
    }
}
