//! How each file is deduplicated, and the measurements that decide it.

pub mod device_reads;
pub mod effective;
pub mod policies;
pub mod read_pattern;
pub mod run_blocks_min;
