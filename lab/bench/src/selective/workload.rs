//! Generates table 4's two workloads, with its shares of duplicates in chunks of 4 KiB and of 256 KiB.
//!
//! A file is cut into big chunks of 64 blocks, the last one as long as what is left. Some big chunks repeat an earlier
//! one of the same length as a whole. The others begin with a block of their own, so that none equals another, and then
//! take turns between pieces of 1 to 8 new blocks and pieces as long that repeat new blocks from before.

use clap::ValueEnum;
use serde::Serialize;

use super::sizes;
use crate::aligned::BLOCK_BYTES;
use crate::content::{Content, Random};
use crate::pieces::Plan;

/// Blocks of a big chunk, 256 KiB.
pub const BIG_CHUNK_BLOCKS: usize = 64;
/// The longest piece of a chunk that repeats blocks, or of new ones, where duplicates are small.
const PIECE_BLOCKS_MAX: usize = 8;
/// New blocks there are before the first is repeated, so that not all repeat the same few.
const BLOCKS_BEFORE: usize = 64;
/// The paper's files, and their bytes.
const FILES: u64 = 5_000;
const BYTES: u64 = 2_684_354_560;

/// A workload of table 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Duplicates {
    /// Workload #1: 70.3 % in small chunks, 20 % in big ones.
    High,
    /// Workload #2: 20.5 and 5.1 %.
    Low,
}

impl Duplicates {
    /// What it is, for a heading.
    pub fn describe(self) -> &'static str {
        match self {
            Duplicates::High => "high deduplication ratio",
            Duplicates::Low => "low deduplication ratio",
        }
    }

    /// The paper's figure that has its response times.
    pub fn figure(self) -> u32 {
        match self {
            Duplicates::High => 9,
            Duplicates::Low => 10,
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Duplicates::High => "high",
            Duplicates::Low => "low",
        }
    }

    /// Duplicates in small chunks, and in big ones, in percent of all blocks.
    pub fn percents(self) -> [f64; 2] {
        match self {
            Duplicates::High => [70.3, 20.0],
            Duplicates::Low => [20.5, 5.1],
        }
    }
}

/// Files and what they hold.
pub struct Workload {
    /// The files and which blocks are equal.
    pub plan: Plan,
    /// Their blocks.
    pub content: Content,
}

impl Workload {
    /// Files of `bytes` together, as many as the paper has for its bytes.
    pub fn new(duplicates: Duplicates, bytes: u64, seed: u64) -> Workload {
        let mut random = Random::new(seed);
        let files = (bytes * FILES).div_ceil(BYTES) as usize;
        let sizes = sizes::draw(files, bytes as usize / BLOCK_BYTES, &mut random);
        let mut maker = Maker::new(duplicates, &sizes, &mut random);
        let mut chunk = 0;
        for (file, blocks) in sizes.iter().enumerate() {
            let mut numbers = Vec::with_capacity(*blocks);
            for length in chunks(*blocks) {
                maker.add_chunk(chunk, length, &mut numbers, &mut random);
                chunk += 1;
            }
            maker.plan.add(format!("file{file:05}"), numbers);
        }
        let plan = maker.plan;
        let content = Content::from_numbers(seed, plan.numbers.clone());
        Workload { plan, content }
    }
}

/// Lengths of the big chunks of a file.
fn chunks(blocks: usize) -> impl Iterator<Item = usize> {
    (0..blocks).step_by(BIG_CHUNK_BLOCKS).map(move |start| (blocks - start).min(BIG_CHUNK_BLOCKS))
}

/// Chooses what each chunk holds.
struct Maker {
    plan: Plan,
    /// Which chunks, in the order of all files, repeat another one.
    repeats: Vec<bool>,
    /// Numbers of the chunks that repeat none, by length.
    originals: Vec<Vec<Vec<u32>>>,
    /// Blocks of the other chunks that may be small duplicates.
    places_left: usize,
    /// How many of them shall be.
    duplicates_left: usize,
    /// New blocks so far; they have the numbers below.
    new_blocks: usize,
}

impl Maker {
    fn new(duplicates: Duplicates, sizes: &[usize], random: &mut Random) -> Maker {
        let lengths: Vec<usize> = sizes.iter().flat_map(|blocks| chunks(*blocks)).collect();
        let blocks: usize = lengths.iter().sum();
        let [small, big] = duplicates.percents().map(|percent| (blocks as f64 * percent / 100.0) as usize);
        let repeats = choose_repeats(&lengths, big, random);
        let of_repeats = lengths.iter().zip(&repeats).filter(|(_, is_repeat)| **is_repeat);
        let repeated: usize = of_repeats.map(|(length, _)| length).sum();
        let originals = repeats.iter().filter(|is_repeat| !**is_repeat).count();
        Maker {
            plan: Plan::default(),
            places_left: blocks - repeated - originals,
            duplicates_left: small.saturating_sub(repeated),
            originals: vec![Vec::new(); BIG_CHUNK_BLOCKS + 1],
            new_blocks: 0,
            repeats,
        }
    }

