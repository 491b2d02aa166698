//! The volumes that workloads run on. None of them adapts to the machine or to time.

use oncefs_engine::{Blocks, Profile};
use oncefs_fs::NamePlaces;

use crate::live::Setup;

/// Every workload changes fewer leaves at a time.
pub const ONE_GROUP_LEAVES_MAX: u64 = 128;

/// The complete index in memory, no worker, fingerprints when a tag matches.
pub const ONE_LEVEL: Setup = Setup {
    name: "one-level",
    profile: Profile::Lrlfs,
    settings: &[
        ("inline", "all"),
        ("fingerprints", "lazy"),
        ("hint_memory", "256K"),
        ("replicate_refs_above", "1"),
        ("ranks", "on"),
    ],
    data: Blocks(1024),
    log_bytes: 1 << 20,
    names: None,
    gated_leaves_max: ONE_GROUP_LEAVES_MAX,
    has_short_work: true,
    is_nearly_full: false,
    object_bytes: None,
    record_keys_max: None,
    directed: &[],
};

/// Both levels of the hint store and a worker, every block fingerprinted, memory for few hints only.
pub const TWO_LEVELS: Setup = Setup {
    name: "two-levels",
    profile: Profile::Smartdedup,
    settings: &[
        ("inline", "all"),
        ("fingerprints", "eager"),
        ("hint_memory", "7K"),
        ("hint_prefix_bits", "0"),
        ("skipped_memory", "8K"),
        ("replicate_refs_above", "1"),
        ("ranks", "on"),
    ],
    data: Blocks(1024),
    log_bytes: 1 << 20,
    names: None,
    gated_leaves_max: ONE_GROUP_LEAVES_MAX,
    has_short_work: true,
    is_nearly_full: false,
    object_bytes: None,
    record_keys_max: None,
    directed: &[],
};

/// As one level, with a log that takes more changes than one batch of the sorted state.
pub const LONG_LOG: Setup = Setup {
    name: "long-log",
    log_bytes: 4 << 20,
    has_short_work: false,
    directed: &["records-in-batches"],
    ..ONE_LEVEL
};

/// As one level. A change of a range with more leaves than are published at a time is split into several groups.
pub const MANY_GROUPS: Setup = Setup {
    name: "many-groups",
    gated_leaves_max: 32,
    has_short_work: false,
    directed: &["range-in-pieces", "range-in-parts"],
    ..ONE_LEVEL
};

/// As one level. Only runs of four blocks and more are shared.
pub const RUNS: Setup = Setup {
    name: "runs",
    settings: &[
        ("inline", "all"),
        ("fingerprints", "lazy"),
        ("hint_memory", "256K"),
        ("run_blocks_min", "4"),
        ("ranks", "on"),
    ],
    has_short_work: false,
    directed: &["open-runs", "ride-in-the-log", "in-line"],
    ..ONE_LEVEL
};

/// As one level. Files share within a small budget, and the worker uses the budget that in-line left.
pub const BUDGET: Setup = Setup {
    name: "budget",
    settings: &[
        ("inline", "all"),
        ("fingerprints", "lazy"),
        ("hint_memory", "256K"),
        ("skipped_memory", "8K"),
        ("read_slowdown_percent_max", "10"),
        ("ranks", "on"),
    ],
    has_short_work: false,
    directed: &["open-runs", "in-line"],
    ..ONE_LEVEL
};

/// As one level, with files ranked within minutes.
pub const RANKS: Setup = Setup {
    name: "ranks",
    settings: &[
        ("inline", "all"),
        ("fingerprints", "lazy"),
        ("hint_memory", "256K"),
        ("skipped_memory", "8K"),
        ("ranks", "on"),
        ("rank_hot_seconds_max", "1000"),
        ("rank_evaluation_seconds_min", "100"),
        ("rank_evaluation_reads_min", "8"),
    ],
    has_short_work: false,
    directed: &["ranks", "reclaim-in-portions", "leave"],
    ..ONE_LEVEL
};

/// As one level, with hardly more room than the base volume takes, so most requests for room are refused.
pub const NEARLY_FULL: Setup = Setup {
    name: "nearly-full",
    data: Blocks(192),
    has_short_work: false,
    is_nearly_full: true,
    directed: &["full", "full-of-promises", "full-of-clones"],
    ..ONE_LEVEL
};

/// As one level. Names meet, because a directory has seven places of one name each.
pub const CROWDED_NAMES: Setup = Setup {
    name: "crowded-names",
    names: Some(NamePlaces { bits: 3, names_max: 1 }),
    has_short_work: false,
    directed: &["crowded-names"],
    ..ONE_LEVEL
};

/// As one level, with a worker that compresses.
pub const COMPRESSED: Setup = Setup {
    name: "compressed",
    settings: &[
        ("inline", "all"),
        ("fingerprints", "lazy"),
        ("hint_memory", "256K"),
        ("compress", "later"),
        ("compress_method", "lz4"),
        ("compress_method_later", "lz4"),
        ("ranks", "on"),
    ],
    has_short_work: false,
    directed: &["compress", "expand", "repack"],
    ..ONE_LEVEL
};

/// As one level with a worker that compresses, in objects of a cluster: of four pages, so that many requests cross
/// them.
pub const OBJECTS: Setup = Setup {
    name: "objects",
    object_bytes: Some(16 << 10),
    directed: &["in-line", "compress", "grow", "reuse", "leave"],
    ..COMPRESSED
};

/// As in objects, and the records too: few in each object, so that ranges are split while a checkpoint writes them, and a
/// checkpoint reaches many objects.
pub const RECORDS_IN_OBJECTS: Setup = Setup {
    name: "records-in-objects",
    record_keys_max: Some(12),
    directed: &["in-line", "compress", "grow", "reuse", "clone", "lazy-clone", "leave", "many-names"],
    ..OBJECTS
};

/// As compressed, and large writes are compressed at once.
pub const COMPRESSED_IN_LINE: Setup = Setup {
    name: "compressed-in-line",
    settings: &[
        ("inline", "all"),
        ("fingerprints", "lazy"),
        ("hint_memory", "256K"),
        ("compress", "inline"),
        ("compress_method", "lz4"),
        ("compress_method_later", "lz4"),
        ("ranks", "on"),
    ],
    directed: &["compress-in-line", "compress"],
    ..COMPRESSED
};

static ALL: [Setup; 13] = [
    ONE_LEVEL,
    TWO_LEVELS,
    LONG_LOG,
    MANY_GROUPS,
    RUNS,
    BUDGET,
    RANKS,
    NEARLY_FULL,
    CROWDED_NAMES,
    COMPRESSED,
    OBJECTS,
    RECORDS_IN_OBJECTS,
    COMPRESSED_IN_LINE,
];

/// All setups.
pub fn all() -> &'static [Setup] {
    &ALL
}

/// The setup of this name.
pub fn named(name: &str) -> Result<&'static Setup, String> {
    ALL.iter().find(|setup| setup.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|setup| setup.name).collect();
        format!("there is no setup '{name}'; there are: {}", names.join(", "))
    })
}
