//! The workloads: preparation, which is not timed, the measured steps, and the check of every byte.
//!
//! A scenario prepares its content once per repetition; every side then runs with the same bytes.

use std::time::Duration;

use serde::Serialize;

use crate::case::{Case, Work};
use crate::content::{Content, Random, nurand};
use crate::failure::Result;
use crate::files::{self, open, verify};
use crate::measure::Latencies;
use crate::threaded::{self, Twin};
use crate::trees;
use crate::volume::{Body, Volume};

const BLOCK: u64 = crate::aligned::BLOCK_BYTES as u64;

/// Which file has the blocks that are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Source {
    /// The one that is written.
    SameFile,
    /// Another one, as large, that was written before.
    OtherFile,
}

impl Source {
    /// The file that is there before, and the one that is written.
    pub fn contents(self, volume: &Volume, seed: u64, duplicate_percent: usize) -> Result<[Content; 2]> {
        let blocks = volume.file_blocks();
        Ok(match self {
            Source::SameFile => {
                [Content::from_numbers(seed, Vec::new()), volume.content(seed, blocks, duplicate_percent)?]
            }
            Source::OtherFile => {
                let written = Content::repeating(seed, blocks, blocks, duplicate_percent);
                [
                    volume.content(seed, blocks, 0)?,
                    written.shrinking_to(volume.shrinks_to_percent).expanded_within(volume.memory_max),
                ]
            }
        })
    }
}

/// A group of measured steps that share their preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// 4 KiB writes from the beginning of a new file, fsync.
    SequentialWrite {
        /// Share of blocks that repeat an earlier one.
        duplicate_percent: usize,
    },
    /// The same after the mount has learnt what a piece costs, if the device is limited; with blocks of the same file or
    /// of another one.
    ScatteredWrite {
        /// Share of blocks that repeat an earlier one.
        duplicate_percent: usize,
        /// Where the earlier one is.
        source: Source,
    },
    /// 4 KiB writes at distinct random places of a full file, fsync.
    RandomWrite {
        /// Share of blocks that repeat an earlier one.
        duplicate_percent: usize,
    },
    /// 4 KiB writes at TPC-C NURand places of a full file, fsync.
    NurandWrite,
    /// 4 KiB writes in random order by three threads, then reads in random order.
    ThreadedWrite {
        /// Share of blocks that repeat an earlier one.
        duplicate_percent: usize,
    },
    /// Writes and reads at hot spots by four threads, contents as in a phone's image.
    Dedis {
        /// Which image.
        twin: Twin,
    },
    /// 4 KiB writes with fdatasync each: appended to a new file, then over a full one.
    SyncedWrite,
    /// Reads of a file of unique blocks: sequential cold, again, random cold, NURand cold.
    Read,
    /// Cold sequential reads of blocks shared with other files or places.
    DuplicateRead,
    /// Cold reads at random places of a file of unique blocks, and nothing else.
    ScatteredRead,
    /// Second copies of files, written while everything else is cold, and right after the first.
    CopyWrite,
    /// A tree of small files: copied in, read cold, walked cold and again, deleted.
    Tree,
    /// A second copy of a tree of small files.
    TreeAgain,
    /// Trees of small files, copied in and read cold by several programs at once.
    TreeClients {
        /// How many.
        clients: usize,
    },
}

impl Scenario {
    /// Prepares the scenario's content.
    pub fn prepare(self, volume: &Volume, seed: u64) -> Result<Body> {
        match self {
            Scenario::SequentialWrite { duplicate_percent } => sequential_write(volume, seed, duplicate_percent),
            Scenario::ScatteredWrite { duplicate_percent, source } => {
                scattered_duplicates(volume, seed, duplicate_percent, source)
            }
            Scenario::RandomWrite { duplicate_percent } => {
                let places = Random::new(seed).permutation(volume.file_blocks());
                let places = places.into_iter().take(volume.random_blocks()).collect();
                scattered_write(format!("random-write-{duplicate_percent}"), volume, seed, duplicate_percent, places)
            }
            Scenario::NurandWrite => {
                let places = nurand(&mut Random::new(seed), volume.file_blocks(), volume.random_blocks());
                scattered_write("nurand-write".to_owned(), volume, seed, 0, places)
            }
            Scenario::ThreadedWrite { duplicate_percent } => threaded::fio(volume, seed, duplicate_percent),
            Scenario::Dedis { twin } => threaded::dedis(volume, seed, twin),
            Scenario::SyncedWrite => synced_write(volume, seed),
            Scenario::Read => read(volume, seed),
            Scenario::DuplicateRead => duplicate_read(volume, seed),
            Scenario::ScatteredRead => scattered_read(volume, seed),
            Scenario::CopyWrite => copy_write(volume, seed),
            Scenario::Tree => trees::alone(volume, seed),
            Scenario::TreeAgain => trees::again(volume, seed),
            Scenario::TreeClients { clients } => trees::clients(volume, seed, clients),
        }
    }
}

