//! The read cache: blocks by pbn, so that a block shared by ten files is held once.
//!
//! Owns the bytes and the choice of the blocks that enter and leave. Does not know what a pbn means: a stored block
//! never changes, so an entry is right until its pbn is reused, and the caller says when that happens. The rule that
//! makes it safe: **`admit` only while holding a pin on the pbn; `remove` only after the last pin on it is gone and
//! before the pbn is handed out again.** So no `admit` of the old content can come after the `remove`.
//!
//! Own code instead of a cache crate, because the budget has to be exact down to the allocator, and it changes. All
//! blocks of a shard lie in one piece of memory. The system fills it with pages a little ahead of use, and takes them
//! back.

use std::sync::atomic::Ordering::Relaxed;

use hashbrown::HashMap;
use oncefs_dedup::{BLOCK_BYTES, Pbn};

use super::lazy_memory::LazyMemory;
use crate::MapId;
use crate::stats::counters::CacheReport;
use crate::sync::{AtomicU64, LockRank, Mutex};

/// Memory of one cached block: the bytes, and 128 for its bookkeeping. Of these the slot takes 24, the free list 4, the
/// sightings 16 and the index at most 78 (17 bytes an entry; under constant replacement a hash table grows to at most
/// 4.6 times its entries).
const SLOT_BYTES: usize = BLOCK_BYTES + 128;

/// Locks of a large cache: several times the number of reading threads.
const SHARDS_MAX: usize = 32;
/// A smaller shard would evict by accident of placement rather than by age.
const SHARD_SLOTS_MIN: usize = 64;

/// The doorkeeper remembers this many sightings for each block of the cache. So a block enters if it is read again
/// within about twice the cache's size of other misses.
const SIGHTINGS_PER_SLOT: usize = 2;
/// Fresh slots that get their pages together: one system call instead of one fault each.
const PREPARED_SLOTS: usize = 16;
/// Marks an empty place among the sightings: pbn 0 is the label and never cached.
const UNSEEN: u64 = 0;
/// Marks a slot on the free list.
const UNUSED: Pbn = Pbn(0);

/// The reader recorded for blocks that were read around another. No map has this id.
pub const AROUND: MapId = MapId(u64::MAX);

/// A bounded cache of blocks, shared by all threads.
///
/// Invariants, asserted by `check` in the tests:
/// 1. Every index entry names a used slot holding that pbn, and every used slot has its index entry.
/// 2. Every slot below the high-water mark is either used or on one of the two lists of free slots, never on more than
///    one.
/// 3. Used slots, and with them bytes, never exceed the budget.
pub struct ReadCache {
    shards: Vec<Mutex<Shard>>,
    /// Its own bytes, without those lent to it.
    own_bytes: u64,
    bytes_max: AtomicU64,
}

impl ReadCache {
    /// A cache of at most `own_bytes`, and of up to `bytes_most` with the bytes lent to it. Less than one block of its
    /// own disables it.
    pub fn new(own_bytes: u64, bytes_most: u64) -> Self {
        assert!(own_bytes <= bytes_most, "a cache of {own_bytes} bytes, and of {bytes_most} at most");
        let slots = slots_of(own_bytes);
        let shards = (slots / SHARD_SLOTS_MIN).clamp(1, SHARDS_MAX);
        let shards = if slots == 0 { 0 } else { shards };
        let new_shard =
            |_| Mutex::new(LockRank::Leaf, Shard::with_slots(slots / shards, slots_of(bytes_most) / shards));
        Self { shards: (0..shards).map(new_shard).collect(), own_bytes, bytes_max: AtomicU64::new(own_bytes) }
    }

    /// Lends the cache this many bytes beyond its own, in place of earlier loans. Blocks that no longer fit leave, and
    /// their memory goes back to the system.
    pub fn lend(&self, bytes: u64) {
        let bytes_max = self.own_bytes + bytes;
        if self.bytes_max.swap(bytes_max, Relaxed) == bytes_max {
            return;
        }
        for shard in &self.shards {
            shard.lock().resize(slots_of(bytes_max) / self.shards.len());
        }
    }

