//! The worker's commands and its status, as users see them.

use serde::{Deserialize, Serialize};

use crate::UnknownBlocks;
use crate::layout::referrers::MapCursor;
use crate::stats::counters::Histogram;

/// A command to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DedupCommand {
    /// Work at once until nothing is left, regardless of idleness and rate.
    Now {
        /// Visit every block, not only the skipped ones.
        full: bool,
    },
    /// Do nothing until `Resume`.
    Pause,
    /// Continue.
    Resume,
}

/// The worker's state and results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DedupStatus {
    /// What it does, or why it is idle.
    pub doing: String,
    /// Whether it is paused.
    pub paused: bool,
    /// Whether `Now` is running. False again when no work is left.
    pub now: bool,
    /// Skipped blocks that are listed one by one.
    pub skipped_blocks: u64,
    /// Files to be visited as a whole.
    pub skipped_files: u64,
    /// Whether a pass over all blocks is due or under way.
    pub full_pass: bool,
    /// Blocks of that pass that were visited.
    pub pass_blocks_done: u64,
    /// Approximate number of blocks in the pass.
    pub pass_blocks: u64,
    /// Seconds until the pass ends, at its rate so far.
    pub eta_seconds: Option<u64>,
    /// Pages of the block table read to fill the hint store.
    pub rebuild_pages_done: u64,
    /// Pages to read; 0: the hint store is filled.
    pub rebuild_pages: u64,
    /// Blocks visited since the mount.
    pub blocks_revisited: u64,
    /// Blocks that became references to an equal one.
    pub blocks_remapped: u64,
    /// Share of written requests that are looked up.
    pub inline_percent: f64,
    /// The upper bound of that share, set by load and supply.
    pub inline_percent_max: f64,
    /// When blocks are compressed, and with `compress=auto` why.
    #[serde(default)]
    pub compression: String,
    /// Where the machine's power comes from.
    pub power: String,
    /// The hours in which it may run.
    pub schedule: String,
    /// Seconds until the next such hour. None: it may run now.
    pub opens_in_seconds: Option<u64>,
    /// Blocks with damaged entries in the block table. The worker leaves them alone.
    pub unknown: UnknownBlocks,
    /// Other reasons that keep the worker and the scrub from parts of the volume, as text: the first ones since the
    /// mount.
    pub passed_over: Vec<String>,
    /// Times from a request of a program until background work yielded.
    pub yield_time: Histogram,
}

/// A conversion of blocks of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conversion {
    /// Change only where blocks lie: a command begins to compress, or a pass of one. What the last pass has moved is
    /// forgotten.
    BeginCompress {
        /// The command's number. None: it begins, and the result has its number.
        command: Option<u64>,
    },
    /// Compress what shrinks.
    Compress {
        /// The command's number.
        command: u64,
    },
    /// Expand what is compressed.
    Expand {
        /// The command's number.
        command: u64,
    },
    /// Change nothing yet: a command begins, or a pass of one. Shared fragments that the last pass met are forgotten.
    BeginExpand {
        /// The command's number. None: it begins, and the result has its number.
        command: Option<u64>,
    },
    /// Change nothing, and say how much room expanding takes at most. What the command measured before and this portion
    /// shares does not count again.
    MeasureExpand {
        /// The command's number.
        command: u64,
    },
    /// Change nothing: the command ends, and another one may begin.
    End {
        /// The command's number.
        command: u64,
    },
}

/// The result for a portion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Converted {
    /// Blocks of data that were looked at.
    pub blocks: u64,
    /// Places in files that were moved.
    pub converted: u64,
    /// Blocks, or fragments, that stay as they are because they cannot be read, or have wrong content.
    pub damaged: u64,
    /// Those that stay because the volume has no room.
    pub without_room: u64,
    /// Shared ones that stay until another pass, because this one remembers too many.
    #[serde(default)]
    pub for_another_pass: u64,
    /// Blocks of room that expanding takes at most, of a portion that was measured.
    #[serde(default)]
    pub room: u64,
    /// The number of the command that begins. 0: none begins.
    #[serde(default)]
    pub command: u64,
    /// Nothing was done, because another command has begun since this one last asked.
    #[serde(default)]
    pub is_overtaken: bool,
    /// Where to continue. None: this was the last portion.
    pub next: Option<MapCursor>,
}
