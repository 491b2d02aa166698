//! The tables of `docs/results/older/sim-idedup.md`.

use super::costs::{READINGS, Reading, limits};
use super::experiment::{
    CACHE_PERCENTS, FilerResult, Filers, Idedup, IdedupRun, Index, Limit, MEMORY_MIB, PHONE_THRESHOLDS, RunResult,
    SCANT_MEMORIES_MIB, THRESHOLDS,
};
use crate::device::{DEVICES, DISK};
use crate::generate::{CORPORATE, ENGINEERING, PHONE};
use oncefs_toolbox::Table;

/// Lengths of disk requests at which their distribution is given.
pub(super) const LENGTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 47];
/// Response times at which theirs is given, milliseconds.
pub(super) const TIMES_MS: [f64; 9] = [0.2, 2.0, 8.0, 10.0, 12.0, 20.0, 40.0, 80.0, 160.0];
/// The paper's index with a complete cache, in the figures' 1 GB.
const COMPLETE: Index = Index::Lru(100);

pub(super) fn decimals(value: f64) -> String {
    format!("{value:.2}")
}

impl FilerResult {
    /// No dedup, and the paper's thresholds with a complete cache, with their names.
    pub(super) fn thresholds(&self) -> Vec<(String, &RunResult)> {
        let with = THRESHOLDS.map(|blocks| (format!("threshold {blocks}"), self.at(COMPLETE, blocks)));
        std::iter::once(("no dedup".to_owned(), self.baseline())).chain(with).collect()
    }
}

impl Idedup {
    /// What was stated and what was made.
    pub fn twins_table(&self) -> Table {
        let head = [
            "trace",
            "written GB",
            "made",
            "blocks a write",
            "made",
            "read GB",
            "made",
            "blocks a read",
            "made",
            "duplicates %",
            "made",
            "overwrites %",
        ];
        let mut table = Table::new(&head);
        let results = self.filers.0.iter().chain([&self.phone]);
        for (twin, result) in [CORPORATE, ENGINEERING, PHONE].iter().zip(results) {
            let (FilerResult { scale, .. }, truth, made) = (result, &result.truth, &result.made);
            let gb = |blocks: u64| decimals((blocks * scale) as f64 * 4096.0 / 1e9);
            let mean = |blocks: u64, requests: u64| decimals(blocks as f64 / requests.max(1) as f64);
            let stated = |gb: f64, requests: f64| decimals(gb * 1e9 / 4096.0 / requests.max(1.0));
            table.row(vec![
                twin.name.to_owned(),
                decimals(twin.written_gb),
                gb(truth.written),
                stated(twin.written_gb, twin.writes),
                mean(truth.written, made.writes),
                decimals(twin.read_gb),
                gb(made.read_blocks),
                stated(twin.read_gb, twin.reads),
                mean(made.read_blocks, made.reads),
                decimals(100.0 * (twin.short.iter().sum::<f64>() + twin.long)),
                decimals(truth.percent_of_written(truth.duplicates)),
                decimals(truth.percent_of_written(truth.written - truth.places_ever)),
            ]);
        }
        table
    }

    /// SmartDedup's figure 12: trace 6 by threshold.
    pub fn phone_table(&self) -> Table {
        let mut table = Table::new(&["threshold", "found %", "of threshold 1 %", "extents", "of those without dedup"]);
        for threshold in PHONE_THRESHOLDS {
            let outcome = self.phone_outcome(threshold);
            table.row(vec![
                threshold.to_string(),
                decimals(self.phone.truth.percent_of_written(outcome.found())),
                decimals(100.0 * self.phone_kept(threshold)),
                outcome.extents.to_string(),
                decimals(self.phone_extents(threshold)),
            ]);
        }
        table
    }
}