    /// Copies the block into `out` (one block long) if it is cached. Returns the map that it was read for.
    pub fn get(&self, pbn: Pbn, out: &mut [u8]) -> Option<MapId> {
        self.shard(pbn).and_then(|shard| shard.lock().get(pbn, out))
    }

    /// Offers a block that was read from the device. It enters when it is offered a second time before its sighting is
    /// forgotten. Only while holding a pin on the pbn.
    pub fn admit(&self, pbn: Pbn, reader: MapId, block: &[u8]) {
        if let Some(shard) = self.shard(pbn) {
            let mut shard = shard.lock();
            if shard.sighted(pbn) {
                shard.admit(pbn, reader, block);
            }
        }
    }

    /// Like `admit`, for a block shared by several files: it enters at once (SmartDedup's page cache index, section
    /// 3.4).
    pub fn admit_shared(&self, pbn: Pbn, reader: MapId, block: &[u8]) {
        debug_assert_eq!(block.len(), BLOCK_BYTES, "the cache holds whole blocks");
        if let Some(shard) = self.shard(pbn) {
            shard.lock().admit(pbn, reader, block);
        }
    }

    /// Takes in a block that was read around another. Only while holding a pin on the pbn.
    pub fn admit_around(&self, pbn: Pbn, block: &[u8]) {
        self.admit_shared(pbn, AROUND, block);
    }

    /// Whether the block is cached now.
    pub fn holds(&self, pbn: Pbn) -> bool {
        self.shard(pbn).is_some_and(|shard| shard.lock().index.contains_key(&pbn))
    }

    /// Whether it can hold anything.
    pub fn is_enabled(&self) -> bool {
        !self.shards.is_empty()
    }

    /// Forgets a block whose pbn is about to be reused. Only after its last pin is gone.
    pub fn remove(&self, pbn: Pbn) {
        if let Some(shard) = self.shard(pbn) {
            shard.lock().remove(pbn);
        }
    }

    /// Sizes and hits so far. A disabled cache counts nothing.
    pub fn report(&self) -> CacheReport {
        let mut report = CacheReport { bytes_max: self.bytes_max.load(Relaxed), ..CacheReport::default() };
        for shard in &self.shards {
            let shard = shard.lock();
            report.bytes += (shard.index.len() * SLOT_BYTES) as u64;
            report.hits += shard.hits;
            report.misses += shard.misses;
        }
        report
    }

    fn shard(&self, pbn: Pbn) -> Option<&Mutex<Shard>> {
        let shards = self.shards.len() as u64;
        (shards > 0).then(|| &self.shards[(spread(pbn) % shards) as usize])
    }
}

fn slots_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX) / SLOT_BYTES
}

/// Pbns come in runs. Their spread values are even over shards and sightings.
fn spread(pbn: Pbn) -> u64 {
    const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
    let mixed = pbn.0.wrapping_mul(GOLDEN_RATIO);
    mixed ^ (mixed >> 32)
}

struct Slot {
    pbn: Pbn,
    /// The map that it was read for.
    reader: MapId,
    /// Read since the clock's hand passed. Such a block is spared once.
    recent: bool,
}

/// One lock's part of the cache: a clock over slots, and a doorkeeper.
struct Shard {
    index: HashMap<Pbn, u32>,
    slots: Vec<Slot>,
    /// How many may be used.
    used_max: usize,
    /// How many slots may ever exist.
    slots_most: usize,
    /// Unused slots that have their pages,
    free: Vec<u32>,
    /// and unused slots whose pages went back to the system.
    returned: Vec<u32>,
    bytes: LazyMemory,
    /// All slots below this one got their pages. Those of `returned` went back.
    prepared: usize,
    hand: usize,
    /// Pbns offered once, each at the one place that its spread value gives. A later pbn replaces an earlier one.
    sightings: Vec<u64>,
    hits: u64,
    misses: u64,
}

