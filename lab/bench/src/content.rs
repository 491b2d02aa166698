//! Makes the blocks to write: unique across runs, with a chosen share of duplicates, and incompressible unless a part of
//! them is chosen to be.
//!
//! A block's content is the expansion of a 128-bit id (the run's seed and a number), so a duplicate is a
//! repeated number and nothing else repeats. Duplicates are scattered: each repeats an earlier unique block
//! at least `DUPLICATE_DISTANCE_MIN` blocks away, so that no run of two continues another.

use oncefs_toolbox::random::{finish, mix};

use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::failure::{Failure, Result};

pub use oncefs_toolbox::Random;

/// Least distance in blocks between a duplicate and the block it repeats (4 MiB).
pub const DUPLICATE_DISTANCE_MIN: usize = 1024;
/// Bytes that are made at a time.
const WORD_BYTES: usize = 8;
/// How many bytes are repeated where a block shrinks.
const REPEATED_BYTES: usize = 64;

/// TPC-C's NURand over `0..count` as DEDISbench uses it: hot spots whose place is drawn once.
pub fn nurand(random: &mut Random, count: usize, draws: usize) -> Vec<usize> {
    let tenth = count / 10;
    let constant = random.index(tenth + 1);
    (0..draws).map(|_| ((random.index(tenth + 1) | random.index(count)) + constant) % count).collect()
}

/// Fills `block` with the content of (`seed`, `number`).
///
/// SplitMix64 with a stream of its own per content: start and step both come from the id.
pub fn expand(seed: u64, number: u64, block: &mut [u8]) {
    let mut state = finish(seed ^ mix(number));
    let step = finish(state ^ number.rotate_left(32)) | 1;
    for word in block.chunks_exact_mut(WORD_BYTES) {
        state = state.wrapping_add(step);
        word.copy_from_slice(&finish(state).to_le_bytes());
    }
}

/// Blocks to be written, in order.
pub struct Content {
    seed: u64,
    numbers: Vec<u32>,
    blocks_unique: usize,
    /// The bytes of a block that do not shrink.
    random_bytes: usize,
    expanded: Option<AlignedBuffer>,
}

impl Content {
    /// `blocks` blocks of which `duplicate_percent` repeat an earlier one.
    ///
    /// Expanded beforehand if that takes at most `memory_max` bytes. Otherwise each block is expanded on demand,
    /// inside the timed region and equally for every file system.
    pub fn new(seed: u64, blocks: usize, duplicate_percent: usize, memory_max: u64) -> Result<Content> {
        Ok(Self::planned(seed, blocks, duplicate_percent)?.expanded_within(memory_max))
    }

    /// The same, each block expanded on demand.
    pub fn planned(seed: u64, blocks: usize, duplicate_percent: usize) -> Result<Content> {
        let numbers = plan(blocks, duplicate_percent, &mut Random::new(seed))?;
        let blocks_unique = blocks - blocks * duplicate_percent / 100;
        Ok(Content { seed, numbers, blocks_unique, random_bytes: BLOCK_BYTES, expanded: None })
    }

    /// The same blocks, of which all but so many percent repeat the block's first bytes, so that any compression shrinks
    /// them to about that. Not for contents that were expanded beforehand.
    pub fn shrinking_to(self, percent: usize) -> Content {
        assert!(self.expanded.is_none(), "content changes before it is expanded");
        let words = BLOCK_BYTES * percent / 100 / WORD_BYTES;
        Content { random_bytes: (words * WORD_BYTES).clamp(REPEATED_BYTES, BLOCK_BYTES), ..self }
    }

    /// `blocks` blocks of which `duplicate_percent` repeat a block of a content of the same seed that has `source_blocks`,
    /// all of them unique. Duplicates are scattered among new blocks, and no two in a row continue each other.
    pub fn repeating(seed: u64, source_blocks: usize, blocks: usize, duplicate_percent: usize) -> Content {
        let mut random = Random::new(seed ^ 1);
        let (mut duplicates_left, mut repeated_last) = (blocks * duplicate_percent / 100, u32::MAX);
        let mut new = source_blocks as u32..;
        let numbers = (0..blocks).filter_map(|index| {
            let repeat = random.index(blocks - index) < duplicates_left;
            repeated_last = if repeat { draw_apart(&mut random, source_blocks, repeated_last) } else { u32::MAX };
            duplicates_left -= usize::from(repeat);
            if repeat { Some(repeated_last) } else { new.next() }
        });
        let numbers: Vec<u32> = numbers.collect();
        let blocks_unique = blocks - blocks * duplicate_percent / 100;
        Content { seed, numbers, blocks_unique, random_bytes: BLOCK_BYTES, expanded: None }
    }

