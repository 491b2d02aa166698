//! The figures of a mounted volume: one table of what there is, and the forms it is shown in.
//!
//! `table` has a row for each figure. JSON, its schema, `--explain` and the metrics for Prometheus are made from it, so a
//! new row is in all of them. `history` and `forecast` say how they change.

pub mod explain;
pub mod figure;
pub mod forecast;
pub mod health;
pub mod history;
pub mod json;
pub mod metrics;
pub mod schema;
pub mod snapshot;
pub mod table;
pub mod volumes;
