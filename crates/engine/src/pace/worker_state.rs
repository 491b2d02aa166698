//! The out-of-line worker of an open volume: when it runs, its position, and the last observation of the machine.

use std::ops::DerefMut;
use std::sync::OnceLock;
use std::time::Duration;

use oncefs_dedup::{BatchSize, Conditions, EnergyRule, Pace, RangeError, Skipped, Supply, Turn};

use crate::RankTurn;
use crate::pace::pass::Pass;
use crate::pace::system_load::{SystemLoad, pace_rule};
use crate::settings::values::Settings;
use crate::sync::{LockRank, Mutex};

/// The worker of an open volume.
pub struct Worker {
    /// Its position.
    pass: Mutex<Pass>,
    /// When it runs.
    pace: Mutex<Pace>,
    /// The machine's load and supply.
    system_load: Mutex<SystemLoad>,
    /// Other state that it keeps between turns.
    notes: Mutex<Notes>,
    /// Called when it has no other work, see [`crate::Store::rank_by`].
    rank_turn: OnceLock<RankTurn>,
    /// How much of a file is defragmented at a time. Held meanwhile: one defrag at a time bounds the memory, and
    /// closing waits for it.
    defragging: Mutex<BatchSize>,
}

#[derive(Default)]
struct Notes {
    /// What it does, or why it is idle.
    doing: String,
    /// Blocks freed when the last round of the sweep ended.
    swept_freed: u64,
    /// When the backlog was last written to its file.
    checkpointed_at: Duration,
}

impl Worker {
    /// A worker that has done nothing yet.
    pub fn new(settings: &Settings, system_load: SystemLoad, defrag_batch: BatchSize) -> Self {
        Self {
            pass: Mutex::new(LockRank::Pass, Pass::default()),
            pace: Mutex::new(LockRank::Part, Pace::new(pace_rule(settings))),
            system_load: Mutex::new(LockRank::Part, system_load),
            notes: Mutex::new(LockRank::Leaf, Notes::default()),
            rank_turn: OnceLock::new(),
            defragging: Mutex::new(LockRank::Defragging, defrag_batch),
        }
    }

    /// Reads or moves the position as one step, so that no full pass begins in between that the step would overwrite.
    pub fn with_pass<T>(&self, step: impl FnOnce(&mut Pass) -> T) -> T {
        step(&mut self.pass.lock())
    }

    /// The remaining work of the pass and the backlog, as of one moment. `listed` returns the backlog.
    pub fn unfinished(&self, listed: impl FnOnce() -> Vec<Skipped>) -> Vec<Skipped> {
        let pass = self.pass.lock();
        pass.unfinished().into_iter().chain(listed()).collect()
    }

    /// Whether it may run now, and for how many blocks.
    pub fn next_turn(&self, conditions: &Conditions) -> Turn {
        self.pace.lock().next(conditions)
    }

    /// Learns that a batch of this many blocks took this time. The conditions are those at its end.
    pub fn note_batch(&self, blocks: u64, took: Duration, conditions: &Conditions) {
        self.pace.lock().ran(blocks, took, conditions);
    }

    /// Learns that this many requests of programs took this time in total, during work or not.
    pub fn note_requests(&self, requests: u64, time: Duration, beside_work: bool) {
        self.pace.lock().foreground(requests, time, beside_work);
    }

    /// Whether its work ends early for a request of a program.
    pub fn gives_way(&self) -> bool {
        self.pace.lock().gives_way()
    }

    /// Forces it to run now, or ends that.
    pub fn force(&self, is_forced: bool) {
        self.pace.lock().force(is_forced);
    }

    /// Pauses or resumes it.
    pub fn set_paused(&self, is_paused: bool) {
        self.pace.lock().set_paused(is_paused);
    }

    /// Whether it is paused, and whether it is forced.
    pub fn is_paused_or_forced(&self) -> (bool, bool) {
        let pace = self.pace.lock();
        (pace.is_paused(), pace.is_forced())
    }

    /// Applies the settings.
    pub fn follow(&self, settings: &Settings) -> Result<(), RangeError> {
        self.pace.lock().set_rule(pace_rule(settings))
    }

    /// Reads load and supply, at most once a second. Returns the resulting bound of in-line work.
    pub fn observe_machine(&self, now: Duration, settings: &Settings) -> Option<f64> {
        self.system_load.lock().observe(now, settings)
    }

    /// The conditions of background work: the machine's last observation, and when the last request of a program came.
    pub fn conditions(&self, now: Duration, last_foreground: Option<Duration>, energy_rule: EnergyRule) -> Conditions {
        Conditions { now, last_foreground, ..self.system_load.lock().conditions(energy_rule) }
    }

    /// The share of the CPUs' time that was spent working, as last observed. None: unknown.
    pub fn cpu_busy(&self) -> Option<f64> {
        self.system_load.lock().cpu_busy()
    }

    /// The machine's power supply, as last observed.
    pub fn supply(&self) -> Supply {
        self.system_load.lock().supply()
    }

    /// Notes what it does now, or why it is idle.
    pub fn note_doing(&self, doing: impl Into<String>) {
        self.notes.lock().doing = doing.into();
    }

    /// The last such note.
    pub fn doing(&self) -> String {
        self.notes.lock().doing.clone()
    }

    /// How many of these `freed` blocks since the mount were freed since the last round of the sweep.
    pub fn freed_since_sweep(&self, freed: u64) -> u64 {
        let swept = self.notes.lock().swept_freed;
        assert!(swept <= freed, "{swept} blocks were freed at the last sweep, and now {freed}");
        freed - swept
    }

    /// Learns that a round of the sweep ended when this many blocks had been freed.
    pub fn note_swept(&self, freed: u64) {
        self.notes.lock().swept_freed = freed;
    }

    /// Whether the backlog must be written to its file again. If so, it counts as written now.
    pub fn take_checkpoint_due(&self, now: Duration, every: Duration) -> bool {
        let mut notes = self.notes.lock();
        let last = notes.checkpointed_at;
        assert!(last <= now, "the backlog was written at {last:?}, and it is {now:?}");
        let is_due = now - last >= every;
        if is_due {
            notes.checkpointed_at = now;
        }
        is_due
    }

    /// Makes it call `turn` when it has no other work. False: it already calls another one, which stays.
    pub fn rank_by(&self, turn: RankTurn) -> bool {
        self.rank_turn.set(turn).is_ok()
    }

    /// The function that it calls when it has no other work.
    pub fn rank_turn(&self) -> Option<&RankTurn> {
        self.rank_turn.get()
    }

    /// Waits until no defrag is running. While the returned value lives, none can start.
    pub fn defrag_turn(&self) -> impl DerefMut<Target = BatchSize> + '_ {
        self.defragging.lock()
    }

    /// The position as after a mount.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn reset_pass(&self) {
        *self.pass.lock() = Pass::default();
    }

    /// The rule of its pace.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn pace_rule(&self) -> oncefs_dedup::PaceRule {
        self.pace.lock().rule()
    }
}
