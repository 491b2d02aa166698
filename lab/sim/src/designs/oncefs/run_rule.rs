//! Which runs of a file are shared: those of a fixed length, or as many as the file's budget allows, as `oncefs-dedup`
//! decides it. Keeps the accounts of files, and how they are read.

use std::collections::{HashMap, HashSet};

use oncefs_dedup::{
    Allowance, Candidates, Decision, FilePieces, Pbn, PieceCost, PieceCounter, ReadPattern, RunRule, Slowdown, detect,
    detect_within,
};

use crate::trace::{Place, Read};
use crate::volume::Volume;

/// Blocks with so many references are in every reader's memory.
pub const REFS_FREE_MIN: u32 = 256;

/// Which runs are shared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// Of so many blocks, in every file.
    Fixed(u32),
    /// As many as each file's budget allows.
    Budget {
        /// By how much a file may become slower to read.
        slowdown: Slowdown,
        /// What a piece costs.
        cost: PieceCost,
    },
}

/// The rule, and what it knows of files.
pub(super) struct RunRules {
    threshold: Threshold,
    accounts: HashMap<u64, FilePieces>,
    reads: HashMap<u64, Known>,
    /// The file that was written last, and where it lies.
    own: (u64, HashSet<Pbn>),
}

/// How a file is read.
#[derive(Default)]
struct Known {
    pattern: ReadPattern,
    /// Where its last read began and ended.
    last: (u64, u64),
}

impl RunRules {
    /// Nothing known so far.
    pub fn new(threshold: Threshold) -> Self {
        Self { threshold, accounts: HashMap::new(), reads: HashMap::new(), own: (0, HashSet::new()) }
    }

    /// The budget that applies to a file; None: runs from `run_blocks_min` on are shared.
    pub fn budget(&self, file: u64) -> Option<(Slowdown, PieceCost)> {
        let is_random = self.reads.get(&file).is_some_and(|known| known.pattern.is_random());
        match self.threshold {
            Threshold::Budget { slowdown, cost } if !is_random => Some((slowdown, cost)),
            _ => None,
        }
    }

    /// The shortest run worth sharing where no budget decides.
    pub fn run_blocks_min(&self) -> u32 {
        match self.threshold {
            Threshold::Fixed(run_blocks_min) => run_blocks_min,
            Threshold::Budget { .. } => 1,
        }
    }

    /// Blocks are written to a file; `added` of them to places that had none. `blocks` stands for what lies before them,
    /// too.
    pub fn decide(
        &mut self,
        file: u64,
        blocks: &[Candidates],
        added: u64,
        volume: &Volume,
        may_go_on: bool,
    ) -> Vec<Decision> {
        let Some((slowdown, cost)) = self.budget(file) else {
            return detect(blocks, RunRule { may_go_on, ..RunRule::of(self.run_blocks_min()) });
        };
        if self.own.0 != file {
            self.own = (file, HashSet::new());
        }
        let account = self.accounts.entry(file).or_default();
        account.grow(added, 0);
        let own = &self.own.1;
        let is_free = |_: usize, pbn: Pbn| own.contains(&pbn) || volume.count(pbn) >= REFS_FREE_MIN;
        let within = detect_within(
            blocks,
            &Allowance {
                pieces_max: account.left_so_far(slowdown, cost),
                gap_blocks_max: cost.gap_blocks_max(),
                is_end: false,
                is_free: &is_free,
            },
        );
        account.grow(0, within.pieces);
        within.decisions
    }

    /// A block of a file lies there now.
    pub fn note_own(&mut self, file: u64, pbn: Pbn) {
        if self.own.0 == file {
            self.own.1.insert(pbn);
        }
    }

    /// A file is looked at as a whole: what it may share within its budget, in the order of its blocks.
    pub fn decide_whole(&mut self, file: u64, blocks: &[Candidates], volume: &Volume) -> Vec<Decision> {
        let Some((slowdown, cost)) = self.budget(file) else { return detect(blocks, RunRule::EVERY_BLOCK) };
        let mut counter = PieceCounter::default();
        let pbns: HashSet<Pbn> = blocks.iter().filter_map(|block| block.current).collect();
        for pbn in blocks.iter().filter_map(|block| block.current) {
            counter.add(pbn.0, 1, cost.gap_blocks_max());
        }
        let mut account = FilePieces::of_file(blocks.len() as u64, counter.pieces());
        let is_free = |_: usize, pbn: Pbn| pbns.contains(&pbn) || volume.count(pbn) >= REFS_FREE_MIN;
        let within = detect_within(
            blocks,
            &Allowance {
                pieces_max: account.left(slowdown, cost),
                gap_blocks_max: cost.gap_blocks_max(),
                is_end: true,
                is_free: &is_free,
            },
        );
        account.grow(0, within.pieces);
        self.accounts.insert(file, account);
        within.decisions
    }

    /// Learns of a read. True: the file turned out to be read at random, where no budget applies.
    pub fn note(&mut self, read: &Read) -> bool {
        let Place { file, lbn } = read.place;
        if !matches!(self.threshold, Threshold::Budget { .. }) {
            return false;
        }
        let known = self.reads.entry(file).or_default();
        let follows = known.last.1 > 0 && (known.last.0..=known.last.1).contains(&lbn);
        known.last = (lbn, lbn + read.blocks);
        let was_random = known.pattern.is_random();
        known.pattern.read(read.blocks as u32, follows);
        known.pattern.is_random() && !was_random
    }
}
