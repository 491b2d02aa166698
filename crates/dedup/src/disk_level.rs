//! The hint store's disk level: every hint that left memory, in sorted pages of 4 KiB (SmartDedup, section 3.2).
//!
//! Owns which page has which hints, how pages split and join, and which pages are read and written for it. Leaves the
//! bytes of a page and the file to [`HintPages`], and the truth to the block table.
//!
//! SmartDedup has one group on disk per leaf of the prefix tree in memory. For a large volume a group takes several
//! blocks. Here the pages have prefixes of their own, longer where hints are dense (extendible hashing), so that a
//! look-up reads one page whatever the volume's size. The directory knows which prefixes have no page, so most look-ups
//! of absent tags read none. Losing a page, or all of them, costs savings, never data.

mod adoption;
mod memory_pages;
mod page_table;
mod prefix_directory;
mod sweep;

use std::cmp::Reverse;
use std::ops::AddAssign;

use crate::hints::{HOLDERS_MAX, Hint};
use crate::{Pbn, Tag};
pub use adoption::Adoption;
pub use memory_pages::MemoryPages;
use page_table::PageTable;
pub use prefix_directory::Prefix;
use prefix_directory::{DEPTH_MAX, DEPTH_MIN, Directory};
pub use sweep::Swept;

/// Bits by which a page's prefix may be longer than an even spread requires.
const DEPTH_SPARE: u32 = 2;

/// Number of a page of 4096 bytes in the disk level's file. Reused after it is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNo(pub u32);

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintPage {
    /// The leading bits of all its tags.
    pub prefix: Prefix,
    /// Strictly ascending: by tag, then by pbn.
    pub hints: Vec<Hint>,
}

/// The file of pages.
pub trait HintPages {
    /// Why a page could not be read or written.
    type Error;

    /// The content of a page. None: it is damaged or was never written.
    fn read(&mut self, page: PageNo) -> Result<Option<HintPage>, Self::Error>;

    /// Replaces the content of a page.
    fn write(&mut self, page: PageNo, content: &HintPage) -> Result<(), Self::Error>;

    /// Frees the page's space; afterwards it must not be adopted.
    fn discard(&mut self, page: PageNo) -> Result<(), Self::Error>;
}

/// The result of a merge. [`DiskLevel::len`] grew by `added` less `dropped` and `lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Hints that were not there before.
    pub added: u64,
    /// Hints dropped: holders beyond [`HOLDERS_MAX`], or hints without room in a page that cannot be split.
    pub dropped: u64,
    /// Hints in pages found damaged.
    pub lost: u64,
    /// Pages read.
    pub pages_read: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Pages found damaged and replaced.
    pub pages_damaged: u64,
}

impl AddAssign for Merged {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.pages_read += other.pages_read;
        self.pages_written += other.pages_written;
        self.pages_damaged += other.pages_damaged;
    }
}

/// The cost of a look-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookedUp {
    /// Pages read.
    pub pages_read: u64,
    /// Damaged pages among these, which the next merge or sweep replaces.
    pub pages_damaged: u64,
}

/// The directory of the pages, and the operations on them. After an error, hints that could not be written are
/// forgotten. Everything else is as if the call had succeeded.
///
/// Invariants, asserted by [`DiskLevel::check`]:
/// 1. The directory has a slot for every prefix of one depth, from 8 to 26.
/// 2. A page has all slots of one prefix and no others.
/// 3. An intact page names this prefix; its hints begin with it, are strictly ascending, as many as
///    counted, at least one, and at most [`HOLDERS_MAX`] agree in their tag.
/// 4. `len` is the sum over all pages.
/// 5. The pages in use are those in the directory.
/// 6. The lowest free page is used next, after the one that a merge takes out to rewrite it.
pub struct DiskLevel {
    directory: Directory,
    table: PageTable,
    page_hints_max: usize,
}

impl DiskLevel {
    /// An empty level whose pages have room for `page_hints_max` hints.
    pub fn new(page_hints_max: usize) -> Self {
        let mut level = Self { directory: Directory::new(), table: PageTable::default(), page_hints_max: 0 };
        level.set_page_hints_max(page_hints_max);
        level
    }

