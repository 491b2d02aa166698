//! The inode cache: at most one `Inode` in memory for each number. Bounded; inodes in use stay.
//!
//! On a miss one thread loads the inode without the cache's lock. Only threads that ask for the same inode wait for it.
//!
//! Numbered invariants:
//! 1. While anything holds an `Arc<Inode>` of a number, the cache holds the same one. So its lock excludes all other work
//!    on that inode.
//! 2. A cached inode equals the newest published record, except while its lock is held. The times of an orphan that
//!    `Orphans` holds may differ too.
//! 3. The eviction queue of a shard has every cached inode at least once.
//! 4. An inode that is being loaded is not cached and has no `Arc`, so no thread can change its record meanwhile.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use oncefs_engine::sync::{Condvar, LockRank, Mutex, MutexGuard};
use oncefs_engine::{CacheReport, MapId};

use crate::format::inode::InodeRecord;
use crate::{Error, FileKind, Ino, Result};

/// Shards with a lock each, so that threads seldom contend; a power of two.
const SHARDS: usize = 64;
const _: () = assert!(SHARDS.is_power_of_two(), "shards are found by a mask");

/// Memory of a cached inode: the record, its lock and counts, a slot of the table and one of the queue.
const INODE_BYTES: u64 = 320;

/// Inodes per shard, at least: a small budget must still hold the inodes of the operations under way.
const SHARD_INODES_MIN: usize = 8;

/// Eviction candidates tried for each inode added to a full shard. Inodes in use are skipped.
const EVICTION_STEPS: usize = 4;

/// An inode in memory.
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    record: Mutex<InodeRecord>,
    /// How often the content was changed while the inode was in memory.
    content_changes: AtomicU64,
}

