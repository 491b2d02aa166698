//! The figures of a mounted volume: one table of all figures, and their output formats.
//!
//! `table` has a row for each figure (those of volumes in a cluster are in `cluster`). JSON, its schema, `--explain` and the metrics for Prometheus are made from it, so
//! a new row appears in all of them. `history` and `forecast` show the figures over time.

pub mod cluster;
pub mod explain;
pub mod figure;
pub mod forecast;
pub mod health;
pub mod history;
pub mod json;
pub mod metrics;
pub mod of_mount;
pub mod schema;
pub mod table;
pub mod volumes;