fn writing(content: &Content) -> Work {
    Work {
        operations: content.blocks(),
        bytes: content.bytes(),
        unique_bytes: content.unique_bytes(),
        places_bytes: content.bytes(),
        bound_by_bytes: true,
    }
}

fn writing_synced(content: &Content) -> Work {
    Work { bound_by_bytes: false, ..writing(content) }
}

fn fill(case: &Case, name: &str, content: &Content) -> Result<()> {
    case.note("filling a file");
    files::write_all(&open(&case.path(name), true)?, content, &mut Latencies::with_capacity(content.blocks()))
}

fn verify_cold(case: &mut Case, name: &str, content: &Content) -> Result<()> {
    case.remount_cold()?;
    case.note("verifying");
    verify(&case.path(name), content.blocks(), |place| (content, place))
}

fn sequential_write(volume: &Volume, seed: u64, duplicate_percent: usize) -> Result<Body> {
    let content = volume.content(seed, volume.file_blocks(), duplicate_percent)?;
    let name = format!("sequential-write-{duplicate_percent}");
    Ok(Box::new(move |case| {
        let file = open(&case.path("file"), true)?;
        case.measure(&name, writing(&content), |latencies| files::write_all(&file, &content, latencies))?;
        drop(file);
        verify_cold(case, "file", &content)
    }))
}

fn scattered_duplicates(volume: &Volume, seed: u64, duplicate_percent: usize, source: Source) -> Result<Body> {
    let [before, content] = source.contents(volume, seed, duplicate_percent)?;
    let name = format!("scattered-write-{duplicate_percent}");
    Ok(Box::new(move |case| {
        if before.blocks() > 0 {
            fill(case, "source", &before)?;
        }
        case.learn_piece_cost()?;
        let file = open(&case.path("file"), true)?;
        case.measure(&name, writing(&content), |latencies| files::write_all(&file, &content, latencies))?;
        drop(file);
        verify_cold(case, "file", &content)
    }))
}

fn scattered_write(
    name: String,
    volume: &Volume,
    seed: u64,
    duplicate_percent: usize,
    places: Vec<usize>,
) -> Result<Body> {
    let before = volume.content(seed ^ 1, volume.file_blocks(), 0)?;
    let content = volume.content(seed, places.len(), duplicate_percent)?;
    let last_writes = files::last_writes(before.blocks(), &places);
    let places_bytes = last_writes.iter().flatten().count() as u64 * BLOCK;
    let unique_bytes = content.unique_bytes().min(places_bytes);
    let work = Work { unique_bytes, places_bytes, ..writing(&content) };
    Ok(Box::new(move |case| {
        fill(case, "file", &before)?;
        case.remount_cold()?;
        let file = open(&case.path("file"), false)?;
        case.measure(&name, work, |latencies| files::write_at(&file, &content, &places, latencies))?;
        drop(file);
        case.remount_cold()?;
        case.note("verifying");
        verify(&case.path("file"), before.blocks(), |place| match last_writes[place] {
            Some(write) => (&content, write),
            None => (&before, place),
        })
    }))
}

fn synced_write(volume: &Volume, seed: u64) -> Result<Body> {
    let appended = volume.content(seed, volume.synced_writes, 0)?;
    let rewritten = volume.content(seed ^ 1, volume.synced_writes, 0)?;
    let in_order: Vec<usize> = (0..volume.synced_writes).collect();
    let shuffled = Random::new(seed).permutation(volume.synced_writes);
    let last_writes = files::last_writes(shuffled.len(), &shuffled);
    Ok(Box::new(move |case| {
        let file = open(&case.path("file"), true)?;
        case.measure("fdatasync-append", writing_synced(&appended), |latencies| {
            files::write_synced(&file, &appended, &in_order, latencies)
        })?;
        drop(file);
        verify_cold(case, "file", &appended)?;
        let file = open(&case.path("file"), false)?;
        case.measure("fdatasync-rewrite", writing_synced(&rewritten), |latencies| {
            files::write_synced(&file, &rewritten, &shuffled, latencies)
        })?;
        drop(file);
        case.remount_cold()?;
        case.note("verifying");
        verify(&case.path("file"), rewritten.blocks(), |place| (&rewritten, last_writes[place].unwrap_or(place)))
    }))
}

