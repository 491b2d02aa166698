//! Arguments of the subcommand `overhead`: its parts, and how much each of them does.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, Result};
use crate::shared_args::{Rounds, SharedArgs};

/// Arguments: the parts to measure, and how much each does.
#[derive(Args, Clone, Debug)]
pub struct OverheadArgs {
    /// Small sizes, one repetition: shows that everything works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Parts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "utilities,webserver,beside,yield")]
    pub parts: Vec<Part>,
    /// utilities: a source tree [default: a generated one]
    #[arg(long)]
    pub source: Option<PathBuf>,
    /// utilities: number of files in the generated tree [default: 20000]
    #[arg(long)]
    tree_files: Option<usize>,
    /// webserver and beside: seconds of each measurement [default: 20]
    #[arg(long)]
    seconds: Option<u64>,
    /// webserver: number of threads
    #[arg(long, default_value_t = 100)]
    pub threads: usize,
    /// beside and yield: bytes that the worker has to process [default: 2560M]
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse)]
    backlog: Option<u64>,
    /// yield: number of requests that the worker must yield to [default: 20]
    #[arg(long)]
    trials: Option<usize>,
    /// Profile of all mounts
    #[arg(long, default_value = "desktop")]
    pub profile: String,
    /// Number of repetitions; the mounts alternate within each [default: 5]
    #[arg(long)]
    repetitions: Option<usize>,
    #[command(flatten)]
    pub shared: SharedArgs,
}

/// A part of the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// tar, untar, grep and cp of a source tree, with and without monitor and queues.
    Utilities,
    /// Filebench's web server, with and without monitor and queues.
    Webserver,
    /// Filebench's web server and a CPU-bound load, with and without the worker at work.
    Beside,
    /// Time from a program's first request to the worker's last.
    Yield,
}

impl OverheadArgs {
    fn preset<T>(&self, given: Option<T>, quick: T, full: T) -> T {
        given.unwrap_or(if self.quick { quick } else { full })
    }

    /// Repetitions of each measurement.
    pub fn repetitions(&self) -> usize {
        self.preset(self.repetitions, 1, 5)
    }

    /// Number of files in the generated tree.
    pub fn tree_files(&self) -> usize {
        self.preset(self.tree_files, 300, 20_000)
    }

    /// Seconds of each measurement.
    pub fn seconds(&self) -> u64 {
        self.preset(self.seconds, 1, 20)
    }

    /// Bytes that the worker has to process.
    pub fn backlog(&self) -> u64 {
        self.preset(self.backlog, 64 << 20, 2560 << 20)
    }

    /// Number of requests that the worker must yield to.
    pub fn trials(&self) -> usize {
        self.preset(self.trials, 2, 20)
    }

    /// Refuses numbers that measure nothing.
    pub fn check(&self) -> Result<()> {
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

    /// Bytes of each loop device.
    pub fn device_bytes(&self) -> u64 {
        // The tree, its archive and its copy; sparse, so that more costs nothing.
        self.backlog() * 4 + (16 << 30)
    }

    /// The repetitions with their seeds.
    pub fn rounds(&self) -> Rounds {
        self.shared.rounds(self.repetitions())
    }
}
