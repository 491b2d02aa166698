//! `oncefs-sim replay`: what each design finds in a trace.

use std::path::PathBuf;

use clap::Args;
use oncefs_sim::{Design, DesignChoice, Idle, Oracle, Outcome, Reader, Settings, Threshold, Truth, replay};
use oncefs_toolbox::{Table, sizes};

use super::failure::Failure;
use super::input::{FormatName, open};
use super::output::print;

/// Arguments of `replay`.
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub struct ReplayArgs {
    /// The trace; - for stdin
    pub trace: PathBuf,
    /// How the trace is written
    #[arg(long, default_value = "fiu")]
    pub format: FormatName,
    /// Memory for finding duplicates
    #[arg(long, default_value = "3.5M", value_name = "SIZE", value_parser = memory)]
    pub memory: u64,
    /// A design, see below; repeat for several [default: oncefs, lru, caftl, dmdedup]
    #[arg(long = "design", value_name = "NAME")]
    pub designs: Vec<DesignChoice>,
    /// When out-of-line work is done: after 1d, 6h, 30m of the trace or 5000r (requests); always at the end, or never
    #[arg(long, default_value = "1d", value_name = "WHEN")]
    pub idle: Idle,
    /// Shortest run of blocks worth sharing (oncefs)
    #[arg(long, default_value_t = 1, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub run_blocks_min: u32,
    /// Leading bits of the tag that make a group (oncefs) [default: from the memory]
    #[arg(long, value_name = "BITS", value_parser = clap::value_parser!(u32).range(8..=24))]
    pub prefix_bits: Option<u32>,
}

/// More than a design is ever given, and so little that no sum of sizes overflows.
const MEMORY_BYTES_MAX: u64 = 1 << 50;

fn memory(text: &str) -> Result<u64, String> {
    match sizes::parse(text)? {
        bytes if bytes < MEMORY_BYTES_MAX => Ok(bytes),
        _ => Err(format!("'{text}' is too much memory to model: give less than 1P")),
    }
}

fn after_help() -> String {
    let designs: Vec<String> = DesignChoice::ALL.iter().map(|(_, name, what)| format!("  {name:<22} {what}")).collect();
    format!(
        "Designs:\n{}\n\nThe trace is read line by line. Memory is taken for the oracle and the volumes: some 200 bytes for \
         every block that is live at a time.\n\n{}\n\nExamples:
  oncefs-sim replay homes.1.blkparse --memory 3.5M
  oncefs-sim replay trace.txt --format four --design oncefs --design oncefs-inline --idle 5000r
  zcat mail-01.gz | oncefs-sim replay - --design oncefs --run-blocks-min 4",
        designs.join("\n"),
        sizes::HELP
    )
}

/// Replays the trace once, through all designs at the same time.
pub fn run(arguments: &ReplayArgs) -> Result<(), Failure> {
    let default = [DesignChoice::Oncefs, DesignChoice::Lru, DesignChoice::Caftl, DesignChoice::Dmdedup];
    let choices = if arguments.designs.is_empty() { &default[..] } else { &arguments.designs };
    let ReplayArgs { memory, prefix_bits, run_blocks_min, .. } = *arguments;
    let threshold = Threshold::Fixed(run_blocks_min);
    let settings = Settings { memory, directory_beside: false, prefix_bits, threshold, extends: false };
    let mut designs: Vec<Box<dyn Design>> = choices.iter().map(|choice| choice.build(settings)).collect();
    let mut borrowed: Vec<&mut dyn Design> = designs.iter_mut().map(|design| &mut **design as _).collect();
    let mut oracle = Oracle::default();
    let mut reader = Reader::new(open(&arguments.trace)?, arguments.format.into());
    let replayed = replay(&mut reader, &mut borrowed, Some(&mut oracle), arguments.idle);
    let requests = replayed.map_err(|e| Failure::with(arguments.trace.display(), e))?;
    if requests.writes == 0 {
        let message = format!("no write request in {} lines: is --format right?", reader.lines());
        return Err(Failure::with(arguments.trace.display(), message));
    }
    let truth = oracle.truth();
    let outcomes = choices.iter().zip(&designs).map(|(choice, design)| (choice.name(), design.outcome()));
    let head = format!("{} write requests, {} read requests", requests.writes, requests.reads);
    print(&format!("{head}\n{}\n{}", told(&truth), table(&truth, outcomes)))
}

fn told(truth: &Truth) -> String {
    let percent = |blocks| truth.percent_of_written(blocks);
    let Truth { written, zeros, repeated, duplicates, same_place, contents_max, places, contents, .. } = *truth;
    format!(
        "{written} blocks written, {zeros} of them zeros\n\
         {repeated} ({:.2} %) repeat a content written before\n\
         {duplicates} ({:.2} %) repeat one that is still held: these can be found\n\
         {same_place} ({:.2} %) repeat what their own place holds\n\
         {contents_max} different contents at most at a time\n\
         {places} places hold {contents} different contents at the end\n",
        percent(repeated),
        percent(duplicates),
        percent(same_place)
    )
}

/// One row per design.
fn table<'a>(truth: &Truth, outcomes: impl Iterator<Item = (&'a str, Outcome)>) -> Table {
    let head = [
        "design",
        "in-line",
        "%",
        "later",
        "of findable %",
        "memory KiB",
        "entries",
        "disk reads",
        "disk writes",
        "B/demoted",
        "refused",
        "stored",
        "of exact's saving %",
        "extents",
    ];
    let mut table = Table::new(&head);
    for (name, outcome) in outcomes {
        let of_findable = 100.0 * outcome.found() as f64 / truth.duplicates.max(1) as f64;
        table.row(vec![
            name.to_owned(),
            outcome.found_inline.to_string(),
            format!("{:.2}", truth.percent_of_written(outcome.found_inline)),
            outcome.found_out_of_line.to_string(),
            format!("{of_findable:.2}"),
            (outcome.memory_bytes / 1024).to_string(),
            outcome.entries.to_string(),
            outcome.disk_reads.to_string(),
            outcome.disk_writes.to_string(),
            format!("{:.1}", outcome.bytes_per_demoted()),
            outcome.refused.to_string(),
            outcome.stored.to_string(),
            format!("{:.2}", truth.percent_saved(outcome.stored)),
            outcome.extents.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_with_units_and_fractions() {
        let cases = [("4096", 4096), ("3.5M", 3_670_016), ("64k", 65_536), ("1GiB", 1 << 30), ("0", 0)];
        for (text, bytes) in cases {
            assert_eq!(memory(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1X", "1.2.3M", "9999999T", "1e9"] {
            assert!(memory(text).is_err(), "{text}");
        }
    }
}
