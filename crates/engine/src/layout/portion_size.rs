//! How much of a file is defragmented at a time.

use oncefs_dedup::BatchSize;

/// A portion ends with the run that makes it so long: 1 to 4 MiB, as much as the device reads and writes in a short
/// time. Shorter ones would leave pieces where the free space between them is in use. Runs that move are shorter than
/// the longest portion, so that it has less than twice as much.
const PORTION_BLOCKS: (u64, u64) = (256, 1_024);
const _: () = assert!(PORTION_BLOCKS.0 <= PORTION_BLOCKS.1);

/// How much of a file is defragmented in one go: what is known of the device when a volume is opened.
pub fn portion_size() -> BatchSize {
    BatchSize::new(PORTION_BLOCKS.0, PORTION_BLOCKS.1)
}