fn read(volume: &Volume, seed: u64) -> Result<Body> {
    let content = volume.content(seed, volume.file_blocks(), 0)?;
    let mut random = Random::new(seed);
    let blocks = content.blocks();
    let scattered: Vec<usize> = random.permutation(blocks).into_iter().take(volume.random_reads).collect();
    let hot = nurand(&mut random, blocks, volume.random_reads);
    Ok(Box::new(move |case| {
        fill(case, "file", &content)?;
        case.remount_cold()?;
        let sequential = Work { bound_by_bytes: true, ..Work::reading(blocks, content.bytes()) };
        let file = open(&case.path("file"), false)?;
        case.measure("sequential-read-cold", sequential, |latencies| files::read_at(&file, 0..blocks, latencies))?;
        case.measure("sequential-reread", Work::reading(blocks, content.bytes()), |latencies| {
            files::read_at(&file, 0..blocks, latencies)
        })?;
        drop(file);
        read_scattered(case, "random-read-cold", &scattered)?;
        read_scattered(case, "nurand-read-cold", &hot)?;
        verify_cold(case, "file", &content)
    }))
}

fn read_scattered(case: &mut Case, name: &str, places: &[usize]) -> Result<()> {
    case.remount_cold()?;
    let file = open(&case.path("file"), false)?;
    let work = Work::reading(places.len(), places.len() as u64 * BLOCK);
    case.measure(name, work, |latencies| files::read_at(&file, places.iter().copied(), latencies))
}

fn duplicate_read(volume: &Volume, seed: u64) -> Result<Body> {
    let content = volume.content(seed, volume.file_blocks(), 0)?;
    let scattered = volume.content(seed ^ 1, volume.file_blocks(), 75)?;
    Ok(Box::new(move |case| {
        fill(case, "original", &content)?;
        fill(case, "copy", &content)?;
        fill(case, "scattered", &scattered)?;
        for (name, file_name, content) in
            [("read-of-copy-cold", "copy", &content), ("read-of-scattered-75-cold", "scattered", &scattered)]
        {
            case.remount_cold()?;
            let file = open(&case.path(file_name), false)?;
            let blocks = content.blocks();
            case.measure(name, Work::reading(blocks, content.bytes()), |latencies| {
                files::read_at(&file, 0..blocks, latencies)
            })?;
            drop(file);
            verify_cold(case, file_name, content)?;
        }
        Ok(())
    }))
}

/// How long a mount may take to fill its hints.
const HINTS_FILL: Duration = Duration::from_secs(3);

fn scattered_read(volume: &Volume, seed: u64) -> Result<Body> {
    let content = volume.content(seed, volume.file_blocks(), 0)?;
    let places: Vec<usize> =
        Random::new(seed).permutation(content.blocks()).into_iter().take(volume.random_reads).collect();
    Ok(Box::new(move |case| {
        fill(case, "file", &content)?;
        read_scattered(case, "scattered-read-cold", &places)
    }))
}

fn copy_write(volume: &Volume, seed: u64) -> Result<Body> {
    let cold = volume.content(seed, volume.file_blocks(), 0)?;
    let warm = volume.content(seed ^ 1, volume.file_blocks(), 0)?;
    Ok(Box::new(move |case| {
        fill(case, "original", &cold)?;
        case.remount_cold()?;
        case.note("waiting for hints");
        std::thread::sleep(HINTS_FILL);
        copy(case, "copy-write-cold", "copy", &cold)?;
        fill(case, "warm original", &warm)?;
        copy(case, "copy-write-warm", "warm copy", &warm)?;
        verify_cold(case, "copy", &cold)?;
        verify_cold(case, "warm copy", &warm)
    }))
}

/// Measures writing a content that is already stored.
fn copy(case: &mut Case, name: &str, file_name: &str, content: &Content) -> Result<()> {
    let file = open(&case.path(file_name), true)?;
    let work = Work::reading(content.blocks(), content.bytes());
    case.measure(name, work, |latencies| files::write_all(&file, content, latencies))
}
