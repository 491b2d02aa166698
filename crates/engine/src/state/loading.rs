//! Reads the newest state from memory or disk: records, pages and leaves. Pages and leaves are read without the publish
//! lock and admitted under it, before the work that needs them.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::base::part;
use crate::format::extent_leaf::ExtentLeaf;
use crate::format::fragment::{FIRST_PAGE, is_number};
use crate::format::fragment_totals::FragmentTotals;
use crate::format::keys::{self, LeafKey};
use crate::format::page::{Entry, PAGE_ENTRIES, Page, page_of};
use crate::known_damage::found_places::Found;
use crate::space::pins::Pin;
use crate::state::table::LoadedPages;
use crate::sync::{RwLock, reading_again};
use crate::{MapId, Pbn, Result};

/// Pages that are loaded and kept at a time.
const PORTION_PAGES: usize = 64;

/// Pages of a group: the tags of 2 MiB of data, or the places of 1.5 MiB. The pages that a read lacks are read in
/// groups: a larger request costs a device no more.
const GROUP_PAGES: u64 = 4;

/// Pages of the block table that memory lacks.
pub struct MissingPages {
    /// The pages, in ascending order.
    pub numbers: Vec<u64>,
    /// The table's generation, for [`Metadata::admit_sound_pages`].
    pub generation: u64,
    /// How many pages the table has.
    pub end: u64,
}

part! {
    /// The newest maps, records and entries of the block table: in memory, or on disk.
    pub struct Metadata {
        pub(super) base: state, stored, damage, foreground, maps, pins
    }
}

impl Metadata {
    /// Keeps every block that is reachable now from being reused. Take it before looking at a map.
    pub fn pin(&self) -> Pin {
        self.pins.pin()
    }

    /// The lock of a map.
    pub fn lock_of(&self, map: MapId) -> &RwLock<()> {
        self.maps.lock(map)
    }

    /// The leaf of a map. It cannot change while the caller holds the map's lock. Without that lock, the result is the
    /// leaf at some moment of the call. A pending clone reads the leaves that it lacks in its source. Memory keeps them
    /// as the source's alone.
    pub fn leaf(&self, key: LeafKey) -> Result<Arc<ExtentLeaf>> {
        let seen = |origin: LeafKey, leaf: Arc<ExtentLeaf>| match origin == key {
            true => leaf,
            false => leaf.without_reserved().map_or(leaf, Arc::new),
        };
        loop {
            let (origin, generation) = {
                let mut state = self.state.lock();
                let origin = state.clones.origin(key);
                if let Some(leaf) = state.leaves.get(origin) {
                    return Ok(seen(origin, leaf));
                }
                (origin, state.leaves.generation())
            };
            let stored = self.stored.read_leaf(origin)?;
            let mut state = self.state.lock();
            if state.clones.origin(key) != origin {
                continue;
            }
            if let Some(leaf) = state.leaves.get(origin) {
                return Ok(seen(origin, leaf));
            }
            // A checkpoint that ended meanwhile may have written a newer leaf, and the cache may have dropped it.
            if state.leaves.generation() == generation {
                return Ok(seen(origin, state.leaves.admit(origin, stored)));
            }
        }
    }

    /// Keeps in memory that the first leaf of a map is empty. The map's id is new, so no record has it.
    pub fn note_new_map(&self, map: MapId) {
        self.state.lock().leaves.admit(LeafKey { map, leaf: 0 }, ExtentLeaf::default());
    }

    /// Whether blocks of a leaf are read without a reference: by the map itself or by a clone of it.
    pub fn is_read_by_clone(&self, key: LeafKey) -> bool {
        self.state.lock().clones.to_take(key).is_some()
    }

    /// Reads table pages into memory. Damaged sectors stay as they are. On an error some may be missing.
    pub fn load_pages(&self, numbers: &[u64]) -> Result<()> {
        let mut left = numbers.to_vec();
        while !left.is_empty() {
            let generation = self.state.lock().table.generation();
            let pages = self.stored.read_each_page(&left)?;
            pages.iter().for_each(|(number, page)| self.damage.table().note_read(*number, page));
            let mut state = self.state.lock();
            for (number, page) in pages {
                state.check_age(number, &page)?;
                state.table.check_redo(number, &page)?;
                state.table.admit(number, page, generation);
            }
            left = state.table.missing(left);
        }
        Ok(())
    }

