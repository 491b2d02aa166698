//! The daemon of a mounted volume: what it serves, where it logs, what it tells systemd.

pub mod logging;
pub mod serve;
pub mod systemd;
