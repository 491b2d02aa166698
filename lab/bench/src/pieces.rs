//! Plans files made of pieces of others: which block of which earlier file each block repeats.
//!
//! Blocks have numbers. Equal numbers are equal blocks; the numbers of a source are consecutive.

use std::ops::{Range, RangeInclusive};

use crate::content::Random;

/// Where the blocks of one file are in the content of a case.
#[derive(Clone, Debug)]
pub struct Part {
    /// The file's name.
    pub name: String,
    /// The indexes of its blocks.
    pub indexes: Range<usize>,
}

/// Numbers of a case's blocks, file by file.
#[derive(Default)]
pub struct Plan {
    /// The number of each block.
    pub numbers: Vec<u32>,
    /// The files, in order.
    pub parts: Vec<Part>,
    next_unique: u32,
}

impl Plan {
    /// Adds a file with blocks of these numbers.
    pub fn add(&mut self, name: impl Into<String>, numbers: Vec<u32>) {
        let start = self.numbers.len();
        self.numbers.extend(numbers);
        self.parts.push(Part { name: name.into(), indexes: start..self.numbers.len() });
    }

    /// Numbers that no block has so far.
    pub fn unique(&mut self, blocks: usize) -> Vec<u32> {
        let start = self.next_unique;
        self.next_unique += blocks as u32;
        (start..self.next_unique).collect()
    }

    /// Numbers of blocks that repeat pieces of the sources, chosen at random; if `apart`, as many unique blocks follow
    /// each.
    pub fn pieced(&mut self, blocks: usize, sources: &Sources, apart: bool, random: &mut Random) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(blocks);
        let mut before = 0..0;
        while numbers.len() < blocks {
            let piece = sources.piece_after(&before, random);
            numbers.extend(piece.clone().map(|number| number as u32));
            if apart {
                let unique = self.unique(piece.len());
                numbers.extend(unique);
            }
            before = piece;
        }
        numbers.truncate(blocks);
        numbers
    }
}

/// Files to take pieces from.
#[derive(Clone, Debug)]
pub struct Sources {
    /// How many.
    pub files: usize,
    /// Blocks of each; file 0 has the numbers from 0 on.
    pub blocks: usize,
    /// How long a piece is, each length as likely.
    pub piece_blocks: RangeInclusive<usize>,
}

impl Sources {
    /// The numbers of all blocks of the sources, which are cut into pieces; these are shuffled so that none goes on
    /// where the one before ends.
    pub fn shuffled(&self, random: &mut Random) -> Vec<u32> {
        let mut pieces = Vec::new();
        for file in 0..self.files {
            self.cut(file * self.blocks..(file + 1) * self.blocks, random, &mut pieces);
        }
        let order = random.permutation(pieces.len());
        let mut pieces: Vec<Range<usize>> = order.into_iter().map(|piece| pieces[piece].clone()).collect();
        while let Some(goes_on) = (1..pieces.len()).find(|piece| pieces[piece - 1].end == pieces[*piece].start) {
            let other = random.index(pieces.len());
            pieces.swap(goes_on, other);
        }
        pieces.into_iter().flatten().map(|number| number as u32).collect()
    }

    /// Cuts a file into pieces of the asked lengths.
    fn cut(&self, file: Range<usize>, random: &mut Random, pieces: &mut Vec<Range<usize>>) {
        let (least, most) = (*self.piece_blocks.start(), *self.piece_blocks.end());
        let mut start = file.start;
        while start < file.end {
            let left = file.end - start;
            let drawn = least + random.index(most - least + 1);
            let blocks = match left {
                left if left <= most && left < drawn + least => left,
                // The last two are made alike, so that neither is too short.
                left if left < drawn + least => left / 2,
                _ => drawn,
            };
            pieces.push(start..start + blocks);
            start += blocks;
        }
    }

    /// A piece of one of the files that does not go on where the one before ended.
    fn piece_after(&self, before: &Range<usize>, random: &mut Random) -> Range<usize> {
        let (least, most) = (*self.piece_blocks.start(), (*self.piece_blocks.end()).min(self.blocks));
        loop {
            let blocks = least + random.index(most - least + 1);
            let start = random.index(self.files) * self.blocks + random.index(self.blocks - blocks + 1);
            if start != before.end {
                return start..start + blocks;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(piece_blocks: RangeInclusive<usize>) -> Sources {
        Sources { files: 10, blocks: 500, piece_blocks }
    }

    /// Lengths of the stretches whose numbers follow each other.
    fn runs(numbers: &[u32]) -> Vec<usize> {
        numbers.chunk_by(|before, after| before + 1 == *after).map(<[u32]>::len).collect()
    }

    #[test]
    fn shuffled_pieces_have_the_asked_lengths_and_every_block_once() {
        for (lengths, seed) in [(1..=3, 7), (16..=64, 7), (16..=64, 8)] {
            let mut numbers = sources(lengths.clone()).shuffled(&mut Random::new(seed));
            let runs = runs(&numbers);
            assert!(runs.iter().all(|run| lengths.contains(run)), "{runs:?}");
            assert!(lengths.clone().filter(|length| runs.contains(length)).count() >= 3, "{runs:?}");
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..5_000));
        }
    }

    #[test]
    fn half_of_a_file_with_gaps_is_unique() {
        let mut plan = Plan::default();
        let base = plan.unique(5_000);
        plan.add("base", base);
        let numbers = plan.pieced(4_000, &sources(1..=1), true, &mut Random::new(7));
        assert_eq!(numbers.iter().filter(|number| **number < 5_000).count(), 2_000);
        plan.add("measured", numbers);
        assert_eq!((plan.parts[1].indexes.clone(), plan.numbers[9_000 - 1]), (5_000..9_000, 6_999));
    }
}
