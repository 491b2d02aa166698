//! The charts of `docs/results/older/sim-idedup.md`, each drawn as the paper's figure is.

use super::costs::{Reading, limits};
use super::experiment::{
    CACHE_PERCENTS, FilerResult, Filers, Idedup, IdedupRun, Index, Limit, MEMORY_MIB, PHONE_THRESHOLDS, RunResult,
    SCANT_MEMORIES_MIB, THRESHOLDS,
};
use super::tables::{LENGTHS, TIMES_MS};
use crate::device::{DEVICES, DISK};
use oncefs_plot::{Bars, Chart, Series};

impl Idedup {
    /// Files by name, with their SVG text.
    pub fn plots(&self) -> Vec<(String, String)> {
        let mut plots = self.filers.plots();
        plots.push(("sim-runs-work.svg".to_owned(), self.filers.work_plot().svg()));
        plots.push(("sim-runs-phone.svg".to_owned(), self.phone_plot().svg()));
        plots
    }

    /// SmartDedup's figure 12.
    fn phone_plot(&self) -> Bars {
        let figures = |blocks: u32| vec![self.phone_kept(blocks), self.phone_extents(blocks)];
        Bars {
            title: "Trace 6 (SmartDedup's figure 12)".to_owned(),
            y_label: "times".to_owned(),
            names: ["found, to threshold 1", "extents, to no dedup"].map(str::to_owned).to_vec(),
            groups: PHONE_THRESHOLDS.map(|blocks| (format!("threshold {blocks}"), figures(blocks))).to_vec(),
        }
    }
}

impl Filers {
    /// Those of each trace: files by name, with their SVG text.
    pub fn plots(&self) -> Vec<(String, String)> {
        let mut plots = Vec::new();
        for filer in &self.0 {
            let name = filer.name.to_lowercase();
            let mut add = |what: &str, svg| plots.push((format!("sim-runs-{what}-{name}.svg"), svg));
            add("found", filer.found_plot().svg());
            add("requests", filer.requests_plot().svg());
            add("responses", filer.responses_plot().svg());
            add("difference", filer.difference_plot().svg());
            add("buffer", filer.buffer_plot().svg());
            add("costs", filer.costs_plot().svg());
        }
        plots
    }

    /// Figure 10.
    fn work_plot(&self) -> Bars {
        let per_thousand = |filer: &FilerResult, blocks| {
            filer.at(Index::Lru(100), blocks).outcome.lookups as f64 * 1e3 / filer.truth.written as f64
        };
        let groups = self
            .0
            .iter()
            .map(|filer| (filer.name.clone(), THRESHOLDS.map(|blocks| per_thousand(filer, blocks)).to_vec()));
        let names = THRESHOLDS.map(|blocks| format!("threshold {blocks}")).to_vec();
        let title = "Blocks looked up (iDedup's figure 10)".to_owned();
        Bars { title, y_label: "per 1000 written".to_owned(), names, groups: groups.collect() }
    }
}

impl FilerResult {
    /// Figure 7.
    fn found_plot(&self) -> Chart {
        let series = CACHE_PERCENTS.map(|percent| Series {
            name: format!("cache {percent} %"),
            points: THRESHOLDS
                .map(|blocks| (f64::from(blocks), self.found_percent(self.at(Index::Lru(percent), blocks))))
                .to_vec(),
        });
        self.chart("duplicates found (figure 7)", "threshold, blocks", "% of writes", series.to_vec())
    }

    /// Figure 8.
    fn requests_plot(&self) -> Chart {
        let points = |result: &RunResult| {
            LENGTHS.map(|blocks| (f64::from(blocks), result.reads.percent_at_most(blocks))).to_vec()
        };
        self.chart("disk requests (figure 8)", "at most so many blocks", "%", self.by_threshold(points))
    }

    /// Figure 9, above.
    fn responses_plot(&self) -> Chart {
        let points = |result: &RunResult| TIMES_MS.map(|ms| (ms, result.reads.percent_within(&DISK, ms))).to_vec();
        self.chart("response times (figure 9)", "at most so many ms", "%", self.by_threshold(points))
    }

    /// Figure 9, below.
    fn difference_plot(&self) -> Chart {
        let within = |result: &RunResult, ms| result.reads.percent_within(&DISK, ms);
        let above = |ms: f64| (ms, (within(self.baseline(), ms) - within(self.at(Index::Lru(100), 1), ms)).abs());
        let series = vec![Series { name: "|no dedup - 1|".to_owned(), points: TIMES_MS.map(above).to_vec() }];
        self.chart("no dedup and threshold 1 (figure 9)", "response, ms", "difference, %", series)
    }

    /// Section 5.7.
    fn buffer_plot(&self) -> Chart {
        let hits = |percent: u64, memory_mib| {
            let run = IdedupRun { index: Index::Lru(percent), limit: Limit::Blocks(4), memory_mib };
            (percent as f64, self.result(run).reads.hit_percent())
        };
        let series = [MEMORY_MIB].into_iter().chain(SCANT_MEMORIES_MIB).map(|memory_mib| Series {
            name: format!("{memory_mib} MiB"),
            points: [25, 50, 100].map(|percent| hits(percent, memory_mib)).to_vec(),
        });
        self.chart("buffer cache (section 5.7)", "index, % of the blocks", "hits, %", series.collect())
    }

    /// The budget beside fixed thresholds.
    fn costs_plot(&self) -> Bars {
        let groups = DEVICES.iter().enumerate().map(|(device, model)| {
            let sum = |limit| (100.0 * self.cost(limit, Reading::Cold, device).sum()).max(0.0);
            (model.name.to_owned(), limits(device).into_iter().map(sum).collect())
        });
        let fixed = THRESHOLDS.iter().map(|blocks| format!("threshold {blocks}"));
        Bars {
            title: format!("{}: savings lost and read time added, each file cold", self.name),
            y_label: "%".to_owned(),
            names: fixed.chain(["budget".to_owned()]).collect(),
            groups: groups.collect(),
        }
    }

    fn by_threshold(&self, points: impl Fn(&RunResult) -> Vec<(f64, f64)>) -> Vec<Series> {
        self.thresholds().into_iter().map(|(name, result)| Series { name, points: points(result) }).collect()
    }

    fn chart(&self, what: &str, x_label: &str, y_label: &str, series: Vec<Series>) -> Chart {
        let title = format!("{}: {what}", self.name);
        Chart { title, x_label: x_label.to_owned(), y_label: y_label.to_owned(), series }
    }
}
