//! Whether reading around small files is worth it: learned from how many of the extra blocks are read later.

use std::sync::atomic::Ordering::Relaxed;

use crate::stats::counters::Count;

/// Blocks brought in before the first verdict.
const LEARNING_BLOCKS: u64 = 2048;
/// One in this many extra blocks has to be read: about one more file of a region.
const BLOCKS_PER_USE: u64 = 8;
/// If it is not worth it, one in this many reads tries again.
const TRY_EVERY: u64 = 64;
/// At this many blocks the counts are halved, so that old observations fade.
const REMEMBERED_BLOCKS: u64 = 1 << 16;

/// Blocks read in around small files, and how many of them were used. Counts that race with each other are slightly
/// wrong, which costs a read.
#[derive(Default)]
pub struct ReadAround {
    /// Blocks of other files.
    brought: Count,
    /// Blocks of the requested files, which are all read.
    asked_for: Count,
    /// Blocks of both kinds that were read from the cache.
    used: Count,
    /// Reads without read-around, because it is not worth it.
    refrained: Count,
}

impl ReadAround {
    /// Whether the next small file is read with the blocks around it.
    pub fn is_wanted(&self) -> bool {
        let (brought, used) = (self.brought.load(Relaxed), self.used.load(Relaxed));
        let others_used = used.saturating_sub(self.asked_for.load(Relaxed));
        brought < LEARNING_BLOCKS
            || others_used * BLOCKS_PER_USE >= brought
            || self.refrained.fetch_add(1, Relaxed) % TRY_EVERY == TRY_EVERY - 1
    }

    /// Learns that blocks were read in: this many of the requested file, and this many others.
    pub fn note_brought(&self, asked_for: u64, others: u64) {
        self.asked_for.fetch_add(asked_for, Relaxed);
        if self.brought.fetch_add(others, Relaxed) + others >= REMEMBERED_BLOCKS {
            for count in [&self.brought, &self.asked_for, &self.used] {
                halve(count);
            }
        }
    }

    /// Learns that such a block is read.
    pub fn note_used(&self) {
        self.used.fetch_add(1, Relaxed);
    }
}

/// Several threads may do this at once: each halves the value that it finds, and none takes more than that.
fn halve(count: &Count) {
    let mut before = count.load(Relaxed);
    while let Err(found) = count.compare_exchange_weak(before, before - before / 2, Relaxed, Relaxed) {
        before = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bring(around: &ReadAround, regions: usize, others_used: u64) {
        for _ in 0..regions {
            around.note_brought(3, 29);
            (0..3 + others_used).for_each(|_| around.note_used());
        }
    }

    #[test]
    fn counts_that_several_threads_halve_at_once_stay_small() {
        let around = ReadAround::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        around.note_brought(1, REMEMBERED_BLOCKS);
                        around.note_used();
                    }
                });
            }
        });
        let counts = [&around.brought, &around.asked_for, &around.used].map(|count| count.load(Relaxed));
        assert!(counts.iter().all(|count| *count <= 8 * REMEMBERED_BLOCKS), "{counts:?}");
    }

    #[test]
    fn it_ends_where_nobody_reads_what_was_brought_and_is_tried_again() {
        let around = ReadAround::default();
        assert!(around.is_wanted());
        bring(&around, 80, 0);
        let wanted = (0..640).filter(|_| around.is_wanted()).count();
        assert_eq!(wanted, 10, "one in {TRY_EVERY}");
        bring(&around, 40, 12);
        assert!(around.is_wanted(), "480 of 3,480");
    }

    #[test]
    fn it_goes_on_where_a_file_more_is_read_of_each_region_and_what_is_long_ago_fades() {
        let around = ReadAround::default();
        bring(&around, 10_000, 4);
        assert!(around.is_wanted());
        assert!(around.brought.load(Relaxed) <= REMEMBERED_BLOCKS);
        bring(&around, 5_000, 0);
        assert!(!around.is_wanted());
    }
}
