//! When the out-of-line worker may run, and for how many blocks.
//!
//! Owns the worker's rate (SmartDedup, section 3.4: blocks per minute, fewer while CPU or disk are busy, proportional
//! to the charge), its pause, and how it yields to the foreground and to programs that need the CPU: when it rests, and
//! how large its batches may be so that each ends soon. Leaves its hours to `schedule`, the choice of blocks to the
//! worker, and the clock and the measurements to the engine (`worker/work_loop.rs`).

use std::fmt;
use std::time::Duration;

use crate::out_of_range::{RangeError, within};

mod batch;
mod bucket;
mod latency;
mod progress;

pub use batch::BatchSize;
use bucket::Bucket;
use latency::Latency;
pub use progress::Progress;

/// Largest batch, 1 MiB. Batches are smaller if this many blocks take too long, because a foreground request that
/// arrives meanwhile waits for the batch.
const BATCH_BLOCKS: u64 = 256;
/// The batch when forced, because a caller waits for the end: a larger batch reads each page of the disk level fewer
/// times.
const FORCED_BLOCKS: u64 = 4_096;
/// The longest wait before the worker checks again: settings and the charge may change.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Busy share from which the CPU or the device counts as fully busy.
const FULLY_BUSY: f64 = 0.95;
/// While the foreground is active, each batch is followed by a rest of 1 to 256 times its own length. It always rests,
/// so that the foreground's latency without the worker is measured all the time.
const REST_FACTOR_MAX: u32 = 256;
/// If other programs need only the CPU, a rest is at most this many times the batch. So the worker takes up to a
/// sixteenth of one CPU from them, and makes progress.
const REST_FACTOR_BESIDE_LOAD_MAX: u32 = 16;
/// The smallest share, because charge is in percent. Bounds the rests that keep to the share of the energy.
const ENERGY_SHARE_MIN: f64 = 0.01;
/// The longest rest for the foreground's sake.
const REST_MAX: Duration = Duration::from_secs(2);

/// When the worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only when forced.
    Off,
    /// After a time without foreground requests.
    WhenIdle,
    /// Also while the foreground is active, yielding to it.
    Always,
}

/// How the worker behaves (SmartDedup, section 3.4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaceRule {
    /// When it runs.
    pub mode: Mode,
    /// Its rate on mains, up to 10^9. 0: as fast as it can.
    pub blocks_per_minute: u64,
    /// Time after the last foreground request until the volume counts as idle, up to an hour.
    pub idle_after: Duration,
    /// How much the worker may raise the mean latency of foreground requests, 0 to 10: 0.1 is 10 %.
    pub slowdown_max: f64,
}

impl PaceRule {
    /// The defaults of a mode.
    pub fn new(mode: Mode) -> Self {
        Self { mode, blocks_per_minute: 0, idle_after: Duration::from_millis(200), slowdown_max: 0.10 }
    }

    /// Refuses values that make no sense.
    pub fn check(&self) -> Result<(), RangeError> {
        within("blocks_per_minute", self.blocks_per_minute as f64, 0.0, 1e9)?;
        within("idle_after_ms", self.idle_after.as_secs_f64() * 1e3, 0.0, 3_600_000.0)?;
        within("slowdown_max", self.slowdown_max, 0.0, 10.0)
    }
}

/// The inputs of the decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// The current time, measured from some start.
    pub now: Duration,
    /// When the last foreground request came, by the same clock. None: none has come yet.
    pub last_foreground: Option<Duration>,
    /// The CPU's busy share, 0 to 1.
    pub cpu_busy: f64,
    /// Number of CPUs.
    pub cpus: u32,
    /// Number of CPUs that programs other than the worker keep busy, not counting niced ones.
    pub cpus_of_others: f64,
    /// The device's busy share, 0 to 1.
    pub device_busy: f64,
    /// The share of its rate that the energy allows, 0 (off) to 1.
    pub energy_share: f64,
    /// Time until its schedule lets it run. None: it may run now.
    pub opens_in: Option<Duration>,
}

