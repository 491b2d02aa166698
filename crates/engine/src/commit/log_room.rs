//! How much of the log a group may take, and the room in it that changes claim before they are published.
//!
//! The rule: a change claims the most that it can add to a group before it takes a lock that a commit needs, and holds
//! the claim until it is published. What the group has and what is claimed never exceeds what one record of the log
//! takes, so that no change of any kind, and no number of them at a time, makes a group that the log refuses.

use std::sync::atomic::Ordering::SeqCst;

use crate::format::group_bytes::GroupBytes;
use crate::sync::AtomicU64;

/// A group takes at most one part in so many of the log, with the data that rides in it.
pub const RECORD_SHARE: u64 = 8;
/// Publishers wait while a group is larger than one part in so many.
pub const GROUP_SHARE: u64 = 16;
/// Data that rides in the log, and a change of a range, take at most one part in so many.
const PART_SHARE: u64 = 32;
const _: () = assert!(RECORD_SHARE * 2 == GROUP_SHARE && GROUP_SHARE * 2 == PART_SHARE);

/// Staged data up to this size rides in the record, if the log is large enough: one write and one flush instead of two
/// of each.
const RIDING_BYTES_MAX: u64 = 128 << 10;
/// A change of at most this many shards (4.5 GiB of a file; the kernel asks for at most 4 GiB at a time) goes into one
/// group, if the log is large enough.
const GATED_SHARDS_MAX: u64 = 4608;
/// A range change is published in pieces of at most this many shards, so that the publish lock is held shortly and
/// memory stays bounded. The caller's records go with the last piece.
const PIECE_SHARDS_MAX: u64 = 64;

/// The smallest log that can be made. It takes any change of records.
pub const LOG_BYTES_MIN: u64 = 4 << 20;
const _: () = assert!(GroupBytes::RECORDS.0 <= LOG_BYTES_MIN / RECORD_SHARE - LOG_BYTES_MIN / PART_SHARE);

/// The bounds that follow from the log's size.
#[derive(Clone, Copy, Debug)]
pub struct GroupBounds {
    log_bytes: u64,
    /// A change of a range of more shards does not fit into one group.
    pub gated_shards_max: u64,
    /// Shards of a range that are published together.
    pub piece_shards: usize,
}

impl GroupBounds {
    /// The bounds for a log of so many bytes; of a damaged volume that may be any number. `gated_shards_max`: another number
    /// of shards than follows from them, for tests whose shards are nearly empty.
    pub fn of(log_bytes: u64, gated_shards_max: Option<u64>) -> Self {
        let largest = GroupBytes(log_bytes / PART_SHARE).shards();
        let gated_shards_max = gated_shards_max.unwrap_or(largest.clamp(2, GATED_SHARDS_MAX));
        Self { log_bytes, gated_shards_max, piece_shards: (gated_shards_max / 2).clamp(1, PIECE_SHARDS_MAX) as usize }
    }

    /// Publishers wait while the group is larger.
    pub fn group_bytes_max(&self) -> u64 {
        self.log_bytes / GROUP_SHARE
    }

    /// Staged data of at most so many bytes rides in the record.
    pub fn riding_bytes_max(&self) -> usize {
        RIDING_BYTES_MAX.min(self.log_bytes / PART_SHARE) as usize
    }

    /// What the group and all claims together never exceed.
    fn claimed_bytes_max(&self) -> u64 {
        self.log_bytes / RECORD_SHARE - self.log_bytes / PART_SHARE
    }

    /// What a change claims, in bytes: on a log smaller than any that can be made (tests) less, in proportion.
    pub fn claim_of(&self, bytes: GroupBytes) -> u64 {
        let scaled = if self.log_bytes < LOG_BYTES_MIN { bytes.0 * self.log_bytes / LOG_BYTES_MIN } else { bytes.0 };
        scaled.min(self.claimed_bytes_max())
    }
}

/// The room of the current group: what it has, and what is claimed.
pub struct LogRoom {
    bounds: GroupBounds,
    group: AtomicU64,
    claimed: AtomicU64,
    waiting: AtomicU64,
}

impl LogRoom {
    /// Of an empty group.
    pub fn new(bounds: GroupBounds) -> Self {
        Self { bounds, group: AtomicU64::new(0), claimed: AtomicU64::new(0), waiting: AtomicU64::new(0) }
    }

    /// The bounds that it keeps.
    pub fn bounds(&self) -> &GroupBounds {
        &self.bounds
    }

    /// Notes how many bytes the current group has. Under the publish lock.
    pub fn note_group(&self, bytes: u64) {
        self.group.store(bytes, SeqCst);
    }

    /// Claims are counted before the group is looked at, and given back after it has what was claimed for: between the
    /// two a change counts twice, never not at all.
    pub fn try_claim(&self, bytes: u64) -> bool {
        let claimed = self.claimed.fetch_add(bytes, SeqCst) + bytes;
        let fits = self.group.load(SeqCst) + claimed <= self.bounds.claimed_bytes_max();
        if !fits {
            self.claimed.fetch_sub(bytes, SeqCst);
        }
        fits
    }

    /// Counts a claim for which nothing makes room.
    pub fn claim_anyway(&self, bytes: u64) {
        self.claimed.fetch_add(bytes, SeqCst);
    }

    /// Gives a claim back. Whether somebody waits for it.
    pub fn give_back(&self, bytes: u64) -> bool {
        let claimed = self.claimed.fetch_sub(bytes, SeqCst);
        debug_assert!(claimed >= bytes, "{bytes} bytes of {claimed} claimed ones are given back");
        self.waiting.load(SeqCst) > 0
    }

    /// Says that somebody waits for claims to be given back, while `wait` runs.
    pub fn while_waiting(&self, wait: impl FnOnce()) {
        self.waiting.fetch_add(1, SeqCst);
        wait();
        self.waiting.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_the_size_of_the_log() {
        for log_bytes in [LOG_BYTES_MIN, 64 << 20, 1 << 30] {
            let bounds = GroupBounds::of(log_bytes, None);
            let largest = GroupBytes::of_shards(bounds.gated_shards_max);
            assert_eq!(bounds.claim_of(largest), largest.0, "a change is claimed whole");
            assert!(bounds.group_bytes_max() + largest.0 <= bounds.claimed_bytes_max(), "and fits beside a group");
            assert_eq!(bounds.claim_of(GroupBytes::RECORDS), GroupBytes::RECORDS.0);
            assert!(bounds.claimed_bytes_max() + bounds.riding_bytes_max() as u64 <= log_bytes / RECORD_SHARE);
        }
        assert_eq!(GroupBounds::of(LOG_BYTES_MIN, None).gated_shards_max, 12);
        assert_eq!(GroupBounds::of(64 << 20, None).gated_shards_max, 204);
        assert_eq!(GroupBounds::of(1 << 30, None).gated_shards_max, 3276);
    }
}
