//! The skipped buffer: blocks that in-line dedup skipped, for the out-of-line worker (SmartDedup, section 3.3).
//!
//! Owns which places of which files are still to be processed, within a bound in bytes. Leaves the content to the block
//! table: the entry of the block's pbn has the tag, and the fingerprint if it has one, so the buffer stores neither.
//! Losing the buffer costs savings, never data. A full pass over the block table finds the lost blocks.
//!
//! 64 adjacent places take one entry of 24 bytes. When the bound is reached, the buffer keeps only the numbers of the
//! owners of the listed blocks, 8 bytes each, and lists new blocks of other files again. When even the owners do not
//! fit, it keeps only that a full pass is due.

use std::iter::Peekable;

use crate::Lbn;

use pages::Pages;

/// Places per entry, one for each bit of its mask.
const CHUNK_BLOCKS: u64 = u64::BITS as u64;

/// Work for the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// These blocks of one owner.
    Blocks {
        /// Whose blocks.
        owner: u64,
        /// First block and number of blocks; ascending and disjoint.
        runs: Vec<(Lbn, u64)>,
    },
    /// Any block of this owner.
    Owner(u64),
    /// Any block of the volume: a full pass over the block table.
    Everything,
}

/// One record of the buffer's contents, for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// Blocks among 64 adjacent ones.
    Chunk {
        /// Whose blocks.
        owner: u64,
        /// Number of the chunk within the file: its first block is 64 times this.
        chunk: u64,
        /// Bit `i` stands for the chunk's `i`th block.
        mask: u64,
    },
    /// Any block of this owner.
    Owner(u64),
    /// Any block of the volume.
    Everything,
}

/// Owner and chunk.
type Place = (u64, u64);

/// Skipped blocks, bounded in bytes (SmartDedup, section 3.3). The same calls in the same order give the same work.
///
/// Invariants, asserted by [`SkippedBuffer::check`]:
/// 1. No mask is empty.
/// 2. `blocks` counts the bits of all masks.
/// 3. An owner that is listed as a whole has no chunks.
/// 4. When a full pass is due nothing else is listed.
/// 5. At most `bytes_max` bytes are taken. (A call that turns chunks into owners takes more: one page of 1 KiB and the
///    list of the freed pages, 1 %.)
pub struct SkippedBuffer {
    chunks: Pages<Place, u64>,
    owners: Pages<u64, ()>,
    full_pass_due: bool,
    blocks: u64,
    bytes_max: u64,
    /// Where the next blocks are taken from, so that every owner gets its turn.
    hand: Place,
}

/// The bits of a chunk's blocks `first` to `last`, both inclusive.
fn mask_of(first: u64, last: u64) -> u64 {
    (u64::MAX << first) & (u64::MAX >> (CHUNK_BLOCKS - 1 - last))
}

/// The bits of a chunk that lie within blocks `first` to `last` of the file, both inclusive.
fn mask_within(chunk: u64, first: u64, last: u64) -> u64 {
    let chunk_first = chunk * CHUNK_BLOCKS;
    mask_of(first.saturating_sub(chunk_first), (last - chunk_first).min(CHUNK_BLOCKS - 1))
}

/// The last block of a range that may reach beyond the largest block number. None if the range is empty.
fn last_of(lbn: Lbn, blocks: u64) -> Option<u64> {
    Some(lbn.0.saturating_add(blocks.checked_sub(1)?))
}

impl SkippedBuffer {
    /// An empty buffer. Below about 5 KB it stays empty and asks for full passes.
    pub fn with_bytes_max(bytes_max: u64) -> Self {
        let (chunks, owners) = (Pages::new(), Pages::new());
        Self { chunks, owners, full_pass_due: false, blocks: 0, bytes_max, hand: (0, 0) }
    }

    /// Adds skipped blocks. Blocks that are listed already stay listed once.
    pub fn add(&mut self, owner: u64, lbn: Lbn, blocks: u64) {
        let Some(last) = last_of(lbn, blocks) else { return };
        for chunk in lbn.0 / CHUNK_BLOCKS..=last / CHUNK_BLOCKS {
            if self.is_whole(owner) {
                return;
            }
            self.add_chunk((owner, chunk), mask_within(chunk, lbn.0, last));
        }
    }

    /// Removes blocks that were processed or no longer exist.
    pub fn remove(&mut self, owner: u64, lbn: Lbn, blocks: u64) {
        if let Some(last) = last_of(lbn, blocks) {
            self.remove_within(owner, lbn.0, last);
        }
    }