impl Shard {
    fn with_slots(used_max: usize, slots_most: usize) -> Self {
        Self {
            index: HashMap::with_capacity(used_max),
            slots: Vec::with_capacity(used_max),
            used_max,
            slots_most,
            free: Vec::new(),
            returned: Vec::new(),
            bytes: LazyMemory::new(slots_most * BLOCK_BYTES),
            prepared: 0,
            hand: 0,
            sightings: vec![UNSEEN; slots_most * SIGHTINGS_PER_SLOT],
            hits: 0,
            misses: 0,
        }
    }

    fn resize(&mut self, used_max: usize) {
        let used_max = used_max.clamp(1, self.slots_most);
        if std::mem::replace(&mut self.used_max, used_max) <= used_max {
            return;
        }
        while self.index.len() > used_max {
            let slot = self.give_up();
            self.put_aside(slot);
        }
        // Each only once, and neighbours together, because each range is a system call.
        self.free.sort_unstable();
        for run in self.free.chunk_by(|slot, next| slot + 1 == *next) {
            let at = run[0] as usize * BLOCK_BYTES;
            self.bytes.give_back(at..at + run.len() * BLOCK_BYTES);
        }
        self.returned.append(&mut self.free);
        let unused = self.slots.len()..self.prepared.max(self.slots.len());
        self.bytes.give_back(unused.start * BLOCK_BYTES..unused.end * BLOCK_BYTES);
        self.prepared = self.slots.len();
    }

    fn get(&mut self, pbn: Pbn, out: &mut [u8]) -> Option<MapId> {
        let Some(&slot) = self.index.get(&pbn) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        self.slots[slot as usize].recent = true;
        out.copy_from_slice(self.block(slot as usize));
        Some(self.slots[slot as usize].reader)
    }

    fn admit(&mut self, pbn: Pbn, reader: MapId, block: &[u8]) {
        if self.index.contains_key(&pbn) {
            return;
        }
        let slot = self.take_slot(Slot { pbn, reader, recent: false });
        self.block(slot).copy_from_slice(block);
        self.index.insert(pbn, slot as u32);
    }

    fn remove(&mut self, pbn: Pbn) {
        if let Some(slot) = self.index.remove(&pbn) {
            self.put_aside(slot as usize);
        }
        let sighting = self.sighting(pbn);
        if *sighting == pbn.0 {
            *sighting = UNSEEN;
        }
    }

    /// Whether the block was offered before. Notes that it is offered now.
    fn sighted(&mut self, pbn: Pbn) -> bool {
        let sighting = self.sighting(pbn);
        let before = std::mem::replace(sighting, pbn.0);
        before == pbn.0
    }

    fn sighting(&mut self, pbn: Pbn) -> &mut u64 {
        let places = self.sightings.len() as u64;
        // The high half, because the low half chose the shard.
        &mut self.sightings[((spread(pbn) >> 32) % places) as usize]
    }

    fn block(&mut self, slot: usize) -> &mut [u8] {
        &mut self.bytes[slot * BLOCK_BYTES..][..BLOCK_BYTES]
    }

    /// A slot for the block: a freed one, a fresh one, or that of the block that the clock evicts.
    fn take_slot(&mut self, taken: Slot) -> usize {
        debug_assert!(self.index.len() <= self.used_max, "{} slots of {} are used", self.index.len(), self.used_max);
        if self.index.len() == self.used_max {
            let slot = self.give_up();
            self.slots[slot] = taken;
            return slot;
        }
        if let Some(slot) = self.free.pop().or_else(|| self.returned.pop()) {
            self.slots[slot as usize] = taken;
            return slot as usize;
        }
        self.slots.push(taken);
        let slot = self.slots.len() - 1;
        self.prepare(slot);
        slot
    }

    /// Makes the system give a fresh slot its page together with those of the next slots, as far as they may be used.
    fn prepare(&mut self, slot: usize) {
        if slot < self.prepared {
            return;
        }
        debug_assert!(slot < self.used_max, "slot {slot} of {} that may be used", self.used_max);
        self.prepared = (slot + PREPARED_SLOTS).min(self.used_max);
        self.bytes.prepare(slot * BLOCK_BYTES..self.prepared * BLOCK_BYTES);
    }

