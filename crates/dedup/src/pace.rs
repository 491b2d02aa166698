//! When the out-of-line worker may run, and for how many blocks.
//!
//! Owns the worker's rate (SmartDedup's section 3.4: blocks per minute, less when CPU or disk are
//! full, proportional to the charge), its pause, and how it gives way to the foreground and to
//! programs that want the CPU: when it
//! rests, and how large its batches may be so that each ends soon. Leaves to the worker what the
//! blocks are, its hours to `schedule`, and to the engine the clock and the measurements.

use std::fmt;
use std::time::Duration;

use crate::ranges::{RangeError, within};

mod batch;
mod bucket;
mod latency;
mod progress;

pub use batch::BatchSize;
use bucket::Bucket;
use latency::Latency;
pub use progress::Progress;

/// Blocks of one batch at most, 1 MiB; fewer where so many take too long, for a foreground request that comes in
/// between waits for the batch.
const BATCH_BLOCKS: u64 = 256;
/// When somebody waits for the end: a larger batch reads each page of the disk level fewer times.
const FORCED_BLOCKS: u64 = 4_096;
/// How long the worker waits at most before it asks again: settings and the charge may change.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Busy share from which the CPU or the device counts as fully busy.
const FULLY_BUSY: f64 = 0.95;
/// While the foreground is active, a batch is followed by a rest of its own length times 1 to 256:
/// never none, so that the foreground's latency without the worker is always being measured.
const REST_FACTOR_MAX: u32 = 256;
/// Where only the CPU is wanted by others, it rests no longer than so many times the batch: a sixteenth of one CPU is what
/// its work may take of theirs, and the work goes on.
const REST_FACTOR_BESIDE_LOAD_MAX: u32 = 16;
/// Charge is told in percent. Bounds the rests that keep to the share of the energy.
const ENERGY_SHARE_MIN: f64 = 0.01;
/// The longest rest for the foreground's sake.
const REST_MAX: Duration = Duration::from_secs(2);

/// When the worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only when forced.
    Off,
    /// When there was no foreground request for a while.
    WhenIdle,
    /// Also beside the foreground, giving way to it.
    Always,
}

/// How the worker behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaceRule {
    /// When it runs.
    pub mode: Mode,
    /// Its rate on mains. 0: as fast as it can.
    pub blocks_per_minute: u64,
    /// Time since the last foreground request after which the volume counts as idle.
    pub idle_after: Duration,
    /// By which share the worker may raise the mean latency of foreground requests: 0.1 is 10 %.
    pub slowdown_max: f64,
}

impl PaceRule {
    /// The defaults of a mode.
    pub fn new(mode: Mode) -> Self {
        Self { mode, blocks_per_minute: 0, idle_after: Duration::from_millis(200), slowdown_max: 0.10 }
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<(), RangeError> {
        within("blocks_per_minute", self.blocks_per_minute as f64, 0.0, 1e9)?;
        within("idle_after_ms", self.idle_after.as_secs_f64() * 1e3, 0.0, 3_600_000.0)?;
        within("slowdown_max", self.slowdown_max, 0.0, 10.0)
    }
}

/// What the decision depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Time since some start.
    pub now: Duration,
    /// When the last foreground request came, by the same clock. None: there was none.
    pub last_foreground: Option<Duration>,
    /// The CPU's busy share, 0 to 1.
    pub cpu_busy: f64,
    /// How many CPUs there are.
    pub cpus: u32,
    /// How many of them others than the worker keep busy, programs that are nice not counted.
    pub cpus_of_others: f64,
    /// The device's busy share, 0 to 1.
    pub device_busy: f64,
    /// The share of its rate that the energy allows, 0 (off) to 1.
    pub energy_share: f64,
    /// How long it is until its schedule lets it run. None: it does.
    pub opens_in: Option<Duration>,
}

/// What the worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Process a batch.
    Run {
        /// Blocks of the batch at most; at least 1.
        blocks_max: u64,
    },
    /// Ask again later.
    Wait {
        /// After this time, or when something changes.
        time: Duration,
        /// What it waits for.
        why: Why,
    },
}

/// Why the worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was told to.
    Paused,
    /// It is turned off.
    Off,
    /// It is not its hour.
    Schedule,
    /// The battery is low, or allows a share of the rate.
    Energy,
    /// The volume is not idle.
    Foreground,
    /// It rests to give way to foreground requests, or to programs that want all CPUs.
    Busy,
    /// Its rate is used up.
    Rate,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Paused => "paused",
            Self::Off => "off",
            Self::Schedule => "waiting for its schedule",
            Self::Energy => "saving energy",
            Self::Foreground => "waiting until the volume is idle",
            Self::Busy => "giving way to requests",
            Self::Rate => "keeping to its rate",
        })
    }
}

/// Says when the worker runs. The same calls give the same turns.
#[derive(Clone, Debug)]
pub struct Pace {
    rule: PaceRule,
    paused: bool,
    forced: bool,
    bucket: Bucket,
    batch: BatchSize,
    latency: Latency,
    rest_factor: u32,
    /// Until when it rests, should the foreground stay active.
    busy_until: Duration,
    /// Until when it rests to take no more than the share that the energy allows.
    energy_until: Duration,
}

impl Pace {
    /// The rule has been checked.
    pub fn new(rule: PaceRule) -> Self {
        debug_assert_eq!(rule.check(), Ok(()));
        Self {
            rule,
            paused: false,
            forced: false,
            bucket: Bucket::default(),
            batch: BatchSize::new(1, BATCH_BLOCKS),
            latency: Latency::default(),
            rest_factor: 1,
            busy_until: Duration::ZERO,
            energy_until: Duration::ZERO,
        }
    }