/// The worker's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Process a batch.
    Run {
        /// Largest size of the batch, in blocks, at least 1.
        blocks_max: u64,
    },
    /// Ask again later.
    Wait {
        /// After this time, or when something changes.
        time: Duration,
        /// Why it waits.
        why: Why,
    },
}

/// Why the worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A command paused it.
    Paused,
    /// It is switched off.
    Off,
    /// Its schedule does not allow this hour.
    Schedule,
    /// The battery is low, or allows only a share of the rate.
    Energy,
    /// The volume is not idle.
    Foreground,
    /// It rests to yield to foreground requests, or to programs that need all CPUs.
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
            Self::Busy => "giving way to programs",
            Self::Rate => "keeping to its rate",
        })
    }
}

/// Decides when the worker runs (SmartDedup, section 3.4). The same sequence of calls gives the same turns.
#[derive(Clone, Debug)]
pub struct Pace {
    rule: PaceRule,
    paused: bool,
    forced: bool,
    bucket: Bucket,
    batch: BatchSize,
    latency: Latency,
    rest_factor: u32,
    /// End of its rest, if the foreground stays active.
    busy_until: Duration,
    /// End of its rest that keeps to the share of the energy.
    energy_until: Duration,
}

impl Pace {
    /// Starts unpaused and not forced. The caller has checked the rule.
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

    /// Pauses the worker, even if forced, or resumes it.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Lets the worker run regardless of mode, schedule, rate, energy and foreground.
    pub fn force(&mut self, on: bool) {
        self.forced = on;
    }

    /// Whether it is forced.
    pub fn is_forced(&self) -> bool {
        self.forced
    }

    /// Whether a batch should end early for a foreground request: in [`Mode::WhenIdle`], unless forced.
    pub fn gives_way(&self) -> bool {
        !self.forced && self.rule.mode == Mode::WhenIdle
    }

    /// The next turn: run a batch, or wait.
    pub fn next(&mut self, conditions: &Conditions) -> Turn {
        match self.obstacle(conditions) {
            Some((time, why)) => Turn::Wait { time: time.min(WAIT_MAX), why },
            None if self.forced => Turn::Run { blocks_max: FORCED_BLOCKS },
            None => self.within_rate(conditions),
        }
    }

    /// Learns that a batch of `blocks` blocks `took` this time. The conditions are those at its end.
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

    /// Learns that `requests` foreground requests took `time` in total. `worker_ran`: the worker ran meanwhile.
    pub fn foreground(&mut self, requests: u64, time: Duration, worker_ran: bool) {
        self.latency.learn(requests, time, worker_ran);
    }

    /// How much longer foreground requests take while the worker runs, as a share. None: not known yet.
    pub fn slowdown(&self) -> Option<f64> {
        self.latency.slowdown()
    }

    /// The obstacle that keeps the worker from running, except its rate.
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
                // The foreground may become idle earlier.
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

    /// Time until the volume counts as idle if no request comes. None: it is idle.
    fn time_to_idle(&self, conditions: &Conditions) -> Option<Duration> {
        let since = conditions.now.saturating_sub(conditions.last_foreground?);
        self.rule.idle_after.checked_sub(since).filter(|time| !time.is_zero())
    }

    /// The largest rest factor. It stays at 1 if other programs leave the worker a CPU and the foreground is idle, and
    /// if the foreground is no slower with the worker while CPU and device have spare capacity.
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

/// Whether other programs need all CPUs. With one thread of theirs per CPU, the worker as one more thread gets the
/// share `cpus / (cpus + 1)` of a CPU. With one thread fewer, the worker has a CPU to itself. The threshold is between
/// the two.
fn is_cpu_wanted(conditions: &Conditions) -> bool {
    let cpus = f64::from(conditions.cpus.max(1));
    let line = (cpus * cpus / (cpus + 1.0) + (cpus - 1.0)) / 2.0;
    conditions.cpus_of_others > line
}

#[cfg(test)]
mod tests;
