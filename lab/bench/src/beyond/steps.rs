//! What a volume in objects is judged by. The bounds are there before the readings: they are those of the feature's
//! first description.

use super::reading::Readings;
use super::space::LOCAL;
use super::speed::{ONCEFS, RADOS};
use crate::disks::steps::Bound;
use crate::spread::Spread;

/// What a line of the page shows.
pub enum Measure {
    /// Ours over the other side's.
    Ratio {
        /// The other side.
        to: &'static str,
    },
    /// The number itself.
    Plain,
}

/// One line of the page.
pub struct Step {
    /// The name of the readings.
    pub what: &'static str,
    /// In the page.
    pub title: &'static str,
    /// What is judged.
    pub measure: Measure,
    /// How.
    pub bound: Bound,
    /// Whether the bound holds for devices of the speed of a slow disk only.
    pub is_for_throttled: bool,
}

const fn ratio(what: &'static str, title: &'static str, to: &'static str, bound: Bound) -> Step {
    Step { what, title, measure: Measure::Ratio { to }, bound, is_for_throttled: false }
}

const fn throttled(what: &'static str, title: &'static str, least: f64) -> Step {
    let measure = Measure::Ratio { to: RADOS };
    Step { what, title, measure, bound: Bound::AtLeast(least), is_for_throttled: true }
}

const fn plain(what: &'static str, title: &'static str, bound: Bound) -> Step {
    Step { what, title, measure: Measure::Plain, bound, is_for_throttled: false }
}

/// All of them, in the order of the page.
pub const STEPS: [Step; 9] = [
    ratio("fsync", "4 KiB with fdatasync, to a guarded write of an object: median time", RADOS, Bound::AtMost(1.3)),
    ratio("fsync-p99", "the same, 99th percentile", RADOS, Bound::None),
    throttled("write", "sequential writes, to `rados bench`: speed", 0.8),
    throttled("read", "sequential reads, cold, to `rados bench`: speed", 0.8),
    throttled("write-25", "writes with 25 % duplicates, to `rados bench`: speed", 1.15),
    throttled("write-75", "writes with 75 % duplicates, to `rados bench`: speed", 2.5),
    ratio("stored", "stored for the same data, to a volume in a directory: bytes", LOCAL, Bound::AtMost(1.0)),
    plain("left-of-metadata", "data left after everything is deleted, of the metadata", Bound::AtMost(0.05)),
    plain("stored-of-a-device", "stored in the largest volume, of an OSD's device", Bound::AtLeast(1.0)),
];

impl Step {
    /// The readings; nothing if there are none.
    pub fn spread(&self, readings: &Readings) -> Option<Spread> {
        match self.measure {
            Measure::Ratio { to } => readings.ratio(self.what, ONCEFS, to, self.what),
            Measure::Plain => readings.spread(self.what, ONCEFS),
        }
    }

    /// The bound that counts in this run.
    pub fn bound_in(&self, is_throttled: bool) -> Bound {
        if self.is_for_throttled && !is_throttled { Bound::None } else { self.bound }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_judged_on_throttled_devices_only_and_times_always() {
        let step = |what: &str| STEPS.iter().find(|step| step.what == what).unwrap();
        assert_eq!(step("write").bound_in(false), Bound::None);
        assert_eq!(step("write").bound_in(true), Bound::AtLeast(0.8));
        assert_eq!(step("fsync").bound_in(false), Bound::AtMost(1.3));
        let mut readings = Readings::default();
        for (side, value) in [(ONCEFS, 2.6), (RADOS, 2.0)] {
            readings.add("fsync", side, 0, value);
        }
        assert_eq!(step("fsync").spread(&readings), Spread::of([1.3]));
    }
}
