//! Measures what sharing everything that readers can bear saves and costs, by default: the aims of "once means once".
//!
//! The parts that `fragmentation` has are measured with profiles as they are. The output is a page in Markdown.

mod copies;
mod profiles;
mod write_reading;
mod writes;
mod writes_table;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::fragmentation::detector::{self, Data, DetectorArgs};
use crate::fragmentation::plan::{Mix, ReplayArgs};
use crate::fragmentation::replay::Io;
use crate::fragmentation::response::{self, Aim, ResponseArgs};
use crate::fragmentation::scattered::{self, ScatteredArgs};
use crate::fragmentation::stitched::{self, Case, Reader, StitchedArgs};
use crate::machine;
use crate::shared_args::{Rounds, SharedArgs};
use crate::side::Bench;
use profiles::profiles;
use writes::WriteArgs;

/// By how many percent a write may take longer with duplicates than with dedup off.
const LATENCY_PERCENT_MAX: f64 = 5.0;
/// Bytes of a file, unless another number is given.
const FILE_BYTES: u64 = 512 << 20;
const QUICK_FILE_BYTES: u64 = 32 << 20;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub struct OnceArgs {
    /// Small sizes, one repetition: shows that everything works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Parts to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "writes,throttled,latency,detector,stitched,scattered,copies"
    )]
    parts: Vec<Part>,
    /// Bytes of the files written [default: 512M]
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse)]
    size: Option<u64>,
    /// Percentages of scattered duplicates
    #[arg(long, value_delimiter = ',', default_value = "0,25,50,75", value_parser = clap::value_parser!(u8).range(0..=90))]
    duplicates: Vec<u8>,
    /// copies: a directory that is copied twice; repeat it for several [default: a made one]
    #[arg(long = "tree", value_name = "DIR")]
    trees: Vec<PathBuf>,
    /// Number of repetitions; the sides alternate within each [default: 3]
    #[arg(long)]
    repetitions: Option<usize>,
    #[command(flatten)]
    shared: SharedArgs,
}

/// A part of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Writes with scattered duplicates beside ext4, at full speed.
    Writes,
    /// The same on a slow device, and what the best choice within the budget would reach.
    Throttled,
    /// Times of single writes with O_DIRECT and O_SYNC, with 24 % duplicates.
    Latency,
    /// The run detector's share of the daemon's processor time.
    Detector,
    /// Cold reads of stitched files on a slow device.
    Stitched,
    /// Cold reads of a file of scattered blocks.
    Scattered,
    /// A second copy of a tree.
    Copies,
}

/// Raw readings of all parts.
#[derive(Default, Serialize)]
struct Readings {
    writes: Vec<write_reading::Reading>,
    throttled: Vec<write_reading::Reading>,
    latency: Vec<response::Reading>,
    detector: Vec<detector::Reading>,
    stitched: Vec<stitched::Reading>,
    scattered: Vec<scattered::Reading>,
    copies: Vec<copies::Reading>,
}

impl OnceArgs {
    fn file_bytes(&self) -> u64 {
        self.size.unwrap_or(if self.quick { QUICK_FILE_BYTES } else { FILE_BYTES })
    }

    fn rounds(&self) -> Rounds {
        self.shared.rounds(self.repetitions.unwrap_or(if self.quick { 1 } else { 3 }))
    }

    fn write_args(&self, throttled: bool) -> WriteArgs {
        let percents = self.duplicates.iter().map(|percent| usize::from(*percent)).collect();
        WriteArgs { file_bytes: self.file_bytes(), percents, throttled }
    }

    fn check(&self) -> Result<()> {
        // The files of several parts have half of it, in ten sources of pieces of up to 256 blocks.
        if !(24 << 20..=1 << 40).contains(&self.file_bytes()) {
            return Err(Failure::new("--size must be between 24M and 1T"));
        }
        Ok(())
    }
}

/// Runs the parts asked for and prints the page.
pub fn run(args: &OnceArgs) -> Result<()> {
    args.check()?;
    // Room for every file stored anew several times, for log and records, and for what mkfs leaves free.
    let (_work_directory, bench) = args.shared.begin(args.file_bytes() * 8 + (4 << 30), args)?;
    let mut readings = Readings::default();
    for part in &args.parts {
        println!("\n## {}", part.title());
        measure(*part, args, &bench, &mut readings)?;
    }
    println!("\n{}", machine::load_line());
    args.shared.write_json(&readings)
}

fn measure(part: Part, args: &OnceArgs, bench: &Bench, readings: &mut Readings) -> Result<()> {
    let rounds = args.rounds();
    match part {
        Part::Writes => readings.writes = writes::run(&args.write_args(false), rounds, bench)?,
        Part::Throttled => readings.throttled = writes::run(&args.write_args(true), rounds, bench)?,
        Part::Latency => readings.latency = latency(args, rounds, bench)?,
        Part::Detector => {
            let data = vec![Data::Unique, Data::Runs, Data::Scattered];
            let detector_args = DetectorArgs { write_size: args.file_bytes() / 2, data };
            readings.detector = detector::run(&detector_args, &profiles(), rounds, bench)?;
        }
        Part::Stitched => {
            let (stitched, readers) = (vec![Case::Server, Case::Desktop], vec![Reader::Own]);
            let stitched_args = StitchedArgs { size: args.file_bytes() / 2, stitched, readers };
            readings.stitched = stitched::run(&stitched_args, rounds, bench)?;
        }
        Part::Scattered => {
            let scattered_options = vec![String::new()];
            let scattered_args = ScatteredArgs { scattered_size: args.file_bytes(), scattered_options };
            readings.scattered = scattered::run(&scattered_args, rounds, bench)?;
        }
        Part::Copies => readings.copies = copies::run(&args.trees, args.file_bytes(), rounds, bench)?,
    }
    Ok(())
}

fn latency(args: &OnceArgs, rounds: Rounds, bench: &Bench) -> Result<Vec<response::Reading>> {
    let mounts = profiles();
    let aims: Vec<Aim> = mounts.iter().map(|mount| Aim::beside_off(&mount.name, LATENCY_PERCENT_MAX)).collect();
    let response_args =
        ResponseArgs { mixes: vec![Mix::Corporate], io: vec![Io::Direct, Io::Synced], throttled: false };
    let replay = ReplayArgs { replay_size: args.file_bytes() / 2, requests: if args.quick { 600 } else { 30_000 } };
    response::run(&response_args, (&mounts, &aims), &replay, rounds, bench)
}

impl Part {
    fn title(self) -> &'static str {
        match self {
            Part::Writes => "Writes with scattered duplicates, at full speed",
            Part::Throttled => "Writes with scattered duplicates, on a slow device",
            Part::Latency => "Times of single writes with 24 % duplicates",
            Part::Detector => "The detector's share of the daemon",
            Part::Stitched => "Stitched files, read on a slow device",
            Part::Scattered => "A file of scattered blocks, read at full speed",
            Part::Copies => "A second copy of everything",
        }
    }
}
