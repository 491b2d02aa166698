//! Puts oncefs beside ext4, xfs, btrfs, ext2 and a flat FUSE file system on identical loop devices.
//!
//! `docs/benchmarks.md` says what is measured and how to run it. This crate knows oncefs only by its command
//! line and never asserts a speed: it measures, checks contents and prints.

mod adaptive;
mod aligned;
mod bdi;
mod case;
mod command;
mod content;
mod dedis;
mod failure;
mod figures;
mod files;
mod flat;
mod fragmentation;
mod hint_wear;
mod hybrid;
mod lessfs;
mod loop_device;
mod machine;
mod measure;
mod mount;
mod overhead;
mod pieces;
mod progress;
mod report;
mod run;
mod scenario;
mod selective;
mod settings;
mod side;
mod signal;
mod spread;
mod threaded;
mod throttle;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures oncefs beside other file systems on identical loop devices; needs root.
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
    /// Mount the flat FUSE file system (no dedup, no log): the transport's ceiling
    Flat(flat::FlatArgs),
    /// Compare reads through a fingerprint index, as in LessFS, with reads through a map, as in LRLFS
    LessfsRead {
        /// Directory for the loop device's sparse file
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// Repetitions
        #[arg(long, default_value_t = 5)]
        repetitions: usize,
        /// Seed of contents and orders
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[command(flatten)]
        args: lessfs::LessfsArgs,
    },
    /// Compare RocksDB and a file of sorted groups as disk level of the hint store: bytes written per hint
    HintWear {
        /// Directory for the databases
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// Seed of the hints
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[command(flatten)]
        args: hint_wear::HintWearArgs,
    },
    /// Write every block twice, farther apart than memory reaches, then let one pass find what is left
    Hybrid(hybrid::HybridArgs),
    /// Watch the share of requests looked up fall without duplicates and return with them, and what it costs
    Adaptive(adaptive::AdaptiveArgs),
    /// Show what sharing of short and of long runs costs readers and writers, by `run_blocks_min`
    Fragmentation(fragmentation::FragmentationArgs),
    /// Show what ranking files by use saves, and costs readers: figures 8 to 14 of the paper on selective deduplication
    Selective(selective::SelectiveArgs),
    /// Show what the monitor and the queues cost programs, and what the worker does: its figures 15 to 17
    Overhead(overhead::OverheadArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.command {
        None => run::run(&cli.run),
        Some(Command::Flat(args)) => flat::serve(args),
        Some(Command::LessfsRead { dir, repetitions, seed, args }) => run::run_lessfs(dir, args, *repetitions, *seed),
        Some(Command::HintWear { dir, seed, args }) => hint_wear::run(dir, args, *seed),
        Some(Command::Hybrid(args)) => hybrid::run(args),
        Some(Command::Adaptive(args)) => adaptive::run(args),
        Some(Command::Fragmentation(args)) => fragmentation::run(args),
        Some(Command::Selective(args)) => selective::run(args),
        Some(Command::Overhead(args)) => overhead::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            failure::tell(&format!("oncefs-bench: {error}"));
            ExitCode::FAILURE
        }
    }
}