    /// What FIO writes with `dedupe_percentage`: a duplicate repeats the last new block of the same thread (FIO up to 3.27,
    /// and its default since). The threads take turns, a block each.
    pub fn as_fio(seed: u64, threads: usize, blocks_per_thread: usize, duplicate_percent: usize) -> Content {
        let mut random = Random::new(seed ^ 2);
        let mut left = vec![blocks_per_thread.saturating_sub(1) * duplicate_percent / 100; threads];
        let (mut newest, mut new) = (vec![0; threads], 0..);
        let mut numbers = Vec::with_capacity(threads * blocks_per_thread);
        for turn in 0..blocks_per_thread {
            for (newest, left) in newest.iter_mut().zip(&mut left) {
                // The first block of a thread has none before it.
                if turn > 0 && random.index(blocks_per_thread - turn) < *left {
                    *left -= 1;
                } else {
                    *newest = new.next().expect("there are as many numbers as blocks");
                }
                numbers.push(*newest);
            }
        }
        Self::from_numbers(seed, numbers)
    }

    /// The same, expanded beforehand if that takes at most so many bytes.
    pub fn expanded_within(mut self, memory_max: u64) -> Content {
        if self.bytes() <= memory_max {
            let mut buffer = AlignedBuffer::new(self.numbers.len() * BLOCK_BYTES);
            for (number, block) in self.numbers.iter().zip(buffer.bytes_mut().chunks_exact_mut(BLOCK_BYTES)) {
                self.fill(*number, block);
            }
            self.expanded = Some(buffer);
        }
        self
    }

    /// The numbers of all blocks.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// Blocks given by their numbers: equal numbers, equal blocks. Each is expanded on demand.
    pub fn from_numbers(seed: u64, numbers: Vec<u32>) -> Content {
        let mut distinct = numbers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        Content { seed, blocks_unique: distinct.len(), numbers, random_bytes: BLOCK_BYTES, expanded: None }
    }

    /// The number of the block at `index`: equal numbers, equal blocks.
    pub fn number(&self, index: usize) -> u32 {
        self.numbers[index]
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.numbers.len()
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        (self.numbers.len() * BLOCK_BYTES) as u64
    }

    /// Bytes of the blocks that repeat no earlier one.
    pub fn unique_bytes(&self) -> u64 {
        (self.blocks_unique * BLOCK_BYTES) as u64
    }

    /// The block at `index`, expanded into `scratch` if it is not in memory.
    pub fn block<'a>(&'a self, index: usize, scratch: &'a mut AlignedBuffer) -> &'a [u8] {
        match &self.expanded {
            Some(buffer) => &buffer.bytes()[index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES],
            None => {
                let block = &mut scratch.bytes_mut()[..BLOCK_BYTES];
                self.fill(self.numbers[index], block);
                block
            }
        }
    }

    fn fill(&self, number: u32, block: &mut [u8]) {
        let (random, repeated) = block.split_at_mut(self.random_bytes);
        expand(self.seed, u64::from(number), random);
        repeated.chunks_mut(REPEATED_BYTES).for_each(|part| part.copy_from_slice(&random[..part.len()]));
    }
}

/// Content numbers of `blocks` blocks, exactly `duplicate_percent` of them repeated.
fn plan(blocks: usize, duplicate_percent: usize, random: &mut Random) -> Result<Vec<u32>> {
    let duplicates = blocks * duplicate_percent / 100;
    let places = blocks.saturating_sub(DUPLICATE_DISTANCE_MIN);
    if duplicates > places {
        return Err(Failure::new(format!(
            "{blocks} blocks are too few for {duplicate_percent} % duplicates {DUPLICATE_DISTANCE_MIN} blocks apart: write more"
        )));
    }
    let mut numbers: Vec<u32> = Vec::with_capacity(blocks);
    // unique_before[i]: how many of the first i blocks are unique; their numbers are 0..unique_before[i].
    let mut unique_before = Vec::with_capacity(blocks + 1);
    let (mut unique, mut duplicates_left, mut repeated_last) = (0u32, duplicates, u32::MAX);
    for index in 0..blocks {
        unique_before.push(unique);
        // Selection sampling: every place is a duplicate with the share that is still to be reached.
        let repeat = index >= DUPLICATE_DISTANCE_MIN && random.index(blocks - index) < duplicates_left;
        if repeat {
            let candidates = unique_before[index - DUPLICATE_DISTANCE_MIN + 1] as usize;
            repeated_last = draw_apart(random, candidates, repeated_last);
            duplicates_left -= 1;
            numbers.push(repeated_last);
        } else {
            repeated_last = u32::MAX;
            numbers.push(unique);
            unique += 1;
        }
    }
    Ok(numbers)
}

