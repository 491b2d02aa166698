//! A whole run: sides, warm-up, scenarios in alternation, report.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::aligned::AlignedBuffer;
use crate::case::Case;
use crate::command;
use crate::failure::{During, Result};
use crate::lessfs::{self, LessfsArgs, PathRow};
use crate::machine;
use crate::measure::Row;
use crate::progress::Progress;
use crate::report::Report;
use crate::scenario::{Body, Scenario, Volume};
use crate::settings::{RunArgs, find_oncefs};
use crate::side::{Bench, Kind, Side, SideSpec};
use crate::signal;
use crate::throttle::SLOW_DISK;

const WARM_UP_FILE_BYTES: u64 = 64 << 20;

/// Runs the comparison, prints its tables and writes its rows.
pub fn run(args: &RunArgs) -> Result<()> {
    machine::require_root_and_fuse()?;
    signal::install();
    let specs = args.sides()?;
    let volume = args.volume()?;
    let work_directory = WorkDirectory::create(&args.dir)?;
    let needs_oncefs = specs.iter().any(|(spec, _)| spec.kind == Kind::Oncefs);
    let bench = Bench {
        directory: work_directory.path().to_owned(),
        device_bytes: args.device_bytes(&volume),
        oncefs: if needs_oncefs { args.oncefs()? } else { "oncefs".into() },
        raw: args.raw,
    };
    let seed = args.seed();
    let mut report = Report { head: head(args, &bench, &volume, seed), rows: Vec::new(), read_paths: Vec::new() };
    let outcome = measure(args, &bench, &specs, &volume, seed, &mut report);
    report.head.push(machine::load_line());
    if outcome.is_err() {
        report.head.push("INCOMPLETE: the run ended early".to_owned());
    }
    let tables = report.tables(args.baseline(&specs));
    std::io::stdout().write_all(tables.as_bytes()).during(|| "cannot print the tables")?;
    args.json.as_deref().map_or(Ok(()), |path| report.write_json(path))?;
    outcome
}

/// All scenarios on all sides; what was measured before a failure stays in the report.
fn measure(
    args: &RunArgs,
    bench: &Bench,
    specs: &[(SideSpec, String)],
    volume: &Volume,
    seed: u64,
    report: &mut Report,
) -> Result<()> {
    let mut sides = create_sides(bench, specs)?;
    let scenarios = args.scenarios();
    let steps = sides.len() * (1 + scenarios.len() * args.repetitions()) + usize::from(args.index_read());
    let progress = Progress::new(steps);
    warm_up(&mut sides, volume, &progress)?;
    for (number, scenario) in scenarios.iter().enumerate() {
        for repetition in 0..args.repetitions() {
            let seed = seed.wrapping_add(((number as u64) << 32) | ((repetition as u64) << 8));
            progress.say("preparing content".to_owned());
            let body = scenario.prepare(volume, seed)?;
            for turn in 0..sides.len() {
                // Every repetition begins with another side.
                let side = (turn + repetition) % specs.len();
                report.rows.extend(run_once(&mut sides[side], &body, repetition, args.throttled, &progress)?);
            }
        }
    }
    drop(sides);
    if args.index_read() {
        let lessfs_args = args.lessfs_args();
        report.read_paths = compare_read_paths(&bench.directory, &lessfs_args, args.repetitions(), seed, &progress)?;
    }
    Ok(())
}

/// A prepared scenario on one side.
fn run_once(side: &mut Side, body: &Body, repetition: usize, throttled: bool, progress: &Progress) -> Result<Vec<Row>> {
    machine::drop_caches()?;
    let label = side.label().to_owned();
    let say = |step: &str| progress.say(format!("repetition {}, {label}: {step}", repetition + 1));
    let mut case = Case::begin(side, repetition, throttled.then_some(SLOW_DISK), say)?;
    body(&mut case).during(|| format!("on {label}"))?;
    let rows = case.finish()?;
    progress.step();
    Ok(rows)
}

/// The subcommand that compares read paths only.
pub fn run_lessfs(dir: &Path, args: &LessfsArgs, repetitions: usize, seed: u64) -> Result<()> {
    machine::require_root_and_fuse()?;
    signal::install();
    let work_directory = WorkDirectory::create(dir)?;
    let progress = Progress::new(1);
    let rows = compare_read_paths(work_directory.path(), args, repetitions, seed, &progress)?;
    drop(progress);
    println!("{}\nseed {seed}, {args:?}{}", machine::describe(), lessfs::table(&rows));
    Ok(())
}