    /// Removes all entries of an owner that no longer exists.
    pub fn forget(&mut self, owner: u64) {
        self.remove_within(owner, 0, u64::MAX);
        self.owners.retain_within(owner..=owner, |_, ()| false);
    }

    /// Takes out the next work: listed blocks of one owner, at most `blocks_max`, continuing after the last ones taken.
    /// Then owners, then the full pass.
    pub fn take(&mut self, blocks_max: u64) -> Option<Work> {
        if blocks_max == 0 {
            return None;
        }
        if self.chunks.len() > 0 {
            return Some(self.take_blocks(blocks_max));
        }
        let next = self.owners.iter_from(self.hand.0).chain(self.owners.iter()).next();
        if let Some((owner, ())) = next {
            self.forget(owner);
            self.hand = (owner, u64::MAX);
            return Some(Work::Owner(owner));
        }
        std::mem::take(&mut self.full_pass_due).then_some(Work::Everything)
    }

    /// Takes back work that could not be done.
    pub fn put_back(&mut self, work: Work) {
        match work {
            Work::Blocks { owner, runs } => runs.into_iter().for_each(|(lbn, blocks)| self.add(owner, lbn, blocks)),
            Work::Owner(owner) => self.keep_whole(owner),
            Work::Everything => self.want_full_pass(),
        }
    }

