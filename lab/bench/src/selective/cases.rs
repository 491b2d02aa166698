//! The mounts compared, and how each is prepared for the measured reads.

use std::ops::Range;
use std::time::Instant;

use clap::ValueEnum;
use serde::Serialize;

use super::corpus::{Corpus, make_directories, place};
use super::reading::{Reads, Responses};
use crate::failure::{Result, tell};
use crate::mount::Mount;
use crate::side::{Bench, Side};
use crate::throttle::{SLOW_DISK, Throttle};

/// What is deduplicated, and in which chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Case {
    /// Nothing, and the use of files is not recorded.
    None,
    /// All files, in runs of 64 blocks and more.
    Big,
    /// All files, block by block.
    Small,
    /// Each file as its rank says.
    Selective,
}

impl Case {
    /// As the paper calls it, for tables.
    pub fn describe(self) -> &'static str {
        match self {
            Case::None => "not deduplicated",
            Case::Big => "big chunks",
            Case::Small => "small chunks",
            Case::Selective => "selective",
        }
    }

    /// Nothing is shared while it is written, nor out of line until that is requested.
    fn mount(self, memory: &str) -> Mount {
        let own = match self {
            Case::None => "ranks=off",
            Case::Big => "ranks=off,run_blocks_min=64",
            Case::Small => "ranks=off,run_blocks_min=1",
            // Small files have fewer blocks than the paper's count of 100, and are read once here.
            Case::Selective => "ranks=paper,rank_evaluation_reads_min=1",
        };
        let options = format!("profile=selective,inline=off,worker=off,memory={memory},{own}");
        Mount { name: self.describe().to_owned(), options }
    }
}

/// How files were used before they are deduplicated.
pub struct Use {
    /// Days between the writing of the files and all that follows.
    pub days: u32,
    /// Files that are written only after these days, from this number on.
    pub late_from: usize,
    /// What is read then.
    pub reads: Reads,
}

/// A mount that was prepared, ready to be read.
pub struct Prepared {
    /// The mount.
    pub side: Side,
    /// What it saves.
    pub saved: Saved,
}

/// What was saved.
#[derive(Clone, Debug, Serialize)]
pub struct Saved {
    /// Bytes of the files' blocks.
    pub mapped_bytes: u64,
    /// Bytes of the data area in use for them.
    pub used_bytes: u64,
    /// Files of ranks 0 to 3, where files have ranks.
    pub ranks: Option<[u64; 4]>,
}

impl Saved {
    /// Of the files' bytes, in percent.
    pub fn percent(&self) -> f64 {
        self.mapped_bytes.saturating_sub(self.used_bytes) as f64 * 100.0 / self.mapped_bytes.max(1) as f64
    }

    /// Asks the mount.
    pub fn take(side: &Side, case: Case) -> Result<Saved> {
        let figures = side.stats()?;
        let bytes = |name| figures.number("space", name);
        let rank = |name| figures.number_at(&["ranks", name, "files"]);
        let ranks = || Ok([rank("0 new")?, rank("1 sequential")?, rank("2 random")?, rank("3 cold")?]);
        let ranks = (case == Case::Selective).then(ranks).transpose()?;
        Ok(Saved { mapped_bytes: bytes("held_bytes")?, used_bytes: bytes("stored_bytes")?, ranks })
    }
}

/// Writes the corpus to a fresh volume, uses it, and deduplicates it as the case says. Shows how long that took.
pub fn prepare(memory: &str, bench: &Bench, case: Case, corpus: &dyn Corpus, usage: &Use) -> Result<Prepared> {
    let began = Instant::now();
    let mut side = case.mount(memory).begin(bench)?;
    make_directories(side.root(), corpus)?;
    write(&side, corpus, 0..usage.late_from)?;
    if case == Case::Selective {
        // What is still cached would be read without oncefs being asked.
        side.remount_cold()?;
        let seconds = u64::from(usage.days) * 24 * 60 * 60;
        side.ask("tune", &[&format!("rank_clock_offset_seconds={seconds}")])?;
    }
    write(&side, corpus, usage.late_from..corpus.files())?;
    let written = began.elapsed().as_secs_f64();
    if case == Case::Selective {
        usage.reads.read(side.root(), corpus)?;
    }
    let used = began.elapsed().as_secs_f64();
    if case != Case::None {
        side.ask("dedup", &["--now"])?;
    }
    let saved = Saved::take(&side, case)?;
    let deduplicated = began.elapsed().as_secs_f64();
    tell(&format!(
        "  {}: written in {written:.0} s, used in {:.0} s, deduplicated in {:.0} s; saved {:.1} %",
        case.describe(),
        used - written,
        deduplicated - used,
        saved.percent()
    ));
    Ok(Prepared { side, saved })
}

/// Writes all files of a corpus and makes them durable.
pub fn write_all(side: &Side, corpus: &dyn Corpus) -> Result<()> {
    write(side, corpus, 0..corpus.files())
}

fn write(side: &Side, corpus: &dyn Corpus, mut files: Range<usize>) -> Result<()> {
    files.try_for_each(|file| corpus.write(file, &place(side.root(), file)))?;
    side.ask("sync", &[]).map(drop)
}

impl Prepared {
    /// Reads with the daemon restarted, the kernel's caches empty and the device held to the slow disk's speed.
    pub fn read_cold(&mut self, reads: &Reads, corpus: &dyn Corpus) -> Result<Responses> {
        let began = Instant::now();
        self.side.remount_cold()?;
        let throttle = Throttle::apply(SLOW_DISK, self.side.device_numbers()?)?;
        let responses = reads.read(self.side.root(), corpus)?;
        drop(throttle);
        tell(&format!("  {}: read in {:.0} s", self.side.label(), began.elapsed().as_secs_f64()));
        Ok(responses)
    }

    /// Compares every byte of every file and removes the mount.
    pub fn finish(mut self, corpus: &dyn Corpus) -> Result<()> {
        self.side.remount_cold()?;
        (0..corpus.files()).try_for_each(|file| corpus.verify(file, &place(self.side.root(), file)))?;
        self.side.unmount()
    }
}
