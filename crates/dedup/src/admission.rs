//! Which write requests are processed in-line: n of N (SmartDedup's selectivity, sections 3.4, 4.4).
//!
//! Owns the learned rate, the ceiling set from outside, and the even spread of what they admit.
//! Leaves to others what happens to a request that is not admitted (the skipped buffer takes its
//! blocks) and where the ceiling comes from.
//!
//! The rule differs from the paper's in three places, each with its reason at the code:
//! a window without duplicates counts as lower than any average (`is_lower`), a window of which
//! nothing was observed does not count (`close_window`), and a stream so slow that its probes would
//! lie seconds apart is probed by time (`PROBE_AFTER`). A rule that returns to the full rate in one
//! step does so at the first duplicates above the average, not at the window's end (`observe`).

use std::collections::VecDeque;
use std::time::Duration;

use crate::ranges::{RangeError, within};

/// The share of a request that one credit is worth: shares are kept to a millionth.
const CREDIT: u32 = 1_000_000;
/// While nothing was admitted for so long, the learned rate holds nothing back: four probes a second
/// at least. At 20 requests a second, 1 % of them would be 5 s apart, and duplicates have to be
/// noticed within one.
const PROBE_AFTER: Duration = Duration::from_millis(250);

/// How the rate follows the duplicates that are found. Shares are 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Requests per window, admitted or not.
    pub window_requests: u32,
    /// Past windows whose mean share of duplicates the last window is compared with.
    pub windows: u32,
    /// What a window with fewer duplicates takes off the rate.
    pub step_down: f64,
    /// What a window with more duplicates adds to the rate.
    pub step_up: f64,
    /// The rate never falls below this.
    pub floor: f64,
}

impl Rule {
    /// The paper's setting.
    pub const PAPER: Self = Self { window_requests: 150, windows: 30, step_down: 0.10, step_up: 0.30, floor: 0.30 };
    /// Falls to probes of one request in a hundred and returns at once.
    pub const PROBING: Self = Self { window_requests: 150, windows: 30, step_down: 0.10, step_up: 1.0, floor: 0.01 };
    /// No adaptation: every request that the ceiling allows.
    pub const ALWAYS: Self = Self { window_requests: 150, windows: 30, step_down: 0.0, step_up: 1.0, floor: 1.0 };

    /// Refuses what makes no sense. The floor has a least value because a rate of zero would never
    /// learn of duplicates again.
    pub fn check(&self) -> Result<(), RangeError> {
        within("window_requests", f64::from(self.window_requests), 1.0, 1_000_000.0)?;
        within("windows", f64::from(self.windows), 1.0, 1_000.0)?;
        within("step_down", self.step_down, 0.0, 1.0)?;
        within("step_up", self.step_up, 0.01, 1.0)?;
        within("floor", self.floor, 0.001, 1.0)
    }
}

/// What was seen of the requests of one window.
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

/// Says for each write request whether it is processed in-line. The same calls give the same answers.
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
    /// What the requests since the last admitted one have saved up towards the next.
    credit: u32,
    last_admitted: Duration,
    window: Window,
    /// Ratios of past windows, the oldest first.
    past: VecDeque<f64>,
    windows: u64,
}

impl Admission {
    /// Starts by admitting every request. The rule has been checked.
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

    /// Admits every request that the limit allows, for good.
    pub fn always() -> Self {
        Self::new(Rule::ALWAYS)
    }

    /// Whether the request that arrived at `now` is processed in-line. Asked once per request.
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

    /// Learns that of the `blocks` blocks of an admitted request `duplicates` were found.
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

    /// Sets the ceiling from load and energy, 0 (off) to 1. What is no number counts as off.
    pub fn set_limit(&mut self, share: f64) {
        self.limit = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
    }

    /// Changes the rule. The rate goes on from where it is, as far as the new floor allows.
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

    /// The ceiling.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// The share of requests that is admitted now.
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

    /// A window that observed nothing (all its requests skipped, or still under way) says nothing
    /// about duplicates: it neither moves the rate nor enters the average.
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

    /// The paper is silent on a window without duplicates after windows without any. If it were
    /// not lower, data that never repeats would be processed in full for ever.
    fn is_lower(&self, ratio: f64) -> bool {
        ratio == 0.0 || self.average().is_some_and(|average| ratio < average)
    }

    /// Whether the current window has more duplicates than the past ones. Before the first one
    /// ended there is nothing to compare with.
    fn is_higher(&self) -> bool {
        self.window.ratio().zip(self.average()).is_some_and(|(ratio, average)| ratio > average)
    }

    fn average(&self) -> Option<f64> {
        (!self.past.is_empty()).then(|| self.past.iter().sum::<f64>() / self.past.len() as f64)
    }
}

#[cfg(test)]
mod tests;
