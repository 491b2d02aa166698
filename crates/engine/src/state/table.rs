//! The block table in memory: pages changed since the last checkpoint, pages being checkpointed, a bounded cache of
//! clean ones, and redo for pages that were not read since a crash.
//!
//! Invariants: (1) a page is served from the newest layer that has it: dirty, frozen, clean; (2) a dirty or frozen page
//! is never dropped before it is on disk; (3) a page with redo is in no layer.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use lru::LruCache;

use crate::format::fragment::FragmentPlace;
use crate::format::page::{Entry, PACK, PAGE_BYTES, PAGE_ENTRIES, Page, page_of};
use crate::stats::counters::CacheReport;
use crate::sync::count_looks;
use crate::{Error, Fingerprint, Pbn, Result, Tag};

/// Pages by number.
pub type Pages = HashMap<u64, Arc<Page>>;

/// A change to the table read back from the log.
#[derive(Clone, Copy, Debug)]
pub enum Redo {
    /// New content with one reference.
    Store(Pbn, Tag, Option<Fingerprint>),
    /// New counts for blocks of one page.
    Count(Pbn, u64, u32),
    /// A fingerprint computed later.
    Fingerprint(Pbn, Fingerprint),
    /// New flags.
    Flags(Pbn, u8),
    /// A fragment of new content with one reference.
    Fragment(Pbn, FragmentPlace, Tag, Option<Fingerprint>),
    /// A block that holds fragments. Its count follows.
    Pack(Pbn),
    /// A new place of a fragment.
    Place(Pbn, FragmentPlace),
    /// A new length of all fragments of the pack that ends with this block.
    PackBytes(Pbn, u64),
}

impl Redo {
    /// The pbn, or the first one. All are in one page.
    fn pbn(&self) -> Pbn {
        match *self {
            Redo::Store(pbn, ..) | Redo::Count(pbn, ..) | Redo::Fingerprint(pbn, _) => pbn,
            Redo::Flags(pbn, _) | Redo::Fragment(pbn, ..) | Redo::Pack(pbn) => pbn,
            Redo::Place(pbn, _) | Redo::PackBytes(pbn, _) => pbn,
        }
    }
}

/// The layers of the block table.
pub struct Table {
    dirty: Pages,
    frozen: Arc<Pages>,
    clean: LruCache<u64, Arc<Page>>,
    redo: HashMap<u64, Vec<(u64, Redo)>>,
    /// Pages read with damaged sectors. While it is empty, no sector has to be checked.
    damaged: HashSet<u64>,
    /// Counts checkpoints: a page read before a checkpoint may be older than the one it wrote.
    generation: u64,
    clean_pages_max: usize,
    hits: u64,
    misses: u64,
}

