//! The daemon of a mounted volume: its life, answers to commands, history, log, metrics, and messages to systemd.

pub mod history;
pub mod logging;
pub mod memory_budget;
pub mod metrics_endpoint;
pub mod requests;
pub mod serve;
pub mod start;
pub mod systemd;
pub mod task;
pub mod trees;
