//! Detect: which blocks of a file share stored blocks, so that only runs worth a seek are shared (iDedup, sections
//! 3.4 and 4.2).
//!
//! Owns the choice among candidates and the refusal of short runs. Leaves to its callers where candidates come from,
//! whether they hold the content (confirm), and how long a run has to be (a fixed `run_blocks_min`, or `within` a
//! budget).
//!
//! Terms. A **sequence** is a maximal range of blocks that are adjacent in the file and have holders that are adjacent
//! in the data area. A **run** is the shared part of a sequence: all of it or a part. A block that the file already
//! shares (`current` is a holder) stays, whatever the length. It then has no other holder.
//!
//! Rule. Runs do not overlap and have at least `run_blocks_min` blocks, unless all their blocks stay, or they reach
//! the last block and have at least `end_blocks_min`. Of all ways to choose such runs, take
//! 1. those that share most blocks,
//! 2. of these, those with the fewest runs,
//! 3. of these, the one that shares the last block, if any does, with the run that begins last (so that the runs before
//!    it reach their ends), then with the lowest pbns; and so on for the blocks before that run, or before that block.
//!
//! Open blocks, if the file may go on: a run that reaches the last block may be shorter than `run_blocks_min` if its
//! whole sequence is. Its blocks count as shared in (1). It is taken only if that shares more blocks, and then as long
//! as possible. So an open sequence gets the blocks in which it overlaps an ended run, if that run stays long enough
//! without them: the rule of section 3.4.2. [Decision 0023](../../../docs/decisions/0023-runs-are-chosen-exactly.md)
//! compares both.
//!
//! Method. Blocks are scanned in order, and all sequences that reach the present block are tracked in parallel
//! (breadth-first): [`sequences`] joins them with the holders of the next block. Each carries the best choice whose
//! last run is its own. The best of these is the best choice for the blocks so far. At the end the choices are traced
//! back to the first block.

mod choice;
mod sequences;

#[cfg(test)]
pub mod tests;

use std::fmt;

use crate::{BIG_RUN_BLOCKS, HOLDERS_MAX, Lbn, Pbn};
use choice::Choices;

/// One block of a file, with the stored blocks that may have the same content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidates<'a> {
    /// Pbns that may hold the content, ascending. Only the first [`HOLDERS_MAX`] count.
    pub holders: &'a [Pbn],
    /// The pbn that the file's map has here now. If it is a holder, the block stays there.
    pub current: Option<Pbn>,
}

impl<'a> Candidates<'a> {
    /// Whether the file already refers to a holder of this block.
    pub(crate) fn stays(&self) -> bool {
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

/// Which runs of a file are worth sharing (iDedup's threshold, section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRule {
    /// The shortest run worth sharing, in blocks; 0 counts as 1. In the paper a run has to be longer than the
    /// threshold, here at least as long.
    pub run_blocks_min: u32,
    /// The shortest run worth sharing if it reaches the last block, where that is the file's last one
    /// ([`RunRule::end_chunk`]). 0 counts as 1. None: the same as elsewhere.
    pub end_blocks_min: Option<u32>,
    /// Whether the file's next request may continue where these blocks end, so that a short run there is open.
    pub may_go_on: bool,
}

impl RunRule {
    /// Every block that has a holder is shared.
    pub const EVERY_BLOCK: Self = Self { run_blocks_min: 1, end_blocks_min: None, may_go_on: false };

    /// Runs of at least this many blocks, wherever they lie.
    pub fn of(run_blocks_min: u32) -> Self {
        Self { run_blocks_min, end_blocks_min: None, may_go_on: false }
    }

    /// The `end_blocks_min` of a file with this last block, where the file is cut into chunks (Selective, section 4.1):
    /// the number of blocks of its last chunk, which may be partial. For a file shorter than a chunk that is all of its
    /// blocks.
    pub fn end_chunk(last: Lbn) -> u32 {
        (last.0 % u64::from(BIG_RUN_BLOCKS)) as u32 + 1
    }

    fn blocks_min(self) -> usize {
        self.run_blocks_min.max(1) as usize
    }
}

/// The decision for one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It becomes a reference to this pbn, if confirmed.
    Share(Pbn),
    /// It is stored in a block of its own: no holder is known.
    Unknown,
    /// It is stored in a block of its own: holders are known, but no run through it is long enough.
    Refused,
    /// It is stored in a block of its own for now: it belongs to a run that reaches the last block, is too short so far
    /// and may continue with the file's next request. Only with [`RunRule::may_go_on`].
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

/// Adjacent blocks with the same decision: shared with adjacent pbns, or all stored for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecidedRun {
    /// Index of the first block.
    pub first: usize,
    /// How many blocks.
    pub blocks: usize,
    /// The decision for the first one.
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

/// Decides for adjacent blocks of one file, in file order (iDedup, sections 3.4 and 4.2).
///
/// The blocks before them can be passed too, as blocks that stay (`current` is their holder). Then a run that begins
/// there counts from there. The time is proportional to the number of blocks, however many holders they have.
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
