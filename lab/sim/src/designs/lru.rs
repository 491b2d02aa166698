//! Plain LRU of single fingerprints: the yardstick of SmartDedup's figure 8.

use lru::LruCache;
use oncefs_dedup::Pbn;

use super::design::Outcome;
use super::inline::{Index, Lookup};
use crate::trace::Content;

/// Memory per fingerprint in SmartDedup's store: 40 MB hold 1.3 million, tree included (section 3.2).
pub const FINGERPRINT_BYTES: u64 = 32;

/// The fingerprints used last.
pub struct LruIndex {
    order: LruCache<Content, Pbn>,
    entry_bytes: u64,
    /// How many it may hold.
    entries_allowed: usize,
    /// How many it held at most.
    entries_max: usize,
    evicted: u64,
}

impl LruIndex {
    /// As many entries of `entry_bytes` as fit into `memory` bytes.
    pub fn new(memory: u64, entry_bytes: u64) -> Self {
        let entries_allowed = (memory / entry_bytes) as usize;
        Self { order: LruCache::unbounded(), entry_bytes, entries_allowed, entries_max: 0, evicted: 0 }
    }
}

impl Index for LruIndex {
    fn find(&mut self, _position: usize, content: Content) -> Lookup {
        self.order.get(&content).map_or(Lookup::Missed, |pbn| Lookup::Found(*pbn))
    }

    fn insert(&mut self, content: Content, pbn: Pbn) {
        self.order.put(content, pbn);
        if self.order.len() > self.entries_allowed {
            self.order.pop_lru();
            self.evicted += 1;
        }
        self.entries_max = self.entries_max.max(self.order.len());
    }

    fn recount(&mut self, content: Content, pbn: Pbn, count: u32) {
        if count == 0 && self.order.peek(&content) == Some(&pbn) {
            self.order.pop(&content);
        }
    }

    /// Evicting one fingerprint reads its group on disk and writes it back (section 3.2).
    fn outcome(&self) -> Outcome {
        Outcome {
            memory_bytes: self.entries_max as u64 * self.entry_bytes,
            entries: self.order.len() as u64,
            disk_reads: self.evicted,
            disk_writes: self.evicted,
            eviction_ios: 2 * self.evicted,
            demoted: self.evicted,
            ..Outcome::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use oncefs_toolbox::Random;

    use super::*;
    use crate::designs::{Design, Inline};
    use crate::testing::replayed;

    /// Room for two fingerprints.
    fn two() -> Inline<LruIndex> {
        Inline::new(LruIndex::new(2 * 10, 10))
    }

    #[test]
    fn the_least_recently_used_fingerprint_leaves() {
        // 1 is used again before 3 comes, so 2 leaves.
        let outcome = replayed(&mut two(), &[1, 2, 1, 3, 1, 2]);
        assert_eq!((outcome.found_inline, outcome.demoted), (2, 2));
        // First in, first out would have kept 2.
        assert_eq!(replayed(&mut two(), &[1, 2, 1, 3, 2]).found_inline, 1);
    }

    #[test]
    fn it_forgets_exactly_what_a_list_by_last_use_forgets() {
        for seed in 0..10 {
            let mut random = Random::mixed(seed);
            let mut index = LruIndex::new(8 * 10, 10);
            // Oldest first.
            let mut list: Vec<(Content, Pbn)> = Vec::new();
            for step in 0..5_000 {
                let content = Content::numbered(random.scaled(16));
                let place = list.iter().position(|(listed, _)| *listed == content);
                let listed = place.map(|place| list.remove(place));
                match random.scaled(4) {
                    0 => listed.into_iter().for_each(|(_, pbn)| index.recount(content, pbn, 0)),
                    1 => {
                        let expected = listed.map_or(Lookup::Missed, |(_, pbn)| Lookup::Found(pbn));
                        assert_eq!(index.find(0, content), expected, "seed {seed}, step {step}");
                        list.extend(listed);
                    }
                    _ => {
                        let evicted = (list.len() == 8).then(|| list.remove(0));
                        let before = index.outcome().demoted;
                        index.insert(content, Pbn(step));
                        assert_eq!(index.outcome().demoted - before, u64::from(evicted.is_some()));
                        list.push((content, Pbn(step)));
                    }
                }
                assert_eq!(index.outcome().entries, list.len() as u64);
            }
        }
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let mut index = LruIndex::new(9, 10);
        index.insert(Content::numbered(1), Pbn(2));
        assert_eq!(index.find(0, Content::numbered(1)), Lookup::Missed);
        let Outcome { memory_bytes, entries, demoted, .. } = index.outcome();
        assert_eq!((memory_bytes, entries, demoted), (0, 0, 1));
    }

    #[test]
    fn each_eviction_is_a_read_and_a_write() {
        let outcome = replayed(&mut two(), &[1, 2, 3, 4]);
        assert_eq!((outcome.disk_reads, outcome.disk_writes, outcome.bytes_per_demoted()), (2, 2, 4096.0));
    }

    #[test]
    fn overwritten_contents_are_forgotten() {
        let mut design = two();
        replayed(&mut design, &[1]);
        // Overwrites the only holder of 1 by itself, then by 5: nothing is left to find.
        let outcome = replayed(&mut design, &[5]);
        assert_eq!((outcome.found_inline, outcome.stored, outcome.entries), (0, 1, 1));
        design.check();
    }
}
