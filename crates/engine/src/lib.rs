//! Blocks: sharing, placement, durability. Knows no names, no inodes, no FUSE.
//!
//! The modules in the order of a block's life (`docs/life-of-a-block.md`):
//! `write` holds the control flow of a write, `read` of a read, `commit` of durability.

mod store;

mod batch;
mod hash;
mod write;
mod confirm;
mod space;
mod publish;
mod range;
mod commit;
mod checkpoint;
mod reclaim;
mod punch;
mod read;
mod lookup;

mod core;
mod state;
mod group;
mod records;
mod shards;
mod table;
mod staging;
mod allocator;
mod pins;
mod cache;

mod recover;
mod scan;
mod check;

mod log;
pub mod device;
pub mod kv;
pub mod format;
mod volume;
mod ballast;
mod buffer;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod stress_tests;

mod threads;
mod signals;
mod stats;
mod error;

pub use check::CheckReport;
pub use error::{Error, Result};
pub use oncefs_dedup::{BLOCK_BYTES, Blocks, Fingerprint, Lbn, Pbn, Tag};
pub use stats::{CacheReport, Counters, Histogram, Report, Stage, StageReport};
pub use store::{
    Change, DataPlace, FingerprintMode, MapId, OpenOptions, Profile, ReadBuf, Store, Totals, VolumeSpec,
};
