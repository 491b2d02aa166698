//! References of all maps, collected in the order of files and returned in the order of blocks, as counts.
//!
//! It collects runs, so a long file costs one item for each 16 MiB of it instead of one for each block.

use std::collections::BTreeMap;

use crate::Result;
use crate::fsck::sort::{Sorted, Sorter};
use crate::space::allocator::Run;

/// Runs are joined up to this length: bounds how many different ends can lie ahead of a place.
const RUN_BLOCKS_MAX: u64 = 4096;
/// Bits for a run's length in an item; the others hold its first pbn.
const LENGTH_BITS: u32 = 16;
const _: () = assert!(RUN_BLOCKS_MAX < 1 << LENGTH_BITS);
const _: () = assert!(crate::volume::files::DATA_BLOCKS_MAX <= 1 << (u64::BITS - LENGTH_BITS));

/// Collects references.
#[derive(Default)]
pub struct References {
    sorter: Sorter<1>,
    open: Option<Run>,
}

/// Returns counts.
pub struct Counts {
    sorted: Sorted<1>,
    /// For runs that began before the next place: how many end at each block.
    ends: BTreeMap<u64, u64>,
}

impl References {
    /// Adds one reference to each block of a run.
    pub fn add(&mut self, mut run: Run) -> Result<()> {
        while run.blocks > RUN_BLOCKS_MAX {
            self.add_short(Run { blocks: RUN_BLOCKS_MAX, ..run })?;
            run = Run { pbn: run.pbn.plus(RUN_BLOCKS_MAX), blocks: run.blocks - RUN_BLOCKS_MAX };
        }
        self.add_short(run)
    }

    fn add_short(&mut self, run: Run) -> Result<()> {
        match &mut self.open {
            Some(open) if open.end() == run.pbn && open.blocks + run.blocks <= RUN_BLOCKS_MAX => {
                open.blocks += run.blocks;
                Ok(())
            }
            open => open.replace(run).map_or(Ok(()), |done| self.sorter.push(item(done))),
        }
    }

    /// Ends the collection.
    pub fn counts(mut self) -> Result<Counts> {
        if let Some(done) = self.open.take() {
            self.sorter.push(item(done))?;
        }
        Ok(Counts { sorted: self.sorter.sorted()?, ends: BTreeMap::new() })
    }
}

fn item(run: Run) -> [u64; 1] {
    assert!(run.blocks <= RUN_BLOCKS_MAX, "{run:?} does not fit into an item");
    [run.pbn.0 << LENGTH_BITS | run.blocks]
}

impl Counts {
    /// The first block at or after `at` with a reference. `fill` has dropped the references before.
    pub fn next_from(&mut self, at: u64) -> Result<Option<u64>> {
        if self.ends.keys().next_back().is_some_and(|end| *end > at) {
            return Ok(Some(at));
        }
        Ok(self.sorted.peek()?.map(|[item]| (item >> LENGTH_BITS).max(at)))
    }

    /// The references of the blocks from `first` on. Windows are requested in ascending order.
    pub fn fill(&mut self, first: u64, counts: &mut [u32]) -> Result<()> {
        let end = first + counts.len() as u64;
        let mut changes = vec![0i64; counts.len() + 1];
        let place = |block: u64| (block.clamp(first, end) - first) as usize;
        for (run_end, runs) in &self.ends {
            changes[0] += *runs as i64;
            changes[place(*run_end)] -= *runs as i64;
        }
        self.ends = self.ends.split_off(&(end + 1));
        while let Some([item]) = self.sorted.peek()?.filter(|[item]| item >> LENGTH_BITS < end) {
            self.sorted.pop()?;
            let start = item >> LENGTH_BITS;
            let run_end = start + item % (1 << LENGTH_BITS);
            changes[place(start)] += 1;
            changes[place(run_end)] -= 1;
            if run_end > end {
                *self.ends.entry(run_end).or_default() += 1;
            }
        }
        let mut now = 0;
        for (count, change) in counts.iter_mut().zip(changes) {
            now += change;
            debug_assert!(now >= 0, "{now} references of a block between {first} and {end}");
            *count = u32::try_from(now).unwrap_or(u32::MAX);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pbn;
    use crate::tests::fixture::Random;

    #[test]
    fn counts_equal_those_of_a_plain_array_in_any_windows() {
        const BLOCKS: u64 = 30_000;
        for seed in 0..8 {
            println!("seed {seed}");
            let mut random = Random::new(seed);
            let mut plain = vec![0u32; BLOCKS as usize];
            let mut references = References::default();
            for _ in 0..400 {
                let pbn = random.below(BLOCKS);
                let length_max = if random.below(9) == 0 { 9_000 } else { 30 };
                let blocks = 1 + random.below(length_max).min(BLOCKS - pbn - 1);
                references.add(Run { pbn: Pbn(pbn), blocks }).unwrap();
                plain[pbn as usize..(pbn + blocks) as usize].iter_mut().for_each(|count| *count += 1);
            }
            let mut counts = references.counts().unwrap();
            let mut at = 0;
            while at < BLOCKS {
                let next = plain[at as usize..].iter().position(|count| *count > 0).map(|n| at + n as u64);
                let found = counts.next_from(at).unwrap();
                assert_eq!(found, next, "from {at} on");
                let len = (1 + random.below(5_000)).min(BLOCKS - at);
                let mut window = vec![0; len as usize];
                counts.fill(at, &mut window).unwrap();
                assert_eq!(window, plain[at as usize..(at + len) as usize], "window at {at}");
                at += len;
            }
        }
    }
}
