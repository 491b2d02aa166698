//! Plain LRU of single fingerprints: the yardstick of SmartDedup's figure 8.

use oncefs_dedup::Pbn;

use super::Outcome;
use super::inline::{Index, Lookup};
use crate::lru::Lru;
use crate::trace::Content;

/// Memory per fingerprint in SmartDedup's store: 40 MB hold 1.3 million, tree included (section 3.2).
pub const FINGERPRINT_BYTES: u64 = 32;

/// The fingerprints used last.
pub struct LruIndex {
    order: Lru<Content, Pbn>,
    entry_bytes: u64,
    entries_max: usize,
    evicted: u64,
}

impl LruIndex {
    /// As many entries of `entry_bytes` as fit into `memory` bytes.
    pub fn new(memory: u64, entry_bytes: u64) -> Self {
        let order = Lru::new((memory / entry_bytes) as usize);
        Self { order, entry_bytes, entries_max: 0, evicted: 0 }
    }
}

impl Index for LruIndex {
    fn find(&mut self, _position: usize, content: Content) -> Lookup {
        self.order.get(&content).map_or(Lookup::Missed, Lookup::Found)
    }

    fn insert(&mut self, content: Content, pbn: Pbn) {
        self.evicted += u64::from(self.order.insert(content, pbn).is_some());
        self.entries_max = self.entries_max.max(self.order.len());
    }

    fn recount(&mut self, content: Content, pbn: Pbn, count: u32) {
        if count == 0 && self.order.peek(&content) == Some(pbn) {
            self.order.remove(&content);
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