    /// Which of these pages memory lacks.
    pub fn missing_pages(&self, numbers: impl IntoIterator<Item = u64>) -> MissingPages {
        let mut state = self.state.lock();
        let generation = state.table.generation();
        let numbers = state.table.missing(numbers);
        MissingPages { numbers, generation, end: state.totals.data.0.div_ceil(PAGE_ENTRIES) }
    }

    /// Reads those of these pages of fragments that memory lacks, which come in ascending order, with their groups: a
    /// reader of a file wants the pages after them next. A page that cannot be read is left to the work that needs it.
    pub fn bring_fragment_pages(&self, numbers: Vec<u64>) {
        let MissingPages { numbers, generation, .. } = self.missing_pages(numbers);
        let Some(end) = (!numbers.is_empty()).then(|| self.stored.fragment_pages_end()) else { return };
        let groups = end.map(|end| groups_of(&numbers, end)).unwrap_or_default();
        if groups.len() > numbers.len()
            && let Ok(pages) = self.stored.read_each_page(&groups)
        {
            self.admit_sound_pages(pages, generation);
            self.state.lock().table.shrink();
        }
    }

    /// Takes in pages that were read since the table had this generation. The read did not block writers of pages. A
    /// page written meanwhile is in memory until a checkpoint ends, so no torn or outdated page is taken in. Damaged
    /// pages are left out too: work that needs one reads it itself.
    pub fn admit_sound_pages(&self, pages: Vec<(u64, Page)>, generation: u64) {
        let mut state = self.state.lock();
        if state.table.generation() != generation {
            return;
        }
        for (number, page) in pages {
            if page.damaged_sectors() == 0 && state.check_age(number, &page).is_ok() {
                self.damage.table().note_read(number, &page);
                state.table.admit(number, page, generation);
            }
        }
    }

    /// Reads `count` consecutive table pages past the cache, as far as they can be read. If the request fails, it reads
    /// them one by one. On an error none can be read.
    pub fn readable_pages(&self, first: u64, count: u64) -> Result<Vec<Result<Page>>> {
        let pages: Vec<Result<Page>> = match self.stored.read_pages(first, count as usize) {
            Ok(pages) => pages.into_iter().map(|(_, page)| Ok(page)).collect(),
            Err(error) => {
                let one = |number| Ok(self.stored.read_pages(number, 1)?.remove(0).1);
                let pages: Vec<Result<Page>> = reading_again(|| (first..first + count).map(one).collect());
                if pages.iter().all(Result::is_err) {
                    return Err(error);
                }
                pages
            }
        };
        for (number, page) in (first..).zip(&pages) {
            match page {
                Ok(page) => self.damage.table().note_read(number, page),
                Err(error) => self.damage.table().note_unreadable(number, error),
            }
        }
        Ok(pages)
    }

    /// The next pages of the block table from `from` on that may have entries of blocks in use, at most `count`, as
    /// they are now, with the number of the first. A page that cannot be read is None. They do not displace pages that
    /// memory keeps. None: no such page follows.
    pub fn pages_of_blocks(&self, from: u64, count: u64) -> Result<Option<(u64, Vec<Option<Page>>)>> {
        let on_disk = self.stored.next_written_page(from)?;
        let (in_memory, end) = {
            let state = self.state.lock();
            (state.table.unwritten_from(from), state.totals.data.0.div_ceil(PAGE_ENTRIES))
        };
        let next = [on_disk, in_memory].into_iter().flatten().min();
        let Some(first) = next.filter(|page| *page < end) else { return Ok(None) };
        let on_disk = self.readable_pages(first, count.min(end - first))?;
        let mut state = self.state.lock();
        let newest = |(number, page): (u64, Result<Page>)| match state.table.page(number) {
            Some(newer) => Some((**newer).clone()),
            None => page.ok(),
        };
        Ok(Some((first, (first..).zip(on_disk).map(newest).collect())))
    }

