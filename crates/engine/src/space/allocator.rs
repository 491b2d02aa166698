//! Free space: hands out contiguous runs of the data area.
//!
//! The block table alone decides what is free. This keeps a bitmap for each region that was used since the volume was
//! opened (32 MiB of memory per TiB touched), built from the table at first use. For the other regions it keeps a count
//! that is advice: a wrong count costs a search, never a block.
//!
//! Every writer, and every commit that frees blocks, waits for the lock around this code. So nothing is read here: a
//! call that needs an unknown region returns [`Step::Load`], and is repeated with the region's bitmap. Searches are
//! short too: each region has an upper bound of its longest free run, so a region without a long enough run is searched
//! once.

use crate::format::page::PAGE_ENTRIES;
use crate::space::bitmap::Bitmap;
pub use crate::space::bitmap::REGION_BLOCKS;
use crate::sync::count_looks;
use crate::{Blocks, Pbn};

/// Pages of the block table that describe a region.
pub const REGION_PAGES: u64 = REGION_BLOCKS / PAGE_ENTRIES;
/// A free run this long is used even for a larger request. Shorter ones are used only when no longer one is left.
const GOOD_RUN_BLOCKS: u64 = 64;
/// Most regions that one request searches for such runs, not counting those whose bound rules them out. If free space
/// is scattered, the request then takes shorter runs, and the next request continues the search.
const GOOD_SEARCHED_MAX: u32 = 16;

/// Adjacent blocks of the data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub pbn: Pbn,
    /// How many.
    pub blocks: u64,
}

impl Run {
    /// First pbn after the run.
    pub fn end(&self) -> Pbn {
        self.pbn.plus(self.blocks)
    }

    /// Each of its blocks.
    pub fn pbns(self) -> impl Iterator<Item = Pbn> {
        (self.pbn.0..self.end().0).map(Pbn)
    }
}

/// How many blocks some runs have.
pub fn blocks_in(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.blocks).sum()
}

enum Region {
    /// Not loaded yet; the number is advice. Releases during a load are noted, because the bitmap may be older than
    /// them.
    Unknown {
        free: u64,
        released: Option<Vec<Run>>,
    },
    Known(Bitmap),
}

/// The progress of an allocation.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// It is done.
    Done(T),
    /// It needs this region's bitmap ([`Allocator::admit`]), and has to be called again.
    Load(u64),
}

/// Wanted blocks, and the runs found so far.
pub struct Request {
    left: u64,
    runs: Vec<Run>,
    /// The shortest run to take, and how many regions may still be visited, and searched, for it.
    run_blocks_min: u64,
    regions_left: usize,
    searched_left: u32,
}

impl Request {
    /// Asks for as few runs as possible, near the last ones handed out.
    pub fn new(blocks: u64) -> Self {
        let run_blocks_min = blocks.min(GOOD_RUN_BLOCKS);
        Self {
            left: blocks,
            runs: Vec::new(),
            run_blocks_min,
            regions_left: usize::MAX,
            searched_left: GOOD_SEARCHED_MAX,
        }
    }

    /// The runs that were found: all that was wanted, or all that is free.
    pub fn into_runs(self) -> Vec<Run> {
        self.runs
    }
}

/// The free blocks, and where to search next.
///
/// Invariants: (1) a known region's count equals its clear bits; (2) a block that is referenced, waits for its release
/// or is being written has its bit set in a known region; (3) block 0 and blocks beyond the end of the data area are
/// never free.
pub struct Allocator {
    regions: Vec<Region>,
    data_blocks: u64,
    region: usize,
    block: u64,
    advice_changed: bool,
}

impl Allocator {
    /// All regions unknown; `advice` gives free counts of the first ones.
    pub fn new(data: Blocks, advice: &[u16]) -> Self {
        let mut allocator = Self { regions: Vec::new(), data_blocks: 0, region: 0, block: 0, advice_changed: false };
        allocator.grow(data);
        for (region, free) in allocator.regions.iter_mut().zip(advice) {
            *region = Region::Unknown { free: u64::from(*free), released: None };
        }
        allocator
    }

    /// Adds the blocks of a larger data area.
    pub fn grow(&mut self, data: Blocks) {
        if data.0 <= self.data_blocks {
            return;
        }
        let regions = data.0.div_ceil(REGION_BLOCKS) as usize;
        if let Some(Region::Known(last)) = self.regions.last_mut() {
            let first = (self.data_blocks - 1) / REGION_BLOCKS * REGION_BLOCKS;
            let end = data.0.min(first + REGION_BLOCKS);
            if self.data_blocks < end {
                last.give_back_run(self.data_blocks - first..end - first);
            }
        }
        self.regions.resize_with(regions, || Region::Unknown { free: REGION_BLOCKS, released: None });
        self.data_blocks = data.0;
    }

