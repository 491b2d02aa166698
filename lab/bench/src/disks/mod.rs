//! ext4 and XFS on disks of a volume, beside the same on plain loop devices and beside files in the mount.
//!
//! The output is a page in Markdown, `docs/results/disks.md`.

mod kept;
mod page;
mod part;
pub mod steps;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use crate::failure::{During, Failure, Result, tell};
use crate::machine;
use crate::measure::Row;
use crate::mount::rotated;
use crate::origin::Origin;
use crate::progress::Progress;
use crate::run::{run_once, warm_up};
use crate::shared_args::SharedArgs;
use crate::side::{Side, SideSpec};
use crate::volume::Volume;
use kept::{Kept, Round};
use page::SIDES;
use part::Part;
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
    /// Begin nothing more after this many minutes; the same command with --keep goes on later
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
    /// Keep in this file what was measured, and take from it what an earlier run with the same arguments measured
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    #[command(flatten)]
    shared: SharedArgs,
}

impl DisksArgs {
    /// What readings depend on: those of other arguments do not belong to the same page.
    fn conditions(&self) -> String {
        let Self { file_size, tree_files, synced_writes, random_reads, shared, .. } = self;
        format!("{file_size} {tree_files} {synced_writes} {random_reads} {}", shared.seed)
    }

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
    let began = Instant::now();
    let volume = args.volume()?;
    let (_work_directory, bench) = args.shared.begin((volume.file_bytes * 16).max(DEVICE_BYTES_MIN), args)?;
    // Begun before the run, so that it names the commit that was measured.
    let origin = Origin::begin(&bench.oncefs)?;
    let mut kept = Kept::open(args.keep.as_deref(), args.conditions(), origin.commit())?;
    let create = |(index, name): (usize, &&str)| {
        let spec: SideSpec = name.parse().map_err(Failure::new)?;
        Side::create(&bench, &spec, name, index)
    };
    let mut sides = SIDES.iter().enumerate().map(create).collect::<Result<Vec<Side>>>()?;
    let left: Vec<Round> = rounds(args).into_iter().filter(|round| !kept.has(*round)).collect();
    let of = |round: &Round| sides.iter().filter(|side| round.part.takes(side)).count();
    let progress = Progress::new(sides.len() + left.iter().map(of).sum::<usize>());
    if !left.is_empty() {
        warm_up(&mut sides, &volume, &progress)?;
    }
    for (number, round) in left.iter().enumerate() {
        if args.minutes.is_some_and(|minutes| began.elapsed() >= Duration::from_secs(60 * minutes)) {
            tell(&format!(
                "{} of {} rounds are left: the same command with --keep goes on",
                left.len() - number,
                left.len()
            ));
            break;
        }
        let rows = measure(args, *round, &volume, &mut sides, &progress)?;
        kept.add(*round, rows)?;
        // After each round, so that a run that is ended leaves what it has measured.
        write_page(args, &origin, &kept.rows())?;
    }
    drop(sides);
    let rows = kept.rows();
    write_page(args, &origin, &rows)?;
    println!("\n{}", page(&origin, &rows));
    args.shared.write_json(&rows)
}

/// Everything to measure, in order: each scenario once before the next repetition, so that a run that ends early has
/// readings of all of them.
fn rounds(args: &DisksArgs) -> Vec<Round> {
    let mut rounds = Vec::new();
    for (repetition, _) in args.shared.rounds(args.repetitions).iter() {
        for part in &args.parts {
            let scenarios = 0..part.scenarios().len();
            rounds.extend(scenarios.map(|scenario| Round { part: *part, scenario, repetition }));
        }
    }
    rounds
}

/// Measures one scenario in one repetition, on the sides that the part takes.
fn measure(
    args: &DisksArgs,
    Round { part, scenario: number, repetition }: Round,
    volume: &Volume,
    sides: &mut [Side],
    progress: &Progress,
) -> Result<Vec<Row>> {
    let taking: Vec<usize> = (0..sides.len()).filter(|side| part.takes(&sides[*side])).collect();
    let seed = args.shared.seed_of(repetition).wrapping_add((number as u64) << 32);
    progress.say("preparing content".to_owned());
    let body = part.scenarios().swap_remove(number).prepare(volume, seed)?;
    let mut rows = Vec::new();
    for (_, side) in rotated(&taking, repetition) {
        let throttled = part == Part::Throttled;
        for mut row in run_once(&mut sides[*side], &body, repetition, throttled, progress)? {
            row.workload.push_str(if throttled { THROTTLED } else { "" });
            rows.push(row);
        }
    }
    Ok(rows)
}

fn write_page(args: &DisksArgs, origin: &Origin, rows: &[Row]) -> Result<()> {
    let Some(file) = &args.page else { return Ok(()) };
    std::fs::write(file, page(origin, rows)).during(|| format!("cannot write {}", file.display()))
}

fn page(origin: &Origin, rows: &[Row]) -> String {
    format!("{TITLE}\n\n{}\n\n{}", origin.head(), page::tables(rows))
}

const TITLE: &str = "# Results: file systems on disks of a volume

ext4 and xfs on a [disk](../disks.md) of a volume, beside the same on a plain loop device, and beside files in the \
mount. How it is measured: [disks](../benchmarks.md#disks).";
