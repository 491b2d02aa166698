//! The facts that decide how files are deduplicated: their policies, their read patterns, and the device's speed. The
//! policies of recently used files are kept in bounded memory and are always current.
//!
//! Invariants: (1) the policy known here of a map is that of its newest publication; (2) the memory is bounded: the
//! least recently used ones leave. For (1), a publication updates the policy and counts the change under the publish
//! lock, which also makes its record visible. A policy read from a record enters only if no change was counted since
//! before the read.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use oncefs_dedup::FilePolicy;

use crate::MapId;
use crate::policy::accounts::Accounts;
use crate::policy::device_reads::DeviceReads;
use crate::policy::read_around::ReadAround;
use crate::policy::read_pattern::ReadPatterns;
use crate::policy::recent_maps::{PARTS, RecentMaps, part_of};
use crate::sync::{AtomicU64, LockRank, Mutex};

struct Part {
    known: RecentMaps<FilePolicy>,
    /// Counts publications of policies of maps in this part.
    changes: u64,
}

/// Taken before a record is read whose policy will be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// The policies of recently used files.
pub struct Policies {
    parts: Vec<Mutex<Part>>,
}

impl Policies {
    /// An empty store. It has room for as many policies as fit into this many bytes, and for at least a few in each
    /// part.
    pub fn new(bytes_max: u64) -> Self {
        let part = || Part { known: RecentMaps::of_part(bytes_max), changes: 0 };
        Self { parts: (0..PARTS).map(|_| Mutex::new(LockRank::Leaf, part())).collect() }
    }

    /// The policy of a file. On an error, read its record and enter it with this ticket.
    pub fn get(&self, map: MapId) -> Result<FilePolicy, Ticket> {
        let mut part = self.parts[part_of(map)].lock();
        let ticket = Ticket(part.changes);
        part.known.get(map).copied().ok_or(ticket)
    }

    /// Takes in a policy that was read, unless another was published meanwhile.
    pub fn enter(&self, map: MapId, policy: FilePolicy, ticket: Ticket) {
        let mut part = self.parts[part_of(map)].lock();
        if Ticket(part.changes) == ticket {
            *part.known.get_or_default(map) = policy;
        }
    }

    /// Learns that a publication gives a file this policy. The caller holds the publish lock, or no other thread knows
    /// the map yet.
    pub fn published(&self, map: MapId, policy: FilePolicy) {
        let mut part = self.parts[part_of(map)].lock();
        part.changes += 1;
        *part.known.get_or_default(map) = policy;
    }
}

/// Facts about files and about the device that holds them.
pub struct PolicyFacts {
    /// Overrides and ranks of files.
    policies: Policies,
    /// How files are read.
    read_patterns: ReadPatterns,
    /// How much files may still share.
    accounts: Accounts,
    /// How the data area is read.
    device_reads: DeviceReads,
    /// Whether reading around small files is worth it.
    read_around: ReadAround,
    /// When a fall of the piece cost last started a full pass.
    passed: Mutex<Option<Instant>>,
    /// Counts changes that let files be compressed.
    compression_allowed: AtomicU64,
}

/// Shortest time between full passes for a fall of the piece cost. The next pass finds what a fall in between allows.
const PASS_EVERY: Duration = Duration::from_secs(6 * 3600);

impl PolicyFacts {
    /// No facts yet, and the reads of the device. The bounds are bytes of memory.
    pub fn new(policy_bytes_max: u64, read_pattern_bytes_max: u64, device_reads: DeviceReads) -> Self {
        Self {
            policies: Policies::new(policy_bytes_max),
            read_patterns: ReadPatterns::new(read_pattern_bytes_max / 2),
            accounts: Accounts::new(read_pattern_bytes_max / 2),
            device_reads,
            read_around: ReadAround::default(),
            passed: Mutex::default(),
            compression_allowed: AtomicU64::new(0),
        }
    }

    /// Whether a fall of the piece cost may start a full pass at `now`. If so, it counts as started.
    pub fn begin_pass_for_cost(&self, now: Instant) -> bool {
        let mut passed = self.passed.lock();
        let may = passed.is_none_or(|passed| now.saturating_duration_since(passed) >= PASS_EVERY);
        if may {
            *passed = Some(now);
        }
        may
    }

    /// Learns that files may be compressed that might not before.
    pub fn note_compression_allowed(&self) {
        self.compression_allowed.fetch_add(1, Relaxed);
    }

