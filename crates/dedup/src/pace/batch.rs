//! The size of a batch: how many blocks fit into a time, estimated from recent batches.

use std::time::Duration;

/// The time that a batch should take: half of the longest acceptable wait, because batches differ.
const TARGET: Duration = Duration::from_millis(25);
/// The first batch is this fraction of the largest, because the device's speed is still unknown.
const FIRST_SHARE: u64 = 8;
/// The factor by which a batch may exceed the one before: cheap blocks say little about the next ones.
const GROWTH_MAX: f64 = 1.5;

/// The size of batches that foreground work waits for: each should end within 50 ms, even on a slow device.
///
/// A batch that took too long makes the next one smaller at once; faster batches let it grow again step by step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchSize {
    blocks_min: u64,
    blocks_max: u64,
    blocks: f64,
}

impl BatchSize {
    /// Batches have `blocks_min` (at least 1) to `blocks_max` blocks, however long they take.
    pub fn new(blocks_min: u64, blocks_max: u64) -> Self {
        debug_assert!(1 <= blocks_min && blocks_min <= blocks_max, "{blocks_min} to {blocks_max} blocks");
        Self { blocks_min, blocks_max, blocks: (blocks_max / FIRST_SHARE).max(blocks_min) as f64 }
    }

    /// Most blocks of the next batch.
    pub fn blocks(&self) -> u64 {
        self.blocks as u64
    }

    /// Learns that a batch of `blocks` blocks `took` this time. An empty batch is ignored.
    pub fn ran(&mut self, blocks: u64, took: Duration) {
        if blocks == 0 {
            return;
        }
        let fit = blocks as f64 * TARGET.as_secs_f64() / took.as_secs_f64().max(1e-9);
        self.blocks = fit.min(self.blocks * GROWTH_MAX).clamp(self.blocks_min as f64, self.blocks_max as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of batches on a device that takes this long for a block.
    fn sizes(size: &mut BatchSize, batches: usize, block: Duration) -> Vec<u64> {
        let mut run = || {
            let blocks = size.blocks();
            size.ran(blocks, block * blocks as u32);
            blocks
        };
        (0..batches).map(|_| run()).collect()
    }

    #[test]
    fn on_a_fast_device_batches_grow_to_what_is_allowed() {
        let mut size = BatchSize::new(1, 256);
        let sizes = sizes(&mut size, 10, Duration::from_micros(5));
        assert_eq!((sizes[0], sizes[1], sizes[9]), (32, 48, 256), "{sizes:?}");
    }

    #[test]
    fn on_a_slow_device_batches_take_no_longer_than_the_target() {
        for micros in [100, 300, 1_000, 5_000, 25_000] {
            let mut size = BatchSize::new(1, 256);
            let block = Duration::from_micros(micros);
            let later = &sizes(&mut size, 20, block)[10..];
            assert!(later.iter().all(|blocks| block * *blocks as u32 <= TARGET), "{micros} us: {later:?}");
            assert!(later.iter().all(|blocks| block * (*blocks as u32 + 1) * 2 >= TARGET), "{micros} us: {later:?}");
        }
    }

    #[test]
    fn a_batch_that_took_too_long_makes_the_next_smaller_at_once_and_is_got_over() {
        let mut size = BatchSize::new(1, 256);
        sizes(&mut size, 10, Duration::from_micros(5));
        size.ran(256, Duration::from_secs(2));
        assert_eq!(size.blocks(), 3);
        let after = sizes(&mut size, 20, Duration::from_micros(5));
        assert!(after.is_sorted() && after[19] == 256, "{after:?}");
    }

    #[test]
    fn a_batch_of_nothing_and_one_that_took_no_time_are_borne() {
        let mut size = BatchSize::new(1, 256);
        size.ran(0, Duration::from_secs(9));
        assert_eq!(size, BatchSize::new(1, 256));
        size.ran(1, Duration::ZERO);
        assert_eq!(size.blocks(), 48);
        size.ran(1, Duration::MAX);
        assert_eq!(size.blocks(), 1);
        let mut least = BatchSize::new(200, 1_024);
        least.ran(1, Duration::from_secs(60));
        assert_eq!(least.blocks(), 200);
    }
}
