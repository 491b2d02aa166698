//! One lock for each map, and the ids of new maps.

use std::sync::atomic::Ordering::Relaxed;

use crate::MapId;
use crate::sync::{AtomicU64, LockRank, RwLock};

/// Maps share this many locks; two maps on one lock only wait for each other.
const MAP_LOCKS: usize = 1024;

/// The locks of all maps, and the next id.
pub struct MapLocks {
    locks: Vec<RwLock<()>>,
    next: AtomicU64,
}

impl MapLocks {
    /// Locks for all maps; `next` is the first id to hand out.
    pub fn new(next: MapId) -> Self {
        Self {
            locks: (0..MAP_LOCKS as u64).map(|number| RwLock::numbered(LockRank::Map, number, ())).collect(),
            next: AtomicU64::new(next.0),
        }
    }

    /// The lock of a map: shared to look up, exclusive to change.
    pub fn lock(&self, map: MapId) -> &RwLock<()> {
        &self.locks[Self::index_of(map)]
    }

    /// Which lock a map has: two maps are locked in the order of this number.
    pub fn index_of(map: MapId) -> usize {
        map.0 as usize % MAP_LOCKS
    }

    /// Hands out an id that no map had before.
    pub fn take_id(&self) -> MapId {
        MapId(self.next.fetch_add(1, Relaxed))
    }

    /// Hands out no id below `next` from now on.
    pub fn skip_to(&self, next: MapId) {
        self.next.fetch_max(next.0, Relaxed);
        debug_assert!(self.next_id() >= next, "ids below {next:?} are not handed out");
    }

    /// The id that the next map gets.
    pub fn next_id(&self) -> MapId {
        MapId(self.next.load(Relaxed))
    }
}
