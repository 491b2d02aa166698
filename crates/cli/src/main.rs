//! The `oncefs` command: mkfs, mount, umount, fsck, stats, tune, dedup, scrub, explain, defrag, policy, grow.
//!
//! One binary answers under all names: as `oncefs COMMAND`, and as the helpers of mkfs(8), mount(8), umount(8)
//! and fsck(8). `commands` reads the command line, every other module does one thing.

mod commands;
mod confine;
mod control;
mod dedup;
mod defrag;
mod explain;
mod failure;
mod fsck;
mod grow;
mod layout;
mod logging;
mod mkfs;
mod mount;
mod mount_options;
mod mounter;
mod mounts;
mod notify;
mod policy;
mod privileges;
mod process;
mod profiles;
mod progress;
mod scrub;
mod serve;
mod size;
mod stats;
mod target;
mod tune;
mod umount;

use std::process::ExitCode;

use commands::Command;
use failure::Outcome;

fn main() -> ExitCode {
    process::end_on_closed_pipe();
    let result =
        commands::parse(std::env::args_os().collect()).and_then(|command| command.map_or(Ok(ExitCode::SUCCESS), run));
    result.unwrap_or_else(|failure| {
        eprintln!("oncefs: {}", failure.message);
        ExitCode::from(failure.code)
    })
}

fn run(command: Command) -> Outcome<ExitCode> {
    match command {
        Command::Fsck(arguments) => return fsck::run(arguments).map(ExitCode::from),
        Command::Scrub(arguments) => return scrub::run(arguments).map(ExitCode::from),
        Command::Defrag(arguments) => return defrag::run(arguments).map(ExitCode::from),
        Command::Policy(arguments) => return policy::run(arguments).map(ExitCode::from),
        Command::Mkfs(arguments) => mkfs::run(arguments)?,
        Command::Mount(arguments) => mount::run(arguments)?,
        Command::Umount(arguments) => umount::run(arguments)?,
        Command::Stats(arguments) => stats::run(arguments)?,
        Command::Tune(arguments) => tune::run(arguments)?,
        Command::Dedup(arguments) => dedup::run(arguments)?,
        Command::Explain(arguments) => explain::run(arguments)?,
        Command::Grow(arguments) => grow::run(arguments)?,
        Command::Sync(arguments) => grow::sync(arguments)?,
        Command::Version => println!("oncefs {}", env!("CARGO_PKG_VERSION")),
        Command::Serve(arguments) => serve::in_background(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}
