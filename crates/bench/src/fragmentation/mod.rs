//! What sharing short and long runs costs readers and writers, by `run_blocks_min`: iDedup's questions, on a mount.
//!
//! Four parts: files stitched from others read cold on a slow device; the detector's share of a write's processor time;
//! response times of a mixed replay, with the sizes of device reads; and the read cache by memory for hints.

mod cache;
mod detector;
mod plan;
mod replay;
mod response;
mod sizes_read;
mod stitched;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use oncefs_toolbox::sizes;
use serde::Serialize;

use crate::aligned::BLOCK_BYTES;
use crate::failure::{Failure, Result};
use crate::machine;
use crate::report::write_json;
use crate::run;

/// What is written, read and measured.
#[derive(Args, Clone, Debug)]
pub struct FragmentationArgs {
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "stitched,detector,response,cache")]
    parts: Vec<Part>,
    /// stitched: bytes of the ten sources together, and of each file made of them
    #[arg(long, value_parser = sizes::parse, default_value = "240M")]
    size: u64,
    /// stitched: the mounts compared
    #[arg(long, value_enum, value_delimiter = ',', default_value = "auto,1,4,auto-full-pass,auto-out-of-line")]
    stitched: Vec<stitched::Case>,
    /// stitched: what reads the files
    #[arg(long, value_enum, value_delimiter = ',', default_value = "own,dd")]
    readers: Vec<stitched::Reader>,
    /// detector: bytes of each file whose writing is measured
    #[arg(long, value_parser = sizes::parse, default_value = "256M")]
    write_size: u64,
    /// detector: what is written
    #[arg(long, value_enum, value_delimiter = ',', default_value = "unique,runs,scattered")]
    data: Vec<detector::Data>,
    /// response and cache: bytes there are before the replay
    #[arg(long, value_parser = sizes::parse, default_value = "256M")]
    replay_size: u64,
    /// response and cache: requests of the replay, one in six of them a write
    #[arg(long, default_value_t = 30_000)]
    requests: usize,
    /// detector and response: the thresholds compared
    #[arg(long, value_delimiter = ',', default_value = "1,4,8,auto")]
    thresholds: Vec<String>,
    /// response: what is written
    #[arg(long, value_enum, value_delimiter = ',', default_value = "unique,corporate")]
    mixes: Vec<plan::Mix>,
    /// response: how requests reach the file system
    #[arg(long, value_enum, value_delimiter = ',', default_value = "buffered,direct")]
    io: Vec<replay::Io>,
    /// response: hold the device to the slow disk's speed too
    #[arg(long)]
    throttled: bool,
    /// Repetitions, the mounts alternating within each
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Directory for the loop devices' sparse files
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// The oncefs program [default: beside this one]
    #[arg(long)]
    oncefs: Option<PathBuf>,
    /// Seed of contents and orders
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the raw readings to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A part of the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Cold sequential reads of stitched files on a slow device.
    Stitched,
    /// Processor time of the run detector on the write path.
    Detector,
    /// Response times of a mixed replay, and sizes of device reads.
    Response,
    /// Hit ratio of the read cache by memory for hints.
    Cache,
}

/// Raw readings of all parts.
#[derive(Default, Serialize)]
struct Readings {
    stitched: Vec<stitched::Reading>,
    detector: Vec<detector::Reading>,
    response: Vec<response::Reading>,
    cache: Vec<cache::Reading>,
}

impl FragmentationArgs {
    fn check(&self) -> Result<()> {
        // Pieces of 256 blocks are taken from each source.
        let least = 10 * 256 * BLOCK_BYTES as u64;
        let sizes = [self.size, self.write_size, self.replay_size];
        if sizes.iter().any(|bytes| !(least..=1 << 40).contains(bytes)) {
            return Err(Failure::new("--size, --write-size and --replay-size must be between 10M and 1T"));
        }
        if self.repetitions == 0 || self.requests == 0 {
            return Err(Failure::new("--repetitions and --requests must be at least 1"));
        }
        Ok(())
    }

    fn device_bytes(&self) -> u64 {
        // Room for every file stored anew several times, for log and records, and for what mkfs leaves free.
        self.size.max(self.write_size).max(self.replay_size) * 8 + (3 << 30)
    }

    /// A seed for each repetition.
    fn seed_of(&self, repetition: usize) -> u64 {
        self.seed.wrapping_add((repetition as u64) << 8)
    }
}

/// Runs the parts asked for and prints their tables.
pub fn run(args: &FragmentationArgs) -> Result<()> {
    args.check()?;
    let (_work_directory, bench) = run::begin(&args.dir, args.oncefs.clone(), args.device_bytes(), args)?;
    let mut readings = Readings::default();
    for part in &args.parts {
        match part {
            Part::Stitched => readings.stitched = stitched::run(args, &bench)?,
            Part::Detector => readings.detector = detector::run(args, &bench)?,
            Part::Response => readings.response = response::run(args, &bench)?,
            Part::Cache => readings.cache = cache::run(args, &bench)?,
        }
    }
    println!("\n{}", machine::load_line());
    args.json.as_deref().map_or(Ok(()), |path| write_json(path, &readings))
}
