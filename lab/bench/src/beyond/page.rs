//! The page: verdicts, figures, what names take, and the costs of a large volume.

use oncefs_toolbox::Table;

use super::args::BeyondArgs;
use super::cluster::Cluster;
use super::forecast;
use super::reading::Readings;
use super::space::LOCAL;
use super::speed::{ONCEFS, RADOS};
use super::steps::STEPS;
use crate::origin::Origin;
use crate::spread::Spread;

/// All of it.
pub fn text(args: &BeyondArgs, origin: &Origin, cluster: &Cluster, readings: &Readings) -> String {
    let cluster = cluster.describe().unwrap_or_else(|failure| format!("a cluster that does not tell ({failure})"));
    let limits = match args.throttle.is_empty() {
        true => "The OSDs' devices are not limited, so speeds are shown and not judged.",
        false => {
            "While files are written and read, the OSDs' devices are limited to the slow disk (40 MB/s written, \
                  100 MB/s read)."
        }
    };
    format!(
        "{TITLE}\n\n{} The cluster: {cluster}, on the same machine. {limits}\n\n## Verdicts\n\n{LEGEND}\n\n{}\n\n## \
         Figures\n\nMedians (least-greatest).\n\n{}\n\n## A volume of 100 TB\n\n{LEGEND_FORECAST}\n\n{}",
        origin.head(),
        verdicts(readings, !args.throttle.is_empty()),
        figures(readings),
        forecast::table(readings)
    )
}

const TITLE: &str = "# Results: a volume in objects of a Ceph cluster

A volume [beyond one machine](../beyond.md), beside what the same cluster does without oncefs. How it is measured: \
[beyond](../benchmarks.md#beyond).";

const LEGEND: &str = "Median (least-greatest), each ratio within a repetition. The median decides.";

const LEGEND_FORECAST: &str = "Computed from the figures above, not measured. A head works with less memory than all \
hints and the whole table take: `memory=` bounds both, hints that memory lacks are on its disk, and a page of the table \
that memory lacks costs a round trip.";

fn verdicts(readings: &Readings, is_throttled: bool) -> String {
    let mut table = Table::new(&["", "bound", "ratio", "verdict"]);
    for step in &STEPS {
        let (spread, bound) = (step.spread(readings), step.bound_in(is_throttled));
        let ratio = spread.map_or("-".to_owned(), |spread| format!("{spread:.2}"));
        table.row(vec![step.title.to_owned(), bound.describe(), ratio, bound.verdict(spread)]);
    }
    table.to_string()
}

/// A number on the page: its readings, what it is, and its unit with what it is divided by.
struct Figure {
    what: &'static str,
    title: &'static str,
    unit: &'static str,
    divisor: f64,
}

const fn figure(what: &'static str, title: &'static str, unit: &'static str, divisor: f64) -> Figure {
    Figure { what, title, unit, divisor }
}

const FIGURES: [Figure; 19] = [
    figure("fsync", "4 KiB with fdatasync, median", "ms", 1.0),
    figure("fsync-p99", "the same, 99th percentile", "ms", 1.0),
    figure("write", "sequential writes", "MB/s", 1e6),
    figure("read", "sequential reads, cold", "MB/s", 1e6),
    figure("write-25", "writes, 25 % duplicates", "MB/s", 1e6),
    figure("write-75", "writes, 75 % duplicates", "MB/s", 1e6),
    figure("stored", "stored of data of which half repeats", "MB", 1e6),
    figure("keys-per-name", "keys for a file of one block", "", 1.0),
    figure("omap-per-name", "bytes of its keys and values", "bytes", 1.0),
    figure("omap-per-block-of-large", "the same for a block of a large file", "bytes", 1.0),
    figure("table-bytes-per-block", "block table for a stored block", "bytes", 1.0),
    figure("hint-bytes-per-block", "hints in memory for a stored block", "bytes", 1.0),
    figure("log-for-block", "log written for a block of a large file", "bytes", 1.0),
    figure("log-for-synced-block", "log written for a block with fdatasync", "bytes", 1.0),
    figure("data-when-full", "objects of data, before all is deleted", "MB", 1e6),
    figure("data-when-deleted", "objects of data, after it", "MB", 1e6),
    figure("metadata-when-deleted", "other objects, after it", "MB", 1e6),
    figure("mount-clean", "mount after an unmount", "s", 1.0),
    figure("mount-crashed", "mount after a crash", "s", 1.0),
];

fn figures(readings: &Readings) -> String {
    let mut table = Table::new(&["", "unit", "oncefs", "RADOS", "oncefs in a directory"]);
    for figure in &FIGURES {
        let cell = |side: &str| {
            let spread = readings.spread(figure.what, side);
            spread.map_or("-".to_owned(), |spread| format!("{:.2}", divided(spread, figure.divisor)))
        };
        let cells = [ONCEFS, RADOS, LOCAL].map(cell);
        table.row([figure.title.to_owned(), figure.unit.to_owned()].into_iter().chain(cells).collect());
    }
    table.to_string()
}

fn divided(spread: Spread, divisor: f64) -> Spread {
    Spread { median: spread.median / divisor, min: spread.min / divisor, max: spread.max / divisor }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_readings_is_not_measured_and_one_with_them_is_judged() {
        let mut readings = Readings::default();
        for (side, value) in [(ONCEFS, 3.0), (RADOS, 2.0)] {
            readings.add("fsync", side, 0, value);
        }
        let verdicts = verdicts(&readings, false);
        let line = |title: &str| {
            let line = verdicts.lines().find(|line| line.contains(title)).unwrap();
            // However wide its columns are.
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(line("median time").contains("| 1.50 (1.50-1.50) | **falls short** |"), "{verdicts}");
        assert!(line("stored for the same data").contains("not measured yet"), "{verdicts}");
        assert!(figures(&readings).contains("3.00 (3.00-3.00)"));
    }
}
