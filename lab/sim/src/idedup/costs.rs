//! What a threshold costs: savings lost, and read time added.

use super::experiment::{FilerResult, IdedupRun, Index, Limit, MEMORY_MIB, RunResult, THRESHOLDS};
use crate::device::{DEVICES, DeviceModel};

/// Whose read time counts, and in which unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// That of the trace's reads, behind the buffer cache.
    Traced,
    /// That of reading each file once that is not read at random, with nothing cached.
    Cold,
    /// The same, both parts in blocks for each block that files have: a block that is not saved costs as much as the
    /// transfer of one more.
    ColdInBlocks,
}

/// All of them, and their names.
pub(super) const READINGS: [(Reading, &str); 3] = [
    (Reading::Traced, "as traced"),
    (Reading::Cold, "each file cold"),
    (Reading::ColdInBlocks, "each file cold, in blocks"),
];

/// Both parts, which weigh the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// What threshold 1 saves in the end and this one does not, as a part of what threshold 1 saves.
    pub lost: f64,
    /// Time that the device is busy with reads, over that without dedup, less one. Below 0: sharing saves reads.
    pub added: f64,
}

impl Cost {
    pub fn sum(self) -> f64 {
        self.lost + self.added
    }
}

/// Blocks saved in the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kept {
    /// By default.
    pub saved: f64,
    /// By an exact dedup.
    pub exact: f64,
    /// By the best choice for each file within its budget.
    pub optimum: f64,
}

impl Kept {
    pub fn of_exact(self) -> f64 {
        self.saved / self.exact.max(1.0)
    }

    pub fn of_optimum(self) -> f64 {
        self.saved / self.optimum.max(1.0)
    }
}

impl Reading {
    fn busy_ms(self, result: &RunResult, device: &DeviceModel) -> f64 {
        match self {
            Self::Traced => result.reads.busy_ms(device),
            Self::Cold | Self::ColdInBlocks => result.cold.busy_ms(device),
        }
    }
}

/// What is compared: the paper's thresholds, and the budget of profile `desktop` on this device.
pub(super) fn limits(device: usize) -> Vec<Limit> {
    THRESHOLDS.into_iter().map(Limit::Blocks).chain([Limit::Budget(device)]).collect()
}

impl FilerResult {
    /// What a threshold costs on a device.
    pub(super) fn cost(&self, limit: Limit, reading: Reading, device: usize) -> Cost {
        let result = self.result(IdedupRun { index: Index::Extended, limit, memory_mib: MEMORY_MIB });
        let saved = |result: &RunResult| self.truth.places as f64 - result.outcome.stored as f64;
        let device = &DEVICES[device];
        let most = saved(self.at(Index::Extended, 1));
        let lost = most - saved(result);
        let without = reading.busy_ms(self.baseline(), device);
        let added_ms = reading.busy_ms(result, device) - without;
        let (whole, whole_ms) = match reading {
            Reading::Traced | Reading::Cold => (most, without),
            Reading::ColdInBlocks => (self.truth.places as f64, self.truth.places as f64 * device.block_us / 1e3),
        };
        Cost { lost: lost / whole.max(1.0), added: added_ms / whole_ms.max(f64::MIN_POSITIVE) }
    }

    /// What the budget keeps on a device.
    pub(super) fn kept(&self, device: usize) -> Kept {
        let result =
            self.result(IdedupRun { index: Index::Extended, limit: Limit::Budget(device), memory_mib: MEMORY_MIB });
        Kept {
            saved: self.truth.places as f64 - result.outcome.stored as f64,
            exact: (self.truth.places - self.truth.contents) as f64,
            optimum: self.optima[&device] as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::designs::Outcome;
    use crate::device::{ReadOutcome, THROTTLED};
    use crate::idedup::Made;
    use crate::oracle::Truth;

    const THROTTLED_AT: usize = 1;

    /// 1,000 places; for each threshold and the budget the blocks stored and the disk requests, of a block each.
    fn filer(layouts: [(u64, u64); 5], without: u64) -> FilerResult {
        let result = |stored, requests| {
            let reads = ReadOutcome { disk_requests: [(1, requests)].into(), ..ReadOutcome::default() };
            let outcome = Outcome { stored, found_inline: 1_000 - stored, ..Outcome::default() };
            RunResult { outcome, reads: reads.clone(), cold: reads }
        };
        let run = |index, limit| IdedupRun { index, limit, memory_mib: MEMORY_MIB };
        let mut results: BTreeMap<IdedupRun, RunResult> = (limits(THROTTLED_AT).into_iter().zip(layouts))
            .map(|(limit, (stored, requests))| (run(Index::Extended, limit), result(stored, requests)))
            .collect();
        results.insert(run(Index::None, Limit::Blocks(1)), result(1_000, without));
        let truth = Truth { places: 1_000, written: 1_000, ..Truth::default() };
        let optima = BTreeMap::from([(THROTTLED_AT, 400)]);
        FilerResult { name: "test".to_owned(), scale: 1, truth, made: Made::default(), results, optima }
    }

    #[test]
    fn savings_and_read_time_are_weighed_alike() {
        assert_eq!(DEVICES[THROTTLED_AT], THROTTLED);
        let filer = filer([(600, 200), (700, 150), (800, 120), (900, 110), (700, 110)], 100);
        let cost = |limit, reading| filer.cost(limit, reading, THROTTLED_AT);
        let near = |cost: Cost, lost: f64, added: f64| (cost.lost - lost).abs() + (cost.added - added).abs() < 1e-9;
        assert!(near(cost(Limit::Blocks(1), Reading::Traced), 0.0, 1.0));
        assert!(near(cost(Limit::Blocks(8), Reading::Cold), 0.75, 0.1));
        let per_request = THROTTLED.request_blocks() + 1.0;
        assert!(near(cost(Limit::Blocks(2), Reading::ColdInBlocks), 0.1, 0.05 * per_request));
    }

    #[test]
    fn what_the_budget_keeps_is_held_against_an_exact_dedup_and_the_best_choices() {
        let mut filer = filer([(600, 200), (700, 150), (800, 120), (900, 110), (700, 110)], 100);
        filer.truth.contents = 500;
        let kept = filer.kept(THROTTLED_AT);
        assert_eq!((kept.of_exact(), kept.of_optimum()), (0.6, 0.75));
    }
}