    /// All records, ascending, except work that is taken out.
    pub fn contents(&self) -> impl Iterator<Item = Skipped> + '_ {
        let chunks = self.chunks.iter().map(|((owner, chunk), mask)| Skipped::Chunk { owner, chunk, mask });
        let owners = self.owners.iter().map(|(owner, ())| Skipped::Owner(owner));
        chunks.chain(owners).chain(self.full_pass_due.then_some(Skipped::Everything))
    }

    /// Adds one record of [`SkippedBuffer::contents`], which may come from a larger buffer. An impossible
    /// one (no blocks, or beyond the largest block number) is ignored.
    pub fn restore(&mut self, skipped: Skipped) {
        match skipped {
            Skipped::Chunk { owner, chunk, mask } => {
                let possible = mask != 0 && chunk <= u64::MAX / CHUNK_BLOCKS;
                if possible && !self.is_whole(owner) {
                    self.add_chunk((owner, chunk), mask);
                }
            }
            Skipped::Owner(owner) => self.keep_whole(owner),
            Skipped::Everything => self.want_full_pass(),
        }
    }

    /// Whether a block is to be processed: by itself, with its owner, or in a full pass.
    pub fn has(&self, owner: u64, lbn: Lbn) -> bool {
        let mask = mask_within(lbn.0 / CHUNK_BLOCKS, lbn.0, lbn.0);
        self.is_whole(owner) || self.chunks.get((owner, lbn.0 / CHUNK_BLOCKS)).is_some_and(|held| held & mask != 0)
    }

    /// Number of listed blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Number of owners that are listed as a whole.
    pub fn owners(&self) -> u64 {
        self.owners.len() as u64
    }

    /// Whether a full pass is due.
    pub fn is_full_pass_due(&self) -> bool {
        self.full_pass_due
    }

    /// Whether there is no work.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0 && self.owners.len() == 0 && !self.full_pass_due
    }

    /// Memory taken, in bytes.
    pub fn bytes(&self) -> u64 {
        self.chunks.bytes() + self.owners.bytes()
    }

    /// Memory allowed, in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Changes the memory allowed, in bytes. Entries that do not fit are kept in less detail.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        if self.bytes() > bytes_max {
            self.chunks.pack();
            self.owners.pack();
        }
        if self.bytes() > bytes_max {
            self.keep_all_whole();
        }
        if self.bytes() > bytes_max {
            self.want_full_pass();
        }
    }

    /// Asserts the invariants; visits every entry.
    pub fn check(&self) {
        self.chunks.check();
        self.owners.check();
        let mut blocks = 0;
        for (place, mask) in self.chunks.iter() {
            assert_ne!(mask, 0, "invariant 1: {place:?}");
            assert!(!self.owners.contains(place.0), "invariant 3: {place:?}");
            blocks += u64::from(mask.count_ones());
        }
        assert_eq!(blocks, self.blocks, "invariant 2");
        let kept = self.chunks.len() + self.owners.len();
        assert!(!self.full_pass_due || kept == 0, "invariant 4: {kept} entries");
        assert!(self.bytes() <= self.bytes_max, "invariant 5: {} bytes of {}", self.bytes(), self.bytes_max);
    }

    /// Removes the owner's blocks `first` to `last`, both inclusive.
    fn remove_within(&mut self, owner: u64, first: u64, last: u64) {
        let places = (owner, first / CHUNK_BLOCKS)..=(owner, last / CHUNK_BLOCKS);
        let removed = &mut self.blocks;
        self.chunks.retain_within(places, |(_, chunk), mask| {
            let done = *mask & mask_within(chunk, first, last);
            *removed -= u64::from(done.count_ones());
            *mask &= !done;
            *mask != 0
        });
    }

    /// Whether every block of the owner is to be processed anyway.
    fn is_whole(&self, owner: u64) -> bool {
        self.full_pass_due || self.owners.contains(owner)
    }

    fn add_chunk(&mut self, place: Place, mask: u64) {
        if let Some(held) = self.chunks.get_mut(place) {
            self.blocks += u64::from((mask & !*held).count_ones());
            *held |= mask;
            return;
        }
        while !self.chunks.insert(place, mask, self.bytes_max - self.owners.bytes()) {
            if !self.chunks.pack() && !self.owners.pack() {
                self.keep_all_whole();
                return self.keep_whole(place.0);
            }
        }
        self.blocks += u64::from(mask.count_ones());
    }

    /// Takes listed blocks from the hand on, or from the start if none follow the hand.
    fn take_blocks(&mut self, blocks_max: u64) -> Work {
        let behind = self.chunks.iter_from(self.hand).next();
        let (first, _) = behind.or_else(|| self.chunks.iter().next()).expect("called with chunks");
        let places = first..=self.last_to_take(first, blocks_max);
        let (mut runs, mut left) = (Vec::new(), blocks_max);
        self.chunks.retain_within(places, |(owner, chunk), mask| {
            if left == 0 {
                return true;
            }
            while *mask != 0 && left > 0 {
                let bit = u64::from(mask.trailing_zeros());
                let blocks = u64::from((*mask >> bit).trailing_ones()).min(left);
                *mask &= !mask_of(bit, bit + blocks - 1);
                left -= blocks;
                append(&mut runs, Lbn(chunk * CHUNK_BLOCKS + bit), blocks);
            }
            // A chunk that is written all the time does not stop the hand.
            self.hand = (owner, chunk + u64::from(*mask == 0));
            *mask != 0
        });
        self.blocks -= blocks_max - left;
        Work::Blocks { owner: first.0, runs }
    }

    /// The last chunk of the same owner that `blocks_max` blocks can reach: each chunk has at least one.
    fn last_to_take(&self, first: Place, blocks_max: u64) -> Place {
        let chunks = usize::try_from(blocks_max).unwrap_or(usize::MAX);
        let places = self.chunks.iter_from(first).map(|(place, _)| place).take(chunks);
        places.take_while(|place| place.0 == first.0).last().unwrap_or(first)
    }

    /// Turns all chunks into owners. These never take more memory: an owner is a third of a chunk, and the new pages
    /// are full. Each old page is freed once it has been read.
    fn keep_all_whole(&mut self) {
        if self.chunks.len() == 0 {
            return;
        }
        let chunks = std::mem::replace(&mut self.chunks, Pages::new());
        let owners = std::mem::replace(&mut self.owners, Pages::new());
        let listed = chunks.into_entries().map(|((owner, _), _)| owner).peekable();
        let whole = owners.into_entries().map(|(owner, ())| owner).peekable();
        self.owners = Pages::from_ascending(union(listed, whole).map(|owner| (owner, ())));
        self.blocks = 0;
    }

    fn keep_whole(&mut self, owner: u64) {
        if self.is_whole(owner) {
            return;
        }
        self.remove_within(owner, 0, u64::MAX);
        while !self.owners.insert(owner, (), self.bytes_max - self.chunks.bytes()) {
            if !self.owners.pack() && !self.chunks.pack() {
                if self.chunks.len() == 0 {
                    return self.want_full_pass();
                }
                self.keep_all_whole();
            }
        }
    }

    fn want_full_pass(&mut self) {
        *self = Self::with_bytes_max(self.bytes_max);
        self.full_pass_due = true;
    }
}

