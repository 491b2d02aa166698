//! ext4 and XFS on disks of a volume, beside the same on plain loop devices and beside files in the mount.
//!
//! The output is a page in Markdown, `docs/results/disks.md`.

mod page;
mod steps;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::failure::{During, Failure, Result};
use crate::machine;
use crate::measure::Row;
use crate::mount::rotated;
use crate::origin::Origin;
use crate::progress::Progress;
use crate::run::{run_once, warm_up};
use crate::scenario::Scenario;
use crate::shared_args::SharedArgs;
use crate::side::{Side, SideSpec};
use crate::volume::Volume;
use page::SIDES;
use steps::THROTTLED;

/// Arguments: how much of everything.
#[derive(Args, Clone, Debug)]
pub struct DisksArgs {
    /// Parts to measure; `throttled` needs cgroup v1's blkio controller
    #[arg(long, value_enum, value_delimiter = ',', default_value = "trees,synced,reads,writes,throttled")]
    parts: Vec<Part>,
    /// Size of the files written and read
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse, default_value = "512M")]
    file_size: u64,
    /// Number of files in a tree
    #[arg(long, default_value_t = 8000)]
    tree_files: usize,
    /// Number of writes with an fdatasync each
    #[arg(long, default_value_t = 2000)]
    synced_writes: usize,
    /// Number of random reads
    #[arg(long, default_value_t = 10_000)]
    random_reads: usize,
    /// Number of repetitions; the sides take turns at going first
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    #[command(flatten)]
    shared: SharedArgs,
}

/// Steps with the same devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Small files: two copies, reads, listings, deletion
    Trees,
    /// Writes with an fdatasync each
    Synced,
    /// Reads of a large file, in sequence and at random
    Reads,
    /// Writes of a large file, in sequence and at random, without duplicates and with many
    Writes,
    /// Writes with duplicates, on devices of the speed of a slow disk
    Throttled,
}

impl Part {
    fn scenarios(self) -> Vec<Scenario> {
        let writes = |duplicate_percent| {
            [Scenario::SequentialWrite { duplicate_percent }, Scenario::RandomWrite { duplicate_percent }]
        };
        match self {
            Part::Trees => vec![Scenario::Tree, Scenario::TreeAgain],
            Part::Synced => vec![Scenario::SyncedWrite],
            Part::Reads => vec![Scenario::Read],
            Part::Writes => [0, 75].into_iter().flat_map(writes).collect(),
            Part::Throttled => [25, 75].into_iter().flat_map(writes).collect(),
        }
    }

    /// The limit of a device is known, so a plain file system need not show it.
    fn takes(self, side: &Side) -> bool {
        self != Part::Throttled || side.deduplicates()
    }
}

impl DisksArgs {
    fn volume(&self) -> Result<Volume> {
        let numbers = [self.tree_files, self.synced_writes, self.random_reads, self.repetitions];
        if !self.file_size.is_multiple_of(4096) || self.file_size == 0 || numbers.contains(&0) {
            return Err(Failure::new("--file-size is a multiple of 4K above 0, and every number at least 1"));
        }
        Ok(Volume {
            file_bytes: self.file_size,
            random_bytes: self.file_size,
            synced_writes: self.synced_writes,
            random_reads: self.random_reads,
            tree_files: self.tree_files,
            shrinks_to_percent: 100,
            memory_max: machine::memory_available_bytes()? / 4,
        })
    }
}

/// Measures all sides by turns, prints the page, and writes it to the file that was named.
pub fn run(args: &DisksArgs) -> Result<()> {
    const DEVICE_BYTES_MIN: u64 = 4 << 30;
    let volume = args.volume()?;
    let (_work_directory, bench) = args.shared.begin((volume.file_bytes * 16).max(DEVICE_BYTES_MIN), args)?;
    // Begun before the run, so that it names the commit that was measured.
    let origin = Origin::begin(&bench.oncefs)?;
    let create = |(index, name): (usize, &&str)| {
        let spec: SideSpec = name.parse().map_err(Failure::new)?;
        Side::create(&bench, &spec, name, index)
    };
    let mut sides = SIDES.iter().enumerate().map(create).collect::<Result<Vec<Side>>>()?;
    let progress = Progress::new(steps(args, &sides));
    warm_up(&mut sides, &volume, &progress)?;
    let mut rows: Vec<Row> = Vec::new();
    for part in &args.parts {
        for (number, scenario) in part.scenarios().into_iter().enumerate() {
            measure(args, *part, (number, scenario), &volume, &mut sides, &progress, &mut rows)?;
            // After each group of steps, so that a run that is ended leaves what it has measured.
            if let Some(file) = &args.page {
                std::fs::write(file, page(&origin, &rows)).during(|| format!("cannot write {}", file.display()))?;
            }
        }
    }
    drop(sides);
    println!("\n{}", page(&origin, &rows));
    args.shared.write_json(&rows)
}

fn steps(args: &DisksArgs, sides: &[Side]) -> usize {
    let of = |part: &Part| part.scenarios().len() * sides.iter().filter(|side| part.takes(side)).count();
    sides.len() + args.parts.iter().map(of).sum::<usize>() * args.repetitions
}

/// Measures one scenario in all repetitions, on the sides that the part takes.
fn measure(
    args: &DisksArgs,
    part: Part,
    (number, scenario): (usize, Scenario),
    volume: &Volume,
    sides: &mut [Side],
    progress: &Progress,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let taking: Vec<usize> = (0..sides.len()).filter(|side| part.takes(&sides[*side])).collect();
    for (repetition, seed) in args.shared.rounds(args.repetitions).iter() {
        progress.say("preparing content".to_owned());
        let body = scenario.prepare(volume, seed.wrapping_add((number as u64) << 32))?;
        for (_, side) in rotated(&taking, repetition) {
            let throttled = part == Part::Throttled;
            for mut row in run_once(&mut sides[*side], &body, repetition, throttled, progress)? {
                row.workload.push_str(if throttled { THROTTLED } else { "" });
                rows.push(row);
            }
        }
    }
    Ok(())
}

fn page(origin: &Origin, rows: &[Row]) -> String {
    format!("{TITLE}\n\n{}\n\n{}", origin.head(), page::tables(rows))
}

const TITLE: &str = "# Results: file systems on disks of a volume

ext4 and xfs on a [disk](../disks.md) of a volume, beside the same on a plain loop device, and beside files in the \
mount. How it is measured: [disks](../benchmarks.md#disks).";
