//! The `oncefs` command: estimate, mkfs, mount, umount, failover, fsck, list, status, metrics, stats, report, top, tune, dedup,
//! scrub, explain, defrag, compress, expand, policy, grow, disk, send, receive.
//!
//! One binary answers under all names: as `oncefs COMMAND`, and as the helpers of mkfs(8), mount(8), umount(8)
//! and fsck(8). `command_line` reads the command line, `commands` has a module for each command.

#[macro_use]
mod output;

mod command_line;
mod commands;
mod control;
mod daemon;
mod disks;
mod failure;
mod figures;
mod file_name;
mod files;
mod hex;
mod mounting;
mod names;
mod process;
mod profiles;
mod progress;
mod random;
mod replace;
mod size;
mod snapshots;
mod text;

use std::process::ExitCode;

fn main() -> ExitCode {
    process::signals::end_on_closed_pipe();
    let code = command_line::run(std::env::args_os().collect()).unwrap_or_else(|failure| {
        tell!("oncefs: {}", failure.message);
        failure.code
    });
    ExitCode::from(code)
}
