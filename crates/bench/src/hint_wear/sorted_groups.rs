//! A file of sorted groups, by its counts: 4 KiB pages found by leading tag bits, split when full.
//!
//! Extendible hashing over the tag's leading bits: page P of depth D holds the hints whose D leading bits are its
//! own. Hints that leave memory are merged into their page by one read and one write; a page that would not hold
//! them becomes two. Only tags are kept, to split as a real file would.

use super::{DiskLevel, GROUP_BITS, Hint, TAG_BITS, Traffic};
use crate::aligned::BLOCK_BYTES;
use crate::failure::Result;

/// Hints of 7 bytes in a page, behind a header of 29 bytes.
const HINTS_IN_PAGE_MAX: usize = 581;

/// The file; `directory` has one entry per value of the `depth` leading bits.
pub struct SortedGroups {
    pages: Vec<Page>,
    directory: Vec<usize>,
    depth: u32,
    traffic: Traffic,
}

#[derive(Default)]
struct Page {
    depth: u32,
    tags: Vec<u64>,
}

impl Default for SortedGroups {
    fn default() -> SortedGroups {
        SortedGroups { pages: vec![Page::default()], directory: vec![0], depth: 0, traffic: Traffic::default() }
    }
}

impl SortedGroups {
    fn page_of(&self, tag: u64) -> usize {
        self.directory[(tag >> (TAG_BITS - self.depth)) as usize]
    }

    /// Adds hints that belong to one page, splitting it as often as needed; one write per page that results.
    fn merge(&mut self, hints: &[Hint]) {
        let page = self.page_of(hints[0].tag);
        if self.pages[page].tags.len() + hints.len() <= HINTS_IN_PAGE_MAX {
            self.pages[page].tags.extend(hints.iter().map(|hint| hint.tag));
            self.traffic.written += BLOCK_BYTES as u64;
            return;
        }
        self.split(page);
        let bit = TAG_BITS - self.pages[page].depth;
        let (low, high): (Vec<Hint>, Vec<Hint>) = hints.iter().partition(|hint| hint.tag >> bit & 1 == 0);
        for half in [low, high] {
            match half.is_empty() {
                // It lost the other half's hints and is written all the same.
                true => self.traffic.written += BLOCK_BYTES as u64,
                false => self.merge(&half),
            }
        }
    }

    fn split(&mut self, page: usize) {
        if self.pages[page].depth == self.depth {
            self.directory = self.directory.iter().flat_map(|page| [*page, *page]).collect();
            self.depth += 1;
        }
        self.pages[page].depth += 1;
        let depth = self.pages[page].depth;
        let tags = std::mem::take(&mut self.pages[page].tags);
        let (low, high) = tags.into_iter().partition(|tag| tag >> (TAG_BITS - depth) & 1 == 0);
        self.pages[page].tags = low;
        let sibling = self.pages.len();
        self.pages.push(Page { depth, tags: high });
        let shift = self.depth - depth;
        for (index, entry) in self.directory.iter_mut().enumerate() {
            if *entry == page && index >> shift & 1 == 1 {
                *entry = sibling;
            }
        }
    }
}

impl DiskLevel for SortedGroups {
    fn demote(&mut self, hints: &[Hint]) -> Result<()> {
        let mut sorted = hints.to_vec();
        sorted.sort_unstable_by_key(|hint| hint.tag);
        let mut rest = sorted.as_slice();
        while let Some(first) = rest.first() {
            let page = self.page_of(first.tag);
            let here = rest.iter().take_while(|hint| self.page_of(hint.tag) == page).count();
            let (these, others) = rest.split_at(here);
            self.traffic.read += BLOCK_BYTES as u64;
            self.merge(these);
            rest = others;
        }
        Ok(())
    }

    fn bits_of_a_write(&self, group: usize) -> u32 {
        self.pages[self.page_of((group as u64) << (TAG_BITS - GROUP_BITS))].depth.min(GROUP_BITS)
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn bytes(&self) -> Result<u64> {
        Ok((self.pages.len() * BLOCK_BYTES) as u64)
    }

    fn is_model(&self) -> bool {
        true
    }

    fn look_up(&self, _hint: Hint) -> Result<u64> {
        // Memory knows each group's page.
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Random;

    #[test]
    fn every_hint_lies_in_the_page_that_its_leading_bits_name() {
        let mut random = Random::new(1);
        let mut file = SortedGroups::default();
        for _ in 0..50 {
            let hints: Vec<Hint> = (0..400).map(|_| Hint::draw(&mut random)).collect();
            file.demote(&hints).unwrap();
        }
        assert_eq!(file.pages.iter().map(|page| page.tags.len()).sum::<usize>(), 50 * 400);
        for (number, page) in file.pages.iter().enumerate() {
            assert!(page.tags.len() <= HINTS_IN_PAGE_MAX);
            assert!(page.tags.iter().all(|tag| file.page_of(*tag) == number), "page {number}");
        }
    }

    #[test]
    fn a_batch_for_one_page_is_one_read_and_one_write() {
        let mut file = SortedGroups::default();
        file.demote(&[Hint { tag: 1, pbn: 1 }, Hint { tag: 2, pbn: 2 }]).unwrap();
        assert_eq!((file.traffic.read, file.traffic.written), (4096, 4096));
    }
}
