//! Progress of a long command: a line on a terminal, and the totals at its end.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use oncefs_engine::Blocks;

use crate::size::Size;
use crate::text::duration;

/// The line is redrawn no more often than this: the work reports its progress at every step.
const REDRAW: Duration = Duration::from_millis(100);

/// Shorter work ends without a line: it was over before a user would wait.
const RATED: Duration = Duration::from_secs(1);

/// The line fits 80 columns; a narrower terminal cuts it.
const LAYOUT: &str = "{prefix} {wide_msg}";

/// Characters of the bar.
const BAR: usize = 10;

/// The rate is that of this time, so that it follows the load and does not flicker.
const WINDOW: Duration = Duration::from_secs(10);

/// How far a piece of work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The part that is done.
    pub done: u64,
    /// All of it, about. 0: not known.
    pub total: u64,
    /// The things counted, in the plural. None: bytes.
    noun: Option<&'static str>,
}

impl Step {
    /// A step of work counted in bytes.
    pub fn bytes(done: u64, total: u64) -> Self {
        Self { done, total, noun: None }
    }

    /// A step of work counted in blocks, which are shown as bytes.
    pub fn blocks(done: u64, total: u64) -> Self {
        Self::bytes(Blocks(done).bytes(), Blocks(total).bytes())
    }

    /// A step of work counted in things of this name.
    pub fn things(noun: &'static str, done: u64, total: u64) -> Self {
        Self { done, total, noun: Some(noun) }
    }

    /// An amount without the noun.
    fn amount(self, amount: u64) -> String {
        if self.noun.is_some() { amount.to_string() } else { Size(amount).to_string() }
    }

    /// An amount with the noun.
    fn named(self, amount: u64) -> String {
        let noun = self.noun.map_or_else(String::new, |noun| format!(" {noun}"));
        self.amount(amount) + &noun
    }

    /// "5.00 GiB in 12 s, 427 MiB/s".
    fn totals(self, time: Duration) -> String {
        let rate = (self.done as f64 / time.as_secs_f64()) as u64;
        format!("{} in {}, {}/s", self.named(self.done), duration(time.as_secs()), self.amount(rate))
    }

    /// "[######    ] 62 %, 3.10 GiB of 5.00 GiB, 412 MiB/s, 5 s left", as far as it is known. `hindrance`: the
    /// reason that the work stands still. It replaces the bar and the time left, which is unknown then.
    fn figures(self, per_second: u64, hindrance: Option<&str>) -> String {
        let mut text = match self.total {
            0 => self.named(self.done),
            total => {
                let share = |of: u64| (u128::from(self.done.min(total)) * u128::from(of) / u128::from(total)) as usize;
                let (full, percent) = ("#".repeat(share(BAR as u64)), share(100));
                let bar = if hindrance.is_none() { format!("[{full:BAR$}] ") } else { String::new() };
                format!("{bar}{percent} %, {} of {}", self.amount(self.done), self.named(total))
            }
        };
        if per_second > 0 {
            text += &format!(", {}/s", self.amount(per_second));
        }
        let left = self.total.saturating_sub(self.done);
        match hindrance {
            Some(hindrance) => text += &format!(", {hindrance}"),
            None if per_second > 0 && left > 0 => text += &format!(", {} left", duration(left.div_ceil(per_second))),
            None => {}
        }
        text
    }
}

/// The rate of the last few seconds.
#[derive(Debug, Default)]
struct Rate {
    /// Times since the start, and what was done then, the oldest first.
    seen: VecDeque<(Duration, u64)>,
}

impl Rate {
    /// `done` was done at this time. Returns the rate per second, 0 before it is known.
    fn at(&mut self, now: Duration, done: u64) -> u64 {
        self.seen.push_back((now, done));
        while self.seen.get(1).is_some_and(|(time, _)| now.saturating_sub(*time) >= WINDOW) {
            self.seen.pop_front();
        }
        let (since, before) = self.seen[0];
        let time = now.saturating_sub(since);
        if time < RATED { 0 } else { (done.saturating_sub(before) as f64 / time.as_secs_f64()) as u64 }
    }
}

/// Shows progress on a terminal, and nothing elsewhere. The line disappears when this is dropped.
pub struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    shown: Option<Instant>,
    doing: String,
    rate: Rate,
}

impl Progress {
    /// Starts without a display.
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(LAYOUT).expect("the template is valid");
            ProgressBar::new(0).with_style(style)
        });
        Self { bar, started: Instant::now(), shown: None, doing: String::new(), rate: Rate::default() }
    }

    /// The work `doing` is at this step.
    pub fn show(&mut self, doing: &str, step: Step) {
        self.show_hindered(doing, step, None);
    }

    /// The same, with what keeps the work from going on.
    pub fn show_hindered(&mut self, doing: &str, step: Step, hindrance: Option<&str>) {
        let Some(bar) = &self.bar else { return };
        if self.shown.is_some_and(|shown| shown.elapsed() < REDRAW) {
            return;
        }
        self.shown = Some(Instant::now());
        if self.doing != doing {
            // Rate and time left are for this work alone, not for the work before it.
            self.doing = doing.to_owned();
            self.rate = Rate::default();
            bar.set_prefix(self.doing.clone());
        }
        let per_second = self.rate.at(self.started.elapsed(), step.done);
        bar.set_message(step.figures(per_second, hindrance));
    }

    /// The work is done. Replaces the line by one with totals, which begins with what was done to them ("read").
    pub fn end(self, verb: &str, all: Step) {
        let (is_shown, time) = (self.bar.is_some(), self.started.elapsed());
        drop(self);
        if is_shown && time >= RATED {
            tell!("{verb} {}", all.totals(time));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_percent_amounts_rate_and_time_left() {
        let step = Step::bytes(3 << 30, 5 << 30);
        let rate = 512 << 20;
        assert_eq!(step.figures(rate, None), "[######    ] 60 %, 3.00 GiB of 5.00 GiB, 512 MiB/s, 4 s left");
        assert_eq!(step.figures(rate, Some("waiting")), "60 %, 3.00 GiB of 5.00 GiB, 512 MiB/s, waiting");
        assert_eq!(step.figures(0, None), "[######    ] 60 %, 3.00 GiB of 5.00 GiB");
        assert_eq!(Step::blocks(9, 9).figures(1 << 20, None), "[##########] 100 %, 36.0 KiB of 36.0 KiB, 1.00 MiB/s");
        assert_eq!(Step::things("files", 7, 9).figures(2, None), "[#######   ] 77 %, 7 of 9 files, 2/s, 1 s left");
        assert_eq!(Step::bytes(3 << 20, 0).figures(0, None), "3.00 MiB");
        let beyond = format!("[##########] 100 %, {} of 1 B", Size(u64::MAX));
        assert_eq!(Step::bytes(u64::MAX, 1).figures(0, None), beyond);
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds_and_unknown_at_first() {
        let mut rate = Rate::default();
        let mut at = |second, done| rate.at(Duration::from_secs(second), done);
        // A pass that continues begins far from 0.
        assert_eq!((at(5, 1_000), at(5, 1_100)), (0, 0));
        assert_eq!((at(10, 1_500), at(15, 2_000)), (100, 90));
        assert_eq!((at(25, 2_000), at(26, 2_100)), (0, 9));
    }

    #[test]
    fn totals_have_the_time_and_the_rate() {
        let time = Duration::from_secs(10);
        assert_eq!(Step::bytes(5 << 30, 6 << 30).totals(time), "5.00 GiB in 10 s, 512 MiB/s");
        assert_eq!(Step::things("files", 70, 70).totals(time), "70 files in 10 s, 7/s");
    }
}
