//! The out-of-line worker's part of an open volume: when it runs, its position, and what it last saw of the machine.

use std::ops::DerefMut;
use std::sync::OnceLock;
use std::time::Duration;

use oncefs_dedup::{BatchSize, Conditions, EnergyRule, Pace, RangeError, Skipped, Supply, Turn};

use crate::RankTurn;
use crate::settings::values::Settings;
use crate::sync::{LockRank, Mutex};
use crate::worker::pass::Pass;
use crate::worker::surroundings::{Surroundings, pace_rule};

/// The worker of an open volume.
pub struct Worker {
    /// Its position.
    pass: Mutex<Pass>,
    /// When it runs.
    pace: Mutex<Pace>,
    /// The machine's load and supply.
    surroundings: Mutex<Surroundings>,
    /// What else it remembers from turn to turn.
    notes: Mutex<Notes>,
    /// Called when it has nothing else to do, see [`crate::Store::rank_by`].
    rank_turn: OnceLock<RankTurn>,
    /// How much of a file is laid out again at a time. Held while that is done: one at a time bounds the memory, and
    /// closing waits for it.
    defragging: Mutex<BatchSize>,
}

#[derive(Default)]
struct Notes {
    /// What it does, or why it does nothing.
    doing: String,
    /// Blocks freed when the last round of the sweep ended.
    swept_freed: u64,
    /// When the backlog was last written to its file.
    checkpointed_at: Duration,
}

impl Worker {
    /// A worker that has done nothing yet.
    pub fn new(settings: &Settings, surroundings: Surroundings, defrag_batch: BatchSize) -> Self {
        Self {
            pass: Mutex::new(LockRank::Pass, Pass::default()),
            pace: Mutex::new(LockRank::Part, Pace::new(pace_rule(settings))),
            surroundings: Mutex::new(LockRank::Part, surroundings),
            notes: Mutex::new(LockRank::Leaf, Notes::default()),
            rank_turn: OnceLock::new(),
            defragging: Mutex::new(LockRank::Defragging, defrag_batch),
        }
    }

    /// Reads or moves the position as one step: no full pass begins in between, which the step would overwrite.
    pub fn with_pass<T>(&self, step: impl FnOnce(&mut Pass) -> T) -> T {
        step(&mut self.pass.lock())
    }

    /// What the pass and the backlog still have to look at, as of one moment; `listed` gives the backlog.
    pub fn unfinished(&self, listed: impl FnOnce() -> Vec<Skipped>) -> Vec<Skipped> {
        let pass = self.pass.lock();
        pass.unfinished().into_iter().chain(listed()).collect()
    }

    /// Whether it may run now, and for how many blocks.
    pub fn next_turn(&self, conditions: &Conditions) -> Turn {
        self.pace.lock().next(conditions)
    }

    /// A batch of so many blocks took so long; the conditions are those at its end.
    pub fn note_batch(&self, blocks: u64, took: Duration, conditions: &Conditions) {
        self.pace.lock().ran(blocks, took, conditions);
    }

    /// So many requests of programs took so long in all, beside work or not.
    pub fn note_requests(&self, requests: u64, time: Duration, beside_work: bool) {
        self.pace.lock().foreground(requests, time, beside_work);
    }

    /// Whether its work ends early for a request of a program.
    pub fn gives_way(&self) -> bool {
        self.pace.lock().gives_way()
    }

    /// Lets it run now, or ends that.
    pub fn force(&self, is_forced: bool) {
        self.pace.lock().force(is_forced);
    }

    /// Keeps it from running, or ends that.
    pub fn set_paused(&self, is_paused: bool) {
        self.pace.lock().set_paused(is_paused);
    }

    /// Whether it is paused, and whether it is forced.
    pub fn is_paused_or_forced(&self) -> (bool, bool) {
        let pace = self.pace.lock();
        (pace.is_paused(), pace.is_forced())
    }

    /// Follows the settings.
    pub fn follow(&self, settings: &Settings) -> Result<(), RangeError> {
        self.pace.lock().set_rule(pace_rule(settings))
    }

    /// Reads load and supply, at most once a second. Gives the bound of in-line work that follows.
    pub fn observe_machine(&self, now: Duration, settings: &Settings) -> Option<f64> {
        self.surroundings.lock().observe(now, settings)
    }

    /// The conditions of background work: the machine as last seen, and when programs last asked for something.
    pub fn conditions(&self, now: Duration, last_foreground: Option<Duration>, energy_rule: EnergyRule) -> Conditions {
        Conditions { now, last_foreground, ..self.surroundings.lock().conditions(energy_rule) }
    }

    /// The machine's power supply as last seen.
    pub fn supply(&self) -> Supply {
        self.surroundings.lock().supply()
    }

    /// What it does now, or why it does nothing.
    pub fn note_doing(&self, doing: impl Into<String>) {
        self.notes.lock().doing = doing.into();
    }

    /// What was noted last.
    pub fn doing(&self) -> String {
        self.notes.lock().doing.clone()
    }

    /// Of so many blocks freed since the mount, those freed since the last round of the sweep.
    pub fn freed_since_sweep(&self, freed: u64) -> u64 {
        let swept = self.notes.lock().swept_freed;
        assert!(swept <= freed, "{swept} blocks were freed at the last sweep, and now {freed}");
        freed - swept
    }

    /// A round of the sweep has ended when so many blocks had been freed.
    pub fn note_swept(&self, freed: u64) {
        self.notes.lock().swept_freed = freed;
    }

    /// Whether the backlog is to be written to its file again. True: counts as written now.
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

    /// Has it call `turn` when it has nothing else to do. False: it calls another one already, which stays.
    pub fn rank_by(&self, turn: RankTurn) -> bool {
        self.rank_turn.set(turn).is_ok()
    }

    /// What it calls when it has nothing else to do.
    pub fn rank_turn(&self) -> Option<&RankTurn> {
        self.rank_turn.get()
    }

    /// Waits until nothing is being laid out again. As long as the returned value lives, nothing else is.
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
