//! How a file is used: the paper's Table 3 (Selective, section 4.2.1) in 16 bytes.
//!
//! Owns how accesses become these numbers, and how the numbers become bytes. Leaves the decision to `rank_rule`, and to
//! fs (`usage/note_reads_and_writes.rs`) which accesses it sees, the clock, and where the bytes are stored.
//!
//! This is the lasting count of a file's reads, which determines its rank. The other count, of recent reads and only in
//! memory, is `ReadPattern` in `read_pattern`. It determines whether a budget applies.
//!
//! The bytes, little-endian, are in the inode record; all zero means that nothing is known of the file:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | last access |
//! | 4..8 | last write |
//! | 8..11 | blocks read in sequence |
//! | 11..14 | blocks read at random |
//! | 14..16 | from the lowest bit: rank (2 bits), days on which the file was rewritten (2), the last of them (12, modulo 4096) |

/// Counters have 24 bits.
const COUNTER_MAX: u32 = (1 << 24) - 1;
/// A file is update-heavy once it was rewritten on this many days; more are not counted.
const UPDATE_HEAVY_DAYS: u8 = 2;
const SECONDS_PER_DAY: u32 = 86_400;
/// Days are numbered modulo this, 11 years.
const DAYS_KEPT: u32 = 1 << 12;

/// Seconds since 1970 by the monitor's own clock, which may jump either way. Ends in 2106.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u32);

impl Moment {
    /// Seconds since an earlier moment; 0 for one in the future.
    pub fn seconds_since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `seconds` later, or the last possible one.
    pub fn plus_seconds(self, seconds: u32) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}

/// How a file is used (the paper's Table 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// New, or written not long ago: not judged yet.
    #[default]
    New = 0,
    /// Hot, and read mostly in sequence.
    Sequential = 1,
    /// Hot, and read mostly at random.
    Random = 2,
    /// Not accessed for long.
    Cold = 3,
}

impl Rank {
    /// All ranks, by number.
    pub const ALL: [Self; 4] = [Self::New, Self::Sequential, Self::Random, Self::Cold];

    /// The paper's number, 0 to 3.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The rank with this number, if it exists.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// Numbers of blocks read in sequence and at random.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Blocks next to the block read before them.
    pub sequential: u32,
    /// Blocks elsewhere.
    pub random: u32,
}

/// Where a handle last read: tells sequential reads from random ones (Selective, section 4.2.1).
///
/// In the paper a request is sequential if its offset is the position of the last one plus or minus one. Here the
/// position is the whole last request, so that a file read backwards in large requests counts as read in sequence too.
/// A new handle is before block 0: reading a file from its beginning is sequential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadPosition {
    /// First block of the last request.
    first: u64,
    /// The block after its last one.
    end: u64,
}

impl ReadPosition {
    /// Counts a request for `blocks` blocks starting at `first`. Blocks count one by one: all but the first follow the
    /// one before them, wherever the request begins.
    pub fn read(&mut self, first: u64, blocks: u32) -> Reads {
        if blocks == 0 {
            return Reads::default();
        }
        let end = first.saturating_add(u64::from(blocks));
        let is_after = first == self.end;
        // Requests for partial blocks meet within a block.
        let is_within_the_last_block = first + 1 == self.end;
        let is_before = end == self.first;
        *self = Self { first, end };
        let is_random = !(is_after || is_within_the_last_block || is_before);
        Reads { sequential: blocks - u32::from(is_random), random: u32::from(is_random) }
    }
}

/// How a file is used (Selective, Table 3). The default is a file without known accesses.
///
/// 1. `sequential` and `random` are at most `COUNTER_MAX`. Both are halved when one is full, so their ratio stays.
/// 2. `rewritten_days` is at most `UPDATE_HEAVY_DAYS`.
/// 3. `rewritten_last_day` is below `DAYS_KEPT`, and 0 while `rewritten_days` is: equal usages have equal bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    last_access: Moment,
    last_write: Moment,
    sequential: u32,
    random: u32,
    rank: Rank,
    rewritten_days: u8,
    rewritten_last_day: u16,
}

impl Usage {
    /// Size of the encoded form.
    pub const BYTES: usize = 16;

    /// A file that is created now.
    pub fn created(now: Moment) -> Self {
        Self { last_access: now, last_write: now, ..Self::default() }
    }

    /// When the file was read or written last.
    pub fn last_access(&self) -> Moment {
        self.last_access
    }

