//! CAFTL (FAST'11) as SmartDedup's section 4.1 describes and compares it: sampling, CRC32 pre-hash, and eviction of
//! the fingerprint with the fewest references.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use lru::LruCache;
use oncefs_dedup::Pbn;

use super::design::Outcome;
use super::inline::{Index, Lookup};
use crate::trace::Content;

/// A fingerprint of 16 bytes (MD5, as SmartDedup's comparison uses), an address of 4 and a count of 1. CAFTL sorts its
/// entries in buckets, so links and tree are taken to cost nothing.
const ENTRY_BYTES: u64 = 21;
/// A CRC32 of the pre-hash's table.
const PREHASH_BYTES: u64 = 4;
/// Share of the memory that the pre-hash's table may take: half. The paper does not say.
const PREHASH_SHARE: u64 = 2;

/// Which of CAFTL's techniques are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaftlOptions {
    /// Memory for fingerprints and pre-hashes, bytes.
    pub memory: u64,
    /// Of a request of several blocks one is fingerprinted, and the others only if it is found.
    pub sampling: bool,
    /// A block is fingerprinted only if its CRC32 was seen before.
    pub prehash: bool,
}

/// CAFTL's fingerprint store.
pub struct Caftl {
    sampling: bool,
    prehashes: Option<LruCache<u32, ()>>,
    prehashes_max: usize,
    entries: HashMap<Content, Entry>,
    /// Fewest references first, among equals the oldest.
    order: BTreeSet<(u32, u64, Content)>,
    entries_max: usize,
    next: u64,
    /// The block of the current request that alone is looked up.
    sample: Option<usize>,
    memory_bytes: u64,
    evicted: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    pbn: Pbn,
    count: u32,
    number: u64,
}

impl Caftl {
    /// An empty store.
    pub fn new(options: CaftlOptions) -> Self {
        let prehash_bytes = if options.prehash { options.memory / PREHASH_SHARE } else { 0 };
        let prehashes = options.prehash.then(LruCache::unbounded);
        let prehashes_max = (prehash_bytes / PREHASH_BYTES) as usize;
        let entries_max = ((options.memory - prehash_bytes) / ENTRY_BYTES) as usize;
        let (entries, order) = (HashMap::new(), BTreeSet::new());
        let sampling = options.sampling;
        Self {
            sampling,
            prehashes,
            prehashes_max,
            entries,
            order,
            entries_max,
            next: 0,
            sample: None,
            memory_bytes: 0,
            evicted: 0,
        }
    }

    /// Whether the block's CRC32 was seen before; from now on it was. The store knows that of its own entries.
    fn passes_prehash(&mut self, content: Content) -> bool {
        let Some(prehashes) = &mut self.prehashes else { return true };
        // 32 bits of the content's identity collide as often as a CRC32 of different contents does.
        let prehash = content.tag().0 as u32;
        let passes = prehashes.get(&prehash).is_some() || self.entries.contains_key(&content);
        prehashes.put(prehash, ());
        if prehashes.len() > self.prehashes_max {
            prehashes.pop_lru();
        }
        passes
    }

    fn forget(&mut self, content: Content) {
        if let Some(entry) = self.entries.remove(&content) {
            self.order.remove(&(entry.count, entry.number, content));
        }
    }

    fn measure(&mut self) {
        let prehashes = self.prehashes.as_ref().map_or(0, |prehashes| prehashes.len() as u64 * PREHASH_BYTES);
        self.memory_bytes = self.memory_bytes.max(prehashes + self.entries.len() as u64 * ENTRY_BYTES);
    }
}

impl Index for Caftl {
    /// The sample is the block with the greatest leading bytes, so that equal requests have equal samples.
    fn begin(&mut self, contents: &[Content]) {
        let sample = (0..contents.len()).max_by_key(|at| contents[*at]);
        let wants_sample = self.sampling && contents.len() > 1;
        let is_known = |at: &usize| self.entries.contains_key(&contents[*at]);
        self.sample = sample.filter(|at| wants_sample && !is_known(at));
    }