    /// The rule in force.
    pub fn rule(&self) -> PaceRule {
        self.rule
    }

    /// Changes the rule.
    pub fn set_rule(&mut self, rule: PaceRule) -> Result<(), RangeError> {
        rule.check()?;
        self.rule = rule;
        Ok(())
    }

    /// Holds the worker, even if forced, until told otherwise.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Whether it is held.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Lets the worker run whatever its mode, schedule, rate and energy and the foreground.
    pub fn force(&mut self, on: bool) {
        self.forced = on;
    }

    /// Whether it is forced.
    pub fn is_forced(&self) -> bool {
        self.forced
    }

    /// Whether work under way is to end early for a request that comes: it runs while the volume is idle only.
    pub fn gives_way(&self) -> bool {
        !self.forced && self.rule.mode == Mode::WhenIdle
    }

    /// What to do now.
    pub fn next(&mut self, conditions: &Conditions) -> Turn {
        match self.obstacle(conditions) {
            Some((time, why)) => Turn::Wait { time: time.min(WAIT_MAX), why },
            None if self.forced => Turn::Run { blocks_max: FORCED_BLOCKS },
            None => self.within_rate(conditions),
        }
    }

    /// Learns that a batch of so many blocks took so long; the conditions are those at its end.
    pub fn ran(&mut self, blocks: u64, took: Duration, conditions: &Conditions) {
        if self.forced {
            return;
        }
        self.bucket.spend(blocks);
        self.batch.ran(blocks, took);
        self.rest_factor = match self.rest_factor_max(conditions) {
            1 => (self.rest_factor / 2).max(1),
            max => (self.rest_factor * 2).min(max),
        };
        self.busy_until = conditions.now + (took * self.rest_factor).min(REST_MAX);
        if self.rule.blocks_per_minute == 0 {
            let share = conditions.energy_share.clamp(ENERGY_SHARE_MIN, 1.0);
            self.energy_until = conditions.now + took.mul_f64(1.0 / share - 1.0);
        }
    }

    /// Learns that `requests` foreground requests took `time` in all, while the worker ran or did not.
    pub fn foreground(&mut self, requests: u64, time: Duration, worker_ran: bool) {
        self.latency.learn(requests, time, worker_ran);
    }

    /// By which share foreground requests take longer while the worker runs, once that is known.
    pub fn slowdown(&self) -> Option<f64> {
        self.latency.slowdown()
    }

    /// What keeps the worker from running, its rate aside.
    fn obstacle(&self, conditions: &Conditions) -> Option<(Duration, Why)> {
        let now = conditions.now;
        if self.paused {
            return Some((WAIT_MAX, Why::Paused));
        }
        if self.forced {
            return None;
        }
        if self.rule.mode == Mode::Off {
            return Some((WAIT_MAX, Why::Off));
        }
        if let Some(time) = conditions.opens_in {
            return Some((time, Why::Schedule));
        }
        if conditions.energy_share <= 0.0 {
            return Some((WAIT_MAX, Why::Energy));
        }
        let rest = self.busy_until.checked_sub(now).filter(|rest| !rest.is_zero());
        if let Some(time) = self.time_to_idle(conditions) {
            if self.rule.mode == Mode::WhenIdle {
                return Some((time, Why::Foreground));
            }
            if let Some(rest) = rest {
                // The foreground may fall idle before.
                return Some((time.min(rest), Why::Busy));
            }
        } else if let Some(rest) = rest.filter(|_| is_cpu_wanted(conditions)) {
            return Some((rest, Why::Busy));
        }
        let saving = conditions.energy_share < 1.0 && now < self.energy_until;
        saving.then(|| (self.energy_until - now, Why::Energy))
    }

    fn within_rate(&mut self, conditions: &Conditions) -> Turn {
        if self.rule.blocks_per_minute == 0 {
            return Turn::Run { blocks_max: self.batch.blocks() };
        }
        let per_second = self.rule.blocks_per_minute as f64 / 60.0 * conditions.energy_share;
        match self.bucket.allowed(per_second, self.batch.blocks(), conditions.now) {
            Ok(blocks_max) => Turn::Run { blocks_max },
            Err(time) => Turn::Wait { time: time.min(WAIT_MAX), why: Why::Rate },
        }
    }

    /// When the volume will count as idle if no request comes. None: it is idle.
    fn time_to_idle(&self, conditions: &Conditions) -> Option<Duration> {
        let since = conditions.now.saturating_sub(conditions.last_foreground?);
        self.rule.idle_after.checked_sub(since).filter(|time| !time.is_zero())
    }

    /// How far the rests may grow: not at all while the foreground is idle, or no worse off for the worker and with CPU
    /// and device to spare, and others leave it a CPU.
    fn rest_factor_max(&self, conditions: &Conditions) -> u32 {
        let active = self.time_to_idle(conditions).is_some();
        let full = conditions.cpu_busy >= FULLY_BUSY || conditions.device_busy >= FULLY_BUSY;
        let slower = self.slowdown().is_some_and(|slowdown| slowdown > self.rule.slowdown_max);
        match active {
            true if full || slower => REST_FACTOR_MAX,
            false if is_cpu_wanted(conditions) => REST_FACTOR_BESIDE_LOAD_MAX,
            _ => 1,
        }
    }
}

/// Whether others want all CPUs. As many threads as there are CPUs, with the worker for one more, get `cpus / (cpus + 1)`
/// of each; one thread less leaves it a CPU. Between them the line is drawn.
fn is_cpu_wanted(conditions: &Conditions) -> bool {
    let cpus = f64::from(conditions.cpus.max(1));
    let line = (cpus * cpus / (cpus + 1.0) + (cpus - 1.0)) / 2.0;
    conditions.cpus_of_others > line
}

#[cfg(test)]
mod tests;