    /// When the file was written last.
    pub fn last_write(&self) -> Moment {
        self.last_write
    }

    /// Blocks read since the file was ranked. After a halving, only their ratio is right.
    pub fn reads(&self) -> Reads {
        Reads { sequential: self.sequential, random: self.random }
    }

    /// The rank in force.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Whether the file was rewritten on two days or more since it was ranked.
    pub fn is_update_heavy(&self) -> bool {
        self.rewritten_days >= UPDATE_HEAVY_DAYS
    }

    /// Counts blocks that are read now. A cold file becomes new and is judged again.
    pub fn read(&mut self, now: Moment, reads: Reads) {
        self.clamp(now);
        self.last_access = now;
        if self.rank == Rank::Cold {
            self.rank = Rank::New;
        }
        let sum = |count: u32, more: u32| u64::from(count) + u64::from(more);
        let (mut sequential, mut random) = (sum(self.sequential, reads.sequential), sum(self.random, reads.random));
        while sequential.max(random) > u64::from(COUNTER_MAX) {
            (sequential, random) = (sequential / 2, random / 2);
        }
        (self.sequential, self.random) = (sequential as u32, random as u32);
        debug_assert_eq!(self.check(), Ok(()));
    }

    /// Counts a change of the file's content now: it becomes new and is judged again. `is_rewrite`: existing content is
    /// replaced, not only appended to.
    pub fn written(&mut self, now: Moment, is_rewrite: bool) {
        (self.last_access, self.last_write, self.rank) = (now, now, Rank::New);
        let today = (now.0 / SECONDS_PER_DAY % DAYS_KEPT) as u16;
        if is_rewrite && (self.rewritten_days == 0 || self.rewritten_last_day != today) {
            self.rewritten_days = (self.rewritten_days + 1).min(UPDATE_HEAVY_DAYS);
            self.rewritten_last_day = today;
        }
        debug_assert_eq!(self.check(), Ok(()));
    }

    /// Sets the file's rank. Counting starts over.
    pub fn ranked(&mut self, rank: Rank) {
        *self = Self { last_access: self.last_access, last_write: self.last_write, rank, ..Self::default() };
    }

    /// Moves moments in the future, left by a clock that has jumped back since, to the present, so that they pass.
    /// Returns whether there were any. If so, the caller has to store `self`, or they stay in the future.
    pub fn clamp(&mut self, now: Moment) -> bool {
        let before = *self;
        self.last_access = self.last_access.min(now);
        self.last_write = self.last_write.min(now);
        *self != before
    }

    /// The bytes of the inode record.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let marks = u16::from(self.rank.number()) | u16::from(self.rewritten_days) << 2 | self.rewritten_last_day << 4;
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.last_access.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.last_write.0.to_le_bytes());
        bytes[8..11].copy_from_slice(&self.sequential.to_le_bytes()[..3]);
        bytes[11..14].copy_from_slice(&self.random.to_le_bytes()[..3]);
        bytes[14..].copy_from_slice(&marks.to_le_bytes());
        bytes
    }

    /// Decodes the bytes. Never fails: impossible values become the nearest possible ones.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let number = |from: usize, to: usize| {
            bytes[from..to].iter().rev().fold(0_u32, |number, byte| number << 8 | u32::from(*byte))
        };
        let marks = number(14, 16);
        let rewritten_days = (marks >> 2 & 3).min(u32::from(UPDATE_HEAVY_DAYS)) as u8;
        let usage = Self {
            last_access: Moment(number(0, 4)),
            last_write: Moment(number(4, 8)),
            sequential: number(8, 11),
            random: number(11, 14),
            rank: Rank::ALL[(marks & 3) as usize],
            rewritten_days,
            rewritten_last_day: if rewritten_days == 0 { 0 } else { (marks >> 4) as u16 },
        };
        debug_assert_eq!(usage.check(), Ok(()));
        usage
    }

    /// The first invariant that does not hold.
    fn check(&self) -> Result<(), &'static str> {
        if self.sequential.max(self.random) > COUNTER_MAX {
            return Err("1: a counter is beyond its 24 bits");
        }
        if self.rewritten_days > UPDATE_HEAVY_DAYS {
            return Err("2: more days of rewriting than are counted");
        }
        let is_day_kept = u32::from(self.rewritten_last_day) < DAYS_KEPT;
        if !is_day_kept || self.rewritten_days == 0 && self.rewritten_last_day != 0 {
            return Err("3: a last day of rewriting that cannot be");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
