//! The progress of a scrub: its record, its phase and its status.

use std::time::Duration;

use oncefs_dedup::{Conditions, Pace, PaceMode, PaceRule, Progress, Turn};
use serde::{Deserialize, Serialize};

use crate::format::damage_records::{ScrubRecord, ScrubState};
use crate::format::keys::LeafKey;
use crate::kv::FilesFound;
use crate::settings::values::Settings;
use crate::sync::{LockRank, Mutex};
use crate::{BLOCK_BYTES, Blocks, Error, Pbn, Result, UnknownBlocks};

/// Commands to the scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubCommand {
    /// Begin a pass, or continue a paused one.
    Start {
        /// Maximum bytes per second. 0: as the load allows. None: as before.
        rate: Option<u64>,
    },
    /// Pause it, across mounts, until `Resume`.
    Pause,
    /// Continue.
    Resume,
    /// Cancel the pass.
    Stop,
}

/// The scrub's progress, and the known bad blocks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// never, running, paused, stopped or finished.
    pub state: String,
    /// What it does, or what it waits for.
    pub doing: String,
    /// Blocks of the pass that were read.
    pub blocks_done: u64,
    /// Approximate number of blocks in the pass.
    pub blocks: u64,
    /// Seconds until the pass ends, at its rate so far.
    pub eta_seconds: Option<u64>,
    /// Maximum bytes per second. 0: as the load allows.
    pub bytes_per_second_max: u64,
    /// Bad blocks that the pass found.
    pub blocks_bad_found: u64,
    /// Passes finished in the volume's life.
    pub passes: u64,
    /// Bad blocks known now.
    pub blocks_bad: u64,
    /// Bad blocks whose content is lost.
    pub blocks_lost: u64,
    /// Blocks with damaged entries in the block table. No pass reads them.
    pub unknown: UnknownBlocks,
    /// Other reasons that keep the scrub and the worker from parts of the volume, as text: the first ones since the
    /// mount.
    pub passed_over: Vec<String>,
    /// The last pass's findings about the record files and their copies since the mount.
    #[serde(default)]
    pub record_files: FilesFound,
}

/// The position of a pass, as far as its record does not hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubPhase {
    /// Checking known bad blocks, from this one on.
    Known(Pbn),
    /// Replicas.
    Replicas,
    /// The data area.
    Data,
    /// Moving files to replacements, from this leaf on.
    Replacements(LeafKey),
}

/// The scrub of an open volume.
pub struct Scrub {
    inner: Mutex<Inner>,
}

struct Inner {
    record: ScrubRecord,
    phase: ScrubPhase,
    /// The key from which the replicas continue.
    replicas_from: Vec<u8>,
    pace: Pace,
    saved_at: Duration,
    /// The time up to which the pass's duration is counted.
    counted_at: Option<Duration>,
    doing: String,
}

impl Inner {
    fn is_running(&self) -> bool {
        self.record.state == ScrubState::Running
    }

    fn begin(&mut self) {
        let ScrubRecord { rate, passes, .. } = self.record;
        self.record = ScrubRecord { state: ScrubState::Running, rate, passes, ..ScrubRecord::default() };
        self.phase = ScrubPhase::Known(Pbn(0));
    }
}

impl Scrub {
    /// No known pass.
    pub fn new(settings: &Settings) -> Self {
        Self {
            inner: Mutex::new(
                LockRank::Part,
                Inner {
                    record: ScrubRecord::default(),
                    phase: ScrubPhase::Known(Pbn(0)),
                    replicas_from: Vec::new(),
                    pace: Pace::new(scrub_pace_rule(settings, 0)),
                    saved_at: Duration::ZERO,
                    counted_at: None,
                    doing: String::new(),
                },
            ),
        }
    }

    /// After opening: an unfinished pass continues where its record says.
    pub fn restore(&self, record: ScrubRecord, settings: &Settings) {
        let mut scrub = self.inner.lock();
        assert_eq!(scrub.record.state, ScrubState::Never, "the scrub is restored once, before it runs");
        scrub.pace = Pace::new(scrub_pace_rule(settings, record.rate));
        scrub.record = record;
        scrub.phase = if record.next.0 > 0 { ScrubPhase::Data } else { ScrubPhase::Known(Pbn(0)) };
    }

    /// Carries out a command. A command that does not fit the state of the scrub is refused.
    pub fn command(&self, command: ScrubCommand, settings: &Settings) -> Result<()> {
        let mut scrub = self.inner.lock();
        let state = scrub.record.state;
        match command {
            ScrubCommand::Start { rate } => {
                scrub.record.rate = rate.unwrap_or(scrub.record.rate);
                let rule = scrub_pace_rule(settings, scrub.record.rate);
                scrub.pace.set_rule(rule).map_err(|error| Error::Invalid(error.to_string()))?;
                match state {
                    ScrubState::Running => {}
                    ScrubState::Paused => scrub.record.state = ScrubState::Running,
                    _ => scrub.begin(),
                }
            }
            ScrubCommand::Pause if state == ScrubState::Running => scrub.record.state = ScrubState::Paused,
            ScrubCommand::Resume if state == ScrubState::Paused => scrub.record.state = ScrubState::Running,
            ScrubCommand::Stop if matches!(state, ScrubState::Running | ScrubState::Paused) => {
                scrub.record.state = ScrubState::Stopped;
            }
            ScrubCommand::Pause | ScrubCommand::Resume | ScrubCommand::Stop => {
                let why = match state {
                    ScrubState::Running => "the scrub is not paused: it is running",
                    ScrubState::Paused => "the scrub is paused already",
                    _ => "no scrub is under way",
                };
                return Err(Error::Invalid(why.to_owned()));
            }
        }
        Ok(())
    }

