//! `oncefs-sim generate`: a trace with stated properties.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use oncefs_sim::{
    Copied, CopiedSpec, CopyTable, Distance, Event, Mixed, MixedSpec, Oracle, Source, TWINS, Truth, write_lines,
};
use oncefs_toolbox::Random;

use super::failure::{Failure, exit};
use super::input::FormatName;
use super::output::unless_closed;

const GENERATE_AFTER: &str = "\
Distances are in blocks: uniform:MAX, lognormal:MEDIAN:SIGMA (sigma of the natural logarithm), pareto:MIN:ALPHA.
What was asked for and what came out is printed to stderr.

Examples:
  oncefs-sim generate --duplicates 0.3 --overwrites 0.2 --reuse lognormal:20000:2 --output trace.txt
  oncefs-sim generate --twin 1 --scale 64 --output twin1.txt      SmartDedup's trace 1 at a 64th of its size
  oncefs-sim generate --copies dist_personalfiles --blocks 524288  DEDISbench's table, 2 GiB of it";

/// Arguments of `generate`.
#[derive(Debug, Args)]
#[command(after_help = GENERATE_AFTER)]
pub struct GenerateArgs {
    /// Blocks of 4096 bytes to write
    #[arg(long, default_value_t = 262_144)]
    pub blocks: u64,
    /// Share of blocks whose content was written before, 0 to 1
    #[arg(long, default_value_t = 0.25, value_name = "SHARE")]
    pub duplicates: f64,
    /// Share of blocks that go to an address written before, 0 to 1
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub overwrites: f64,
    /// How far back a duplicate's source lies
    #[arg(long, default_value = "lognormal:10000:2.8", value_name = "DISTANCE")]
    pub reuse: Distance,
    /// How long ago an overwritten address was written
    #[arg(long, default_value = "lognormal:16384:2.8", value_name = "DISTANCE")]
    pub age: Distance,
    /// Mean blocks of a run, which is new or a duplicate as a whole
    #[arg(long, default_value_t = 4.0, value_name = "BLOCKS")]
    pub run_blocks: f64,
    /// Blocks of a request at most
    #[arg(long, default_value_t = 32, value_name = "BLOCKS", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub request_blocks_max: u64,
    /// Days from the first write to the last
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    pub days: u64,
    /// The twin of this trace of SmartDedup's Table 1 instead, 1 to 6
    #[arg(long, value_name = "TRACE", value_parser = clap::value_parser!(u64).range(1..=6), conflicts_with = "copies")]
    pub twin: Option<u64>,
    /// Of the twin: one part in so many of the trace's size
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub scale: u64,
    /// Copies as in this table of DEDISbench's form: lines of EXTRA_COPIES CONTENTS
    #[arg(long, value_name = "FILE")]
    pub copies: Option<PathBuf>,
    /// Repeats a trace exactly
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How the trace is written
    #[arg(long, default_value = "fiu")]
    pub format: FormatName,
    /// Where to; - for stdout
    #[arg(long, short, default_value = "-", value_name = "FILE")]
    pub output: PathBuf,
}

/// Makes the trace and says what it is like.
pub fn run(arguments: &GenerateArgs) -> Result<(), Failure> {
    let mut source = source(arguments)?;
    let mut output = BufWriter::new(open(&arguments.output)?);
    let mut oracle = Oracle::default();
    let format = arguments.format.into();
    while let Some(event) = source.next().map_err(|e| Failure::with("the generator", e))? {
        if let Event::Write(write) = &event {
            oracle.write(write);
        }
        if let Err(error) = write_lines(&event, format, &mut output) {
            return ended(arguments, error);
        }
    }
    output.flush().or_else(|error| ended(arguments, error))?;
    eprintln!("{}", told(&oracle.truth()));
    Ok(())
}

fn ended(arguments: &GenerateArgs, error: io::Error) -> Result<(), Failure> {
    unless_closed(error).map_err(|e| Failure::with(arguments.output.display(), e))
}

fn told(truth: &Truth) -> String {
    let percent = |blocks| truth.percent_of_written(blocks);
    format!(
        "{} blocks: {:.2} % repeat a content, {:.2} % one that is still held; {:.2} % overwrite",
        truth.written,
        percent(truth.repeated),
        percent(truth.duplicates),
        percent(truth.written - truth.places_ever)
    )
}

fn source(arguments: &GenerateArgs) -> Result<Box<dyn Source>, Failure> {
    if let Some(path) = &arguments.copies {
        return copied(arguments, path);
    }
    let spec = match arguments.twin {
        Some(twin) => TWINS[twin as usize - 1].spec(arguments.scale, arguments.seed),
        None => MixedSpec {
            blocks: arguments.blocks,
            duplicates: arguments.duplicates,
            overwrites: arguments.overwrites,
            reuse: arguments.reuse,
            age: arguments.age,
            run_blocks: arguments.run_blocks,
            request_blocks_max: arguments.request_blocks_max,
            duration: duration(arguments),
            seed: arguments.seed,
        },
    };
    let mixed =
        Mixed::new(spec).map_err(|e| Failure::new(exit::USAGE, format!("{e}: see oncefs-sim generate --help")))?;
    Ok(Box::new(mixed))
}

fn copied(arguments: &GenerateArgs, path: &Path) -> Result<Box<dyn Source>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::with(path.display(), e))?;
    let whole = CopyTable::parse(&text).map_err(|e| Failure::with(path.display(), e))?;
    let table = whole.sampled(arguments.blocks, &mut Random::mixed(arguments.seed));
    let percent = |table: &CopyTable| 100.0 * table.duplicate_share();
    eprintln!("{}: {:.2} % duplicates, {:.2} % in the sample", path.display(), percent(&whole), percent(&table));
    let run_blocks = arguments.run_blocks as u64;
    let (reuse, seed, duration) = (arguments.reuse, arguments.seed, duration(arguments));
    Ok(Box::new(Copied::new(&CopiedSpec { table, reuse, run_blocks, duration, seed })))
}

fn duration(arguments: &GenerateArgs) -> Duration {
    Duration::from_secs(arguments.days * 86_400)
}

fn open(path: &Path) -> Result<Box<dyn std::io::Write>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(std::io::stdout().lock()));
    }
    let file = File::create(path).map_err(|e| Failure::with(path.display(), e))?;
    Ok(Box::new(file))
}
