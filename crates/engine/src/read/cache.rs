//! The read cache: blocks by pbn, so that a block shared by ten files is held once.
//!
//! Owns the bytes and the choice of the blocks that enter and leave. Does not know what a pbn means: a stored block
//! never changes, so an entry is right until its pbn is reused, and the caller says when that happens. The rule that
//! makes it safe: **`admit` only while holding a pin on the pbn; `remove` only after the last pin on it is gone and
//! before the pbn is handed out again.** So no `admit` of the old content can come after the `remove`.
//!
//! Of the blocks that files share, it knows how many reads to expect: the kernel keeps what it has read, so mostly each
//! reference is read once. A block that was read for all of its references is **spent**. Spent blocks leave before
//! others, and what is still awaited has their room. The newest spent blocks stay for a while: a program that reads
//! past the kernel's cache may read them again, and then they count as any other block.
//!
//! Own code instead of a cache crate, because the budget has to be exact down to the allocator, and it changes. All
//! blocks of a shard lie in one piece of memory. The system fills it with pages a little ahead of use, and takes them
//! back.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use hashbrown::HashMap;
use oncefs_dedup::{BLOCK_BYTES, Pbn};

use super::lazy_memory::LazyMemory;
use crate::MapId;
use crate::stats::counters::{CacheReport, Counters};
use crate::sync::{AtomicU64, LockRank, Mutex};

/// Memory of one cached block: the bytes, and 128 for its bookkeeping. Of these the slot takes 24, the free list 4, the
/// list of spent slots 4, the sightings 16 and the index at most 78 (17 bytes an entry; under constant replacement a
/// hash table grows to at most 4.6 times its entries).
const SLOT_BYTES: usize = BLOCK_BYTES + 128;

/// Locks of a large cache: several times the number of reading threads.
const SHARDS_MAX: usize = 32;
/// A smaller shard would evict by accident of placement rather than by age.
const SHARD_SLOTS_MIN: usize = 64;

/// The doorkeeper remembers this many sightings for each block of the cache. So a block enters if it is read again
/// within about twice the cache's size of other misses.
const SIGHTINGS_PER_SLOT: usize = 2;
/// One part in this many of the used slots may be spent before spent blocks leave.
const SPENT_SHARE: usize = 8;
/// Fresh slots that get their pages together: one system call instead of one fault each.
const PREPARED_SLOTS: usize = 16;
/// Marks an empty place among the sightings: pbn 0 is the label and never cached.
const UNSEEN: u64 = 0;
/// Marks a slot on the free list.
const UNUSED: Pbn = Pbn(0);

/// The reader of reads on behalf of no file. No map has this id.
pub const NOBODY: MapId = MapId(0);

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

    /// Copies the block into `out` (one block long) if it is cached. Returns the map that it was read for. A read for a
    /// file uses up one of the reads that the block awaits.
    pub fn get(&self, pbn: Pbn, reader: MapId, out: &mut [u8]) -> Option<MapId> {
        self.shard(pbn).and_then(|shard| shard.lock().get(pbn, reader, out))
    }

    /// Offers a block that was read from the device. It enters when it is offered a second time before its sighting is
    /// forgotten. Only while holding a pin on the pbn.
    pub fn admit(&self, pbn: Pbn, reader: MapId, block: &[u8], counters: &Counters) {
        if let Some(shard) = self.shard(pbn) {
            let mut shard = shard.lock();
            if shard.sighted(pbn) {
                shard.admit(Slot { pbn, reader, ..Slot::EMPTY }, block, counters);
            }
        }
    }

    /// Like `admit`, for a block with `awaited` references that were not read yet: it enters at once (SmartDedup's page
    /// cache index, section 3.4). If it was offered before for a file, one of them was read then.
    pub fn admit_awaited(&self, pbn: Pbn, reader: MapId, awaited: u32, block: &[u8], counters: &Counters) {
        debug_assert_eq!(block.len(), BLOCK_BYTES, "the cache holds whole blocks");
        if let Some(shard) = self.shard(pbn) {
            let mut shard = shard.lock();
            let is_of_file = reader != AROUND && reader != NOBODY;
            let was_read = is_of_file && shard.sighted(pbn);
            let awaited = awaited.saturating_sub(u32::from(was_read));
            shard.admit(Slot { pbn, reader, awaited, is_spent: awaited == 0, recent: false }, block, counters);
        }
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
    /// References that were not read since it entered. 0 for a block that was admitted because it was read twice.
    awaited: u32,
    /// All of its references were read, and it was not read again.
    is_spent: bool,
    /// Read since the clock's hand passed. Such a block is spared once.
    recent: bool,
}

