//! The seed of the places of names.

use oncefs_engine::Store;

/// What places of names are seeded with: the volume's own, so that nobody can prepare names for one place.
pub(crate) fn name_seed(store: &Store) -> u64 {
    store.volume_id().iter().rev().fold(0, |seed, byte| (seed << 8) ^ u64::from(*byte) ^ (seed >> 56))
}