/// A number below `candidates` that neither repeats nor continues the duplicate just before.
fn draw_apart(random: &mut Random, candidates: usize, before: u32) -> u32 {
    loop {
        let number = random.index(candidates) as u32;
        if candidates < 3 || before == u32::MAX || (number != before && number != before.wrapping_add(1)) {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_asked_share_of_blocks_repeats_an_earlier_block_far_enough_away() {
        for percent in [0, 25, 75] {
            let numbers = plan(20_000, percent, &mut Random::new(7)).unwrap();
            let mut first: HashMap<u32, usize> = HashMap::new();
            let mut repeated = 0;
            for (index, number) in numbers.iter().enumerate() {
                match first.get(number) {
                    Some(earlier) => {
                        assert!(index - earlier >= DUPLICATE_DISTANCE_MIN, "block {index} repeats {earlier}");
                        repeated += 1;
                    }
                    None => drop(first.insert(*number, index)),
                }
            }
            assert_eq!(repeated, 20_000 * percent / 100);
        }
    }

    #[test]
    fn two_duplicates_in_a_row_never_continue_one_another() {
        let numbers = plan(20_000, 75, &mut Random::new(3)).unwrap();
        let mut unique_next = 0;
        let mut previous_duplicate = None;
        for number in numbers {
            let duplicate = number < unique_next;
            if duplicate {
                assert_ne!(previous_duplicate.map(|before: u32| before + 1), Some(number));
                previous_duplicate = Some(number);
            } else {
                unique_next += 1;
                previous_duplicate = None;
            }
        }
    }

    #[test]
    fn duplicates_of_fio_repeat_the_last_new_block_of_their_thread() {
        for percent in [0, 25, 75] {
            let content = Content::as_fio(7, 3, 5_000, percent);
            assert_eq!(content.unique_bytes(), ((15_000 - 3 * (4_999 * percent / 100)) * BLOCK_BYTES) as u64);
            for thread in 0..3 {
                let own: Vec<u32> = content.numbers().iter().copied().skip(thread).step_by(3).collect();
                assert!(own.is_sorted(), "a thread repeats nothing but its last new block");
            }
            let (of_first, of_second) = (content.number(0), content.number(1));
            assert_ne!(of_first, of_second, "threads have blocks of their own");
        }
    }

    #[test]
    fn the_asked_share_of_blocks_repeats_scattered_blocks_of_another_content() {
        for percent in [0, 25, 75] {
            let content = Content::repeating(7, 5_000, 20_000, percent);
            let repeated = content.numbers().iter().filter(|number| **number < 5_000).count();
            assert_eq!((repeated, content.blocks()), (20_000 * percent / 100, 20_000));
            assert_eq!(content.unique_bytes(), ((20_000 - repeated) * BLOCK_BYTES) as u64);
            let goes_on = |pair: &&[u32]| pair[1] < 5_000 && pair[0] + 1 == pair[1];
            assert_eq!(content.numbers().windows(2).filter(goes_on).count(), 0);
        }
    }

    #[test]
    fn too_few_blocks_for_the_asked_duplicates_are_refused() {
        assert!(plan(1100, 75, &mut Random::new(1)).is_err());
    }

    #[test]
    fn contents_differ_by_seed_and_by_number() {
        let block = |seed, number| {
            let mut block = vec![0; BLOCK_BYTES];
            expand(seed, number, &mut block);
            block
        };
        assert_eq!(block(1, 5), block(1, 5));
        assert_ne!(block(1, 5), block(2, 5));
        assert_ne!(block(1, 5), block(1, 6));
    }

    #[test]
    fn the_asked_part_of_a_block_is_random_and_the_rest_repeats() {
        let whole = Content::planned(9, 10, 0).unwrap();
        let part = Content::planned(9, 10, 0).unwrap().shrinking_to(40);
        let (mut one, mut other) = (AlignedBuffer::new(BLOCK_BYTES), AlignedBuffer::new(BLOCK_BYTES));
        let (whole, part) = (whole.block(3, &mut one), part.block(3, &mut other));
        let random = BLOCK_BYTES * 40 / 100 / WORD_BYTES * WORD_BYTES;
        assert_eq!(whole[..random], part[..random]);
        assert!(part[random..].chunks(REPEATED_BYTES).all(|repeated| *repeated == part[..repeated.len()]));
    }

    #[test]
    fn content_expanded_on_demand_equals_content_expanded_beforehand() {
        let beforehand = Content::new(9, 4096, 25, u64::MAX).unwrap();
        let on_demand = Content::new(9, 4096, 25, 0).unwrap();
        let (mut one, mut other) = (AlignedBuffer::new(BLOCK_BYTES), AlignedBuffer::new(BLOCK_BYTES));
        for index in [0, 1023, 2048, 4095] {
            assert_eq!(beforehand.block(index, &mut one), on_demand.block(index, &mut other));
        }
    }

    #[test]
    fn nurand_stays_in_range_and_prefers_some_blocks() {
        let draws = nurand(&mut Random::new(4), 1000, 100_000);
        let mut counts = vec![0u32; 1000];
        draws.iter().for_each(|draw| counts[*draw] += 1);
        let hottest = counts.iter().max().copied().unwrap();
        assert!(hottest > 300, "the hottest block was drawn {hottest} times, uniform would be about 100");
    }
}