    /// Puts an unused slot on the free list.
    fn put_aside(&mut self, slot: usize) {
        self.slots[slot] = Slot { pbn: UNUSED, reader: MapId(0), recent: false };
        self.free.push(slot as u32);
    }

    /// Moves the hand past recently read blocks, sparing each once, and evicts the first other block. Only if a slot is
    /// used.
    fn give_up(&mut self) -> usize {
        assert!(!self.index.is_empty(), "no block can be given up");
        loop {
            let slot = self.hand % self.slots.len();
            self.hand = slot + 1;
            let Slot { pbn, recent, .. } = &mut self.slots[slot];
            if *pbn != UNUSED && !std::mem::take(recent) {
                self.index.remove(pbn);
                return slot;
            }
        }
    }
}

#[cfg(test)]
impl ReadCache {
    fn check(&self) {
        let mut slots = 0;
        for shard in &self.shards {
            let shard = shard.lock();
            for (pbn, &slot) in &shard.index {
                assert_eq!(shard.slots[slot as usize].pbn, *pbn, "invariant 1");
            }
            let mut seen: Vec<u32> = shard.index.values().chain(&shard.free).chain(&shard.returned).copied().collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..shard.slots.len() as u32).collect::<Vec<_>>(), "invariant 2");
            assert!(shard.index.len() <= shard.used_max && shard.slots.len() <= shard.slots_most, "invariant 3");
            assert!(shard.prepared <= shard.slots.len().max(shard.used_max), "invariant 3");
            let is_used = |slot: &u32| shard.slots[*slot as usize].pbn != UNUSED;
            assert!(!shard.free.iter().any(is_used), "invariant 2");
            slots += shard.index.len();
        }
        assert!((slots * SLOT_BYTES) as u64 <= self.bytes_max.load(Relaxed), "invariant 3");
    }
}

#[cfg(test)]
mod tests {
    use oncefs_toolbox::Random;

    use super::*;

    const FILE: MapId = MapId(1);

