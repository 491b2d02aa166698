//! How files are used: reads and writes, observed for ranking.

pub mod monitor;
pub mod noted;
pub mod positions;
pub mod publisher;
pub mod rank_clock;
pub mod rewrite;
pub mod state;
