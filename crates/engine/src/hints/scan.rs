//! Fills the hint store: reads the block table once, at disk speed, in the background, after a mount and after hints
//! were lost. Until it is done some duplicates are missed. Nothing else depends on it.

use crate::format::page::{PAGE_ENTRIES, Page};
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

    /// Adds a hint for every live block of the table.
    pub fn scan_table(&self) -> Result<()> {
        let pages_end = self.state.lock().totals.data.0.div_ceil(PAGE_ENTRIES);
        self.hints.coverage().begin_scan(pages_end);
        let scanned = self.scan_pages_below(pages_end);
        self.hints.coverage().end_scan(scanned.is_ok() && !self.signals.is_stopped());
        scanned
    }

    /// Scans pages in memory first: a page that a checkpoint writes meanwhile is seen on disk as well.
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
            let pages = self.metadata.readable_pages(number, count)?;
            // An unreadable page would be unreadable again next time, so its blocks get no hints.
            for (number, page) in (number..).zip(&pages) {
                page.iter().for_each(|page| self.add_hints_of(number, page));
            }
            number += count;
            self.hints.coverage().note_scanned(number);
        }
        Ok(())
    }

    fn add_hints_of(&self, number: u64, page: &Page) {
        let entries = (0..PAGE_ENTRIES).map(|n| Pbn(number * PAGE_ENTRIES + n)).map(|pbn| (pbn, page.entry(pbn)));
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
