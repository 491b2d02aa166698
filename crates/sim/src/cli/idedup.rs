//! `oncefs-sim idedup`: the experiments of `docs/sim.md` on runs.

use std::path::PathBuf;

use clap::Args;
use oncefs_sim::{Idedup, IdedupOptions};

use super::failure::Failure;
use super::{print, write_plots};

const IDEDUP_AFTER: &str = "\
Traces, distances and memory are scaled alike; files keep their sizes.
--quick takes twins of a 512th; their files are too few for the figures to mean much.

Examples:
  oncefs-sim idedup --quick
  oncefs-sim idedup --plots docs/plots";

/// Of the traces' sizes, with --quick.
const QUICK_SCALE: u64 = 512;

/// Arguments of `idedup`.
#[derive(Debug, Args)]
#[command(after_help = IDEDUP_AFTER)]
pub struct IdedupArgs {
    /// Smaller twins
    #[arg(long)]
    pub quick: bool,
    /// One part in so many of the traces' sizes, and of the memory
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=512),
          conflicts_with = "quick")]
    pub scale: u64,
    /// Of the twins
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Replays at the same time [default: as many as there are CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub threads: Option<u64>,
    /// Write charts into this directory
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
}

/// Replays everything, prints the tables, writes the charts.
pub fn run(arguments: &IdedupArgs) -> Result<(), Failure> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let options = IdedupOptions {
        scale: if arguments.quick { QUICK_SCALE } else { arguments.scale },
        seed: arguments.seed,
        threads: arguments.threads.map_or(cpus, |threads| threads as usize),
    };
    let idedup = Idedup::run(options, &|what| eprintln!("{what}"));
    print(&told(&idedup))?;
    arguments.plots.as_deref().map_or(Ok(()), |dir| write_plots(idedup.plots(), dir))
}

fn told(idedup: &Idedup) -> String {
    let options = &idedup.options;
    let (scale, phone_scale) = (options.scale, options.phone_scale());
    let head = format!("twins at 1/{scale} of the size, trace 6 at 1/{phone_scale}, seed {}\n", options.seed);
    let parts = [
        head,
        format!("the twins\n{}", idedup.twins_table()),
        format!("found in-line, % of the blocks written (figure 7)\n{}", idedup.found_table()),
        format!("two levels, % of the blocks written\n{}", idedup.levels_table()),
        format!("disk requests by their blocks, % (figure 8)\n{}", idedup.requests_table()),
        format!("response times on the disk, % of the requests (figure 9)\n{}", idedup.responses_table()),
        format!("work of the detector per 1000 blocks written (figure 10)\n{}", idedup.work_table()),
        format!("buffer cache hits, % of the blocks read, threshold 4 (section 5.7)\n{}", idedup.buffer_table()),
        format!("trace 6 (SmartDedup's figure 12)\n{}", idedup.phone_table()),
        format!("savings lost and read time added, % (with extension)\n{}", idedup.costs_table()),
        format!("aims\n{}", idedup.verdicts_table()),
    ];
    parts.join("\n")
}
