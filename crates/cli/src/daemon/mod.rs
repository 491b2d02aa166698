//! The daemon of a mounted volume: what it serves, what it answers to commands, the history it keeps, where it logs, what it tells systemd.

pub mod history;
pub mod logging;
pub mod memory_budget;
pub mod metrics_endpoint;
pub mod requests;
pub mod serve;
pub mod systemd;
pub mod task;
