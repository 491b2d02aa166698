//! How much of a file is defragmented at a time.

use oncefs_dedup::BatchSize;

/// A portion ends with the run that makes it this long: 1 to 4 MiB, as much as the device reads and writes in a short
/// time. Shorter portions would leave pieces if the free space between them is in use. Runs that move are shorter than
/// the longest portion, so a portion is less than twice as long.
const PORTION_BLOCKS: (u64, u64) = (256, 1_024);
const _: () = assert!(PORTION_BLOCKS.0 <= PORTION_BLOCKS.1);

/// How much of a file is defragmented at a time, before anything is known of the device.
pub fn portion_size() -> BatchSize {
    BatchSize::new(PORTION_BLOCKS.0, PORTION_BLOCKS.1)
}
