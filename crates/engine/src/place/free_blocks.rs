//! Allocates blocks, as far as the data area, promises to fallocate and the host leave room. A region's bitmap is built
//! when the region is first used: from the block table, from the current group, and from freed blocks that may not be
//! reused yet.

use crate::base::part;
use crate::format::fragment::FIRST_PAGE;
use crate::format::page::{PAGE_ENTRIES, Page, pbns_of};
use crate::place::write_out::BlockWriter;
use crate::space::allocator::{REGION_BLOCKS, REGION_PAGES, Run, blocks_in};
use crate::space::bitmap::Bitmap;
use crate::state::loading::Metadata;
use crate::state::published::State;
use crate::{Blocks, Error, Pbn, Result, Totals};

/// Kept back from ordinary writes, so that truncating a file on a full volume can store its last block.
pub const KEPT_BACK_BLOCKS: u64 = 256;

/// The room from which blocks are allocated.
#[derive(Clone, Copy, Debug)]
pub enum Claim {
    /// From room that is neither promised nor kept back, except for promises to these same blocks.
    Ordinary {
        /// How many of the blocks replace reserved ones.
        from_reserved: u64,
    },
    /// Also from the room that is kept back: the change frees more than it takes, or was admitted by a claim of its
    /// own.
    KeptBack,
}

/// Room claimed for reservations that are about to be made.
pub struct RoomClaim<'a> {
    free: &'a FreeBlocks,
    blocks: u64,
}

impl RoomClaim<'_> {
    /// Remaining blocks of the claim.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Subtracts blocks that were published as reservations, by a plan that ended their claim.
    pub fn spend(&mut self, blocks: u64) {
        assert!(blocks <= self.blocks, "{blocks} blocks are spent of a claim of {}", self.blocks);
        self.blocks -= blocks;
    }
}

impl Drop for RoomClaim<'_> {
    fn drop(&mut self) {
        self.free.unclaim(self.blocks);
    }
}

part! {
    /// Claims, allocates, writes and gives back the blocks of the data area.
    pub struct FreeBlocks {
        pub(super) base: state, space, data, stats, stored;
        metadata: Metadata, block_writer: BlockWriter
    }
}

impl FreeBlocks {
    /// Takes numbers for this many fragments. The table of fragments grows if it has too few.
    pub fn take_numbers(&self, count: u64) -> Result<Vec<Run>> {
        let mut taken = Vec::new();
        loop {
            let lacking = count - blocks_in(&taken);
            let mut load = |region| self.load_numbers(region);
            match self.space.take_numbers(lacking, &mut load) {
                Ok(more) => taken.extend(more),
                Err(error) => {
                    self.space.give_back(&taken);
                    return Err(error);
                }
            }
            if blocks_in(&taken) == count {
                return Ok(taken);
            }
            if let Err(error) = self.add_numbers() {
                self.space.give_back(&taken);
                return Err(error);
            }
        }
    }

