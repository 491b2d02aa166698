//! The arguments of the comparison, and the sides, scenarios and sizes that follow from them.

use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::aligned::BLOCK_BYTES;
use crate::command::find_oncefs;
use crate::failure::{Failure, Result};
use crate::lessfs::LessfsArgs;
use crate::machine;
use crate::scenario::Scenario;
use crate::side::SideSpec;
use crate::threaded::Twin;
use crate::volume::Volume;

/// Arguments of the comparison.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Small sizes, one repetition: shows that everything works, not how fast it is
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// 1 GiB files, five repetitions, all sides: for figures to publish
    #[arg(long)]
    full: bool,
    /// A side: oncefs, disk, disk-xfs, flat, ext4, ext2, xfs or btrfs. `oncefs=-o X` and `flat=--threads 4` add mount arguments.
    /// Repeat the option for several sides [default: ext4, oncefs, flat]
    #[arg(long = "side", value_name = "SIDE")]
    sides: Vec<SideSpec>,
    /// Side that the others are compared with
    #[arg(long, default_value = "ext4")]
    baseline: String,
    /// Profile of every oncefs side without arguments of its own
    #[arg(long)]
    profile: Option<String>,
    /// Workloads to run [default: all, except those that run only when named]
    #[arg(long, value_enum, value_delimiter = ',')]
    workloads: Vec<Workload>,
    /// Percentages of duplicate blocks in sequential and random writes
    #[arg(long, value_delimiter = ',', default_value = "0,25,75", value_parser = clap::value_parser!(u8).range(0..=90))]
    duplicates: Vec<u8>,
    /// To how many percent blocks shrink when they are compressed, except those of trees, of several threads and of
    /// DEDISbench's load, which do not shrink
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(2..=100))]
    shrinks_to: u8,
    /// Size of the files written and read [default: 512M]
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse)]
    file_size: Option<u64>,
    /// Bytes written at random places of such a file [default: its size, so that every block is written once]
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse)]
    random_size: Option<u64>,
    /// Number of writes with an fdatasync each [default: 2000]
    #[arg(long)]
    synced_writes: Option<usize>,
    /// Number of random reads [default: 10000]
    #[arg(long)]
    random_reads: Option<usize>,
    /// Number of files in the tree [default: 8000]
    #[arg(long)]
    tree_files: Option<usize>,
    /// Number of repetitions; the sides alternate within each [default: 3]
    #[arg(long)]
    pub repetitions: Option<usize>,
    /// Number of the first repetition, from 0 on: to take up a run where it ended
    #[arg(long, default_value_t = 0)]
    first_repetition: usize,
    /// While timing, limit the devices to 40 MB/s and 3,000 writes/s, 100 MB/s and 4,000 reads/s
    #[arg(long)]
    pub throttled: bool,
    /// Compare the baseline with itself: a ratio within this noise means nothing
    #[arg(long)]
    aa: bool,
    /// Give oncefs a second loop device as its data area
    #[arg(long)]
    pub raw: bool,
    /// The oncefs program [default: the one beside this program]
    #[arg(long)]
    oncefs: Option<PathBuf>,
    /// Directory for the loop devices' sparse files; its disk is what is measured
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// Size of each loop device [default: 16 times the file size, at least 4G]
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse)]
    device_size: Option<u64>,
    /// Write the head and the raw rows to this file, as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Seed of all contents and orders [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    pub lessfs: LessfsArgs,
}

/// Groups of measured steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Sequential 4 KiB writes at each share of duplicates
    SequentialWrite,
    /// Random 4 KiB writes at each share of duplicates
    RandomWrite,
    /// 4 KiB writes at NURand places
    NurandWrite,
    /// Random 4 KiB writes and reads by three threads, as in SmartDedup's FIO runs, at each share of duplicates
    ThreadedWrite,
    /// DEDISbench's load: four threads, hot spots, twins of SmartDedup's two images
    Dedis,
    /// 4 KiB writes with an fdatasync each
    SyncedWrite,
    /// Sequential, repeated, random and NURand reads
    Read,
    /// Reads of blocks shared with other files or places
    DuplicateRead,
    /// Reads at random places of a cold file; runs only when named
    ScatteredRead,
    /// Second copies of files, cold and warm; runs only when named
    CopyWrite,
    /// A tree of small files: copy, read, walk, delete
    Tree,
    /// A second copy of a tree of small files
    TreeAgain,
    /// Trees of small files, by two and by four programs at once
    TreeClients,
    /// Reads through a fingerprint index beside reads through a map
    IndexRead,
}

impl RunArgs {
    /// The sides with their labels.
    pub fn sides(&self) -> Result<Vec<(SideSpec, String)>> {
        let parse = |name: &str| name.parse::<SideSpec>().map_err(Failure::new);
        if self.aa {
            let side = parse(&self.baseline)?;
            return Ok(vec![(side.clone(), side.name.clone()), (side.clone(), format!("{} again", side.name))]);
        }
        let named = |names: &[&str]| names.iter().map(|name| parse(name)).collect::<Result<Vec<_>>>();
        let specs = match (self.sides.is_empty(), self.full) {
            (false, _) => self.sides.clone(),
            (true, true) => named(&["ext4", "oncefs", "flat", "ext2", "xfs", "btrfs"])?,
            (true, false) => named(&["ext4", "oncefs", "flat"])?,
        };
        let with_profile = |spec: SideSpec| match &self.profile {
            Some(profile) => spec.in_profile(profile),
            None => spec,
        };
        Ok(specs.into_iter().map(with_profile).map(|spec| (spec.clone(), spec.name)).collect())
    }

