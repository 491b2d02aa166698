//! The papers' ideas as pure code: values in, decisions out.
//!
//! Owns what oncefs knows about equal content: the vocabulary of blocks, the hint store, the run detector, the ranks of
//! files, the controllers. Knows no files, threads, clocks, RocksDB or FUSE: its callers carry the decisions out.
//!
//! | module | source | carried out by |
//! |---|---|---|
//! | `hints`, `disk_level` | SmartDedup, section 3.2 | engine `hints/` |
//! | `single_hints` | iDedup, section 4.1 | engine `hints/` |
//! | `extend`, `succession` | oncefs | engine `write/extension.rs` |
//! | `detect` | iDedup, sections 3.4 and 4.2 | engine `write/decide.rs`, `worker/merge_target.rs` |
//! | `runs_within_budget` | oncefs | engine `write/decide.rs`, `worker/merge_target.rs` |
//! | `budget`, `piece_cost`, `read_pattern` | what iDedup leaves open, sections 3.4.3 and 5.4 | engine `policy/` |
//! | `inline_admission`, `load_limit`, `energy` | SmartDedup, sections 3.4 and 4.4; fingerprints oncefs | engine `write/`, `worker/` |
//! | `skipped` | SmartDedup, section 3.3 | engine `worker/` |
//! | `compression_pace` | oncefs | engine `write/in_line_compression.rs` |
//! | `pace`, `schedule` | SmartDedup, section 3.4 | engine `worker/work_loop.rs` |
//! | `defrag_plan` | oncefs | engine `layout/defrag.rs` |
//! | `device_claim` | oncefs | engine `volume/device_claims.rs` |
//! | `usage` | Selective, section 4.2.1 | fs `usage/` |
//! | `rank_rule`, `rank_queues` | Selective, sections 4.2.1 and 4.2.2 | fs `ranking/` |
//! | `file_policy` | Selective, section 4, and oncefs | engine `policy/effective.rs` |

mod block;
mod budget;
mod compression_pace;
mod defrag_plan;
mod detect;
mod device_claim;
mod disk_level;
mod energy;
mod extend;
mod file_policy;
mod hints;
mod inline_admission;
mod load_limit;
mod pace;
mod piece_cost;
// The random generator of all tests of the workspace, and their counts, as source files: this crate depends on no crate
// of the workspace, not even in its tests.
#[cfg(test)]
#[path = "../../toolbox/src/counts.rs"]
mod counts;
mod out_of_range;
#[cfg(test)]
#[path = "../../toolbox/src/random.rs"]
mod random;
mod rank_queues;
mod rank_rule;
mod read_pattern;
mod runs_within_budget;
mod single_hints;
mod skipped;
mod succession;
mod usage;
mod worker_hours;

pub use block::{BLOCK_BYTES, Blocks, Fingerprint, Lbn, Pbn, Tag};
pub use budget::{FilePieces, PieceCost, PieceCounter, Slowdown};
pub use compression_pace::{CompressNow, CompressionPace};
pub use defrag_plan::{DefragPlan, DefragRule, FileRun, RunRange, plan_defrag};
pub use detect::{Candidates, DecidedRun, Decision, RunRule, detect, runs_of};
pub use device_claim::DeviceClaim;
pub use disk_level::{Adoption, DiskLevel, HintPage, HintPages, LookedUp, MemoryPages, Merged, PageNo, Prefix, Swept};
pub use energy::{EnergyRule, Supply};
pub use extend::{EXTENDED_MAX, Extension};
pub use file_policy::{
    BIG_RUN_BLOCKS, Compress, EffectivePolicy, FilePolicy, InvalidCompress, InvalidOverride, MountPolicy,
    PolicyOverride, Ranks, ShareLimit, effective_compress, effective_policy,
};
pub use hints::{
    Eviction, HINT_PBN_BITS, HOLDERS_MAX, Hint, HintOptions, HintStore, Inserted, PREFIX_BITS_MAX, PREFIX_BITS_MIN,
    SINGLE_HINT_BYTES, Sample, TAG_BITS_KEPT,
};
pub use inline_admission::{Admission, DuplicateShare, Fingerprinting, Rule as AdmissionRule, WritePace};
pub use load_limit::LoadLimit;
pub use out_of_range::RangeError;
pub use pace::{BatchSize, Conditions, Mode as PaceMode, Pace, PaceRule, Progress, Turn, Why};
pub use piece_cost::{PieceCostEstimate, ReadTime};
pub use rank_queues::{AtTail, QueuePlace, look_at};
pub use rank_rule::RankRule;
pub use read_pattern::ReadPattern;
pub use runs_within_budget::{Allowance, Within, detect_within};
pub use skipped::{Skipped, SkippedBuffer, Work};
pub use succession::Succession;
pub use usage::{Moment, Rank, ReadPosition, Reads, Usage};
pub use worker_hours::{InvalidSchedule, Schedule, WeekMinute};
