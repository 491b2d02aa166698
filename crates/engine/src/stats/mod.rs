//! Counters, histograms, the report made of them, and what is kept of it over time.

pub mod counters;
pub mod report;
pub mod thinning;
