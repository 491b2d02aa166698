//! Plans a mixed replay like iDedup's Corporate trace: five reads of 10 KB to one write of 20 KB (section 5.1).
//!
//! New files are written from their beginning, request by request. Reads go on in a file for some requests, then turn
//! to another one: half of the time to one of those written last, else to any.

use std::ops::Range;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::aligned::BLOCK_BYTES;
use crate::content::{Content, Random};
use crate::pieces::{Part, Plan, Sources};

/// Blocks of a file.
pub const FILE_BLOCKS: usize = 512;
/// Files that count as written last.
const RECENT_FILES: usize = 16;
/// One read in this many continues in another file.
const READS_EACH: usize = 16;
/// Blocks of a write and of a read at most; each number from 1 on is as likely.
const WRITE_BLOCKS_MAX: usize = 9;
const READ_BLOCKS_MAX: usize = 4;
/// Requests of which one is a write.
const REQUESTS_PER_WRITE: usize = 6;

/// Arguments: how many requests the replay has, and over how much data.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// response and cache: bytes written before the replay
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse, default_value = "256M")]
    pub replay_size: u64,
    /// response and cache: requests of the replay, one in six of them a write
    #[arg(long, default_value_t = 30_000)]
    pub requests: usize,
}

impl ReplayArgs {
    /// The replay of this size.
    pub fn replay(&self, mix: Mix, seed: u64) -> Replay {
        let blocks_before = (self.replay_size as usize / BLOCK_BYTES).max(FILE_BLOCKS);
        Replay::new(mix, blocks_before, self.requests, seed)
    }
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Mix {
    /// No duplicates.
    Unique,
    /// 24 % duplicates, 54 % of them in runs of 8 and more, 20 % in runs of 4 to 7: what the thresholds 8 and 4 keep in
    /// the paper's figure 7.
    Corporate,
}

impl Mix {
    /// What it is, for a heading.
    pub fn describe(self) -> &'static str {
        match self {
            Mix::Unique => "unique data",
            Mix::Corporate => "24 % duplicates in runs, as in Corporate",
        }
    }
}

/// A request: blocks of a file by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The file.
    pub file: usize,
    /// Its blocks.
    pub blocks: Range<usize>,
    /// Whether it writes.
    pub is_write: bool,
}

/// A replay.
pub struct Replay {
    /// The files and which blocks are equal; the first ones exist before the replay.
    pub plan: Plan,
    /// Their blocks.
    pub content: Content,
    /// How many of them exist before the replay.
    pub files_before: usize,
    /// What is done, in order.
    pub requests: Vec<Request>,
}

impl Replay {
    /// A replay of this many requests over this many blocks that exist before it.
    pub fn new(mix: Mix, blocks_before: usize, requests: usize, seed: u64) -> Replay {
        let mut random = Random::new(seed);
        let files_before = blocks_before / FILE_BLOCKS;
        let (requests, files) = draw(files_before, requests, &mut random);
        let mut plan = Plan::default();
        for file in 0..files {
            let numbers = match (mix, file < files_before) {
                (Mix::Corporate, false) => corporate(&mut plan, files_before, &mut random),
                _ => plan.unique(FILE_BLOCKS),
            };
            plan.add(format!("file{file}"), numbers);
        }
        let content = Content::from_numbers(seed, plan.numbers.clone());
        Replay { plan, content, files_before, requests }
    }

    /// The files as they are in the end.
    pub fn files(&self) -> impl Iterator<Item = Part> {
        let mut blocks: Vec<usize> =
            (0..self.plan.parts.len()).map(|file| if file < self.files_before { FILE_BLOCKS } else { 0 }).collect();
        self.requests
            .iter()
            .filter(|request| request.is_write)
            .for_each(|request| blocks[request.file] = request.blocks.end);
        self.plan.parts.iter().zip(blocks).map(|(part, blocks)| {
            let start = part.indexes.start;
            Part { name: part.name.clone(), indexes: start..start + blocks }
        })
    }

    /// Blocks of the requests of one kind.
    pub fn blocks(&self, is_write: bool) -> usize {
        self.requests.iter().filter(|request| request.is_write == is_write).map(|request| request.blocks.len()).sum()
    }

    /// Blocks written by the requests that repeat one of an earlier file.
    pub fn duplicate_blocks(&self) -> usize {
        let before = (self.files_before * FILE_BLOCKS) as u32;
        let written = self.requests.iter().filter(|request| request.is_write);
        let numbers = written.flat_map(|request| {
            let start = self.plan.parts[request.file].indexes.start;
            self.plan.numbers[start + request.blocks.start..start + request.blocks.end].iter()
        });
        numbers.filter(|number| **number < before).count()
    }
}