    /// Changes how many hints fit into a page: a larger volume needs longer pbns. A page with more hints is split when
    /// it is next written.
    pub fn set_page_hints_max(&mut self, page_hints_max: usize) {
        let allowed = HOLDERS_MAX..usize::from(u16::MAX);
        assert!(allowed.contains(&page_hints_max), "{page_hints_max} hints in a page");
        self.page_hints_max = page_hints_max;
    }

    /// The page that has the tag's hints. None if the tag has no hints.
    pub fn locate(&self, tag: Tag) -> Option<PageNo> {
        self.directory.page(tag)
    }

    /// Appends the pbns that may hold the content with this tag, ascending. Reads at most one page.
    pub fn lookup_one<P: HintPages>(&self, pages: &mut P, tag: Tag, pbns: &mut Vec<Pbn>) -> Result<LookedUp, P::Error> {
        let mut found = Vec::new();
        let looked_up = self.lookup(pages, &[tag], &mut found)?;
        pbns.extend(found.iter().map(|hint| hint.pbn));
        Ok(looked_up)
    }

    /// Appends the hints of all these tags, each once, in ascending order. The tags are ascending, and each page is
    /// read once.
    pub fn lookup<P: HintPages>(
        &self,
        pages: &mut P,
        tags: &[Tag],
        found: &mut Vec<Hint>,
    ) -> Result<LookedUp, P::Error> {
        assert!(tags.is_sorted(), "tags to look up are ascending");
        let mut looked_up = LookedUp::default();
        let mut rest = tags;
        while let Some(&tag) = rest.first() {
            let Some(page) = self.directory.page(tag) else {
                rest = &rest[1..];
                continue;
            };
            let (prefix, _) = self.directory.region(tag);
            let batch;
            (batch, rest) = rest.split_at(rest.partition_point(|&tag| prefix.holds(tag)));
            looked_up.pages_read += 1;
            match read_intact(pages, page, prefix)? {
                Some(hints) => append_matches(&hints, batch, found),
                None => looked_up.pages_damaged += 1,
            }
        }
        Ok(looked_up)
    }

    /// Adds hints, ascending. Reads and writes each affected page once, unless it has to be split. Writes only pages
    /// that change. If a content has more than [`HOLDERS_MAX`] holders, `worth` rates each of them (0 is stale). The
    /// least worthy leave, and among equals the highest pbns.
    pub fn merge<P: HintPages>(
        &mut self,
        pages: &mut P,
        hints: &[Hint],
        mut worth: impl FnMut(&[Hint]) -> Vec<u32>,
    ) -> Result<Merged, P::Error> {
        assert!(hints.is_sorted(), "hints to merge are ascending");
        let mut merged = Merged::default();
        let mut rest = hints;
        while let Some(first) = rest.first() {
            let (prefix, page) = self.directory.region(first.tag);
            let batch;
            (batch, rest) = rest.split_at(rest.partition_point(|hint| prefix.holds(hint.tag)));
            self.merge_into(pages, prefix, page, batch, &mut worth, &mut merged)?;
        }
        Ok(merged)
    }

    /// Discards all pages.
    pub fn clear<P: HintPages>(&mut self, pages: &mut P) -> Result<(), P::Error> {
        let empty = Self::new(self.page_hints_max);
        let before = std::mem::replace(self, empty);
        self.table.extend(before.table.end());
        before.directory.pages().try_for_each(|(_, page)| pages.discard(page))
    }

    /// How many leading bits the hints of most pages share: the memory level evicts hints together that agree in this
    /// many. The estimate is on the low side, because two evictions into one page write it twice.
    pub fn eviction_range_bits(&self) -> u32 {
        self.pages().checked_ilog2().unwrap_or(0).max(DEPTH_MIN)
    }

    /// Number of hints.
    pub fn len(&self) -> u64 {
        self.table.hints()
    }

