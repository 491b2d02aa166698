//! Progress of a long command: a bar on a terminal, otherwise one line if it takes long.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Work that takes longer than this is reported.
const QUIET: Duration = Duration::from_secs(2);

/// A bar is redrawn no more often than this: the work reports its progress at every step.
const REDRAW: Duration = Duration::from_millis(100);

/// Shows progress. The bar disappears when this is dropped.
pub struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    shown: Option<Instant>,
    doing: String,
    is_reported: bool,
}

impl Progress {
    /// Starts without a display.
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg} [{bar:40}] {human_pos} of {human_len} {eta}");
            ProgressBar::new(0).with_style(style.expect("the template is valid"))
        });
        Self { bar, started: Instant::now(), shown: None, doing: String::new(), is_reported: false }
    }

    /// `doing` is at `done` of `total`, both in the same unit.
    pub fn show(&mut self, doing: &str, done: u64, total: u64) {
        if self.shown.is_some_and(|shown| shown.elapsed() < REDRAW) {
            return;
        }
        self.shown = Some(Instant::now());
        if let Some(bar) = &self.bar {
            if self.doing != doing {
                // The time left is for this work alone, not for the work before it.
                self.doing = doing.to_owned();
                bar.reset();
            }
            bar.set_message(doing.to_owned());
            bar.set_length(total);
            bar.set_position(done);
        } else if !self.is_reported && self.started.elapsed() > QUIET {
            tell!("oncefs: {doing}: {done} of {total} after {} seconds", self.started.elapsed().as_secs());
            self.is_reported = true;
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
