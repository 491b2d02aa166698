//! How much of the log a group may take, and the log room that changes claim before they are published.
//!
//! The rule: a change claims the most that it can add to a group before it takes a lock that a commit needs, and holds
//! the claim until it is published. The group and all claims together never exceed one record of the log. So no change
//! of any kind, and no number of concurrent changes, makes a group that the log refuses.

use std::sync::atomic::Ordering::SeqCst;

use crate::format::group_bytes::GroupBytes;
use crate::format::page::PAGE_BYTES;
use crate::sync::AtomicU64;

/// A group takes at most one part in this many of the log, including the data that rides in it.
pub const RECORD_SHARE: u64 = 8;
/// Publishers wait while a group is larger than one part in this many.
pub const GROUP_SHARE: u64 = 16;
/// Data that rides in the log, and a change of a range, take at most one part in this many.
const PART_SHARE: u64 = 32;
const _: () = assert!(RECORD_SHARE * 2 == GROUP_SHARE && GROUP_SHARE * 2 == PART_SHARE);

/// Staged data up to this size rides in the record, if the log is large enough: one write and one flush instead of two
/// of each.
const RIDING_BYTES_MAX: u64 = 128 << 10;
/// A change of a range is planned in memory as a whole. It has at most one leaf for this many pages of the block table
/// that it may have. If every block is an extent of its own, a leaf takes 20 KiB, so leaves and pages together take 16
/// MiB at most.
const PAGES_PER_LEAF: u64 = 8;
/// Distinct pages of the block table that a change of a range may have, depending on the memory for changes: 2 to 8
/// MiB. Cloning over a single leaf may need 512: 256 source blocks, and 256 blocks that it replaces.
const GROUP_PAGES: std::ops::RangeInclusive<u64> = 512..=2048;
/// A change of a range takes at most one part in this many of the memory for changes.
const DIRTY_SHARE: u64 = 8;
/// A piece ends with the leaf that brings it to this many distinct pages: the publish lock is held for at most 1,024.
const PIECE_PAGES: u64 = 512;
/// A change of a range is published in pieces of at most this many leaves, so that the publish lock is held only
/// briefly and memory stays bounded. The caller's records go with the last piece.
const PIECE_LEAVES_MAX: u64 = 64;

/// The smallest log that can be created. It takes any change of records.
pub const LOG_BYTES_MIN: u64 = 4 << 20;
const _: () = assert!(GroupBytes::RECORDS.0 <= LOG_BYTES_MIN / RECORD_SHARE - LOG_BYTES_MIN / PART_SHARE);

/// The bounds that follow from the log's size.
#[derive(Clone, Copy, Debug)]
pub struct GroupBounds {
    log_bytes: u64,
    /// A change of a range of more leaves does not fit into one group.
    pub gated_leaves_max: u64,
    /// Leaves of a range that are published together.
    pub piece_leaves: usize,
    /// A change of a range with more distinct pages of the block table does not fit into one group, unless it is a
    /// single leaf.
    pub group_pages: u64,
    /// A piece is published once it has this many distinct pages.
    pub piece_pages: u64,
}

impl GroupBounds {
    /// The bounds for a log of this many bytes (in a damaged volume that may be any number), and for this much memory
    /// for changes. `gated_leaves_max` overrides the derived number of leaves, for tests whose leaves are nearly empty.
    pub fn of(log_bytes: u64, dirty_bytes_max: u64, gated_leaves_max: Option<u64>) -> Self {
        let group_pages = dirty_bytes_max / DIRTY_SHARE / PAGE_BYTES as u64;
        let group_pages = group_pages.clamp(*GROUP_PAGES.start(), *GROUP_PAGES.end());
        let largest = GroupBytes(log_bytes / PART_SHARE).leaves();
        let gated_leaves_max = gated_leaves_max.unwrap_or(largest.clamp(2, group_pages / PAGES_PER_LEAF));
        let piece_leaves = (gated_leaves_max / 2).clamp(1, PIECE_LEAVES_MAX) as usize;
        Self { log_bytes, gated_leaves_max, piece_leaves, group_pages, piece_pages: PIECE_PAGES }
    }

    /// Publishers wait while the group is larger.
    pub fn group_bytes_max(&self) -> u64 {
        self.log_bytes / GROUP_SHARE
    }

    /// Staged data of at most this many bytes rides in the record.
    pub fn riding_bytes_max(&self) -> usize {
        RIDING_BYTES_MAX.min(self.log_bytes / PART_SHARE) as usize
    }

    /// Upper bound of the group and all claims together.
    fn claimed_bytes_max(&self) -> u64 {
        self.log_bytes / RECORD_SHARE - self.log_bytes / PART_SHARE
    }

    /// The most that changes of ranges claim together. The rest is for all other changes, above all for names, so that
    /// none of them waits for as many pages as a range may have.
    pub fn ranges_bytes_max(&self) -> u64 {
        let others = (self.log_bytes / PART_SHARE).max(self.claim_of(GroupBytes::RECORDS));
        self.claimed_bytes_max().saturating_sub(others).max(self.claimed_bytes_max() / 2)
    }

    /// A change's claim in bytes. On a log smaller than the smallest that can be created (in tests) it shrinks in
    /// proportion.
    pub fn claim_of(&self, bytes: GroupBytes) -> u64 {
        let scaled = if self.log_bytes < LOG_BYTES_MIN { bytes.0 * self.log_bytes / LOG_BYTES_MIN } else { bytes.0 };
        scaled.min(self.claimed_bytes_max())
    }
}

