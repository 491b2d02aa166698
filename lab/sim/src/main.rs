//! The `oncefs-sim` command: replay a trace, make one, or compare designs on twins of published traces.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os().collect()).map_or_else(
        |failure| {
            eprintln!("oncefs-sim: {}", failure.message);
            ExitCode::from(failure.code)
        },
        |()| ExitCode::SUCCESS,
    )
}
