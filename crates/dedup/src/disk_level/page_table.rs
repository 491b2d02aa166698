//! Which pages are in use, and how many hints each has. All others are free.

use super::PageNo;

/// In place of a count: the page is free.
const FREE: u16 = u16::MAX;

/// Two bytes a page.
#[derive(Default)]
pub(super) struct PageTable {
    hints_of: Vec<u16>,
    /// No page below this one is free.
    lowest: usize,
    used: u32,
    hints: u64,
}

impl PageTable {
    /// The lowest free page, so that free pages collect at the file's end.
    pub(super) fn lowest_free(&mut self) -> PageNo {
        let rest = self.hints_of[self.lowest..].iter();
        self.lowest += rest.take_while(|&&hints| hints != FREE).count();
        PageNo(self.lowest as u32)
    }

    /// Marks a free page as in use, with its number of hints.
    pub(super) fn begin_use(&mut self, page: PageNo, hints: usize) {
        let index = page.0 as usize;
        self.extend(page.0 + 1);
        assert!(!self.is_used(page), "{page:?} is in use");
        self.hints_of[index] = u16::try_from(hints).expect("a page of 4 KiB has fewer hints");
        self.used += 1;
        self.hints += hints as u64;
    }

    /// Marks a page as free.
    pub(super) fn end_use(&mut self, page: PageNo) {
        let index = page.0 as usize;
        self.used -= 1;
        self.hints -= self.hints_in(page) as u64;
        self.hints_of[index] = FREE;
        self.lowest = self.lowest.min(index);
    }

    /// Extends the table, and so the file, to at least `pages` pages.
    pub(super) fn extend(&mut self, pages: u32) {
        let pages = self.hints_of.len().max(pages as usize);
        self.hints_of.resize(pages, FREE);
    }

    /// Truncates the table after the last page in use.
    pub(super) fn shrink(&mut self) {
        let last = self.hints_of.iter().rposition(|&hints| hints != FREE);
        self.hints_of.truncate(last.map_or(0, |last| last + 1));
        self.hints_of.shrink_to_fit();
        self.lowest = self.lowest.min(self.hints_of.len());
    }

    pub(super) fn is_used(&self, page: PageNo) -> bool {
        self.hints_of.get(page.0 as usize).is_some_and(|&hints| hints != FREE)
    }

    pub(super) fn hints_in(&self, page: PageNo) -> usize {
        assert!(self.is_used(page), "{page:?} is free");
        usize::from(self.hints_of[page.0 as usize])
    }

    pub(super) fn hints(&self) -> u64 {
        self.hints
    }

    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn end(&self) -> u32 {
        self.hints_of.len() as u32
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.hints_of.capacity() * size_of::<u16>()) as u64
    }

    pub(super) fn check(&self) {
        let used = self.hints_of.iter().filter(|&&hints| hints != FREE);
        let hints: u64 = used.clone().map(|&hints| u64::from(hints)).sum();
        assert_eq!((used.count() as u32, hints), (self.used, self.hints), "invariant 4");
        assert!((0..self.lowest as u32).all(|page| self.is_used(PageNo(page))), "invariant 6");
    }
}
