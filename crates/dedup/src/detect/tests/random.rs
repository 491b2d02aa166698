//! Random cases for the detector: few pbns, so that runs meet, overlap and end often.

use super::*;
use crate::random::Random;

/// Blocks with the lists that they refer to.
pub struct Case {
    holders: Vec<Vec<Pbn>>,
    current: Vec<Option<Pbn>>,
    pub rule: RunRule,
}

impl Case {
    /// Up to 14 blocks, and runs of some blocks, cut and overlaid.
    pub fn random(numbers: &mut Random) -> Self {
        let blocks = numbers.below(15) as usize;
        let runs = numbers.below(1 + blocks as u64);
        Self::with(numbers, blocks, runs, 8)
    }

    /// Few enough blocks that every choice can be tried.
    pub fn small(numbers: &mut Random) -> Self {
        let blocks = 1 + numbers.below(7) as usize;
        let runs = numbers.below(5);
        Self::with(numbers, blocks, runs, 4)
    }

    fn with(numbers: &mut Random, blocks: usize, runs: u64, min_max: u64) -> Self {
        let mut holders = vec![Vec::new(); blocks];
        for _ in 0..runs {
            let (first, pbn) = (numbers.below(blocks as u64), numbers.below(12));
            let len = 1 + numbers.below(2 + min_max);
            for (n, holders) in holders.iter_mut().skip(first as usize).take(len as usize).enumerate() {
                holders.push(Pbn(pbn + n as u64));
            }
        }
        for holders in &mut holders {
            holders.sort_unstable();
            holders.dedup();
        }
        let (run_blocks_min, may_go_on) = (1 + numbers.below(min_max) as u32, numbers.below(2) == 0);
        let end_blocks_min = (numbers.below(3) == 0).then(|| 1 + numbers.below(min_max) as u32);
        let rule = RunRule { run_blocks_min, end_blocks_min, may_go_on };
        // In every second case the file already has some of the blocks.
        let has_current = numbers.below(2) == 0;
        let current = |holders: &Vec<Pbn>| match numbers.below(3) {
            _ if !has_current => None,
            0 => holders.first().copied(),
            1 => Some(Pbn(numbers.below(12))),
            _ => None,
        };
        let current = holders.iter().map(current).collect();
        Self { holders, current, rule }
    }

    pub fn blocks(&self) -> Vec<Candidates<'_>> {
        let zipped = self.holders.iter().zip(&self.current);
        zipped.map(|(holders, current)| Candidates { holders, current: *current }).collect()
    }
}