    /// Whether there are no hints.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of pages in use.
    pub fn pages(&self) -> u32 {
        self.table.used()
    }

    /// The file's size in pages: no page at or beyond this number is in use. Shrinks at the end of a sweep.
    pub fn pages_end(&self) -> u32 {
        self.table.end()
    }

    /// Memory taken, in bytes.
    pub fn bytes(&self) -> u64 {
        self.directory.bytes() + self.table.bytes()
    }

    /// Asserts the invariants; reads every page.
    pub fn check<P: HintPages<Error: std::fmt::Debug>>(&self, pages: &mut P) {
        self.directory.check();
        self.table.check();
        let mut used = Vec::new();
        for (prefix, page) in self.directory.pages() {
            used.push(page);
            assert!(self.table.is_used(page), "invariant 5: {page:?}");
            let content = pages.read(page).expect("a page can be read to be checked");
            if let Some(content) = content {
                self.check_page(prefix, page, &content);
            }
        }
        used.sort_unstable();
        assert!(used.is_sorted_by(|a, b| a < b), "invariant 2: {used:?}");
        assert_eq!(used.len() as u32, self.pages(), "invariant 5");
    }

    fn check_page(&self, prefix: Prefix, page: PageNo, content: &HintPage) {
        assert!(is_intact(content, prefix), "invariant 3: {page:?} of {prefix:?}: {:?}", content.prefix);
        assert_eq!(content.hints.len(), self.table.hints_in(page), "invariant 3: {page:?}");
        let holders = content.hints.chunk_by(|a, b| a.tag == b.tag).map(<[Hint]>::len).max();
        assert!((1..=HOLDERS_MAX).contains(&holders.unwrap_or(0)), "invariant 3: {page:?}");
    }

    /// Adds hints with one prefix to its page, if there is one.
    fn merge_into<P: HintPages>(
        &mut self,
        pages: &mut P,
        prefix: Prefix,
        page: Option<PageNo>,
        batch: &[Hint],
        worth: &mut impl FnMut(&[Hint]) -> Vec<u32>,
        merged: &mut Merged,
    ) -> Result<(), P::Error> {
        let mut before = Vec::new();
        let mut intact = true;
        if let Some(page) = page {
            merged.pages_read += 1;
            let read = read_intact(pages, page, prefix)?;
            intact = read.is_some();
            before = read.unwrap_or_default();
        }
        if let Some(page) = page.filter(|_| !intact) {
            merged.pages_damaged += 1;
            merged.lost += self.table.hints_in(page) as u64;
        }
        let (hints, dropped) = union(&before, batch, worth);
        merged.dropped += dropped;
        merged.added += hints.len() as u64 + dropped - before.len() as u64;
        if hints == before && intact {
            return Ok(());
        }
        if let Some(page) = page {
            self.forget(prefix, page);
        }
        self.replace(pages, prefix, page, &hints, merged)
    }

    /// Stores hints under a prefix without a page, in as many pages as they need. Reuses the page that was taken out
    /// for it.
    fn replace<P: HintPages>(
        &mut self,
        pages: &mut P,
        prefix: Prefix,
        mut reuse: Option<PageNo>,
        hints: &[Hint],
        merged: &mut Merged,
    ) -> Result<(), P::Error> {
        let mut parts = Vec::new();
        split(prefix, hints, self.page_hints_max, self.depth_max(hints.len()), &mut parts);
        for (prefix, hints) in parts {
            let (hints, beyond) = hints.split_at(hints.len().min(self.page_hints_max));
            merged.dropped += beyond.len() as u64;
            merged.pages_written += 1;
            let page = reuse.take().unwrap_or_else(|| self.table.lowest_free());
            pages.write(page, &HintPage { prefix, hints: hints.to_vec() })?;
            self.directory.set(prefix, Some(page));
            self.table.begin_use(page, hints.len());
        }
        reuse.map_or(Ok(()), |page| pages.discard(page))
    }

