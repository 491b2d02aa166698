//! A volume in objects of a Ceph cluster, beside what the same cluster does without oncefs.
//!
//! The output is a page in Markdown, `docs/results/beyond.md`.

mod args;
mod cluster;
mod forecast;
mod measure;
mod mounted;
mod page;
mod part;
mod reading;
mod round;
mod space;
mod speed;
mod steps;

pub use args::BeyondArgs;

use crate::failure::{During, Result};
use crate::origin::Origin;
use crate::progress::Progress;
use cluster::Cluster;
use measure::measure;
use reading::Readings;
use round::Round;

/// Measures all parts, prints the page, and writes it to the file that was named.
pub fn run(args: &BeyondArgs) -> Result<()> {
    args.check()?;
    let cluster = Cluster::of_environment(&args.pool, args.data_pool.as_deref())?;
    let (_work_directory, bench) = args.shared.begin(0, args)?;
    // Begun before the run, so that it names the commit that was measured.
    let origin = Origin::begin(&bench.oncefs)?;
    let mut readings = Readings::default();
    let rounds: Vec<(usize, u64)> = args.shared.rounds(args.repetitions).iter().collect();
    let progress = Progress::new(rounds.len() * args.parts.len());
    for (repetition, seed) in rounds {
        for part in &args.parts {
            progress.say(format!("{part:?}, repetition {repetition}"));
            let round = Round { args, bench: &bench, cluster: &cluster, repetition, seed };
            measure(*part, &round, &mut readings)?;
            progress.step();
            // After each round, so that a run that is ended leaves what it has measured.
            write_page(args, &origin, &cluster, &readings)?;
        }
    }
    drop(progress);
    println!("\n{}", page::text(args, &origin, &cluster, &readings));
    args.shared.write_json(&readings)
}

fn write_page(args: &BeyondArgs, origin: &Origin, cluster: &Cluster, readings: &Readings) -> Result<()> {
    let Some(file) = &args.page else { return Ok(()) };
    let text = page::text(args, origin, cluster, readings);
    std::fs::write(file, text).during(|| format!("cannot write {}", file.display()))
}
