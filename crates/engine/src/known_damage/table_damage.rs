//! Damage of the block table that was found since the volume was opened: the blocks with unknown entries.
//!
//! Such a block keeps its content and can be read. It gets no reference and loses none, and is never handed out. Work
//! that needs its entry is refused. Only fsck rebuilds entries, from all references.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::sync::atomic::Ordering;

use crate::format::fragment::FIRST_PAGE;
use crate::format::page::Page;
use crate::known_damage::found_places::{Found, FoundPlaces};
use crate::sync::{AtomicUsize, LockRank, Mutex};
use crate::{Error, Pbn, UnknownBlocks};

/// Most pages whose damage is remembered. Of further ones only the fact is known.
const PAGES_MAX: usize = 4_096;
/// Most ranges that a status names. Further ones are only counted.
const RANGES_SHOWN_MAX: usize = 16;

/// The known damage of the table.
pub struct TableDamage {
    pages: Mutex<Pages>,
    /// How many damaged pages there are.
    known: AtomicUsize,
}

#[derive(Default)]
struct Pages {
    /// Damaged sectors by page, a bit for each.
    damaged: BTreeMap<u64, u8>,
    /// Where fragments with entries there lie.
    found: FoundPlaces,
}

impl Pages {
    /// Notes which sectors of a page are damaged. Returns whether others were known.
    fn note(&mut self, number: u64, sectors: u8) -> bool {
        let has_room = self.damaged.len() < PAGES_MAX;
        let before = self.damaged.get(&number).copied().unwrap_or(0);
        match (self.damaged.entry(number), sectors) {
            (Place::Occupied(known), 0) => drop(known.remove()),
            (Place::Occupied(mut known), _) => drop(known.insert(sectors)),
            (Place::Vacant(_), 0) => {}
            (Place::Vacant(place), _) if has_room => drop(place.insert(sectors)),
            (Place::Vacant(_), _) => return false,
        }
        if number >= FIRST_PAGE {
            for (from, to) in ranges_of([(number, before & !sectors)].into_iter()) {
                self.found.forget(Pbn(from), Pbn(to));
            }
        }
        before & sectors != sectors
    }
}

impl TableDamage {
    /// No known damage.
    pub fn new() -> Self {
        Self { pages: Mutex::new(LockRank::Part, Pages::default()), known: AtomicUsize::new(0) }
    }

    /// Notes the damage of a page that was read, and logs it once.
    pub fn note_read(&self, number: u64, page: &Page) {
        if page.damaged_sectors() != 0 || self.known.load(Ordering::Relaxed) > 0 {
            self.note(number, page.damaged_sectors(), "its checksum does not match");
        }
    }

    /// Notes a page that cannot be read at all.
    pub fn note_unreadable(&self, number: u64, error: &Error) {
        self.note(number, u8::MAX, &error.to_string());
    }

    fn note(&self, number: u64, sectors: u8, why: &str) {
        let is_new = {
            let mut pages = self.pages.lock();
            assert!(pages.damaged.len() <= PAGES_MAX, "{} damaged pages", pages.damaged.len());
            let is_new = pages.note(number, sectors);
            self.known.store(pages.damaged.len(), Ordering::Relaxed);
            is_new
        };
        if is_new {
            for (first, end) in ranges_of([(number, sectors)].into_iter()) {
                if number >= FIRST_PAGE {
                    log::error!(
                        "the block table is damaged: nothing is known of fragments {first} to {} ({why}). The worker \
                         searches the packs for them, and they can be read when it has found them; unmount and run \
                         oncefs fsck -y",
                        end - 1
                    );
                    continue;
                }
                log::error!(
                    "the block table is damaged: nothing is known of blocks {first} to {} of the data area ({why}). They \
                     can be read, and are not shared, changed or freed; unmount and run oncefs fsck -y",
                    end - 1
                );
            }
        }
    }

    /// The fragments with unknown entries that no search was begun for. One begins now.
    pub fn begin_search(&self) -> Vec<Pbn> {
        if self.known.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut pages = self.pages.lock();
        let of_fragments = pages.damaged.range(FIRST_PAGE..).map(|(number, sectors)| (*number, *sectors));
        let ranges = ranges_of(of_fragments);
        pages.found.begin_search(ranges.into_iter().flat_map(|(first, end)| (first..end).map(Pbn)))
    }

    /// Adds what a search has found. Fragments whose entries became readable since it began are left out.
    pub fn add_found(&self, found: impl Iterator<Item = (Pbn, Found)>) {
        self.pages.lock().found.add(found);
    }

    /// Where a fragment with an unknown entry lies, if a search has found that.
    pub fn found_place(&self, pbn: Pbn) -> Option<Found> {
        self.pages.lock().found.get(pbn)
    }

    /// The blocks with unknown entries.
    pub fn unknown_blocks(&self) -> UnknownBlocks {
        let pages = self.pages.lock();
        let mut found = UnknownBlocks::default();
        for (first, end) in ranges_of(pages.damaged.iter().map(|(number, sectors)| (*number, *sectors))) {
            found.blocks += end - first;
            match found.ranges.len() < RANGES_SHOWN_MAX {
                true => found.ranges.push((first, end)),
                false => found.more += 1,
            }
        }
        found
    }
}

/// The blocks of damaged sectors, in runs, of pages in ascending order.
fn ranges_of(pages: impl Iterator<Item = (u64, u8)>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (number, sectors) in pages {
        for sector in (0..8).filter(|sector| sectors & 1 << sector != 0) {
            let (Pbn(first), Pbn(end)) = Page::sector_blocks(number, sector);
            match ranges.last_mut() {
                Some(last) if last.1 == first => last.1 = end,
                _ => ranges.push((first, end)),
            }
        }
    }
    ranges
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;

    #[test]
    fn damage_is_named_by_its_blocks_and_goes_when_the_page_is_read_whole() {
        let damage = TableDamage::new();
        let error = Error::io("reading the block table", std::io::Error::other("no answer"));
        damage.note(2, 0b1000_0110, "a test");
        damage.note_unreadable(3, &error);
        damage.note_unreadable(3, &error);
        let known = damage.unknown_blocks();
        assert_eq!((known.blocks, known.ranges, known.more), (176, vec![(272, 304), (368, 512)], 0));
        damage.note_read(3, &Page::empty());
        assert_eq!(damage.unknown_blocks().ranges, [(272, 304), (368, 384)]);
        (10..100).for_each(|number| damage.note(number, 1, "a test"));
        let known = damage.unknown_blocks();
        assert_eq!((known.ranges.len(), known.more), (RANGES_SHOWN_MAX, 92 - RANGES_SHOWN_MAX as u64));
    }
}
