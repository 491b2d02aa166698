//! The facts that decide how files are deduplicated: their policies, how they are read, and how the device is.

use oncefs_dedup::{FilePolicy, ReadPattern};

use crate::MapId;
use crate::policy::device_reads::{Change, DeviceReads};
use crate::policy::policies::{Policies, Ticket};
use crate::policy::read_pattern::{Number, ReadPatterns, Seen};
use crate::stats::counters::DeviceReport;

/// Facts about files and about the device they are read from.
pub struct PolicyFacts {
    /// Overrides and ranks of files.
    policies: Policies,
    /// How files are read.
    read_patterns: ReadPatterns,
    /// How the data area is read.
    device_reads: DeviceReads,
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

    /// The policy of a map's file. An error: its record is to be read, and passed on with this ticket.
    pub fn file_policy(&self, map: MapId) -> Result<FilePolicy, Ticket> {
        self.policies.get(map)
    }

    /// A record was read: its policy is known from now on, unless another one was published meanwhile.
    pub fn note_read_policy(&self, map: MapId, policy: FilePolicy, ticket: Ticket) {
        self.policies.enter(map, policy, ticket);
    }

    /// A policy becomes visible. The caller holds the publish lock, or no other thread knows the map yet.
    pub fn note_published_policy(&self, map: MapId, policy: FilePolicy) {
        self.policies.published(map, policy);
    }

    /// Keeps almost no policies in memory, so that their records are read.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn forget_policies(&mut self) {
        self.policies = Policies::new(0);
    }

    /// The shortest run worth sharing in a map whose policy sets none.
    pub fn automatic_run(&self, map: MapId) -> Number {
        self.read_patterns.run_blocks_min(map, self.seek_blocks())
    }

    /// The shortest run worth sharing in a map of which nothing is known.
    pub fn automatic_run_of_unknown(&self) -> u32 {
        let run_blocks_min = ReadPattern::default().run_blocks_min(self.seek_blocks(), None);
        debug_assert!(run_blocks_min > 0, "a run of {run_blocks_min} blocks");
        run_blocks_min
    }

    /// Learns of a read request. None: it went uncounted.
    pub fn note_read(&self, map: MapId, seen: Seen) -> Option<Number> {
        self.read_patterns.note(map, seen, self.seek_blocks())
    }

    /// The cost of a seek, in blocks.
    pub fn seek_blocks(&self) -> f64 {
        self.device_reads.seek_blocks()
    }

    /// Starts from the usual cost of a seek on such a device.
    pub fn expect_device(&self, is_rotational: Option<bool>) {
        self.device_reads.expect(is_rotational);
    }

    /// A request to the device for so many blocks serves a file.
    pub fn count_device_read(&self, blocks: u64) {
        self.device_reads.count(blocks);
    }

    /// Makes a request to the device, and learns from its time if it succeeds. Gives how the cost of a seek changed.
    pub fn timed_device_read<E>(
        &self,
        blocks: u64,
        request: impl FnOnce() -> Result<(), E>,
    ) -> Result<Option<Change>, E> {
        self.device_reads.timed(blocks, request)
    }

    /// How the device was read since the mount.
    pub fn device_report(&self) -> DeviceReport {
        self.device_reads.report()
    }
}
