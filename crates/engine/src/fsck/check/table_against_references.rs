//! The block table, page by page, against the references: the second part of an audit.

use super::blocks::Contents;
use super::fault::Fault;
use super::packs::PackSums;
use super::reference_counts::{Counts, References};
use super::{Audit, Phase};
use crate::format::fragment::{FIRST_NUMBER, FIRST_PAGE, is_fragment};
use crate::format::page::{Entry, PAGE_BYTES, PAGE_ENTRIES, Page, pbns_of};
use crate::fsck::check::Checker;
use crate::fsck::sort::Sorter;
use crate::space::allocator::Run;
use crate::{BadBlock, Blocks, Pbn, Result};

/// Pages read in one request, and the window of blocks whose references are counted at a time.
const WINDOW_PAGES: u64 = 32;
const WINDOW_BLOCKS: u64 = WINDOW_PAGES * PAGE_ENTRIES;

/// The counts that the table is compared with.
struct Against {
    counts: Counts,
    packs: PackSums,
    contents: Contents,
}

/// Adjacent blocks with the same wrong count.
type OpenFault = Option<(Pbn, u64, u32, u32)>;

impl Audit<'_> {
    /// (10) for fragments, and the references from them to the blocks that hold them. Returns where they lie.
    pub fn fragments_in_blocks(&mut self, references: &mut References) -> Result<PackSums> {
        let mut placed = Sorter::default();
        let data = self.checker.state.lock().totals.data;
        let mut number = FIRST_PAGE;
        let end = self.checker.stored.fragment_pages_end()?;
        while number < end {
            let count = WINDOW_PAGES.min(end - number);
            for (number, page) in (number..).zip(self.checker.pages_as_found(number, count)?) {
                self.has_unknown_fragments |= page.damaged_sectors() != 0;
                for pbn in pbns_of(number).filter(|pbn| page.count(*pbn) > 0) {
                    let place = page.fragment_place(pbn);
                    self.report.fragments.fragments += 1;
                    self.report.fragments.bytes += place.map_or(0, |place| u64::from(place.bytes));
                    match place.filter(|place| place.pack_end().0 < data.0) {
                        Some(place) => {
                            place.holders().try_for_each(|block| references.add(Run { pbn: block, blocks: 1 }))?;
                            placed.push(PackSums::item(pbn, &place))?;
                        }
                        None => self.report.note(Fault::NoPlace { pbn }),
                    }
                }
            }
            number += count;
        }
        Ok(PackSums::new(placed.sorted()?))
    }

    /// (2), (4), (5), (6) for pages, and (10) for blocks.
    pub fn table(&mut self, counts: Counts, packs: PackSums) -> Result<()> {
        let data_end = self.checker.state.lock().totals.data.0;
        let numbers_end = self.checker.stored.fragment_pages_end()? * PAGE_ENTRIES;
        let mut unwritten = self.checker.state.lock().table.unwritten();
        unwritten.sort_unstable();
        let mut against = Against { counts, packs, contents: Contents::default() };
        self.entries(0..data_end, &unwritten, &mut against)?;
        against.packs.pass(Pbn(u64::MAX), &mut self.report)?;
        self.entries(FIRST_NUMBER..numbers_end, &unwritten, &mut against)?;
        self.checker.verify(&mut against.contents, &mut self.report)?;
        Ok(())
    }

    /// The same for a range of entries in one device.
    fn entries(&mut self, range: std::ops::Range<u64>, unwritten: &[u64], against: &mut Against) -> Result<()> {
        let (mut first, end) = (range.start, range.end);
        while first < end {
            let window = first..end.min(first + WINDOW_BLOCKS);
            let next = self.next_of_interest(first, unwritten, &mut against.counts)?;
            if next < window.end {
                self.window(window.clone(), against)?;
            }
            let untouched = (next / WINDOW_BLOCKS * WINDOW_BLOCKS).min(end);
            first = window.end.max(untouched);
            assert!(window.end <= first && first <= end, "{first} follows {window:?}, the entries end at {end}");
        }
        Ok(())
    }

    /// The first block from `first` on that may be live or have a reference.
    fn next_of_interest(&self, first: u64, unwritten: &[u64], counts: &mut Counts) -> Result<u64> {
        let stored = self.checker.stored.next_written_page(first / PAGE_ENTRIES)?;
        let stored = stored.map(|page| page * PAGE_ENTRIES);
        let in_memory = unwritten.get(unwritten.partition_point(|page| *page < first / PAGE_ENTRIES));
        let in_memory = in_memory.map(|page| page * PAGE_ENTRIES);
        let referred = counts.next_from(first)?;
        Ok([stored, in_memory, referred].into_iter().flatten().min().unwrap_or(u64::MAX))
    }

    fn window(&mut self, window: std::ops::Range<u64>, against: &mut Against) -> Result<()> {
        let mut counted = vec![0; (window.end - window.start) as usize];
        against.counts.fill(window.start, &mut counted)?;
        let used = self.checker.state.lock().totals.used;
        let number = window.start / PAGE_ENTRIES;
        let pages = self.checker.pages_as_found(number, (window.end - window.start).div_ceil(PAGE_ENTRIES))?;
        let mut open = None;
        for (number, (page, counted)) in (number..).zip(pages.iter().zip(counted.chunks(PAGE_ENTRIES as usize))) {
            self.page_itself(number, page);
            for (pbn, counted) in pbns_of(number).zip(counted) {
                let is_whole = !page.is_damaged(pbn);
                let entry = page.entry(pbn);
                let may_be_right = self.has_unknown_fragments && entry.is_pack() && *counted < entry.count;
                if is_whole && entry.count != *counted && !may_be_right {
                    self.wrong_count(&mut open, pbn, entry.count, *counted);
                }
                if is_whole && entry.is_pack() {
                    self.pack(pbn, &entry, &mut against.packs)?;
                }
                if is_whole && entry.count > 0 {
                    self.live(pbn, &entry, &mut against.contents)?;
                }
            }
            (self.progress)(Phase::Blocks, self.report.live.0, used.0);
        }
        self.close(open);
        Ok(())
    }

    fn page_itself(&mut self, number: u64, page: &Page) {
        if page.damaged_sectors() != 0 {
            self.has_damaged_pages = true;
            self.report.note(Fault::Page { number, sectors: page.damaged_sectors() });
        }
        let (newest, durable) = (page.newest_sequence(), self.checker.state.lock().durable_sequence);
        if newest > durable {
            self.report.note(Fault::PageAge { number, found: newest, newest: durable });
        }
    }

    fn wrong_count(&mut self, open: &mut OpenFault, pbn: Pbn, stored: u32, found: u32) {
        match open {
            Some((first, blocks, a, b)) if first.plus(*blocks) == pbn && (*a, *b) == (stored, found) => *blocks += 1,
            _ => {
                let done = open.replace((pbn, 1, stored, found));
                self.close(done);
            }
        }
    }

    fn close(&mut self, open: OpenFault) {
        if let Some((pbn, blocks, stored, found)) = open {
            self.report.note(Fault::Count { pbn, blocks, stored, found, in_doubt: self.is_in_doubt });
        }
    }

    /// (10) for a block that holds fragments.
    fn pack(&mut self, pbn: Pbn, entry: &Entry, packs: &mut PackSums) -> Result<()> {
        self.report.fragments.blocks += 1;
        let (stored, found) = (entry.tag.0, packs.bytes_of(pbn, &mut self.report)?);
        if stored != found && !self.has_unknown_fragments {
            self.report.note(Fault::PackBytes { pbn, stored, found });
        }
        Ok(())
    }

    fn live(&mut self, pbn: Pbn, entry: &Entry, contents: &mut Contents) -> Result<()> {
        if !is_fragment(pbn) {
            self.report.live += Blocks(1);
        }
        if self.checker.space.is_known_free(pbn) {
            self.report.note(Fault::Free { pbn });
        }
        if entry.is_bad() && self.checker.state.lock().bad.get(pbn).is_none() {
            // Its record is damaged, so no replacement is known.
            let references = entry.count.saturating_sub(1);
            self.report.bad.push(BadBlock { pbn, replacement: None, references });
        }
        if self.read_data && !entry.is_bad() && !entry.is_pack() && !contents.add(pbn, entry.tag) {
            self.checker.verify(contents, &mut self.report)?;
            assert!(contents.add(pbn, entry.tag), "nothing is gathered, and block {pbn} has no room");
        }
        Ok(())
    }
}

