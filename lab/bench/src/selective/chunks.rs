//! Measures what the length of chunks saves and costs readers: the paper's figure 3. Counts what longer blocks would
//! save, for iDedup's section 3.1.

use std::path::Path;
use std::time::Instant;

use oncefs_toolbox::Table;
use serde::Serialize;

use super::args::SelectiveArgs;
use super::cases::{Case, Saved, write_all};
use super::corpus::{Tree, make_directories};
use super::counter::duplicates_by_length;
use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::content::{Content, Random};
use crate::failure::{Failure, Result, tell};
use crate::files::read_through;
use crate::mount::{Mount, rotated, verify, write};
use crate::pieces::{Plan, Sources};
use crate::report::as_markdown;
use crate::side::Bench;
use crate::spread::Spread;
use crate::throttle::{SLOW_DISK, Throttle};

/// Lengths of chunks in blocks: the paper's 4 KB to 1,024 KB.
pub const CHUNK_BLOCKS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Bytes of a read.
const READ_BYTES: usize = 1 << 20;
/// Name of the file that has the blocks of all others.
const SOURCE: &str = "source";

/// A file whose chunks lie at random places, read in order on the slow disk.
#[derive(Clone, Debug, Serialize)]
pub struct Read {
    repetition: usize,
    chunk_kib: usize,
    /// Runs that the file consists of.
    runs: u64,
    seconds: f64,
    mb_per_s: f64,
}

/// What sharing in runs of this length and more saves of real files.
#[derive(Clone, Debug, Serialize)]
pub struct SavedBy {
    chunk_kib: usize,
    saved: Saved,
}

/// What storing blocks of this length once would save of real files.
#[derive(Clone, Debug, Serialize)]
pub struct CountedBy {
    block_kib: usize,
    duplicate_bytes: u64,
    bytes: u64,
}

/// All readings.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    reads: Vec<Read>,
    saved: Vec<SavedBy>,
    counted: Vec<CountedBy>,
}

/// Reads a file of chunks of each length, and deduplicates the desktop's files in each.
pub fn measure(args: &SelectiveArgs, bench: &Bench, results: &mut Results) -> Result<()> {
    for (repetition, seed) in args.rounds().iter() {
        tell(&format!("chunks, repetition {}: reads", repetition + 1));
        results.reads.extend(read_all(args, bench, repetition, seed)?);
        // The same files are deduplicated alike each time.
        if let (0, Some(desktop)) = (repetition, &args.desktop) {
            let tree = Tree::below(desktop, args.size(), seed)?;
            for blocks in CHUNK_BLOCKS {
                tell(&format!("chunks of {} KiB: savings", kib(blocks)));
                results.saved.push(SavedBy { chunk_kib: kib(blocks), saved: saved(args, bench, &tree, blocks)? });
            }
        }
    }
    println!("\nFiles of chunks at random places, read in order, {SLOW_DISK:?} (figure 3)\n{}", table(results));
    Ok(())
}

/// Counts duplicate blocks of each length in the desktop's files, without a mount.
pub fn count(args: &SelectiveArgs, results: &mut Results) -> Result<()> {
    let desktop = args.desktop.as_deref().ok_or_else(|| Failure::new("--parts=blocks needs --desktop"))?;
    let tree = Tree::below(desktop, args.size(), args.shared.seed)?;
    let paths: Vec<&Path> = tree.paths().collect();
    let (bytes, duplicates) = duplicates_by_length(&paths, &CHUNK_BLOCKS)?;
    let counted = CHUNK_BLOCKS.iter().zip(duplicates);
    results.counted.extend(counted.map(|(blocks, duplicate_bytes)| CountedBy {
        block_kib: kib(*blocks),
        duplicate_bytes,
        bytes,
    }));
    let mut table = Table::new(&["block KiB", "duplicates, % of all bytes"]);
    for CountedBy { block_kib, duplicate_bytes, bytes } in &results.counted {
        let percent = *duplicate_bytes as f64 * 100.0 / (*bytes).max(1) as f64;
        table.row(vec![block_kib.to_string(), format!("{percent:.1}")]);
    }
    println!("\nDuplicates by length of blocks\n{}", as_markdown(table));
    Ok(())
}

fn kib(blocks: usize) -> usize {
    (blocks * BLOCK_BYTES) >> 10
}

