//! Random writes and reads by several threads: SmartDedup's FIO runs (section 4.1) and its DEDISbench runs (4.3).
//!
//! Every thread has a new file of its own, as FIO and DEDISbench give each of their processes one.

use std::collections::HashSet;
use std::fs::File;
use std::thread;

use crate::case::{Case, Work};
use crate::content::{Content, Random, nurand};
use crate::failure::{Failure, Result};
use crate::files::{self, open};
use crate::measure::Latencies;
use crate::volume::{Body, Volume};

/// The paper's FIO runs have three threads.
const FIO_THREADS: usize = 3;
/// The paper's DEDISbench runs have four.
const DEDIS_THREADS: usize = 4;

const BLOCK: u64 = crate::aligned::BLOCK_BYTES as u64;

/// An image of the paper, by its share of duplicate blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    /// 46.1 % duplicates.
    Many,
    /// 19.4 % duplicates.
    Few,
}

impl Twin {
    /// Both.
    pub const ALL: [Twin; 2] = [Twin::Many, Twin::Few];

    /// The share of blocks that repeat another, in permille.
    pub fn duplicate_permille(self) -> usize {
        match self {
            Twin::Many => 461,
            Twin::Few => 194,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Twin::Many => "dedis-46.1",
            Twin::Few => "dedis-19.4",
        }
    }

    /// The workload that writes it.
    pub fn write_name(self) -> String {
        format!("{}-write", self.name())
    }

    /// The workload that reads it.
    pub fn read_name(self) -> String {
        format!("{}-read", self.name())
    }

    /// The content numbers of `blocks` blocks, in random order as DEDISbench draws them.
    fn numbers(self, blocks: usize, random: &mut Random) -> Vec<u32> {
        let duplicates = blocks * self.duplicate_permille() / 1000;
        let mut numbers = Vec::with_capacity(blocks);
        let (mut next, mut left) = (0, duplicates);
        for (copies, permille) in COPIES {
            let contents = (duplicates * permille / 1000 / (copies - 1)).min(left / (copies - 1));
            for content in next..next + contents as u32 {
                numbers.extend(std::iter::repeat_n(content, copies));
            }
            next += contents as u32;
            left -= contents * (copies - 1);
        }
        // What the classes leave by rounding are further copies of the first content.
        numbers.extend(std::iter::repeat_n(0, left));
        let once = (blocks - numbers.len()) as u32;
        numbers.extend(next..next + once);
        random.permutation(blocks).into_iter().map(|index| numbers[index]).collect()
    }

    /// The content numbers of `writes` writes: those that stay are an image for themselves, and the others another.
    fn numbers_of_both(self, writes: usize, stays: &HashSet<usize>, random: &mut Random) -> Vec<u32> {
        let mut staying = self.numbers(stays.len(), random).into_iter();
        // Numbers of an image are below its blocks.
        let apart = stays.len() as u32;
        let mut others = self.numbers(writes - stays.len(), random).into_iter().map(|number| number + apart);
        let next = |write| if stays.contains(&write) { staying.next() } else { others.next() };
        (0..writes).map_while(next).collect()
    }
}

/// How duplicates are spread over contents: copies of a content, and the share in permille of all duplicates that
/// such contents have. The images' own tables are not published; this is the spread of the table `personalfiles`
/// that comes with DEDISbench, its classes (2, 3-4, 5-16, 17-256 and more copies) each given one or two numbers.
const COPIES: [(usize, usize); 6] = [(2, 230), (3, 100), (4, 100), (9, 330), (64, 120), (512, 120)];

/// What each thread writes, and where in its file.
struct Load {
    content: Content,
    /// Per thread, the block of the file that each write goes to.
    places: Vec<Vec<usize>>,
    /// Per thread, the blocks that are read, in order.
    reads: Vec<Vec<usize>>,
    blocks_per_file: usize,
}

impl Load {
    fn threads(&self) -> usize {
        self.places.len()
    }

    /// The content index of a thread's write: contents go round the threads, so that copies keep their distance.
    fn index(&self, thread: usize, write: usize) -> usize {
        write * self.threads() + thread
    }

    /// For every block of a thread's file, the content index that was written last.
    fn last(&self, thread: usize) -> Vec<Option<usize>> {
        let last = files::last_writes(self.blocks_per_file, &self.places[thread]);
        last.into_iter().map(|write| Some(self.index(thread, write?))).collect()
    }

    fn all_last(&self) -> impl Iterator<Item = usize> {
        (0..self.threads()).flat_map(|thread| self.last(thread)).flatten()
    }

    fn writes(&self) -> usize {
        self.places.iter().map(Vec::len).sum()
    }
}

/// Every block of every file once in random order, with FIO's duplicates; then all of them read in another.
pub fn fio(volume: &Volume, seed: u64, duplicate_percent: usize) -> Result<Body> {
    let blocks_per_file = volume.random_blocks() / FIO_THREADS;
    let mut random = Random::new(seed);
    let content = volume.prepared(Content::as_fio(seed, FIO_THREADS, blocks_per_file, duplicate_percent));
    let mut orders = || (0..FIO_THREADS).map(|_| random.permutation(blocks_per_file)).collect();
    let load = Load { content, places: orders(), reads: orders(), blocks_per_file };
    let name = duplicate_percent.to_string();
    Ok(body(format!("threads-write-{name}"), format!("threads-read-{name}"), load))
}

