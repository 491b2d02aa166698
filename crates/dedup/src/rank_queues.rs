//! The rank queues (Selective, section 4.2.2, figure 6): which file is examined next, and the result.
//!
//! Owns the order of the queues 0, 1 and 2 and the decision about the place at a tail. Cold files are in no queue.
//! Leaves to fs how places are stored and when tails are examined (`ranker.rs`), and to `rank_rule` which rank a file
//! deserves.
//!
//! The paper moves a file to the top of its queue with each access. Here an access changes only the file's usage, and
//! the place is corrected once it is the oldest: one check per file and interval instead of a write per access.

use crate::{Moment, Rank, RankRule, Usage};

/// A file's place in a queue. Places sort by queue, oldest first.
///
/// Places are advice, like hints: a file may have none, several, or an outdated one. [`look_at`] merges all places of a
/// file into the one that its usage gives. A file's rank does not depend on its places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuePlace {
    /// Which queue.
    pub rank: Rank,
    /// When the file became the newest of the queue, as far as this place knows.
    pub touched: Moment,
    /// The file's number.
    pub file: u64,
}

impl QueuePlace {
    /// Where a file belongs. None: it is cold and belongs in no queue.
    pub fn of(usage: &Usage, file: u64) -> Option<Self> {
        let rank = usage.rank();
        (rank != Rank::Cold).then(|| Self { rank, touched: usage.last_access(), file })
    }
}

/// The decision about a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtTail {
    /// Remove it: the file is gone or cold.
    Drop,
    /// Replace it by this one.
    Move(QueuePlace),
    /// Keep it. Neither this file nor the files after it in the queue are due earlier, unless they are touched.
    Wait {
        /// When this file is due.
        until: Moment,
    },
    /// Give the file this rank, never `New`, and replace this place by the one that goes with it.
    Rank(Rank),
}

/// Decides about the place at the tail of its queue (Selective, figure 6). `usage` is that of the place's file. None:
/// the file does not exist.
///
/// A clock that jumped back leaves places in the future at the top of their queues. The tail reaches them only at that
/// time, so check the top too. Moments in the future in `usage` count as now, and the caller stores them so
/// ([`Usage::clamp`]).
pub fn look_at(place: &QueuePlace, usage: Option<&Usage>, rule: &RankRule, now: Moment) -> AtTail {
    let Some(mut usage) = usage.copied() else {
        return AtTail::Drop;
    };
    usage.clamp(now);
    match QueuePlace::of(&usage, place.file) {
        None => AtTail::Drop,
        Some(right) if right.rank != place.rank || place.touched > now => AtTail::Move(right),
        Some(_) if place.rank == Rank::New => look_at_new(place, &usage, rule, now),
        Some(right) if right.touched > place.touched => AtTail::Move(right),
        Some(_) if rule.is_cold(&usage, now) => AtTail::Rank(Rank::Cold),
        Some(right) => AtTail::Wait { until: right.touched.plus_seconds(rule.hot_seconds_max) },
    }
}

/// In queue 0 reads move nothing, because otherwise a file that is read daily would never be judged: a place is due one
/// evaluation interval after it was taken. A file that is not ranked then moves to the place at which it is worth
/// another check: its last write, or, if it is read too little, the top of the queue.
fn look_at_new(place: &QueuePlace, usage: &Usage, rule: &RankRule, now: Moment) -> AtTail {
    // At least a second: a place taken now is not due again now.
    let due = place.touched.plus_seconds(rule.evaluation_seconds_min.max(1));
    if now < due {
        return AtTail::Wait { until: due };
    }
    match rule.rank(usage, now) {
        Rank::New if rule.is_recently_written(usage, now) => {
            AtTail::Move(QueuePlace { touched: usage.last_write(), ..*place })
        }
        Rank::New => AtTail::Move(QueuePlace { touched: now, ..*place }),
        rank => AtTail::Rank(rank),
    }
}

#[cfg(test)]
mod tests;