/// A mount that shares nothing until it is told to, and then runs of so many blocks.
fn mount(args: &SelectiveArgs, blocks: usize) -> Mount {
    let options =
        format!("profile=selective,ranks=off,inline=off,worker=off,memory={},run_blocks_min={blocks}", args.memory);
    Mount { name: format!("chunks of {} KiB", kib(blocks)), options }
}

/// The source, and a file for each length with the source's chunks in random order.
fn load(bytes: u64, seed: u64) -> (Plan, Content) {
    let most = CHUNK_BLOCKS[CHUNK_BLOCKS.len() - 1];
    let blocks = (bytes as usize / BLOCK_BYTES).next_multiple_of(most);
    let (mut plan, mut random) = (Plan::default(), Random::new(seed));
    let numbers = plan.unique(blocks);
    plan.add(SOURCE, numbers);
    for length in CHUNK_BLOCKS {
        plan.add(name(length), Sources { files: 1, blocks, piece_blocks: length..=length }.shuffled(&mut random));
    }
    let content = Content::from_numbers(seed, plan.numbers.clone());
    (plan, content)
}

fn name(blocks: usize) -> String {
    format!("chunks of {blocks}")
}

fn read_all(args: &SelectiveArgs, bench: &Bench, repetition: usize, seed: u64) -> Result<Vec<Read>> {
    let (plan, content) = load(args.chunk_file, seed);
    // Shared while they are written: so the source, which is the first, stays in one piece.
    let mut side = Mount::in_line("1").begin(bench)?;
    plan.parts.iter().try_for_each(|part| write(&side, &content, part))?;
    let mut reads = Vec::new();
    for (_, blocks) in rotated(&CHUNK_BLOCKS, repetition) {
        side.remount_cold()?;
        let path = side.root().join(name(*blocks));
        let runs = side.layout(&path)?.number("blocks", "runs")?;
        side.remount_cold()?;
        let throttle = Throttle::apply(SLOW_DISK, side.device_numbers()?)?;
        let began = Instant::now();
        let bytes = read_through(&path, &mut AlignedBuffer::new(READ_BYTES))?;
        let seconds = began.elapsed().as_secs_f64();
        drop(throttle);
        let mb_per_s = bytes as f64 / 1e6 / seconds;
        reads.push(Read { repetition, chunk_kib: kib(*blocks), runs, seconds, mb_per_s });
    }
    side.remount_cold()?;
    plan.parts.iter().try_for_each(|part| verify(&side, &content, part))?;
    side.unmount()?;
    Ok(reads)
}

fn saved(args: &SelectiveArgs, bench: &Bench, tree: &Tree, blocks: usize) -> Result<Saved> {
    let mut side = mount(args, blocks).begin(bench)?;
    make_directories(side.root(), tree)?;
    write_all(&side, tree)?;
    side.ask("dedup", &["--now"])?;
    let saved = Saved::take(&side, Case::Big)?;
    side.unmount()?;
    Ok(saved)
}

fn table(results: &Results) -> String {
    let mut table = Table::new(&["chunk KiB", "MB/s", "runs", "saved %"]);
    for blocks in CHUNK_BLOCKS {
        let of: Vec<&Read> = results.reads.iter().filter(|read| read.chunk_kib == kib(blocks)).collect();
        let spread = |value: &dyn Fn(&Read) -> f64| {
            let spread = Spread::of(of.iter().map(|read| value(read)));
            spread.map_or("-".to_owned(), |spread| format!("{spread:.1}"))
        };
        let saved = results.saved.iter().find(|saved| saved.chunk_kib == kib(blocks));
        let saved = saved.map_or("-".to_owned(), |saved| format!("{:.1}", saved.saved.percent()));
        table.row(vec![
            kib(blocks).to_string(),
            spread(&|read| read.mb_per_s),
            spread(&|read| read.runs as f64),
            saved,
        ]);
    }
    as_markdown(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_every_block_of_the_source_once_in_chunks_of_its_length() {
        let (plan, _) = load(3 << 20, 7);
        assert_eq!(plan.parts.len(), 1 + CHUNK_BLOCKS.len());
        for (part, length) in plan.parts[1..].iter().zip(CHUNK_BLOCKS) {
            let numbers = &plan.numbers[part.indexes.clone()];
            let runs: Vec<usize> = numbers.chunk_by(|before, after| before + 1 == *after).map(<[u32]>::len).collect();
            assert!(length > 128 || runs.iter().all(|run| *run == length), "{length}: {runs:?}");
            let mut sorted = numbers.to_vec();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..768));
        }
    }
}
