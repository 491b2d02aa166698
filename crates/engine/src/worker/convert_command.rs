//! The `oncefs compress` or `oncefs expand` that is under way, and what the latter remembers of shared fragments: those
//! that it measured, and the blocks of those that it moved.
//!
//! A volume has one at a time. Two would forget, or count, for each other: what files share would be stored twice, and
//! the check of room would be wrong. And one that compresses would undo what the other expands. Each has a number, which its requests carry. One that was killed holds up others
//! for a short time only, and one that stood still meanwhile learns that another has begun.

use std::time::Duration;

use crate::worker::expand::{Measured, Moved};

/// A command that made no request for this long was killed, or stands still.
pub const IDLE_MAX: Duration = Duration::from_secs(10);

/// The command under way, or the last one.
#[derive(Default)]
pub struct ConvertCommand {
    /// Its number. 0: there was none since the mount.
    number: u64,
    /// When it last made a request. None: it has ended.
    used: Option<Duration>,
    /// The blocks of shared fragments that were expanded.
    pub moved: Moved,
    /// The shared fragments that were measured.
    pub measured: Measured,
}

impl ConvertCommand {
    /// A command begins. Gives its number. None: another one is under way.
    pub fn begin(&mut self, now: Duration) -> Option<u64> {
        if self.used.is_some_and(|used| now.saturating_sub(used) < IDLE_MAX) {
            return None;
        }
        *self = Self { number: self.number + 1, used: Some(now), ..Self::default() };
        Some(self.number)
    }

    /// Whether this command is the one under way.
    pub fn is(&self, number: u64) -> bool {
        self.used.is_some() && self.number == number
    }

    /// Notes a request of the command, at its end: it may take long.
    pub fn note_used(&mut self, now: Duration) {
        self.used = Some(now);
    }

    /// This command ends, and what it remembers is forgotten.
    pub fn end(&mut self, number: u64) {
        if self.is(number) {
            *self = Self { number, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_is_under_way_until_it_ends_or_makes_no_request_for_ten_seconds() {
        let seconds = Duration::from_secs;
        let mut command = ConvertCommand::default();
        assert!(!command.is(0), "none has begun");
        let first = command.begin(seconds(5)).unwrap();
        command.measured.insert(crate::Pbn(7));
        assert_eq!(command.begin(seconds(14)), None);
        command.note_used(seconds(14));
        assert_eq!(command.begin(seconds(23)), None);
        assert!(command.is(first) && command.measured.len() == 1, "a refused one changes nothing");
        let second = command.begin(seconds(24)).unwrap();
        assert!(command.is(second) && !command.is(first) && command.measured.is_empty());
        command.end(first);
        assert_eq!(command.begin(seconds(25)), None, "the end of another one ends nothing");
        command.end(second);
        assert!(!command.is(second));
        let third = command.begin(seconds(25)).unwrap();
        assert!(third != first && third != second);
    }
}
