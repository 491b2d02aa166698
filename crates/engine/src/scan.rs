//! Filling the hint store after a mount: the block table is read once, at disk speed, in the background.
//! Until it is done some duplicates are missed; nothing else depends on it.

use crate::core::Core;
use crate::format::page::{PAGE_BYTES, PAGE_ENTRIES};
use crate::{Error, Pbn, Result, Tag};

/// Pages read in one request.
const REQUEST_PAGES: u64 = 256;

impl Core {
    /// Adds a hint for every live block of the table.
    pub fn scan_table(&self) -> Result<()> {
        let pages_end = self.state.lock().sums.data.0.div_ceil(PAGE_ENTRIES);
        let mut number = 0;
        while number < pages_end && !self.signals.is_stopped() {
            let at = number * PAGE_BYTES as u64;
            let next = self.table.next_data(at).map_err(|e| Error::io("scanning the block table", e))?;
            let Some(next) = next else { return Ok(()) };
            number = next / PAGE_BYTES as u64;
            let count = REQUEST_PAGES.min(pages_end.saturating_sub(number));
            let pages = self.read_page_run(number, count as usize)?;
            let live: Vec<(Tag, Pbn)> = pages
                .iter()
                .flat_map(|(number, page)| {
                    (0..PAGE_ENTRIES)
                        .map(move |n| Pbn(number * PAGE_ENTRIES + n))
                        .map(move |pbn| (pbn, page.entry(pbn)))
                })
                .filter(|(_, entry)| entry.count > 0)
                .map(|(pbn, entry)| (entry.tag, pbn))
                .collect();
            let mut hints = self.hints.lock();
            live.into_iter().for_each(|(tag, pbn)| {
                hints.insert(tag, pbn);
            });
            number += count;
        }
        Ok(())
    }
}
