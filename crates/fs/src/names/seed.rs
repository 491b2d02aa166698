//! The seed of the hashes of names.

use oncefs_engine::Store;

/// Seeds the hashes of names with the volume's id, so that nobody can prepare names that collide.
pub(crate) fn name_seed(store: &Store) -> u64 {
    store.volume_id().iter().rev().fold(0, |seed, byte| (seed << 8) ^ u64::from(*byte) ^ (seed >> 56))
}
