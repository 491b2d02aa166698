//! The papers' ideas as pure code: values in, decisions out.
//!
//! Owns what oncefs knows about sameness: the vocabulary of blocks, the hint
//! store, the run detector, the ranks of files, the controllers. Knows no files, threads, clocks,
//! RocksDB or FUSE; whoever calls it carries the decisions out.

mod admission;
mod block;
mod detect;
mod disk_level;
mod energy;
mod extend;
mod file_policy;
mod fingerprinting;
mod hints;
mod layout;
mod load_limit;
mod pace;
// The generator of all tests of the workspace, as a source: this crate depends on none, in its tests neither.
#[cfg(test)]
#[path = "../../toolbox/src/random.rs"]
mod random;
mod ranges;
mod rank;
mod rank_queues;
mod sample;
mod schedule;
mod seek_cost;
mod single_hints;
mod skipped;
mod threshold;
mod usage;

pub use admission::{Admission, Rule as AdmissionRule};
pub use block::{BLOCK_BYTES, Blocks, Fingerprint, Lbn, Pbn, Tag};
pub use detect::{Candidates, DecidedRun, Decision, RunRule, detect, runs_of};
pub use disk_level::{Adoption, DiskLevel, HintPage, HintPages, LookedUp, MemoryPages, Merged, PageNo, Prefix, Swept};
pub use energy::{EnergyRule, Supply};
pub use extend::{EXTENDED_MAX, Extension};
pub use file_policy::{
    BIG_RUN_BLOCKS, EffectivePolicy, FilePolicy, InvalidOverride, MountPolicy, PolicyOverride, Ranks, effective_policy,
};
pub use fingerprinting::{DuplicateShare, Fingerprinting};
pub use hints::{
    Eviction, HINT_PBN_BITS, HOLDERS_MAX, Hint, HintOptions, HintStore, Inserted, PREFIX_BITS_MAX, PREFIX_BITS_MIN,
    SINGLE_HINT_BYTES, TAG_BITS_KEPT,
};
pub use layout::{LaidRun, LayoutPlan, LayoutRule, Stretch, plan_layout};
pub use load_limit::LoadLimit;
pub use pace::{BatchSize, Conditions, Mode as PaceMode, Pace, PaceRule, Progress, Turn, Why};
pub use ranges::RangeError;
pub use rank::RankRule;
pub use rank_queues::{AtTail, QueuePlace, look_at};
pub use sample::Sample;
pub use schedule::{NoSchedule, Schedule, WeekMinute};
pub use seek_cost::SeekCost;
pub use skipped::{Skipped, SkippedBuffer, Work};
pub use threshold::{Pattern, RUN_BLOCKS_MIN_MAX};
pub use usage::{Moment, Rank, ReadPosition, Reads, Usage};