impl Table {
    /// Empty layers. Clean pages are kept up to `bytes_max`.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            dirty: Pages::new(),
            frozen: Arc::default(),
            clean: LruCache::unbounded(),
            redo: HashMap::new(),
            damaged: HashSet::new(),
            generation: 0,
            clean_pages_max: (bytes_max as usize / PAGE_BYTES).max(16),
            hits: 0,
            misses: 0,
        }
    }

    /// The page, if it is in memory.
    pub fn page(&mut self, number: u64) -> Option<&Arc<Page>> {
        count_looks(1);
        if let Some(page) = self.dirty.get(&number) {
            return Some(page);
        }
        self.frozen.get(&number).or_else(|| self.clean.get(&number))
    }

    /// Whether the page is in memory. Does not count as a use.
    fn has(&self, number: u64) -> bool {
        self.dirty.contains_key(&number) || self.frozen.contains_key(&number) || self.clean.contains(&number)
    }

    /// The entry of a pbn, if its page is in memory.
    pub fn entry(&mut self, pbn: Pbn) -> Option<Entry> {
        self.page(page_of(pbn)).map(|page| page.entry(pbn))
    }

    /// Where a fragment lies, if its page is in memory and its entry is whole.
    pub fn fragment_place(&mut self, pbn: Pbn) -> Option<FragmentPlace> {
        self.page(page_of(pbn)).and_then(|page| page.fragment_place(pbn))
    }

    /// Whether a pbn's entry is in a damaged sector of a page in memory. It reads as that of a free block.
    pub fn is_damaged(&mut self, pbn: Pbn) -> bool {
        let may_be = self.damaged.contains(&page_of(pbn));
        may_be && self.page(page_of(pbn)).is_some_and(|page| page.is_damaged(pbn))
    }

    /// Refuses a page read from disk if the log's changes to it belong into a damaged sector, because the rest of that
    /// sector is unknown.
    pub fn check_redo(&self, number: u64, page: &Page) -> Result<()> {
        if page.damaged_sectors() == 0 {
            return Ok(());
        }
        let is_hit = |(_, redo): &(u64, Redo)| match *redo {
            Redo::Count(first, blocks, _) => (0..blocks).any(|n| page.is_damaged(first.plus(n))),
            ref one => page.is_damaged(one.pbn()),
        };
        match self.redo.get(&number).and_then(|redo| redo.iter().find(|redo| is_hit(redo))) {
            None => Ok(()),
            Some(_) => Err(Error::corrupt(
                format!("page {number} of the block table"),
                "the checksum of a sector that the log changes does not match; unmount and run oncefs fsck -y",
            )),
        }
    }

    /// Which of `numbers` must be read from disk.
    pub fn missing(&mut self, numbers: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut missing = Vec::new();
        for number in numbers {
            if missing.last() == Some(&number) {
                continue;
            }
            match self.has(number) {
                true => self.hits += 1,
                false => {
                    self.misses += 1;
                    missing.push(number);
                }
            }
        }
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// The generation to pass to `admit` with pages read after this call.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Takes in a page read from disk, and applies its redo. False: a checkpoint ended meanwhile, so read it again.
    pub fn admit(&mut self, number: u64, page: Page, generation: u64) -> bool {
        if generation != self.generation {
            return false;
        }
        if self.page(number).is_some() {
            return true;
        }
        if page.damaged_sectors() != 0 {
            self.damaged.insert(number);
        }
        match self.redo.remove(&number) {
            None => {
                self.clean.put(number, Arc::new(page));
            }
            Some(redo) => {
                self.dirty.insert(number, Arc::new(redone(page, &redo)));
            }
        }
        true
    }

    /// Keeps pages in memory as if they were changed: until a checkpoint has written them. They must be in memory.
    pub fn keep(&mut self, numbers: &[u64]) {
        for &number in numbers {
            if !self.dirty.contains_key(&number) {
                let page = self.newest(number);
                self.dirty.insert(number, page);
            }
        }
    }

    /// An unchanged page, from the newest layer that has it.
    fn newest(&mut self, number: u64) -> Arc<Page> {
        match self.frozen.get(&number) {
            Some(page) => page.clone(),
            None => self.clean.pop(&number).expect("the caller made sure that the page is in memory"),
        }
    }

    /// The page, for changing it. It must be in memory.
    pub fn edit(&mut self, number: u64) -> &mut Page {
        count_looks(1);
        debug_assert!(!self.redo.contains_key(&number), "(3) page {number} has redo and is changed");
        if !self.dirty.contains_key(&number) {
            let page = self.newest(number);
            self.dirty.insert(number, page);
        }
        Arc::make_mut(self.dirty.get_mut(&number).expect("inserted above"))
    }

    /// Reads entries of blocks whose pages are in memory.
    pub fn entries(&mut self) -> Entries<'_> {
        Entries { table: self, page: None }
    }

    /// Changes pages in memory, block by block. `edit` gets each block with how often it follows itself in `pbns`.
    /// Blocks of one page that follow each other cost one access to it.
    pub fn edit_each(&mut self, pbns: impl Iterator<Item = Pbn>, mut edit: impl FnMut(&mut Page, Pbn, u32)) {
        let mut pbns = pbns.peekable();
        while let Some(first) = pbns.next() {
            let number = page_of(first);
            let page = self.edit(number);
            let mut next = Some(first);
            while let Some(pbn) = next {
                let mut times = 1;
                while pbns.next_if_eq(&pbn).is_some() {
                    times += 1;
                }
                edit(page, pbn, times);
                next = pbns.next_if(|pbn| page_of(*pbn) == number);
            }
        }
    }

    /// Keeps a change for a page that is not in memory yet.
    pub fn add_redo(&mut self, sequence: u64, redo: Redo) {
        let pbn = redo.pbn();
        debug_assert!(!self.dirty.contains_key(&page_of(pbn)), "(3) page {} is in memory", page_of(pbn));
        self.redo.entry(page_of(pbn)).or_default().push((sequence, redo));
    }

    /// Some pages that still wait for their redo.
    pub fn pages_with_redo(&self, limit: usize) -> Vec<u64> {
        self.redo.keys().take(limit).copied().collect()
    }

    /// Pages that are newer in memory than on disk.
    pub fn unwritten(&self) -> Vec<u64> {
        self.dirty.keys().chain(self.frozen.keys()).copied().collect()
    }

    /// The first page at or after `number` that is newer in memory than on disk.
    pub fn unwritten_from(&self, number: u64) -> Option<u64> {
        let pages = self.dirty.keys().chain(self.frozen.keys()).chain(self.redo.keys());
        pages.copied().filter(|page| *page >= number).min()
    }

    /// Sets the dirty pages apart for a checkpoint.
    pub fn freeze(&mut self) -> Arc<Pages> {
        assert!(self.frozen.is_empty(), "one checkpoint at a time");
        assert!(self.redo.is_empty(), "redo of {} pages is not applied", self.redo.len());
        self.frozen = Arc::new(std::mem::take(&mut self.dirty));
        self.frozen.clone()
    }

    /// The frozen pages are on disk, sealed with `sequence`: they become clean.
    pub fn thaw(&mut self, sequence: u64) {
        self.generation += 1;
        // No other reference to them is left, so nothing is copied.
        let frozen = Arc::unwrap_or_clone(std::mem::take(&mut self.frozen));
        for (number, mut page) in frozen {
            if !self.dirty.contains_key(&number) {
                Arc::make_mut(&mut page).seal(number, sequence);
                self.clean.put(number, page);
                self.shrink();
            }
        }
    }

    /// Drops clean pages beyond the bound.
    pub fn shrink(&mut self) {
        while self.clean.len() > self.clean_pages_max {
            self.clean.pop_lru();
        }
        debug_assert!(self.clean.len() <= self.clean_pages_max, "{} clean pages", self.clean.len());
    }

    /// Bytes of pages that no checkpoint has taken yet.
    pub fn dirty_bytes(&self) -> u64 {
        (self.dirty.len() * PAGE_BYTES) as u64
    }

    /// The page cache's figures.
    pub fn report(&self) -> CacheReport {
        CacheReport {
            bytes: ((self.dirty.len() + self.frozen.len() + self.clean.len()) * PAGE_BYTES) as u64,
            bytes_max: (self.clean_pages_max * PAGE_BYTES) as u64,
            hits: self.hits,
            misses: self.misses,
        }
    }
}

