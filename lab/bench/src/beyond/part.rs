//! The parts of the comparison, which can be measured one by one.

use clap::ValueEnum;

/// Measurements that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Single writes of 4 KiB with fdatasync, beside guarded writes of an object
    Synced,
    /// A large file without duplicates, written, beside rados bench
    Writes,
    /// The same, read cold, beside rados bench
    Reads,
    /// Writes with 25 and 75 % duplicates, beside what rados bench writes
    Duplicates,
    /// What equal data takes in objects and in a directory
    Savings,
    /// What names and blocks take in the cluster
    Names,
    /// What is left when everything is deleted
    Deleted,
    /// How long a mount takes after a crash
    Recovery,
    /// More data than one OSD's device holds
    Larger,
}
