//! `oncefs stats --history`: the data that a volume held and stored over time, its free space, and the time when it
//! will be full.

use oncefs_engine::HistoryPoint;
use oncefs_toolbox::{Column, Table};
use serde_json::{Value, json};

use super::percent;
use crate::failure::Outcome;
use crate::figures::forecast::TOO_SHORT;
use crate::figures::history::{Timeline, moment, saved};
use crate::figures::of_mount::Snapshot;
use crate::names;
use crate::size::Size;

/// Rows that are shown to people.
const ROWS_MAX: u64 = 24;

/// Prints the history. `now` is in seconds since 1970.
pub fn run(snapshot: &Snapshot, as_json: bool, now: u64) -> Outcome {
    let timeline = Timeline::of(snapshot, now)?;
    match as_json {
        true => say!("{}", names::json(&document(&timeline))),
        false => put!("{}", text(&timeline)),
    }
    Ok(())
}

/// The history as JSON. The last point is now, and has no traffic of its own.
fn document(timeline: &Timeline) -> Value {
    let point = |point: &HistoryPoint| {
        json!({
            "unix_seconds": point.seconds,
            "held_bytes": point.held,
            "stored_bytes": point.stored,
            "free_bytes": point.free,
            "left_bytes": point.backlog,
            "read_bytes": point.read,
            "written_bytes": point.written,
        })
    };
    let free = timeline.points.last().map_or(0, |now| now.free);
    let trend = timeline.trend();
    json!({
        "points": timeline.points.iter().map(point).collect::<Vec<_>>(),
        "trend": trend,
        "full_in_days": trend.and_then(|trend| trend.full_in_days(free)),
    })
}

fn text(timeline: &Timeline) -> String {
    let columns = [Column::left(16)].into_iter().chain([10, 10, 10, 7, 10].map(Column::right));
    let mut table = Table::of(columns).with_head(&["moment, UTC", "held", "stored", "saved", "of held", "free"]);
    for point in timeline.parts(ROWS_MAX) {
        let sizes = [point.held, point.stored, saved(&point)].map(|bytes| Size(bytes).to_string());
        let last = [percent(saved(&point), point.held), Size(point.free).to_string()];
        table.row([moment(point.seconds)].into_iter().chain(sizes).chain(last).collect());
    }
    let words = match (timeline.points.last(), timeline.trend()) {
        (Some(now), Some(trend)) => trend.words(now.free, now.seconds),
        _ => TOO_SHORT.to_owned(),
    };
    format!("{}\n{words}\n", table.plain())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline() -> Timeline {
        let point = |day| HistoryPoint {
            seconds: day * 86_400,
            held: 2 << 30,
            stored: (1 + day) << 20,
            free: 64 << 20,
            read: day,
            ..Default::default()
        };
        Timeline { points: (0..=8).map(point).collect() }
    }

    #[test]
    fn the_history_is_a_table_with_a_forecast() {
        let text = text(&timeline());
        assert!(text.contains("1970-01-09 00:00") && text.contains("full in 64 days, about 1970-03-14"), "{text}");
        assert!(text.lines().take(9).all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn the_document_has_every_point_and_numbers() {
        let document = document(&timeline());
        assert_eq!(document["points"].as_array().unwrap().len(), 9);
        assert_eq!(document["points"][2]["stored_bytes"], 3 << 20);
        assert_eq!((&document["full_in_days"], &document["trend"]["points"]), (&json!(64.0), &json!(9)));
        let empty = super::document(&Timeline::default());
        assert_eq!((&empty["trend"], &empty["full_in_days"]), (&Value::Null, &Value::Null));
    }
}