    /// Where a fragment lies whose entry is damaged, if a search has found that, and the tag of its content.
    pub fn found_place(&self, pbn: Pbn) -> Option<Found> {
        self.damage.table().found_place(pbn)
    }

    /// Reads table pages into memory, one by one if the joint read fails. Returns those that cannot be read.
    pub(super) fn load_readable_pages(&self, numbers: &[u64]) -> Vec<u64> {
        if self.load_pages(numbers).is_ok() {
            return Vec::new();
        }
        let mut unreadable = Vec::new();
        for &number in numbers {
            if let Err(error) = reading_again(|| self.load_pages(&[number])) {
                self.damage.table().note_unreadable(number, &error);
                unreadable.push(number);
            }
        }
        unreadable
    }

    /// The table's entries of blocks, which come in ascending order. A block beyond the data area, or in a damaged
    /// sector, has no entry.
    pub fn entries_at(&self, pbns: &[Pbn]) -> Result<HashMap<Pbn, Entry>> {
        self.entries_by(pbns, |page, add| self.with_pages(|| vec![page], add))
    }

    /// Like `entries_at`, without blocks of pages that cannot be read.
    pub fn known_entries(&self, pbns: &[Pbn]) -> HashMap<Pbn, Entry> {
        let known = self.entries_by(pbns, |page, add| {
            self.with_readable_pages(|| vec![page], add);
            Ok(())
        });
        known.unwrap_or_default()
    }

    /// Entries of ascending blocks. `with` calls its argument with a page in memory, or without it if the page may be
    /// left out.
    fn entries_by(
        &self,
        pbns: &[Pbn],
        with: impl Fn(u64, &mut dyn FnMut(&mut LoadedPages<'_>)) -> Result<()>,
    ) -> Result<HashMap<Pbn, Entry>> {
        assert!(pbns.is_sorted(), "{} blocks to look up are not ascending", pbns.len());
        let end = self.state.lock().totals.data.0;
        let inside = &pbns[..pbns.partition_point(|pbn| pbn.0 < end)];
        let fragments: Vec<Pbn> = pbns[inside.len()..].iter().copied().filter(|pbn| is_number(*pbn)).collect();
        let mut entries = HashMap::with_capacity(inside.len() + fragments.len());
        let are_together = |a: &Pbn, b: &Pbn| page_of(*a) == page_of(*b);
        for portion in inside.chunk_by(are_together).chain(fragments.chunk_by(are_together)) {
            with(page_of(portion[0]), &mut |pages| {
                for &pbn in portion {
                    if !pages.is_damaged(pbn) {
                        entries.extend(pages.entry(pbn).map(|entry| (pbn, entry)));
                    }
                }
            })?;
        }
        Ok(entries)
    }
}

/// All pages of the groups that contain any of these ascending pages, up to the end of the table.
pub fn groups_of(numbers: &[u64], end: u64) -> Vec<u64> {
    let mut groups: Vec<u64> = numbers.iter().map(|number| number / GROUP_PAGES).collect();
    groups.dedup();
    let pages = groups.into_iter().flat_map(|group| group * GROUP_PAGES..(group + 1) * GROUP_PAGES);
    pages.take_while(|number| *number < end).collect()
}

/// Pairs are fetched from the layers in portions of at most this many.
const PORTION: usize = 1024;

impl Metadata {
    /// See [`crate::Store::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.newest(key, || self.stored.get(key))
    }

    /// Like `get`, for a program: if it has to read the sorted state, background work yields.
    pub fn get_for_program(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.newest(key, || self.foreground.serve(|| self.stored.get(key)))
    }

    /// The newest published value of a record. `read` fetches it from the sorted state, while the publish lock is free.
    ///
    /// The rule: a published record stays in memory until a checkpoint that began after its publication is durable, and
    /// by then that checkpoint has written it to the sorted state. So if memory lacks a key, the sorted state has its
    /// last published value. If memory lacks it before and after `read`, and no checkpoint began in between, it was not
    /// published in between: records published after the last checkpoint began are still in memory. Otherwise `read`
    /// may have been too early, and is repeated.
    fn newest(&self, key: &[u8], read: impl Fn() -> Result<Option<Vec<u8>>>) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        loop {
            let generation = {
                let state = self.state.lock();
                if let Some(value) = state.records.get(key) {
                    return Ok(value);
                }
                state.records.generation()
            };
            match found.take() {
                Some((read_in, value)) if read_in == generation => return Ok(value),
                _ => found = Some((generation, read()?)),
            }
        }
    }

