//! A measured write with scattered duplicates: on which side, with which sources and how much memory.

use serde::Serialize;

use crate::measure::Row;
use crate::scenario::Source;

/// The side that the others are compared with.
pub(super) const EXT4: &str = "ext4";
/// The default profile.
pub(super) const DESKTOP: &str = "desktop";
/// The profile of small boards.
pub(super) const EDGE: &str = "edge";
/// The default profile that shares nothing.
pub(super) const OFF: &str = "desktop, off";
/// The least that a mount takes.
const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// How much memory the daemon has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Memory {
    /// Four times as much as is written.
    Within,
    /// An eighth of it.
    Beyond,
}

/// What differs between the runs of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Setting {
    /// How much memory.
    pub memory: Memory,
    /// Which sources.
    pub source: Source,
    /// Share of blocks that repeat one of them.
    pub duplicate_percent: usize,
}

/// One side with one setting in one repetition.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Reading {
    /// What was written.
    pub setting: Setting,
    /// What was measured.
    pub row: Row,
    /// Bytes that are stored if every content is stored once.
    pub exact_bytes: u64,
    /// Bytes that are stored if the file makes the best choice within the side's budget.
    pub best_bytes: u64,
}

impl Memory {
    /// For a file of so many bytes.
    pub fn bytes(self, file_bytes: u64) -> u64 {
        match self {
            Memory::Within => file_bytes * 4,
            Memory::Beyond => file_bytes / 8,
        }
        .max(MEMORY_BYTES_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_far_more_than_what_is_written_or_far_less() {
        let bytes = |file_bytes| [Memory::Within, Memory::Beyond].map(|memory| memory.bytes(file_bytes));
        assert_eq!((bytes(512 << 20), bytes(32 << 20)), ([2 << 30, 64 << 20], [128 << 20, 16 << 20]));
    }
}
