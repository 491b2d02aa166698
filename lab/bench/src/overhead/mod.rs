//! Measures what ranking files by use costs programs: the paper's figures 15 to 17.
//!
//! Four parts: tar, untar, grep and cp of a source tree; Filebench's web server; the web server and a CPU-bound load
//! while the worker runs; and how soon the worker stops when a program reads.

mod args;
mod beside;
mod comparison;
mod utilities;
mod webserver;
mod yielding;

use std::time::Instant;

use serde::Serialize;

use crate::failure::Result;
use crate::machine;
pub use args::OverheadArgs;
use args::Part;

/// Raw readings of all parts.
#[derive(Default, Serialize)]
struct Results {
    utilities: Vec<comparison::Reading>,
    webserver: Vec<comparison::Reading>,
    beside: Vec<comparison::Reading>,
    yielding: Vec<yielding::Reading>,
}

/// Runs the parts asked for and prints their tables.
pub fn run(args: &OverheadArgs) -> Result<()> {
    args.check()?;
    let (_work_directory, bench) = args.shared.begin(args.device_bytes(), args)?;
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
    args.shared.write_json(&results)
}
