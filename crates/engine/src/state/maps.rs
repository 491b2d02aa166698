//! Maps in memory: their locks, the ids of new ones, and their leaves. The leaves are those changed since the last
//! checkpoint, those being checkpointed, a bounded cache of clean ones, and redo for leaves that were not read since a
//! crash.
//!
//! A leaf is changed only under its map's lock, so it stays unchanged for the holder of that lock. Other threads may
//! load it too, and get its state at some moment of the call: a leaf read from the sorted state is taken in only if no
//! checkpoint has ended since (`generation`). A leaf that changes meanwhile stays in memory until a checkpoint ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use lru::LruCache;

use crate::MapId;
use crate::format::extent_leaf::{Extent, ExtentLeaf};
use crate::format::keys::LeafKey;
use crate::stats::counters::CacheReport;
use crate::sync::{AtomicU64, LockRank, RwLock, count_looks};

/// Leaves by key. An empty leaf stands for one that must be removed.
pub type LeafMap = BTreeMap<LeafKey, Arc<ExtentLeaf>>;

/// The log's changes to a leaf that is not in memory.
#[derive(Default)]
struct Redo {
    is_dropped: bool,
    extents: Vec<Extent>,
}

/// The layers of all maps.
pub struct Leaves {
    dirty: LeafMap,
    frozen: Arc<LeafMap>,
    clean: LruCache<LeafKey, Arc<ExtentLeaf>>,
    redo: BTreeMap<LeafKey, Redo>,
    dirty_bytes: u64,
    clean_bytes: usize,
    clean_bytes_max: usize,
    generation: u64,
    hits: u64,
    misses: u64,
}

impl Leaves {
    /// Empty layers. Clean leaves are kept up to `bytes_max`.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            dirty: BTreeMap::new(),
            frozen: Arc::default(),
            clean: LruCache::unbounded(),
            redo: BTreeMap::new(),
            dirty_bytes: 0,
            clean_bytes: 0,
            clean_bytes_max: bytes_max as usize,
            generation: 0,
            hits: 0,
            misses: 0,
        }
    }

    /// The leaf, if it is in memory.
    pub fn get(&mut self, key: LeafKey) -> Option<Arc<ExtentLeaf>> {
        count_looks(1);
        let found = self.dirty.get(&key).or_else(|| self.frozen.get(&key)).or_else(|| self.clean.get(&key));
        match found {
            Some(_) => self.hits += 1,
            None => self.misses += 1,
        }
        found.cloned()
    }

    /// If it is the same before and after a read of the sorted state, a leaf that is not in memory is as that read
    /// found it.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Takes in a leaf read from the sorted state (empty if it has none), and applies its redo. No checkpoint has
    /// ended since it was read.
    pub fn admit(&mut self, key: LeafKey, stored: ExtentLeaf) -> Arc<ExtentLeaf> {
        debug_assert!(!self.dirty.contains_key(&key) && !self.frozen.contains_key(&key), "{key:?} is in memory");
        let Some(redo) = self.redo.remove(&key) else {
            let leaf = Arc::new(stored);
            self.clean_bytes += leaf.memory_bytes();
            self.clean.put(key, leaf.clone());
            self.shrink();
            return leaf;
        };
        let mut leaf = if redo.is_dropped { ExtentLeaf::default() } else { stored };
        redo.extents.iter().for_each(|extent| leaf.set(*extent));
        let leaf = Arc::new(leaf);
        self.set(key, leaf.clone());
        leaf
    }

    /// Publishes a changed leaf.
    pub fn set(&mut self, key: LeafKey, leaf: Arc<ExtentLeaf>) {
        if let Some(clean) = self.clean.pop(&key) {
            self.clean_bytes -= clean.memory_bytes();
        }
        self.dirty_bytes += leaf.memory_bytes() as u64;
        if let Some(old) = self.dirty.insert(key, leaf) {
            self.dirty_bytes -= old.memory_bytes() as u64;
        }
    }

    /// Keeps a change for a leaf that is not in memory yet.
    pub fn add_redo(&mut self, key: LeafKey, extent: Extent) {
        self.redo.entry(key).or_default().extents.push(extent);
    }

    /// Keeps the removal of a leaf that is not in memory yet.
    pub fn add_redo_drop(&mut self, key: LeafKey) {
        self.redo.insert(key, Redo { is_dropped: true, extents: Vec::new() });
    }

    /// Some leaves that still wait for their redo.
    pub fn with_redo(&self, limit: usize) -> Vec<LeafKey> {
        self.redo.keys().take(limit).copied().collect()
    }

    /// Leaves of `map` from number `from` on that the sorted state may lack, in order, at most `limit`.
    pub fn in_memory(&self, map: MapId, from: u64, limit: usize) -> Vec<u64> {
        let keys = self.keys_from(LeafKey { map, leaf: from }, limit);
        keys.into_iter().filter(|key| key.map == map).map(|key| key.leaf).collect()
    }

    /// Keys at or after `from` of leaves that the sorted state may lack, in order, at most `limit`.
    pub fn keys_from(&self, from: LeafKey, limit: usize) -> Vec<LeafKey> {
        let dirty = self.dirty.range(from..).map(|(key, _)| *key).take(limit);
        let frozen = self.frozen.range(from..).map(|(key, _)| *key).take(limit);
        let redo = self.redo.range(from..).map(|(key, _)| *key).take(limit);
        let mut keys: Vec<LeafKey> = dirty.chain(frozen).chain(redo).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(limit);
        keys
    }

    /// Sets the changed leaves apart for a checkpoint.
    pub fn freeze(&mut self) -> Arc<LeafMap> {
        assert!(self.frozen.is_empty(), "one checkpoint at a time");
        assert!(self.redo.is_empty(), "redo of {} leaves is not applied", self.redo.len());
        self.dirty_bytes = 0;
        self.frozen = Arc::new(std::mem::take(&mut self.dirty));
        self.frozen.clone()
    }

    /// The frozen leaves are in the sorted state: they become clean.
    pub fn thaw(&mut self) {
        debug_assert!(self.redo.is_empty(), "redo of {} leaves came during a checkpoint", self.redo.len());
        self.generation += 1;
        for (key, leaf) in std::mem::take(&mut self.frozen).iter() {
            if !self.dirty.contains_key(key) {
                self.clean_bytes += leaf.memory_bytes();
                self.clean.put(*key, leaf.clone());
            }
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.clean_bytes > self.clean_bytes_max {
            let Some((_, leaf)) = self.clean.pop_lru() else { return };
            self.clean_bytes -= leaf.memory_bytes();
        }
    }

    /// Bytes of leaves that no checkpoint has taken yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// The extent cache's figures.
    pub fn report(&self) -> CacheReport {
        CacheReport {
            bytes: self.dirty_bytes + self.clean_bytes as u64,
            bytes_max: self.clean_bytes_max as u64,
            hits: self.hits,
            misses: self.misses,
        }
    }
}

