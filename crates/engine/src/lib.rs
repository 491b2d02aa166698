//! Blocks: sharing, placement, durability. Knows no names, no inodes, no FUSE.
//!
//! The modules in the order of a block's life (`docs/life-of-a-block.md`):
//! `write` holds the control flow of a write, `read` of a read, `commit` of durability.

mod core;
mod error;
mod store;
mod sync;
mod types;

mod background;
mod commit;
mod damage;
pub mod device;
pub mod format;
mod fsck;
mod hints;
pub mod kv;
mod layout;
mod policy;
mod read;
pub mod settings;
mod space;
mod state;
mod stats;
mod volume;
mod worker;
mod write;

#[cfg(test)]
mod tests;

pub use background::signals::Committer;
pub use background::steps::BackgroundStep;
pub use damage::affected_files::{BadBlock, BadPlace};
pub use damage::scrub_progress::{ScrubCommand, ScrubStatus};
pub use error::{Error, Result};
pub use format::record::Totals;
pub use format::rot::ScrubState;
pub use fsck::check::fault::{Fault, Remedy, Sum};
pub use fsck::check::{CheckReport, Phase};
pub use fsck::fix::Fixed;
pub use fsck::sort::{Sorted, Sorter, temporary_dir};
pub use layout::defrag::{DefragOptions, DefragOutcome, ExtentsLeft};
pub use layout::explanation::{Equal, Explained, ExplainedRun, What, push_run};
pub use layout::fragmentation::{FileLayout, LayoutCursor, LayoutPortion, OpenRun, RunClass};
pub use layout::referrers::{MapCursor, Referrer, Referrers};
pub use oncefs_dedup::{
    AtTail, BIG_RUN_BLOCKS, BLOCK_BYTES, Blocks, EffectivePolicy, FilePolicy, Fingerprint, InvalidOverride, Lbn,
    Moment, Pbn, PolicyOverride, QueuePlace, Rank, RankRule, ReadPosition, Reads, Tag, Usage, look_at,
};
pub use settings::profile::Profile;
pub use stats::counters::{
    CacheReport, Counters, DeviceReport, Histogram, RankReport, Report, Sizes, Stage, StageReport,
};
pub use store::Store;
pub use types::{Change, DataPlace, MapId, OpenOptions, ReadBuf, VolumeSpec};
pub use volume::ballast::Ballast;
pub use volume::medium::{Driver, Medium};
pub use worker::load::DeviceLoad;
pub use worker::rank_turn::RankTurn;
pub use worker::status::{DedupCommand, DedupStatus};
pub use write::on_publish::OnPublish;
