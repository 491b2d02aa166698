//! What the files of a corpus save if each makes the best choice within its budget, one after the other.
//!
//! Files come in the order of their last writes, each as it is in the end. New blocks of a file lie together, in a data
//! area that only grows, and who holds a content is always known. A file does not ask what later ones would need.

use hashbrown::{HashMap, HashSet};
use oncefs_dedup::{FilePieces, Pbn, PieceCost, Slowdown};

use super::choice::{Sharable, best_within};
use crate::contents::FileContents;
use crate::designs::REFS_FREE_MIN;
use crate::trace::Content;

/// What each file may lose.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    /// By how much longer it may take to read.
    pub slowdown: Slowdown,
    /// What a piece costs.
    pub cost: PieceCost,
    /// Files read at random, which have no limit.
    pub at_random: &'a std::collections::HashSet<u64>,
}

/// Blocks that the files save at most, if each makes the best choice within its budget.
pub(crate) fn saved_within(files: &[FileContents], limits: &Limits) -> u64 {
    let mut store = Store::default();
    files.iter().map(|file| store.place(file, limits)).sum()
}

/// Blocks that these files save at most, written one after the other, if each makes the best choice within its budget.
/// Files are given by their blocks: equal numbers, equal contents. Their cold reads may take `slowdown_percent` longer,
/// and a piece costs `piece_blocks`.
pub fn most_saved(files: &[Vec<u64>], slowdown_percent: u32, piece_blocks: f64) -> u64 {
    let contents = |numbers: &Vec<u64>| vec![(0, numbers.iter().copied().map(Content::numbered).collect())];
    let files: Vec<FileContents> =
        (0..).zip(files).map(|(file, numbers)| FileContents { file, stretches: contents(numbers) }).collect();
    let cost = PieceCost::of_blocks(piece_blocks);
    saved_within(&files, &Limits { slowdown: Slowdown(slowdown_percent), cost, at_random: &Default::default() })
}

/// A data area that only grows.
#[derive(Default)]
struct Store {
    /// References to each block.
    counts: Vec<u32>,
    /// Who holds a content.
    holders: HashMap<Content, Vec<Pbn>>,
}

impl Store {
    /// Stores a file. Returns how many of its blocks can be saved.
    fn place(&mut self, file: &FileContents, limits: &Limits) -> u64 {
        let contents: Vec<Content> = file.stretches.iter().flat_map(|(_, contents)| contents.iter().copied()).collect();
        let account = FilePieces::of_file(contents.len() as u64, 1);
        let is_at_random = limits.at_random.contains(&file.file);
        let pieces_max = if is_at_random { u64::MAX } else { account.pieces_max(limits.slowdown, limits.cost) };
        let mut in_file = HashSet::new();
        let blocks: Vec<Sharable> =
            (contents.iter()).map(|content| self.sharable(content, !in_file.insert(*content))).collect();
        let optimum = best_within(&blocks, pieces_max, limits.cost.gap_blocks_max());
        self.keep(&contents, &optimum.shared);
        optimum.blocks_max
    }

    /// `repeats`: the file has the content before, and reads it there.
    fn sharable(&self, content: &Content, repeats: bool) -> Sharable<'_> {
        let holders = self.holders.get(content).map_or(&[][..], Vec::as_slice);
        Sharable { holders, is_free: repeats || self.popular(holders).is_some() }
    }

    /// One of these that every reader has in memory.
    fn popular(&self, holders: &[Pbn]) -> Option<Pbn> {
        holders.iter().copied().find(|pbn| self.counts[pbn.0 as usize] >= REFS_FREE_MIN)
    }

    /// Refers to what is shared, and stores what is not.
    fn keep(&mut self, contents: &[Content], shared: &[Option<Pbn>]) {
        let mut own: HashMap<Content, Pbn> = HashMap::new();
        for (content, shared) in contents.iter().zip(shared) {
            let popular = self.holders.get(content).and_then(|holders| self.popular(holders));
            let pbn = shared.or_else(|| own.get(content).copied()).or(popular).unwrap_or_else(|| self.store(*content));
            self.counts[pbn.0 as usize] += 1;
            own.insert(*content, pbn);
        }
    }

    fn store(&mut self, content: Content) -> Pbn {
        let pbn = Pbn(self.counts.len() as u64);
        self.counts.push(0);
        self.holders.entry(content).or_default().push(pbn);
        pbn
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn file(file: u64, numbers: impl IntoIterator<Item = u64>) -> FileContents {
        FileContents { file, stretches: vec![(0, numbers.into_iter().map(Content::numbered).collect())] }
    }

    fn saved(files: &[FileContents], cost_blocks: f64, at_random: &[u64]) -> u64 {
        let at_random = HashSet::from_iter(at_random.iter().copied());
        let limits = Limits { slowdown: Slowdown(100), cost: PieceCost::of_blocks(cost_blocks), at_random: &at_random };
        saved_within(files, &limits)
    }

    /// A file of 100 blocks, and one of 40 in which every other block is one of these.
    fn scattered() -> [FileContents; 2] {
        [file(1, 0..100), file(2, (0..40).map(|at| if at % 2 == 0 { 2 * at } else { 1_000 + at }))]
    }

    #[test]
    fn each_file_shares_what_its_budget_allows() {
        assert_eq!(saved(&scattered(), 2.0, &[]), 20, "1 + 40 / 2 pieces may be added");
        assert_eq!(saved(&scattered(), 4.0, &[]), 11, "1 + 40 / 4");
        assert_eq!(saved(&scattered(), 4.0, &[2]), 20, "a file read at random has no limit");
        let numbers = |file: u64| (0..40).map(|at| if at % 2 == 0 { 2 * at } else { 1_000 * file + at }).collect();
        assert_eq!(most_saved(&[(0..100).collect(), numbers(1)], 100, 4.0), 11, "the same, given by numbers");
        assert_eq!(saved(&[file(1, 0..50), file(2, 0..50)], 1_000.0, &[]), 50, "a whole file");
    }

    #[test]
    fn what_the_file_reads_anyway_and_what_very_many_refer_to_is_free() {
        assert_eq!(saved(&[file(1, (0..40).map(|at| at % 10))], 1_000.0, &[]), 30);
        let mut files: Vec<FileContents> = (0..300).map(|number| file(number, [7])).collect();
        files.push(file(999, (0..40).flat_map(|at| [7, 1_000 + at])));
        assert_eq!(saved(&files, 1_000.0, &[]), 299 + 40);
    }

    #[test]
    fn a_copy_that_was_kept_is_a_holder_too() {
        let [first, second] = scattered();
        let again = FileContents { file: 3, ..second.clone() };
        assert_eq!(saved(&[first, second, again], 1_000.0, &[]), 1 + 40, "of the second all but its first block");
    }
}
