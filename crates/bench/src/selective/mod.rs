//! Files ranked by how they are used: what that saves, and what it costs readers, beside no deduplication, big chunks
//! for all files and small chunks for all files. The paper's figures 8 to 14.
//!
//! Two parts: the synthetic workloads of table 4, read 90 to 10 % sequentially, and files as people have them.

mod cases;
mod corpus;
mod counter;
mod plots;
mod reading;
mod real;
mod sizes;
mod synthetic;
mod tables;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::failure::{During, Failure, Result};
use crate::machine;
use crate::report::write_json;
use crate::run;
use cases::Case;
use workload::Duplicates;

/// What is written, read and measured.
#[derive(Args, Clone, Debug)]
pub struct SelectiveArgs {
    /// Small sizes, one repetition: shows that everything works, not how fast
    #[arg(long)]
    quick: bool,
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "synthetic,real")]
    parts: Vec<Part>,
    /// The mounts compared
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,big,small,selective")]
    cases: Vec<Case>,
    /// synthetic: the workloads of table 4
    #[arg(long, value_enum, value_delimiter = ',', default_value = "high,low")]
    workloads: Vec<Duplicates>,
    /// synthetic: percentages of the files that are read sequentially
    #[arg(long, value_delimiter = ',', default_value = "90,75,50,25,10")]
    sequential: Vec<usize>,
    /// Bytes of the synthetic files, and of the real ones at most [default: 2560M]
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse)]
    bytes: Option<u64>,
    /// Blocks read of a file that is read at random, at most
    #[arg(long, default_value_t = 256)]
    random_blocks_max: usize,
    /// real: files of a desktop user
    #[arg(long, default_value = "/usr")]
    desktop: Option<PathBuf>,
    /// real: files of a developer [default: none]
    #[arg(long)]
    developer: Option<PathBuf>,
    /// Memory of the daemon; little, so that it is the device that is measured
    #[arg(long, default_value = "64M")]
    memory: String,
    /// Repetitions, the mounts alternating within each
    #[arg(long, default_value_t = 1)]
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
    /// Write the charts to this directory
    #[arg(long)]
    plots: Option<PathBuf>,
}

/// A part of the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Table 4's workloads: figures 8 to 11.
    Synthetic,
    /// Copies of files that are there: figures 12 to 14 and table 6.
    Real,
}

/// Raw readings of all parts.
#[derive(Default, Serialize)]
struct Results {
    synthetic: synthetic::Results,
    real: real::Results,
}

impl SelectiveArgs {
    /// The paper's 2.5 GB, unless said otherwise.
    fn size(&self) -> u64 {
        self.bytes.unwrap_or(if self.quick { 64 << 20 } else { 2560 << 20 })
    }

    fn check(&self) -> Result<()> {
        if !(4 << 20..=1 << 40).contains(&self.size()) {
            return Err(Failure::new("--bytes must be between 4M and 1T"));
        }
        if self.repetitions == 0 || self.random_blocks_max == 0 || self.cases.is_empty() {
            return Err(Failure::new(
                "--repetitions, --random-blocks-max and the number of --cases must be at least 1",
            ));
        }
        match self.sequential.iter().all(|percent| (1..=99).contains(percent)) {
            true => Ok(()),
            false => Err(Failure::new("--sequential takes percentages from 1 to 99")),
        }
    }

    fn device_bytes(&self) -> u64 {
        // The volume has three quarters, of which nothing but the unique blocks is used; log and records are besides.
        self.size() * 4 + (3 << 30)
    }

    /// A seed for each repetition.
    fn seed_of(&self, repetition: usize) -> u64 {
        self.seed.wrapping_add((repetition as u64) << 8)
    }

    /// What tests use where the values do not matter.
    #[cfg(test)]
    fn of_tests() -> SelectiveArgs {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: SelectiveArgs,
        }
        <Line as clap::Parser>::parse_from(["selective", "--sequential=90,10"]).args
    }
}

/// Runs the parts asked for, prints their tables and writes readings and charts.
pub fn run(args: &SelectiveArgs) -> Result<()> {
    args.check()?;
    let (_work_directory, bench) = run::begin(&args.dir, args.oncefs.clone(), args.device_bytes(), args)?;
    let mut results = Results::default();
    for part in args.parts.iter().copied() {
        let began = Instant::now();
        match part {
            Part::Synthetic => results.synthetic = synthetic::run(args, &bench)?,
            Part::Real => results.real = real::run(args, &bench)?,
        }
        println!("part {part:?}: {:.0} s", began.elapsed().as_secs_f64());
    }
    println!("\n{}", machine::load_line());
    args.json.as_deref().map_or(Ok(()), |path| write_json(path, &results))?;
    args.plots.as_deref().map_or(Ok(()), |directory| write_plots(directory, args, &results))
}

fn write_plots(directory: &Path, args: &SelectiveArgs, results: &Results) -> Result<()> {
    fs::create_dir_all(directory).during(|| format!("cannot create {}", directory.display()))?;
    for (name, svg) in plots::plots(args, results) {
        let path = directory.join(name);
        fs::write(&path, svg).during(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
