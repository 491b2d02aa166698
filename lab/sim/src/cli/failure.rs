//! How a command fails: one line with the way out, and an exit code.

use std::fmt;

/// Exit codes.
pub mod exit {
    /// The command failed.
    pub const FAILED: u8 = 1;
    /// The command line makes no sense.
    pub const USAGE: u8 = 2;
}

/// Why a command ends without success.
#[derive(Debug)]
pub struct Failure {
    /// One line, with the way out.
    pub message: String,
    /// The process's exit code.
    pub code: u8,
}

impl Failure {
    /// A failure with its exit code; scripts and logs get one line of it.
    pub fn new(code: u8, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        let lines: Vec<&str> = message.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect();
        Self { message: lines.join(" "), code }
    }

    /// What went wrong while something was done to `what`.
    pub fn with(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::new(exit::FAILED, format!("{what}: {error}"))
    }
}
