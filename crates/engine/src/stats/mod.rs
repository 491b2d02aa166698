//! Counters, histograms, the report made from them, and its history.

pub mod cluster;
pub mod counters;
pub mod request_timer;
pub mod thinning;
