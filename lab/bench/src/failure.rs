//! The only error type of the benchmark: one line for the person who runs it.
//!
//! Nothing recovers from it. Guards undo whatever was set up on the way out.

use std::fmt;
use std::io::{self, Write as _};

/// What went wrong and what to do about it, in one line.
#[derive(Debug)]
pub struct Failure(String);

/// Result of everything that can fail in the benchmark.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with this line.
    pub fn new(line: impl Into<String>) -> Failure {
        Failure(line.into())
    }
}

/// Writes a line to standard error. A closed terminal must not stop guards from undoing what was set up.
pub fn tell(line: &str) {
    let _closed = writeln!(io::stderr(), "{line}");
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        io::Error::other(failure.0)
    }
}

/// Names what was being done when an operation failed.
pub trait During<T> {
    /// Turns the error into a [`Failure`] that begins with `activity`.
    fn during<S: fmt::Display>(self, activity: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: fmt::Display> During<T> for std::result::Result<T, E> {
    fn during<S: fmt::Display>(self, activity: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| Failure(format!("{}: {error}", activity())))
    }
}
