//! `oncefs stats`: ten lines about a mounted volume, all its figures, or their meanings.

mod details;
pub mod fragmentation;
mod history;
pub mod summary;

pub use details::{microseconds, percent};

use std::path::PathBuf;

use clap::Args;

use crate::control::target::Daemon;
use crate::failure::Outcome;
use crate::figures::of_mount::Snapshot;
use crate::figures::{explain, json, schema};
use crate::names;
use crate::text::unix_seconds;

/// Arguments of `stats`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oncefs stats /mnt
  oncefs stats /mnt -v                                     stages, caches, counters and settings too
  oncefs stats --explain 'to look at'                      what a line or a figure means; without a name all of them
  oncefs stats /mnt --json
  oncefs stats /mnt --history                              over time, and when the volume is full
  oncefs stats /mnt --fragmentation                        how fragmented the files are: reads all their maps
  oncefs stats /mnt --fragmentation --plot runs.svg")]
pub struct StatsArgs {
    /// Any path inside a mount, or the volume
    #[arg(required_unless_present_any = ["explain", "schema"])]
    pub target: Option<PathBuf>,
    /// Show all figures
    #[arg(short, long, conflicts_with_all = ["json", "fragmentation"])]
    pub verbose: bool,
    /// Print all figures as JSON
    #[arg(long)]
    pub json: bool,
    /// Say what a figure means, or what all of them mean
    #[arg(long, value_name = "NAME", num_args = 0..=1, conflicts_with_all = ["target", "json", "fragmentation"])]
    pub explain: Option<Option<String>>,
    /// Print the schema of the JSON
    #[arg(long, conflicts_with_all = ["target", "json", "explain", "fragmentation", "verbose"])]
    pub schema: bool,
    /// Show instead how many runs the files have, how long these are, and how much of them is shared
    #[arg(long, alias = "layout")]
    pub fragmentation: bool,
    /// Show instead how the volume grew, and when it is full
    #[arg(long, conflicts_with_all = ["verbose", "fragmentation", "explain", "schema"])]
    pub history: bool,
    /// Draw the lengths of runs as a picture in this file
    #[arg(long, value_name = "FILE.svg", requires = "fragmentation")]
    pub plot: Option<PathBuf>,
}

/// Shows a volume's figures.
pub fn run(arguments: StatsArgs) -> Outcome {
    if arguments.schema {
        say!("{}", names::json(&schema::document()));
    }
    if let Some(name) = &arguments.explain {
        put!("{}", explain::text(name.as_deref())?);
    }
    let Some(target) = &arguments.target else { return Ok(()) };
    let daemon = Daemon::find(target)?;
    if arguments.fragmentation {
        return fragmentation::run(&daemon, arguments.plot.as_deref(), arguments.json);
    }
    let snapshot = Snapshot::take(&daemon)?;
    if arguments.history {
        return history::run(&snapshot, arguments.json, unix_seconds());
    }
    if arguments.json {
        say!("{}", names::json(&json::document(&snapshot)));
        return Ok(());
    }
    put!("{}", summary::text(&snapshot));
    if arguments.verbose {
        put!("\n{}", details::text(&snapshot));
    }
    Ok(())
}
