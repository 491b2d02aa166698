//! Samples the share of requests that are looked up as they are written.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::side::Side;

/// One sample of the share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Look {
    /// Seconds from the beginning until the answer came.
    pub seconds: f64,
    /// Share of the requests, in percent.
    pub percent: f64,
}

/// Runs `body` and samples the share at regular intervals meanwhile.
pub fn watched<T>(side: &Side, every: Duration, body: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Look>)> {
    let is_over = AtomicBool::new(false);
    let began = Instant::now();
    let watch = || -> Result<Vec<Look>> {
        let mut looks = Vec::new();
        while !is_over.load(Relaxed) {
            looks.push(look(side, began)?);
            thread::sleep(every);
        }
        Ok(looks)
    };
    thread::scope(|scope| {
        let watcher = scope.spawn(watch);
        let result = body();
        is_over.store(true, Relaxed);
        let looks = watcher.join().map_err(|_| Failure::new("the thread that watches the share panicked"))?;
        Ok((result?, looks?))
    })
}

/// Samples the share now.
pub fn look(side: &Side, began: Instant) -> Result<Look> {
    let status = side.dedup_status()?;
    Ok(Look { seconds: began.elapsed().as_secs_f64(), percent: status.percent("inline_percent")? })
}

/// When the share was first seen at or below `percent`.
pub fn fell_to(looks: &[Look], percent: f64) -> Option<f64> {
    looks.iter().find(|look| look.percent <= percent + ROUNDING).map(|look| look.seconds)
}

/// When the share was first seen at 100 % again.
pub fn back_at_all(looks: &[Look]) -> Option<f64> {
    looks.iter().find(|look| look.percent >= 100.0 - ROUNDING).map(|look| look.seconds)
}

/// Shares are sums of tenths.
const ROUNDING: f64 = 0.01;

/// The share at every change, as `PERCENT at SECONDS`.
pub fn course(looks: &[Look]) -> String {
    let mut changes: Vec<&Look> = Vec::new();
    for look in looks {
        if changes.last().is_none_or(|last| (last.percent - look.percent).abs() > ROUNDING) {
            changes.push(look);
        }
    }
    let words: Vec<String> =
        changes.iter().map(|look| format!("{:.0} % at {:.2} s", look.percent, look.seconds)).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks() -> Vec<Look> {
        let percents = [100.0, 100.0, 60.0, 30.000_000_1, 30.0, 100.0];
        let look = |(index, percent): (usize, f64)| Look { seconds: index as f64 / 2.0, percent };
        percents.into_iter().enumerate().map(look).collect()
    }

    #[test]
    fn the_first_look_at_floor_or_top_counts() {
        assert_eq!(fell_to(&looks(), 30.0), Some(1.5));
        assert_eq!(fell_to(&looks(), 1.0), None);
        assert_eq!(back_at_all(&looks()[1..]), Some(0.5));
        assert_eq!(back_at_all(&looks()[2..5]), None);
    }

    #[test]
    fn the_course_tells_changes_only() {
        assert_eq!(course(&looks()), "100 % at 0.00 s, 60 % at 1.00 s, 30 % at 1.50 s, 100 % at 2.50 s");
    }
}
