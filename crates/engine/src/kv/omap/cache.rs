//! Records that were read or written lately, also those that are known to be missing. Two generations: a record that is
//! used moves to the young one, and when that has half of the memory, it becomes the old one, which goes.

use hashbrown::HashMap;
use oncefs_rados::Pair;

use super::terms::Changes;
use crate::kv::KvMemory;

/// Bytes of an entry beside its key and its value, about.
const ENTRY_BYTES: u64 = 96;

type Entries = HashMap<Vec<u8>, Option<Vec<u8>>>;

/// The cache.
pub struct Cache {
    young: Entries,
    old: Entries,
    young_bytes: u64,
    old_bytes: u64,
    bytes_max: u64,
    hits: u64,
    misses: u64,
    generation: u64,
}

impl Cache {
    /// An empty cache of at most this size.
    pub fn new(bytes_max: u64) -> Self {
        let (young, old) = (Entries::new(), Entries::new());
        Self { young, old, young_bytes: 0, old_bytes: 0, bytes_max, hits: 0, misses: 0, generation: 0 }
    }

    /// The known value of a record. None: nothing is known.
    pub fn get(&mut self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let mut known = self.young.get(key).cloned();
        if known.is_none()
            && let Some((key, value)) = self.old.remove_entry(key)
        {
            self.old_bytes -= bytes_of(&key, value.as_deref());
            known = Some(value.clone());
            self.insert(key, value);
        }
        *(if known.is_some() { &mut self.hits } else { &mut self.misses }) += 1;
        known
    }

    /// A number that changes whenever records change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Takes in records that were read since the cache had this generation, and `key`, which is missing if it is not
    /// among them. If records changed since, what was read may be out of date.
    pub fn admit(&mut self, generation: u64, key: &[u8], found: Vec<Pair>) {
        if generation != self.generation {
            return;
        }
        if found.first().is_none_or(|(first, _)| first != key) {
            self.insert(key.to_vec(), None);
        }
        found.into_iter().for_each(|(key, value)| self.insert(key, Some(value)));
    }

    /// Records change.
    pub fn forget<'a>(&mut self, keys: impl Iterator<Item = &'a Vec<u8>>) {
        self.generation += 1;
        keys.for_each(|key| self.remove(key));
    }

    /// Changes became durable.
    pub fn take_landed(&mut self, changes: Changes) {
        self.generation += 1;
        for (key, value) in changes {
            self.insert(key, value);
        }
    }

    /// Memory taken, hits and misses.
    pub fn memory(&self) -> KvMemory {
        let Self { young_bytes, old_bytes, bytes_max, hits, misses, .. } = *self;
        KvMemory { bytes: young_bytes + old_bytes, bytes_max, hits, misses }
    }

    fn insert(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.remove(&key);
        self.young_bytes += bytes_of(&key, value.as_deref());
        self.young.insert(key, value);
        if self.young_bytes > self.bytes_max / 2 {
            self.old = std::mem::take(&mut self.young);
            self.old_bytes = std::mem::take(&mut self.young_bytes);
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(value) = self.young.remove(key) {
            self.young_bytes -= bytes_of(key, value.as_deref());
        }
        if let Some(value) = self.old.remove(key) {
            self.old_bytes -= bytes_of(key, value.as_deref());
        }
    }
}

fn bytes_of(key: &[u8], value: Option<&[u8]>) -> u64 {
    ENTRY_BYTES + key.len() as u64 + value.map_or(0, |value| value.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(cache: &mut Cache, n: u8) {
        cache.admit(cache.generation(), &[n], vec![(vec![n], vec![n; 3])]);
    }

    #[test]
    fn the_cache_stays_within_its_memory_and_keeps_what_is_used() {
        let mut cache = Cache::new(1000);
        for n in 0..50 {
            admit(&mut cache, n);
            assert_eq!(cache.get(&[0]), Some(Some(vec![0; 3])), "after {n}");
            assert!(cache.memory().bytes <= 1000, "{} bytes", cache.memory().bytes);
        }
        assert_eq!(cache.get(&[1]), None);
        assert_eq!((cache.memory().hits, cache.memory().misses), (50, 1));
    }

    #[test]
    fn what_was_read_before_a_change_is_not_taken_in() {
        let mut cache = Cache::new(1000);
        let before = cache.generation();
        cache.forget([vec![1]].iter());
        cache.admit(before, &[1], vec![(vec![1], vec![9])]);
        assert_eq!(cache.get(&[1]), None);
        cache.take_landed([(vec![1], Some(vec![2])), (vec![3], None)].into());
        assert_eq!((cache.get(&[1]), cache.get(&[3])), (Some(Some(vec![2])), Some(None)));
        cache.admit(cache.generation(), &[4], vec![(vec![5], vec![5])]);
        assert_eq!((cache.get(&[4]), cache.get(&[5])), (Some(None), Some(Some(vec![5]))), "the first is missing");
    }
}
