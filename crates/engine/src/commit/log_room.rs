//! How much of the log a group may take, and the room in it that changes claim before they are published.
//!
//! The rule: a change claims the most that it can add to a group before it takes a lock that a commit needs, and holds
//! the claim until it is published. What the group has and what is claimed never exceeds what one record of the log
//! takes, so that no change of any kind, and no number of them at a time, makes a group that the log refuses.

use std::sync::atomic::Ordering::SeqCst;

use crate::BLOCK_BYTES;
use crate::background::signals::{Awaited, Ended};
use crate::core::Core;
use crate::format::shard::SHARD_BLOCKS;
use crate::sync::{AtomicU64, RoomHeld, assert_may_wait_for_room};

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

/// Records of the file system in one change: two access control lists of 64 KiB, what one operation on names changes,
/// or a portion of the attributes of a deleted inode.
const RECORDS_BYTES: u64 = 160 << 10;
/// The smallest log that can be made takes such a change beside a group after which publishers wait.
pub const LOG_BYTES_MIN: u64 = 4 << 20;
const _: () = assert!(RECORDS_BYTES <= LOG_BYTES_MIN / RECORD_SHARE - LOG_BYTES_MIN / PART_SHARE);

/// What a written block takes at most: it is stored with its fingerprint (36 bytes), mapped (13), and the block that it
/// replaces is counted (13).
const WRITTEN_BLOCK_BYTES: u64 = 64;
/// What a block of a changed range takes at most: it is mapped (13), and two blocks are counted (26).
const CHANGED_BLOCK_BYTES: u64 = 40;
/// What any change takes beside that: the caller's records of one file, blocks that a range cuts, first differences.
const BASE_BYTES: u64 = 4 << 10;

/// How much a change adds to a group at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupBytes(u64);

impl GroupBytes {
    /// A change of records alone.
    pub const RECORDS: Self = Self(RECORDS_BYTES);
    /// A change of few records and entries.
    pub const SMALL: Self = Self(BASE_BYTES);

    /// A change that stores, shares or completes so many blocks.
    pub fn of_blocks(blocks: u64) -> Self {
        Self(BASE_BYTES + blocks * WRITTEN_BLOCK_BYTES)
    }

    /// A change of all blocks of so many shards.
    pub fn of_shards(shards: u64) -> Self {
        Self(BASE_BYTES + shards * SHARD_BLOCKS * CHANGED_BLOCK_BYTES)
    }
}

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
    /// The bounds for a log of so many bytes. `gated_shards_max`: another number of shards than follows from them, for
    /// tests whose shards are nearly empty.
    pub fn of(log_bytes: u64, gated_shards_max: Option<u64>) -> Self {
        assert!(log_bytes >= PART_SHARE * BLOCK_BYTES as u64, "a log of {log_bytes} bytes");
        let largest = (log_bytes / PART_SHARE).saturating_sub(BASE_BYTES) / (SHARD_BLOCKS * CHANGED_BLOCK_BYTES);
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

    /// What a change claims: on a log smaller than any that can be made (tests) less, in proportion.
    fn claim_of(&self, bytes: GroupBytes) -> u64 {
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
    fn try_claim(&self, bytes: u64) -> bool {
        let claimed = self.claimed.fetch_add(bytes, SeqCst) + bytes;
        let fits = self.group.load(SeqCst) + claimed <= self.bounds.claimed_bytes_max();
        if !fits {
            self.claimed.fetch_sub(bytes, SeqCst);
        }
        fits
    }
}

/// Room in the current group, or the next one, for one change. Held until the change is published.
pub struct RoomInLog<'a> {
    core: &'a Core,
    bytes: u64,
    _held: RoomHeld,
}

impl Core {
    /// Claims room in the log for a change, and waits for it. A map's lock may be held, but the claim before it is taken
    /// only by who takes none: who waits here holds up whoever wants that map.
    ///
    /// On a volume without threads, one that failed, and one that is being closed, nothing makes room, and the claim is
    /// only counted.
    pub fn claim_log_room(&self, bytes: GroupBytes) -> RoomInLog<'_> {
        let room = self.journal.room();
        let bytes = room.bounds.claim_of(bytes);
        if !room.try_claim(bytes) {
            self.wait_for_log_room(room, bytes);
        }
        RoomInLog { core: self, bytes, _held: RoomHeld::new(bytes) }
    }

    fn wait_for_log_room(&self, room: &LogRoom, bytes: u64) {
        assert_may_wait_for_room();
        room.waiting.fetch_add(1, SeqCst);
        loop {
            // Counted before the look: what ends after it is not missed.
            let ended = self.signals.ended();
            if room.try_claim(bytes) {
                break;
            }
            let is_over = self.health.failure().is_some() || !self.signals.wait_for_end(Awaited::Group, ended);
            if is_over {
                room.claimed.fetch_add(bytes, SeqCst);
                break;
            }
        }
        room.waiting.fetch_sub(1, SeqCst);
    }
}

