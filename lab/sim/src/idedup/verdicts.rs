//! What was aimed for, and whether it was reached.

use super::experiment::{CACHE_PERCENTS, FilerResult, Filers, Idedup, IdedupRun, Index, Limit};
use crate::designs::Outcome;
use crate::device::DEVICES;
use oncefs_toolbox::Table;

/// Of threshold 1's savings, what the paper's threshold 4 keeps with a quarter of the cache: Corporate, Engineering.
const KEPT_MIN: [f64; 2] = [0.66, 0.54];
/// Of threshold 1's, what SmartDedup's trace 6 keeps with threshold 4.
const PHONE_KEPT_MIN: f64 = 0.94;
/// And its extents then, to those without dedup.
const PHONE_EXTENTS_MAX: f64 = 1.06;
/// Of an exact dedup's savings, what the budget of profile `desktop` keeps on each device.
const BUDGET_KEPT_MIN: [f64; DEVICES.len()] = [0.85, 0.95, 0.98, 0.95];
/// Of what the best choices within it would save.
const BEST_KEPT_MIN: f64 = 0.95;
const HEAD: [&str; 4] = ["aim", "paper", "here", "met"];

impl FilerResult {
    /// What threshold 4 keeps of threshold 1's, with this cache; and of threshold 1's with the complete one.
    fn kept_by_threshold_4(&self, percent: u64) -> [f64; 2] {
        let found = |percent, blocks| self.at(Index::Lru(percent), blocks).outcome.found() as f64;
        [percent, 100].map(|of| found(percent, 4) / found(of, 1).max(1.0))
    }
}

impl Filers {
    /// The aims that hold for any trace.
    pub fn verdicts_table(&self) -> Table {
        let mut table = Table::new(&HEAD);
        self.judge_budgets(&mut table);
        table
    }

    /// Two rows for each device and trace.
    fn judge_budgets(&self, table: &mut Table) {
        for (device, (model, least)) in DEVICES.iter().zip(BUDGET_KEPT_MIN).enumerate() {
            for filer in &self.0 {
                let kept = filer.kept(device);
                for (of, share, least) in
                    [("exact dedup", kept.of_exact(), least), ("the best choices", kept.of_optimum(), BEST_KEPT_MIN)]
                {
                    let percent = 100.0 * least;
                    let aim = format!("{}, {}: the budget keeps {percent:.0} % of {of}", filer.name, model.name);
                    table.row(verdict(&aim, "-", percent_of(share), share >= least));
                }
            }
        }
    }
}

impl Idedup {
    /// One row per aim.
    pub fn verdicts_table(&self) -> Table {
        let mut table = Table::new(&HEAD);
        for (filer, least) in self.filers.0.iter().zip(KEPT_MIN) {
            for percent in CACHE_PERCENTS {
                let aim =
                    |of| format!("{}: threshold 4 keeps {:.0} %, cache {percent} %{of}", filer.name, 100.0 * least);
                let [same, complete] = filer.kept_by_threshold_4(percent);
                table.row(verdict(&aim(""), "-", percent_of(same), same >= least));
                if percent == 25 {
                    let paper = format!("{:.0} %", 100.0 * least);
                    table.row(verdict(
                        &aim(", of the complete one's"),
                        &paper,
                        percent_of(complete),
                        complete >= least,
                    ));
                }
            }
        }
        let (kept, extents) = (self.phone_kept(4), self.phone_extents(4));
        table.row(verdict(
            "trace 6: threshold 4 loses at most 6 %",
            "6 %",
            percent_of(1.0 - kept),
            kept >= PHONE_KEPT_MIN,
        ));
        let here = format!("{extents:.3}");
        table.row(verdict("trace 6: with at most 1.06 times the extents", "1.06", here, extents <= PHONE_EXTENTS_MAX));
        self.filers.judge_budgets(&mut table);
        table
    }

    pub(super) fn phone_outcome(&self, threshold: u32) -> &Outcome {
        let run = IdedupRun { index: Index::Extended, limit: Limit::Blocks(threshold), memory_mib: 0 };
        &self.phone.result(run).outcome
    }

    /// Of what threshold 1 finds, the part that this one does.
    pub(super) fn phone_kept(&self, threshold: u32) -> f64 {
        self.phone_outcome(threshold).found() as f64 / self.phone_outcome(1).found().max(1) as f64
    }

    /// Extents, to those without dedup.
    pub(super) fn phone_extents(&self, threshold: u32) -> f64 {
        let without = IdedupRun { index: Index::None, limit: Limit::Blocks(1), memory_mib: 0 };
        self.phone_outcome(threshold).extents as f64 / self.phone.result(without).outcome.extents.max(1) as f64
    }
}

fn percent_of(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn verdict(aim: &str, paper: &str, here: String, is_met: bool) -> Vec<String> {
    vec![aim.to_owned(), paper.to_owned(), here, if is_met { "yes" } else { "no" }.to_owned()]
}