/// Reads entries one after the other. Blocks of one page that follow each other cost one access to it.
pub struct Entries<'a> {
    table: &'a mut Table,
    /// The page that was read last.
    page: Option<(u64, Arc<Page>)>,
}

impl Entries<'_> {
    /// The entry of a block. Its page must be in memory.
    pub fn of(&mut self, pbn: Pbn) -> Entry {
        let number = page_of(pbn);
        let page = match self.page.take() {
            Some((last, page)) if last == number => page,
            _ => self.table.page(number).expect("the caller made sure that the page is in memory").clone(),
        };
        let entry = page.entry(pbn);
        self.page = Some((number, page));
        entry
    }
}

/// A reader's view of the table while the publish lock is held.
pub struct LoadedPages<'a>(&'a mut Table);

impl<'a> LoadedPages<'a> {
    /// The pages of a table that are in memory.
    pub fn of(table: &'a mut Table) -> Self {
        Self(table)
    }

    /// The page, if it is in memory.
    pub fn page(&mut self, number: u64) -> Option<&Arc<Page>> {
        self.0.page(number)
    }

    /// The entry of a pbn, if its page is in memory.
    pub fn entry(&mut self, pbn: Pbn) -> Option<Entry> {
        self.0.entry(pbn)
    }

    /// See [`Table::entries`].
    pub fn entries(&mut self) -> Entries<'_> {
        self.0.entries()
    }

    /// See [`Table::fragment_place`].
    pub fn fragment_place(&mut self, pbn: Pbn) -> Option<FragmentPlace> {
        self.0.fragment_place(pbn)
    }

    /// See [`Table::is_damaged`].
    pub fn is_damaged(&mut self, pbn: Pbn) -> bool {
        self.0.is_damaged(pbn)
    }
}

