//! Fills the hint store: reads the block table once, at disk speed, in the background, after a mount and after hints
//! were lost. Until it is done some duplicates are missed. Nothing else depends on it.

use std::ops::Range;

use crate::format::fragment::FIRST_PAGE;
use crate::format::page::{PAGE_ENTRIES, Page, pbns_of};
use crate::hints::levels::HintLevels;
use crate::{Pbn, Result, Tag};

/// Pages read in one request.
const REQUEST_PAGES: u64 = 256;

impl HintLevels {
    /// After a mount: makes both levels of the hint store name every live block of the sample.
    pub fn fill_hints(&self) -> Result<()> {
        let is_complete = self.hints.adopt_disk_level(self.journal.opened_at(), &self.stats.counters);
        let used = self.state.lock().totals.used;
        if is_complete && !self.hints.have_room_for(used) {
            self.hints.coverage().note_complete();
            return Ok(());
        }
        self.scan_table()
    }

    /// Adds a hint for every live block of the table, and for every fragment.
    pub fn scan_table(&self) -> Result<()> {
        let pages_end = self.state.lock().totals.data.0.div_ceil(PAGE_ENTRIES);
        let fragments_end = self.stored.fragment_pages_end()?;
        self.hints.coverage().begin_scan(pages_end + fragments_end - FIRST_PAGE);
        self.scan_pages_in_memory();
        let of_blocks = self.scan_pages(0..pages_end, 0);
        let scanned = of_blocks.and_then(|()| self.scan_pages(FIRST_PAGE..fragments_end, pages_end));
        self.hints.coverage().end_scan(scanned.is_ok() && !self.signals.is_stopped());
        scanned
    }

    /// Pages in memory come first: a page that a checkpoint writes meanwhile is seen on disk as well.
    fn scan_pages_in_memory(&self) {
        let unwritten = self.state.lock().table.unwritten();
        for number in unwritten {
            let page = self.state.lock().table.page(number).cloned();
            page.iter().for_each(|page| self.add_hints_of(number, page));
        }
    }

    /// Scans pages of one device, after `scanned` others.
    fn scan_pages(&self, pages: Range<u64>, scanned: u64) -> Result<()> {
        let mut number = pages.start;
        while number < pages.end && !self.signals.is_stopped() {
            let Some(next) = self.stored.next_written_page(number)? else { return Ok(()) };
            number = next;
            let count = REQUEST_PAGES.min(pages.end.saturating_sub(number));
            let found = self.metadata.readable_pages(number, count)?;
            // An unreadable page would be unreadable again next time, so its blocks get no hints.
            for (number, page) in (number..).zip(&found) {
                page.iter().for_each(|page| self.add_hints_of(number, page));
            }
            number += count;
            self.hints.coverage().note_scanned(scanned + number - pages.start);
        }
        Ok(())
    }

    fn add_hints_of(&self, number: u64, page: &Page) {
        let entries = pbns_of(number).map(|pbn| (pbn, page.entry(pbn)));
        let live: Vec<(Tag, Pbn)> =
            entries.filter(|(_, entry)| entry.serves(entry.tag)).map(|(pbn, entry)| (entry.tag, pbn)).collect();
        self.update_hints(&[], &live);
        if self.hints.are_many_waiting() {
            self.merge_waiting_hints();
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
        let volume = Devices::new(Blocks(40_000), Settings { hint_bytes: 64 << 10, ..two_levels() }).open();
        assert!(!volume.base.hints.memory_names_all(), "nothing was scanned yet");
        volume.hint_levels.fill_hints().unwrap();
        assert!(volume.base.hints.memory_names_all());
        let data = unique(12_000, 1);
        for (n, part) in (0..).zip(data.chunks(200 * BLOCK_BYTES)) {
            volume.write(MapId(1), n * 200 * BLOCK_BYTES as u64, part, |_, _| ()).unwrap();
            let named = volume.base.hints.len() as u64;
            assert_eq!(
                volume.base.hints.memory_names_all(),
                named == (n + 1) * 200,
                "{named} hints after {} blocks",
                (n + 1) * 200
            );
        }
        assert!(!volume.base.hints.memory_names_all(), "the test has to fill memory");
        volume.hint_levels.merge_waiting_hints();
        volume.hint_levels.scan_table().unwrap();
        assert!(!volume.base.hints.memory_names_all(), "they do not fit");
    }
}
