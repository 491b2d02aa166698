//! Filling the hint store: the block table is read once, at disk speed, in the background, after a mount and when
//! hints were lost. Until it is done some duplicates are missed; nothing else depends on it.

use std::sync::atomic::Ordering::Relaxed;

use crate::core::Core;
use crate::format::page::{PAGE_ENTRIES, Page};
use crate::{Pbn, Result, Tag};

/// Pages read in one request.
const REQUEST_PAGES: u64 = 256;

impl Core {
    /// After a mount: both levels of the hint store come to name every live block of the sample.
    pub fn fill_hints(&self) -> Result<()> {
        let is_complete = self.adopt_disk_level();
        if is_complete && !self.hints_fit_into_memory() {
            self.hints.are_complete.store(true, Relaxed);
            return Ok(());
        }
        self.scan_table()
    }

    /// Adds a hint for every live block of the table.
    pub fn scan_table(&self) -> Result<()> {
        let pages_end = self.state.lock().totals.data.0.div_ceil(PAGE_ENTRIES);
        self.hints.scan_pages.store(pages_end, Relaxed);
        self.hints.scan_is_wanted.store(false, Relaxed);
        // What left memory before comes back; what leaves from here on is noted.
        self.hints.left_memory.store(false, Relaxed);
        self.hints.are_complete.store(true, Relaxed);
        let scanned = self.scan_pages_below(pages_end);
        self.hints.scan_pages.store(0, Relaxed);
        if scanned.is_err() || self.signals.is_stopped() {
            self.hints.are_complete.store(false, Relaxed);
        }
        scanned
    }

    /// Pages in memory first: what a checkpoint brings to disk meanwhile is seen there as well.
    fn scan_pages_below(&self, pages_end: u64) -> Result<()> {
        let unwritten = self.state.lock().table.unwritten();
        for number in unwritten {
            let page = self.state.lock().table.page(number).cloned();
            page.iter().for_each(|page| self.add_hints_of(number, page));
        }
        let mut number = 0;
        while number < pages_end && !self.signals.is_stopped() {
            let Some(next) = self.stored.next_written_page(number)? else { return Ok(()) };
            number = next;
            let count = REQUEST_PAGES.min(pages_end.saturating_sub(number));
            let pages = self.stored.read_pages(number, count as usize)?;
            for (number, page) in &pages {
                self.add_hints_of(*number, page);
            }
            number += count;
            self.hints.scan_pages_done.store(number, Relaxed);
        }
        Ok(())
    }

    fn add_hints_of(&self, number: u64, page: &Page) {
        let entries = (0..PAGE_ENTRIES).map(|n| Pbn(number * PAGE_ENTRIES + n)).map(|pbn| (pbn, page.entry(pbn)));
        let live: Vec<(Tag, Pbn)> =
            entries.filter(|(_, entry)| entry.serves(entry.tag)).map(|(pbn, entry)| (entry.tag, pbn)).collect();
        self.update_hints(&[], &live);
        if self.must_merge() {
            self.merge_evicted();
        }
    }

    /// Pages of the block table read by a scan that is under way, and all that it reads; 0 of 0: there is none.
    pub fn scan_progress(&self) -> (u64, u64) {
        match self.hints.scan_pages.load(Relaxed) {
            0 => (0, 0),
            pages => (self.hints.scan_pages_done.load(Relaxed).min(pages), pages),
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use crate::settings::values::Settings;
    use crate::tests::fixture::{Devices, two_levels, unique};
    use crate::{BLOCK_BYTES, Blocks, MapId};

    #[test]
    fn memory_names_all_from_a_scan_on_until_a_hint_leaves_it() {
        let core = Devices::new(Blocks(40_000), Settings { hint_bytes: 64 << 10, ..two_levels() }).open();
        assert!(!core.memory_names_all(), "nothing was scanned yet");
        core.fill_hints().unwrap();
        assert!(core.memory_names_all());
        let data = unique(12_000, 1);
        for (n, part) in (0..).zip(data.chunks(200 * BLOCK_BYTES)) {
            core.write(MapId(1), n * 200 * BLOCK_BYTES as u64, part, |_, _| ()).unwrap();
            let named = core.hints.memory.lock().len() as u64;
            assert_eq!(core.memory_names_all(), named == (n + 1) * 200, "{named} hints after {} blocks", (n + 1) * 200);
        }
        assert!(!core.memory_names_all(), "the test has to fill memory");
        core.merge_evicted();
        core.scan_table().unwrap();
        assert!(!core.memory_names_all(), "they do not fit");
    }
}
