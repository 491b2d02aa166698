//! When the out-of-line worker may run, and for how many blocks.
//!
//! Owns the worker's rate (SmartDedup's section 3.4: blocks per minute, less when CPU or disk are
//! full, proportional to the charge), its pause, and how it gives way to the foreground. Leaves to
//! the worker what the blocks are, and to the engine the clock and the measurements.

use std::fmt;
use std::time::Duration;

use crate::ranges::{RangeError, within};

mod bucket;
mod latency;
mod progress;

use bucket::Bucket;
use latency::Latency;
pub use progress::Progress;

/// Blocks of one batch at most, 1 MiB: a foreground request that comes in between waits no longer
/// than for the batch.
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
    /// The device's busy share, 0 to 1.
    pub device_busy: f64,
    /// The share of its rate that the energy allows, 0 (off) to 1.
    pub energy_share: f64,
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
    /// The battery is low, or allows a share of the rate.
    Energy,
    /// The volume is not idle.
    Foreground,
    /// It rests to give way to foreground requests.
    Busy,
    /// Its rate is used up.
    Rate,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Paused => "paused",
            Self::Off => "off",
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

    /// Lets the worker run whatever its mode, rate and energy and the foreground.
    pub fn force(&mut self, on: bool) {
        self.forced = on;
    }

    /// Whether it is forced.
    pub fn is_forced(&self) -> bool {
        self.forced
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
        let doubled = (self.rest_factor * 2).min(REST_FACTOR_MAX);
        self.rest_factor = if self.is_in_the_way(conditions) { doubled } else { (self.rest_factor / 2).max(1) };
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
        if conditions.energy_share <= 0.0 {
            return Some((WAIT_MAX, Why::Energy));
        }
        if let Some(time) = self.time_to_idle(conditions) {
            if self.rule.mode == Mode::WhenIdle {
                return Some((time, Why::Foreground));
            }
            if now < self.busy_until {
                // The foreground may fall idle before.
                return Some((time.min(self.busy_until - now), Why::Busy));
            }
        }
        let saving = conditions.energy_share < 1.0 && now < self.energy_until;
        saving.then(|| (self.energy_until - now, Why::Energy))
    }

    fn within_rate(&mut self, conditions: &Conditions) -> Turn {
        if self.rule.blocks_per_minute == 0 {
            return Turn::Run { blocks_max: BATCH_BLOCKS };
        }
        let per_second = self.rule.blocks_per_minute as f64 / 60.0 * conditions.energy_share;
        match self.bucket.allowed(per_second, BATCH_BLOCKS, conditions.now) {
            Ok(blocks_max) => Turn::Run { blocks_max },
            Err(time) => Turn::Wait { time: time.min(WAIT_MAX), why: Why::Rate },
        }
    }

    /// When the volume will count as idle if no request comes. None: it is idle.
    fn time_to_idle(&self, conditions: &Conditions) -> Option<Duration> {
        let since = conditions.now.saturating_sub(conditions.last_foreground?);
        self.rule.idle_after.checked_sub(since).filter(|time| !time.is_zero())
    }

    /// Whether the foreground is active and worse off for the worker, or has no CPU or device to spare.
    fn is_in_the_way(&self, conditions: &Conditions) -> bool {
        let active = self.time_to_idle(conditions).is_some();
        let full = conditions.cpu_busy >= FULLY_BUSY || conditions.device_busy >= FULLY_BUSY;
        let slower = self.slowdown().is_some_and(|slowdown| slowdown > self.rule.slowdown_max);
        active && (full || slower)
    }
}

#[cfg(test)]
mod tests;