    fn find(&mut self, position: usize, content: Content) -> Lookup {
        if self.sample.is_some_and(|sample| sample != position) || !self.passes_prehash(content) {
            return Lookup::Skipped;
        }
        self.entries.get(&content).map_or(Lookup::Missed, |entry| Lookup::Found(entry.pbn))
    }

    fn insert(&mut self, content: Content, pbn: Pbn) {
        if self.entries_max == 0 {
            return;
        }
        if self.entries.len() == self.entries_max {
            let (_, _, least) = *self.order.first().expect("a full store is not empty");
            self.forget(least);
            self.evicted += 1;
        }
        let entry = Entry { pbn, count: 1, number: self.next };
        self.next += 1;
        self.entries.insert(content, entry);
        self.order.insert((entry.count, entry.number, content));
        self.measure();
    }

    fn recount(&mut self, content: Content, pbn: Pbn, count: u32) {
        let Some(entry) = self.entries.get_mut(&content).filter(|entry| entry.pbn == pbn) else { return };
        if count == 0 {
            self.forget(content);
            return;
        }
        let before = std::mem::replace(&mut entry.count, count);
        let number = entry.number;
        self.order.remove(&(before, number, content));
        self.order.insert((count, number, content));
    }

    /// Evicted fingerprints are gone: CAFTL computes them again out of line, from the data.
    fn outcome(&self) -> Outcome {
        let (memory_bytes, entries) = (self.memory_bytes, self.entries.len() as u64);
        Outcome { memory_bytes, entries, demoted: 0, ..Outcome::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::{Design, Inline};
    use crate::testing::{replayed, write};

    fn caftl(entries: u64, sampling: bool, prehash: bool) -> Inline<Caftl> {
        let memory = entries * ENTRY_BYTES * if prehash { PREHASH_SHARE } else { 1 };
        Inline::new(Caftl::new(CaftlOptions { memory, sampling, prehash }))
    }

    #[test]
    fn the_fingerprint_with_the_fewest_references_leaves() {
        // 1 has two references when 3 comes, so 2 leaves although it was used last.
        let mut design = caftl(2, false, false);
        assert_eq!(replayed(&mut design, &[1, 1, 2, 3, 1]).found_inline, 2);
        // Among equals the oldest leaves: 3 for 4, then 4 for 3.
        write(&mut design, 100, &[4]);
        write(&mut design, 101, &[3]);
        assert_eq!(design.outcome().found_inline, 2);
        design.check();
    }

    #[test]
    fn with_prehash_a_duplicate_is_found_at_its_third_write() {
        assert_eq!(replayed(&mut caftl(8, false, false), &[1, 1, 1]).found_inline, 2);
        assert_eq!(replayed(&mut caftl(8, false, true), &[1, 1, 1]).found_inline, 1);
    }

    #[test]
    fn sampling_finds_all_blocks_of_a_request_or_looks_at_one() {
        let mut design = caftl(8, true, false);
        write(&mut design, 0, &[1]);
        write(&mut design, 1, &[2]);
        // Its sample is 1 or 2, both of which are known.
        write(&mut design, 10, &[1, 2]);
        assert_eq!(design.outcome().found_inline, 2);
        // Of a new request only the sample enters the store, so of its copies only that one is found.
        let mut design = caftl(8, true, false);
        write(&mut design, 0, &[3, 4]);
        assert_eq!(design.outcome().entries, 1);
        write(&mut design, 20, &[3]);
        write(&mut design, 30, &[4]);
        assert_eq!(design.outcome().found_inline, 1);
    }

    #[test]
    fn freed_blocks_are_forgotten() {
        let mut design = caftl(2, false, false);
        write(&mut design, 0, &[1]);
        write(&mut design, 0, &[2]);
        write(&mut design, 1, &[1]);
        let outcome = design.outcome();
        assert_eq!((outcome.found_inline, outcome.entries, outcome.stored), (0, 2, 2));
    }
}
