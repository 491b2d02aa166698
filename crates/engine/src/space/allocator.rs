//! Free space: hands out contiguous runs of the data area.
//!
//! The block table alone says what is free. This keeps a bitmap for each region that was used since
//! the volume was opened (32 MiB of memory per TiB touched), built from the table at first use, and
//! for the other regions a count that is advice: wrong, it costs a look, never a block.

use crate::format::page::PAGE_ENTRIES;
use crate::{Blocks, Pbn, Result};

/// Blocks of a region.
pub const REGION_BLOCKS: u64 = 32_768;
/// Pages of the block table that describe a region.
pub const REGION_PAGES: u64 = REGION_BLOCKS / PAGE_ENTRIES;
/// A free run this long is used even for a larger request; shorter ones wait until nothing better is left.
const GOOD_RUN_BLOCKS: u64 = 64;
const WORDS: usize = (REGION_BLOCKS / 64) as usize;

/// Blocks that follow each other in the data area.
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

/// One bit per block of a region: set, it is not to be handed out.
#[derive(Clone)]
pub struct Bitmap {
    words: Box<[u64; WORDS]>,
    free: u64,
}

impl Bitmap {
    /// A region with every block free.
    pub fn empty() -> Self {
        Self { words: Box::new([0; WORDS]), free: REGION_BLOCKS }
    }

    /// Takes a block. False: it was taken already.
    pub fn take(&mut self, block: u64) -> bool {
        let (word, bit) = ((block / 64) as usize, 1u64 << (block % 64));
        let was_free = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.free -= u64::from(was_free);
        debug_assert!(self.free <= REGION_BLOCKS, "{} of {REGION_BLOCKS} blocks are free", self.free);
        was_free
    }

    fn is_free(&self, block: u64) -> bool {
        self.words[(block / 64) as usize] & (1 << (block % 64)) == 0
    }

    fn give_back(&mut self, block: u64) -> bool {
        let (word, bit) = ((block / 64) as usize, 1u64 << (block % 64));
        let was_taken = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        self.free += u64::from(was_taken);
        debug_assert!(self.free <= REGION_BLOCKS, "{} of {REGION_BLOCKS} blocks are free", self.free);
        was_taken
    }

    /// The first free run at or after `from`, cut to `blocks_max`.
    fn free_run(&self, from: u64, blocks_max: u64) -> Option<(u64, u64)> {
        let start = self.next(from, 0)?;
        let end = self.next(start, u64::MAX).unwrap_or(REGION_BLOCKS);
        Some((start, (end - start).min(blocks_max)))
    }

