//! Loads pages of the block table, and holds the publish lock while they are looked at or changed. Readers see the
//! pages, and nothing else of the published state.

use hashbrown::{HashMap, HashSet};

use crate::format::fragment::{FragmentPlace, is_number};
use crate::format::page::page_of;
use crate::state::loading::Metadata;
use crate::state::published::State;
use crate::state::table::LoadedPages;
use crate::sync::{Mutex, MutexGuard};
use crate::{Pbn, Result};

/// Pages of fragments that are looked at together.
const PORTION_PAGES: usize = 32;

impl Metadata {
    /// Where fragments lie, as far as the table can be read.
    pub fn known_places(&self, numbers: impl Iterator<Item = Pbn>) -> HashMap<Pbn, FragmentPlace> {
        let mut numbers: Vec<Pbn> = numbers.filter(|number| is_number(*number)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let by_page: Vec<&[Pbn]> = numbers.chunk_by(|a, b| page_of(*a) == page_of(*b)).collect();
        let mut places = HashMap::with_capacity(numbers.len());
        for portion in by_page.chunks(PORTION_PAGES) {
            let pages = || portion.iter().map(|numbers| page_of(numbers[0])).collect();
            self.with_readable_pages(pages, |pages| {
                let numbers = portion.iter().flat_map(|numbers| numbers.iter());
                places.extend(numbers.filter_map(|number| Some((*number, pages.fragment_place(*number)?))));
            });
        }
        places
    }

    /// Runs `look` under the publish lock with these pages in memory.
    pub fn with_pages<T>(
        &self,
        numbers: impl Fn() -> Vec<u64>,
        look: impl FnOnce(&mut LoadedPages<'_>) -> T,
    ) -> Result<T> {
        let mut state = self.lock_with_pages(&self.state, numbers)?;
        let result = look(&mut LoadedPages::of(&mut state.table));
        state.table.shrink();
        Ok(result)
    }

    /// Like `with_pages`, for a look that can do without unreadable pages: these are not in memory.
    pub fn with_readable_pages<T>(
        &self,
        numbers: impl Fn() -> Vec<u64>,
        look: impl FnOnce(&mut LoadedPages<'_>) -> T,
    ) -> T {
        let mut unreadable: HashSet<u64> = HashSet::new();
        loop {
            let mut state = self.state.lock();
            let mut missing = state.table.missing(numbers());
            missing.retain(|number| !unreadable.contains(number));
            if missing.is_empty() {
                let result = look(&mut LoadedPages::of(&mut state.table));
                state.table.shrink();
                return result;
            }
            drop(state);
            unreadable.extend(self.load_readable_pages(&missing));
        }
    }

    /// Locks the published state with these pages in memory, for a part that owns `state` and changes it. The caller
    /// calls [`crate::state::table::Table::shrink`] when it is done.
    pub fn lock_with_pages<'s>(
        &self,
        state: &'s Mutex<State>,
        numbers: impl Fn() -> Vec<u64>,
    ) -> Result<MutexGuard<'s, State>> {
        loop {
            let mut locked = state.lock();
            let missing = locked.table.missing(numbers());
            if missing.is_empty() {
                return Ok(locked);
            }
            drop(locked);
            self.load_pages(&missing)?;
        }
    }
}