/// Appends a run, and joins it to the last one if that ends where this one begins.
fn append(runs: &mut Vec<(Lbn, u64)>, lbn: Lbn, blocks: u64) {
    match runs.last_mut() {
        Some((first, run)) if first.plus(*run) == lbn => *run += blocks,
        _ => runs.push((lbn, blocks)),
    }
}

/// Both ascending sequences as one, without repetitions.
fn union(
    mut a: Peekable<impl Iterator<Item = u64>>,
    mut b: Peekable<impl Iterator<Item = u64>>,
) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let next = a.peek().into_iter().chain(b.peek()).min().copied()?;
        while a.next_if_eq(&next).is_some() {}
        while b.next_if_eq(&next).is_some() {}
        Some(next)
    })
}

/// A sorted table in pages of one size: compact, ordered, and its memory known to the byte.
///
/// Owns the pages and their bytes. A hash table would double at once and return its entries in no useful order. The
/// standard library's tree does not report its memory.
mod pages {
    use std::ops::RangeInclusive;

    /// Entries per page. An insertion moves half of them: 1.5 KiB at 24 bytes each.
    const PAGE_ENTRIES: usize = 128;
    /// Pages by which the list of pages grows.
    const LIST_STEP: usize = 64;
    /// Packing is worth its time if it frees at least one page in this many.
    const PACKED_PAGES: usize = 8;

    /// Entries by ascending key.
    ///
    /// Invariants, asserted by [`Pages::check`]:
    /// 1. The keys are strictly ascending, within pages and from page to page.
    /// 2. No page is empty; each has the memory of [`PAGE_ENTRIES`] entries.
    /// 3. `len` counts the entries.
    pub struct Pages<K, V> {
        pages: Vec<Vec<(K, V)>>,
        len: usize,
    }

    /// Bytes of an allocation with glibc: 8 bytes of overhead, rounded up to 16.
    fn allocation_bytes(asked: usize) -> u64 {
        if asked == 0 { 0 } else { (asked + 8).next_multiple_of(16) as u64 }
    }

    impl<K: Ord + Copy, V: Copy> Pages<K, V> {
        /// An empty table; takes no memory.
        pub fn new() -> Self {
            Self { pages: Vec::new(), len: 0 }
        }

        /// Entries that come in ascending order, in full pages.
        pub fn from_ascending(entries: impl Iterator<Item = (K, V)>) -> Self {
            let mut table = Self::new();
            for entry in entries {
                if table.len.is_multiple_of(PAGE_ENTRIES) {
                    table.pages.reserve_exact(table.list_growth());
                    table.pages.push(Vec::with_capacity(PAGE_ENTRIES));
                }
                table.pages.last_mut().expect("the first entry brings a page").push(entry);
                table.len += 1;
            }
            table
        }

        /// All entries in ascending order; each page is freed after its last entry.
        pub fn into_entries(self) -> impl Iterator<Item = (K, V)> {
            self.pages.into_iter().flatten()
        }

        /// Number of entries.
        pub fn len(&self) -> usize {
            self.len
        }

        /// Memory taken, in bytes: pages, their list and the allocator's overhead.
        pub fn bytes(&self) -> u64 {
            Self::bytes_of(self.pages.len(), self.pages.capacity())
        }

        /// Whether the key is in the table.
        pub fn contains(&self, key: K) -> bool {
            self.place_of(key).is_some()
        }

        /// A copy of the value of a key.
        pub fn get(&self, key: K) -> Option<V> {
            let (page, place) = self.place_of(key)?;
            Some(self.pages[page][place].1)
        }

        /// The value of a key, to be changed.
        pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
            let (page, place) = self.place_of(key)?;
            Some(&mut self.pages[page][place].1)
        }

