//! `oncefs-sim twins`: the comparison of `docs/results/older/sim-smartdedup.md`.

use std::path::PathBuf;

use clap::Args;
use oncefs_sim::{Comparison, ComparisonOptions, Idle};

use super::failure::Failure;
use super::output::{print, write_plots};

const TWINS_AFTER: &str = "\
Traces, addresses, distances and memory are scaled alike: at scale 16 a memory of 1 MB is 64 KiB.
--quick takes traces 2 and 6 with 1, 8 and 40 MB.

Examples:
  oncefs-sim twins --quick
  oncefs-sim twins --plots docs/results/plots";

/// Arguments of `twins`.
#[derive(Debug, Args)]
#[command(after_help = TWINS_AFTER)]
pub struct TwinsArgs {
    /// Fewer traces and memories
    #[arg(long)]
    pub quick: bool,
    /// Traces of Table 1
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,5,6", value_name = "TRACE,...",
          value_parser = clap::value_parser!(u64).range(1..=6), conflicts_with = "quick")]
    pub traces: Vec<u64>,
    /// One part in so many of the traces' sizes, and of the memory
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub scale: u64,
    /// Memories to compare, in MB before they are scaled
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,40", value_name = "MB,...",
          value_parser = clap::value_parser!(u64).range(1..=1024), conflicts_with = "quick")]
    pub memory: Vec<u64>,
    /// When out-of-line work is done: after 1d, 6h, 30m of the trace or 5000r (requests)
    #[arg(long, default_value = "1h", value_name = "WHEN")]
    pub idle: Idle,
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
pub fn run(arguments: &TwinsArgs) -> Result<(), Failure> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let (traces, megabytes) = match arguments.quick {
        true => (vec![2, 6], vec![1, 8, 40]),
        false => (arguments.traces.iter().map(|trace| *trace as usize).collect(), arguments.memory.clone()),
    };
    let options = ComparisonOptions {
        traces,
        scale: arguments.scale,
        megabytes,
        percents: vec![10, 20],
        idle: arguments.idle,
        seed: arguments.seed,
        threads: arguments.threads.map_or(cpus, |threads| threads as usize),
    };
    let comparison = Comparison::run(options, &|what| eprintln!("{what}"));
    print(&told(&comparison))?;
    arguments.plots.as_deref().map_or(Ok(()), |dir| write_plots(comparison.plots(), dir))
}

fn told(comparison: &Comparison) -> String {
    let options = &comparison.options;
    let mut parts = vec![
        format!(
            "twins at 1/{} of the size, seed {}, out-of-line work: {:?}",
            options.scale, options.seed, options.idle
        ),
        "percentages are of the blocks written, unless their column says otherwise\n".to_owned(),
        format!("the twins\n{}", comparison.twins_table()),
        format!("eviction\n{}", comparison.evictions_table()),
    ];
    let sweeps = comparison.twins.iter().map(|result| (result.twin.trace, comparison.sweep_table(result)));
    parts.extend(sweeps.map(|(trace, table)| format!("trace {trace}, found in-line\n{table}")));
    parts.extend([
        format!("two levels and one\n{}", comparison.levels_table()),
        format!("index pages per 1000 blocks written\n{}", comparison.tree_table()),
        format!("shortest runs\n{}", comparison.runs_table()),
        format!("aims\n{}", comparison.verdicts_table()),
    ]);
    parts.join("\n")
}
