//! The threads beside a volume's callers, and the signals that wake them.

pub mod committer;
pub mod room;
pub mod signals;
pub mod steps;
pub mod threads;
