//! How far a scrub is: its record, what it works on, and what it says of itself.

use std::time::Duration;

use oncefs_dedup::{Pace, PaceMode, PaceRule};
use serde::{Deserialize, Serialize};

use crate::format::keys::ShardKey;
use crate::format::rot::{ScrubRecord, ScrubState};
use crate::settings::values::Settings;
use crate::{BLOCK_BYTES, Pbn};

/// What can be asked of the scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubCommand {
    /// Begin a pass, or go on with one that is paused.
    Start {
        /// Bytes per second at most; 0: as the load allows. None: as before.
        rate: Option<u64>,
    },
    /// Pause it, across mounts, until `Resume`.
    Pause,
    /// Go on.
    Resume,
    /// Cancel the pass.
    Stop,
}

/// How far the scrub is, and what is known of bad blocks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// never, running, paused, stopped or finished.
    pub state: String,
    /// What it does, or what it waits for.
    pub doing: String,
    /// Blocks of the pass that were read.
    pub blocks_done: u64,
    /// Blocks that it reads, about.
    pub blocks: u64,
    /// When the pass ends, if it goes on as it did.
    pub eta_seconds: Option<u64>,
    /// Bytes per second at most; 0: as the load allows.
    pub bytes_per_second_max: u64,
    /// Bad blocks that the pass found.
    pub blocks_bad_found: u64,
    /// Passes finished in the volume's life.
    pub passes: u64,
    /// Bad blocks that are known now.
    pub blocks_bad: u64,
    /// Of them, those whose content is nowhere.
    pub blocks_lost: u64,
}

/// Where a pass is beside what its record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubPart {
    /// Known bad blocks, from this one on.
    Known(Pbn),
    /// Replicas.
    Replicas,
    /// The data area.
    Data,
    /// Moving files to replacements, from this shard on.
    Replacements(ShardKey),
}

/// The scrub of an open volume.
pub struct Scrub {
    pub record: ScrubRecord,
    pub part: ScrubPart,
    pub replicas_from: Vec<u8>,
    pub pace: Pace,
    pub saved_at: Duration,
    /// Until when the time that the pass takes is counted.
    pub counted_at: Option<Duration>,
    pub doing: String,
}

impl Scrub {
    /// No pass is known of.
    pub fn new(settings: &Settings) -> Self {
        let part = ScrubPart::Known(Pbn(0));
        let pace = Pace::new(scrub_pace_rule(settings, 0));
        let record = ScrubRecord::default();
        let (saved_at, counted_at) = (Duration::ZERO, None);
        Self { record, part, replicas_from: Vec::new(), pace, saved_at, counted_at, doing: String::new() }
    }

    pub fn is_running(&self) -> bool {
        self.record.state == ScrubState::Running
    }

    pub fn begin(&mut self) {
        let ScrubRecord { rate, passes, .. } = self.record;
        self.record = ScrubRecord { state: ScrubState::Running, rate, passes, ..ScrubRecord::default() };
        self.part = ScrubPart::Known(Pbn(0));
    }
}

/// Beside requests it gives way as the worker does; a rate bounds it further.
pub fn scrub_pace_rule(settings: &Settings, rate: u64) -> PaceRule {
    let blocks_per_minute = rate.saturating_mul(60).div_ceil(BLOCK_BYTES as u64).min(1_000_000_000);
    PaceRule { blocks_per_minute, idle_after: settings.idle_after, ..PaceRule::new(PaceMode::Always) }
}
