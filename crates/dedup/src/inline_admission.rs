//! Admission to in-line deduplication: which write requests are processed, n of N (SmartDedup's selectivity, sections
//! 3.4 and 4.4), and whether their blocks are fingerprinted as they are written.
//!
//! Owns the learned rate, the limit set by load and energy, the even spread of the admitted requests, and the choice
//! between eager fingerprints (every block) and lazy ones (only where a tag matches). Leaves to others what happens to
//! a request that is not admitted (its blocks enter the skipped buffer) and where the limit comes from (`load_limit`,
//! `energy`).
//!
//! The rule differs from the paper's in five places. The code gives the reason for each.
//!
//! - A window without duplicates counts as lower than any average (`is_lower`).
//! - A window without observations does not count (`close_window`).
//! - A stream so slow that its probes would be seconds apart is probed by time (`PROBE_AFTER`).
//! - A few blocks of each request that is not admitted are looked up, and one duplicate among them restores the full
//!   rate (`hit`).
//! - A rule that returns to the full rate in one step does so at the first duplicates above the average, not at the
//!   window's end (`observe`).

use std::collections::VecDeque;
use std::time::Duration;

use crate::out_of_range::{RangeError, within};

/// The credit of a whole request: shares are kept to a millionth.
const CREDIT: u32 = 1_000_000;
/// After this time without an admitted request the learned rate is ignored: at least four probes a second. At 20
/// requests a second, 1 % of them would be 5 s apart, but duplicates have to be noticed within one second.
const PROBE_AFTER: Duration = Duration::from_millis(250);

/// How the rate follows the share of duplicates (SmartDedup, sections 3.4 and 4.4). Shares are 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Requests per window, admitted or not.
    pub window_requests: u32,
    /// Past windows; the last window is compared with their mean share of duplicates.
    pub windows: u32,
    /// How much a window with fewer duplicates lowers the rate.
    pub step_down: f64,
    /// How much a window with more duplicates raises the rate.
    pub step_up: f64,
    /// The rate never falls below this.
    pub floor: f64,
}

impl Rule {
    /// The paper's setting.
    pub const PAPER: Self = Self { window_requests: 150, windows: 30, step_down: 0.10, step_up: 0.30, floor: 0.30 };
    /// Falls to probing one request in a hundred, and returns at once.
    pub const PROBING: Self = Self { window_requests: 150, windows: 30, step_down: 0.10, step_up: 1.0, floor: 0.01 };
    /// No adaptation: admits every request that the ceiling allows.
    pub const ALWAYS: Self = Self { window_requests: 150, windows: 30, step_down: 0.0, step_up: 1.0, floor: 1.0 };

    /// Refuses values that make no sense. The floor has a minimum because a rate of zero would never
    /// see duplicates again.
    pub fn check(&self) -> Result<(), RangeError> {
        within("window_requests", f64::from(self.window_requests), 1.0, 1_000_000.0)?;
        within("windows", f64::from(self.windows), 1.0, 1_000.0)?;
        within("step_down", self.step_down, 0.0, 1.0)?;
        within("step_up", self.step_up, 0.01, 1.0)?;
        within("floor", self.floor, 0.001, 1.0)
    }
}

/// The observations of one window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    requests: u32,
    blocks: u64,
    duplicates: u64,
}

impl Window {
    /// The share of duplicates among the blocks observed.
    fn ratio(&self) -> Option<f64> {
        (self.blocks > 0).then(|| self.duplicates as f64 / self.blocks as f64)
    }
}

/// Decides for each write request whether it is processed in-line (SmartDedup, sections 3.4 and 4.4). The same sequence
/// of calls gives the same answers.
///
/// Invariants, asserted by [`Admission::check`]:
/// 1. The rate is between the rule's floor and 1, the limit between 0 and 1.
/// 2. At most the rule's `windows` past windows are kept.
/// 3. Less than one request's credit is left over.
#[derive(Clone, Debug)]
pub struct Admission {
    rule: Rule,
    rate: f64,
    limit: f64,
    /// Credit accumulated since the last admitted request, towards the next one.
    credit: u32,
    last_admitted: Duration,
    window: Window,
    /// Ratios of past windows, the oldest first.
    past: VecDeque<f64>,
    windows: u64,
}