    /// A number that rises whenever files may be compressed that might not before.
    pub fn compression_allowed(&self) -> u64 {
        self.compression_allowed.load(Relaxed)
    }

    /// The policy of a map's file. On an error, read its record and pass it on with this ticket.
    pub fn file_policy(&self, map: MapId) -> Result<FilePolicy, Ticket> {
        self.policies.get(map)
    }

    /// Takes in the policy of a record that was read, unless another was published meanwhile.
    pub fn note_read_policy(&self, map: MapId, policy: FilePolicy, ticket: Ticket) {
        self.policies.enter(map, policy, ticket);
    }

    /// Learns that a policy becomes visible. The caller holds the publish lock, or no other thread knows the map yet.
    pub fn note_published_policy(&self, map: MapId, policy: FilePolicy) {
        self.policies.published(map, policy);
    }

    /// Keeps almost no policies in memory, so that their records are read.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn forget_policies(&self) {
        self.policies.parts.iter().for_each(|part| part.lock().known = RecentMaps::of_part(0));
    }

    /// Whether a map is read at random.
    pub fn is_read_at_random(&self, map: MapId) -> bool {
        self.read_patterns.is_random(map)
    }

    /// Learns that a request read this many blocks, starting at `first`. True: the map turned out to be read at random.
    /// None: the request was not counted.
    pub fn note_read(&self, map: MapId, first: u64, blocks: u32) -> Option<bool> {
        self.read_patterns.note(map, first, blocks)
    }

    /// How much files may still share.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// How the data area is read, and the cost of one more piece to a file's readers.
    pub fn device_reads(&self) -> &DeviceReads {
        &self.device_reads
    }

    /// Whether reading around small files is worth it.
    pub fn read_around(&self) -> &ReadAround {
        &self.read_around
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use oncefs_dedup::PolicyOverride;

    use super::*;
    use crate::policy::recent_maps::Place;

    const BYTES: u64 = 64 << 10;

    fn policy_override(blocks: u32) -> FilePolicy {
        FilePolicy { policy_override: Some(PolicyOverride::Run(blocks)), ..FilePolicy::default() }
    }

    fn read(policies: &Policies, map: u64, policy: FilePolicy) {
        let ticket = policies.get(MapId(map)).unwrap_err();
        policies.enter(MapId(map), policy, ticket);
    }

    #[test]
    fn what_was_read_or_published_is_known() {
        let policies = Policies::new(BYTES);
        read(&policies, 1, policy_override(3));
        policies.published(MapId(2), policy_override(4));
        assert_eq!((policies.get(MapId(1)), policies.get(MapId(2))), (Ok(policy_override(3)), Ok(policy_override(4))));
        policies.published(MapId(1), policy_override(5));
        assert_eq!(policies.get(MapId(1)), Ok(policy_override(5)));
        assert!(policies.get(MapId(0)).is_err(), "a free place is no map");
    }

    #[test]
    fn what_was_read_before_a_publication_does_not_enter_after_it() {
        let policies = Policies::new(BYTES);
        let ticket = policies.get(MapId(1)).unwrap_err();
        policies.published(MapId(1), policy_override(9));
        // Then it is evicted, so that only the counter tells.
        let of_its_part = (2..).filter(|map| part_of(MapId(*map)) == part_of(MapId(1)));
        of_its_part.take(4_000).for_each(|map| policies.published(MapId(map), policy_override(1)));
        assert!(policies.get(MapId(1)).is_err());
        policies.enter(MapId(1), policy_override(3), ticket);
        assert!(policies.get(MapId(1)).is_err());
    }

    #[test]
    fn memory_is_bounded_and_those_asked_for_least_lately_leave() {
        let policies = Policies::new(BYTES);
        let places: usize = policies.parts.iter().map(|part| part.lock().known.places()).sum();
        assert!(places * size_of::<Place<FilePolicy>>() <= BYTES as usize && places >= 1_000, "{places} places");
        for map in 1..=50_000 {
            read(&policies, map, policy_override(1 + map as u32 % 256));
            policies.get(MapId(1)).unwrap();
        }
        let known: Vec<u64> = (1..=50_000).filter(|map| policies.get(MapId(*map)).is_ok()).collect();
        assert!(known.len() <= places && known.len() >= places / 2, "{} of {places}", known.len());
        assert!(known.iter().all(|map| policies.get(MapId(*map)) == Ok(policy_override(1 + *map as u32 % 256))));
    }
}