/// Begins a case that compares mounts of oncefs: its own directory, and what the mounts share. Prints which machine it
/// is and what was asked for.
pub fn begin(
    dir: &Path,
    oncefs: Option<PathBuf>,
    device_bytes: u64,
    args: &impl std::fmt::Debug,
) -> Result<(WorkDirectory, Bench)> {
    machine::require_root_and_fuse()?;
    signal::install();
    let work_directory = WorkDirectory::create(dir)?;
    let directory = work_directory.path().to_owned();
    let bench = Bench { directory, device_bytes, oncefs: find_oncefs(oncefs)?, raw: false };
    println!("{}\n{args:?}", machine::describe());
    Ok((work_directory, bench))
}

/// The run's own directory; removed with everything in it when dropped.
pub struct WorkDirectory(tempfile::TempDir);

impl WorkDirectory {
    /// A new one in `dir`.
    pub fn create(dir: &Path) -> Result<WorkDirectory> {
        // A daemon is recognised by the mount point among its arguments, where symbolic links and dots are resolved.
        let dir = dir.canonicalize().during(|| format!("there is no {} (see --dir)", dir.display()))?;
        let created = tempfile::Builder::new().prefix("oncefs-bench.").tempdir_in(&dir);
        created.map(WorkDirectory).during(|| format!("cannot create a directory in {} (see --dir)", dir.display()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

fn create_sides(bench: &Bench, specs: &[(SideSpec, String)]) -> Result<Vec<Side>> {
    specs.iter().enumerate().map(|(index, (spec, label))| Side::create(bench, spec, label, index)).collect()
}

/// Touches the memory that the run will use and writes a small file on every side; nothing is kept.
fn warm_up(sides: &mut [Side], volume: &Volume, progress: &Progress) -> Result<()> {
    const FILES_CACHED_MAX: u64 = 6;
    progress.say("warm-up: touching memory".to_owned());
    let touch = (volume.file_bytes * FILES_CACHED_MAX).min(machine::memory_available_bytes()? / 2);
    drop(AlignedBuffer::new(touch as usize));
    let file_bytes = volume.file_bytes.min(WARM_UP_FILE_BYTES);
    let small = Volume { file_bytes, ..volume.clone() };
    let body = Scenario::SequentialWrite { duplicate_percent: 0 }.prepare(&small, 0)?;
    for side in sides {
        let label = side.label().to_owned();
        let mut case = Case::begin(side, 0, None, |step| progress.say(format!("warm-up {label}: {step}")))?;
        body(&mut case)?;
        case.finish()?;
        progress.step();
    }
    Ok(())
}

fn compare_read_paths(
    directory: &Path,
    args: &LessfsArgs,
    repetitions: usize,
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
    let ext4: SideSpec = "ext4".parse().map_err(crate::failure::Failure::new)?;
    let mut side = Side::create(&bench, &ext4, "ext4", 0)?;
    side.format()?;
    side.mount()?;
    let rows = lessfs::compare(side.root(), args, repetitions, seed);
    progress.step();
    rows
}

fn head(args: &RunArgs, bench: &Bench, volume: &Volume, seed: u64) -> Vec<String> {
    let below = command::run(Command::new("findmnt").args(["-n", "-o", "SOURCE,FSTYPE", "-T"]).arg(&args.dir));
    vec![
        format!("oncefs-bench {}: {}", env!("CARGO_PKG_VERSION"), machine::describe()),
        format!(
            "one loop device of {} MiB per side (losetup --direct-io=on, 512-byte sectors, sparse file) on {}",
            bench.device_bytes >> 20,
            below.unwrap_or_else(|_| "an unknown disk".to_owned())
        ),
        format!(
            "oncefs: {}; flat: fuser 0.18, writeback cache, readdirplus, parallel directory operations, 64 background requests",
            if bench.raw {
                "volume on ext4, data area on a second loop device"
            } else {
                "volume on ext4 on the loop device"
            }
        ),
        format!(
            "4 KiB operations by one thread, incompressible content, seed {seed}, {} repetitions, sides alternating; \
             new file system for each; every file read back and compared",
            args.repetitions()
        ),
        format!(
            "devices {}",
            if args.throttled { format!("held to {SLOW_DISK:?}") } else { "at full speed".to_owned() }
        ),
        format!("{volume:?}"),
        "MB/s and ratio: median (least-greatest) over repetitions, ratio within a repetition; others: medians"
            .to_owned(),
        "dev W: written to the device up to the unmount after a writing step; dev R: read while timed; \
         data W: oncefs's data area; meta: dev W less the bytes to be stored, per block; CPU s: whole machine"
            .to_owned(),
    ]
}
