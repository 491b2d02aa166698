//! The background threads of a volume, and the signals that wake them.

pub mod committer;
pub mod room;
pub mod signals;
pub mod steps;
pub mod threads;
