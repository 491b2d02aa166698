//! The commands, each with its arguments. `command_line` calls them.

pub mod dedup;
pub mod defrag;
pub mod disk;
pub mod estimate;
pub mod explain;
pub mod fsck;
pub mod grow;
mod help;
pub mod list;
pub mod metrics;
pub mod mkfs;
pub mod mount;
pub mod pages;
pub mod policy;
pub mod receive;
pub mod report;
pub mod revive;
pub mod scrub;
pub mod send;
pub mod stats;
pub mod status;
pub mod sync;
pub mod top;
pub mod tune;
pub mod umount;
mod unknown_blocks;
