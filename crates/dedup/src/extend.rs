//! Extension: neighbours of a block that was found are found in the block table, without a look-up.
//!
//! A hint store that keeps one tag of many names a holder for few blocks of a long duplicate. What lies before and
//! behind that holder probably holds what the file has before and behind that block, and the table's entries for it
//! are a step away.
//!
//! Owns which pbns are worth asking the table for. Leaves to others to load the table's pages, and to confirm.
//!
//! 1. A block is asked for only if its look-up may have left a holder out: it named as many as it can, or none,
//!    unless hints are complete. Then the pbn behind each holder of the block before, and the one before each holder
//!    of the block behind, are asked for. What holds the block is a holder like others, and is extended in turn.
//! 2. In each direction at most [`EXTENDED_MAX`] are asked for each block, those of the longest sequences, of equals
//!    of the lowest pbns. So the cost is proportional to the blocks, however many holders they have.
//! 3. Holders stay ascending, and at most [`HOLDERS_MAX`]. If there is no room, one leaves that is joined to no
//!    holder of a neighbour, the highest first; if there is none, nothing is asked.

use crate::{HOLDERS_MAX, Pbn, Tag};

#[cfg(test)]
mod tests;

/// Sequences that are extended across one block in one direction. One is the usual case; a second and a third are
/// for a wrong hint or a content that is stored twice.
pub const EXTENDED_MAX: usize = 4;

/// The holders of a stretch of blocks in a file, and how they become more.
///
/// The caller asks the table in turns: [`Extension::go_on`] goes as far as pages in memory allow and names the pbns
/// whose pages are missing. With all pages in memory that were ever named, the turns end: each names others.
#[derive(Debug)]
pub struct Extension<'a> {
    tags: &'a [Tag],
    holders: Vec<Vec<Pbn>>,
    /// Pbns that may hold the first block.
    seeds: &'a [Pbn],
    /// For each block whether its look-up may have left a holder out.
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
    /// The pbn that holds the next block, if the sequence goes on.
    pbn: Pbn,
    /// Its blocks so far.
    blocks: usize,
}

impl<'a> Extension<'a> {
    /// A stretch of blocks with their tags and what look-ups named, ascending. A seed is a pbn that may hold the first
    /// block because the one before it is shared with the block before the first.
    ///
    /// Holders beyond [`HOLDERS_MAX`] are dropped.
    pub fn new(tags: &'a [Tag], mut holders: Vec<Vec<Pbn>>, seeds: &'a [Pbn]) -> Self {
        assert_eq!(tags.len(), holders.len(), "each block has a tag and a list of holders");
        debug_assert!(holders.iter().all(|pbns| pbns.is_sorted()), "holders come in ascending order");
        let may_have_more = holders.iter().map(|pbns| pbns.is_empty() || pbns.len() >= HOLDERS_MAX).collect();
        holders.iter_mut().for_each(|pbns| pbns.truncate(HOLDERS_MAX));
        Self { tags, holders, seeds, may_have_more }
    }

    /// For hints that name every live block: a look-up that named no holder left none out, and nothing is asked for it.
    pub fn of_complete_hints(mut self) -> Self {
        for (may_have_more, holders) in self.may_have_more.iter_mut().zip(&self.holders) {
            *may_have_more &= !holders.is_empty();
        }
        self
    }

    /// Extends, and gives the pbns that could not be looked at, ascending: if there are none, all is done.
    ///
    /// `holds` says whether the table has this tag at this live pbn, and nothing if that page is not in memory. It is
    /// also asked for pbns outside of the data area, which hold nothing.
    pub fn go_on(&mut self, mut holds: impl FnMut(Pbn, Tag) -> Option<bool>) -> Vec<Pbn> {
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

    /// The holders, those that were found included.
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

    /// Asks for the pbns that are expected to hold this block and were not named.
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

    /// What is expected behind this block.
    fn go_past(&self, at: usize, direction: Direction, expected: &[Expected], behind: &mut Vec<Expected>) {
        let go_on = |&pbn: &Pbn| {
            let before = expected.iter().find(|expected| expected.pbn == pbn).map_or(0, |expected| expected.blocks);
            direction.next(pbn).map(|pbn| Expected { pbn, blocks: before + 1 })
        };
        behind.clear();
        behind.extend(self.holders[at].iter().filter_map(go_on));
    }
}
