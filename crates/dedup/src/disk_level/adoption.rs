//! The directory rebuilt from what the pages say of themselves, after a mount.

use super::{DiskLevel, HintPages, PageNo, Prefix};

/// A disk level in the making. Pages come in any order and give the same result in each; those that
/// contradict each other, as a crash in the middle of a split leaves them, cost hints, no more.
pub struct Adoption {
    level: DiskLevel,
    refused: Vec<PageNo>,
}

impl Adoption {
    /// No page yet; a page holds at most `page_hints_max` hints.
    pub fn new(page_hints_max: usize) -> Self {
        Self { level: DiskLevel::new(page_hints_max), refused: Vec::new() }
    }

    /// Takes a page whose content is intact, each page once. Of two pages that a tag could lie in,
    /// the one with the longer prefix stays, as it was written later when a page was split; of
    /// equal ones the lower page.
    pub fn adopt(&mut self, page: PageNo, prefix: Prefix, hints: usize) {
        if !prefix.is_valid() || hints == 0 || hints >= usize::from(u16::MAX) {
            self.refused.push(page);
            return;
        }
        if let Some((other_prefix, other)) = self.level.directory.first_within(prefix) {
            let other_stays = (other_prefix.depth, page) > (prefix.depth, other);
            if other_stays {
                self.refused.push(page);
                return;
            }
            self.level.forget(other_prefix, other);
            self.refused.push(other);
        }
        self.level.directory.set(prefix, Some(page));
        self.level.table.begin_use(page, hints);
    }

    /// The disk level of the adopted pages. Discards the pages that lost; all others below
    /// `pages_end`, the file's size, are free.
    pub fn finish<P: HintPages>(self, pages: &mut P, pages_end: u32) -> Result<DiskLevel, P::Error> {
        let mut level = self.level;
        level.table.extend(pages_end);
        for page in self.refused {
            pages.discard(page)?;
        }
        Ok(level)
    }
}