/// The purpose of a claim, with its bytes.
#[derive(Clone, Copy, Debug)]
pub enum RoomFor {
    /// A change of a range.
    Range(u64),
    /// Any other change.
    Other(u64),
}

impl RoomFor {
    fn bytes(self) -> u64 {
        match self {
            Self::Range(bytes) | Self::Other(bytes) => bytes,
        }
    }
}

/// The room of the current group: its bytes, and the claims.
pub struct LogRoom {
    bounds: GroupBounds,
    group: AtomicU64,
    claimed: AtomicU64,
    /// The part of `claimed` that belongs to changes of ranges.
    ranges: AtomicU64,
    waiting: AtomicU64,
}

impl LogRoom {
    /// The room of an empty group.
    pub fn new(bounds: GroupBounds) -> Self {
        let zero = || AtomicU64::new(0);
        Self { bounds, group: zero(), claimed: zero(), ranges: zero(), waiting: zero() }
    }

    /// Its bounds.
    pub fn bounds(&self) -> &GroupBounds {
        &self.bounds
    }

    /// Notes how many bytes the current group has. Under the publish lock.
    pub fn note_group(&self, bytes: u64) {
        self.group.store(bytes, SeqCst);
    }

    /// A claim is counted before the group is checked, and given back after the group includes its bytes. In between a
    /// change counts twice, but it is never missed.
    pub fn try_claim(&self, claim: RoomFor) -> bool {
        let bytes = claim.bytes();
        if let RoomFor::Range(_) = claim
            && self.ranges.fetch_add(bytes, SeqCst) + bytes > self.bounds.ranges_bytes_max()
        {
            self.ranges.fetch_sub(bytes, SeqCst);
            return false;
        }
        let claimed = self.claimed.fetch_add(bytes, SeqCst) + bytes;
        let fits = self.group.load(SeqCst) + claimed <= self.bounds.claimed_bytes_max();
        if !fits {
            self.give_back(claim);
        }
        fits
    }

    /// Counts a claim that no commit can make room for.
    pub fn claim_anyway(&self, claim: RoomFor) {
        if let RoomFor::Range(bytes) = claim {
            self.ranges.fetch_add(bytes, SeqCst);
        }
        self.claimed.fetch_add(claim.bytes(), SeqCst);
    }

    /// Gives a claim back. Returns whether a thread waits for that.
    pub fn give_back(&self, claim: RoomFor) -> bool {
        let bytes = claim.bytes();
        if let RoomFor::Range(bytes) = claim {
            self.ranges.fetch_sub(bytes, SeqCst);
        }
        let claimed = self.claimed.fetch_sub(bytes, SeqCst);
        debug_assert!(claimed >= bytes, "{bytes} bytes of {claimed} claimed ones are given back");
        self.waiting.load(SeqCst) > 0
    }

    /// Whether nothing is claimed.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn is_free(&self) -> bool {
        self.claimed.load(SeqCst) == 0
    }

    /// Marks that a thread waits for claims to be given back, while `wait` runs.
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
            let bounds = GroupBounds::of(log_bytes, 64 << 20, None);
            let largest = GroupBytes::of_leaves(bounds.gated_leaves_max);
            assert_eq!(bounds.claim_of(largest), largest.0, "a change is claimed whole");
            assert!(bounds.group_bytes_max() + largest.0 <= bounds.claimed_bytes_max(), "and fits beside a group");
            assert_eq!(bounds.claim_of(GroupBytes::RECORDS), GroupBytes::RECORDS.0);
            assert!(largest.0 <= bounds.ranges_bytes_max(), "a change of a range fits into the part of ranges");
            let others = bounds.claimed_bytes_max() - bounds.ranges_bytes_max();
            assert!(others >= GroupBytes::RECORDS.0, "beside all of them there is room for a change of records");
            assert!(bounds.claimed_bytes_max() + bounds.riding_bytes_max() as u64 <= log_bytes / RECORD_SHARE);
        }
        let leaves = |log_bytes, dirty| GroupBounds::of(log_bytes, dirty, None).gated_leaves_max;
        assert_eq!([4 << 20, 64 << 20].map(|dirty| leaves(LOG_BYTES_MIN, dirty)), [5, 5]);
        assert_eq!([4 << 20, 64 << 20].map(|dirty| leaves(64 << 20, dirty)), [64, 88]);
        assert_eq!([4 << 20, 64 << 20].map(|dirty| leaves(1 << 30, dirty)), [64, 256]);
    }

    #[test]
    fn what_a_change_of_a_range_takes_follows_the_memory_for_changes() {
        let pages = |dirty| GroupBounds::of(64 << 20, dirty, None).group_pages;
        assert_eq!([4 << 20, 32 << 20, 64 << 20, 1 << 30].map(pages), [512, 1024, 2048, 2048]);
    }

    #[test]
    fn ranges_leave_room_for_other_changes() {
        let room = LogRoom::new(GroupBounds::of(64 << 20, 64 << 20, None));
        let largest = RoomFor::Range(GroupBytes::of_leaves(88).0);
        assert!(room.try_claim(largest) && room.try_claim(largest));
        assert!(!room.try_claim(largest), "a third one would take of what is for others");
        let small = RoomFor::Other(GroupBytes::RECORDS.0);
        assert!((0..12).all(|_| room.try_claim(small)), "twelve changes of names beside them");
        room.give_back(largest);
        assert!(room.try_claim(largest), "it has its room again");
    }
}