    fn block_of(pbn: u64) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        for (place, word) in block.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&(pbn ^ (place as u64) << 48).to_le_bytes());
        }
        block
    }

    fn read(cache: &ReadCache, pbn: u64) -> Option<[u8; BLOCK_BYTES]> {
        let mut out = [0xEE; BLOCK_BYTES];
        let found = cache.get(Pbn(pbn), &mut out).is_some();
        assert!(found || out == [0xEE; BLOCK_BYTES], "a miss leaves the buffer alone");
        found.then_some(out)
    }

    fn admit_twice(cache: &ReadCache, pbn: u64) {
        cache.admit(Pbn(pbn), FILE, &block_of(pbn));
        cache.admit(Pbn(pbn), FILE, &block_of(pbn));
    }

    fn cache_of_slots(slots: usize) -> ReadCache {
        ReadCache::new((slots * SLOT_BYTES) as u64, (4 * slots * SLOT_BYTES) as u64)
    }

    fn lend(cache: &ReadCache, slots: usize) {
        cache.lend((slots * SLOT_BYTES) as u64);
        cache.check();
    }

    #[test]
    fn a_block_enters_when_it_is_offered_the_second_time() {
        let cache = cache_of_slots(100);
        cache.admit(Pbn(5), FILE, &block_of(5));
        assert_eq!(read(&cache, 5), None);
        cache.admit(Pbn(5), FILE, &block_of(5));
        assert_eq!(read(&cache, 5), Some(block_of(5)));
        cache.check();
    }

    #[test]
    fn a_shared_block_enters_at_once_and_knows_for_whom_it_was_read() {
        let cache = cache_of_slots(100);
        cache.admit_shared(Pbn(5), MapId(9), &block_of(5));
        assert_eq!(cache.get(Pbn(5), &mut [0; BLOCK_BYTES]), Some(MapId(9)));
        cache.check();
    }

    #[test]
    fn a_scan_read_once_displaces_nothing() {
        let cache = cache_of_slots(100);
        (1..=50).for_each(|pbn| admit_twice(&cache, pbn));
        (1_000..100_000).for_each(|pbn| cache.admit(Pbn(pbn), FILE, &block_of(pbn)));
        (1..=50).for_each(|pbn| assert_eq!(read(&cache, pbn), Some(block_of(pbn))));
    }

    #[test]
    fn a_removed_block_is_gone_and_has_to_be_offered_twice_again() {
        let cache = cache_of_slots(100);
        admit_twice(&cache, 5);
        cache.admit(Pbn(6), FILE, &block_of(6));
        cache.remove(Pbn(5));
        cache.remove(Pbn(6));
        assert_eq!(read(&cache, 5), None);
        for reused in [5, 6] {
            cache.admit(Pbn(reused), FILE, &block_of(reused + 100));
            assert_eq!(read(&cache, reused), None);
            cache.admit(Pbn(reused), FILE, &block_of(reused + 100));
            assert_eq!(read(&cache, reused), Some(block_of(reused + 100)));
        }
        cache.check();
    }

    #[test]
    fn a_block_that_is_read_outlives_blocks_that_are_not() {
        let cache = cache_of_slots(SHARD_SLOTS_MIN);
        (1..=SHARD_SLOTS_MIN as u64).for_each(|pbn| admit_twice(&cache, pbn));
        for pbn in 1_000..1_040 {
            assert!(read(&cache, 7).is_some(), "before {pbn}");
            admit_twice(&cache, pbn);
        }
        assert!(read(&cache, 7).is_some());
        assert!(read(&cache, 1).is_none());
        cache.check();
    }

    #[test]
    fn a_cache_without_budget_holds_and_counts_nothing() {
        for bytes_max in [0, SLOT_BYTES as u64 - 1] {
            let cache = ReadCache::new(bytes_max, bytes_max);
            cache.lend(1 << 20);
            admit_twice(&cache, 5);
            assert_eq!(read(&cache, 5), None);
            cache.remove(Pbn(5));
            let report = cache.report();
            assert_eq!((report.bytes, report.hits, report.misses), (0, 0, 0));
        }
    }

    #[test]
    fn a_cache_of_one_block_works() {
        let cache = cache_of_slots(1);
        admit_twice(&cache, 1);
        admit_twice(&cache, 2);
        assert_eq!((read(&cache, 1), read(&cache, 2)), (None, Some(block_of(2))));
        cache.check();
    }

    #[test]
    fn a_cache_that_grows_keeps_what_it_has_and_takes_more() {
        let cache = cache_of_slots(50);
        (1..=50).for_each(|pbn| admit_twice(&cache, pbn));
        lend(&cache, 100);
        (51..=150).for_each(|pbn| admit_twice(&cache, pbn));
        (1..=150).for_each(|pbn| assert_eq!(read(&cache, pbn), Some(block_of(pbn))));
        cache.check();
        lend(&cache, 1_000);
        (1..=1_000).for_each(|pbn| admit_twice(&cache, pbn));
        cache.check();
        assert_eq!((1..=1_000).filter(|&pbn| read(&cache, pbn).is_some()).count(), 200, "as large as it may ever be");
    }

    #[test]
    fn a_cache_that_shrinks_gives_up_what_was_not_read_lately_and_its_memory() {
        let cache = cache_of_slots(50);
        lend(&cache, 150);
        (1..=200).for_each(|pbn| admit_twice(&cache, pbn));
        cache.remove(Pbn(100));
        (1..=50).for_each(|pbn| assert!(read(&cache, pbn).is_some()));
        lend(&cache, 0);
        (1..=50).for_each(|pbn| assert_eq!(read(&cache, pbn), Some(block_of(pbn))));
        assert_eq!(cache.report().bytes, 50 * SLOT_BYTES as u64);
        let shard = cache.shards[0].lock();
        assert_eq!(
            shard.bytes.chunks_exact(BLOCK_BYTES).filter(|block| block.iter().any(|byte| *byte > 0)).count(),
            50
        );
    }

    #[test]
    fn memory_goes_back_once_however_often_the_cache_shrinks() {
        let cache = ReadCache::new((16 * SLOT_BYTES) as u64, (200 * SLOT_BYTES) as u64);
        lend(&cache, 100);
        (1..=100).for_each(|pbn| admit_twice(&cache, pbn));
        let calls = || cache.shards.iter().map(|shard| shard.lock().bytes.given_back()).sum::<u64>();
        lend(&cache, 0);
        let once = calls();
        assert!((1..=84).contains(&once), "{once} calls for the slots of 100 blocks");
        for _ in 0..50 {
            lend(&cache, 1);
            lend(&cache, 0);
        }
        assert!(calls() <= once + 2, "{} calls, {once} of them for the first time", calls());
        cache.check();
        lend(&cache, 100);
        (200..300).for_each(|pbn| admit_twice(&cache, pbn));
        assert!((200..300).all(|pbn| read(&cache, pbn) == Some(block_of(pbn))));
        cache.check();
    }

    #[test]
    fn memory_that_no_block_has_yet_stays_below_the_bound_and_goes_back() {
        let cache = cache_of_slots(PREPARED_SLOTS + 4);
        let prepared = || cache.shards[0].lock().prepared;
        admit_twice(&cache, 1);
        assert_eq!(prepared(), PREPARED_SLOTS);
        (2..=PREPARED_SLOTS as u64 + 1).for_each(|pbn| admit_twice(&cache, pbn));
        assert_eq!(prepared(), PREPARED_SLOTS + 4, "no more than may be used");
        lend(&cache, 30);
        lend(&cache, 0);
        assert_eq!(prepared(), PREPARED_SLOTS + 1, "what is lent back takes with it what nobody used");
        (30..60).for_each(|pbn| admit_twice(&cache, pbn));
        assert_eq!(prepared(), PREPARED_SLOTS + 4);
        cache.check();
    }

    #[test]
    fn the_report_counts_bytes_hits_and_misses() {
        let cache = cache_of_slots(1_000);
        (1..=10).for_each(|pbn| admit_twice(&cache, pbn));
        assert_eq!((1..=30).filter(|&pbn| read(&cache, pbn).is_some()).count(), 10);
        let report = cache.report();
        assert_eq!((report.hits, report.misses), (10, 20));
        assert_eq!(report.bytes, 10 * SLOT_BYTES as u64);
        assert_eq!(report.bytes_max, 1_000 * SLOT_BYTES as u64);
    }

    /// Four threads read, admit and remove at once. Each pbn has a lock that stands in for its pin,
    /// and a generation that stands in for its content: no read may see an older one.
    #[test]
    fn no_block_of_an_earlier_use_of_a_pbn_is_ever_returned() {
        const PBNS: u64 = 200;
        let cache = cache_of_slots(150);
        let generations: Vec<_> = (0..PBNS).map(|_| parking_lot::RwLock::new(0_u64)).collect();
        let hits = std::sync::atomic::AtomicU64::new(0);
        let work = |seed: u64| {
            let mut random = Random::new(seed);
            for _ in 0..50_000 {
                let pbn = random.below(PBNS);
                if random.one_in(64) {
                    cache.lend(random.below(300) * SLOT_BYTES as u64);
                }
                if random.one_in(16) {
                    let mut generation = generations[pbn as usize].write();
                    cache.remove(Pbn(pbn + 1));
                    *generation += 1;
                    continue;
                }
                let generation = generations[pbn as usize].read();
                let content = block_of(pbn << 32 | *generation);
                match read(&cache, pbn + 1) {
                    Some(found) => {
                        assert!(found == content, "pbn {} in generation {generation}", pbn + 1);
                        hits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    None => cache.admit(Pbn(pbn + 1), FILE, &content),
                }
            }
        };
        std::thread::scope(|scope| {
            (1..=4).for_each(|seed: u64| drop(scope.spawn(move || work(seed))));
        });
        assert!(hits.into_inner() > 10_000, "the test has to hit");
        cache.check();
    }
}
