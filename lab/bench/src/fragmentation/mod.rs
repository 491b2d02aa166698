//! Measures what sharing short and long runs costs readers and writers, by `run_blocks_min`: iDedup's questions.
//!
//! Five parts: cold reads of files stitched from others, on a slow device, and of one of scattered blocks, at full speed; the detector's share of a write's processor
//! time; response times of a mixed replay, with the sizes of device reads; and the read cache by memory for hints.

mod cache;
pub mod detector;
pub mod plan;
pub mod replay;
pub mod response;
pub mod scattered;
mod sizes_read;
pub mod stitched;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::aligned::BLOCK_BYTES;
use crate::failure::{Failure, Result};
use crate::machine;
use crate::mount::Mount;
use crate::shared_args::SharedArgs;
use detector::DetectorArgs;
use plan::ReplayArgs;
use response::{PAPER, ResponseArgs};
use scattered::ScatteredArgs;
use stitched::StitchedArgs;

/// Arguments: the parts to measure, and those of each part.
#[derive(Args, Clone, Debug)]
pub struct FragmentationArgs {
    /// Parts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "stitched,scattered,detector,response,cache")]
    parts: Vec<Part>,
    #[command(flatten)]
    stitched: StitchedArgs,
    #[command(flatten)]
    scattered: ScatteredArgs,
    #[command(flatten)]
    detector: DetectorArgs,
    #[command(flatten)]
    response: ResponseArgs,
    #[command(flatten)]
    replay: ReplayArgs,
    /// detector and response: the thresholds compared
    #[arg(long, value_delimiter = ',', default_value = "1,4,8,auto")]
    thresholds: Vec<String>,
    /// Number of repetitions; the mounts alternate within each
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    #[command(flatten)]
    shared: SharedArgs,
}

/// A part of the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Cold sequential reads of stitched files on a slow device.
    Stitched,
    /// Cold sequential reads of a file of scattered blocks.
    Scattered,
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
    scattered: Vec<scattered::Reading>,
    detector: Vec<detector::Reading>,
    response: Vec<response::Reading>,
    cache: Vec<cache::Reading>,
}

impl FragmentationArgs {
    fn check(&self) -> Result<()> {
        // Pieces of 256 blocks are taken from each source.
        let least = 10 * 256 * BLOCK_BYTES as u64;
        let sizes = self.sizes();
        if sizes.iter().any(|bytes| !(least..=1 << 40).contains(bytes)) {
            return Err(Failure::new(
                "--size, --scattered-size, --write-size and --replay-size must be between 10M and 1T",
            ));
        }
        if self.repetitions == 0 || self.replay.requests == 0 {
            return Err(Failure::new("--repetitions and --requests must be at least 1"));
        }
        Ok(())
    }

    fn device_bytes(&self) -> u64 {
        // Room for every file stored anew several times, for log and records, and for what mkfs leaves free.
        self.sizes().into_iter().fold(0, u64::max) * 8 + (3 << 30)
    }

    fn sizes(&self) -> [u64; 4] {
        [self.stitched.size, self.scattered.scattered_size, self.detector.write_size, self.replay.replay_size]
    }
}

/// Runs the parts asked for and prints their tables.
pub fn run(args: &FragmentationArgs) -> Result<()> {
    args.check()?;
    let (_work_directory, bench) = args.shared.begin(args.device_bytes(), args)?;
    let rounds = args.shared.rounds(args.repetitions);
    let mounts: Vec<Mount> = args.thresholds.iter().map(|number| Mount::in_line(number)).collect();
    let replay = &args.replay;
    let mut readings = Readings::default();
    for part in &args.parts {
        match part {
            Part::Stitched => readings.stitched = stitched::run(&args.stitched, rounds, &bench)?,
            Part::Scattered => readings.scattered = scattered::run(&args.scattered, rounds, &bench)?,
            Part::Detector => readings.detector = detector::run(&args.detector, &mounts, rounds, &bench)?,
            Part::Response => {
                readings.response = response::run(&args.response, (&mounts, &PAPER), replay, rounds, &bench)?;
            }
            Part::Cache => readings.cache = cache::run(replay, rounds, &bench)?,
        }
    }
    println!("\n{}", machine::load_line());
    args.shared.write_json(&readings)
}
