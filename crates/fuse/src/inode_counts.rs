//! Counts, by inode number, of the references that the kernel holds.
//!
//! One counts how often the kernel was told about an inode, minus how often it has forgotten it. While that count is
//! positive, the kernel may use the inode, with or without a name. Another counts opens for writing. While that count
//! is positive, the kernel may have dirty pages.

use std::collections::HashMap;

use oncefs_fs::Ino;
use parking_lot::{Mutex, MutexGuard};

/// Shards, so that threads seldom contend; a power of two.
const SHARDS: usize = 64;

/// The number of references that the kernel holds on each inode. Most inodes have none.
pub(crate) struct InodeCounts {
    shards: Vec<Mutex<HashMap<Ino, u64>>>,
}

impl InodeCounts {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, u64>> {
        self.shards[ino.0 as usize % SHARDS].lock()
    }

    /// Adds one.
    pub(crate) fn add(&self, ino: Ino) {
        *self.shard(ino).entry(ino).or_default() += 1;
    }

    /// Subtracts `count`. True: none is left.
    pub(crate) fn subtract(&self, ino: Ino, count: u64) -> bool {
        let mut shard = self.shard(ino);
        let Some(held) = shard.get_mut(&ino) else { return true };
        *held = held.saturating_sub(count);
        let none_left = *held == 0;
        if none_left {
            shard.remove(&ino);
        }
        none_left
    }

    /// The inodes that the kernel holds any of, in ascending order from `from` on.
    pub(crate) fn from(&self, from: Ino) -> Vec<Ino> {
        let all = self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>());
        let mut found: Vec<_> = all.filter(|ino| *ino >= from).collect();
        found.sort_unstable();
        found
    }

    /// Whether the kernel holds any.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.shard(ino).contains_key(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_held_until_everything_is_subtracted() {
        let counts = InodeCounts::new();
        counts.add(Ino(5));
        counts.add(Ino(5));
        counts.add(Ino(5 + SHARDS as u64));
        assert!(!counts.subtract(Ino(5), 1));
        assert!(counts.has(Ino(5)));
        assert!(counts.subtract(Ino(5), 1));
        assert!(!counts.has(Ino(5)));
        assert!(counts.has(Ino(5 + SHARDS as u64)));
    }

    #[test]
    fn subtracting_too_much_is_harmless() {
        let counts = InodeCounts::new();
        counts.add(Ino(5));
        assert!(counts.subtract(Ino(5), 7));
        assert!(counts.subtract(Ino(6), 1));
    }
}