impl Inode {
    pub(crate) fn lock(&self) -> MutexGuard<'_, InodeRecord> {
        self.record.lock()
    }

    /// How often the content has been changed while the inode was in memory. The caller keeps it there between two
    /// calls.
    pub(crate) fn content_changes(&self) -> u64 {
        self.content_changes.load(Relaxed)
    }

    /// Counts a change of the content. Called with the map locked, so that a thread that holds this lock sees all of
    /// them.
    pub(crate) fn count_content_change(&self) {
        self.content_changes.fetch_add(1, Relaxed);
    }

    /// The map that holds a regular file's blocks, and the file's size in bytes. Truncating a file to zero detaches its
    /// map and gives it a new one.
    pub(crate) fn map_and_size(&self) -> Result<(MapId, u64)> {
        let record = self.lock();
        match record.kind {
            FileKind::Regular => Ok((record.map, record.size)),
            FileKind::Directory => Err(Error::IsADirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// Calls `operation` with the map and the size of a regular file. Calls it again if the map was detached meanwhile,
    /// or if the change became too large for its commit group.
    pub(crate) fn with_map<T>(&self, mut operation: impl FnMut(MapId, u64) -> Result<T>) -> Result<T> {
        loop {
            let (map, size) = self.map_and_size()?;
            match operation(map, size) {
                // A deleted file keeps its detached map, so a retry would never end.
                Err(Error::Stale) if self.map_and_size()?.0 != map => {}
                Err(Error::Engine(oncefs_engine::Error::TooLargeForGroup)) => {}
                result => return result,
            }
        }
    }
}

#[derive(Default)]
struct Shard {
    inodes: HashMap<Ino, Slot>,
    /// Candidates for eviction, oldest first: every cached inode, and some that were removed.
    queue: VecDeque<Ino>,
    /// Inodes that a thread is loading.
    loading: HashSet<Ino>,
}

struct Slot {
    inode: Arc<Inode>,
    /// Whether there was a hit since the inode was last a candidate.
    recent: bool,
}

pub(crate) struct InodeCache {
    shards: Vec<Mutex<Shard>>,
    /// For each shard: signals that a load succeeded or failed.
    loaded: Vec<Condvar>,
    shard_inodes_max: usize,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl InodeCache {
    pub(crate) fn new(memory_bytes_max: u64) -> Self {
        let inodes_max = usize::try_from(memory_bytes_max / INODE_BYTES).unwrap_or(usize::MAX);
        let shard_inodes_max = (inodes_max / SHARDS).max(SHARD_INODES_MIN);
        assert!(shard_inodes_max > EVICTION_STEPS, "{shard_inodes_max} inodes per shard leave no room to evict");
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(LockRank::InodeCache, Shard::default())).collect(),
            loaded: (0..SHARDS).map(|_| Condvar::default()).collect(),
            shard_inodes_max,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn shard(&self, ino: Ino) -> MutexGuard<'_, Shard> {
        self.shards[ino.0 as usize % SHARDS].lock()
    }

    /// The inode `ino`. `load` reads its record, without a lock of the cache: it may take as long as the disk does.
    pub(crate) fn get(&self, ino: Ino, load: impl FnOnce() -> Result<InodeRecord>) -> Result<Arc<Inode>> {
        let loaded = &self.loaded[ino.0 as usize % SHARDS];
        let mut shard = self.shard(ino);
        loop {
            if let Some(slot) = shard.inodes.get_mut(&ino) {
                slot.recent = true;
                self.hits.fetch_add(1, Relaxed);
                return Ok(slot.inode.clone());
            }
            if shard.loading.insert(ino) {
                break;
            }
            loaded.wait(&mut shard);
        }
        drop(shard);
        self.misses.fetch_add(1, Relaxed);
        let record = load();
        let mut shard = self.shard(ino);
        let was_loading = shard.loading.remove(&ino);
        assert!(was_loading, "inode {} was loaded by two threads", ino.0);
        loaded.notify_all();
        // The inode was created after this thread looked for it.
        if let Some(slot) = shard.inodes.get(&ino) {
            return Ok(slot.inode.clone());
        }
        Ok(shard.add(ino, record?, self.shard_inodes_max))
    }

    /// Adds an inode that is about to be published. Nothing else knows its number until then.
    pub(crate) fn add(&self, ino: Ino, record: InodeRecord) {
        self.shard(ino).add(ino, record, self.shard_inodes_max);
    }

    /// Removes a deleted inode, or one whose publication failed.
    pub(crate) fn remove(&self, ino: Ino) {
        self.shard(ino).remove(ino);
    }

    pub(crate) fn report(&self) -> CacheReport {
        let inodes: usize = self.shards.iter().map(|shard| shard.lock().inodes.len()).sum();
        CacheReport {
            bytes: inodes as u64 * INODE_BYTES,
            bytes_max: (self.shard_inodes_max * SHARDS) as u64 * INODE_BYTES,
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
        }
    }
}

impl Shard {
    fn add(&mut self, ino: Ino, record: InodeRecord, inodes_max: usize) -> Arc<Inode> {
        if self.inodes.len() >= inodes_max {
            self.evict();
        }
        let inode = Arc::new(Inode {
            ino,
            record: Mutex::numbered(LockRank::Inode, ino.0, record),
            content_changes: AtomicU64::new(0),
        });
        self.inodes.insert(ino, Slot { inode: inode.clone(), recent: false });
        self.queue.push_back(ino);
        debug_assert!(
            self.queue.len() >= self.inodes.len(),
            "{} inodes, {} queued",
            self.inodes.len(),
            self.queue.len()
        );
        inode
    }

    fn remove(&mut self, ino: Ino) {
        self.inodes.remove(&ino);
        if self.queue.len() > 2 * self.inodes.len() + SHARD_INODES_MIN {
            self.queue.retain(|queued| self.inodes.contains_key(queued));
        }
    }

    /// Evicts an inode that is neither in use nor recently hit. Evicts none if all candidates tried are.
    fn evict(&mut self) {
        debug_assert!(
            self.queue.len() >= self.inodes.len(),
            "{} inodes, {} queued",
            self.inodes.len(),
            self.queue.len()
        );
        for _ in 0..EVICTION_STEPS {
            let Some(ino) = self.queue.pop_front() else { return };
            let Some(slot) = self.inodes.get_mut(&ino) else { continue };
            // An Arc with one owner gets others only through this shard, whose lock is held.
            if Arc::strong_count(&slot.inode) == 1 && !slot.recent {
                self.inodes.remove(&ino);
                return;
            }
            slot.recent = false;
            self.queue.push_back(ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, Timestamp};

    fn record(size: u64) -> InodeRecord {
        let caller = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };
        InodeRecord { size, ..InodeRecord::new(FileKind::Regular, 0o644, &caller, Timestamp::default(), 0) }
    }

    #[test]
    fn an_inode_is_loaded_once_while_it_is_cached() {
        let cache = InodeCache::new(1 << 20);
        let first = cache.get(Ino(5), || Ok(record(1))).unwrap();
        let second = cache.get(Ino(5), || panic!("loaded again")).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let report = cache.report();
        assert_eq!((report.hits, report.misses, report.bytes), (1, 1, INODE_BYTES));
    }

    #[test]
    fn while_an_inode_is_loaded_others_are_found_and_whoever_asks_for_it_gets_the_same_one() {
        let cache = InodeCache::new(1 << 20);
        let same_shard = Ino(5 + SHARDS as u64);
        let (asks, is_asked) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let first = cache
                .get(Ino(5), || {
                    cache.get(same_shard, || Ok(record(7))).unwrap();
                    let second = scope.spawn(|| {
                        asks.send(()).unwrap();
                        cache.get(Ino(5), || panic!("loaded again"))
                    });
                    is_asked.recv().unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    assert!(!second.is_finished(), "there is nothing to give it yet");
                    Ok(record(1))
                })
                .unwrap();
            assert!(Arc::ptr_eq(&first, &cache.get(Ino(5), || panic!("loaded again")).unwrap()));
        });
        assert_eq!(cache.report().misses, 2);
    }

    #[test]
    fn a_failed_load_leaves_nothing_behind() {
        let cache = InodeCache::new(1 << 20);
        assert!(cache.get(Ino(5), || Err(Error::Stale)).is_err());
        assert_eq!(cache.get(Ino(5), || Ok(record(2))).unwrap().lock().size, 2);
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_in_use() {
        let cache = InodeCache::new(0);
        let held = cache.get(Ino(1), || Ok(record(1))).unwrap();
        for number in 2..10_000 {
            cache.get(Ino(number), || Ok(record(0))).unwrap();
        }
        assert!(cache.report().bytes <= cache.report().bytes_max);
        let again = cache.get(Ino(1), || panic!("evicted while in use")).unwrap();
        assert!(Arc::ptr_eq(&held, &again));
    }

    #[test]
    fn creating_and_removing_forever_takes_no_memory() {
        let cache = InodeCache::new(0);
        for number in 1..100_000 {
            cache.add(Ino(number), record(0));
            cache.remove(Ino(number));
        }
        let queued: usize = cache.shards.iter().map(|shard| shard.lock().queue.len()).sum();
        assert!(queued <= SHARDS * (SHARD_INODES_MIN + 1), "{queued} queued");
    }
}
