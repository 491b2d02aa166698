//! A sorted table in pages of one size: compact, ordered, and its memory known to the byte.
//!
//! Owns the pages and their bytes. A hash table would double at once and return its
//! entries in no useful order; the standard library's tree does not report its memory.

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

    /// Packs the entries into full pages if that frees a good part of them. Returns whether it did.
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

    /// Adds a page after a full one (or the first of all) for a key that belongs there. Returns
    /// the page to insert the key in, at once: the new page may be empty.
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
