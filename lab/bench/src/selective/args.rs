//! Arguments of the subcommand `selective`: its parts, the mounts compared, and how much each part does.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::cases::Case;
use super::user::User;
use super::workload::Duplicates;
use crate::failure::{Failure, Result};
use crate::shared_args::{Rounds, SharedArgs};

/// Arguments: the parts, the mounts compared, and how much is written and read.
#[derive(Args, Clone, Debug)]
pub struct SelectiveArgs {
    /// Small sizes, one repetition: shows that everything works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Parts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "synthetic,real")]
    pub parts: Vec<Part>,
    /// The mounts compared
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,big,small,selective")]
    pub cases: Vec<Case>,
    /// synthetic: the workloads of table 4
    #[arg(long, value_enum, value_delimiter = ',', default_value = "high,low")]
    pub workloads: Vec<Duplicates>,
    /// synthetic: percentages of the files that are read sequentially
    #[arg(long, value_delimiter = ',', default_value = "90,75,50,25,10")]
    pub sequential: Vec<usize>,
    /// Bytes of the synthetic files; the most bytes of real files [default: 2560M]
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse)]
    bytes: Option<u64>,
    /// The most blocks read of a file that is read at random
    #[arg(long, default_value_t = 256)]
    pub random_blocks_max: usize,
    /// real: the users whose files are measured, of those who have a directory
    #[arg(long, value_enum, value_delimiter = ',', default_value = "desktop,developer")]
    pub users: Vec<User>,
    /// real: directory with files of a desktop user
    #[arg(long, default_value = "/usr")]
    pub desktop: Option<PathBuf>,
    /// real: directory with files of a developer [default: none]
    #[arg(long)]
    pub developer: Option<PathBuf>,
    /// chunks: bytes of the file that is read in chunks of each length
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse, default_value = "100M")]
    pub chunk_file: u64,
    /// Memory of the daemon; small, so that the device is measured
    #[arg(long, default_value = "64M")]
    pub memory: String,
    /// Number of repetitions; the mounts alternate within each
    #[arg(long, default_value_t = 1)]
    repetitions: usize,
    #[command(flatten)]
    pub shared: SharedArgs,
    /// Write the charts to this directory
    #[arg(long)]
    pub plots: Option<PathBuf>,
}

/// A part of the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Table 4's workloads: figures 8 to 11.
    Synthetic,
    /// Copies of files that are there: figures 12 to 14 and table 6.
    Real,
    /// Chunks of 4 KiB to 1 MiB: figure 3.
    Chunks,
    /// Duplicates in blocks of 4 KiB to 1 MiB, counted: iDedup's section 3.1.
    Blocks,
}

impl SelectiveArgs {
    /// Bytes of the files; the paper's 2.5 GB by default.
    pub fn size(&self) -> u64 {
        self.bytes.unwrap_or(if self.quick { 64 << 20 } else { 2560 << 20 })
    }

    /// The directory with files like those of a user.
    pub fn directory_of(&self, user: User) -> Option<&PathBuf> {
        match user {
            User::Desktop => self.desktop.as_ref(),
            User::Developer => self.developer.as_ref(),
        }
    }

    /// Refuses numbers that measure nothing.
    pub fn check(&self) -> Result<()> {
        if !(4 << 20..=1 << 40).contains(&self.size()) {
            return Err(Failure::new("--bytes must be between 4M and 1T"));
        }
        if !(3 << 20..=1 << 40).contains(&self.chunk_file) {
            return Err(Failure::new("--chunk-file must be between 3M and 1T"));
        }
        if self.repetitions == 0 || self.random_blocks_max == 0 || self.cases.is_empty() {
            return Err(Failure::new(
                "--repetitions, --random-blocks-max and the number of --cases must be at least 1",
            ));
        }
        match self.sequential.iter().all(|percent| (1..=99).contains(percent)) {
            true => Ok(()),
            false => Err(Failure::new("--sequential takes percentages from 1 to 99")),
        }
    }

    /// Bytes of each loop device.
    pub fn device_bytes(&self) -> u64 {
        // The volume has three quarters, of which nothing but the unique blocks is used; log and records are besides.
        self.size() * 4 + self.chunk_file * 16 + (3 << 30)
    }

    /// The repetitions with their seeds.
    pub fn rounds(&self) -> Rounds {
        self.shared.rounds(self.repetitions)
    }

    /// Arguments for tests in which the values do not matter.
    #[cfg(test)]
    pub fn of_tests() -> SelectiveArgs {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: SelectiveArgs,
        }
        <Line as clap::Parser>::parse_from(["selective", "--sequential=90,10"]).args
    }
}