impl Checker {
    /// The length of the live fragments of the pack that ends with a block, 0 for another block of a pack. None: no
    /// live fragment counts in the block.
    pub fn pack_bytes_of(&self, block: Pbn) -> Result<Option<u64>> {
        let end = self.stored.fragment_pages_end()?;
        let mut number = FIRST_PAGE;
        let mut found = None;
        while number < end {
            let count = WINDOW_PAGES.min(end - number);
            for (number, page) in (number..).zip(self.pages_as_found(number, count)?) {
                let live = pbns_of(number).filter(|pbn| page.count(*pbn) > 0);
                let places = live.filter_map(|pbn| page.fragment_place(pbn));
                for place in places.filter(|place| place.holders().any(|pbn| pbn == block)) {
                    let bytes = if place.pack_end() == block { u64::from(place.bytes) } else { 0 };
                    found = Some(found.unwrap_or(0) + bytes);
                }
            }
            number += count;
        }
        Ok(found)
    }

    /// Pages as they are now, in memory or on disk. Damaged ones as far as they are intact.
    fn pages_as_found(&self, first: u64, count: u64) -> Result<Vec<Page>> {
        let next = self.stored.next_written_page(first);
        let bytes = match next {
            Ok(next) if next.is_none_or(|next| next >= first + count) => vec![0; count as usize * PAGE_BYTES],
            _ => self.stored.read_raw_pages(first, count as usize)?,
        };
        assert_eq!(bytes.len(), count as usize * PAGE_BYTES, "{count} pages from {first} on");
        let mut state = self.state.lock();
        let pages = (first..).zip(bytes.chunks_exact(PAGE_BYTES));
        Ok(pages
            .map(|(number, bytes)| match state.table.page(number) {
                Some(newer) => (**newer).clone(),
                None => Page::as_found(number, bytes.try_into().expect("chunks of a page")),
            })
            .collect())
    }
}