    /// Longest prefix of a page while `added` hints are added. It is long enough even if all hints share one prefix of
    /// 8 bits. The limit bounds the directory to a KiB per page in the worst case.
    fn depth_max(&self, added: usize) -> u32 {
        let pages = (self.len() + added as u64).div_ceil(self.page_hints_max as u64).max(1);
        (DEPTH_MIN + DEPTH_SPARE + pages.ilog2()).min(DEPTH_MAX)
    }

    /// Takes a page, and its hints, out of the directory.
    fn forget(&mut self, prefix: Prefix, page: PageNo) {
        self.directory.set(prefix, None);
        self.table.end_use(page);
    }
}

/// The hints of a page, if it is what the directory expects.
fn read_intact<P: HintPages>(pages: &mut P, page: PageNo, prefix: Prefix) -> Result<Option<Vec<Hint>>, P::Error> {
    let content = pages.read(page)?.filter(|content| is_intact(content, prefix));
    Ok(content.map(|content| content.hints))
}

fn is_intact(content: &HintPage, prefix: Prefix) -> bool {
    let ends = [content.hints.first(), content.hints.last()];
    let within = ends.iter().flatten().all(|hint| prefix.holds(hint.tag));
    content.prefix == prefix && within && content.hints.is_sorted_by(|a, b| a < b)
}

/// Splits hints with one prefix into parts that fit a page each, or that cannot be split further.
fn split<'a>(prefix: Prefix, hints: &'a [Hint], room: usize, depth_max: u32, parts: &mut Vec<(Prefix, &'a [Hint])>) {
    if hints.len() > room && prefix.depth < depth_max {
        let [lower, upper] = prefix.halves();
        let (low, high) = hints.split_at(hints.partition_point(|hint| lower.holds(hint.tag)));
        split(lower, low, room, depth_max, parts);
        split(upper, high, room, depth_max, parts);
    } else if !hints.is_empty() {
        parts.push((prefix, hints));
    }
}

/// Appends the hints of these tags, which are ascending.
fn append_matches(hints: &[Hint], tags: &[Tag], found: &mut Vec<Hint>) {
    let mut wanted: Vec<Tag> = tags.iter().map(|&tag| Hint::new(tag, Pbn(0)).tag).collect();
    wanted.dedup();
    for tag in wanted {
        let rest = &hints[hints.partition_point(|hint| hint.tag < tag)..];
        found.extend(rest.iter().take_while(|hint| hint.tag == tag));
    }
}

/// The hints of both, ascending, and how many surplus holders were dropped.
fn union(before: &[Hint], batch: &[Hint], worth: &mut impl FnMut(&[Hint]) -> Vec<u32>) -> (Vec<Hint>, u64) {
    let mut hints = [before, batch].concat();
    // Not the unstable sort: this one merges two ascending halves in one pass.
    hints.sort();
    hints.dedup();
    let are_too_many = |holders: &[Hint]| holders.len() > HOLDERS_MAX;
    if !hints.chunk_by(|a, b| a.tag == b.tag).any(are_too_many) {
        return (hints, 0);
    }
    let all = hints.len();
    let mut kept = Vec::with_capacity(all);
    for holders in hints.chunk_by(|a, b| a.tag == b.tag) {
        match are_too_many(holders) {
            true => kept.extend(best_of(holders, &worth(holders))),
            false => kept.extend_from_slice(holders),
        }
    }
    let dropped = (all - kept.len()) as u64;
    (kept, dropped)
}

/// The [`HOLDERS_MAX`] most worthy holders of one content, ascending.
fn best_of(holders: &[Hint], worth: &[u32]) -> Vec<Hint> {
    assert_eq!(worth.len(), holders.len(), "a worth for every holder");
    let mut ranked: Vec<(Reverse<u32>, Hint)> =
        worth.iter().map(|worth| Reverse(*worth)).zip(holders.iter().copied()).collect();
    ranked.sort_unstable();
    let mut best: Vec<Hint> = ranked.into_iter().take(HOLDERS_MAX).map(|(_, hint)| hint).collect();
    best.sort_unstable();
    best
}

#[cfg(test)]
mod tests;