    /// Writes the next blocks to a run that was allocated.
    pub fn write_run<'a>(&self, run: Run, blocks: &mut impl Iterator<Item = &'a [u8]>) -> Result<()> {
        self.block_writer.write_run(run, blocks)
    }

    /// Whether maps may name fragments.
    pub fn may_be_compressed(&self) -> bool {
        self.stored.has_fragments()
    }

    /// Gives back numbers that were taken and never published.
    pub fn give_back_numbers(&self, runs: &[Run]) {
        self.space.give_back(runs);
    }

    /// An order for the directory of a pack. The numbers of its fragments are taken, or they are live.
    pub fn pack_order(&self) -> u64 {
        self.state.lock().next_pack_order()
    }

    /// Takes adjacent blocks for a change that frees more blocks than these, also from the room that is kept back.
    /// They are not claimed, so nothing else is refused for them. None: the searched regions, or the host, have no such
    /// room now.
    pub fn take_to_repack(&self, blocks: u64) -> Result<Option<Run>> {
        match self.space.take_host_bytes(blocks) {
            Err(Error::NoSpace) => return Ok(None),
            other => other?,
        }
        match self.space.allocate_run(blocks, &mut |region| self.load_region(region)) {
            Err(Error::NoSpace) => Ok(None),
            other => other,
        }
    }

    /// Gives back what `take_to_repack` gave and what was never published.
    pub fn give_back_unclaimed(&self, runs: &[Run]) {
        self.space.give_back(runs);
    }

    /// Adds a region of numbers.
    fn add_numbers(&self) -> Result<()> {
        let _growing = self.space.begin_growing_numbers();
        let end = self.stored.fragment_pages_end()? + REGION_PAGES;
        if end > 2 * FIRST_PAGE {
            return Err(Error::NoSpace);
        }
        self.stored.grow_fragments(end)?;
        self.space.grow_numbers((end - FIRST_PAGE) * PAGE_ENTRIES);
        Ok(())
    }

    /// Allocates exactly `blocks` blocks. They are claimed until they are published or given back, except for those
    /// that replace reservations.
    pub fn allocate(&self, blocks: u64, claim: Claim) -> Result<Vec<Run>> {
        let claimed = self.claim(blocks, claim)?;
        let mut load = |region| self.load_region(region);
        self.space.allocate(blocks, &mut load).inspect_err(|_| self.unclaim(claimed))
    }

    /// Claims room for `blocks` blocks, and returns how many of them were not reserved before.
    fn claim(&self, blocks: u64, claim: Claim) -> Result<u64> {
        let (from_reserved, kept_back) = match claim {
            Claim::Ordinary { from_reserved } => (from_reserved.min(blocks), KEPT_BACK_BLOCKS),
            Claim::KeptBack => (0, 0),
        };
        if matches!(claim, Claim::Ordinary { .. }) {
            self.space.take_host_bytes(blocks)?;
        }
        self.claim_room(blocks - from_reserved, kept_back)
    }

    /// Claims `blocks` blocks of the data area, provided that `kept_back` stay free.
    fn claim_room(&self, blocks: u64, kept_back: u64) -> Result<u64> {
        let mut state = self.state.lock();
        let State { claims, totals, .. } = &mut *state;
        match blocks == 0 || claims.take(totals, blocks, kept_back) {
            true => Ok(blocks),
            false => Err(Error::NoSpace),
        }
    }

    /// Claims room for reservations. The claim ends with the value.
    pub fn claim_reservations(&self, blocks: u64) -> Result<RoomClaim<'_>> {
        self.claim_room(blocks, KEPT_BACK_BLOCKS).map(|blocks| RoomClaim { free: self, blocks })
    }

    /// Gives claimed blocks back. The claim of published blocks ends in their publication (`Plan::claimed`).
    pub fn unclaim(&self, blocks: u64) {
        if blocks > 0 {
            self.state.lock().claims.release(blocks);
        }
    }

    /// Gives back blocks that were allocated and never published. All of them are claimed.
    pub fn give_back(&self, runs: &[Run]) {
        self.unclaim(blocks_in(runs));
        self.space.give_back(runs);
    }

    /// Allocates one block, far from another one. It is claimed like those of `allocate`.
    pub fn allocate_far(&self, from: Pbn) -> Result<Run> {
        let claimed = self.claim(1, Claim::Ordinary { from_reserved: 0 })?;
        let placed = self.space.allocate_far(from, &mut |region| self.load_region(region));
        placed.inspect_err(|_| self.unclaim(claimed))
    }

    /// Allocates adjacent blocks, for work that can wait. They are claimed like those of `allocate`. None: the searched
    /// regions have no such free run, or less than `left_min` would be left for other work.
    pub fn allocate_contiguous(&self, blocks: u64, left_min: Blocks) -> Result<Option<Run>> {
        if self.available().0 < blocks + left_min.0 {
            return Ok(None);
        }
        let taken = self.claim(blocks, Claim::Ordinary { from_reserved: 0 }).and_then(|claimed| {
            let run = self.space.allocate_run(blocks, &mut |region| self.load_region(region));
            if !matches!(run, Ok(Some(_))) {
                self.unclaim(claimed);
            }
            run
        });
        match taken {
            Err(Error::NoSpace) => Ok(None),
            other => other,
        }
    }

    /// The volume's totals now.
    pub fn totals(&self) -> Totals {
        self.state.lock().totals
    }

    /// Unique blocks that can still be written: bounded by the data area, by promises, and by the host.
    pub fn available(&self) -> Blocks {
        let free = {
            let state = self.state.lock();
            state.claims.free(&state.totals).0.saturating_sub(KEPT_BACK_BLOCKS)
        };
        Blocks(free.min(self.space.host_blocks_left()))
    }

    /// Blocks of the data area that can be used in total while the host has no more room than now.
    pub fn capacity(&self) -> Blocks {
        let (data, free) = {
            let state = self.state.lock();
            (state.totals.data, state.claims.free(&state.totals).0.saturating_sub(KEPT_BACK_BLOCKS))
        };
        let lacking = free.saturating_sub(self.space.host_blocks_left());
        assert!(lacking <= data.0, "{lacking} of {data:?} are more than there are");
        Blocks(data.0 - lacking)
    }

    /// Builds a region's bitmap from the table, the groups under way and the waiting releases. The allocator notes
    /// blocks released meanwhile. The caller does not hold its lock.
    pub fn load_region(&self, region: u64) -> Result<Bitmap> {
        let pages_end = self.state.lock().totals.data.0.div_ceil(PAGE_ENTRIES);
        self.load_pages_of(region * REGION_PAGES, pages_end)
    }

    /// The same for numbers of fragments.
    fn load_numbers(&self, region: u64) -> Result<Bitmap> {
        self.load_pages_of(FIRST_PAGE + region * REGION_PAGES, self.stored.fragment_pages_end()?)
    }

    /// Builds the bitmap of the region whose entries begin in page `first`.
    fn load_pages_of(&self, first: u64, pages_end: u64) -> Result<Bitmap> {
        let count = REGION_PAGES.min(pages_end.saturating_sub(first));
        loop {
            let generation = self.state.lock().table.generation();
            let on_disk = self.metadata.readable_pages(first, count)?;
            let mut state = self.state.lock();
            if state.table.generation() != generation {
                continue;
            }
            let mut bitmap = Bitmap::empty();
            for (number, page) in (first..).zip(on_disk) {
                if let Ok(page) = page {
                    state.check_age(number, &page)?;
                    if state.table.check_redo(number, &page).is_ok() {
                        state.table.admit(number, page, generation);
                    }
                }
                match state.table.page(number) {
                    Some(page) => take_live(&mut bitmap, first, number, page),
                    None => take_all(&mut bitmap, number - first),
                }
            }
            let group = state.group.freed.iter();
            let waiting = state.waiting.iter().flat_map(|waiting| &waiting.runs);
            for run in group.chain(waiting).chain(&state.wait_for_trim) {
                take_within(&mut bitmap, first * PAGE_ENTRIES, *run);
            }
            take_logged(&mut bitmap, first * PAGE_ENTRIES, &mut state);
            state.table.shrink();
            return Ok(bitmap);
        }
    }
}

