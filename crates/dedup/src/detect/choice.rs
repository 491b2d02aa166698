//! Pruning (iDedup, sections 3.4.2 and 4.2.2): which part of each of several overlapping sequences is shared.
//!
//! Owns the order of choices, and the best choice for each number of blocks from the first one on.

use std::cmp::Reverse;

use super::sequences::{Sequence, Sequences};
use super::{Decision, RunRule};
use crate::Pbn;

/// The result of a choice of runs among the blocks so far. Its last run reaches the present block.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Blocks shared.
    shared: usize,
    /// Number of runs.
    runs: usize,
    /// Index of the last run's first block.
    begin: usize,
}

impl Way {
    fn rank(&self) -> Rank {
        (self.shared, Reverse(self.runs), Some(self.begin))
    }

    fn longer(self) -> Self {
        Self { shared: self.shared + 1, ..self }
    }
}

/// Greater is better: more blocks, then fewer runs, then a choice with a last run, then the one whose last run begins later.
type Rank = (usize, Reverse<usize>, Option<usize>);

/// The best choice for the first blocks, up to some number.
#[derive(Clone, Copy, Debug, Default)]
struct Best {
    shared: usize,
    runs: usize,
    /// The run that ends with the last of these blocks: index of its first block, pbn of its last.
    run: Option<(usize, Pbn)>,
}

impl Best {
    fn rank(&self) -> Rank {
        (self.shared, Reverse(self.runs), self.run.map(|(begin, _)| begin))
    }

    /// This choice, followed by a run of `blocks` blocks.
    fn then(&self, begin: usize, blocks: usize) -> Way {
        Way { shared: self.shared + blocks, runs: self.runs + 1, begin }
    }
}

/// The best choice for each number of blocks so far.
#[derive(Debug)]
pub struct Choices {
    rule: RunRule,
    /// By number of blocks, starting at none.
    best: Vec<Best>,
    /// Number of blocks up to and including the last one that stays.
    stays_to: usize,
}

impl Choices {
    /// The choices before the first block.
    pub fn new(rule: RunRule) -> Self {
        Self { rule, best: vec![Best::default()], stays_to: 0 }
    }

    /// Advances to the next block, which these sequences reach. `is_last`: no block follows.
    pub fn step(&mut self, open: &mut [Sequence], stays: bool, is_last: bool) {
        let before = self.best.last().expect("there is a best choice for no blocks");
        // A block that stays always belongs to a run, if only to one of its own: that shares one block more.
        let mut best = Best { run: None, ..*before };
        for sequence in open {
            sequence.long = self.long(sequence);
            sequence.staying = stays.then(|| self.staying(sequence));
            let ending = is_last.then(|| self.ending(sequence)).flatten();
            for way in [sequence.long, sequence.staying, ending].into_iter().flatten() {
                // Among equals the first wins: the one with the lowest pbns.
                if way.rank() > best.rank() {
                    best = Best { shared: way.shared, runs: way.runs, run: Some((way.begin, sequence.last)) };
                }
            }
        }
        self.best.push(best);
        if stays {
            self.stays_to = self.blocks();
        }
    }

    fn blocks(&self) -> usize {
        self.best.len() - 1
    }

    /// The best choice whose last run is long enough: a longer run that goes on, or one of the shortest length that
    /// ends here.
    fn long(&self, sequence: &Sequence) -> Option<Way> {
        let blocks_min = self.rule.blocks_min();
        let begins = || {
            let begin = self.best.len() - blocks_min;
            self.best[begin].then(begin, blocks_min)
        };
        let begun = (sequence.blocks >= blocks_min).then(begins);
        let goes_on = sequence.long.map(Way::longer);
        [goes_on, begun].into_iter().flatten().max_by_key(Way::rank)
    }

    /// The best run to the last block, which may be shorter than others.
    fn ending(&self, sequence: &Sequence) -> Option<Way> {
        let blocks = self.best.len();
        let blocks_min = self.rule.end_blocks_min?.max(1) as usize;
        let begins = blocks - sequence.blocks..=blocks.checked_sub(blocks_min)?;
        begins.map(|begin| self.best[begin].then(begin, blocks - begin)).max_by_key(Way::rank)
    }

    fn staying(&self, sequence: &Sequence) -> Way {
        let begin = self.blocks();
        let begun = self.best[begin].then(begin, 1);
        let goes_on = sequence.staying.map(Way::longer);
        goes_on.into_iter().chain([begun]).max_by_key(Way::rank).expect("there is one")
    }

    /// Where the open blocks begin, if there are any.
    fn open_from(&self, sequences: &Sequences) -> Option<usize> {
        let blocks = self.blocks();
        let is_open = |sequence: &&Sequence| self.rule.may_go_on && sequence.blocks < self.rule.blocks_min();
        let begins = |sequence: &Sequence| (blocks - sequence.blocks).max(self.stays_to)..blocks;
        let begins = sequences.open().iter().filter(is_open).flat_map(begins);
        let shared = |begin: usize| self.best[begin].shared + blocks - begin;
        let best = begins.max_by_key(|&begin| (shared(begin), Reverse(begin)))?;
        (shared(best) > self.best[blocks].shared).then_some(best)
    }

    /// Traces the choices back from the last block, and writes the shared and open blocks into the decisions.
    pub fn write(&self, sequences: &Sequences, decisions: &mut [Decision]) {
        let mut end = self.open_from(sequences).unwrap_or(decisions.len());
        decisions[end..].fill(Decision::Open);
        while end > 0 {
            let Some((begin, last)) = self.best[end].run else {
                end -= 1;
                continue;
            };
            for (n, decision) in decisions[begin..end].iter_mut().rev().enumerate() {
                *decision = Decision::Share(Pbn(last.0 - n as u64));
            }
            end = begin;
        }
    }
}