    /// Takes blocks for a request, near the last ones handed out. Done: the request has all of them, or all that are
    /// free.
    pub fn allocate(&mut self, request: &mut Request) -> Step<()> {
        // The first region is visited again at the end of a round, for the blocks before the last ones handed out.
        let round = self.regions.len() + 1;
        request.regions_left = request.regions_left.min(round);
        while request.left > 0 && !self.regions.is_empty() {
            if request.regions_left == 0 || request.searched_left == 0 {
                if request.run_blocks_min <= 1 {
                    break;
                }
                (request.run_blocks_min, request.regions_left, request.searched_left) = (1, round, u32::MAX);
            }
            let run_blocks_min = request.run_blocks_min.min(request.left);
            if self.longest_in(self.region) >= run_blocks_min {
                match &mut self.regions[self.region] {
                    Region::Unknown { .. } => return self.wants(self.region),
                    Region::Known(bitmap) => take_from(bitmap, self.region, &mut self.block, run_blocks_min, request),
                }
                request.searched_left -= 1;
            }
            if request.left > 0 {
                (self.region, self.block) = ((self.region + 1) % self.regions.len(), 0);
                request.regions_left -= 1;
            }
        }
        self.advice_changed |= !request.runs.is_empty();
        Step::Done(())
    }

    /// Takes adjacent blocks of one region. None: none of the next `regions_max` regions, starting where the last
    /// blocks were handed out, has such a free run. The next ordinary request continues where the last one did.
    pub fn allocate_run(&mut self, blocks: u64, regions_max: usize) -> Step<Option<Run>> {
        // The first one is visited again at the end of a round, for the blocks before the last ones handed out.
        for n in (0..=self.regions.len()).take(regions_max) {
            let Some(region) = (self.region + n).checked_rem(self.regions.len()) else { break };
            if self.longest_in(region) < blocks {
                continue;
            }
            let mut at = if n == 0 { self.block } else { 0 };
            let Region::Known(bitmap) = &mut self.regions[region] else { return self.wants(region) };
            let mut request = Request::new(blocks);
            take_from(bitmap, region, &mut at, blocks, &mut request);
            if let Some(run) = request.runs.first() {
                (self.region, self.block, self.advice_changed) = (region, at, true);
                return Step::Done(Some(*run));
            }
        }
        Step::Done(None)
    }

    /// Takes one block, far from another one if possible. The next ordinary request continues where the last one did.
    pub fn allocate_far(&mut self, from: Pbn) -> Step<Option<Pbn>> {
        let cursor = (self.region, self.block);
        let far = (from.0 + self.data_blocks / 2) % self.data_blocks.max(1);
        (self.region, self.block) = ((far / REGION_BLOCKS) as usize, far % REGION_BLOCKS);
        let mut request = Request::new(1);
        let step = self.allocate(&mut request);
        (self.region, self.block) = cursor;
        match step {
            Step::Done(()) => Step::Done(request.runs.first().map(|run| run.pbn)),
            Step::Load(region) => Step::Load(region),
        }
    }

    /// Asks the caller to load a region. From now on releases in it are noted.
    fn wants<T>(&mut self, region: usize) -> Step<T> {
        if let Region::Unknown { released, .. } = &mut self.regions[region] {
            released.get_or_insert_default();
        }
        Step::Load(region as u64)
    }

    /// Takes in a region's bitmap, which was built from the block table after [`Step::Load`] asked for it. If the
    /// region became known meanwhile, its first bitmap stays.
    pub fn admit(&mut self, region: u64, mut bitmap: Bitmap) {
        let Region::Unknown { released, .. } = &mut self.regions[region as usize] else { return };
        let first = region * REGION_BLOCKS;
        // Blocks released meanwhile are not handed out before the region is known, so they are still free.
        for run in released.take().unwrap_or_default() {
            bitmap.give_back_run(run.pbn.0 - first..run.end().0 - first);
        }
        if first == 0 {
            bitmap.take(0);
        }
        (self.data_blocks.max(first)..first + REGION_BLOCKS).for_each(|block| {
            bitmap.take(block - first);
        });
        bitmap.longest = bitmap.free;
        self.regions[region as usize] = Region::Known(bitmap);
    }

    /// An upper bound of a region's free runs, as far as known.
    fn longest_in(&self, region: usize) -> u64 {
        match &self.regions[region] {
            Region::Unknown { free, .. } => *free,
            Region::Known(bitmap) => bitmap.longest.min(bitmap.free),
        }
    }

