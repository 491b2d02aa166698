//! `oncefs-sim idedup`: the experiments of `docs/results/older/sim-idedup.md`.

use std::path::PathBuf;

use clap::Args;
use oncefs_sim::{FilerResult, Filers, Idedup, IdedupOptions};

use super::corpus;
use super::failure::Failure;
use super::input::FormatName;
use super::output::{print, write_plots};

const IDEDUP_AFTER: &str = "\
Traces, distances and memory are scaled alike; files keep their sizes.
--quick takes twins of a 512th; their files are too few for the figures to mean much.
A directory is taken as 'record' records it. A corpus's memory is to it what the paper's is to the Corporate trace.

Examples:
  oncefs-sim idedup --quick
  oncefs-sim idedup --plots docs/results/plots
  oncefs-sim idedup --corpus /usr --corpus developer.txt";

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
    /// This directory or trace instead of twins; repeat for several
    #[arg(long = "corpus", value_name = "DIR|TRACE", conflicts_with_all = ["quick", "scale", "seed"])]
    pub corpora: Vec<PathBuf>,
    /// How traces are written
    #[arg(long, default_value = "fiu", requires = "corpora")]
    pub format: FormatName,
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
    let threads = arguments.threads.map_or(cpus, |threads| threads as usize);
    let (tables, plots) =
        if arguments.corpora.is_empty() { run_twins(arguments, threads) } else { run_corpora(arguments, threads)? };
    print(&tables)?;
    arguments.plots.as_deref().map_or(Ok(()), |dir| write_plots(plots, dir))
}

/// Tables as text, and charts by the names of their files.
type Told = (String, Vec<(String, String)>);

fn run_twins(arguments: &IdedupArgs, threads: usize) -> Told {
    let scale = if arguments.quick { QUICK_SCALE } else { arguments.scale };
    let options = IdedupOptions { scale, seed: arguments.seed, threads };
    let idedup = Idedup::run(options, &|what| eprintln!("{what}"));
    (told(&idedup), idedup.plots())
}

fn run_corpora(arguments: &IdedupArgs, threads: usize) -> Result<Told, Failure> {
    let mut filers = Filers(Vec::new());
    for path in &arguments.corpora {
        let recording = corpus::recording(path, arguments.format)?;
        filers.0.push(FilerResult::of(corpus::name(path), &recording, threads, &|what| eprintln!("{what}")));
    }
    let head: Vec<String> = filers.0.iter().map(corpus_told).collect();
    let aims = format!("aims\n{}", filers.verdicts_table());
    let parts: Vec<String> = std::iter::once(head.concat()).chain(shared_tables(&filers)).chain([aims]).collect();
    Ok((parts.join("\n"), filers.plots()))
}

fn corpus_told(filer: &FilerResult) -> String {
    let FilerResult { name, scale, truth, made, .. } = filer;
    let duplicates = truth.percent_of_written(truth.duplicates);
    format!(
        "{name}: {} blocks written, {duplicates:.2} % of them duplicates, {} read; 1/{scale} of the memory\n",
        truth.written, made.read_blocks
    )
}

/// What there is of twins and corpora.
fn shared_tables(filers: &Filers) -> [String; 8] {
    [
        format!("found in-line, % of the blocks written (figure 7)\n{}", filers.found_table()),
        format!("two levels, % of the blocks written\n{}", filers.levels_table()),
        format!("disk requests by their blocks, % (figure 8)\n{}", filers.requests_table()),
        format!("response times on the disk, % of the requests (figure 9)\n{}", filers.responses_table()),
        format!("work of the detector per 1000 blocks written (figure 10)\n{}", filers.work_table()),
        format!("buffer cache hits, % of the blocks read, threshold 4 (section 5.7)\n{}", filers.buffer_table()),
        format!("savings lost and read time added, % (with extension)\n{}", filers.costs_table()),
        format!("within the budget of profile desktop\n{}", filers.budget_table()),
    ]
}

fn told(idedup: &Idedup) -> String {
    let options = &idedup.options;
    let (scale, phone_scale) = (options.scale, options.phone_scale());
    let head = format!("twins at 1/{scale} of the size, trace 6 at 1/{phone_scale}, seed {}\n", options.seed);
    let [found, levels, requests, responses, work, buffer, costs, budget] = shared_tables(&idedup.filers);
    let twins = format!("the twins\n{}", idedup.twins_table());
    let phone = format!("trace 6 (SmartDedup's figure 12)\n{}", idedup.phone_table());
    let aims = format!("aims\n{}", idedup.verdicts_table());
    [head, twins, found, levels, requests, responses, work, buffer, phone, costs, budget, aims].join("\n")
}
