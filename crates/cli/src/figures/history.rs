//! A volume's history as it is shown: the points up to now, the present figures, and the forecast.

use std::path::Path;

use oncefs_engine::{History, HistoryPoint};

use super::forecast::Trend;
use super::of_mount::Snapshot;
use crate::failure::{OrFail, Outcome, exit};
use crate::names::shown;
use crate::text::utc;

/// Points of a volume, oldest first.
#[derive(Debug, Default)]
pub struct Timeline {
    /// The noted points. The last one is now, and its traffic since the point before is unknown.
    pub points: Vec<HistoryPoint>,
}

impl Timeline {
    /// The history of a mounted volume. `now` is in seconds since 1970.
    pub fn of(snapshot: &Snapshot, now: u64) -> Outcome<Self> {
        let noted = read(&snapshot.volume)?;
        let present = HistoryPoint {
            seconds: now,
            held: snapshot.held_bytes(),
            stored: snapshot.stored_bytes(),
            free: snapshot.space("available_bytes"),
            backlog: snapshot.left_bytes(),
            read: 0,
            written: 0,
        };
        // Later points were noted while the clock was wrong.
        let mut points: Vec<HistoryPoint> = noted.into_iter().filter(|point| point.seconds <= now).collect();
        points.push(present);
        Ok(Self { points })
    }

    /// The trend. None: the history is too short.
    pub fn trend(&self) -> Option<Trend> {
        Trend::of(&self.points)
    }

    /// The last point of each of `count` equal parts of the time, with the traffic of that part.
    pub fn parts(&self, count: u64) -> Vec<HistoryPoint> {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return Vec::new() };
        let length = (last.seconds - first.seconds) / count + 1;
        let part = |point: &HistoryPoint| (point.seconds - first.seconds) / length;
        let mut parts: Vec<HistoryPoint> = Vec::new();
        for point in &self.points {
            let mut point = *point;
            if let Some(before) = parts.pop_if(|before| part(before) == part(&point)) {
                point.read = point.read.saturating_add(before.read);
                point.written = point.written.saturating_add(before.written);
            }
            parts.push(point);
        }
        parts
    }
}

fn read(volume: &Path) -> Outcome<Vec<HistoryPoint>> {
    History::read(volume).or_fail_doing(exit::FAILED, format!("cannot read the history of {}", shown(volume)))
}

/// Bytes that sharing saved.
pub fn saved(point: &HistoryPoint) -> u64 {
    point.held.saturating_sub(point.stored)
}

/// A moment to the minute, in UTC.
pub fn moment(seconds: u64) -> String {
    utc(seconds)[..16].replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_time_have_their_last_point_and_all_traffic() {
        let point = |seconds| HistoryPoint { seconds, held: seconds, read: 1, written: 10, ..Default::default() };
        let timeline = Timeline { points: [0, 1, 2, 50, 99, 100].map(point).to_vec() };
        let parts = timeline.parts(4);
        let figures: Vec<[u64; 3]> = parts.iter().map(|part| [part.seconds, part.read, part.written]).collect();
        assert_eq!(figures, [[2, 3, 30], [50, 1, 10], [100, 2, 20]]);
        assert_eq!(timeline.parts(1000).len(), 6);
        assert_eq!(Timeline { points: vec![point(7)] }.parts(4).len(), 1);
        assert_eq!(Timeline::default().parts(4), []);
    }

    #[test]
    fn savings_and_moments_are_told() {
        assert_eq!(saved(&HistoryPoint { held: 5, stored: 3, ..Default::default() }), 2);
        assert_eq!(saved(&HistoryPoint { held: 3, stored: 5, ..Default::default() }), 0);
        assert_eq!(moment(951_782_399), "2000-02-28 23:59");
    }
}