    fn free_in(&self, region: usize) -> u64 {
        match &self.regions[region] {
            Region::Unknown { free, .. } => *free,
            Region::Known(bitmap) => bitmap.free,
        }
    }

    /// Makes a run free again.
    pub fn release(&mut self, run: Run) {
        assert!(run.pbn.0 > 0 && run.end().0 <= self.data_blocks, "(3) release of {run:?}");
        self.advice_changed = true;
        let mut at = run.pbn.0;
        while at < run.end().0 {
            let region = at / REGION_BLOCKS;
            let (first, end) = (region * REGION_BLOCKS, run.end().0.min((region + 1) * REGION_BLOCKS));
            match &mut self.regions[region as usize] {
                Region::Unknown { free, released } => {
                    *free = (*free + end - at).min(REGION_BLOCKS);
                    released.iter_mut().for_each(|runs| runs.push(Run { pbn: Pbn(at), blocks: end - at }));
                }
                Region::Known(bitmap) => {
                    let was_free = bitmap.give_back_run(at - first..end - first);
                    assert!(was_free.is_none(), "block {} is released but was free", first + was_free.unwrap_or(0));
                }
            }
            at = end;
        }
    }

    /// Free counts of all regions, if they changed since the last call.
    pub fn changed_advice(&mut self) -> Option<Vec<u16>> {
        if !std::mem::take(&mut self.advice_changed) {
            return None;
        }
        Some((0..self.regions.len()).map(|region| self.free_in(region) as u16).collect())
    }

    /// Discards advice that may be too low. If the totals say that blocks are free, a refused request tries again.
    pub fn distrust_advice(&mut self) {
        for region in &mut self.regions {
            if let Region::Unknown { free, .. } = region {
                *free = REGION_BLOCKS;
            }
        }
    }

    /// Whether a block of a known region is free.
    pub fn is_known_free(&self, pbn: Pbn) -> bool {
        match self.regions.get((pbn.0 / REGION_BLOCKS) as usize) {
            Some(Region::Known(bitmap)) => bitmap.is_free(pbn.0 % REGION_BLOCKS),
            Some(Region::Unknown { .. }) | None => false,
        }
    }

    /// Takes the free runs of at least `run_blocks_min` within `run`, which lies in one region, so that no write goes
    /// there while a hole is punched.
    pub fn take_free_within(&mut self, run: Run, run_blocks_min: u64) -> Step<Vec<Run>> {
        let region = (run.pbn.0 / REGION_BLOCKS) as usize;
        assert!(region < self.regions.len(), "{run:?} lies in region {region} of {}", self.regions.len());
        let first = region as u64 * REGION_BLOCKS;
        let Region::Known(bitmap) = &mut self.regions[region] else { return self.wants(region) };
        let mut taken = Vec::new();
        let (mut at, end) = (run.pbn.0 - first, (run.end().0 - first).min(REGION_BLOCKS));
        while let Some((start, blocks)) = bitmap.free_run(at, u64::MAX).filter(|(start, _)| *start < end) {
            let blocks = blocks.min(end - start);
            if blocks >= run_blocks_min {
                (start..start + blocks).for_each(|block| {
                    bitmap.take(block);
                });
                taken.push(Run { pbn: Pbn(first + start), blocks });
            }
            at = start + blocks;
        }
        Step::Done(taken)
    }
}