/// The requests, and the number of files after them.
fn draw(files_before: usize, count: usize, random: &mut Random) -> (Vec<Request>, usize) {
    let mut requests = Vec::with_capacity(count);
    let (mut writing, mut written) = (files_before, 0);
    let (mut reading, mut read) = (0, 0);
    for _ in 0..count {
        if random.index(REQUESTS_PER_WRITE) == 0 {
            let end = (written + 1 + random.index(WRITE_BLOCKS_MAX)).min(FILE_BLOCKS);
            requests.push(Request { file: writing, blocks: written..end, is_write: true });
            written = end;
            if written == FILE_BLOCKS {
                (writing, written) = (writing + 1, 0);
            }
        } else {
            if read == FILE_BLOCKS || random.index(READS_EACH) == 0 {
                let oldest = if random.index(2) == 0 { writing.saturating_sub(RECENT_FILES) } else { 0 };
                reading = oldest + random.index(writing - oldest);
                read = random.index(FILE_BLOCKS);
            }
            let end = (read + 1 + random.index(READ_BLOCKS_MAX)).min(FILE_BLOCKS);
            requests.push(Request { file: reading, blocks: read..end, is_write: false });
            read = end;
        }
    }
    (requests, writing + usize::from(written > 0))
}

/// Share of the duplicates by length of run, in percent, and the lengths: see [`Mix::Corporate`].
const CORPORATE: [(usize, Range<usize>); 3] = [(26, 1..4), (20, 4..8), (54, 8..65)];
const CORPORATE_DUPLICATES_PERCENT: usize = 24;

/// The blocks of a file in which runs of duplicates and unique blocks alternate.
fn corporate(plan: &mut Plan, files_before: usize, random: &mut Random) -> Vec<u32> {
    let mut numbers = Vec::with_capacity(FILE_BLOCKS);
    while numbers.len() < FILE_BLOCKS {
        let blocks = run_length(random);
        let sources = Sources { files: files_before, blocks: FILE_BLOCKS, piece_blocks: blocks..=blocks };
        numbers.extend(plan.pieced(blocks, &sources, false, random));
        // Between two runs as many unique blocks that the share comes out.
        let unique = blocks * (100 - CORPORATE_DUPLICATES_PERCENT);
        numbers.extend(plan.unique((unique / CORPORATE_DUPLICATES_PERCENT).max(1)));
    }
    numbers.truncate(FILE_BLOCKS);
    numbers
}

/// A length such that blocks, not runs, are spread as they should be.
fn run_length(random: &mut Random) -> usize {
    let weight = |(percent, lengths): &(usize, Range<usize>)| 1_000 * percent * 2 / (lengths.start + lengths.end - 1);
    let mut draw = random.index(CORPORATE.iter().map(weight).sum());
    for class in &CORPORATE {
        if draw < weight(class) {
            return class.1.start + random.index(class.1.len());
        }
        draw -= weight(class);
    }
    CORPORATE[0].1.start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_six_writes_and_reads_find_what_was_written() {
        let replay = Replay::new(Mix::Unique, 64 * FILE_BLOCKS, 12_000, 7);
        let mut written = vec![FILE_BLOCKS; 64];
        written.resize(replay.plan.parts.len(), 0);
        let mut writes = 0;
        for request in &replay.requests {
            assert!(!request.blocks.is_empty());
            if request.is_write {
                assert_eq!(request.blocks.start, written[request.file], "files grow from their beginning");
                written[request.file] = request.blocks.end;
                writes += 1;
            } else {
                assert!(request.blocks.end <= written[request.file]);
            }
        }
        assert!((1_800..2_200).contains(&writes), "{writes} writes");
        assert_eq!(replay.duplicate_blocks(), 0);
    }

    #[test]
    fn duplicates_have_the_share_and_the_lengths_of_corporate() {
        let replay = Replay::new(Mix::Corporate, 64 * FILE_BLOCKS, 100_000, 7);
        let share = replay.duplicate_blocks() as f64 / replay.blocks(true) as f64;
        assert!((0.21..0.27).contains(&share), "{share}");
        let before = (64 * FILE_BLOCKS) as u32;
        let files = replay.plan.parts[64..].iter().map(|part| &replay.plan.numbers[part.indexes.clone()]);
        let runs = files.flat_map(|file| file.chunk_by(|one, next| one + 1 == *next)).filter(|run| run[0] < before);
        let (mut all, mut long) = (0, 0);
        for run in runs {
            all += run.len();
            long += if run.len() >= 8 { run.len() } else { 0 };
        }
        let share = long as f64 / all as f64;
        assert!((0.48..0.60).contains(&share), "in runs of 8 and more: {share}");
    }
}
