//! iDedup's experiments: what is replayed, and what came of it.

use std::collections::BTreeMap;
use std::fmt;

use oncefs_dedup::Slowdown;

use crate::designs::Outcome;
use crate::device::{DEVICES, ReadOutcome};
use crate::oracle::Truth;

/// By how much a cold read may become slower: as in profile `desktop`.
pub(super) const BUDGET: Slowdown = Slowdown(100);
/// The paper's thresholds.
pub(super) const THRESHOLDS: [u32; 4] = [1, 2, 4, 8];
/// Of SmartDedup's figure 12.
pub(super) const PHONE_THRESHOLDS: [u32; 4] = [1, 2, 3, 4];
/// The paper's caches: 1, 0.5 and 0.25 GB.
pub(super) const CACHE_PERCENTS: [u64; 3] = [100, 50, 25];
/// The paper's machine: 8 GB.
pub(super) const MEMORY_MIB: u64 = 8_192;
/// Machines in which the cache of the index takes a good part of the memory.
pub(super) const SCANT_MEMORIES_MIB: [u64; 2] = [2_048, 1_280];
/// The twin of trace 6 is as many times as large as the others.
const PHONE_LARGER: u64 = 4;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdedupOptions {
    /// One part in so many of the traces' sizes, and of the memory.
    pub scale: u64,
    /// Of the twins.
    pub seed: u64,
    /// Replays at the same time.
    pub threads: usize,
}

/// How duplicates are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Index {
    /// Not at all: the baseline.
    None,
    /// In-line by a memory-only LRU that holds hints for this percentage of the blocks written.
    Lru(u64),
    /// In-line and out-of-line by two levels, a quarter of the blocks' hints in memory.
    TwoLevels,
    /// The same, and runs are extended through the block table.
    Extended,
}

/// The shortest run that is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Of so many blocks.
    Blocks(u32),
    /// Whatever fits the budget of each file on the device of this number, as in profile `desktop`.
    Budget(usize),
}

/// One replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdedupRun {
    /// With this index,
    pub index: Index,
    /// sharing runs of at least so many blocks,
    pub limit: Limit,
    /// with so many MiB for buffer cache and index, before they are scaled.
    pub memory_mib: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunResult {
    /// Of the writes.
    pub outcome: Outcome,
    /// Of the reads.
    pub reads: ReadOutcome,
    /// Of reading, in the end and with nothing cached, each file that is not read at random.
    pub cold: ReadOutcome,
}

/// All replays of one trace.
#[derive(Clone, Debug, PartialEq)]
pub struct FilerResult {
    /// What it is called.
    pub name: String,
    /// The memory of its machine is that of the paper's, divided by this.
    pub scale: u64,
    /// What can be found.
    pub truth: Truth,
    /// Requests made.
    pub made: Made,
    /// What was found.
    pub results: BTreeMap<IdedupRun, RunResult>,
    /// By device: the blocks saved if each file makes the best choice within its budget.
    pub optima: BTreeMap<usize, u64>,
}

/// What a made trace has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Write requests.
    pub writes: u64,
    /// Read requests.
    pub reads: u64,
    /// Blocks read.
    pub read_blocks: u64,
}

/// Traces with the same replays each.
#[derive(Clone, Debug, PartialEq)]
pub struct Filers(pub Vec<FilerResult>);

/// All replays of twins.
#[derive(Clone, Debug, PartialEq)]
pub struct Idedup {
    /// What was asked for.
    pub options: IdedupOptions,
    /// Corporate and Engineering.
    pub filers: Filers,
    /// SmartDedup's trace 6.
    pub phone: FilerResult,
}

impl IdedupOptions {
    /// Of trace 6, whose extents without dedup depend on few files: it is not read, and can be larger.
    pub fn phone_scale(&self) -> u64 {
        (self.scale / PHONE_LARGER).max(1)
    }
}

impl Limit {
    /// The device whose budgets apply, if any do.
    pub(super) fn device(self) -> Option<usize> {
        match self {
            Self::Blocks(_) => None,
            Self::Budget(device) => Some(device),
        }
    }
}

impl FilerResult {
    /// A run's result. Panics if there was no such run.
    pub(super) fn result(&self, run: IdedupRun) -> &RunResult {
        self.results.get(&run).unwrap_or_else(|| panic!("{run:?} is not among the runs"))
    }

    /// With the paper's memory.
    pub(super) fn at(&self, index: Index, blocks: u32) -> &RunResult {
        self.result(IdedupRun { index, limit: Limit::Blocks(blocks), memory_mib: MEMORY_MIB })
    }

    pub(super) fn baseline(&self) -> &RunResult {
        self.at(Index::None, 1)
    }

    /// Found in all, percent of the blocks written.
    pub(super) fn found_percent(&self, result: &RunResult) -> f64 {
        self.truth.percent_of_written(result.outcome.found())
    }
}

impl fmt::Display for IdedupRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Index::None => write!(f, "no dedup")?,
            Index::Lru(percent) => write!(f, "cache of {percent} %")?,
            Index::TwoLevels => write!(f, "two levels")?,
            Index::Extended => write!(f, "two levels, extended")?,
        }
        match self.limit {
            Limit::Blocks(blocks) => write!(f, ", runs of {blocks}")?,
            Limit::Budget(device) => write!(f, ", budget on {}", DEVICES[device].name)?,
        }
        write!(f, ", {} MiB", self.memory_mib)
    }
}
