//! Rebuilds the directory after a mount, from the prefixes in the pages.

use super::{DiskLevel, HintPages, PageNo, Prefix};

/// A disk level being rebuilt. The result does not depend on the order of the pages. Pages that contradict each other,
/// as after a crash during a split, only cost hints.
pub struct Adoption {
    level: DiskLevel,
    refused: Vec<PageNo>,
}

impl Adoption {
    /// An empty rebuild; a page holds at most `page_hints_max` hints.
    pub fn new(page_hints_max: usize) -> Self {
        Self { level: DiskLevel::new(page_hints_max), refused: Vec::new() }
    }

    /// Adds an intact page, each page once. If a tag could be in two pages, the page with the longer prefix stays,
    /// because a split wrote it later. If both are equal, the lower page stays.
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

    /// The disk level of the adopted pages. Discards the refused pages. All others below `pages_end`, the file's size
    /// in pages, are free.
    pub fn finish<P: HintPages>(self, pages: &mut P, pages_end: u32) -> Result<DiskLevel, P::Error> {
        let mut level = self.level;
        level.table.extend(pages_end);
        for page in self.refused {
            pages.discard(page)?;
        }
        Ok(level)
    }
}
