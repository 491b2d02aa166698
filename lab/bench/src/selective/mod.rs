//! Measures what ranking files by use saves and costs readers: the paper's figures 3 and 8 to 14.
//!
//! It is compared with no deduplication, big chunks for all files, and small chunks for all files. Its parts: the
//! synthetic workloads of table 4, read 90 to 10 % sequentially; real files; and chunks of all lengths.

mod args;
mod cases;
mod chunks;
mod corpus;
mod counter;
mod plots;
mod reading;
mod real;
mod sizes;
mod synthetic;
mod tables;
mod user;
mod workload;

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::failure::{During, Result};
use crate::machine;
use crate::side::Bench;
use args::Part;
pub use args::SelectiveArgs;

/// Raw readings of all parts.
#[derive(Default, Serialize)]
struct Results {
    synthetic: synthetic::Results,
    real: real::Results,
    chunks: chunks::Results,
}

/// Runs the parts asked for, prints their tables and writes readings and charts.
pub fn run(args: &SelectiveArgs) -> Result<()> {
    args.check()?;
    let (_work_directory, bench) = args.shared.begin(args.device_bytes(), args)?;
    let mut results = Results::default();
    for part in args.parts.iter().copied() {
        let began = Instant::now();
        match part {
            Part::Synthetic => measure_synthetic(args, &bench, &mut results.synthetic)?,
            Part::Real => measure_real(args, &bench, &mut results.real)?,
            Part::Chunks => chunks::measure(args, &bench, &mut results.chunks)?,
            Part::Blocks => chunks::count(args, &mut results.chunks)?,
        }
        println!("part {part:?}: {:.0} s", began.elapsed().as_secs_f64());
    }
    println!("\n{}", machine::load_line());
    args.shared.write_json(&results)?;
    args.plots.as_deref().map_or(Ok(()), |directory| write_plots(directory, args, &results))
}

/// Measures every workload on every mount, and prints the tables.
fn measure_synthetic(args: &SelectiveArgs, bench: &Bench, results: &mut synthetic::Results) -> Result<()> {
    for duplicates in args.workloads.iter().copied() {
        synthetic::measure(args, bench, duplicates, results)?;
        println!("{}", tables::synthetic(duplicates, args, results));
    }
    Ok(())
}

/// Measures the files of every user asked for who has a directory, and prints the tables.
fn measure_real(args: &SelectiveArgs, bench: &Bench, results: &mut real::Results) -> Result<()> {
    for user in args.users.iter().copied() {
        let Some(directory) = args.directory_of(user) else { continue };
        real::measure(args, bench, user, directory, results)?;
        println!("{}", tables::real(user, args, results));
    }
    Ok(())
}

fn write_plots(directory: &Path, args: &SelectiveArgs, results: &Results) -> Result<()> {
    fs::create_dir_all(directory).during(|| format!("cannot create {}", directory.display()))?;
    for (name, svg) in plots::plots(args, &results.synthetic, &results.real) {
        let path = directory.join(name);
        fs::write(&path, svg).during(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
