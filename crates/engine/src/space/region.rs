//! A region's bitmap is built when the region is first used: from the block table, from the group under way, and from
//! freed blocks that may not be reused yet.

use crate::core::Core;
use crate::format::page::{PAGE_ENTRIES, Page};
use crate::space::allocator::{Bitmap, REGION_BLOCKS, REGION_PAGES, Run};
use crate::state::published::State;
use crate::{Pbn, Result};

impl Core {
    /// Builds a region's bitmap: what the table, the groups under way and the waiting releases hold.
    /// The caller holds the allocator's lock.
    pub fn load_region(&self, region: u64) -> Result<Bitmap> {
        let first = region * REGION_PAGES;
        let pages_end = self.state.lock().totals.data.0.div_ceil(PAGE_ENTRIES);
        let count = REGION_PAGES.min(pages_end.saturating_sub(first));
        loop {
            let generation = self.state.lock().table.generation();
            let on_disk = self.stored.read_pages(first, count as usize)?;
            let mut state = self.state.lock();
            if state.table.generation() != generation {
                continue;
            }
            let mut bitmap = Bitmap::empty();
            for (number, page) in on_disk {
                state.check_age(number, &page)?;
                state.table.admit(number, page, generation);
                let page = state.table.page(number).expect("admitted above");
                take_live(&mut bitmap, number - first, page);
            }
            let group = state.group.freed.iter();
            let waiting = state.waiting.iter().flat_map(|waiting| &waiting.runs);
            for run in group.chain(waiting).chain(&state.wait_for_trim) {
                take_within(&mut bitmap, region, *run);
            }
            take_logged(&mut bitmap, region, &mut state);
            state.table.shrink();
            return Ok(bitmap);
        }
    }
}

fn take_live(bitmap: &mut Bitmap, page_in_region: u64, page: &Page) {
    assert!(page_in_region < REGION_PAGES, "page {page_in_region} of a region with {REGION_PAGES}");
    let first = page_in_region * PAGE_ENTRIES;
    for n in 0..PAGE_ENTRIES {
        if page.count(Pbn(n)) > 0 {
            bitmap.take(first + n);
        }
    }
}

/// A block that was freed before a crash, while its data rode in the log, waits for the trim as before it.
fn take_logged(bitmap: &mut Bitmap, region: u64, state: &mut State) {
    let first = region * REGION_BLOCKS;
    let logged = state.logged.iter().filter(|pbn| (first..first + REGION_BLOCKS).contains(&pbn.0));
    let freed: Vec<Pbn> = logged.copied().filter(|pbn| bitmap.take(pbn.0 - first)).collect();
    state.wait_for_trim.extend(freed.into_iter().map(|pbn| Run { pbn, blocks: 1 }));
}

fn take_within(bitmap: &mut Bitmap, region: u64, run: Run) {
    let first = region * REGION_BLOCKS;
    for pbn in run.pbn.0.max(first)..run.end().0.min(first + REGION_BLOCKS) {
        bitmap.take(pbn - first);
    }
}
