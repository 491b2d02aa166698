//! Runs the comparison of read paths on a loop device: as the subcommand `lessfs-read`, and as a step of a whole run.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::failure::{Failure, Result};
use crate::lessfs::{self, LessfsArgs, PathRow};
use crate::machine;
use crate::progress::Progress;
use crate::side::{Bench, Side, SideSpec};
use crate::signal;
use crate::work_directory::WorkDirectory;

/// How the subcommand is run.
#[derive(Args, Clone, Debug)]
pub struct LessfsReadArgs {
    /// Directory for the loop device's sparse file
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Number of repetitions
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Seed of contents and orders
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    lessfs: LessfsArgs,
}

/// Compares the read paths and prints the table.
pub fn run(args: &LessfsReadArgs) -> Result<()> {
    machine::require_root_and_fuse()?;
    signal::install();
    let work_directory = WorkDirectory::create(&args.dir)?;
    let progress = Progress::new(1);
    let rows = compare(work_directory.path(), &args.lessfs, 0..args.repetitions, args.seed, &progress)?;
    drop(progress);
    println!("{}\nseed {}, {:?}{}", machine::describe(), args.seed, args.lessfs, lessfs::table(&rows));
    Ok(())
}

/// Makes a loop device with an ext4 below `directory` and measures both paths on it.
pub fn compare(
    directory: &Path,
    args: &LessfsArgs,
    repetitions: Range<usize>,
    seed: u64,
    progress: &Progress,
) -> Result<Vec<PathRow>> {
    const DEVICE_BYTES_PER_BLOCK: u64 = 8192;
    const DEVICE_BYTES_MIN: u64 = 1 << 30;
    progress.say("reading through a fingerprint index and through a map".to_owned());
    let bench = Bench {
        directory: directory.join("index-read"),
        device_bytes: (args.blocks as u64 * DEVICE_BYTES_PER_BLOCK).max(DEVICE_BYTES_MIN),
        oncefs: "oncefs".into(),
        raw: false,
    };
    let ext4: SideSpec = "ext4".parse().map_err(Failure::new)?;
    let mut side = Side::create(&bench, &ext4, "ext4", 0)?;
    side.format()?;
    side.mount()?;
    let rows = lessfs::compare(side.root(), args, repetitions, seed);
    progress.step();
    rows
}
