//! What can be asked of the worker, and what it says of itself.

use serde::{Deserialize, Serialize};

use crate::stats::counters::Histogram;

/// What can be asked of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DedupCommand {
    /// Work at once until nothing is left, whatever idleness and rate say.
    Now {
        /// Look at every block, not only at what was skipped.
        full: bool,
    },
    /// Do nothing until `Resume`.
    Pause,
    /// Go on.
    Resume,
}

/// What the worker does and has done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DedupStatus {
    /// What it does, or why it does nothing.
    pub doing: String,
    /// Whether it is paused.
    pub paused: bool,
    /// Whether `Now` is under way; false again when nothing is left to do.
    pub now: bool,
    /// Skipped blocks known one by one.
    pub skipped_blocks: u64,
    /// Files to be looked at as a whole.
    pub skipped_files: u64,
    /// Whether a pass over all blocks is due or under way.
    pub full_pass: bool,
    /// Blocks of that pass seen.
    pub pass_blocks_done: u64,
    /// Blocks that it will see, about.
    pub pass_blocks: u64,
    /// When the pass ends, if it goes on as it did.
    pub eta_seconds: Option<u64>,
    /// Pages of the block table read to fill the hint store.
    pub rebuild_pages_done: u64,
    /// Pages to read; 0: the hint store is filled.
    pub rebuild_pages: u64,
    /// Blocks looked at since the mount.
    pub blocks_revisited: u64,
    /// Blocks that became references to an equal one.
    pub blocks_remapped: u64,
    /// Share of written requests that are looked up.
    pub inline_percent: f64,
    /// The bound of that share that load and supply set.
    pub inline_percent_max: f64,
    /// Where the machine's power comes from.
    pub power: String,
    /// The hours at which it may run.
    pub schedule: String,
    /// How long it is until they begin. None: it is one of them.
    pub opens_in_seconds: Option<u64>,
    /// How long requests that came beside work that gives way had to bear with it: from the first one to its end.
    pub yield_time: Histogram,
}
