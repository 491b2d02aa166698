//! Compares oncefs with ext4, XFS, Btrfs, ext2 and a flat FUSE file system on identical loop devices.
//!
//! `docs/benchmarks.md` says what is measured and how to run it. This crate knows oncefs only by its command
//! line and never asserts a speed: it measures, checks contents and prints.

mod adaptive;
mod aligned;
mod bdi;
mod beyond;
mod case;
mod churn;
mod command;
mod content;
mod disks;
mod failure;
mod figures;
mod files;
mod flat;
mod fragmentation;
mod hybrid;
mod lessfs;
mod lessfs_read;
mod loop_device;
mod machine;
mod measure;
mod mount;
mod once;
mod origin;
mod overhead;
mod paper;
mod peers;
mod piece_cost;
mod pieces;
mod progress;
mod replay;
mod report;
mod run;
mod scenario;
mod selective;
mod settings;
mod shared_args;
mod side;
mod signal;
mod spread;
mod summary;
mod threaded;
mod throttle;
mod tree;
mod trees;
mod volume;
mod work_directory;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Compare oncefs with other file systems on identical loop devices; needs root
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: settings::RunArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Mount the flat FUSE file system (no deduplication, no log), which shows the limit of the transport
    Flat(flat::FlatArgs),
    /// Compare reads through a fingerprint index, as in LessFS, with reads through a map, as in LRLFS
    LessfsRead(lessfs_read::LessfsReadArgs),
    /// Write every block twice, farther apart than memory remembers, then let one pass of the worker find the rest
    Hybrid(hybrid::HybridArgs),
    /// Measure what adaptive in-line deduplication costs without duplicates, and how soon it returns with them
    Adaptive(adaptive::AdaptiveArgs),
    /// Measure what sharing short and long runs costs readers and writers, by `run_blocks_min`
    Fragmentation(fragmentation::FragmentationArgs),
    /// Measure what sharing everything that readers can bear saves and costs: the aims of "once means once"
    Once(once::OnceArgs),
    /// Measure what ranking files by use saves and costs readers: figures 8 to 14 of the Selective paper
    Selective(selective::SelectiveArgs),
    /// Measure what ranking and the worker cost programs: figures 15 to 17 of the same paper
    Overhead(overhead::OverheadArgs),
    /// Copy five corpora to ext4, XFS, Btrfs, SquashFS and oncefs: savings, time, memory and device writes
    Peers(peers::PeersArgs),
    /// Copy trees in, rewrite, delete and make files, and measure what reaches the device with and without compression
    Churn(churn::ChurnArgs),
    /// Compare ext4 and xfs on disks of a volume with the same on plain loop devices, and with files in the mount
    Disks(disks::DisksArgs),
    /// Measure a volume in objects of the cluster of ONCEFS_CEPH_CONF beside what that cluster does without oncefs
    Beyond(beyond::BeyondArgs),
    /// Replay traces, or twins of published ones, on oncefs and on ext4, with contents made from the fingerprints
    Replay(replay::ReplayArgs),
    /// Measure a paper's evaluation, figure by figure, and write its page
    Paper(paper::PaperArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.command {
        None => run::run(&cli.run),
        Some(Command::Flat(args)) => flat::serve(args),
        Some(Command::LessfsRead(args)) => lessfs_read::run(args),
        Some(Command::Hybrid(args)) => hybrid::run(args),
        Some(Command::Adaptive(args)) => adaptive::run(args),
        Some(Command::Fragmentation(args)) => fragmentation::run(args),
        Some(Command::Once(args)) => once::run(args),
        Some(Command::Selective(args)) => selective::run(args),
        Some(Command::Overhead(args)) => overhead::run(args),
        Some(Command::Peers(args)) => peers::run(args),
        Some(Command::Churn(args)) => churn::run(args),
        Some(Command::Disks(args)) => disks::run(args),
        Some(Command::Beyond(args)) => beyond::run(args),
        Some(Command::Replay(args)) => replay::run(args),
        Some(Command::Paper(args)) => paper::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            failure::tell(&format!("oncefs-bench: {error}"));
            ExitCode::FAILURE
        }
    }
}
