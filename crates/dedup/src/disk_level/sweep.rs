//! The slow sweep over the disk level: stale hints leave, small pages join, the store shrinks.

use super::{DiskLevel, HintPages, Merged, PageNo, Prefix, read_intact};
use crate::Tag;
use crate::hints::Hint;

/// Two pages are joined if their hints fill at most this share of one, in percent. Less than 100, so
/// that the next few hints do not split the page again.
const JOIN_PERCENT_MAX: usize = 75;

/// The result of one step of the sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Where to continue; None: the end is reached.
    pub next: Option<Tag>,
    /// Hints that were checked.
    pub checked: u64,
    /// Stale hints among these, which were dropped.
    pub stale: u64,
    /// Hints in pages found damaged.
    pub lost: u64,
    /// Pages read.
    pub pages_read: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Pages discarded.
    pub pages_discarded: u64,
    /// Pages found damaged, which are discarded.
    pub pages_damaged: u64,
}

impl DiskLevel {
    /// Sweeps the first page with a tag at or above the cursor. Drops its stale hints. Joins it with its buddy, swept
    /// likewise, if both fit into one page. Discards it if it is empty. [`DiskLevel::len`] falls by `stale` and `lost`,
    /// as long as no page has more hints than it has room for.
    pub fn sweep<P: HintPages>(
        &mut self,
        pages: &mut P,
        cursor: Tag,
        is_live: impl FnMut(&[Hint]) -> Vec<bool>,
    ) -> Result<Swept, P::Error> {
        let mut swept = Swept::default();
        if let Some((prefix, page)) = self.directory.next_page(cursor) {
            self.sweep_from(pages, prefix, page, is_live, &mut swept)?;
        }
        if swept.next.is_none() {
            self.directory.shrink();
            self.table.shrink();
        }
        Ok(swept)
    }

    fn sweep_from<P: HintPages>(
        &mut self,
        pages: &mut P,
        prefix: Prefix,
        page: PageNo,
        mut is_live: impl FnMut(&[Hint]) -> Vec<bool>,
        swept: &mut Swept,
    ) -> Result<(), P::Error> {
        swept.next = prefix.end();
        let (mut hints, mut changed) = self.sweep_page(pages, prefix, page, &mut is_live, swept)?;
        if let Some(buddy) = self.joinable(prefix, hints.len()) {
            let (others, _) = self.sweep_page(pages, prefix.buddy(), buddy, &mut is_live, swept)?;
            self.forget(prefix.buddy(), buddy);
            swept.pages_discarded += 1;
            pages.discard(buddy)?;
            // The pages have different tags, so no content gains holders.
            hints.extend(others);
            hints.sort_unstable();
            changed = true;
        }
        if changed || hints.len() > self.page_hints_max {
            self.forget(prefix, page);
            // The shortest possible prefix now: that of both buddies, or of a page next to empty ones.
            let (prefix, _) = self.directory.region(prefix.first_tag());
            let mut merged = Merged::default();
            self.replace(pages, prefix, Some(page), &hints, &mut merged)?;
            swept.next = prefix.end();
            swept.pages_written += merged.pages_written;
            swept.pages_discarded += u64::from(hints.is_empty());
        }
        Ok(())
    }

    /// The live hints of a page, and whether some were dropped.
    fn sweep_page<P: HintPages>(
        &self,
        pages: &mut P,
        prefix: Prefix,
        page: PageNo,
        is_live: &mut impl FnMut(&[Hint]) -> Vec<bool>,
        swept: &mut Swept,
    ) -> Result<(Vec<Hint>, bool), P::Error> {
        swept.pages_read += 1;
        let Some(mut hints) = read_intact(pages, page, prefix)? else {
            swept.pages_damaged += 1;
            swept.lost += self.table.hints_in(page) as u64;
            return Ok((Vec::new(), true));
        };
        let all = hints.len();
        let live = is_live(&hints);
        assert_eq!(live.len(), all, "an answer for every hint");
        let mut answers = live.into_iter();
        hints.retain(|_| answers.next() == Some(true));
        swept.checked += all as u64;
        swept.stale += (all - hints.len()) as u64;
        let fewer = hints.len() < all;
        Ok((hints, fewer))
    }

    /// The buddy that a page with `hints` hints can be joined with.
    fn joinable(&self, prefix: Prefix, hints: usize) -> Option<PageNo> {
        prefix.parent()?;
        let (found, buddy) = self.directory.region(prefix.buddy().first_tag());
        let buddy = buddy.filter(|_| found == prefix.buddy())?;
        let both = hints + self.table.hints_in(buddy);
        (both * 100 <= self.page_hints_max * JOIN_PERCENT_MAX).then_some(buddy)
    }
}