impl Admission {
    /// Starts by admitting every request. The caller has checked the rule.
    pub fn new(rule: Rule) -> Self {
        debug_assert_eq!(rule.check(), Ok(()));
        Self {
            rule,
            rate: 1.0,
            limit: 1.0,
            credit: 0,
            last_admitted: Duration::ZERO,
            window: Window::default(),
            past: VecDeque::new(),
            windows: 0,
        }
    }

    /// Admits every request that the limit allows, without learning.
    pub fn always() -> Self {
        Self::new(Rule::ALWAYS)
    }

    /// Whether the request that arrived at `now` is processed in-line. Called once per request.
    pub fn admit(&mut self, now: Duration) -> bool {
        if self.window.requests >= self.rule.window_requests {
            self.close_window();
        }
        self.window.requests += 1;
        let probe = now.saturating_sub(self.last_admitted) >= PROBE_AFTER;
        let share = if probe { self.limit } else { self.share() };
        self.credit += (share * f64::from(CREDIT)).round() as u32;
        if self.credit < CREDIT {
            return false;
        }
        self.credit -= CREDIT;
        self.last_admitted = now;
        true
    }

    /// Learns that `duplicates` of the `blocks` blocks of an admitted request were duplicates.
    pub fn observe(&mut self, blocks: u64, duplicates: u64) {
        debug_assert!(duplicates <= blocks, "{duplicates} duplicates among {blocks} blocks");
        self.window.blocks += blocks;
        self.window.duplicates += duplicates;
        // At 1 % of a slow stream a window may last for seconds.
        let in_one_step = self.rule.floor + self.rule.step_up >= 1.0;
        if in_one_step && self.is_higher() {
            self.rate = 1.0;
        }
    }

    /// Whether a few blocks of a request that was not admitted are worth a probe: load and energy would allow the whole
    /// request, and only the learned rate refuses it.
    pub fn is_probed(&self) -> bool {
        self.rate < self.limit
    }

    /// A probe found a duplicate: from the next request on, all are admitted again.
    pub fn hit(&mut self) {
        self.rate = 1.0;
    }

    /// Sets the limit from load and energy, 0 (off) to 1. NaN counts as off.
    pub fn set_limit(&mut self, share: f64) {
        self.limit = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
    }

    /// Changes the rule. The rate stays as it is, but not below the new floor.
    pub fn set_rule(&mut self, rule: Rule) -> Result<(), RangeError> {
        rule.check()?;
        self.rule = rule;
        self.rate = self.rate.max(rule.floor);
        let surplus = self.past.len().saturating_sub(rule.windows as usize);
        self.past.drain(..surplus);
        Ok(())
    }

    /// The rule in force.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// The learned share, before the limit.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The limit set by load and energy, 0 to 1.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// The share of requests that is admitted now: the lower of rate and limit.
    pub fn share(&self) -> f64 {
        self.rate.min(self.limit)
    }

    /// Windows that counted so far.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Asserts the invariants.
    pub fn check(&self) {
        assert!((self.rule.floor..=1.0).contains(&self.rate), "invariant 1: rate {}", self.rate);
        assert!((0.0..=1.0).contains(&self.limit), "invariant 1: limit {}", self.limit);
        assert!(self.past.len() <= self.rule.windows as usize, "invariant 2: {} windows", self.past.len());
        assert!(self.credit < CREDIT, "invariant 3: credit {}", self.credit);
    }

    /// A window without observations (all its requests skipped, or still under way) says nothing about duplicates. It
    /// neither moves the rate nor enters the average.
    fn close_window(&mut self) {
        if let Some(ratio) = self.window.ratio() {
            if self.is_lower(ratio) {
                self.rate = (self.rate - self.rule.step_down).max(self.rule.floor);
            } else if self.is_higher() {
                self.rate = (self.rate + self.rule.step_up).min(1.0);
            }
            if self.past.len() == self.rule.windows as usize {
                self.past.pop_front();
            }
            self.past.push_back(ratio);
            self.windows += 1;
        }
        self.window = Window::default();
    }

    /// The paper does not say what follows when windows without duplicates follow each other. If they did not count as
    /// lower, data that never repeats would be processed in full forever.
    fn is_lower(&self, ratio: f64) -> bool {
        ratio == 0.0 || self.average().is_some_and(|average| ratio < average)
    }

    /// Whether the current window has more duplicates than the past ones. Before the first window has ended there is
    /// nothing to compare with.
    fn is_higher(&self) -> bool {
        self.window.ratio().zip(self.average()).is_some_and(|(ratio, average)| ratio > average)
    }

