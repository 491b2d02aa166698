//! Room for changes in the log and in memory: publishers wait here until groups and checkpoints have made room.
//!
//! The rule: no thread waits with a lock that a commit or a checkpoint may need, directly or through a third thread.
//! These are the locks from the log on inwards, and that of checkpoints. The locks of inodes are among them, because a
//! change in pieces holds off the commit and takes an inode's lock to end. So a change waits for room at its beginning,
//! and its publications never wait. A map's lock may be held, because neither committer nor checkpointer takes one. The
//! amount by which changes under way may exceed a group's bound is claimed beforehand (`commit/log_room.rs`).

use crate::Result;
use crate::base::part;
use crate::commit::log_room::{GroupBounds, LogRoom, RoomFor};
use crate::format::group_bytes::GroupBytes;
use crate::signals::requests::{Awaited, Ended};
use crate::sync::{RoomHeld, assert_may_wait_for_room};

part! {
    /// Lets a change wait until there is room for it in the log and in memory.
    pub struct ChangeRoom {
        base: health, signals, journal, state, foreground
    }
}

impl ChangeRoom {
    /// Refuses changes to a volume that cannot take them.
    pub fn usable(&self) -> Result<()> {
        self.health.usable()
    }

    /// The bounds of changes.
    pub fn bounds(&self) -> &GroupBounds {
        self.journal.bounds()
    }

    /// Like `wait_for_room`, for a change of a program that publishes records.
    pub fn wait_for_program_room(&self) {
        if self.lacks_room_for_changes(2 * self.journal.dirty_bytes_max()).is_some() {
            self.foreground.serve(|| self.wait_for_room());
        }
    }

    /// Waits until the group and the changes in memory are within their bounds.
    pub fn wait_for_room(&self) {
        self.wait_for_room_within(2 * self.journal.dirty_bytes_max());
    }

    /// Like `wait_for_room`, for background work: it stops early enough that no request of a program has to wait until
    /// the changes of background work are checkpointed.
    pub fn wait_for_background_room(&self) {
        self.wait_for_room_within(self.journal.dirty_bytes_max());
    }

    fn wait_for_room_within(&self, dirty_bytes_max: u64) {
        assert_may_wait_for_room();
        loop {
            // Counted before the check, so that no end after it is missed.
            let ended = self.signals.ended();
            let Some(awaited) = self.lacks_room_for_changes(dirty_bytes_max) else { return };
            let is_over = self.health.failure().is_some() || !self.signals.wait_for_end(awaited, ended);
            // A failed volume never has room, and its callers are refused.
            if is_over {
                return;
            }
        }
    }

    /// The work that has to end before there is room. None: there is room.
    fn lacks_room_for_changes(&self, dirty_bytes_max: u64) -> Option<Awaited> {
        let (group, dirty, left) = {
            let state = self.state.lock();
            (state.group_bytes(), state.dirty_bytes(), state.dirty_bytes_left())
        };
        if group > self.journal.bounds().group_bytes_max() {
            Some(Awaited::Group)
        } else {
            let asks = left > self.journal.dirty_bytes_max();
            (dirty > dirty_bytes_max).then_some(Awaited::Checkpoint { asks })
        }
    }

    /// Notifies waiters for room that a group was taken.
    pub fn group_taken(&self) {
        self.signals.note_end(Ended { groups: 1, ..Ended::default() });
    }

    /// Notifies waiters for room that a checkpoint ended.
    pub fn checkpoint_ended(&self) {
        self.signals.note_end(Ended { checkpoints: 1, ..Ended::default() });
    }

    /// Notifies waiters for room that a commit or a checkpoint failed. They continue, because the room may never come.
    /// If the volume failed with it, their changes are refused.
    pub fn tell_failure<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|_| self.signals.note_end(Ended { failures: 1, ..Ended::default() }))
    }
}

/// Room in the current group, or the next one, for one change. Held until the change is published.
pub struct LogReservation<'a> {
    room: &'a ChangeRoom,
    claim: RoomFor,
    _held: RoomHeld,
}

impl ChangeRoom {
    /// Claims room in the log for a change, and waits for it. The caller may hold a map's lock. So a thread that has
    /// claimed room takes no map's lock, because the lock's holder may be waiting here.
    ///
    /// On a volume without threads, one that failed, or one that is being closed, nothing makes room, and the claim is
    /// only counted.
    pub fn claim_log_room(&self, bytes: GroupBytes) -> LogReservation<'_> {
        self.claim_log_room_for(bytes, RoomFor::Other(self.journal.bounds().claim_of(bytes)))
    }

    /// Like `claim_log_room`, for a change of a range: all of these together leave some room for other changes.
    pub fn claim_log_room_for_range(&self, bytes: GroupBytes) -> LogReservation<'_> {
        let bounds = self.journal.bounds();
        self.claim_log_room_for(bytes, RoomFor::Range(bounds.claim_of(bytes).min(bounds.ranges_bytes_max())))
    }

    fn claim_log_room_for(&self, bytes: GroupBytes, claim: RoomFor) -> LogReservation<'_> {
        let room = self.journal.room();
        if !room.try_claim(claim) {
            assert_may_wait_for_room();
            room.while_waiting(|| self.wait_for_log_room(room, claim));
        }
        LogReservation { room: self, claim, _held: RoomHeld::new(bytes.0) }
    }

    fn wait_for_log_room(&self, room: &LogRoom, claim: RoomFor) {
        loop {
            // Counted before the check, so that no end after it is missed.
            let ended = self.signals.ended();
            if room.try_claim(claim) {
                return;
            }
            if self.health.failure().is_some() || !self.signals.wait_for_end(Awaited::Group, ended) {
                return room.claim_anyway(claim);
            }
        }
    }
}

impl Drop for LogReservation<'_> {
    fn drop(&mut self) {
        if self.room.journal.room().give_back(self.claim) {
            self.room.signals.note_end(Ended { claims: 1, ..Ended::default() });
        }
    }
}
