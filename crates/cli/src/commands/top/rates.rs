//! The rates between two samples of a volume's figures.

use std::collections::VecDeque;
use std::time::Instant;

use oncefs_engine::{BLOCK_BYTES, Histogram};

use crate::figures::of_mount::Snapshot;

/// Intervals that the curves show: more than any terminal is wide.
const INTERVALS_MAX: usize = 512;

/// A sample of a volume's figures.
pub struct Moment {
    /// The figures.
    pub snapshot: Snapshot,
    /// The time of the sample.
    pub at: Instant,
}

/// The last two samples, and curves of earlier ones.
#[derive(Default)]
pub struct History {
    now: Option<Moment>,
    before: Option<Moment>,
    /// Bytes that programs wrote in a second, the newest last.
    pub written: VecDeque<u64>,
}

impl History {
    /// Adds the newest sample.
    pub fn add(&mut self, moment: Moment) {
        self.before = self.now.replace(moment);
        let rates = Rates::of(self);
        if rates.seconds > 0.0 {
            self.written.push_back(rates.blocks("blocks_written") as u64);
            if self.written.len() > INTERVALS_MAX {
                self.written.pop_front();
            }
        }
    }

    /// The newest figures.
    pub fn now(&self) -> Option<&Snapshot> {
        self.now.as_ref().map(|moment| &moment.snapshot)
    }
}

/// Changes in the last interval.
pub struct Rates<'a> {
    now: Option<&'a Snapshot>,
    before: Option<&'a Snapshot>,
    /// The length of the interval. 0: there is none yet.
    pub seconds: f64,
}

/// A stage in the last interval.
pub struct StageRate {
    /// Blocks per second.
    pub blocks: f64,
    /// The time that its batches took.
    pub latency: Histogram,
}

impl<'a> Rates<'a> {
    /// The rates between the last two samples.
    pub fn of(history: &'a History) -> Self {
        let (now, before) = (history.now.as_ref(), history.before.as_ref());
        let seconds = now.zip(before).map_or(0.0, |(now, before)| now.at.duration_since(before.at).as_secs_f64());
        let snapshot = |moment: Option<&'a Moment>| moment.map(|moment| &moment.snapshot);
        Self { now: snapshot(now), before: snapshot(before), seconds }
    }

    /// The change of a figure per second.
    fn change(&self, figure: impl Fn(&Snapshot) -> u64) -> f64 {
        match (self.now, self.before) {
            (Some(now), Some(before)) if self.seconds > 0.0 => {
                (figure(now) as f64 - figure(before) as f64) / self.seconds
            }
            _ => 0.0,
        }
    }

    /// A counter, per second.
    pub fn counter(&self, name: &str) -> f64 {
        self.change(|snapshot| snapshot.report.counters.get(name).copied().unwrap_or(0))
    }

    /// A counter of blocks, in bytes per second.
    pub fn blocks(&self, name: &str) -> f64 {
        self.counter(name) * BLOCK_BYTES as f64
    }

    /// The change of the saving by sharing, in bytes per second.
    pub fn saved(&self) -> f64 {
        self.change(Snapshot::saved_bytes)
    }

    /// A cache's hit ratio, 0 to 1. `None`: there were no lookups.
    pub fn hit_ratio(&self, cache: &str) -> Option<f64> {
        let of = |figure: fn(&oncefs_engine::CacheReport) -> u64| {
            self.change(|snapshot| snapshot.report.caches.get(cache).map_or(0, figure))
        };
        let (hits, misses) = (of(|cache| cache.hits), of(|cache| cache.misses));
        (hits + misses > 0.0).then(|| hits / (hits + misses))
    }

    /// A stage. `None`: nothing passed it.
    pub fn stage(&self, name: &str) -> Option<StageRate> {
        let report = |snapshot: &'a Snapshot| snapshot.report.stages.get(name);
        let (now, before) = (self.now.and_then(report)?, self.before.and_then(report)?);
        let latency = Histogram {
            count: now.latency.count.saturating_sub(before.latency.count),
            nanoseconds: now.latency.nanoseconds.saturating_sub(before.latency.nanoseconds),
            classes: now
                .latency
                .classes
                .iter()
                .zip(&before.latency.classes)
                .map(|(a, b)| a.saturating_sub(*b))
                .collect(),
        };
        let blocks = self.change(|snapshot| snapshot.report.stages.get(name).map_or(0, |stage| stage.blocks));
        (latency.count > 0).then_some(StageRate { blocks, latency })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oncefs_engine::{CacheReport, StageReport};

    use super::*;

    fn at(seconds: u64, written: u64, hits: u64, classes: [u64; 3]) -> Moment {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        let mut snapshot = Snapshot::default();
        snapshot.report.counters.insert("blocks_written".to_owned(), written);
        let cache = CacheReport { hits, misses: 2 * hits, ..CacheReport::default() };
        snapshot.report.caches.insert("read".to_owned(), cache);
        let latency = Histogram { count: classes.iter().sum(), nanoseconds: 1000, classes: classes.to_vec() };
        snapshot.report.stages.insert("tag".to_owned(), StageReport { blocks: written, latency });
        Moment { snapshot, at: *START + Duration::from_secs(seconds) }
    }

    #[test]
    fn without_an_interval_nothing_has_changed() {
        let mut history = History::default();
        history.add(at(0, 50, 9, [1, 1, 1]));
        let rates = Rates::of(&history);
        assert!(rates.counter("blocks_written") == 0.0 && rates.stage("tag").is_none());
        assert!(rates.hit_ratio("read").is_none() && history.written.is_empty());
    }

    #[test]
    fn rates_are_of_the_last_interval_alone() {
        let mut history = History::default();
        for moment in [at(0, 1_000, 5, [7, 0, 0]), at(10, 1_000, 5, [7, 0, 0]), at(12, 1_020, 6, [7, 3, 1])] {
            history.add(moment);
        }
        let rates = Rates::of(&history);
        assert_eq!((rates.counter("blocks_written"), rates.blocks("blocks_written")), (10.0, 40_960.0));
        assert!((rates.hit_ratio("read").unwrap() - 1.0 / 3.0).abs() < 1e-9);
        let stage = rates.stage("tag").unwrap();
        assert_eq!((stage.blocks, stage.latency.count), (10.0, 4));
        assert_eq!(stage.latency.classes, [0, 3, 1]);
        assert_eq!(history.written, [0, 40_960]);
    }
}
