//! What is known of files that decides how they are deduplicated: their policies, and how they are read.

use crate::policy::device_reads::DeviceReads;
use crate::policy::policies::Policies;
use crate::policy::read_pattern::ReadPatterns;

/// Facts about files and about the device they are read from.
pub struct PolicyFacts {
    /// Overrides and ranks of files.
    pub policies: Policies,
    /// How files are read.
    pub read_patterns: ReadPatterns,
    /// How the data area is read.
    pub device_reads: DeviceReads,
}

impl PolicyFacts {
    /// Nothing known yet; both bounds are bytes of memory.
    pub fn new(policy_bytes_max: u64, read_pattern_bytes_max: u64) -> Self {
        Self {
            policies: Policies::new(policy_bytes_max),
            read_patterns: ReadPatterns::new(read_pattern_bytes_max),
            device_reads: DeviceReads::default(),
        }
    }
}
