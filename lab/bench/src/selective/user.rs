//! The users of the paper's table 5, and what table 6 says of their files.

use clap::ValueEnum;
use serde::Serialize;

/// A user of the paper's table 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum User {
    /// Web browser and word processor.
    Desktop,
    /// Editor and compiler.
    Developer,
}

impl User {
    /// For headings.
    pub fn describe(self) -> &'static str {
        match self {
            User::Desktop => "desktop user",
            User::Developer => "developer",
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            User::Desktop => "desktop",
            User::Developer => "developer",
        }
    }

    /// Files of ranks 0, 1, 2 and 3, in permille (table 6).
    pub fn rank_permilles(self) -> [usize; 4] {
        match self {
            User::Desktop => [28, 59, 41, 872],
            User::Developer => [9, 22, 12, 957],
        }
    }

    /// What the paper saved, in percent: with selective, small and big chunks (table 6).
    pub fn saved_percents(self) -> [f64; 3] {
        match self {
            User::Desktop => [14.3, 16.1, 11.2],
            User::Developer => [31.1, 32.8, 17.2],
        }
    }
}
