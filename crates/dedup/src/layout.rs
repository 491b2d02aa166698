//! Layout: which short runs of a file are written anew, together, so that reading it goes to fewer places. Pure: the
//! engine looks at the file, and carries the plan out.
//!
//! What a move gains. A run that moves alone to a place of its own is one run as before, whatever lies around it: a short
//! run between two long ones is left where it is. Of short runs that follow each other in the file, k that are written
//! together become one: k - 1 runs less. What it costs: a shared block that moves stays for the others who refer to it,
//! so it takes a new one; any other is free as soon as it has moved. No run is cut: a part of it that stayed behind
//! would be as many runs as the whole.

use crate::{Lbn, Pbn};

/// A run of a file: blocks that follow each other in the data area and, holes aside, in the file. Two runs that are
/// neighbours in a file never continue each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaidRun {
    /// Its first block in the file.
    pub first: Lbn,
    /// The block of the file behind its last one: with holes in it there are more of them than `blocks`.
    pub end: Lbn,
    /// Its first block in the data area.
    pub pbn: Pbn,
    /// How many.
    pub blocks: u64,
    /// Blocks of it that others refer to as well.
    pub shared: u64,
    /// Whether it stays where it is for a reason of its own.
    pub must_stay: bool,
}

impl LaidRun {
    /// Adds blocks to the runs of a file, which come in the order of the file: they go on with the last run, or begin
    /// a new one.
    pub fn add(runs: &mut Vec<Self>, first: Lbn, pbn: Pbn, blocks: u64) {
        let end = first.plus(blocks);
        match runs.last_mut() {
            Some(last) if last.pbn.plus(last.blocks) == pbn => {
                last.end = end;
                last.blocks += blocks;
            }
            _ => runs.push(Self { first, end, pbn, blocks, shared: 0, must_stay: false }),
        }
    }
}

/// What may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutRule {
    /// Runs of at least so many blocks stay where they are, shared or not.
    pub run_blocks_min: u32,
    /// Blocks that may be newly taken, in all.
    pub space_blocks: u64,
}

/// Runs that follow each other in a file and become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first of them, by its number.
    pub from: usize,
    /// The first one behind them: at least `from + 2`.
    pub to: usize,
}

/// What is written anew.
///
/// Invariants: (1) stretches are in order and do not touch; (2) each has at least two runs; (3) none of these must stay
/// or has `run_blocks_min` blocks; (4) their shared blocks together are at most `space_blocks`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutPlan {
    /// What becomes one run each.
    pub stretches: Vec<Stretch>,
    /// Runs of the file now.
    pub runs_before: u64,
    /// Runs of the file afterwards.
    pub runs_after: u64,
    /// Blocks that are written.
    pub blocks_moved: u64,
    /// Blocks that are newly taken.
    pub blocks_unshared: u64,
    /// Runs that could be fewer if more space were allowed.
    pub runs_left: u64,
}

/// Plans a file, or a part of it. If the space does not suffice for everything, that is moved which gains the most runs
/// for a block; of what gains equally much, the first in the file.
pub fn plan_layout(runs: &[LaidRun], rule: &LayoutRule) -> LayoutPlan {
    let all = best_for(runs, rule, u128::MAX);
    let moved = match cost_of(runs, &all) <= rule.space_blocks {
        true => all.clone(),
        false => within_space(runs, rule, &all),
    };
    let stretches = stretches_of(&moved);
    let of_stretches = || stretches.iter().flat_map(|stretch| &runs[stretch.from..stretch.to]);
    let gained = gain_of(&moved);
    LayoutPlan {
        runs_before: runs.len() as u64,
        runs_after: runs.len() as u64 - gained,
        blocks_moved: of_stretches().map(|run| run.blocks).sum(),
        blocks_unshared: of_stretches().map(|run| run.shared).sum(),
        runs_left: gain_of(&all) - gained,
        stretches,
    }
}