impl Slot {
    const EMPTY: Self = Self { pbn: UNUSED, reader: NOBODY, awaited: 0, is_spent: false, recent: false };

    /// Notes a read. True: now it is spent. A read for no file says nothing about the reads to expect.
    fn note_read(&mut self, reader: MapId) -> bool {
        if reader == NOBODY {
            return false;
        }
        let was_awaited = self.awaited > 0;
        self.awaited -= u32::from(was_awaited);
        self.is_spent = was_awaited && self.awaited == 0;
        self.recent = !self.is_spent;
        self.is_spent
    }
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
    /// Slots whose blocks became spent, the oldest first. Those that were read again, or have other blocks by now, are
    /// passed over.
    spent: VecDeque<u32>,
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
            spent: VecDeque::new(),
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

    fn get(&mut self, pbn: Pbn, reader: MapId, out: &mut [u8]) -> Option<MapId> {
        let Some(&slot) = self.index.get(&pbn) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        if self.slots[slot as usize].note_read(reader) {
            self.note_spent(slot);
        }
        out.copy_from_slice(self.block(slot as usize));
        Some(self.slots[slot as usize].reader)
    }

    fn admit(&mut self, entering: Slot, block: &[u8], counters: &Counters) {
        let Slot { pbn, is_spent, .. } = entering;
        if self.index.contains_key(&pbn) {
            return;
        }
        let slot = self.take_slot(entering, counters);
        self.block(slot).copy_from_slice(block);
        self.index.insert(pbn, slot as u32);
        if is_spent {
            self.note_spent(slot as u32);
        }
    }

    fn note_spent(&mut self, slot: u32) {
        // This bounds the memory of the list. The clock takes a block that is not on it.
        if self.spent.len() > self.used_max / 2 {
            self.spent.pop_front();
        }
        self.spent.push_back(slot);
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
    fn take_slot(&mut self, taken: Slot, counters: &Counters) -> usize {
        debug_assert!(self.index.len() <= self.used_max, "{} slots of {} are used", self.index.len(), self.used_max);
        if self.index.len() == self.used_max {
            let slot = self.give_up();
            match std::mem::replace(&mut self.slots[slot], taken) {
                Slot { is_spent: true, .. } => {
                    // The hand may be just before this slot.
                    self.slots[slot].recent = !self.slots[slot].is_spent;
                    counters.cache_evicted_spent.fetch_add(1, Relaxed)
                }
                Slot { awaited: 1.., .. } => counters.cache_evicted_awaited.fetch_add(1, Relaxed),
                _ => 0,
            };
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
        self.slots[slot] = Slot::EMPTY;
        self.free.push(slot as u32);
    }

    /// Evicts a block: the oldest spent one, if there are many. Otherwise it moves the hand past recently read blocks,
    /// sparing each once, and takes the first other block. Only if a slot is used.
    fn give_up(&mut self) -> usize {
        assert!(!self.index.is_empty(), "no block can be given up");
        while self.spent.len() > self.used_max / SPENT_SHARE {
            let slot = self.spent.pop_front().expect("it is longer than 0") as usize;
            if self.slots[slot].is_spent {
                self.index.remove(&self.slots[slot].pbn);
                return slot;
            }
        }
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
mod tests;