impl Filers {
    /// Figure 7: found by threshold and cache.
    pub fn found_table(&self) -> Table {
        let caches = CACHE_PERCENTS.map(|percent| format!("cache {percent} %"));
        let of = CACHE_PERCENTS.map(|percent| format!("of {percent} %'s threshold 1"));
        let head: Vec<&str> = ["trace", "threshold"]
            .into_iter()
            .chain(caches.iter().map(String::as_str))
            .chain(of.iter().map(String::as_str))
            .chain(["25 % of the complete one's"])
            .collect();
        let mut table = Table::new(&head);
        for filer in &self.0 {
            let found = |percent, blocks| filer.found_percent(filer.at(Index::Lru(percent), blocks));
            for threshold in THRESHOLDS {
                let mut row = vec![filer.name.clone(), threshold.to_string()];
                row.extend(CACHE_PERCENTS.map(|percent| decimals(found(percent, threshold))));
                row.extend(
                    CACHE_PERCENTS.map(|percent| decimals(100.0 * found(percent, threshold) / found(percent, 1))),
                );
                row.push(decimals(100.0 * found(25, threshold) / found(100, 1)));
                table.row(row);
            }
        }
        table
    }

    /// The same with two levels, without and with extension of runs.
    pub fn levels_table(&self) -> Table {
        let head = [
            "trace",
            "threshold",
            "cache 25 %",
            "two levels, in-line",
            "all",
            "extended, in-line",
            "all",
            "of threshold 1 %",
        ];
        let mut table = Table::new(&head);
        for filer in &self.0 {
            let percent = |blocks| decimals(filer.truth.percent_of_written(blocks));
            for threshold in THRESHOLDS {
                let mut row = vec![filer.name.clone(), threshold.to_string()];
                row.push(percent(filer.at(Index::Lru(25), threshold).outcome.found_inline));
                for index in [Index::TwoLevels, Index::Extended] {
                    let outcome = &filer.at(index, threshold).outcome;
                    row.extend([percent(outcome.found_inline), percent(outcome.found())]);
                }
                let all = |threshold| filer.at(Index::Extended, threshold).outcome.found() as f64;
                row.push(decimals(100.0 * all(threshold) / all(1)));
                table.row(row);
            }
        }
        table
    }

    /// Figure 8: disk requests by their length.
    pub fn requests_table(&self) -> Table {
        let lengths = LENGTHS.map(|blocks| format!("<= {blocks}"));
        let head: Vec<&str> = ["trace", "layout", "extents", "disk requests"]
            .into_iter()
            .chain(lengths.iter().map(String::as_str))
            .collect();
        let mut table = Table::new(&head);
        for filer in &self.0 {
            for (name, result) in filer.thresholds() {
                let mut row = vec![filer.name.clone(), name, result.outcome.extents.to_string()];
                row.push(result.reads.disk_requests.values().sum::<u64>().to_string());
                row.extend(LENGTHS.map(|blocks| decimals(result.reads.percent_at_most(blocks))));
                table.row(row);
            }
        }
        table
    }

    /// Figure 9: response times on the disk.
    pub fn responses_table(&self) -> Table {
        let times = TIMES_MS.map(|ms| format!("<= {ms} ms"));
        let head: Vec<&str> = ["trace", "layout", "mean ms", "added %", "all cold: added %"]
            .into_iter()
            .chain(times.iter().map(String::as_str))
            .collect();
        let mut table = Table::new(&head);
        for filer in &self.0 {
            let without = filer.baseline();
            let over = |ms: f64, without: f64| decimals(100.0 * (ms / without - 1.0));
            for (name, result) in filer.thresholds() {
                let mean = result.reads.response_ms(&DISK);
                let mut row = vec![filer.name.clone(), name, format!("{mean:.3}")];
                row.push(over(mean, without.reads.response_ms(&DISK)));
                row.push(over(result.cold.busy_ms(&DISK), without.cold.busy_ms(&DISK)));
                row.extend(TIMES_MS.map(|ms| decimals(result.reads.percent_within(&DISK, ms))));
                table.row(row);
            }
        }
        table
    }

