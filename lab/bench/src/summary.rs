//! The result of a whole run as text and JSON: a table per workload, and the raw rows.

use std::path::Path;

use oncefs_toolbox::Table;
use serde::Serialize;

use crate::failure::Result;
use crate::lessfs::{self, PathRow};
use crate::measure::Row;
use crate::report::{as_markdown, write_json};
use crate::spread::Spread;

/// Everything a run produced.
#[derive(Serialize)]
pub struct Summary {
    /// Machine, settings and the meaning of what follows, line by line.
    pub head: Vec<String>,
    /// The rows, in the order in which they were measured.
    pub rows: Vec<Row>,
    /// Latencies of reads through a fingerprint index and through a map.
    pub read_paths: Vec<PathRow>,
}

impl Summary {
    /// Writes everything as JSON.
    pub fn write_json(&self, path: &Path) -> Result<()> {
        write_json(path, self)
    }

    /// All tables as text; ratios are to the side named `baseline`.
    pub fn tables(&self, baseline: &str) -> String {
        let mut text: String = self.head.iter().map(|line| format!("{line}\n")).collect();
        for workload in distinct(self.rows.iter().map(|row| row.workload.as_str())) {
            text.push_str(&self.workload_table(workload, baseline));
        }
        text.push_str(&lessfs::table(&self.read_paths));
        text
    }

    fn of<'a>(&'a self, workload: &'a str, side: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.workload == workload && row.side == side)
    }

    fn workload_table(&self, workload: &str, baseline: &str) -> String {
        let here = || self.rows.iter().filter(|row| row.workload == workload);
        let megabytes = here().next().map_or(0.0, |row| row.bytes as f64 / 1e6);
        let repetitions = here().map(|row| row.repetition + 1).max().unwrap_or(0);
        let mut table = Table::new(&COLUMNS);
        for side in distinct(here().map(|row| row.side.as_str())) {
            let rows: Vec<&Row> = self.of(workload, side).collect();
            let base: Vec<&Row> = self.of(workload, baseline).collect();
            table.row(side_cells(side, &rows, &base));
        }
        format!(
            "\n{workload}: {megabytes:.1} MB, {repetitions} repetitions, ratio to {baseline}\n{}",
            as_markdown(table)
        )
    }
}

const COLUMNS: [&str; 14] = [
    "side",
    "MB/s",
    "ratio",
    "p50 us",
    "p95 us",
    "p99.5 us",
    "dev W MB",
    "dev R MB",
    "data W MB",
    "meta B/block",
    "CPU s",
    "daemon s",
    "daemon MB",
    "of limit",
];

fn side_cells(side: &str, rows: &[&Row], base: &[&Row]) -> Vec<String> {
    let spread = |value: &dyn Fn(&Row) -> Option<f64>| Spread::of(rows.iter().filter_map(|row| value(row)));
    let median = |digits: usize, value: &dyn Fn(&Row) -> Option<f64>| {
        spread(value).map_or("-".to_owned(), |spread| format!("{:.digits$}", spread.median))
    };
    vec![
        side.to_owned(),
        spread(&|row| Some(row.mb_per_s)).map_or("-".to_owned(), |spread| format!("{spread:.1}")),
        ratio(rows, base).map_or("-".to_owned(), |spread| format!("{spread:.2}")),
        median(1, &|row| row.latency.as_ref().map(|latency| latency.p50_us)),
        median(1, &|row| row.latency.as_ref().map(|latency| latency.p95_us)),
        median(1, &|row| row.latency.as_ref().map(|latency| latency.p995_us)),
        median(1, &|row| Some(device_written(row) as f64 / 1e6)),
        median(1, &|row| Some(row.device.read as f64 / 1e6)),
        median(1, &|row| row.data_area_written.map(|bytes| bytes as f64 / 1e6)),
        median(1, &metadata_bytes_per_block),
        median(2, &|row| Some(row.cpu_machine_s)),
        median(2, &|row| row.cpu_daemon_s),
        median(0, &|row| row.daemon_peak_bytes.map(|bytes| bytes as f64 / 1e6)),
        median(3, &|row| row.limit_share),
    ]
}

/// Throughput against the baseline's in the same repetition.
fn ratio(rows: &[&Row], base: &[&Row]) -> Option<Spread> {
    let paired = rows.iter().filter_map(|row| {
        let twin = base.iter().find(|twin| twin.repetition == row.repetition)?;
        Some(twin.seconds / row.seconds)
    });
    Spread::of(paired)
}

fn device_written(row: &Row) -> u64 {
    row.device_written_settled.unwrap_or(row.device.written)
}

/// Device bytes beyond the data that had to be stored, per block handed in.
fn metadata_bytes_per_block(row: &Row) -> Option<f64> {
    let stored = row.stored_bytes?;
    let operations = row.latency.as_ref()?.operations as f64;
    Some((device_written(row) as f64 - stored as f64) / operations)
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing;

    fn row(side: &str, repetition: usize, seconds: f64) -> Row {
        testing::row("sequential-write-0", side, repetition, seconds)
    }

    #[test]
    fn ratios_are_taken_between_rows_of_the_same_repetition() {
        let rows = [row("a", 0, 1.0), row("a", 1, 2.0)];
        let base = [row("b", 1, 4.0), row("b", 0, 3.0)];
        let ratio = ratio(&rows.iter().collect::<Vec<_>>(), &base.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((ratio.min, ratio.max), (2.0, 3.0));
    }

    #[test]
    fn metadata_is_what_the_device_wrote_beyond_the_data() {
        assert_eq!(metadata_bytes_per_block(&row("a", 0, 1.0)), Some(100.0));
    }
}
