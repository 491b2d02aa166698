//! `oncefs snapshot`: read-only copies of a mount or a directory, which share all blocks with it.

mod create;
mod diff;
mod list;
mod name;
mod remove;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

/// Arguments of `snapshot`.
#[derive(Debug, Args)]
#[command(after_help = "\
A snapshot lies below .oncefs/snapshots in the root of the mount, where only root looks in. Nothing in it can be changed,
by root either. Listings of the root leave .oncefs out, so other programs do not walk through all snapshots.

Examples:
  oncefs snapshot create /mnt before-upgrade
  oncefs snapshot create /mnt/home daily-$(date +%F) --keep 14
  ls /mnt/.oncefs/snapshots/before-upgrade
  oncefs snapshot list /mnt")]
pub struct SnapshotArgs {
    #[command(subcommand)]
    what: What,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum What {
    /// Make a snapshot of a mount, or of a directory in it
    Create(create::CreateArgs),
    /// Show the snapshots of a mount
    List(list::ListArgs),
    /// Show what changed between two snapshots, or since one
    Diff(diff::DiffArgs),
    /// Remove a snapshot with everything in it
    Remove(remove::RemoveArgs),
}

/// Runs the command.
pub fn run(arguments: &SnapshotArgs) -> Outcome {
    match &arguments.what {
        What::Create(arguments) => create::run(arguments),
        What::List(arguments) => list::run(arguments),
        What::Diff(arguments) => diff::run(arguments),
        What::Remove(arguments) => remove::run(arguments),
    }
}