    /// The first block at or after `from` whose bit is unset (`flip` 0) or set (`flip` all ones).
    fn next(&self, from: u64, flip: u64) -> Option<u64> {
        let mut at = from;
        while at < REGION_BLOCKS {
            let word = (!(self.words[(at / 64) as usize] ^ flip)) >> (at % 64);
            if word != 0 {
                return Some(at + u64::from(word.trailing_zeros()));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

enum Region {
    /// Not looked at yet; the number is advice.
    Unknown {
        free: u64,
    },
    Known(Bitmap),
}

/// What is free, and where to look next.
///
/// Invariants: (1) a known region's count equals its clear bits; (2) a block that is referenced, waits
/// for its release or is being written has its bit set in a known region; (3) block 0 and blocks beyond
/// the end of the data area are never free.
pub struct Allocator {
    regions: Vec<Region>,
    data_blocks: u64,
    region: usize,
    block: u64,
    advice_changed: bool,
}

/// Builds a region's bitmap from the block table.
pub type LoadRegion<'a> = &'a mut dyn FnMut(u64) -> Result<Bitmap>;

impl Allocator {
    /// All regions unknown; `advice` gives free counts of the first ones.
    pub fn new(data: Blocks, advice: &[u16]) -> Self {
        let mut allocator = Self { regions: Vec::new(), data_blocks: 0, region: 0, block: 0, advice_changed: false };
        allocator.grow(data);
        for (region, free) in allocator.regions.iter_mut().zip(advice) {
            *region = Region::Unknown { free: u64::from(*free) };
        }
        allocator
    }

    /// Takes a larger data area into use.
    pub fn grow(&mut self, data: Blocks) {
        if data.0 <= self.data_blocks {
            return;
        }
        let regions = data.0.div_ceil(REGION_BLOCKS) as usize;
        if let Some(Region::Known(last)) = self.regions.last_mut() {
            let first = (self.data_blocks - 1) / REGION_BLOCKS * REGION_BLOCKS;
            (self.data_blocks..data.0.min(first + REGION_BLOCKS)).for_each(|block| {
                last.give_back(block - first);
            });
        }
        self.regions.resize_with(regions, || Region::Unknown { free: REGION_BLOCKS });
        self.data_blocks = data.0;
    }

    /// Takes up to `want` blocks as few runs, near the last ones handed out. Fewer than `want`, or none,
    /// means that the data area has no more. An error leaves none of them taken.
    pub fn allocate(&mut self, want: u64, load: LoadRegion<'_>) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        let mut left = want;
        for run_blocks_min in [want.min(GOOD_RUN_BLOCKS), 1] {
            if let Err(error) = self.pass(&mut left, run_blocks_min, &mut runs, load) {
                runs.iter().for_each(|run| self.release(*run));
                return Err(error);
            }
            if left == 0 {
                break;
            }
        }
        self.advice_changed |= !runs.is_empty();
        Ok(runs)
    }

    /// Takes blocks that follow each other in one region. None: of the next `regions_max` ones, from where the last
    /// blocks were handed out, none has such a free run; the next ordinary request goes on where the last one did.
    pub fn allocate_run(&mut self, blocks: u64, regions_max: usize, load: LoadRegion<'_>) -> Result<Option<Run>> {
        // The first one comes again at the end of a round, for what lies before the last blocks.
        for n in (0..=self.regions.len()).take(regions_max) {
            let Some(region) = (self.region + n).checked_rem(self.regions.len()) else { break };
            if self.free_in(region) < blocks {
                continue;
            }
            self.make_known(region, load)?;
            let Region::Known(bitmap) = &mut self.regions[region] else { continue };
            let mut at = if n == 0 { self.block } else { 0 };
            while let Some((start, found)) = bitmap.free_run(at, blocks) {
                at = start + found;
                if found == blocks {
                    (start..at).for_each(|block| {
                        bitmap.take(block);
                    });
                    (self.region, self.block, self.advice_changed) = (region, at, true);
                    return Ok(Some(Run { pbn: Pbn(region as u64 * REGION_BLOCKS + start), blocks }));
                }
            }
        }
        Ok(None)
    }

    /// Takes one block, far from another one if possible; the next ordinary request goes on where the last one did.
    pub fn allocate_far(&mut self, from: Pbn, load: LoadRegion<'_>) -> Result<Option<Pbn>> {
        let cursor = (self.region, self.block);
        let far = (from.0 + self.data_blocks / 2) % self.data_blocks.max(1);
        (self.region, self.block) = ((far / REGION_BLOCKS) as usize, far % REGION_BLOCKS);
        let taken = self.allocate(1, load);
        (self.region, self.block) = cursor;
        Ok(taken?.first().map(|run| run.pbn))
    }

    /// Goes round the regions once, taking runs of at least `run_blocks_min`.
    fn pass(&mut self, left: &mut u64, run_blocks_min: u64, runs: &mut Vec<Run>, load: LoadRegion<'_>) -> Result<()> {
        for _ in 0..=self.regions.len() {
            if *left == 0 || self.regions.is_empty() {
                return Ok(());
            }
            if self.free_in(self.region) >= run_blocks_min {
                self.take_from_region(left, run_blocks_min, runs, load)?;
            }
            if *left > 0 {
                self.region = (self.region + 1) % self.regions.len();
                self.block = 0;
            }
        }
        Ok(())
    }

    fn take_from_region(
        &mut self,
        left: &mut u64,
        run_blocks_min: u64,
        runs: &mut Vec<Run>,
        load: LoadRegion<'_>,
    ) -> Result<()> {
        self.make_known(self.region, load)?;
        let first = self.region as u64 * REGION_BLOCKS;
        let Region::Known(bitmap) = &mut self.regions[self.region] else { return Ok(()) };
        while *left > 0 {
            let Some((start, blocks)) = bitmap.free_run(self.block, *left) else { return Ok(()) };
            self.block = start + blocks;
            if blocks < run_blocks_min.min(*left) {
                continue;
            }
            (start..start + blocks).for_each(|block| {
                bitmap.take(block);
            });
            runs.push(Run { pbn: Pbn(first + start), blocks });
            *left -= blocks;
        }
        Ok(())
    }

    fn make_known(&mut self, region: usize, load: LoadRegion<'_>) -> Result<()> {
        if matches!(self.regions[region], Region::Known(_)) {
            return Ok(());
        }
        let first = region as u64 * REGION_BLOCKS;
        let mut bitmap = load(region as u64)?;
        if first == 0 {
            bitmap.take(0);
        }
        (self.data_blocks.max(first)..first + REGION_BLOCKS).for_each(|block| {
            bitmap.take(block - first);
        });
        self.regions[region] = Region::Known(bitmap);
        Ok(())
    }

    fn free_in(&self, region: usize) -> u64 {
        match &self.regions[region] {
            Region::Unknown { free } => *free,
            Region::Known(bitmap) => bitmap.free,
        }
    }

    /// Makes a run free again.
    pub fn release(&mut self, run: Run) {
        assert!(run.pbn.0 > 0 && run.end().0 <= self.data_blocks, "(3) release of {run:?}");
        self.advice_changed = true;
        for pbn in run.pbn.0..run.end().0 {
            match &mut self.regions[(pbn / REGION_BLOCKS) as usize] {
                Region::Unknown { free } => *free = (*free + 1).min(REGION_BLOCKS),
                Region::Known(bitmap) => {
                    assert!(bitmap.give_back(pbn % REGION_BLOCKS), "block {pbn} is released but was free");
                }
            }
        }
    }

    /// Free counts of all regions, if they changed since the last call.
    pub fn changed_advice(&mut self) -> Option<Vec<u16>> {
        if !std::mem::take(&mut self.advice_changed) {
            return None;
        }
        Some((0..self.regions.len()).map(|region| self.free_in(region) as u16).collect())
    }

    /// Forgets advice that may be too low: with free blocks left by the totals, a refused request tries again.
    pub fn distrust_advice(&mut self) {
        for region in &mut self.regions {
            if let Region::Unknown { free } = region {
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

    /// Takes the free runs of at least `run_blocks_min` within `run`, which lies in one region,
    /// so that nobody writes there while a hole is punched.
    pub fn take_free_within(&mut self, run: Run, run_blocks_min: u64, load: LoadRegion<'_>) -> Result<Vec<Run>> {
        let region = (run.pbn.0 / REGION_BLOCKS) as usize;
        assert!(region < self.regions.len(), "{run:?} lies in region {region} of {}", self.regions.len());
        let first = region as u64 * REGION_BLOCKS;
        self.make_known(region, load)?;
        let Region::Known(bitmap) = &mut self.regions[region] else { return Ok(Vec::new()) };
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
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(_: u64) -> Result<Bitmap> {
        Ok(Bitmap::empty())
    }

    #[test]
    fn a_far_block_lies_half_the_data_area_away_and_does_not_move_the_cursor() {
        let mut allocator = Allocator::new(Blocks(1_000), &[]);
        allocator.allocate(10, &mut empty).unwrap();
        assert_eq!(allocator.allocate_far(Pbn(3), &mut empty).unwrap(), Some(Pbn(503)));
        assert_eq!(allocator.allocate_far(Pbn(3), &mut empty).unwrap(), Some(Pbn(504)));
        assert_eq!(allocator.allocate_far(Pbn(700), &mut empty).unwrap(), Some(Pbn(200)));
        assert_eq!(allocator.allocate(5, &mut empty).unwrap(), [Run { pbn: Pbn(11), blocks: 5 }]);
        let rest: u64 = allocator.allocate(2_000, &mut empty).unwrap().iter().map(|run| run.blocks).sum();
        assert_eq!(rest, 999 - 10 - 3 - 5);
        assert_eq!(allocator.allocate_far(Pbn(3), &mut empty).unwrap(), None);
    }

    #[test]
    fn one_run_is_as_long_as_wanted_and_looked_for_only_so_far() {
        let mut allocator = Allocator::new(Blocks(3 * REGION_BLOCKS), &[]);
        allocator.allocate(2 * REGION_BLOCKS - 1, &mut empty).unwrap();
        for (pbn, blocks) in [(10, 3), (20, 8), (REGION_BLOCKS + 5, 5)] {
            allocator.release(Run { pbn: Pbn(pbn), blocks });
        }
        // The last region is the nearest; a run that goes over its end is none.
        let found = |allocator: &mut Allocator, blocks, regions| {
            allocator.allocate_run(blocks, regions, &mut empty).unwrap().map(|run| (run.pbn.0, run.blocks))
        };
        assert_eq!(found(&mut allocator, REGION_BLOCKS - 2, 2), Some((2 * REGION_BLOCKS, REGION_BLOCKS - 2)));
        assert_eq!(found(&mut allocator, 6, 1), None, "it is not looked for in the next region");
        assert_eq!(found(&mut allocator, 9, 10), None);
        assert_eq!(found(&mut allocator, 6, 10), Some((20, 6)));
        assert_eq!(found(&mut allocator, 3, 10), Some((REGION_BLOCKS + 5, 3)), "from where the last ones were");
        assert_eq!(found(&mut allocator, 3, 10), Some((10, 3)), "and round");
        assert_eq!(allocator.allocate(2, &mut empty).unwrap(), [Run { pbn: Pbn(26), blocks: 2 }]);
    }

    #[test]
    fn runs_are_contiguous_and_never_contain_the_label() {
        let mut allocator = Allocator::new(Blocks(100), &[]);
        let runs = allocator.allocate(50, &mut empty).unwrap();
        assert_eq!(runs, [Run { pbn: Pbn(1), blocks: 50 }]);
        let runs = allocator.allocate(60, &mut empty).unwrap();
        assert_eq!(runs, [Run { pbn: Pbn(51), blocks: 49 }], "all that is left");
        assert!(allocator.allocate(1, &mut empty).unwrap().is_empty());
    }

    #[test]
    fn a_released_run_is_found_again_and_growth_adds_space() {
        let mut allocator = Allocator::new(Blocks(100), &[]);
        allocator.allocate(99, &mut empty).unwrap();
        allocator.release(Run { pbn: Pbn(10), blocks: 5 });
        assert_eq!(allocator.allocate(5, &mut empty).unwrap(), [Run { pbn: Pbn(10), blocks: 5 }]);
        allocator.grow(Blocks(130));
        assert_eq!(allocator.allocate(40, &mut empty).unwrap(), [Run { pbn: Pbn(100), blocks: 30 }]);
    }

    #[test]
    fn an_error_on_the_way_leaves_no_block_taken() {
        let mut allocator = Allocator::new(Blocks(2 * REGION_BLOCKS), &[]);
        let mut second_fails = |region| match region {
            0 => Ok(Bitmap::empty()),
            _ => Err(crate::Error::corrupt("a page", "it is damaged")),
        };
        assert!(allocator.allocate(REGION_BLOCKS + 10, &mut second_fails).is_err());
        let got: u64 = allocator.allocate(2 * REGION_BLOCKS, &mut empty).unwrap().iter().map(|run| run.blocks).sum();
        assert_eq!(got, 2 * REGION_BLOCKS - 1, "all but the label");
    }

    #[test]
    fn scattered_blocks_are_used_when_nothing_longer_is_left() {
        let mut allocator = Allocator::new(Blocks(REGION_BLOCKS), &[]);
        allocator.allocate(REGION_BLOCKS, &mut empty).unwrap();
        for pbn in [3, 7, 2000] {
            allocator.release(Run { pbn: Pbn(pbn), blocks: 1 });
        }
        let runs = allocator.allocate(3, &mut empty).unwrap();
        assert_eq!(runs.iter().map(|run| run.blocks).sum::<u64>(), 3);
    }

    #[test]
    fn wrong_advice_costs_a_look_and_distrust_finds_the_space() {
        let mut allocator = Allocator::new(Blocks(2 * REGION_BLOCKS), &[0, 0]);
        assert!(allocator.allocate(1, &mut empty).unwrap().is_empty());
        allocator.distrust_advice();
        assert_eq!(allocator.allocate(1, &mut empty).unwrap().len(), 1);
    }

    #[test]
    #[should_panic(expected = "was free")]
    fn a_double_release_is_noticed() {
        let mut allocator = Allocator::new(Blocks(100), &[]);
        allocator.allocate(10, &mut empty).unwrap();
        allocator.release(Run { pbn: Pbn(5), blocks: 1 });
        allocator.release(Run { pbn: Pbn(5), blocks: 1 });
    }

    #[test]
    fn a_run_taken_for_punching_is_not_handed_out() {
        let mut allocator = Allocator::new(Blocks(100), &[]);
        allocator.allocate(99, &mut empty).unwrap();
        allocator.release(Run { pbn: Pbn(20), blocks: 30 });
        let taken = allocator.take_free_within(Run { pbn: Pbn(16), blocks: 20 }, 8, &mut empty).unwrap();
        assert_eq!(taken, [Run { pbn: Pbn(20), blocks: 16 }]);
        let runs = allocator.allocate(30, &mut empty).unwrap();
        assert_eq!(runs, [Run { pbn: Pbn(36), blocks: 14 }]);
    }
}
