//! The I/O monitor: observes reads and writes of files, for ranking.

pub mod monitor;
pub mod noted;
pub mod positions;
pub mod publisher;
pub mod rank_clock;
pub mod rewrite;
pub mod state;
