//! The plan of a defrag: which short runs of a file are rewritten together, so that reading the file takes fewer seeks.
//! Pure: the engine inspects the file and carries out the plan (`layout/defrag.rs`).
//!
//! Gain: a run that moves alone is still one run, so a short run between two long ones stays where it is. When k
//! adjacent short runs are rewritten together they become one: k - 1 runs fewer. Cost: a shared block stays for its
//! other references when it moves, so the move takes a new block. Any other block is free as soon as it has moved. No
//! run is cut, because the part left behind would be a run too.

use crate::{Lbn, Pbn};

/// A run of a file: blocks that are adjacent in the data area and, holes aside, in the file. Two adjacent runs of a
/// file never continue each other in the data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRun {
    /// Its first block in the file.
    pub first: Lbn,
    /// The block of the file after its last one. With holes inside, `end - first` exceeds `blocks`.
    pub end: Lbn,
    /// Its first block in the data area.
    pub pbn: Pbn,
    /// How many blocks, without holes.
    pub blocks: u64,
    /// Blocks of it that have other references too.
    pub shared: u64,
    /// Whether it must stay where it is.
    pub must_stay: bool,
}

impl FileRun {
    /// Adds blocks to the runs of a file, in file order: they extend the last run or begin a new one.
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

/// Which runs may move, and at what price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefragRule {
    /// Runs of at least this many blocks stay where they are, shared or not.
    pub run_blocks_min: u32,
    /// New blocks that may be taken in total.
    pub space_blocks: u64,
}

/// A range of adjacent runs of a file that become one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRange {
    /// The index of the first run.
    pub from: usize,
    /// The index after the last run: at least `from + 2`.
    pub to: usize,
}

/// The runs to rewrite, and the effect.
///
/// Invariants: (1) ranges are in order and do not touch; (2) each has at least two runs; (3) none of these must stay
/// or has `run_blocks_min` blocks; (4) together they have at most `space_blocks` shared blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefragPlan {
    /// The ranges; each becomes one run.
    pub ranges: Vec<RunRange>,
    /// Runs of the file now.
    pub runs_before: u64,
    /// Runs of the file afterwards.
    pub runs_after: u64,
    /// Blocks that are rewritten.
    pub blocks_moved: u64,
    /// New blocks that are taken.
    pub blocks_unshared: u64,
    /// How many more runs a larger `space_blocks` could save.
    pub runs_left: u64,
}

/// Plans the defrag of a file, or of part of it. If space is short, the runs with the highest gain per new block move.
/// Of equal ones, the first in the file move.
pub fn plan_defrag(runs: &[FileRun], rule: &DefragRule) -> DefragPlan {
    let all = best_for(runs, rule, u128::MAX);
    let moved = match cost_of(runs, &all) <= rule.space_blocks {
        true => all.clone(),
        false => within_space(runs, rule, &all),
    };
    let ranges = ranges_of(&moved);
    let of_ranges = || ranges.iter().flat_map(|range| &runs[range.from..range.to]);
    let gained = gain_of(&moved);
    DefragPlan {
        runs_before: runs.len() as u64,
        runs_after: runs.len() as u64 - gained,
        blocks_moved: of_ranges().map(|run| run.blocks).sum(),
        blocks_unshared: of_ranges().map(|run| run.shared).sum(),
        runs_left: gain_of(&all) - gained,
        ranges,
    }
}

/// The best choice that fits. The cost of the best choice only grows with the price, so bisection finds the highest
/// price whose choice fits. From what the next higher price adds, it takes as much as fits into the remaining space.
fn within_space(runs: &[FileRun], rule: &DefragRule, all: &[bool]) -> Vec<bool> {
    // At the lowest price all possible gains are worth less than a block, so only free moves are chosen.
    let mut low = 1;
    let mut moved = best_for(runs, rule, low);
    let shared_max = runs.iter().map(|run| run.shared).max().unwrap_or(0);
    // At this price, saving one run pays for moving any two runs.
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

/// The cost of a block in the unit of prices: fine enough to tell any two ratios of runs to blocks apart.
fn unit(runs: &[FileRun]) -> u128 {
    runs.len() as u128 + 1
}

/// Which runs to move if saving a run is worth `price` and a block costs `unit`. Among the most valuable choices it
/// takes the one with the fewest runs. A move gains one run if the run before it moves too, so one pass that tracks
/// both cases finds it.
fn best_for(runs: &[FileRun], rule: &DefragRule, price: u128) -> Vec<bool> {
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

/// Also moves some of `more`, as far as the space allows. Starts next to runs that move already, otherwise at the
/// front.
fn add_some(runs: &[FileRun], space_blocks: u64, moved: &mut [bool], more: &[bool]) {
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

/// New blocks that are taken.
fn cost_of(runs: &[FileRun], moved: &[bool]) -> u64 {
    runs.iter().zip(moved).filter(|(_, moved)| **moved).map(|(run, _)| run.shared).sum()
}

/// How many runs the file loses.
fn gain_of(moved: &[bool]) -> u64 {
    moved.windows(2).filter(|pair| pair[0] && pair[1]).count() as u64
}

fn ranges_of(moved: &[bool]) -> Vec<RunRange> {
    let mut ranges: Vec<RunRange> = Vec::new();
    for index in (0..moved.len()).filter(|index| moved[*index]) {
        match ranges.last_mut() {
            Some(last) if last.to == index => last.to += 1,
            _ => ranges.push(RunRange { from: index, to: index + 1 }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests;
