//! The steps that disks are judged by, and what counts as holding.
//!
//! The bounds are there before the readings: they are those of the feature's first description.

use crate::measure::Row;
use crate::spread::Spread;

/// Ends the name of a step on throttled devices.
pub const THROTTLED: &str = "-throttled";

/// A side that is judged, and the side that it is compared with.
pub struct Pair {
    /// The side's name among the rows.
    pub side: &'static str,
    /// The other one's.
    pub baseline: &'static str,
    /// In the head of a table.
    pub title: &'static str,
}

/// The disks and the mount, each beside a file system on a plain loop device.
pub const PAIRS: [Pair; 3] = [
    Pair { side: "disk", baseline: "ext4", title: "ext4 on a disk" },
    Pair { side: "disk-xfs", baseline: "xfs", title: "xfs on a disk" },
    Pair { side: "oncefs", baseline: "ext4", title: "files in the mount" },
];

/// What a step's readings are judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// The baseline's time over the side's, in the same repetition.
    Speed,
    /// By how much the data area grew, as a share of the bytes that were written.
    Growth,
    /// Throughput as a share of what the throttled device allows.
    OfLimit,
}

/// What counts as holding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// No less than this.
    AtLeast(f64),
    /// No more than this.
    AtMost(f64),
    /// It is shown, not judged.
    None,
}

/// One line of the page.
pub struct Step {
    /// The row's workload.
    pub workload: &'static str,
    /// In the page.
    pub what: &'static str,
    /// What is judged.
    pub measure: Measure,
    /// How.
    pub bound: Bound,
}

const fn speed(workload: &'static str, what: &'static str, least: f64) -> Step {
    Step { workload, what, measure: Measure::Speed, bound: Bound::AtLeast(least) }
}

const fn shown(workload: &'static str, what: &'static str) -> Step {
    Step { workload, what, measure: Measure::Speed, bound: Bound::None }
}

const fn of_limit(workload: &'static str, what: &'static str) -> Step {
    Step { workload, what, measure: Measure::OfLimit, bound: Bound::AtLeast(0.95) }
}

/// All of them, in the order of the page.
pub const STEPS: [Step; 20] = [
    speed("tree-copy", "copy small files", 0.75),
    speed("tree-copy-again", "copy them again", 0.8),
    Step {
        workload: "tree-copy-again",
        what: "growth of the data area by that, of the files' bytes",
        measure: Measure::Growth,
        bound: Bound::AtMost(0.03),
    },
    speed("tree-read-cold", "read them, cold", 0.95),
    speed("tree-walk-cold", "list them with attributes, cold", 0.9),
    speed("tree-walk-warm", "list them again", 0.9),
    speed("tree-delete", "delete them, cold", 0.9),
    speed("sequential-write-0", "sequential writes, no duplicates", 0.85),
    speed("sequential-write-75", "sequential writes, 75 % duplicates", 0.85),
    speed("random-write-0", "random writes, no duplicates", 0.85),
    speed("random-write-75", "random writes, 75 % duplicates", 0.85),
    speed("fdatasync-append", "fdatasync of appended blocks", 0.8),
    speed("fdatasync-rewrite", "fdatasync of rewritten blocks", 0.8),
    shown("sequential-read-cold", "sequential reads, cold"),
    shown("sequential-reread", "sequential reads, again"),
    shown("random-read-cold", "random reads, cold"),
    of_limit("sequential-write-25-throttled", "throttled: sequential writes, 25 % duplicates, of the limit"),
    of_limit("sequential-write-75-throttled", "throttled: sequential writes, 75 % duplicates, of the limit"),
    of_limit("random-write-25-throttled", "throttled: random writes, 25 % duplicates, of the limit"),
    of_limit("random-write-75-throttled", "throttled: random writes, 75 % duplicates, of the limit"),
];

impl Step {
    /// The readings of a pair; nothing if there are none.
    pub fn spread(&self, rows: &[Row], pair: &Pair) -> Option<Spread> {
        let of = |side: &'static str| rows.iter().filter(move |row| row.side == side && row.workload == self.workload);
        Spread::of(of(pair.side).filter_map(|row| match self.measure {
            Measure::Speed => {
                let twin = of(pair.baseline).find(|twin| twin.repetition == row.repetition)?;
                Some(twin.seconds / row.seconds)
            }
            Measure::Growth => Some(row.stored_growth? as f64 / row.bytes as f64),
            Measure::OfLimit => row.limit_share,
        }))
    }
}

impl Bound {
    fn allows(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
            Bound::None => true,
        }
    }

    /// As a cell.
    pub fn describe(self) -> String {
        match self {
            Bound::AtLeast(least) => format!("at least {least}"),
            Bound::AtMost(most) => format!("at most {most}"),
            Bound::None => "-".to_owned(),
        }
    }

    /// The median decides; a bound within the spread is said.
    pub fn verdict(self, spread: Option<Spread>) -> String {
        let Some(spread) = spread else { return "not measured yet".to_owned() };
        if self == Bound::None {
            return "-".to_owned();
        }
        let is_within = self.allows(spread.min) != self.allows(spread.max);
        let word = if self.allows(spread.median) { "holds" } else { "**falls short**" };
        format!("{word}{}", if is_within { ", the bound is within the spread" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::row;

    #[test]
    fn the_median_decides_and_a_bound_within_the_spread_is_said() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        let bound = Bound::AtLeast(0.9);
        assert_eq!(bound.verdict(spread(&[0.9, 1.0])), "holds");
        assert_eq!(bound.verdict(spread(&[0.8, 0.85, 1.0])), "**falls short**, the bound is within the spread");
        assert_eq!(Bound::AtMost(0.03).verdict(spread(&[0.04])), "**falls short**");
        assert_eq!(Bound::None.verdict(spread(&[0.04])), "-");
        assert_eq!(bound.verdict(None), "not measured yet");
    }

    #[test]
    fn speed_is_held_against_the_same_file_system_in_the_same_repetition() {
        let with = |side: &str, repetition, seconds| row("tree-read-cold", side, repetition, seconds);
        let rows = [with("ext4", 0, 1.0), with("xfs", 0, 3.0), with("disk-xfs", 0, 6.0), with("disk-xfs", 1, 9.0)];
        let step = STEPS.iter().find(|step| step.workload == "tree-read-cold").unwrap();
        assert_eq!(step.spread(&rows, &PAIRS[1]), Spread::of([0.5]));
        assert_eq!(step.spread(&rows, &PAIRS[0]), None);
    }

    #[test]
    fn growth_is_a_share_of_what_was_written_and_a_limit_needs_no_baseline() {
        let mut again = row("tree-copy-again", "disk", 0, 1.0);
        (again.bytes, again.stored_growth) = (1000, Some(20));
        let mut throttled = row("sequential-write-25-throttled", "disk", 0, 1.0);
        throttled.limit_share = Some(0.97);
        let rows = [again, throttled];
        let found = |measure| {
            let step = STEPS.iter().find(|step| step.measure == measure).unwrap();
            step.spread(&rows, &PAIRS[0]).map(|spread| spread.median)
        };
        assert_eq!((found(Measure::Growth), found(Measure::OfLimit)), (Some(0.02), Some(0.97)));
    }
}
