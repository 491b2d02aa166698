//! The connection between commands and the daemon of a mounted volume: a Unix socket in the volume's directory.

pub mod answers;
pub mod client;
mod commands_under_way;
pub mod in_use;
pub mod protocol;
pub mod server;
pub mod target;
pub mod tree_work;
