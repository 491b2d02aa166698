//! Detection within a budget: which blocks of a file share stored blocks, so that the pieces this adds stay within a
//! number and share as many blocks as possible.
//!
//! Owns the choice of runs by what they save for a piece. Leaves to `detect` which runs there are, and to `budget` how
//! many pieces may be added.
//!
//! Free of cost: a run with a block that stays (it continues a piece that exists already), a run that continues another
//! after a small gap, a run that reaches the file's last block, and blocks that a reader has without it, because the
//! same file reads them elsewhere or because so many files refer to them that they are in memory.
//!
//! Method. First it finds all runs that share most blocks in the fewest runs. If they are too many, the shortest pieces
//! are refused, because each costs the same. That is the best choice if runs do not overlap. If they do, a long run may
//! have been cut for the ends of others. So the runs longer than the shortest one kept are found once more without the
//! short ones, and the better choice is taken. The reference in the tests tries every choice.

use std::cmp::Reverse;

use crate::Pbn;
use crate::detect::{Candidates, Decision, RunRule, detect, runs_of};

/// How often runs are found again without short ones, at most: more rounds never gained anything in the tests.
const ROUNDS_MAX: usize = 4;

/// The pieces that a range of blocks may cost.
pub struct Allowance<'a> {
    /// Pieces that may be added.
    pub pieces_max: u64,
    /// Ranges with at most this many blocks between them are one piece.
    pub gap_blocks_max: u64,
    /// Whether the last block is the file's last one.
    pub is_end: bool,
    /// Whether the block at this index costs nothing if it refers to this pbn.
    pub is_free: &'a dyn Fn(usize, Pbn) -> bool,
}

/// The shared blocks, and their cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Within {
    /// One for each block.
    pub decisions: Vec<Decision>,
    /// Pieces added.
    pub pieces: u64,
    /// Pieces that were refused although their blocks have known holders.
    pub refused: u64,
}

/// A range of blocks that would be shared with adjacent pbns.
struct Run {
    first: usize,
    blocks: usize,
    /// The number of its piece.
    piece: usize,
}

/// Runs that are read together.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    blocks: usize,
    is_free: bool,
}

/// Decides for adjacent blocks of one file, in file order. Earlier blocks can be passed as blocks that stay.
pub fn detect_within(blocks: &[Candidates], allowance: &Allowance) -> Within {
    let (mut best, mut kept_min) = prune(blocks, allowance, 1);
    for _ in 0..ROUNDS_MAX {
        let Some(longer) = kept_min.map(|blocks| blocks as u32 + 1) else { break };
        let (other, other_min) = prune(blocks, allowance, longer);
        if shared(&other) <= shared(&best) {
            break;
        }
        (best, kept_min) = (other, other_min);
    }
    best
}

fn shared(within: &Within) -> usize {
    within.decisions.iter().filter(|decision| matches!(decision, Decision::Share(_))).count()
}

/// The runs of at least this many blocks that the allowance covers. If any were refused, also gives the length of the
/// shortest piece that was kept and paid for.
fn prune(blocks: &[Candidates], allowance: &Allowance, run_blocks_min: u32) -> (Within, Option<usize>) {
    let rule = RunRule { end_blocks_min: allowance.is_end.then_some(1), ..RunRule::of(run_blocks_min) };
    let mut decisions = detect(blocks, rule);
    let (runs, pieces) = pieces_of(blocks, &decisions, allowance);
    let mut paid: Vec<usize> = (0..pieces.len()).filter(|piece| !pieces[*piece].is_free).collect();
    // Among equals the first ones are kept.
    paid.sort_by_key(|piece| Reverse(pieces[*piece].blocks));
    let kept = paid.len().min(usize::try_from(allowance.pieces_max).unwrap_or(usize::MAX));
    let mut is_refused = vec![false; pieces.len()];
    paid[kept..].iter().for_each(|piece| is_refused[*piece] = true);
    for run in runs.iter().filter(|run| is_refused[run.piece]) {
        for (index, decision) in decisions.iter_mut().enumerate().skip(run.first).take(run.blocks) {
            let is_free = matches!(decision, Decision::Share(pbn) if (allowance.is_free)(index, *pbn));
            *decision = if is_free { *decision } else { Decision::Refused };
        }
    }
    assert!(kept as u64 <= allowance.pieces_max, "{kept} pieces are kept of {}", allowance.pieces_max);
    let refused = (paid.len() - kept) as u64;
    let kept_min = (refused > 0 && kept > 0).then(|| pieces[paid[kept - 1]].blocks);
    (Within { decisions, pieces: kept as u64, refused }, kept_min)
}

/// The shared runs, and the pieces that they form.
fn pieces_of(blocks: &[Candidates], decisions: &[Decision], allowance: &Allowance) -> (Vec<Run>, Vec<Piece>) {
    let mut runs: Vec<Run> = Vec::new();
    let mut pieces: Vec<Piece> = Vec::new();
    let mut end = None;
    for run in runs_of(decisions) {
        let Decision::Share(pbn) = run.decision else { continue };
        let goes_on = end.is_some_and(|end: Pbn| (end.0..=end.0 + allowance.gap_blocks_max).contains(&pbn.0));
        if !goes_on {
            pieces.push(Piece::default());
        }
        let piece = pieces.last_mut().expect("one was added if there was none");
        let range = run.first..run.first + run.blocks;
        let costs_nothing = |at: usize| (allowance.is_free)(at, pbn.plus((at - run.first) as u64));
        piece.blocks += range.clone().filter(|at| !costs_nothing(*at)).count();
        piece.is_free |= allowance.is_end && range.end == blocks.len();
        piece.is_free |= blocks[range].iter().any(Candidates::stays);
        runs.push(Run { first: run.first, blocks: run.blocks, piece: pieces.len() - 1 });
        end = Some(pbn.plus(run.blocks as u64));
    }
    pieces.iter_mut().for_each(|piece| piece.is_free |= piece.blocks == 0);
    debug_assert!(pieces.len() <= runs.len(), "{} pieces of {} runs", pieces.len(), runs.len());
    (runs, pieces)
}

#[cfg(test)]
mod tests;