/// Takes live blocks, those in damaged sectors, which may be live, and numbers that do not exist. The region's entries
/// begin in page `first`.
fn take_live(bitmap: &mut Bitmap, first: u64, number: u64, page: &Page) {
    assert!(number - first < REGION_PAGES, "page {number} of a region that begins in page {first}");
    for pbn in pbns_of(number) {
        if page.count(pbn) > 0 || page.is_damaged(pbn) {
            bitmap.take(pbn.0 - first * PAGE_ENTRIES);
        }
    }
    let exist = pbns_of(number).count() as u64;
    for n in exist..PAGE_ENTRIES {
        bitmap.take((number - first) * PAGE_ENTRIES + n);
    }
}

/// Takes all blocks of an unknown page.
fn take_all(bitmap: &mut Bitmap, page_in_region: u64) {
    let first = page_in_region * PAGE_ENTRIES;
    (first..first + PAGE_ENTRIES).for_each(|block| {
        bitmap.take(block);
    });
}

/// A block that was freed before a crash, while its data rode in the log, waits for the trim as it did before.
fn take_logged(bitmap: &mut Bitmap, first: u64, state: &mut State) {
    let logged = state.logged.range(Pbn(first)..Pbn(first + REGION_BLOCKS));
    let freed: Vec<Pbn> = logged.copied().filter(|pbn| bitmap.take(pbn.0 - first)).collect();
    state.wait_for_trim.extend(freed.into_iter().map(|pbn| Run { pbn, blocks: 1 }));
}

fn take_within(bitmap: &mut Bitmap, first: u64, run: Run) {
    for pbn in run.pbn.0.max(first)..run.end().0.min(first + REGION_BLOCKS) {
        bitmap.take(pbn - first);
    }
}