impl Drop for RoomInLog<'_> {
    fn drop(&mut self) {
        let room = self.core.journal.room();
        let claimed = room.claimed.fetch_sub(self.bytes, SeqCst);
        debug_assert!(claimed >= self.bytes, "{} bytes of {claimed} claimed ones are given back", self.bytes);
        if room.waiting.load(SeqCst) > 0 {
            self.core.signals.note_end(Ended { claims: 1, ..Ended::default() });
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::background::threads::Threads;
    use crate::format::keys::ShardKey;
    use crate::format::ops::{Op, OpWriter};
    use crate::format::shard::Target;
    use crate::tests::fixture::{Devices, one_level};
    use crate::volume::files::DATA_BLOCKS_MAX;
    use crate::{Blocks, Fingerprint, Lbn, MapId, Pbn, Tag};

    const KIB: u64 = 1 << 10;

    /// The most that operations take which come again and again, between operations on blocks far away.
    fn bytes_of(ops: &[Op<'_>]) -> u64 {
        let mut writer = OpWriter::default();
        writer.push(&Op::DropShard { key: ShardKey { map: MapId(u64::MAX >> 1), shard: (1 << 52) / SHARD_BLOCKS } });
        let mut most = 0;
        for _ in 0..3 {
            for op in ops {
                writer.push(op);
            }
            let before = writer.bytes().len();
            ops.iter().for_each(|op| writer.push(op));
            most = most.max((writer.bytes().len() - before) as u64);
        }
        most
    }

    #[test]
    fn no_block_takes_more_of_the_log_than_is_claimed_for_it() {
        // Far from each other: each difference takes as many bytes as any.
        let far = [Pbn(1), Pbn(DATA_BLOCKS_MAX - 1), Pbn(DATA_BLOCKS_MAX / 2)];
        let map = |pbn| Op::Map { map: MapId(9), lbn: Lbn(SHARD_BLOCKS - 1), blocks: 1, target: Target::Data(pbn) };
        let count = |pbn| Op::Count { pbn, blocks: 1, count: u32::MAX };
        let store = |pbn| Op::Store { pbn, tag: Tag(u64::MAX), fingerprint: Some(Fingerprint([255; 16])) };
        let fingerprint = |pbn| Op::Fingerprint { pbn, fingerprint: Fingerprint([255; 16]) };
        let changed = bytes_of(&[map(far[0]), count(far[1]), count(far[2])]);
        assert!(changed <= CHANGED_BLOCK_BYTES, "a changed block takes {changed} bytes");
        let written = bytes_of(&[store(far[0]), map(far[1]), count(far[2])]);
        assert!(written <= WRITTEN_BLOCK_BYTES, "a written block takes {written} bytes");
        let remapped = bytes_of(&[count(far[0]), fingerprint(far[1]), map(far[0]), count(far[2])]);
        assert!(remapped <= WRITTEN_BLOCK_BYTES, "a remapped block takes {remapped} bytes");
    }

    #[test]
    fn bounds_follow_the_size_of_the_log() {
        for log_bytes in [LOG_BYTES_MIN, 64 << 20, 1 << 30] {
            let bounds = GroupBounds::of(log_bytes, None);
            let largest = GroupBytes::of_shards(bounds.gated_shards_max);
            assert_eq!(bounds.claim_of(largest), largest.0, "a change is claimed whole");
            assert!(bounds.group_bytes_max() + largest.0 <= bounds.claimed_bytes_max(), "and fits beside a group");
            assert_eq!(bounds.claim_of(GroupBytes::RECORDS), RECORDS_BYTES);
            assert!(bounds.claimed_bytes_max() + bounds.riding_bytes_max() as u64 <= log_bytes / RECORD_SHARE);
        }
        assert_eq!(GroupBounds::of(LOG_BYTES_MIN, None).gated_shards_max, 12);
        assert_eq!(GroupBounds::of(64 << 20, None).gated_shards_max, 204);
        assert_eq!(GroupBounds::of(1 << 30, None).gated_shards_max, 3276);
    }

    #[test]
    fn a_claim_waits_until_another_is_given_back() {
        let core = std::sync::Arc::new(Devices::new(Blocks(700), one_level()).open());
        let threads = Threads::start(&core).unwrap();
        let held = core.claim_log_room(GroupBytes(300 * KIB));
        std::thread::scope(|scope| {
            let small = scope.spawn(|| drop(core.claim_log_room(GroupBytes(80 * KIB))));
            small.join().unwrap();
            let waits = scope.spawn(|| drop(core.claim_log_room(GroupBytes(90 * KIB))));
            std::thread::sleep(Duration::from_millis(100));
            assert!(!waits.is_finished(), "384 KiB are there for claims");
            drop(held);
            waits.join().unwrap();
        });
        core.signals.stop();
        threads.join();
    }

    #[test]
    fn a_claim_waits_until_a_group_is_taken() {
        let core = std::sync::Arc::new(Devices::new(Blocks(700), one_level()).open());
        let threads = Threads::start(&core).unwrap();
        let mut change = crate::Change::new();
        change.put(b"\x10room".to_vec(), vec![7; 300 << 10]);
        core.publish(change).unwrap();
        let sequence = core.state.lock().durable_sequence;
        drop(core.claim_log_room(GroupBytes(90 * KIB)));
        assert!(core.state.lock().group_bytes() == 0, "it waited for the commit that it asked for, after {sequence}");
        core.signals.stop();
        threads.join();
    }
}