/// Takes free runs of at least this many blocks, from `at` on, and moves `at` past them. After a region is searched
/// from beginning to end, its bound is the longest run that was too short.
fn take_from(bitmap: &mut Bitmap, region: usize, at: &mut u64, run_blocks_min: u64, request: &mut Request) {
    count_looks(1);
    let (is_all, mut longest) = (*at == 0, 0);
    while request.left > 0 {
        let Some((start, blocks)) = bitmap.free_run(*at, request.left) else {
            if is_all {
                bitmap.longest = longest;
            }
            return;
        };
        *at = start + blocks;
        if blocks < run_blocks_min.min(request.left) {
            longest = longest.max(blocks);
            continue;
        }
        (start..start + blocks).for_each(|block| {
            bitmap.take(block);
        });
        request.runs.push(Run { pbn: Pbn(region as u64 * REGION_BLOCKS + start), blocks });
        request.left -= blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Treats every requested region as free.
    fn done<T>(allocator: &mut Allocator, mut ask: impl FnMut(&mut Allocator) -> Step<T>) -> T {
        loop {
            match ask(allocator) {
                Step::Done(found) => return found,
                Step::Load(region) => allocator.admit(region, Bitmap::empty()),
            }
        }
    }

    fn allocate(allocator: &mut Allocator, blocks: u64) -> Vec<Run> {
        let mut request = Request::new(blocks);
        done(allocator, |allocator| allocator.allocate(&mut request));
        request.into_runs()
    }

    fn allocate_far(allocator: &mut Allocator, from: u64) -> Option<Pbn> {
        done(allocator, |allocator| allocator.allocate_far(Pbn(from)))
    }

    #[test]
    fn a_far_block_lies_half_the_data_area_away_and_does_not_move_the_cursor() {
        let mut allocator = Allocator::new(Blocks(1_000), &[]);
        allocate(&mut allocator, 10);
        assert_eq!(allocate_far(&mut allocator, 3), Some(Pbn(503)));
        assert_eq!(allocate_far(&mut allocator, 3), Some(Pbn(504)));
        assert_eq!(allocate_far(&mut allocator, 700), Some(Pbn(200)));
        assert_eq!(allocate(&mut allocator, 5), [Run { pbn: Pbn(11), blocks: 5 }]);
        let rest: u64 = allocate(&mut allocator, 2_000).iter().map(|run| run.blocks).sum();
        assert_eq!(rest, 999 - 10 - 3 - 5);
        assert_eq!(allocate_far(&mut allocator, 3), None);
    }

    #[test]
    fn one_run_is_as_long_as_wanted_and_looked_for_only_so_far() {
        let mut allocator = Allocator::new(Blocks(3 * REGION_BLOCKS), &[]);
        allocate(&mut allocator, 2 * REGION_BLOCKS - 1);
        for (pbn, blocks) in [(10, 3), (20, 8), (REGION_BLOCKS + 5, 5)] {
            allocator.release(Run { pbn: Pbn(pbn), blocks });
        }
        // The last region is the nearest. A run across its end does not count.
        let found = |allocator: &mut Allocator, blocks, regions| {
            done(allocator, |allocator| allocator.allocate_run(blocks, regions)).map(|run| (run.pbn.0, run.blocks))
        };
        assert_eq!(found(&mut allocator, REGION_BLOCKS - 2, 2), Some((2 * REGION_BLOCKS, REGION_BLOCKS - 2)));
        assert_eq!(found(&mut allocator, 6, 1), None, "it is not looked for in the next region");
        assert_eq!(found(&mut allocator, 9, 10), None);
        assert_eq!(found(&mut allocator, 6, 10), Some((20, 6)));
        assert_eq!(found(&mut allocator, 3, 10), Some((REGION_BLOCKS + 5, 3)), "from where the last ones were");
        assert_eq!(found(&mut allocator, 3, 10), Some((10, 3)), "and round");
        assert_eq!(allocate(&mut allocator, 2), [Run { pbn: Pbn(26), blocks: 2 }]);
    }

    #[test]
    fn runs_are_contiguous_and_never_contain_the_label() {
        let mut allocator = Allocator::new(Blocks(100), &[]);
        let runs = allocate(&mut allocator, 50);
        assert_eq!(runs, [Run { pbn: Pbn(1), blocks: 50 }]);
        let runs = allocate(&mut allocator, 60);
        assert_eq!(runs, [Run { pbn: Pbn(51), blocks: 49 }], "all that is left");
        assert!(allocate(&mut allocator, 1).is_empty());
    }

    #[test]
    fn a_released_run_is_found_again_and_growth_adds_space() {
        let mut allocator = Allocator::new(Blocks(100), &[]);
        allocate(&mut allocator, 99);
        allocator.release(Run { pbn: Pbn(10), blocks: 5 });
        assert_eq!(allocate(&mut allocator, 5), [Run { pbn: Pbn(10), blocks: 5 }]);
        allocator.grow(Blocks(130));
        assert_eq!(allocate(&mut allocator, 40), [Run { pbn: Pbn(100), blocks: 30 }]);
    }

    #[test]
    fn a_request_that_is_given_up_leaves_no_block_taken() {
        let mut allocator = Allocator::new(Blocks(2 * REGION_BLOCKS), &[]);
        let mut request = Request::new(REGION_BLOCKS + 10);
        assert_eq!(allocator.allocate(&mut request), Step::Load(0));
        allocator.admit(0, Bitmap::empty());
        assert_eq!(allocator.allocate(&mut request), Step::Load(1));
        request.into_runs().iter().for_each(|run| allocator.release(*run));
        let got: u64 = allocate(&mut allocator, 2 * REGION_BLOCKS).iter().map(|run| run.blocks).sum();
        assert_eq!(got, 2 * REGION_BLOCKS - 1, "all but the label");
    }

    #[test]
    fn what_is_released_while_a_region_is_loaded_is_free_whichever_came_first() {
        for is_in_bitmap in [false, true] {
            let mut allocator = Allocator::new(Blocks(100), &[]);
            let mut request = Request::new(200);
            assert_eq!(allocator.allocate(&mut request), Step::Load(0));
            let mut bitmap = Bitmap::empty();
            let taken = if is_in_bitmap { 1..100 } else { 11..100 };
            taken.for_each(|block| {
                bitmap.take(block);
            });
            allocator.release(Run { pbn: Pbn(5), blocks: 6 });
            allocator.admit(0, bitmap);
            // A bitmap comes too late if another thread has loaded the region meanwhile.
            allocator.admit(0, Bitmap::empty());
            assert_eq!(allocator.allocate(&mut request), Step::Done(()));
            let free = if is_in_bitmap { Run { pbn: Pbn(5), blocks: 6 } } else { Run { pbn: Pbn(1), blocks: 10 } };
            assert_eq!(request.into_runs(), [free]);
        }
    }

    #[test]
    fn a_region_without_a_long_run_is_searched_once_until_one_is_released() {
        const REGIONS: u64 = 3 * GOOD_SEARCHED_MAX as u64;
        let mut allocator = Allocator::new(Blocks(REGIONS * REGION_BLOCKS), &[]);
        // Every second block is free, as where a file was punched block by block.
        let mut scattered = Bitmap::empty();
        (0..REGION_BLOCKS).step_by(2).for_each(|block| {
            scattered.take(block);
        });
        (0..REGIONS).for_each(|region| allocator.admit(region, scattered.clone()));
        let unsearched = |allocator: &Allocator| {
            let is_unsearched = |region: &usize| allocator.longest_in(*region) >= GOOD_RUN_BLOCKS;
            (0..REGIONS as usize).filter(is_unsearched).count() as u32
        };
        for round in 1..=4 {
            assert_eq!(allocate(&mut allocator, 64).iter().map(|run| run.blocks).sum::<u64>(), 64);
            let expected = (REGIONS as u32).saturating_sub(round * GOOD_SEARCHED_MAX);
            assert!(unsearched(&allocator).abs_diff(expected) <= round, "{} regions", unsearched(&allocator));
        }
        let long = Run { pbn: Pbn(7 * REGION_BLOCKS + 1_000), blocks: 1 };
        for block in (0..128).step_by(2) {
            allocator.release(Run { pbn: long.pbn.plus(block), ..long });
        }
        let runs = allocate(&mut allocator, 100);
        assert_eq!((runs[0].blocks, runs.len()), (100, 1), "the run that was released is found: {runs:?}");
    }

    #[test]
    fn scattered_blocks_are_used_when_nothing_longer_is_left() {
        let mut allocator = Allocator::new(Blocks(REGION_BLOCKS), &[]);
        allocate(&mut allocator, REGION_BLOCKS);
        for pbn in [3, 7, 2000] {
            allocator.release(Run { pbn: Pbn(pbn), blocks: 1 });
        }
        let runs = allocate(&mut allocator, 3);
        assert_eq!(runs.iter().map(|run| run.blocks).sum::<u64>(), 3);
    }

    #[test]
    fn wrong_advice_costs_a_look_and_distrust_finds_the_space() {
        let mut allocator = Allocator::new(Blocks(2 * REGION_BLOCKS), &[0, 0]);
        assert!(allocate(&mut allocator, 1).is_empty());
        allocator.distrust_advice();
        assert_eq!(allocate(&mut allocator, 1).len(), 1);
    }

    #[test]
    #[should_panic(expected = "was free")]
    fn a_double_release_is_noticed() {
        let mut allocator = Allocator::new(Blocks(100), &[]);
        allocate(&mut allocator, 10);
        allocator.release(Run { pbn: Pbn(5), blocks: 1 });
        allocator.release(Run { pbn: Pbn(5), blocks: 1 });
    }

    #[test]
    fn a_run_taken_for_punching_is_not_handed_out() {
        let mut allocator = Allocator::new(Blocks(100), &[]);
        allocate(&mut allocator, 99);
        allocator.release(Run { pbn: Pbn(20), blocks: 30 });
        let piece = Run { pbn: Pbn(16), blocks: 20 };
        let taken = done(&mut allocator, |allocator| allocator.take_free_within(piece, 8));
        assert_eq!(taken, [Run { pbn: Pbn(20), blocks: 16 }]);
        let runs = allocate(&mut allocator, 30);
        assert_eq!(runs, [Run { pbn: Pbn(36), blocks: 14 }]);
    }
}