    /// Its progress, on a volume with `used` blocks in use. The caller adds the known bad blocks.
    pub fn status(&self, used: Blocks) -> ScrubStatus {
        let scrub = self.inner.lock();
        let record = scrub.record;
        let blocks = match record.state {
            ScrubState::Running | ScrubState::Paused => used.0.saturating_sub(1).max(record.blocks),
            _ => record.blocks,
        };
        let progress = Progress { done: record.blocks, all: blocks, spent: Duration::from_micros(record.spent) };
        ScrubStatus {
            state: record.state.name().to_owned(),
            doing: if scrub.is_running() { scrub.doing.clone() } else { String::new() },
            blocks_done: record.blocks,
            blocks,
            eta_seconds: progress.eta().filter(|_| scrub.is_running()).map(|eta| eta.as_secs()),
            bytes_per_second_max: record.rate,
            blocks_bad_found: record.found,
            passes: record.passes,
            ..ScrubStatus::default()
        }
    }

    /// Whether a pass is under way and not paused.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_running(&self) -> bool {
        self.inner.lock().is_running()
    }

    /// Reports requests of programs to the pace.
    pub fn foreground(&self, requests: u64, time: Duration, beside_work: bool) {
        self.inner.lock().pace.foreground(requests, time, beside_work);
    }

    /// The turn that the pace allows now. None: no pass is running.
    pub fn next_turn(&self, conditions: &Conditions) -> Option<Turn> {
        let mut scrub = self.inner.lock();
        if !scrub.is_running() {
            scrub.counted_at = None;
            return None;
        }
        // The time of a waiting pass counts too.
        let counted_at = scrub.counted_at.replace(conditions.now).unwrap_or(conditions.now);
        assert!(counted_at <= conditions.now, "the clock went back from {counted_at:?} to {:?}", conditions.now);
        scrub.record.spent += (conditions.now - counted_at).as_micros() as u64;
        Some(scrub.pace.next(conditions))
    }

    /// Learns that a turn read this many blocks in this time.
    pub fn ran(&self, blocks: u64, time: Duration, conditions: &Conditions) {
        self.inner.lock().pace.ran(blocks, time, conditions);
    }

    /// Shows what it does, or what it waits for.
    pub fn show(&self, doing: &str) {
        let mut scrub = self.inner.lock();
        if scrub.doing != doing {
            scrub.doing = doing.to_owned();
        }
    }

    /// The phase of the pass.
    pub fn phase(&self) -> ScrubPhase {
        self.inner.lock().phase
    }

    /// Enters a phase of the pass.
    pub fn enter(&self, phase: ScrubPhase) {
        self.inner.lock().phase = phase;
    }

    /// Begins the phase of the replicas, in the order of their keys.
    pub fn enter_replicas(&self, from: Vec<u8>) {
        let mut scrub = self.inner.lock();
        scrub.replicas_from = from;
        scrub.phase = ScrubPhase::Replicas;
    }

    /// Continues the replicas from this key.
    pub fn go_on_with_replicas(&self, from: Vec<u8>) {
        self.inner.lock().replicas_from = from;
    }

    /// The key from which the replicas continue.
    pub fn replicas_from(&self) -> Vec<u8> {
        self.inner.lock().replicas_from.clone()
    }

    /// The block from which the data area is read next.
    pub fn next_block(&self) -> Pbn {
        self.inner.lock().record.next
    }

    /// Learns that the blocks below `end` were read: `read` live ones, of which `found` are bad.
    pub fn passed(&self, end: Pbn, read: u64, found: u64) {
        let mut scrub = self.inner.lock();
        // A pass that was stopped and restarted meanwhile is at its beginning.
        assert!(found <= read, "{found} bad blocks of {read} that were read");
        scrub.record.next = end;
        scrub.record.blocks += read;
        scrub.record.found += found;
    }

    /// Completes the pass, which passed over this many blocks with damaged table entries. Returns its record.
    pub fn finish(&self, unknown: u64) -> ScrubRecord {
        let mut scrub = self.inner.lock();
        scrub.record.unknown = unknown;
        scrub.record.state = ScrubState::Finished;
        scrub.record.passes += 1;
        scrub.record
    }

    /// Whether its record was not saved for this long.
    pub fn is_save_due(&self, now: Duration, every: Duration) -> bool {
        now.saturating_sub(self.inner.lock().saved_at) >= every
    }

    /// The record to save at `now`. None: no pass ever ran.
    pub fn record_to_save(&self, now: Duration) -> Option<ScrubRecord> {
        let mut scrub = self.inner.lock();
        scrub.saved_at = now;
        Some(scrub.record).filter(|record| record.state != ScrubState::Never)
    }
}

/// The scrub yields to requests as the worker does. A rate bounds it further.
fn scrub_pace_rule(settings: &Settings, rate: u64) -> PaceRule {
    let blocks_per_minute = rate.saturating_mul(60).div_ceil(BLOCK_BYTES as u64).min(1_000_000_000);
    assert_eq!(blocks_per_minute == 0, rate == 0, "{rate} bytes per second are {blocks_per_minute} blocks a minute");
    PaceRule { blocks_per_minute, idle_after: settings.idle_after, ..PaceRule::new(PaceMode::Always) }
}
