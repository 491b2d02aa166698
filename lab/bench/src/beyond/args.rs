//! The arguments of the comparison.

use std::path::PathBuf;

use clap::Args;

use super::part::Part;
use crate::failure::{Failure, Result};
use crate::shared_args::SharedArgs;

/// Arguments: how much of everything.
#[derive(Args, Clone, Debug)]
pub struct BeyondArgs {
    /// Parts to measure
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "synced,writes,reads,duplicates,savings,names,deleted,recovery"
    )]
    pub parts: Vec<Part>,
    /// The pool that the volumes lie in; nothing else should use it meanwhile
    #[arg(long, default_value = "oncefs")]
    pub pool: String,
    /// The pool of the volumes' data areas, if they are to have one of their own
    #[arg(long, value_name = "POOL")]
    pub data_pool: Option<String>,
    /// Size of the files written and read
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse, default_value = "256M")]
    pub file_size: u64,
    /// Number of writes of 4 KiB, each durable before the next
    #[arg(long, default_value_t = 1000)]
    pub synced_writes: usize,
    /// Number of small files
    #[arg(long, default_value_t = 20_000)]
    pub names: usize,
    /// Options of the mounts that write duplicates
    #[arg(long, default_value = "run_blocks_min=1,inline=all,worker=off")]
    pub options: String,
    /// Devices of the OSDs (7:0,7:1,...) that writes, reads and duplicates are limited on to the slow disk, by cgroup v1
    #[arg(long, value_name = "MAJOR:MINOR", value_delimiter = ',')]
    pub throttle: Vec<String>,
    /// Number of repetitions; the sides take turns at going first
    #[arg(long, default_value_t = 3)]
    pub repetitions: usize,
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// What every comparison takes.
    #[command(flatten)]
    pub shared: SharedArgs,
}

impl BeyondArgs {
    /// Refuses what cannot be measured.
    pub fn check(&self) -> Result<()> {
        if !self.file_size.is_multiple_of(4 << 20) || self.file_size == 0 {
            return Err(Failure::new("--file-size is a multiple of 4M, an object's size, above 0"));
        }
        if [self.synced_writes, self.names, self.repetitions].contains(&0) {
            return Err(Failure::new("every number is at least 1"));
        }
        Ok(())
    }
}
