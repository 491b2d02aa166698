//! The worker's commands and its status, as users see them.

use serde::{Deserialize, Serialize};

use crate::UnknownBlocks;
use crate::stats::counters::Histogram;

/// A command to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DedupCommand {
    /// Work at once until nothing is left, regardless of idleness and rate.
    Now {
        /// Look at every block, not only at what was skipped.
        full: bool,
    },
    /// Do nothing until `Resume`.
    Pause,
    /// Go on.
    Resume,
}

/// The worker's state and results.
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
    /// Seconds until the pass ends, at its rate so far.
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
    /// The hours in which it may run.
    pub schedule: String,
    /// Seconds until they begin. None: it may run now.
    pub opens_in_seconds: Option<u64>,
    /// Blocks of which the block table says nothing, because it is damaged there: they are left alone.
    pub unknown: UnknownBlocks,
    /// What else keeps the worker and the scrub from parts of the volume, in words: the first reasons since the mount.
    pub passed_over: Vec<String>,
    /// Times from a request of a program until background work yielded.
    pub yield_time: Histogram,
}
