//! Blocks: sharing, placement, durability. Knows no names, no inodes, no FUSE.
//!
//! [`Store`] is the interface: an open volume with maps (the blocks of a file) and records (the caller's data about its
//! files). The modules follow a block's life (`docs/life-of-a-block.md`): `write` holds the control flow of a write,
//! `read` that of a read, `commit` that of durability.
//!
//! # Example
//!
//! A volume in memory, in which two maps get the same block. It is stored once:
//!
//! ```
//! use oncefs_engine::{BLOCK_BYTES, Blocks, Change, Backend, OpenOptions, Store};
//!
//! # fn main() -> oncefs_engine::Result<()> {
//! let data = Blocks(4096); // 16 MiB
//! let medium = Backend::in_memory(data);
//! Store::format_on(&medium, data)?;
//! let mut options = OpenOptions::new(32 << 20);
//! options.settings.push(("run_blocks_min".to_owned(), "1".to_owned())); // share single blocks too
//! let store = Store::open_on(medium, &options)?;
//!
//! let block = [7; BLOCK_BYTES];
//! let (one, other) = (store.new_map(), store.new_map());
//! let used = store.totals().used;
//! for map in [one, other] {
//!     store.write(map, 0, &block, |grown, change: &mut Change| {
//!         // Published and made durable together with the block.
//!         change.put(format!("blocks of {}", map.0).into_bytes(), grown.to_le_bytes().to_vec());
//!     })?;
//! }
//! store.commit()?;
//!
//! assert_eq!(&store.read(one, 0, BLOCK_BYTES)?[..], block);
//! assert_eq!(&store.read(other, 0, BLOCK_BYTES)?[..], block);
//! assert_eq!(store.get(format!("blocks of {}", other.0).as_bytes())?, Some(1_i64.to_le_bytes().to_vec()));
//! let totals = store.totals();
//! assert_eq!((totals.mapped, totals.used - used), (Blocks(2), Blocks(1)), "two references to one block");
//! # Ok(())
//! # }
//! ```

mod announcement;
mod error;
mod store;
pub mod sync;
mod types;

mod background;
mod backlog;
mod base;
mod commit;
mod damage;
pub mod device;
pub mod format;
mod fsck;
mod hash;
mod hints;
mod known_damage;
pub mod kv;
mod layout;
pub mod objects;
mod pace;
mod place;
mod policy;
mod read;
pub mod settings;
mod signals;
mod space;
mod state;
mod stats;
mod volume;
mod worker;
mod write;

#[cfg(test)]
mod tests;

pub use announcement::Announcement;
pub use commit::change_room::LogReservation;
pub use commit::log::CutLog;
pub use damage::affected_files::{BadBlock, BadPlace};
pub use error::{Error, Result};
pub use format::damage_records::ScrubState;
pub use format::head_record::HeadState;
pub use format::history::HistoryPoint;
pub use format::record::Totals;
pub use fsck::check::fault::{Fault, Remedy, Sum};
pub use fsck::check::{CheckReport, Phase};
pub use fsck::fix::Fixed;
pub use fsck::lost_content::PartWithHoles;
pub use fsck::sort::{Sorted, Sorter, temporary_dir};
pub use hash::{Hasher, TAG_SECRET_BYTES, is_zero, tag_with};
pub use known_damage::scrub_progress::{ScrubCommand, ScrubStatus};
pub use kv::{FilesFound, Salvaged};
pub use layout::comparison::{Compared, ComparedRun, ComparedState};
pub use layout::defrag::outcome::{DefragOptions, DefragOutcome, ExtentsLeft};
pub use layout::fragmentation::{FileLayout, LayoutCursor, LayoutPortion, OpenRun, RunClass};
pub use layout::referrers::{MapCursor, Referrer, Referrers};
pub use layout::run_states::{BudgetUse, Compressed, Equal, Explained, ExplainedRun, What, push_run};
pub use objects::held_lease::HeldLease;
pub use objects::lease::End as LeaseEnd;
pub use oncefs_dedup::{
    AtTail, BIG_RUN_BLOCKS, BLOCK_BYTES, Blocks, Compress, EffectivePolicy, FilePolicy, Fingerprint, InvalidCompress,
    InvalidOverride, Lbn, Moment, Pbn, PieceCost, PolicyOverride, QueuePlace, Rank, RankRule, ReadPosition, Reads,
    ShareLimit, Slowdown, Tag, Usage, look_at,
};
pub use oncefs_rados::Access as ObjectAccess;
pub use pace::load::DeviceLoad;
pub use read::steps::holds_blocks;
pub use settings::copies::Copies;
pub use settings::profile::Profile;
pub use settings::sharing::Sharing;
#[cfg(any(test, feature = "testing"))]
pub use signals::requests::Committer;
pub use space::ballast::Ballast;
pub use space::host::Host;
pub use stats::cluster::{ClusterReport, PoolReport};
pub use stats::counters::{
    COUNTER_MEANINGS, CacheReport, Counters, DeviceReport, Histogram, RankReport, Report, Sizes, Stage, StageReport,
};
pub use store::Store;
pub use store::history::History;
pub use types::{
    Change, DataPlace, MapId, OpenOptions, RankTurn, ReadBuf, UnknownBlocks, VolumeSpec, WhenHeld, WriteMode,
};
#[cfg(any(test, feature = "testing"))]
pub use volume::backend::TestHooks;
pub use volume::backend::{Backend, Hold};
pub use volume::cluster_superblock::{ClusterName, Localized};
pub use volume::head_watch::{HeadWatch, Heads};
pub use volume::seal::SealingKey;
#[cfg(any(test, feature = "testing"))]
pub use volume::steps::BackgroundStep;
pub use volume::unfinished::Unfinished;
pub use worker::status::{Conversion, Converted, DedupCommand, DedupStatus};
pub use write::publish::OnPublish;