    /// Figure 10: what the detector has to do. The simulator knows no time.
    pub fn work_table(&self) -> Table {
        let head = ["trace", "threshold", "look-ups", "holders looked at", "stored while open, shared later"];
        let mut table = Table::new(&head);
        for filer in &self.0 {
            for threshold in THRESHOLDS {
                let outcome = &filer.at(COMPLETE, threshold).outcome;
                let per_thousand = |count: u64| format!("{:.1}", count as f64 * 1e3 / filer.truth.written as f64);
                let mut row = vec![filer.name.clone(), threshold.to_string()];
                row.extend([outcome.lookups, outcome.holders, outcome.remapped].map(per_thousand));
                table.row(row);
            }
        }
        table
    }

    /// Section 5.7: the buffer cache, of which the index takes its part.
    pub fn buffer_table(&self) -> Table {
        let caches = CACHE_PERCENTS.map(|percent| format!("cache {percent} %"));
        let head: Vec<&str> =
            ["trace", "memory MiB", "no dedup"].into_iter().chain(caches.iter().map(String::as_str)).collect();
        let mut table = Table::new(&head);
        for filer in &self.0 {
            for memory_mib in [MEMORY_MIB].into_iter().chain(SCANT_MEMORIES_MIB) {
                let hits = |index, blocks| {
                    let run = IdedupRun { index, limit: Limit::Blocks(blocks), memory_mib };
                    decimals(filer.result(run).reads.hit_percent())
                };
                let mut row = vec![filer.name.clone(), memory_mib.to_string(), hits(Index::None, 1)];
                row.extend(CACHE_PERCENTS.map(|percent| hits(Index::Lru(percent), 4)));
                table.row(row);
            }
        }
        table
    }

    /// What the budget of profile `desktop` keeps of an exact dedup's savings and of what the best choices within it would
    /// save, and how much longer cold reads take.
    pub fn budget_table(&self) -> Table {
        let head = [
            "trace",
            "device",
            "a piece costs",
            "exact saves %",
            "best within the budget %",
            "default %",
            "of exact %",
            "of the best %",
            "cold reads +%",
            "with threshold 1 +%",
        ];
        let mut table = Table::new(&head);
        for filer in &self.0 {
            let percent = |part: f64, whole: f64| decimals(100.0 * part / whole.max(1.0));
            let places = filer.truth.places as f64;
            for (device, model) in DEVICES.iter().enumerate() {
                let kept = filer.kept(device);
                let added = |limit| decimals(100.0 * filer.cost(limit, Reading::Cold, device).added);
                let mut row = vec![filer.name.clone(), model.name.to_owned()];
                row.push(format!("{:.1}", model.piece_cost().blocks()));
                row.extend([kept.exact, kept.optimum, kept.saved].map(|saved| percent(saved, places)));
                row.extend([kept.of_exact(), kept.of_optimum()].map(|share| decimals(100.0 * share)));
                row.extend([Limit::Budget(device), Limit::Blocks(1)].map(added));
                table.row(row);
            }
        }
        table
    }

    /// What each threshold costs, by device and by how files are read.
    pub fn costs_table(&self) -> Table {
        let head = ["trace", "device", "read", "1", "2", "4", "8", "budget"];
        let mut table = Table::new(&head);
        for filer in &self.0 {
            for (device, model) in DEVICES.iter().enumerate() {
                for (reading, name) in READINGS {
                    let mut row = vec![filer.name.clone(), model.name.to_owned(), name.to_owned()];
                    row.extend(limits(device).into_iter().map(|limit| cost(filer, limit, reading, device)));
                    table.row(row);
                }
            }
        }
        table
    }
}

/// Lost and added, and their sum, percent.
fn cost(filer: &FilerResult, limit: Limit, reading: Reading, device: usize) -> String {
    let cost = filer.cost(limit, reading, device);
    format!("{:.1}{:+.1} = {:.1}", 100.0 * cost.lost, 100.0 * cost.added, 100.0 * cost.sum())
}
