//! The section of the report about time: savings, growth, traffic, and when the volume is full.

use oncefs_engine::HistoryPoint;

use super::markup::{Head, Markup, note, size, table};
use super::timeline::{Line, picture};
use crate::commands::stats::percent;
use crate::figures::forecast::{TOO_SHORT, Trend};
use crate::figures::history::{Timeline, moment, saved};

/// Points of a line, and rows of the table.
const DRAWN_MAX: u64 = 200;
const ROWS_MAX: u64 = 30;
const DAY_SECONDS: f64 = 86_400.0;

/// Everything below its heading.
pub fn inside(timeline: &Timeline) -> Markup {
    let [first, .., now] = &timeline.points[..] else {
        return Markup::words(
            "p",
            "The history of this volume begins now. It gets a point every hour while it is mounted.",
        );
    };
    let trend = timeline.trend();
    let drawn = timeline.parts(DRAWN_MAX);
    let words = format!(
        "{} points since {} UTC. Kept are the last of each hour for a week, and the last of each day before.",
        timeline.points.len(),
        moment(first.seconds)
    );
    let forecast = trend.map_or_else(|| TOO_SHORT.to_owned(), |trend| trend.words(now.free, now.seconds));
    let savings = [line("saved", "saved: held without stored", &drawn, saved)];
    Markup::lines([
        note(&words),
        picture("Savings over time", &savings),
        picture("Growth: held, stored and room for it", &growth(&drawn, now, trend)),
        Markup::element("p", &[("id", "forecast")], Markup::words("strong", "Forecast: ") + Markup::text(forecast)),
        rows(&timeline.parts(ROWS_MAX)),
    ])
}

fn line(class: &'static str, name: &'static str, points: &[HistoryPoint], of: fn(&HistoryPoint) -> u64) -> Line {
    Line { class, name, points: points.iter().map(|point| (point.seconds, of(point))).collect() }
}

/// The forecast goes on for as long as the history, or until the volume is full.
fn growth(drawn: &[HistoryPoint], now: &HistoryPoint, trend: Option<Trend>) -> Vec<Line> {
    let mut lines = vec![
        line("held", "held by all files", drawn, |point| point.held),
        line("stored", "stored, each content once", drawn, |point| point.stored),
        line("free", "room: stored and free", drawn, |point| point.stored.saturating_add(point.free)),
    ];
    if let Some(trend) = trend {
        let full_days = trend.full_in_days(now.free).unwrap_or(f64::INFINITY);
        let days = full_days.min(trend.days as f64);
        let stored = (now.stored as f64 + days * trend.bytes_per_day).max(0.0) as u64;
        let end = (now.seconds + (days * DAY_SECONDS) as u64, stored);
        lines.push(Line { class: "forecast", name: "forecast", points: vec![(now.seconds, now.stored), end] });
    }
    lines
}

fn rows(points: &[HistoryPoint]) -> Markup {
    let heads: [Head; 8] = [
        ("moment, UTC", false),
        ("held", true),
        ("stored", true),
        ("saved", true),
        ("of held", true),
        ("free", true),
        ("read", true),
        ("written", true),
    ];
    let last = points.len().saturating_sub(1);
    let row = |(at, point): (usize, &HistoryPoint)| {
        // The row of the present has no traffic, because it is not counted yet.
        let traffic = |bytes| if at == last { Markup::text("-") } else { size(bytes) };
        let share = Markup::text(percent(saved(point), point.held));
        let figures = [size(point.held), size(point.stored), size(saved(point)), share, size(point.free)];
        let traffic = [traffic(point.read), traffic(point.written)];
        [Markup::text(moment(point.seconds))].into_iter().chain(figures).chain(traffic).collect()
    };
    let caption = "The volume over time; read from and written to the device since the row before";
    table(caption, &heads, points.iter().enumerate().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(days: u64) -> Timeline {
        let point = |day| HistoryPoint {
            seconds: day * 86_400,
            held: (20 + 2 * day) << 30,
            stored: (10 + day) << 30,
            free: (100 - day) << 30,
            ..Default::default()
        };
        Timeline { points: (0..=days).map(point).collect() }
    }

    #[test]
    fn a_long_history_has_pictures_a_forecast_and_its_figures() {
        let page = inside(&timeline(40)).into_string();
        assert!(page.contains("full in 60 days") && page.contains("41 points since 1970-01-01"), "{page}");
        assert_eq!((page.matches("role=\"img\"").count(), page.matches("line forecast").count()), (2, 2));
        assert!(page.matches("<tr>").count() <= 1 + ROWS_MAX as usize, "{page}");
        assert!(page.contains("1970-02-10 00:00"), "the last point is there: {page}");
    }

    #[test]
    fn the_forecast_ends_where_the_volume_is_full() {
        let timeline = timeline(80);
        let now = timeline.points.last().unwrap();
        let lines = growth(&timeline.points, now, timeline.trend());
        assert_eq!(lines[3].points[1], (100 * 86_400, 110 << 30));
    }

    #[test]
    fn a_short_history_is_drawn_without_a_forecast_and_a_new_one_is_told() {
        let page = inside(&timeline(1)).into_string();
        assert!(page.contains("Too short to say") && page.contains("Savings over time"), "{page}");
        assert!(!page.contains("line forecast"));
        assert!(inside(&timeline(0)).into_string().contains("begins now"));
    }
}
