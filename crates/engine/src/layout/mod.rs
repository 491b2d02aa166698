//! How files lie in the data area: shown, explained and defragmented.

pub mod comparison;
pub mod content_search;
pub mod defrag;
pub mod explain;
pub mod fragmentation;
pub mod referrers;
pub mod run_states;