/// The error for work that needs an entry in a damaged sector.
pub fn damaged_entry(pbn: Pbn) -> Error {
    let (sector, number) = (Page::sector_of(pbn), page_of(pbn));
    Error::corrupt(
        format!("sector {sector} of page {number} of the block table"),
        format!("its checksum does not match, and it has the entry of block {pbn}; unmount and run oncefs fsck -y"),
    )
}

/// Applies redo to sectors that are older than it. None of them is damaged.
fn redone(mut page: Page, redo: &[(u64, Redo)]) -> Page {
    let on_disk = page.clone();
    for (sequence, redo) in redo {
        let is_new = |pbn: Pbn| on_disk.sequence_of(pbn) < *sequence;
        match *redo {
            Redo::Store(pbn, tag, fingerprint) if is_new(pbn) => {
                page.set(pbn, &Entry { tag, fingerprint, count: 1, flags: 0 });
            }
            Redo::Count(first, blocks, count) => {
                assert!(first.0 % PAGE_ENTRIES + blocks <= PAGE_ENTRIES, "redo is cut at pages");
                let pbns = (0..blocks).map(|n| first.plus(n));
                pbns.filter(|pbn| is_new(*pbn)).for_each(|pbn| page.set_count(pbn, count));
            }
            Redo::Fingerprint(pbn, fingerprint) if is_new(pbn) => {
                let entry = Entry { fingerprint: Some(fingerprint), ..page.entry(pbn) };
                page.set(pbn, &entry);
            }
            Redo::Flags(pbn, flags) if is_new(pbn) => page.set_flags(pbn, flags),
            Redo::Fragment(pbn, place, tag, fingerprint) if is_new(pbn) => {
                page.set(pbn, &Entry { tag, fingerprint, count: 1, flags: 0 });
                page.set_fragment_place(pbn, place);
            }
            Redo::Pack(pbn) if is_new(pbn) => page.set(pbn, &Entry { flags: PACK, ..Entry::default() }),
            Redo::Place(pbn, place) if is_new(pbn) => page.set_fragment_place(pbn, place),
            Redo::PackBytes(pbn, bytes) if is_new(pbn) => {
                let entry = Entry { tag: Tag(bytes), ..page.entry(pbn) };
                page.set(pbn, &entry);
            }
            Redo::Store(..) | Redo::Fingerprint(..) | Redo::Flags(..) | Redo::Fragment(..) | Redo::Pack(..) => {}
            Redo::Place(..) | Redo::PackBytes(..) => {}
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(tag: u64) -> Entry {
        Entry { tag: Tag(tag), fingerprint: None, count: 1, flags: 0 }
    }

    #[test]
    fn a_change_during_a_checkpoint_stays_dirty_and_leaves_the_frozen_page_alone() {
        let mut table = Table::new(1 << 20);
        assert!(table.admit(0, Page::empty(), 0));
        table.edit(0).set(Pbn(1), &stored(1));
        let frozen = table.freeze();
        table.edit(0).set(Pbn(1), &stored(2));
        assert_eq!(frozen[&0].entry(Pbn(1)), stored(1));
        table.thaw(1);
        assert_eq!(table.entry(Pbn(1)), Some(stored(2)));
        assert_eq!(table.dirty_bytes(), 4096);
    }

    #[test]
    fn a_page_written_twice_from_memory_has_whole_sectors() {
        let mut table = Table::new(1 << 20);
        assert!(table.admit(0, Page::empty(), 0));
        table.edit(0).set(Pbn(1), &stored(1));
        table.freeze();
        table.thaw(5);
        table.edit(0).set(Pbn(100), &stored(2));
        let written = table.freeze()[&0].sealed(0, 6);
        let back = Page::from_disk(0, &written).expect("every sector has its checksum");
        assert_eq!((back.sequence_of(Pbn(1)), back.sequence_of(Pbn(100))), (5, 6));
    }

    #[test]
    fn a_page_that_was_only_asked_after_leaves_before_one_that_was_used() {
        let mut table = Table::new(1 << 20);
        table.clean_pages_max = 2;
        for number in 0..3 {
            assert!(table.admit(number, Page::empty(), 0));
        }
        assert_eq!(table.missing([0, 1, 2, 3]), [3]);
        assert!(table.page(0).is_some());
        table.shrink();
        assert_eq!(table.missing(0..3), [1]);
    }

    #[test]
    fn blocks_of_one_page_that_follow_each_other_are_read_and_changed_together() {
        let mut table = Table::new(1 << 20);
        assert!(table.admit(0, Page::empty(), 0) && table.admit(1, Page::empty(), 0));
        let (near, far) = (Pbn(5), Pbn(PAGE_ENTRIES));
        let mut edited = Vec::new();
        table.edit_each([near, near, Pbn(6), far, near].into_iter(), |page, pbn, times| {
            edited.push((pbn, times));
            page.set(pbn, &Entry { count: page.count(pbn) + times, ..stored(pbn.0) });
        });
        assert_eq!(edited, [(near, 2), (Pbn(6), 1), (far, 1), (near, 1)]);
        let mut entries = table.entries();
        assert_eq!([near, Pbn(6), far, near].map(|pbn| entries.of(pbn).count), [3, 1, 1, 3]);
    }

    #[test]
    fn a_page_read_before_a_checkpoint_ended_is_not_taken() {
        let mut table = Table::new(1 << 20);
        let generation = table.generation();
        table.freeze();
        table.thaw(1);
        assert!(!table.admit(0, Page::empty(), generation));
    }

    #[test]
    fn redo_reaches_only_sectors_older_than_it() {
        let mut page = Page::empty();
        page.set(Pbn(0), &stored(5));
        let on_disk = Page::from_disk(0, &page.sealed(0, 7)).unwrap();
        let mut table = Table::new(1 << 20);
        table.add_redo(7, Redo::Store(Pbn(0), Tag(9), None));
        table.add_redo(7, Redo::Store(Pbn(100), Tag(9), None));
        table.add_redo(8, Redo::Count(Pbn(0), 1, 4));
        table.add_redo(7, Redo::Flags(Pbn(0), 1));
        table.add_redo(8, Redo::Flags(Pbn(100), 2));
        assert!(table.admit(0, on_disk, 0));
        assert_eq!(table.entry(Pbn(0)), Some(Entry { count: 4, ..stored(5) }));
        assert_eq!(table.entry(Pbn(100)), Some(Entry { flags: 2, ..stored(9) }));
    }
}
