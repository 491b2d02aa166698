//! `oncefs-sim ranks`: how files would be ranked, and what that saves.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use oncefs_dedup::RankRule;
use oncefs_sim::{RankedCorpus, RanksOptions, ranks_table, runs_table};

use super::corpus;
use super::failure::{Failure, exit};
use super::input::FormatName;
use super::output::print;

const RANKS_AFTER: &str = "\
Ranks are those that monitor and ranker of a mount would have given, had it seen the trace's requests and no others.
A directory is taken as 'record' records it: of each file the last write and the last read are known, and a read is
from the beginning to the end. So rank 2 cannot come out of a directory; the last column says what would be saved if
all files of rank 1 were of rank 2. Savings are percent of the blocks that files hold at the end, every holder known.

Examples:
  oncefs-sim ranks /usr ~/src
  oncefs-sim ranks developer.txt --evaluation-reads-min 1";

/// Arguments of `ranks`.
#[derive(Debug, Args)]
#[command(after_help = RANKS_AFTER)]
pub struct RanksArgs {
    /// Directories, or traces; one row each
    #[arg(required = true, value_name = "DIR|TRACE")]
    pub corpora: Vec<PathBuf>,
    /// How traces are written
    #[arg(long, default_value = "fiu")]
    pub format: FormatName,
    /// A file not accessed for so long is cold
    #[arg(long, value_name = "SECONDS", default_value_t = RankRule::default().hot_seconds_max)]
    pub hot_seconds_max: u32,
    /// A file is judged so long after it was written
    #[arg(long, value_name = "SECONDS", default_value_t = RankRule::default().evaluation_seconds_min)]
    pub evaluation_seconds_min: u32,
    /// A file of which fewer blocks were read is not judged before it is cold
    #[arg(long, value_name = "BLOCKS", default_value_t = RankRule::default().evaluation_reads_min)]
    pub evaluation_reads_min: u32,
    /// Ranks so long after the last request [default: as long as files are evaluated]
    #[arg(long, value_name = "SECONDS")]
    pub after_seconds: Option<u32>,
}

/// Ranks every corpus and prints the table.
pub fn run(arguments: &RanksArgs) -> Result<(), Failure> {
    let &RanksArgs { hot_seconds_max, evaluation_seconds_min, evaluation_reads_min, .. } = arguments;
    let rule = RankRule { hot_seconds_max, evaluation_seconds_min, evaluation_reads_min };
    rule.check().map_err(|error| Failure::new(exit::USAGE, format!("{error}: see oncefs-sim ranks --help")))?;
    let after = arguments.after_seconds.unwrap_or(evaluation_seconds_min);
    let options = RanksOptions { rule, after: Duration::from_secs(u64::from(after)) };
    let mut corpora = Vec::new();
    for path in &arguments.corpora {
        let recording = corpus::recording(path, arguments.format)?;
        corpora.push(RankedCorpus::of(corpus::name(path), &recording, &options));
    }
    print(&format!(
        "ranks and savings (Selective's table 6)\n{}\nsaved by shortest run, all files alike, %\n{}",
        ranks_table(&corpora),
        runs_table(&corpora)
    ))
}
