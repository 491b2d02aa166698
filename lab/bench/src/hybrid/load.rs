//! Data in which every block comes twice, farther apart than a small memory can remember.
//!
//! Half of the files hold distinct blocks; the other half holds the same blocks again, in one of several orders.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::aligned::BLOCK_BYTES;
use crate::content::{Content, Random};
use crate::failure::{Failure, Result};
use crate::files::{self, open};
use crate::measure::Latencies;

/// Files of distinct blocks, and files of their copies.
const FILES_EACH: usize = 4;
/// The longest run of blocks that stay together in copies cut into runs.
const RUN_BLOCKS_MAX: usize = 64;

/// The order in which the copies come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// As the originals, from the first to the last.
    Sequential,
    /// Cut into runs of 1 to 64 blocks, these shuffled.
    Runs,
    /// Every block alone, shuffled.
    Shuffled,
}

impl Order {
    /// What it is, for a heading.
    pub fn describe(self) -> &'static str {
        match self {
            Order::Sequential => "copies in the order of the originals",
            Order::Runs => "copies in runs of 1 to 64 blocks, the runs shuffled",
            Order::Shuffled => "copies block by block, shuffled",
        }
    }

    /// The numbers below `count`, each once.
    fn numbers(self, count: usize, random: &mut Random) -> Vec<u32> {
        match self {
            Order::Sequential => (0..count as u32).collect(),
            Order::Runs => {
                let runs = cut(count, random);
                let shuffled = random.permutation(runs.len());
                shuffled.into_iter().flat_map(|run| runs[run].clone()).collect()
            }
            Order::Shuffled => random.permutation(count).into_iter().map(|number| number as u32).collect(),
        }
    }
}

/// Cuts the numbers below `count` into runs of mixed length.
fn cut(count: usize, random: &mut Random) -> Vec<std::ops::Range<u32>> {
    let mut runs = Vec::new();
    let mut start = 0;
    while start < count {
        let end = (start + 1 + random.index(RUN_BLOCKS_MAX)).min(count);
        runs.push(start as u32..end as u32);
        start = end;
    }
    runs
}

/// The data of one run.
pub struct Load {
    content: Content,
    blocks_per_file: usize,
}

impl Load {
    /// `bytes` in all, half of them copies.
    pub fn new(bytes: u64, order: Order, seed: u64) -> Result<Load> {
        let blocks_per_file = (bytes / (2 * FILES_EACH * BLOCK_BYTES) as u64) as usize;
        if blocks_per_file == 0 || blocks_per_file * 2 * FILES_EACH > u32::MAX as usize {
            return Err(Failure::new("--size must be between 32K and 16T"));
        }
        let distinct = blocks_per_file * FILES_EACH;
        let mut numbers: Vec<u32> = (0..distinct as u32).collect();
        numbers.extend(order.numbers(distinct, &mut Random::new(seed)));
        Ok(Load { content: Content::from_numbers(seed, numbers), blocks_per_file })
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.content.bytes()
    }

    /// Bytes that an exact index does not store.
    pub fn duplicate_bytes(&self) -> u64 {
        self.content.bytes() - self.content.unique_bytes()
    }

    /// Writes every file from its beginning, 4 KiB at a time, each ended by fsync.
    pub fn write(&self, root: &Path) -> Result<()> {
        let places: Vec<usize> = (0..self.blocks_per_file).collect();
        for file in 0..2 * FILES_EACH {
            let first = file * self.blocks_per_file;
            let indexes = first..first + self.blocks_per_file;
            let mut times = Latencies::with_capacity(0);
            files::write_some(&open(&name(root, file), true)?, &self.content, indexes, &places, &mut times)?;
        }
        Ok(())
    }

    /// Compares every byte.
    pub fn verify(&self, root: &Path) -> Result<()> {
        (0..2 * FILES_EACH).try_for_each(|file| {
            let first = file * self.blocks_per_file;
            files::verify(&name(root, file), self.blocks_per_file, |place| (&self.content, first + place))
        })
    }
}

fn name(root: &Path, file: usize) -> PathBuf {
    match file < FILES_EACH {
        true => root.join(format!("original{file}")),
        false => root.join(format!("copy{}", file - FILES_EACH)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_has_every_block_once_and_only_one_keeps_them_in_place() {
        for order in [Order::Sequential, Order::Runs, Order::Shuffled] {
            let numbers = order.numbers(5000, &mut Random::new(5));
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            assert!(sorted.iter().copied().eq(0..5000), "{order:?}");
            assert_eq!(numbers == sorted, order == Order::Sequential, "{order:?}");
        }
    }

    #[test]
    fn runs_have_mixed_lengths_up_to_64_blocks() {
        let lengths: Vec<usize> = cut(100_000, &mut Random::new(5)).iter().map(ExactSizeIterator::len).collect();
        assert_eq!(lengths.iter().sum::<usize>(), 100_000);
        assert!((1..=64).all(|length| lengths.contains(&length)), "a length is missing");
        assert!(lengths.iter().all(|length| (1..=64).contains(length)));
    }

    #[test]
    fn half_of_the_load_is_copies_and_a_wrong_byte_is_found() {
        use std::os::unix::fs::FileExt as _;
        let directory = tempfile::tempdir().unwrap();
        let load = Load::new(1 << 20, Order::Runs, 7).unwrap();
        assert_eq!((load.bytes(), load.duplicate_bytes()), (1 << 20, 1 << 19));
        load.write(directory.path()).unwrap();
        load.verify(directory.path()).unwrap();
        let file = open(&directory.path().join("copy3"), false).unwrap();
        file.write_all_at(b"x", 4096 * 31 + 7).unwrap();
        let failure = load.verify(directory.path()).unwrap_err().to_string();
        assert!(failure.contains("block 31") && failure.contains("copy3"), "{failure}");
    }
}