    /// Like `scan`, for a program: background work yields.
    pub fn scan_for_program(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.foreground.serve(|| self.scan(from, to, limit))
    }

    /// See [`crate::Store::scan`].
    pub fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        let mut from = from.to_vec();
        let mut portion_min = 1;
        while found.len() < limit {
            // If all records found were removed, the next portion is larger, so that many removals cost few rounds.
            let portion = (limit - found.len()).max(portion_min).min(PORTION);
            portion_min = portion * 4;
            let (newer, generation) = {
                let state = self.state.lock();
                (state.records.range(&from, to, portion), state.records.generation())
            };
            let older = self.stored.scan(&from, to, portion)?;
            if self.state.lock().records.generation() != generation {
                continue;
            }
            // Beyond the last key of a full portion the sorted state may have more.
            let bound = [newer.bound.clone(), (older.len() == portion).then(|| older[portion - 1].0.clone())]
                .into_iter()
                .flatten()
                .min();
            let mut merged: std::collections::BTreeMap<_, _> =
                older.into_iter().map(|(key, value)| (key, Some(value))).collect();
            merged.extend(newer.records);
            let within = |key: &Vec<u8>| bound.as_ref().is_none_or(|bound| key <= bound);
            found.extend(
                merged.into_iter().filter(|(key, _)| within(key)).filter_map(|(key, value)| Some((key, value?))),
            );
            let Some(mut bound) = bound else { break };
            bound.push(0);
            from = bound;
        }
        found.truncate(limit);
        Ok(found)
    }

    /// The entry of a block in the table. None: the block lies outside the data area, or its entry cannot be read. A
    /// block without a known entry is not repaired.
    pub fn known_entry(&self, pbn: Pbn) -> Option<Entry> {
        self.known_entries(&[pbn]).get(&pbn).copied()
    }

    /// After opening: reads how much is compressed. fsck puts a damaged record right.
    pub fn restore_fragment_totals(&self) -> Result<()> {
        let Some(value) = self.get(&keys::fragment_totals())? else { return Ok(()) };
        match FragmentTotals::decode(&value) {
            Some(totals) => self.state.lock().fragment_totals = totals,
            None => log::warn!("the record of how much is compressed is damaged; oncefs fsck counts it anew"),
        }
        Ok(())
    }

    /// How many references each block has: 0 if its page of the table is not in memory.
    pub fn references_of(&self, pbns: impl Iterator<Item = Pbn>) -> Vec<u32> {
        let mut state = self.state.lock();
        pbns.map(|pbn| state.table.page(page_of(pbn)).map_or(0, |page| page.count(pbn))).collect()
    }

    /// Reads pages of the block table, and keeps them in memory until a checkpoint. With a page of fragments, also
    /// those of the blocks that they lie in, which their release changes.
    pub fn keep_pages(&self, pages: &[u64]) -> Result<()> {
        let mut behind = BTreeSet::new();
        for portion in pages.chunks(PORTION_PAGES) {
            let mut state = self.lock_with_pages(&self.state, || portion.to_vec())?;
            state.table.keep(portion);
            for number in portion.iter().filter(|number| **number >= FIRST_PAGE) {
                behind.extend(state.pages_of_holders(*number));
            }
            state.table.shrink();
        }
        let behind: Vec<u64> = behind.into_iter().collect();
        for portion in behind.chunks(PORTION_PAGES) {
            let mut state = self.lock_with_pages(&self.state, || portion.to_vec())?;
            state.table.keep(portion);
            state.table.shrink();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_with_their_groups_and_none_behind_the_table() {
        assert_eq!(groups_of(&[], 100), [0; 0]);
        assert_eq!(groups_of(&[5, 6], 100), [4, 5, 6, 7]);
        assert_eq!(groups_of(&[3, 4, 17], 100), [0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19]);
        assert_eq!(groups_of(&[0, 9], 10), [0, 1, 2, 3, 8, 9]);
    }
}