/// The best that fits. What is best for a price only grows with the price, so that the highest price whose best fits is
/// found by halving; what the next higher one adds is taken as far as the rest of the space goes.
fn within_space(runs: &[LaidRun], rule: &LayoutRule, all: &[bool]) -> Vec<bool> {
    // At the lowest price all that can be gained is worth less than a block: what it moves costs nothing.
    let mut low = 1;
    let mut moved = best_for(runs, rule, low);
    let shared_max = runs.iter().map(|run| run.shared).max().unwrap_or(0);
    // So much for a run pays for any two runs.
    let mut high = (2 * u128::from(shared_max) + 1) * unit(runs);
    let mut more = all.to_vec();
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let best = best_for(runs, rule, middle);
        if cost_of(runs, &best) <= rule.space_blocks {
            (low, moved) = (middle, best);
        } else {
            (high, more) = (middle, best);
        }
    }
    add_some(runs, rule.space_blocks, &mut moved, &more);
    moved
}

/// What a block costs, in the unit of prices: fine enough to tell any two rates of runs per block apart well.
fn unit(runs: &[LaidRun]) -> u128 {
    runs.len() as u128 + 1
}

/// Which runs to move, if a run less is worth `price` and a block costs `unit`: the fewest of all that are worth most.
/// A run that moves gains one if the one before it moves too, so one pass that knows both cases finds it.
fn best_for(runs: &[LaidRun], rule: &LayoutRule, price: u128) -> Vec<bool> {
    let price = price.min(1 << 64) as i128;
    let unit = unit(runs) as i128;
    // For the runs so far: whether it is better that the one before moves, if this one stays, and if it moves.
    let mut better: Vec<(bool, bool)> = Vec::with_capacity(runs.len());
    let (mut stays, mut moves) = (0, i128::MIN / 2);
    for run in runs {
        better.push((moves > stays, moves + price > stays));
        let movable = !run.must_stay && run.blocks < u64::from(rule.run_blocks_min);
        let cost = if movable { i128::from(run.shared) * unit } else { i128::MAX / 4 };
        (stays, moves) = (stays.max(moves), stays.max(moves + price) - cost);
    }
    let mut moved = vec![false; runs.len()];
    let mut is_moved = moves > stays;
    for (index, (if_stays, if_moves)) in better.into_iter().enumerate().rev() {
        moved[index] = is_moved;
        is_moved = if is_moved { if_moves } else { if_stays };
    }
    moved
}

/// Moves some of `more` too, as far as the space goes: away from what moves already, else from the front.
fn add_some(runs: &[LaidRun], space_blocks: u64, moved: &mut [bool], more: &[bool]) {
    let mut left = space_blocks - cost_of(runs, moved);
    let mut from = 0;
    while let Some(first) = (from..runs.len()).find(|index| more[*index] && !moved[*index]) {
        let to = (first..runs.len()).find(|index| !more[*index] || moved[*index]).unwrap_or(runs.len());
        let joins_before = first > 0 && moved[first - 1];
        let joins_behind = to < runs.len() && moved[to];
        let mut order: Vec<usize> = (first..to).collect();
        if joins_behind && !joins_before {
            order.reverse();
        }
        let fits = |index: &&usize| {
            let rest = left.checked_sub(runs[**index].shared);
            left = rest.unwrap_or(left);
            rest.is_some()
        };
        let taken: Vec<usize> = order.iter().take_while(fits).copied().collect();
        match taken.as_slice() {
            // Alone it would gain nothing.
            [one] if !joins_before && !joins_behind => left += runs[*one].shared,
            taken => taken.iter().for_each(|index| moved[*index] = true),
        }
        from = to;
    }
}

/// Blocks that are newly taken.
fn cost_of(runs: &[LaidRun], moved: &[bool]) -> u64 {
    runs.iter().zip(moved).filter(|(_, moved)| **moved).map(|(run, _)| run.shared).sum()
}

/// By how many the runs become fewer.
fn gain_of(moved: &[bool]) -> u64 {
    moved.windows(2).filter(|pair| pair[0] && pair[1]).count() as u64
}

fn stretches_of(moved: &[bool]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for index in (0..moved.len()).filter(|index| moved[*index]) {
        match stretches.last_mut() {
            Some(last) if last.to == index => last.to += 1,
            _ => stretches.push(Stretch { from: index, to: index + 1 }),
        }
    }
    stretches
}

#[cfg(test)]
mod tests;
