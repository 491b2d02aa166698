//! How a file was read lately: whether its reader would notice one more piece.
//!
//! Owns the counts of one file and the conclusion from them. Leaves to the engine counting reads per map
//! (`policy/read_pattern.rs`). The counts here are of recent reads and only in memory. The lasting counts in the inode,
//! which determine a file's rank, are `Usage` in `usage`.

/// Blocks that count as read in sequence in addition to those counted.
const PRIOR_BLOCKS: f64 = 16.0;
/// When more blocks than this are counted, all counts are halved.
const BLOCKS_COUNTED_MAX: u32 = 1 << 16;
/// A file counts as read at random once less than this share of its blocks is read in sequence,
const RANDOM_BELOW: f64 = 0.25;
/// and until more than this share is: the gap keeps it from changing back and forth.
const SEQUENTIAL_ABOVE: f64 = 0.5;

/// How a file was read lately, in blocks. The default is a file without known reads: it counts as read in sequence.
///
/// Invariant: `sequential + random` exceeds `BLOCKS_COUNTED_MAX` by at most one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadPattern {
    sequential: u32,
    random: u32,
    is_random: bool,
}

impl ReadPattern {
    /// Counts a request that read `blocks` blocks. `follows`: it began where the file's last one ended, or
    /// within it. Within a request each block follows the one before.
    pub fn read(&mut self, blocks: u32, follows: bool) {
        let jumps = u32::from(!follows).min(blocks);
        self.sequential += blocks - jumps;
        self.random += jumps;
        if self.sequential + self.random > BLOCKS_COUNTED_MAX {
            (self.sequential, self.random) = (self.sequential / 2, self.random / 2);
        }
        let bound = if self.is_random { SEQUENTIAL_ABOVE } else { RANDOM_BELOW };
        self.is_random = self.sequential_share() < bound;
    }

    /// The share of blocks read right after the block before them, 0 to 1.
    pub fn sequential_share(&self) -> f64 {
        let (sequential, random) = (f64::from(self.sequential), f64::from(self.random));
        (sequential + PRIOR_BLOCKS) / (sequential + random + PRIOR_BLOCKS)
    }

    /// Whether the file is read at random. Then it does not matter where its blocks lie.
    pub fn is_random(&self) -> bool {
        self.is_random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_never_read_or_is_read_in_sequence_is_not_random() {
        let mut pattern = ReadPattern::default();
        assert!(!pattern.is_random());
        (0..1_000).for_each(|_| pattern.read(1, true));
        assert!(!pattern.is_random() && pattern.sequential_share() == 1.0);
    }

    #[test]
    fn large_requests_at_random_places_are_sequential_inside() {
        let mut pattern = ReadPattern::default();
        (0..1_000).for_each(|_| pattern.read(256, false));
        assert!(!pattern.is_random() && pattern.sequential_share() > 0.99);
    }

    #[test]
    fn a_file_becomes_random_late_and_sequential_late() {
        let mut pattern = ReadPattern::default();
        let reads = (1..).find(|_| {
            pattern.read(1, false);
            pattern.is_random()
        });
        assert_eq!(reads, Some(49), "16 of 65 blocks are less than a quarter");
        let reads = (1..).find(|_| {
            pattern.read(1, true);
            !pattern.is_random()
        });
        assert_eq!(reads, Some(33), "49 of 98 blocks are half of them");
    }

    #[test]
    fn counts_age() {
        let mut pattern = ReadPattern::default();
        (0..1_000_000).for_each(|_| pattern.read(1, true));
        assert!(pattern.sequential <= BLOCKS_COUNTED_MAX);
        (0..1_000_000).for_each(|_| pattern.read(1, false));
        assert!(pattern.is_random());
    }
}
