//! Extension: finds the neighbours of a duplicate block in the block table, without looking up hints.
//!
//! A hint store with one tag in many names a holder for only a few blocks of a long duplicate. The neighbours of that
//! holder probably hold the content of the file's neighbouring blocks, and their table entries are close by.
//!
//! Owns which pbns are looked up in the table. Leaves to the engine loading the table's pages (`write/extension.rs`)
//! and confirming.
//!
//! 1. A block is queried only if its look-up may have missed a holder: it returned as many holders as it can, or none,
//!    unless hints are complete. Then the table is queried for the pbn after each holder of the previous block, and for
//!    the one before each holder of the next block. A pbn that holds the block becomes a holder, and is extended in
//!    turn.
//! 2. In each direction the table is queried for at most [`EXTENDED_MAX`] pbns per block: those of the longest
//!    sequences, and of these the lowest. So the cost is proportional to the blocks, however many holders they have.
//! 3. Holders stay ascending, and at most [`HOLDERS_MAX`]. If there is no room, the highest holder that is adjacent to
//!    no holder of a neighbour leaves. If there is none, nothing is queried.

use crate::{HOLDERS_MAX, Pbn, Tag};

#[cfg(test)]
mod tests;

/// Sequences extended across one block in one direction. One is the usual case. The others cover a wrong hint or a
/// content that is stored twice.
pub const EXTENDED_MAX: usize = 4;

/// The known holders of a range of blocks in a file, and the search for more.
///
/// The caller works in turns: [`Extension::extend`] goes as far as the pages in memory allow and returns the pbns
/// whose pages are missing. Each turn names other pages, so the turns end once all of them are in memory.
#[derive(Debug)]
pub struct Extension<'a> {
    tags: &'a [Tag],
    holders: Vec<Vec<Pbn>>,
    /// Pbns that may hold the first block.
    seeds: &'a [Pbn],
    /// For each block, whether its look-up may have missed a holder.
    may_have_more: Vec<bool>,
}

#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Backward,
}

impl Direction {
    fn next(self, pbn: Pbn) -> Option<Pbn> {
        match self {
            Self::Forward => Some(pbn.plus(1)),
            Self::Backward => pbn.0.checked_sub(1).map(Pbn),
        }
    }
}

/// A sequence at the border between two blocks.
#[derive(Clone, Copy)]
struct Expected {
    /// The pbn of the next block, if the sequence goes on.
    pbn: Pbn,
    /// Its blocks so far.
    blocks: usize,
}

impl<'a> Extension<'a> {
    /// A range of blocks with their tags and the holders from look-ups, ascending. A seed is a pbn that may hold the
    /// first block because the pbn before it is shared with the block before the first.
    ///
    /// Holders beyond [`HOLDERS_MAX`] are dropped.
    pub fn new(tags: &'a [Tag], mut holders: Vec<Vec<Pbn>>, seeds: &'a [Pbn]) -> Self {
        assert_eq!(tags.len(), holders.len(), "each block has a tag and a list of holders");
        debug_assert!(holders.iter().all(|pbns| pbns.is_sorted()), "holders come in ascending order");
        let may_have_more = holders.iter().map(|pbns| pbns.is_empty() || pbns.len() >= HOLDERS_MAX).collect();
        holders.iter_mut().for_each(|pbns| pbns.truncate(HOLDERS_MAX));
        Self { tags, holders, seeds, may_have_more }
    }

    /// For hints that name every live block: a look-up without a holder missed none, so the block is not queried.
    pub fn of_complete_hints(mut self) -> Self {
        for (may_have_more, holders) in self.may_have_more.iter_mut().zip(&self.holders) {
            *may_have_more &= !holders.is_empty();
        }
        self
    }

