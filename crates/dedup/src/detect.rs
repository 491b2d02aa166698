//! Detect: which blocks of a file share stored blocks, so that only runs worth a seek are shared (iDedup, sections
//! 3.4 and 4.2).
//!
//! Owns the choice among candidates and the refusal of short runs. Leaves to others where candidates come from and
//! whether they hold what they promise (confirm).
//!
//! The words. A **sequence** is a stretch of blocks that follow one another in the file and have holders that follow
//! one another in the data area, with no further such block before or behind it. A **run** is what is shared of a
//! sequence: all of it or a part. A block that the file has already (`current` is a holder) stays, whatever the
//! length; it has no other holder then.
//!
//! The rule. Runs do not overlap and have at least `run_blocks_min` blocks, unless all their blocks stay, or they reach
//! the last block and have at least `end_blocks_min`. Of all ways to choose such runs the one is taken
//! 1. that shares most blocks,
//! 2. of these, in the fewest runs,
//! 3. of these, where the last block is shared if it can be, by the run that begins last (so that the runs before it
//!    go on to their ends), then by that with the lowest pbns; and so on for the blocks before that run, or before
//!    that block.
//!
//! Open blocks, if the file may go on: a run that reaches the last block may be shorter than `run_blocks_min` if its
//! whole sequence is. Its blocks count as shared in (1), and it is taken only if that makes more; then as long as
//! possible. So what an open sequence overlaps is left to it where what ended keeps a run that is long enough: the
//! rule of section 3.4.2. [Decision 0023](../../../docs/decisions/0023-runs-are-chosen-exactly.md) compares both.
//!
//! The way. Blocks are scanned in order, all sequences that reach the present block are tracked side by side
//! (breadth-first): [`sequences`] joins them with the holders of the next block. Each carries the best choice whose
//! last run is its own; the best of these is the best choice for the blocks so far. At the end the way is gone back.

mod choice;
mod sequences;

#[cfg(test)]
pub mod tests;

use std::fmt;

use crate::{BIG_RUN_BLOCKS, HOLDERS_MAX, Lbn, Pbn};
use choice::Choices;

/// One block of a file: what may hold its content already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidates<'a> {
    /// Pbns that may hold the content, ascending. The first [`HOLDERS_MAX`] are looked at.
    pub holders: &'a [Pbn],
    /// The pbn that the file's map has at this place now. If it is a holder, the block stays there.
    pub current: Option<Pbn>,
}

impl<'a> Candidates<'a> {
    /// Whether the file has its block already.
    fn stays(&self) -> bool {
        self.current.is_some_and(|pbn| self.holders.binary_search(&pbn).is_ok())
    }

    /// The pbns that the block may be shared with.
    fn choice(&'a self) -> &'a [Pbn] {
        debug_assert!(self.holders.is_sorted(), "holders come in ascending order: {self:?}");
        match &self.current {
            Some(pbn) if self.stays() => std::slice::from_ref(pbn),
            _ => &self.holders[..self.holders.len().min(HOLDERS_MAX)],
        }
    }
}

/// Which runs of a file are worth sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRule {
    /// The shortest run worth sharing, in blocks; 0 is taken as 1. The paper's threshold: there a run is longer
    /// than it, here it has at least as many blocks.
    pub run_blocks_min: u32,
    /// The shortest run that is worth sharing if it reaches the last block, where that is the file's last
    /// ([`RunRule::end_chunk`]); 0 is taken as 1. None: no other one than elsewhere.
    pub end_blocks_min: Option<u32>,
    /// Whether the file's next request may go on where these blocks end, so that a short run there is open.
    pub may_go_on: bool,
}

impl RunRule {
    /// Every block that has a holder is shared.
    pub const EVERY_BLOCK: Self = Self { run_blocks_min: 1, end_blocks_min: None, may_go_on: false };

    /// Runs of at least so many blocks, wherever they lie.
    pub fn of(run_blocks_min: u32) -> Self {
        Self { run_blocks_min, end_blocks_min: None, may_go_on: false }
    }

    /// The `end_blocks_min` of a file whose last block is this, where whole chunks and the partial one at the end count
    /// (Selective, section 4.1): the blocks of the last chunk. Of a file that is shorter than a chunk that is all.
    pub fn end_chunk(last: Lbn) -> u32 {
        (last.0 % u64::from(BIG_RUN_BLOCKS)) as u32 + 1
    }

    fn blocks_min(self) -> usize {
        self.run_blocks_min.max(1) as usize
    }
}

/// What becomes of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Becomes a reference to this pbn, if confirmed.
    Share(Pbn),
    /// Is stored in a block of its own: no holder is known.
    Unknown,
    /// Is stored in a block of its own: holders are known, but no run through it is long enough.
    Refused,
    /// Is stored in a block of its own for now: belongs to a run that reaches the last block, is too short so far and
    /// may go on with the file's next request. Only with [`RunRule::may_go_on`].
    Open,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(pbn) => write!(f, "{pbn}"),
            Self::Unknown => f.write_str("unknown"),
            Self::Refused => f.write_str("refused"),
            Self::Open => f.write_str("open"),
        }
    }
}

/// Blocks in a row that are decided alike: shared with pbns in a row, or all for one reason not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecidedRun {
    /// Index of the first block.
    pub first: usize,
    /// How many blocks.
    pub blocks: usize,
    /// What becomes of the first one.
    pub decision: Decision,
}

impl fmt::Display for DecidedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, blocks, decision } = self;
        write!(f, "{first}+{blocks}: {decision}")
    }
}

/// Groups decisions into runs, in order and without a gap.
pub fn runs_of(decisions: &[Decision]) -> Vec<DecidedRun> {
    let goes_on = |a: &Decision, b: &Decision| match (a, b) {
        (Decision::Share(a), Decision::Share(b)) => a.plus(1) == *b,
        (a, b) => a == b,
    };
    let mut first = 0;
    let run = |run: &[Decision]| {
        let this = DecidedRun { first, blocks: run.len(), decision: run[0] };
        first += run.len();
        this
    };
    decisions.chunk_by(goes_on).map(run).collect()
}

/// Decides for blocks that follow one another in one file, in file order.
///
/// What lies before them can be given too, as blocks that stay (`current` is their holder): a run that goes on from
/// there counts from there. The time is proportional to the blocks, however many holders they have.
pub fn detect(blocks: &[Candidates], rule: RunRule) -> Vec<Decision> {
    let mut sequences = sequences::Sequences::default();
    let mut choices = Choices::new(rule);
    for (left, block) in (0..blocks.len()).rev().zip(blocks) {
        sequences.step(block.choice());
        choices.step(sequences.open_mut(), block.stays(), left == 0);
    }
    let mut decisions: Vec<Decision> = blocks.iter().map(not_shared).collect();
    choices.write(&sequences, &mut decisions);
    decisions
}

fn not_shared(block: &Candidates) -> Decision {
    if block.holders.is_empty() { Decision::Unknown } else { Decision::Refused }
}
