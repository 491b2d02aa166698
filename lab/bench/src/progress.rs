//! Shows the progress of a run: a bar on a terminal, lines elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::tell;

/// The progress of a run.
pub struct Progress(ProgressBar);

impl Progress {
    /// Progress over this many steps.
    pub fn new(steps: usize) -> Progress {
        let bar = ProgressBar::new(steps as u64);
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} {msg} (left: {eta})");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        // Single steps take many seconds on a throttled device: show that time goes on.
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress(bar)
    }

    /// Shows what runs now.
    pub fn say(&self, activity: String) {
        if self.0.is_hidden() {
            tell(&format!("[{}/{}] {activity}", self.0.position() + 1, self.0.length().unwrap_or_default()));
        }
        self.0.set_message(activity);
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