/// Writes at NURand places of every file; then what was written read in random order, hot blocks as often as written.
///
/// What is overwritten later and what stays each have the image's share of duplicates, as the paper's savings show that
/// what stayed there had.
pub fn dedis(volume: &Volume, seed: u64, twin: Twin) -> Result<Body> {
    let blocks_per_file = volume.random_blocks() / DEDIS_THREADS;
    let mut random = Random::new(seed);
    let places: Vec<Vec<usize>> =
        (0..DEDIS_THREADS).map(|_| nurand(&mut random, blocks_per_file, blocks_per_file)).collect();
    let shuffled = |places: &Vec<usize>| random.permutation(places.len()).into_iter().map(|at| places[at]).collect();
    let reads = places.iter().map(shuffled).collect();
    let numbers = vec![0; blocks_per_file * DEDIS_THREADS];
    let mut load = Load { content: Content::from_numbers(seed, numbers), places, reads, blocks_per_file };
    let stays: HashSet<usize> = load.all_last().collect();
    load.content = Content::from_numbers(seed, twin.numbers_of_both(load.writes(), &stays, &mut random));
    Ok(body(twin.write_name(), twin.read_name(), load))
}

fn body(write_name: String, read_name: String, load: Load) -> Body {
    let blocks: Vec<usize> = load.all_last().collect();
    let distinct: HashSet<u32> = blocks.iter().map(|index| load.content.number(*index)).collect();
    let (blocks_bytes, distinct_bytes) = (blocks.len() as u64 * BLOCK, distinct.len() as u64 * BLOCK);
    let writing = Work {
        operations: load.writes(),
        bytes: load.writes() as u64 * BLOCK,
        unique_bytes: distinct_bytes,
        places_bytes: blocks_bytes,
        bound_by_bytes: true,
    };
    Box::new(move |case| {
        let files = open_all(case, load.threads(), true)?;
        case.measure(&write_name, writing, |latencies| write(&load, &files, latencies))?;
        drop(files);
        case.deduplicate()?;
        case.remount_cold()?;
        case.note_space(blocks_bytes, distinct_bytes)?;
        let files = open_all(case, load.threads(), false)?;
        let reading = Work::reading(load.writes(), load.writes() as u64 * BLOCK);
        case.measure(&read_name, reading, |latencies| {
            on_threads(load.threads(), latencies, |thread, latencies| {
                files::read_at(&files[thread], load.reads[thread].iter().copied(), latencies)
            })
        })?;
        drop(files);
        verify(case, &load)
    })
}

fn name(thread: usize) -> String {
    format!("file{thread}")
}

fn open_all(case: &Case, threads: usize, new: bool) -> Result<Vec<File>> {
    (0..threads).map(|thread| open(&case.path(&name(thread)), new)).collect()
}

fn write(load: &Load, files: &[File], latencies: &mut Latencies) -> Result<()> {
    on_threads(load.threads(), latencies, |thread, latencies| {
        let indexes = (0..load.places[thread].len()).map(|write| load.index(thread, write));
        files::write_some(&files[thread], &load.content, indexes, &load.places[thread], latencies)
    })
}

/// Runs `work` on this many threads at once and joins the times that they record.
fn on_threads(
    threads: usize,
    latencies: &mut Latencies,
    work: impl Fn(usize, &mut Latencies) -> Result<()> + Sync,
) -> Result<()> {
    let run = |thread: usize| {
        let mut own = Latencies::with_capacity(0);
        work(thread, &mut own).map(|()| own)
    };
    at_once(threads, run)?.iter().for_each(|own| latencies.join(own));
    Ok(())
}

/// Runs `work` on this many threads at once and returns the results of all.
pub fn at_once<T: Send>(threads: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let work = &work;
    thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let ended: Vec<_> = started.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let results =
            ended.into_iter().map(|result| result.map_err(|_| Failure::new("a thread of the load panicked"))?);
        results.collect()
    })
}

fn verify(case: &mut Case, load: &Load) -> Result<()> {
    case.remount_cold()?;
    case.note("verifying");
    for thread in 0..load.threads() {
        let last = load.last(thread);
        files::verify_written(&case.path(&name(thread)), &load.content, &last)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn writes_that_stay_and_writes_that_do_not_have_the_same_share_of_duplicates_apart() {
        let stays: HashSet<usize> = (0..100_000).filter(|write| write % 10 < 3).collect();
        let numbers = Twin::Many.numbers_of_both(100_000, &stays, &mut Random::new(3));
        assert_eq!(numbers.len(), 100_000);
        let distinct = |stay: bool| -> HashSet<u32> {
            (0..100_000).filter(|write| stays.contains(write) == stay).map(|write| numbers[write]).collect()
        };
        assert_eq!((distinct(true).len(), distinct(false).len()), (30_000 - 13_830, 70_000 - 32_270));
        assert!(distinct(true).is_disjoint(&distinct(false)));
    }

    #[test]
    fn a_twin_has_its_share_of_duplicates_and_contents_of_many_copies() {
        for twin in Twin::ALL {
            let numbers = twin.numbers(100_000, &mut Random::new(3));
            assert_eq!(numbers.len(), 100_000);
            let mut copies: HashMap<u32, usize> = HashMap::new();
            numbers.iter().for_each(|number| *copies.entry(*number).or_default() += 1);
            assert_eq!(100_000 - copies.len(), 100 * twin.duplicate_permille());
            for (wanted, _) in COPIES {
                assert!(copies.values().any(|count| *count >= wanted), "no content has {wanted} copies");
            }
        }
    }
}
