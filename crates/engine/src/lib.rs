//! Blocks: sharing, placement, durability. Knows no names, no inodes, no FUSE.
//!
//! The modules in the order of a block's life (`docs/life-of-a-block.md`):
//! `write` holds the control flow of a write, `read` of a read, `commit` of durability.

mod store;

mod batch;
mod checkpoint;
mod commit;
mod confirm;
mod hash;
mod lookup;
mod publish;
mod punch;
mod range;
mod read;
mod reclaim;
mod space;
mod write;

mod allocator;
mod cache;
mod core;
mod group;
mod pins;
mod records;
mod shards;
mod staging;
mod state;
mod table;

mod check;
mod recover;
mod scan;

mod ballast;
mod buffer;
pub mod device;
pub mod format;
pub mod kv;
mod log;
mod volume;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod stress_tests;

mod error;
mod signals;
mod stats;
mod threads;

pub use check::CheckReport;
pub use error::{Error, Result};
pub use oncefs_dedup::{BLOCK_BYTES, Blocks, Fingerprint, Lbn, Pbn, Tag};
pub use stats::{CacheReport, Counters, Histogram, Report, Stage, StageReport};
pub use store::{Change, DataPlace, FingerprintMode, MapId, OpenOptions, Profile, ReadBuf, Store, Totals, VolumeSpec};
