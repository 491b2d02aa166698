//! Counters, histograms and the report made of them.

pub mod counters;
pub mod report;
