//! How much can still be written: bounded by the data area, by promises to fallocate, and by the host below. A region's
//! bitmap is built when the region is first used: from the block table, from the group under way, and from freed blocks
//! that may not be reused yet.

use crate::core::Core;
use crate::format::page::{PAGE_ENTRIES, Page};
use crate::space::allocator::{Bitmap, REGION_BLOCKS, REGION_PAGES, Run};
use crate::state::published::State;
use crate::{Blocks, Error, Pbn, Result, Totals};

/// Kept back from ordinary writes, so that truncating a file on a full volume can store its last block.
const KEPT_BACK_BLOCKS: u64 = 256;

/// By what right blocks are allocated.
#[derive(Clone, Copy, Debug)]
pub enum Claim {
    /// From what is neither promised nor kept back, save what was promised to this very write.
    Ordinary {
        /// Blocks promised to it.
        from_reserved: u64,
    },
    /// Also from what is kept back: the change cannot be refused any more, or frees more than it takes.
    MustSucceed,
}

impl Core {
    /// Allocates exactly `blocks` blocks. They are in flight until they are published or given back.
    pub fn allocate(&self, blocks: u64, claim: Claim) -> Result<Vec<Run>> {
        let others = self.space.count_in_flight(blocks);
        let mut load = |region| self.load_region(region);
        let runs = self.check_claim(blocks, claim, others).and_then(|()| self.space.allocate(blocks, &mut load));
        runs.inspect_err(|_| self.space.landed(blocks))
    }

    /// Refuses an ordinary claim that would take what is promised, kept back, or not there. `others` blocks are
    /// in flight already.
    fn check_claim(&self, blocks: u64, claim: Claim, others: u64) -> Result<()> {
        let Claim::Ordinary { from_reserved } = claim else { return Ok(()) };
        self.space.take_host_bytes(blocks)?;
        let (free, reserved) = {
            let state = self.state.lock();
            (state.totals.data - state.totals.used, state.totals.reserved)
        };
        let untouchable = match from_reserved >= blocks {
            true => 0,
            false => reserved.0.saturating_sub(from_reserved) + KEPT_BACK_BLOCKS,
        };
        if free.0 < blocks + untouchable + others { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Allocated blocks are published or given back.
    pub fn landed(&self, runs: &[Run]) {
        self.space.landed(runs.iter().map(|run| run.blocks).sum());
    }

    /// Gives back blocks that were allocated and never published.
    pub fn give_back(&self, runs: &[Run]) {
        self.landed(runs);
        self.space.give_back(runs);
    }

    /// Allocates one block, far from another one. It is in flight as those of `allocate`.
    pub fn allocate_far(&self, from: Pbn) -> Result<Run> {
        let others = self.space.count_in_flight(1);
        let claimed = self.check_claim(1, Claim::Ordinary { from_reserved: 0 }, others);
        let placed = claimed.and_then(|()| self.space.allocate_far(from, &mut |region| self.load_region(region)));
        placed.inspect_err(|_| self.space.landed(1))
    }

    /// Allocates blocks that follow each other, for work that can wait; in flight as those of `allocate`. None: there
    /// is no such free run, as far as was looked, or less than `left_min` would be left for others.
    pub fn allocate_contiguous(&self, blocks: u64, left_min: Blocks) -> Result<Option<Run>> {
        if self.available().0 < blocks + left_min.0 {
            return Ok(None);
        }
        let others = self.space.count_in_flight(blocks);
        let claimed = self.check_claim(blocks, Claim::Ordinary { from_reserved: 0 }, others);
        let taken = claimed.and_then(|()| self.space.allocate_run(blocks, &mut |region| self.load_region(region)));
        if !matches!(taken, Ok(Some(_))) {
            self.space.landed(blocks);
        }
        match taken {
            Err(Error::NoSpace) => Ok(None),
            other => other,
        }
    }

    /// The volume's totals now.
    pub fn totals(&self) -> Totals {
        self.state.lock().totals
    }

    /// Unique blocks that can still be written: bounded by the data area, by what is promised, and by the host.
    pub fn available(&self) -> Blocks {
        let totals = self.totals();
        let kept = totals.reserved.0 + KEPT_BACK_BLOCKS;
        let free = (totals.data - totals.used).0.saturating_sub(kept);
        Blocks(free.min(self.space.host_blocks_left()))
    }

    /// See [`crate::Store::make_room`].
    pub fn make_room(&self) -> Result<bool> {
        let (before, _) = self.reusable();
        if self.space.is_host_short() {
            while self.punch_some() {}
        }
        let waits_for_trim = !self.state.lock().wait_for_trim.is_empty();
        if waits_for_trim {
            self.checkpoint()?
        } else {
            self.commit()?
        }
        self.release_waiting();
        self.space.look_up_host();
        let (now, is_coming) = self.reusable();
        Ok(now > before || is_coming || self.signals.is_reclaiming())
    }

    /// Free blocks that can be handed out now, and whether more are on their way.
    fn reusable(&self) -> (u64, bool) {
        let state = self.state.lock();
        let waiting = state.waiting.iter().flat_map(|waiting| &waiting.runs);
        let pending = waiting.chain(&state.group.freed).chain(&state.wait_for_trim).map(|run| run.blocks).sum::<u64>();
        ((state.totals.data - state.totals.used).0.saturating_sub(pending), pending > 0)
    }
}

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
