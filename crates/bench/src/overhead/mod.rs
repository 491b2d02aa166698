//! What ranking files by use costs programs: the monitor and the queues on every request, and the worker beside others.
//! The paper's figures 15 to 17.
//!
//! Four parts: tar, untar, grep and cp of a source tree; the web server's shape of Filebench; that shape and a
//! CPU-bound load while the worker runs; and how soon the worker stops when a program reads.

mod beside;
mod comparison;
mod utilities;
mod webserver;
mod yielding;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use oncefs_toolbox::sizes;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::machine;
use crate::report::write_json;
use crate::run;

/// What is run and measured.
#[derive(Args, Clone, Debug)]
pub struct OverheadArgs {
    /// Small sizes, one repetition: shows that everything works, not how fast
    #[arg(long)]
    quick: bool,
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "utilities,webserver,beside,yield")]
    parts: Vec<Part>,
    /// utilities: a source tree [default: one is made]
    #[arg(long)]
    source: Option<PathBuf>,
    /// utilities: files of the tree that is made [default: 20000]
    #[arg(long)]
    tree_files: Option<usize>,
    /// webserver and beside: seconds of each measurement [default: 20]
    #[arg(long)]
    seconds: Option<u64>,
    /// webserver: threads
    #[arg(long, default_value_t = 100)]
    threads: usize,
    /// beside and yield: bytes that the worker is given to look at [default: 2560M]
    #[arg(long, value_parser = sizes::parse)]
    backlog: Option<u64>,
    /// yield: requests behind which the worker shall stop [default: 20]
    #[arg(long)]
    trials: Option<usize>,
    /// Profile of all mounts
    #[arg(long, default_value = "desktop")]
    profile: String,
    /// Repetitions, the mounts alternating within each [default: 5]
    #[arg(long)]
    repetitions: Option<usize>,
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
    /// tar, untar, grep and cp of a source tree, with and without monitor and queues.
    Utilities,
    /// Filebench's web server, with and without monitor and queues.
    Webserver,
    /// Filebench's web server and a CPU-bound load, with and without the worker at work.
    Beside,
    /// Time from a program's first request to the worker's last.
    Yield,
}

/// Raw readings of all parts.
#[derive(Default, Serialize)]
struct Results {
    utilities: Vec<comparison::Reading>,
    webserver: Vec<comparison::Reading>,
    beside: Vec<comparison::Reading>,
    yielding: Vec<yielding::Reading>,
}

impl OverheadArgs {
    fn preset<T>(&self, given: Option<T>, quick: T, full: T) -> T {
        given.unwrap_or(if self.quick { quick } else { full })
    }

    fn repetitions(&self) -> usize {
        self.preset(self.repetitions, 1, 5)
    }

    fn tree_files(&self) -> usize {
        self.preset(self.tree_files, 300, 20_000)
    }

    fn seconds(&self) -> u64 {
        self.preset(self.seconds, 1, 20)
    }

    fn backlog(&self) -> u64 {
        self.preset(self.backlog, 64 << 20, 2560 << 20)
    }

    fn trials(&self) -> usize {
        self.preset(self.trials, 2, 20)
    }

    fn check(&self) -> Result<()> {
        let numbers = [self.repetitions(), self.tree_files(), self.threads, self.trials(), self.seconds() as usize];
        if numbers.contains(&0) {
            return Err(Failure::new(
                "--repetitions, --tree-files, --threads, --trials and --seconds must be at least 1",
            ));
        }
        match (16 << 20..=1 << 40).contains(&self.backlog()) {
            true => Ok(()),
            false => Err(Failure::new("--backlog must be between 16M and 1T")),
        }
    }

    fn device_bytes(&self) -> u64 {
        // The tree, its archive and its copy; sparse, so that more costs nothing.
        self.backlog() * 4 + (16 << 30)
    }

    /// A seed for each repetition.
    fn seed_of(&self, repetition: usize) -> u64 {
        self.seed.wrapping_add((repetition as u64) << 8)
    }
}

/// Runs the parts asked for and prints their tables.
pub fn run(args: &OverheadArgs) -> Result<()> {
    args.check()?;
    let (_work_directory, bench) = run::begin(&args.dir, args.oncefs.clone(), args.device_bytes(), args)?;
    let mut results = Results::default();
    for part in args.parts.iter().copied() {
        let began = Instant::now();
        match part {
            Part::Utilities => results.utilities = utilities::run(args, &bench)?,
            Part::Webserver => results.webserver = webserver::run(args, &bench)?,
            Part::Beside => results.beside = beside::run(args, &bench)?,
            Part::Yield => results.yielding = yielding::run(args, &bench)?,
        }
        println!("part {part:?}: {:.0} s", began.elapsed().as_secs_f64());
    }
    println!("\n{}", machine::load_line());
    args.json.as_deref().map_or(Ok(()), |path| write_json(path, &results))
}
