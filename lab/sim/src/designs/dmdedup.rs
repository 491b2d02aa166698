//! Dmdedup (OLS'14) with its copy-on-write B-tree from hash to pbn, in two readings.
//!
//! [`dmdedup_in_memory`]: what SmartDedup's section 4.2 compares, an index that has to fit into the memory allowed; the
//! fingerprints used last stay. [`DmdedupTree`]: as it is built, the whole tree on disk and the memory a cache of its
//! nodes; every look-up whose leaf is not cached reads it.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use lru::LruCache;
use oncefs_dedup::Pbn;

use super::design::Outcome;
use super::inline::{Index, Lookup};
use super::lru::LruIndex;
use crate::trace::Content;

/// A node, and the unit of reading and writing.
const NODE_BYTES: u64 = 4096;
/// An MD5 and an 8-byte pbn.
const KEY_VALUE_BYTES: u64 = 24;
/// Entries that a leaf holds.
const LEAF_ENTRIES: u64 = NODE_BYTES / KEY_VALUE_BYTES;
/// Memory per entry of a tree whose nodes are 69 % full, as those of a B-tree with random keys are (ln 2).
const ENTRY_BYTES: u64 = 35;
/// Writes after which changed nodes are written: Dmdedup's `flushrq` in its own examples.
const FLUSH_REQUESTS: u64 = 100;

/// The tree limited to `memory` bytes; it keeps what was used last.
pub fn dmdedup_in_memory(memory: u64) -> LruIndex {
    LruIndex::new(memory, ENTRY_BYTES)
}

/// The tree on disk behind a cache of leaves. In its favour, inner nodes take no memory and are never read, and of the
/// path that copy-on-write rewrites above each changed leaf only the root is counted.
pub struct DmdedupTree {
    pbns: HashMap<Content, Pbn>,
    /// By the least key of each leaf: its entries.
    leaves: BTreeMap<u128, u64>,
    /// Leaves in memory; true: changed since they were written.
    cache: LruCache<u128, bool>,
    cache_leaves: u64,
    requests: u64,
    reads: u64,
    writes: u64,
}

impl DmdedupTree {
    /// An empty tree, and a cache of as many leaves as fit into `memory` bytes, at least one.
    pub fn new(memory: u64) -> Self {
        let cache_leaves = (memory / NODE_BYTES).max(1);
        let (pbns, cache) = (HashMap::new(), LruCache::unbounded());
        let leaves = BTreeMap::from([(0, 0)]);
        Self { pbns, leaves, cache, cache_leaves, requests: 0, reads: 0, writes: 0 }
    }

    fn leaf_of(&self, content: Content) -> u128 {
        *self.leaves.range(..=content.0).next_back().expect("the first leaf begins at 0").0
    }

    /// Brings the content's leaf into memory.
    fn load(&mut self, content: Content) -> u128 {
        let leaf = self.leaf_of(content);
        if self.cache.get(&leaf).is_none() {
            self.reads += 1;
            self.keep(leaf, false);
        }
        leaf
    }

    fn keep(&mut self, leaf: u128, is_changed: bool) {
        self.cache.put(leaf, is_changed);
        if self.cache.len() as u64 > self.cache_leaves {
            let evicted = self.cache.pop_lru();
            self.writes += u64::from(evicted.is_some_and(|(_, was_changed)| was_changed));
        }
    }

    fn change(&mut self, content: Content, entries: impl FnOnce(u64) -> u64) {
        let leaf = self.load(content);
        self.keep(leaf, true);
        let held = self.leaves.get_mut(&leaf).expect("a loaded leaf exists");
        *held = entries(*held);
        if *held > LEAF_ENTRIES {
            self.split(leaf);
        }
    }

    /// Cuts a leaf's range in two. Its keys are hashes, so each half holds half of them, nearly.
    fn split(&mut self, leaf: u128) {
        let end = self.leaves.range(leaf + 1..).next().map_or(u128::MAX, |(next, _)| *next);
        let middle = leaf + (end - leaf) / 2;
        let held = self.leaves.insert(leaf, LEAF_ENTRIES / 2).expect("the leaf exists");
        self.leaves.insert(middle, held - LEAF_ENTRIES / 2);
        self.keep(middle, true);
    }

    /// Writes all changed leaves, and the root.
    fn flush(&mut self) {
        let mut kept = Vec::new();
        let mut changed = 0;
        while let Some((leaf, is_changed)) = self.cache.pop_lru() {
            changed += u64::from(is_changed);
            kept.push(leaf);
        }
        kept.into_iter().for_each(|leaf| self.keep(leaf, false));
        self.writes += changed + u64::from(changed > 0);
    }
}

impl Index for DmdedupTree {
    fn begin(&mut self, _contents: &[Content]) {
        self.requests += 1;
        if self.requests.is_multiple_of(FLUSH_REQUESTS) {
            self.flush();
        }
    }

    fn find(&mut self, _position: usize, content: Content) -> Lookup {
        self.load(content);
        self.pbns.get(&content).map_or(Lookup::Missed, |pbn| Lookup::Found(*pbn))
    }

    fn insert(&mut self, content: Content, pbn: Pbn) {
        self.pbns.insert(content, pbn);
        self.change(content, |entries| entries + 1);
    }

    fn recount(&mut self, content: Content, _pbn: Pbn, count: u32) {
        if count == 0 && self.pbns.remove(&content).is_some() {
            self.change(content, |entries| entries.saturating_sub(1));
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            memory_bytes: self.cache_leaves * NODE_BYTES,
            entries: self.pbns.len() as u64,
            disk_reads: self.reads,
            disk_writes: self.writes,
            ..Outcome::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::{Design, Inline};
    use crate::testing::replayed;

    #[test]
    fn in_memory_it_holds_one_entry_per_35_bytes() {
        let cycle: Vec<u64> = (0..10).chain(0..10).collect();
        assert_eq!(replayed(&mut Inline::new(dmdedup_in_memory(10 * ENTRY_BYTES)), &cycle).found_inline, 10);
        assert_eq!(replayed(&mut Inline::new(dmdedup_in_memory(9 * ENTRY_BYTES)), &cycle).found_inline, 0);
    }

    #[test]
    fn the_tree_on_disk_finds_everything_and_pays_in_reads() {
        let numbers: Vec<u64> = (0..5_000).chain(0..5_000).collect();
        let replay = |memory| {
            let mut design = Inline::new(DmdedupTree::new(memory));
            let outcome = replayed(&mut design, &numbers);
            design.check();
            assert_eq!(outcome.found_inline, 5_000);
            outcome
        };
        let (large, small) = (replay(1 << 20), replay(2 * NODE_BYTES));
        // Everything cached: only the first leaf of all is read.
        assert_eq!(large.disk_reads, 1);
        assert!(small.disk_reads > 8_000, "{} reads", small.disk_reads);
        assert!(small.disk_writes > large.disk_writes);
    }

    #[test]
    fn leaves_split_so_that_none_is_over_full() {
        let mut tree = DmdedupTree::new(1 << 20);
        for number in 0..20_000 {
            tree.insert(Content::numbered(number), Pbn(number));
        }
        assert!(tree.leaves.values().all(|entries| *entries <= LEAF_ENTRIES));
        assert_eq!(tree.leaves.values().sum::<u64>(), 20_000);
        let fill = 20_000.0 / (tree.leaves.len() as f64 * LEAF_ENTRIES as f64);
        assert!((0.5..0.9).contains(&fill), "leaves are {fill} full");
    }
}
