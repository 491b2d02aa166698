//! A map that forgets what was used least recently, exactly.

use std::hash::Hash;

use hashbrown::HashMap;

const NONE: u32 = u32::MAX;

/// Keys with values in the order of their last use, at most `entries_max` of them.
pub struct Lru<K, V> {
    slots: HashMap<K, u32>,
    entries: Vec<Entry<K, V>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    entries_max: usize,
}

struct Entry<K, V> {
    key: K,
    value: V,
    newer: u32,
    older: u32,
}

impl<K: Hash + Eq + Copy, V: Copy> Lru<K, V> {
    /// An empty one. With `entries_max` 0 it keeps nothing.
    pub fn new(entries_max: usize) -> Self {
        let (slots, entries, free) = (HashMap::new(), Vec::new(), Vec::new());
        Self { slots, entries, free, newest: NONE, oldest: NONE, entries_max }
    }

    /// Entries held.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The value, without using it.
    pub fn peek(&self, key: &K) -> Option<V> {
        self.slots.get(key).map(|slot| self.entries[*slot as usize].value)
    }

    /// The value, which counts as a use.
    pub fn get(&mut self, key: &K) -> Option<V> {
        let slot = *self.slots.get(key)?;
        self.unlink(slot);
        self.link_newest(slot);
        Some(self.entries[slot as usize].value)
    }

    /// Sets a value, which counts as a use. Returns what had to leave for it: with no room at all, the entry itself.
    pub fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        if let Some(slot) = self.slots.get(&key).copied() {
            self.entries[slot as usize].value = value;
            self.unlink(slot);
            self.link_newest(slot);
            return None;
        }
        if self.entries_max == 0 {
            return Some((key, value));
        }
        let evicted = if self.len() == self.entries_max { self.remove_oldest() } else { None };
        let entry = Entry { key, value, newer: NONE, older: NONE };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 entries fit into memory")
            }
        };
        self.slots.insert(key, slot);
        self.link_newest(slot);
        evicted
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let slot = self.slots.remove(key)?;
        self.unlink(slot);
        self.free.push(slot);
        Some(self.entries[slot as usize].value)
    }

    /// Forgets what was used least recently.
    pub fn remove_oldest(&mut self) -> Option<(K, V)> {
        let key = self.entries.get(self.oldest as usize)?.key;
        self.remove(&key).map(|value| (key, value))
    }

    fn unlink(&mut self, slot: u32) {
        let Entry { newer, older, .. } = self.entries[slot as usize];
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let before = std::mem::replace(&mut self.newest, slot);
        let entry = &mut self.entries[slot as usize];
        (entry.newer, entry.older) = (NONE, before);
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.newer = slot,
            None => self.oldest = slot,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn it_forgets_exactly_what_a_list_by_last_use_forgets() {
        for seed in 0..10 {
            let mut random = Random::new(seed);
            let mut lru = Lru::new(8);
            // Oldest first.
            let mut list: Vec<(u64, u64)> = Vec::new();
            for step in 0..5_000 {
                let key = random.below(16);
                let place = list.iter().position(|(listed, _)| *listed == key);
                let listed = place.map(|place| list.remove(place));
                match random.below(4) {
                    0 => assert_eq!(lru.remove(&key), listed.map(|entry| entry.1)),
                    1 => {
                        assert_eq!(lru.get(&key), listed.map(|entry| entry.1));
                        list.extend(listed);
                    }
                    _ => {
                        let evicted = (list.len() == 8).then(|| list.remove(0));
                        assert_eq!(lru.insert(key, step), evicted, "seed {seed}, step {step}");
                        list.push((key, step));
                    }
                }
                assert_eq!(lru.len(), list.len());
            }
        }
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let mut lru = Lru::new(0);
        assert_eq!(lru.insert(1, 2), Some((1, 2)));
        assert!(lru.is_empty() && lru.remove_oldest().is_none());
    }
}
