//! Blocks: sharing, placement, durability. Knows no names, no inodes, no FUSE.
//!
//! The modules in the order of a block's life (`docs/life-of-a-block.md`):
//! `write` holds the control flow of a write, `read` of a read, `commit` of durability.

mod open;
mod store;

mod batch;
mod checkpoint;
mod choose;
mod commit;
mod confirm;
mod cut;
mod decide;
mod gather;
mod hash;
mod lookup;
mod publish;
mod punch;
mod range;
mod read;
mod reclaim;
mod relayout;
mod remap;
mod revisit;
mod skip;
mod space;
mod streams;
mod write;

mod allocator;
mod bad;
mod cache;
mod core;
mod device_reads;
mod group;
mod guard;
mod hints;
mod hold;
mod pins;
mod policies;
mod read_pattern;
mod records;
mod shards;
mod staging;
mod state;
mod sync;
mod table;

mod chore;
mod foreground;
mod load;
mod local_time;
mod profile;
mod rank_settings;
mod ranking;
mod run_rule;
pub mod settings;
mod treatment;
mod worker;

mod audit;
mod check;
mod copies;
mod explain;
mod extension;
mod layout;
mod mend;
mod places;
mod recover;
mod referrers;
mod repair;
mod scan;
mod scrub;
mod sort;

mod ballast;
mod buffer;
pub mod device;
pub mod format;
mod hint_file;
pub mod kv;
mod log;
mod volume;

// Under `schedules` every lock asks the scheduler, so tests with threads of their own cannot run.
#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod authority_tests;
#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod crash_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod fixture;
#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod race_tests;
#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod relayout_tests;
#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod revisit_tests;
#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod run_tests;
#[cfg(test)]
#[cfg(feature = "schedules")]
mod schedule_tests;
#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod scrub_tests;
#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod stress_tests;

mod error;
mod report;
mod signals;
mod stats;
mod threads;

pub use ballast::Ballast;
pub use check::fault::{Fault, Remedy, Sum};
pub use check::{CheckReport, Phase};
pub use chore::Chore;
pub use error::{Error, Result};
pub use explain::{Equal, Explained, ExplainedRun, What, push_run};
pub use format::rot::ScrubState;
pub use hold::Hold;
pub use layout::{FileLayout, LayoutCursor, LayoutPortion, OpenRun, RunClass};
pub use load::DeviceLoad;
pub use oncefs_dedup::{
    AtTail, BIG_RUN_BLOCKS, BLOCK_BYTES, Blocks, FilePolicy, Fingerprint, Lbn, Moment, Pbn, QueuePlace, Rank, RankRule,
    ReadPosition, Reads, Tag, Treatment, UnknownWish, Usage, Wish, look_at,
};
pub use open::Medium;
pub use places::{BadBlock, BadPlace};
pub use profile::Profile;
pub use ranking::RankTurn;
pub use referrers::{MapCursor, Referrer, Referrers};
pub use relayout::{ExtentsLeft, RelayoutOptions, RelayoutOutcome};
pub use repair::Repaired;
pub use scrub::{ScrubCommand, ScrubStatus};
pub use sort::{Sorted, Sorter, temporary_dir};
pub use stats::{CacheReport, Counters, DeviceReport, Histogram, RankReport, Report, Sizes, Stage, StageReport};
pub use store::{Change, DataPlace, MapId, OpenOptions, ReadBuf, Store, Totals, VolumeSpec};
pub use worker::{DedupCommand, DedupStatus};