    fn average(&self) -> Option<f64> {
        (!self.past.is_empty()).then(|| self.past.iter().sum::<f64>() / self.past.len() as f64)
    }
}

/// Blocks over which the share of duplicates is averaged: 16 MiB of writes.
const WINDOW_BLOCKS: u64 = 4096;
/// At this share of duplicates lazy turns eager: one read saved for every 33 fingerprints.
const EAGER_SHARE_MIN: f64 = 0.03;
/// Below this share eager turns lazy. The gap keeps a steady share from switching back and forth.
const LAZY_SHARE_MAX: f64 = 0.015;

/// If a block takes at least this long to write, its fingerprint is ready first: it is computed meanwhile, in about
/// half of this time.
const SLOW_BLOCK_TIME: Duration = Duration::from_micros(2);
/// A device counts as fast again when a block takes less than this.
const FAST_BLOCK_TIME: Duration = Duration::from_nanos(1500);

/// When written blocks are fingerprinted.
///
/// A fingerprint costs ten times as much as a tag. Without one, a match has to be compared with the stored bytes, which
/// takes a read from the device. So fingerprints pay where duplicates are found, and where writing a block to the
/// device takes longer than computing its fingerprint in parallel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fingerprinting {
    /// Every block.
    Eager,
    /// Only blocks whose tag matches a hint.
    Lazy,
    /// Eager while duplicates are being found, and where the device hides the cost of fingerprints.
    Auto(DuplicateShare, WritePace),
}

/// How long the device takes to write a block, and whether that counts as slow. The default, without writes, is fast.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WritePace {
    block_seconds: f64,
    is_slow: bool,
}

/// The share of duplicates among recently written blocks, and whether that calls for eager fingerprints.
/// The default, without blocks, is lazy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DuplicateShare {
    share: f64,
    eager: bool,
}

impl Fingerprinting {
    /// Whether to fingerprint every block of the next batch.
    pub fn eager(&self) -> bool {
        match self {
            Self::Eager => true,
            Self::Lazy => false,
            Self::Auto(recent, pace) => recent.eager || pace.is_slow,
        }
    }

    /// Whether to fingerprint the blocks of a request that is not looked up, too. `is_limited`: load or energy bound the
    /// rate of requests. Otherwise the device hides the cost, and a later duplicate of such a block is confirmed
    /// without a read.
    pub fn eager_unadmitted(&self, is_limited: bool) -> bool {
        matches!(self, Self::Auto(_, pace) if pace.is_slow && !is_limited)
    }

    /// Learns that `duplicates` of the `blocks` blocks just written were stored already.
    pub fn observe(&mut self, blocks: u64, duplicates: u64) {
        if let Self::Auto(recent, _) = self {
            recent.observe(blocks, duplicates);
        }
    }

    /// Learns that writing `blocks` blocks to the device took this time.
    pub fn observe_device(&mut self, blocks: u64, time: Duration) {
        if let Self::Auto(_, pace) = self {
            pace.observe(blocks, time);
        }
    }
}

impl WritePace {
    fn observe(&mut self, blocks: u64, time: Duration) {
        if blocks == 0 {
            return;
        }
        let weight = if self.block_seconds == 0.0 { 1.0 } else { weight_of(blocks) };
        self.block_seconds += weight * (time.as_secs_f64() / blocks as f64 - self.block_seconds);
        let slow_from = if self.is_slow { FAST_BLOCK_TIME } else { SLOW_BLOCK_TIME };
        self.is_slow = self.block_seconds >= slow_from.as_secs_f64();
    }
}

/// The weight of these blocks against earlier ones.
fn weight_of(blocks: u64) -> f64 {
    blocks.min(WINDOW_BLOCKS) as f64 / WINDOW_BLOCKS as f64
}

impl DuplicateShare {
    /// The share of duplicates among recent blocks, 0 to 1.
    pub fn share(&self) -> f64 {
        self.share
    }

    fn observe(&mut self, blocks: u64, duplicates: u64) {
        debug_assert!(duplicates <= blocks, "{duplicates} duplicates among {blocks} blocks");
        if blocks == 0 {
            return;
        }
        self.share += weight_of(blocks) * (duplicates as f64 / blocks as f64 - self.share);
        self.eager = self.share >= if self.eager { LAZY_SHARE_MAX } else { EAGER_SHARE_MIN };
    }
}

#[cfg(test)]
mod tests;