        /// The entries from a key on, ascending.
        pub fn iter_from(&self, key: K) -> impl Iterator<Item = (K, V)> + '_ {
            let entries = self.pages.iter().skip(self.page_of(key)).flatten().copied();
            entries.skip_while(move |&(held, _)| held < key)
        }

        /// All entries, ascending.
        pub fn iter(&self) -> impl Iterator<Item = (K, V)> + '_ {
            self.pages.iter().flatten().copied()
        }

        /// Adds an entry with a new key. False if the table would take more than `bytes_max`.
        #[must_use]
        pub fn insert(&mut self, key: K, value: V, bytes_max: u64) -> bool {
            let mut page = self.page_of(key);
            if self.pages.get(page).is_none_or(|page| page.len() == PAGE_ENTRIES) {
                let growth = self.list_growth();
                if Self::bytes_of(self.pages.len() + 1, self.pages.capacity() + growth) > bytes_max {
                    return false;
                }
                self.pages.reserve_exact(growth);
                page = self.split(page, key);
            }
            let page = &mut self.pages[page];
            let place = page.partition_point(|&(held, _)| held < key);
            debug_assert!(page.get(place).is_none_or(|&(held, _)| held != key), "the key is held");
            page.insert(place, (key, value));
            self.len += 1;
            true
        }

        /// Removes the entries with these keys for which `keep` returns false; `keep` may change the others.
        pub fn retain_within(&mut self, keys: RangeInclusive<K>, mut keep: impl FnMut(K, &mut V) -> bool) {
            let first = self.page_of(*keys.start());
            let mut emptied = false;
            for page in self.pages.iter_mut().skip(first).take_while(|page| page[0].0 <= *keys.end()) {
                let before = page.len();
                page.retain_mut(|(key, value)| !keys.contains(key) || keep(*key, value));
                self.len -= before - page.len();
                emptied |= page.is_empty();
            }
            if emptied {
                self.pages.retain(|page| !page.is_empty());
            }
            if self.pages.is_empty() {
                self.pages = Vec::new();
            }
        }

        /// Packs the entries into full pages if that frees enough of them. Returns whether it did.
        pub fn pack(&mut self) -> bool {
            let full_pages = self.len.div_ceil(PAGE_ENTRIES);
            let freed = self.pages.len() - full_pages;
            if freed == 0 || freed * PACKED_PAGES < self.pages.len() {
                return false;
            }
            let mut filled = 0;
            for from in 1..self.pages.len() {
                let mut page = std::mem::take(&mut self.pages[from]);
                let room = PAGE_ENTRIES - self.pages[filled].len();
                self.pages[filled].extend(page.drain(..room.min(page.len())));
                if !page.is_empty() {
                    filled += 1;
                    self.pages[filled] = page;
                }
            }
            self.pages.truncate(full_pages);
            self.pages.shrink_to(full_pages.next_multiple_of(LIST_STEP));
            true
        }

        /// Asserts the invariants.
        pub fn check(&self) {
            let keys: Vec<K> = self.iter().map(|(key, _)| key).collect();
            assert!(keys.is_sorted_by(|a, b| a < b), "invariant 1");
            for (number, page) in self.pages.iter().enumerate() {
                let (held, room) = (page.len(), page.capacity());
                assert!(held > 0 && room == PAGE_ENTRIES, "invariant 2: page {number} holds {held} of {room}");
            }
            assert_eq!(keys.len(), self.len, "invariant 3");
        }

        fn bytes_of(pages: usize, list: usize) -> u64 {
            let page_bytes = allocation_bytes(PAGE_ENTRIES * size_of::<(K, V)>());
            pages as u64 * page_bytes + allocation_bytes(list * size_of::<Vec<(K, V)>>())
        }

        /// By how much the list has to grow for one more page.
        fn list_growth(&self) -> usize {
            if self.pages.len() == self.pages.capacity() { LIST_STEP } else { 0 }
        }

        /// The page where a key is or would be.
        fn page_of(&self, key: K) -> usize {
            self.pages.partition_point(|page| page[0].0 <= key).saturating_sub(1)
        }

        fn place_of(&self, key: K) -> Option<(usize, usize)> {
            let page = self.page_of(key);
            let place = self.pages.get(page)?.binary_search_by_key(&key, |&(held, _)| held);
            Some((page, place.ok()?))
        }

        /// Adds a page after a full one (or the first of all) for a key that belongs there. Returns the page to insert
        /// the key into, at once, because the new page may be empty.
        fn split(&mut self, page: usize, key: K) -> usize {
            let mut new = Vec::with_capacity(PAGE_ENTRIES);
            let Some(full) = self.pages.get_mut(page) else {
                self.pages.push(new);
                return 0;
            };
            // Entries in ascending order leave full pages behind.
            let at_end = full[PAGE_ENTRIES - 1].0 < key;
            new.extend(full.drain(if at_end { PAGE_ENTRIES } else { PAGE_ENTRIES / 2 }..));
            let in_new = new.first().is_none_or(|&(first, _)| first <= key);
            self.pages.insert(page + 1, new);
            page + usize::from(in_new)
        }
    }
}

#[cfg(test)]
mod tests;
