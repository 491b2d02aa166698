//! The designs that are compared: oncefs, and baselines from the literature.

mod caftl;
mod dmdedup;
mod full;
mod inline;
mod lru;
mod none;
mod oncefs;

use crate::trace::Write;

pub use caftl::{Caftl, CaftlOptions};
pub use dmdedup::{DmdedupTree, dmdedup_in_memory};
pub use full::Full;
pub use inline::Inline;
pub use lru::{FINGERPRINT_BYTES, LruIndex};
pub use none::NoIndex;
pub use oncefs::{Oncefs, OncefsOptions, with_skipped_buffer};

/// A dedup design that a trace is replayed through.
pub trait Design {
    /// Takes a write.
    fn write(&mut self, write: &Write);
    /// There is time for work in the background, as much as it takes.
    fn idle(&mut self);
    /// What came of it so far.
    fn outcome(&self) -> Outcome;
    /// Asserts that its own books balance.
    fn check(&self);
}

/// What a design found, and what that took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Blocks found to be stored already as they were written.
    pub found_inline: u64,
    /// Blocks found later, and released.
    pub found_out_of_line: u64,
    /// Memory for finding duplicates at its largest, bytes.
    pub memory_bytes: u64,
    /// Index entries that this memory holds now.
    pub entries: u64,
    /// Pages of 4096 bytes read for the index on disk.
    pub disk_reads: u64,
    /// Pages of 4096 bytes written for the index on disk.
    pub disk_writes: u64,
    /// Of these reads and writes: those to move entries from memory to the disk.
    pub eviction_ios: u64,
    /// Index entries that left memory for the disk.
    pub demoted: u64,
    /// Hints that the block table refused.
    pub refused: u64,
    /// Blocks in use at the end.
    pub stored: u64,
    /// Extents of all files at the end.
    pub extents: u64,
}

impl Outcome {
    /// Found in all.
    pub fn found(&self) -> u64 {
        self.found_inline + self.found_out_of_line
    }

    /// Pages read and written.
    pub fn disk_ios(&self) -> u64 {
        self.disk_reads + self.disk_writes
    }

    /// Bytes written to the disk's index per entry demoted to it; 0 if none was.
    pub fn bytes_per_demoted(&self) -> f64 {
        if self.demoted == 0 { 0.0 } else { self.disk_writes as f64 * 4096.0 / self.demoted as f64 }
    }
}