    /// The side that the others are compared with: the one named if it takes part, otherwise the first.
    pub fn baseline<'a>(&'a self, sides: &'a [(SideSpec, String)]) -> &'a str {
        let takes_part = sides.iter().any(|(_, label)| *label == self.baseline);
        if takes_part { &self.baseline } else { &sides[0].1 }
    }

    fn has(&self, workload: Workload) -> bool {
        let is_special = matches!(workload, Workload::ScatteredRead | Workload::CopyWrite);
        (self.workloads.is_empty() && !is_special) || self.workloads.contains(&workload)
    }

    /// Whether reads through a fingerprint index are compared.
    pub fn index_read(&self) -> bool {
        self.has(Workload::IndexRead) && !self.aa
    }

    /// The scenarios to run.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let percents = || self.duplicates.iter().map(|percent| usize::from(*percent));
        let mut scenarios = Vec::new();
        if self.has(Workload::SequentialWrite) {
            scenarios.extend(percents().map(|duplicate_percent| Scenario::SequentialWrite { duplicate_percent }));
        }
        if self.has(Workload::RandomWrite) {
            scenarios.extend(percents().map(|duplicate_percent| Scenario::RandomWrite { duplicate_percent }));
        }
        if self.has(Workload::ThreadedWrite) {
            scenarios.extend(percents().map(|duplicate_percent| Scenario::ThreadedWrite { duplicate_percent }));
        }
        if self.has(Workload::Dedis) {
            scenarios.extend(Twin::ALL.map(|twin| Scenario::Dedis { twin }));
        }
        let single = [
            (Workload::NurandWrite, Scenario::NurandWrite),
            (Workload::SyncedWrite, Scenario::SyncedWrite),
            (Workload::Read, Scenario::Read),
            (Workload::DuplicateRead, Scenario::DuplicateRead),
            (Workload::ScatteredRead, Scenario::ScatteredRead),
            (Workload::CopyWrite, Scenario::CopyWrite),
            (Workload::Tree, Scenario::Tree),
            (Workload::TreeAgain, Scenario::TreeAgain),
            (Workload::TreeClients, Scenario::TreeClients { clients: 2 }),
            (Workload::TreeClients, Scenario::TreeClients { clients: 4 }),
        ];
        scenarios.extend(single.into_iter().filter(|(workload, _)| self.has(*workload)).map(|(_, scenario)| scenario));
        scenarios
    }

    /// Numbers of the repetitions of every scenario.
    pub fn repetitions(&self) -> Range<usize> {
        let count = self.repetitions.unwrap_or(self.preset(1, 3, 5)).max(1);
        self.first_repetition..self.first_repetition + count
    }

    fn preset<T>(&self, quick: T, normal: T, full: T) -> T {
        match (self.quick, self.full) {
            (true, _) => quick,
            (_, true) => full,
            _ => normal,
        }
    }

    /// Sizes of the scenarios.
    pub fn volume(&self) -> Result<Volume> {
        let file_bytes = self.file_size.unwrap_or(self.preset(32 << 20, 512 << 20, 1 << 30));
        let random_bytes = self.random_size.unwrap_or(file_bytes);
        if !file_bytes.is_multiple_of(BLOCK_BYTES as u64) || random_bytes > file_bytes || random_bytes == 0 {
            return Err(Failure::new(
                "--file-size must be a multiple of 4K, and --random-size between 1 and --file-size",
            ));
        }
        Ok(Volume {
            file_bytes,
            random_bytes,
            synced_writes: self.synced_writes.unwrap_or(self.preset(200, 2000, 5000)).max(1),
            random_reads: self.random_reads.unwrap_or(self.preset(1000, 10_000, 20_000)).max(1),
            tree_files: self.tree_files.unwrap_or(self.preset(500, 8000, 8000)).max(1),
            shrinks_to_percent: self.shrinks_to.into(),
            // Two contents may be prepared at once; the rest is for the page cache.
            memory_max: machine::memory_available_bytes()? / 4,
        })
    }

    /// Bytes of each loop device.
    pub fn device_bytes(&self, volume: &Volume) -> u64 {
        const DEVICE_BYTES_MIN: u64 = 4 << 30;
        self.device_size.unwrap_or((volume.file_bytes * 16).max(DEVICE_BYTES_MIN))
    }

    /// The arguments of the index comparison, with small numbers if quick.
    pub fn lessfs_args(&self) -> LessfsArgs {
        match self.quick {
            true => LessfsArgs { blocks: 8192, reads: 500, ..self.lessfs.clone() },
            false => self.lessfs.clone(),
        }
    }

    /// The seed of this run.
    pub fn seed(&self) -> u64 {
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        self.seed.unwrap_or_else(|| now().map_or(1, |since| since.as_nanos() as u64))
    }

    /// The oncefs program, with its real path.
    pub fn oncefs(&self) -> Result<PathBuf> {
        find_oncefs(self.oncefs.clone())
    }
}