/// Maps share this many locks; two maps on one lock only wait for each other.
const MAP_LOCKS: usize = 1024;

/// The locks of all maps, and the next id.
pub struct MapLocks {
    locks: Vec<RwLock<()>>,
    next: AtomicU64,
}

impl MapLocks {
    /// Locks for all maps. `next` is the first id to hand out.
    pub fn new(next: MapId) -> Self {
        Self {
            locks: (0..MAP_LOCKS as u64).map(|number| RwLock::numbered(LockRank::Map, number, ())).collect(),
            next: AtomicU64::new(next.0),
        }
    }

    /// The lock of a map: shared for look-ups, exclusive for changes.
    pub fn lock(&self, map: MapId) -> &RwLock<()> {
        &self.locks[Self::index_of(map)]
    }

    /// Which lock a map has. Two maps are locked in the order of this number.
    pub fn index_of(map: MapId) -> usize {
        map.0 as usize % MAP_LOCKS
    }

    /// Hands out an id that no map had before.
    pub fn take_id(&self) -> MapId {
        MapId(self.next.fetch_add(1, Relaxed))
    }

    /// Never hands out an id below `next` from now on.
    pub fn skip_to(&self, next: MapId) {
        self.next.fetch_max(next.0, Relaxed);
        debug_assert!(self.next_id() >= next, "ids below {next:?} are not handed out");
    }

    /// The id that the next map gets.
    pub fn next_id(&self) -> MapId {
        MapId(self.next.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pbn;
    use crate::format::extent_leaf::Target;

    fn extent(first: u16, pbn: u64) -> Extent {
        Extent { first, blocks: 1, target: Target::Data(Pbn(pbn)) }
    }

    fn key(leaf: u64) -> LeafKey {
        LeafKey { map: MapId(1), leaf }
    }

    #[test]
    fn redo_is_applied_on_top_of_the_stored_leaf_unless_it_was_dropped() {
        let mut leaves = Leaves::new(1 << 20);
        let mut stored = ExtentLeaf::default();
        stored.set(extent(0, 10));
        leaves.add_redo(key(0), extent(1, 99));
        assert_eq!(leaves.admit(key(0), stored.clone()).mapped_blocks(), 2);
        leaves.add_redo_drop(key(1));
        leaves.add_redo(key(1), extent(5, 7));
        assert_eq!(leaves.admit(key(1), stored).extents(), [extent(5, 7)]);
    }

    #[test]
    fn a_map_s_leaves_are_found_in_every_layer() {
        let mut leaves = Leaves::new(1 << 20);
        let mut leaf = ExtentLeaf::default();
        leaf.set(extent(0, 10));
        leaves.set(key(7), Arc::new(leaf.clone()));
        leaves.freeze();
        leaves.set(key(3), Arc::new(leaf));
        leaves.add_redo(key(5), extent(0, 1));
        assert_eq!(leaves.in_memory(MapId(1), 0, 9), [3, 5, 7]);
        assert_eq!(leaves.in_memory(MapId(1), 4, 1), [5]);
        assert!(leaves.in_memory(MapId(2), 0, 9).is_empty());
    }
}
