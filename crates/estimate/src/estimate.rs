//! What comes of an estimate, as it is printed and as JSON. All numbers are numbers; percents are from 0 to 100.

use serde::Serialize;

/// What a volume would save.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// What was read.
    pub read: Read,
    /// Blocks that others have already.
    pub duplicates: Duplicates,
    /// Memory that is enough to know all contents, and then the runs of all blocks, bytes.
    pub exact_memory_bytes: u64,
    /// What is found while writing with less memory for hints, in percent of the blocks, by ascending memory. The last one
    /// is enough, if any of the sizes tried is.
    pub hint_memory: Vec<HintMemory>,
    /// Runs of duplicates by their length.
    pub run_lengths: Vec<RunClass>,
    /// Blocks in whose files runs were followed: all but zeros, as long as every content was in memory.
    pub run_blocks: u64,
    /// Files with at least one duplicate.
    pub files_with_duplicates: u64,
    /// How few files hold how many duplicates.
    pub file_shares: Vec<FilesShare>,
    /// What compression would save in a later version.
    pub compression: Vec<Compressed>,
    /// Contents that were compressed for that.
    pub compressed_contents: u64,
}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Read {
    /// Files, or devices.
    pub files: u64,
    /// Blocks of 4096 bytes that would be stored without deduplication: without zeros, last blocks as whole ones.
    pub blocks: u64,
    /// Blocks of zeros and holes, which take no place.
    pub zero_blocks: u64,
}

/// Blocks that others have already.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Duplicates {
    /// How many.
    pub blocks: u64,
    /// In percent of the blocks.
    pub percent: f64,
    /// The error at most in 95 of 100 cases, percentage points. 0: the number is exact.
    pub error_points: f64,
    /// One content in so many was kept in memory in the end.
    pub sample: u32,
}

/// What one rule finds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Saved, in percent of the blocks; at most, if not all runs were followed.
    pub percent: f64,
    /// The least and the most by the choice of hints, where hints are a sample.
    pub percent_min: f64,
    /// See `percent_min`.
    pub percent_max: f64,
    /// Saved if hints named every content, in percent of the blocks.
    pub percent_all_hints: f64,
    /// Whether runs of all blocks were followed. Otherwise the limit of the rule is left out.
    pub is_of_all_blocks: bool,
}

/// What a profile would save.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileSaving {
    /// The profile's name.
    pub profile: String,
    /// What it shares, in words.
    pub limit: String,
    /// What is saved, bytes.
    pub saved_bytes: u64,
    /// The same as a share.
    #[serde(flatten)]
    pub found: Found,
}

/// What is found with so much memory for hints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HintMemory {
    /// The memory.
    pub bytes: u64,
    /// What is found, in percent of the blocks.
    pub found_percent: f64,
}

/// Runs of similar length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunClass {
    /// The shortest.
    pub blocks_min: u64,
    /// The longest; none: there is no bound.
    pub blocks_max: Option<u64>,
    /// How many runs.
    pub runs: u64,
    /// How many blocks they have.
    pub blocks: u64,
    /// The same in percent of all duplicates.
    pub percent_of_duplicates: f64,
}

/// How few files hold how many duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FilesShare {
    /// The share of all duplicates.
    pub duplicates_percent: u32,
    /// The fewest files that hold them.
    pub files: u64,
    /// The same in percent of all files.
    pub files_percent: f64,
}

/// What compression would save.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compressed {
    /// `lz4`, or `zstd:` with its level.
    pub method: String,
    /// Saved in percent of what deduplication leaves.
    pub percent_of_stored: f64,
    /// The error of that at most in 95 of 100 cases, percentage points.
    pub error_points: f64,
    /// Saved by both together, in percent of the blocks.
    pub saved_with_dedup_percent: f64,
}
