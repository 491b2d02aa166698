//! The command line.

mod compress;
mod corpus;
mod failure;
mod generate;
mod idedup;
mod input;
mod output;
mod ranks;
mod record;
mod replay;
mod twins;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use failure::{Failure, exit};

const ABOUT_AFTER: &str = "\
Example:
  oncefs-sim generate --duplicates 0.3 --blocks 1000000 --output trace.txt
  oncefs-sim replay trace.txt --memory 3.5M
  oncefs-sim twins --quick

'oncefs-sim COMMAND --help' says more. docs/sim.md says what is modelled and what is assumed.";

#[derive(Debug, Parser)]
#[command(
    name = "oncefs-sim",
    version,
    about = "Replays traces through the dedup decisions of oncefs and of other designs"
)]
#[command(after_help = ABOUT_AFTER, disable_help_subcommand = true, subcommand_required = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay a trace and show what each design found
    Replay(replay::ReplayArgs),
    /// Record a directory tree as a trace
    Record(record::RecordArgs),
    /// Make a trace with stated properties
    Generate(generate::GenerateArgs),
    /// Compare all designs on twins of SmartDedup's six phone traces
    Twins(twins::TwinsArgs),
    /// Run iDedup's experiments on twins of its two traces, and SmartDedup's with short runs
    Idedup(idedup::IdedupArgs),
    /// Rank the files of directories or traces, and show what deduplication by rank saves
    Ranks(ranks::RanksArgs),
    /// Compress the distinct blocks of directories, and show what that saves beside deduplication
    Compress(compress::CompressArgs),
}

/// Reads the command line and does what it says.
pub fn run(arguments: Vec<OsString>) -> Result<(), Failure> {
    match Cli::try_parse_from(&arguments) {
        Ok(Cli { command: Command::Replay(arguments) }) => replay::run(&arguments),
        Ok(Cli { command: Command::Record(arguments) }) => record::run(&arguments),
        Ok(Cli { command: Command::Generate(arguments) }) => generate::run(&arguments),
        Ok(Cli { command: Command::Twins(arguments) }) => twins::run(&arguments),
        Ok(Cli { command: Command::Idedup(arguments) }) => idedup::run(&arguments),
        Ok(Cli { command: Command::Ranks(arguments) }) => ranks::run(&arguments),
        Ok(Cli { command: Command::Compress(arguments) }) => compress::run(&arguments),
        Err(error) => explain(&error),
    }
}

/// Help goes to stdout; anything else becomes one line.
fn explain(error: &clap::Error) -> Result<(), Failure> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        // A closed stdout is the reader's choice.
        let _ = error.print();
        return Ok(());
    }
    if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        return Err(Failure::new(exit::USAGE, "no command given: see oncefs-sim --help"));
    }
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or(&text);
    let first = first.strip_prefix("error: ").unwrap_or(first);
    Err(Failure::new(exit::USAGE, format!("{first}: see oncefs-sim --help")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(line: &str) -> Result<(), Failure> {
        run(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn the_command_line_definition_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn nonsense_is_refused_with_one_line_that_tells_the_way_out() {
        for line in [
            "oncefs-sim",
            "oncefs-sim nonsense",
            "oncefs-sim replay",
            "oncefs-sim replay trace --memory much",
            "oncefs-sim replay trace --design zfs",
            "oncefs-sim replay trace --idle sometimes",
            "oncefs-sim generate --reuse zipf:1",
            "oncefs-sim generate --twin 7",
            "oncefs-sim twins --scale 0",
            "oncefs-sim record",
            "oncefs-sim ranks",
            "oncefs-sim compress",
            "oncefs-sim compress / --method zstd:20",
            "oncefs-sim ranks / --evaluation-reads-min 1000001",
            "oncefs-sim idedup --quick --corpus /",
        ] {
            let failure = ran(line).expect_err(line);
            assert_eq!(failure.code, exit::USAGE, "{line}: {}", failure.message);
            assert!(
                !failure.message.contains('\n') && failure.message.contains("see oncefs-sim"),
                "{}",
                failure.message
            );
        }
    }

    #[test]
    fn a_missing_trace_is_told_by_name() {
        let failure = ran("oncefs-sim replay /nonexistent/trace").expect_err("there is no such file");
        assert_eq!(failure.code, exit::FAILED);
        assert!(failure.message.contains("/nonexistent/trace"), "{}", failure.message);
    }
}
