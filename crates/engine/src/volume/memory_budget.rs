//! How `memory=` is divided among the parts of an open volume.

use crate::settings::values::Settings;

/// How the memory that hints and skipped blocks leave is divided, in parts of 10.
pub struct Budget {
    /// Bytes for blocks that were read.
    pub read_cache: u64,
    /// Bytes for pages of the block table.
    pub table: u64,
    /// Bytes for shards of maps.
    pub shards: u64,
    /// Bytes for the sorted state.
    pub records: u64,
    /// Bytes of changes at which a checkpoint is wanted.
    pub dirty: u64,
    /// Bytes for policies of files.
    pub policies: u64,
    /// Bytes for how files are read.
    pub read_patterns: u64,
    /// Buffers of 1 MiB.
    pub buffers: usize,
}

impl Budget {
    /// The division of so much memory.
    pub fn of(memory_bytes_max: u64, settings: &Settings) -> Self {
        let rest = memory_bytes_max.saturating_sub(settings.hint_bytes + settings.skipped_bytes);
        let parts = |count: u64| rest / 10 * count;
        let budget = Self {
            read_cache: parts(2),
            table: parts(2),
            shards: parts(1),
            records: parts(2).max(2 << 20),
            dirty: parts(2).clamp(4 << 20, 64 << 20),
            policies: (memory_bytes_max / 512).clamp(64 << 10, 1 << 20),
            read_patterns: (memory_bytes_max / 512).clamp(64 << 10, 1 << 20),
            buffers: (memory_bytes_max / (8 << 20)).clamp(2, 16) as usize,
        };
        let caches = budget.read_cache + budget.table + budget.shards;
        assert!(caches <= rest, "{caches} of {rest} bytes go to caches");
        budget
    }
}
