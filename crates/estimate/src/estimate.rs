//! The result of an estimate, for print and for JSON. All numbers are JSON numbers, and percents are from 0 to 100.

use serde::Serialize;

/// The savings of a volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The data that was read.
    pub read: Read,
    /// Blocks whose content another block already has.
    pub duplicates: Duplicates,
    /// Bytes of memory that are enough to know all contents, and then the runs of all blocks.
    pub exact_memory_bytes: u64,
    /// The duplicates found while writing with less memory for hints, in percent of the blocks, by ascending memory.
    /// The last size is enough, if any of the tried sizes is.
    pub hint_memory: Vec<HintMemory>,
    /// Runs of duplicates by their length.
    pub run_lengths: Vec<RunClass>,
    /// Blocks of files in which runs were followed: all except zeros, as long as every content was in memory.
    pub run_blocks: u64,
    /// Files with at least one duplicate.
    pub files_with_duplicates: u64,
    /// The smallest number of files that holds a share of the duplicates.
    pub file_shares: Vec<FilesShare>,
    /// The saving by compression in addition.
    pub compression: Vec<Compressed>,
    /// Contents compressed for this.
    pub compressed_contents: u64,
}

/// The data that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Read {
    /// Files, or devices.
    pub files: u64,
    /// Blocks of 4096 bytes that would be stored without deduplication: zeros do not count, and the last block of a
    /// file counts as a whole one.
    pub blocks: u64,
    /// Blocks of zeros and holes, which take no space.
    pub zero_blocks: u64,
}

/// Blocks whose content another block already has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Duplicates {
    /// The number of blocks.
    pub blocks: u64,
    /// In percent of the blocks.
    pub percent: f64,
    /// The largest error in 95 of 100 cases, in percentage points. 0: the number is exact.
    pub error_points: f64,
    /// In the end one content in this many was in memory.
    pub sample: u32,
}

/// The duplicates that one rule finds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Saved, in percent of the blocks. An upper bound if not all runs were followed.
    pub percent: f64,
    /// The smallest saving by the choice of hints, if hints are a sample.
    pub percent_min: f64,
    /// The largest saving by the choice of hints, if hints are a sample.
    pub percent_max: f64,
    /// Saved if hints name every content, in percent of the blocks.
    pub percent_all_hints: f64,
    /// Whether runs of all blocks were followed. Otherwise the limit of the rule is ignored.
    pub is_of_all_blocks: bool,
}

/// The saving with a profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileSaving {
    /// The profile's name.
    pub profile: String,
    /// A description of its rule for sharing.
    pub limit: String,
    /// The saving in bytes.
    pub saved_bytes: u64,
    /// The saving as a share.
    #[serde(flatten)]
    pub found: Found,
}

/// The duplicates found with a given memory for hints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HintMemory {
    /// The memory.
    pub bytes: u64,
    /// The duplicates found, in percent of the blocks.
    pub found_percent: f64,
}

/// Runs of similar length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunClass {
    /// The shortest.
    pub blocks_min: u64,
    /// The longest. None: there is no bound.
    pub blocks_max: Option<u64>,
    /// The number of runs.
    pub runs: u64,
    /// The number of their blocks.
    pub blocks: u64,
    /// Their blocks in percent of all duplicates.
    pub percent_of_duplicates: f64,
}

/// The smallest number of files that holds a share of the duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FilesShare {
    /// The share of all duplicates.
    pub duplicates_percent: u32,
    /// The fewest files that hold them.
    pub files: u64,
    /// The same in percent of all files.
    pub files_percent: f64,
}

/// The saving by compression.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compressed {
    /// `lz4`, or `zstd:` with its level.
    pub method: String,
    /// Saved, in percent of the blocks that deduplication leaves.
    pub percent_of_stored: f64,
    /// The largest error of it in 95 of 100 cases, in percentage points.
    pub error_points: f64,
    /// Saved by both together, in percent of the blocks.
    pub saved_with_dedup_percent: f64,
}
