//! The background threads of a volume.

pub mod committer;
pub mod threads;