    /// Extends as far as possible. Returns the pbns whose pages are missing, ascending. An empty list means done.
    ///
    /// `holds` tells whether the table has this tag at this live pbn, or `None` if that page is not in memory. It may
    /// also be called for pbns outside the data area, which hold nothing.
    pub fn extend(&mut self, mut holds: impl FnMut(Pbn, Tag) -> Option<bool>) -> Vec<Pbn> {
        let mut missing = Vec::new();
        if !self.may_have_more.contains(&true) {
            return missing;
        }
        for direction in [Direction::Forward, Direction::Backward] {
            self.walk(direction, &mut |pbn, tag| {
                let answer = holds(pbn, tag);
                missing.extend(answer.is_none().then_some(pbn));
                answer == Some(true)
            });
        }
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// All holders, including those that were found.
    pub fn into_holders(self) -> Vec<Vec<Pbn>> {
        self.holders
    }

    fn walk(&mut self, direction: Direction, holds: &mut dyn FnMut(Pbn, Tag) -> bool) {
        let blocks = self.tags.len();
        let mut expected: Vec<Expected> = match direction {
            Direction::Forward => self.seeds.iter().map(|&pbn| Expected { pbn, blocks: blocks.max(1) }).collect(),
            Direction::Backward => Vec::new(),
        };
        let (mut behind, mut wanted) = (Vec::new(), Vec::new());
        for step in 0..blocks {
            let at = match direction {
                Direction::Forward => step,
                Direction::Backward => blocks - 1 - step,
            };
            if self.may_have_more[at] && !expected.is_empty() {
                wanted.clear();
                wanted.extend_from_slice(&expected);
                self.ask(at, &mut wanted, holds);
            }
            self.go_past(at, direction, &expected, &mut behind);
            std::mem::swap(&mut expected, &mut behind);
        }
    }

    /// Queries the pbns that are expected to hold this block and are not holders yet.
    fn ask(&mut self, at: usize, wanted: &mut Vec<Expected>, holds: &mut dyn FnMut(Pbn, Tag) -> bool) {
        wanted.retain(|expected| self.holders[at].binary_search(&expected.pbn).is_err());
        wanted.sort_unstable_by_key(|expected| (std::cmp::Reverse(expected.blocks), expected.pbn));
        wanted.dedup_by_key(|expected| expected.pbn);
        for Expected { pbn, .. } in wanted.iter().copied().take(EXTENDED_MAX) {
            let leaves = (self.holders[at].len() >= HOLDERS_MAX).then(|| self.not_joined(at));
            if leaves == Some(None) || !holds(pbn, self.tags[at]) {
                continue;
            }
            let holders = &mut self.holders[at];
            if let Some(leaving) = leaves.flatten() {
                holders.retain(|holder| *holder != leaving);
            }
            holders.insert(holders.partition_point(|holder| *holder < pbn), pbn);
        }
    }

    /// The highest holder of a block that follows no holder of the block before and precedes none of the next.
    fn not_joined(&self, at: usize) -> Option<Pbn> {
        let names = |at: Option<usize>, pbn: Option<Pbn>| {
            let holders = at.and_then(|at| self.holders.get(at));
            holders.zip(pbn).is_some_and(|(holders, pbn)| holders.binary_search(&pbn).is_ok())
        };
        let is_joined = |&pbn: &Pbn| {
            names(at.checked_sub(1), Direction::Backward.next(pbn)) || names(Some(at + 1), Direction::Forward.next(pbn))
        };
        self.holders[at].iter().rev().copied().find(|pbn| !is_joined(pbn))
    }

    /// The pbns that are expected to hold the next block.
    fn go_past(&self, at: usize, direction: Direction, expected: &[Expected], behind: &mut Vec<Expected>) {
        let next = |&pbn: &Pbn| {
            let before = expected.iter().find(|expected| expected.pbn == pbn).map_or(0, |expected| expected.blocks);
            direction.next(pbn).map(|pbn| Expected { pbn, blocks: before + 1 })
        };
        behind.clear();
        behind.extend(self.holders[at].iter().filter_map(next));
    }
}