    fn add_chunk(&mut self, chunk: usize, length: usize, numbers: &mut Vec<u32>, random: &mut Random) {
        if self.repeats[chunk] {
            let originals = &self.originals[length];
            numbers.extend_from_slice(&originals[random.index(originals.len())]);
            return;
        }
        let original = self.original(length, random);
        numbers.extend_from_slice(&original);
        self.originals[length].push(original);
    }

    /// A chunk that equals no other.
    fn original(&mut self, length: usize, random: &mut Random) -> Vec<u32> {
        let mut numbers = self.unique(1);
        let mut next_start = None;
        while numbers.len() < length {
            let blocks = (1 + random.index(PIECE_BLOCKS_MAX)).min(length - numbers.len());
            if self.draws_duplicate(random) {
                let start = self.piece_apart(next_start, blocks, random);
                next_start = Some(start + blocks);
                numbers.extend((start..start + blocks).map(|number| number as u32));
                self.duplicates_left = self.duplicates_left.saturating_sub(blocks);
            } else {
                next_start = None;
                numbers.extend(self.unique(blocks));
            }
            self.places_left -= blocks;
        }
        numbers
    }

    /// With the share that is still to be reached.
    fn draws_duplicate(&self, random: &mut Random) -> bool {
        self.new_blocks >= BLOCKS_BEFORE && random.index(self.places_left) < self.duplicates_left
    }

    fn unique(&mut self, blocks: usize) -> Vec<u32> {
        self.new_blocks += blocks;
        self.plan.unique(blocks)
    }

    /// Where a piece of new blocks begins that does not go on where the one before ended.
    fn piece_apart(&self, next_start: Option<usize>, blocks: usize, random: &mut Random) -> usize {
        loop {
            let start = random.index(self.new_blocks - blocks + 1);
            if next_start != Some(start) {
                return start;
            }
        }
    }
}

/// Which chunks repeat an earlier one of their length, so that these have `blocks` in all. Chunks of each length have
/// the same share of them, the first of a length none.
fn choose_repeats(lengths: &[usize], blocks: usize, random: &mut Random) -> Vec<bool> {
    let share = blocks as f64 / lengths.iter().sum::<usize>().max(1) as f64;
    let mut repeats = vec![false; lengths.len()];
    let mut left = blocks;
    // The whole chunks come last and make up for what was rounded before.
    for length in 1..=BIG_CHUNK_BLOCKS {
        let chunks: Vec<usize> = (0..lengths.len()).filter(|chunk| lengths[*chunk] == length).skip(1).collect();
        let wanted = match length {
            BIG_CHUNK_BLOCKS => (left + BIG_CHUNK_BLOCKS / 2) / BIG_CHUNK_BLOCKS,
            _ => (chunks.len() as f64 * share).round() as usize,
        };
        let order = random.permutation(chunks.len());
        for index in order.into_iter().take(wanted) {
            repeats[chunks[index]] = true;
            left = left.saturating_sub(length);
        }
    }
    repeats
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn shares(workload: &Workload) -> [f64; 2] {
        let blocks = workload.plan.numbers.len() as f64;
        let distinct = workload.plan.numbers.iter().collect::<HashSet<_>>().len() as f64;
        let files = workload.plan.parts.iter().map(|part| &workload.plan.numbers[part.indexes.clone()]);
        let chunks: HashSet<&[u32]> = files.flat_map(|file| file.chunks(BIG_CHUNK_BLOCKS)).collect();
        let in_chunks: usize = chunks.iter().map(|chunk| chunk.len()).sum();
        [distinct, in_chunks as f64].map(|kept| 100.0 - kept * 100.0 / blocks)
    }

    #[test]
    fn duplicates_have_table_4_s_shares_in_small_and_in_big_chunks() {
        for duplicates in [Duplicates::High, Duplicates::Low] {
            let workload = Workload::new(duplicates, 256 << 20, 7);
            for (share, wanted) in shares(&workload).into_iter().zip(duplicates.percents()) {
                assert!((share - wanted).abs() < 0.5, "{duplicates:?}: {share} % instead of {wanted} %");
            }
        }
    }

    #[test]
    fn outside_of_repeated_chunks_no_duplicates_are_as_long_as_a_big_chunk() {
        let workload = Workload::new(Duplicates::High, 64 << 20, 7);
        let (mut seen, mut new_blocks) = (HashSet::new(), 0);
        for part in &workload.plan.parts {
            for chunk in workload.plan.numbers[part.indexes.clone()].chunks(BIG_CHUNK_BLOCKS) {
                if seen.insert(chunk) {
                    let goes_on = |one: &u32, next: &u32| one + 1 == *next && *next < new_blocks;
                    let longest = chunk.chunk_by(goes_on).map(<[u32]>::len).max().unwrap();
                    assert!(longest < BIG_CHUNK_BLOCKS / 2, "{chunk:?}");
                }
                new_blocks = new_blocks.max(chunk.iter().max().unwrap() + 1);
            }
        }
    }

    #[test]
    fn equal_seeds_make_equal_workloads() {
        let numbers = |seed| Workload::new(Duplicates::Low, 16 << 20, seed).plan.numbers;
        assert_eq!(numbers(5), numbers(5));
        assert_ne!(numbers(5), numbers(6));
    }
}
