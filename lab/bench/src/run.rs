//! Runs the comparison of file systems: sides, warm-up, scenarios in alternation, report.

use std::io::Write as _;
use std::process::Command;

use crate::aligned::AlignedBuffer;
use crate::case::Case;
use crate::command;
use crate::failure::{During, Result};
use crate::lessfs_read;
use crate::machine;
use crate::measure::Row;
use crate::progress::Progress;
use crate::scenario::Scenario;
use crate::settings::RunArgs;
use crate::side::{Bench, Side, SideSpec};
use crate::signal;
use crate::summary::Summary;
use crate::throttle::SLOW_DISK;
use crate::volume::{Body, Volume};
use crate::work_directory::WorkDirectory;

const WARM_UP_FILE_BYTES: u64 = 64 << 20;

/// Runs the comparison, prints its tables and writes its rows.
pub fn run(args: &RunArgs) -> Result<()> {
    machine::require_root_and_fuse()?;
    signal::install();
    let specs = args.sides()?;
    let volume = args.volume()?;
    let work_directory = WorkDirectory::create(&args.dir)?;
    let needs_oncefs = specs.iter().any(|(spec, _)| spec.kind.has_volume());
    let bench = Bench {
        directory: work_directory.path().to_owned(),
        device_bytes: args.device_bytes(&volume),
        oncefs: if needs_oncefs { args.oncefs()? } else { "oncefs".into() },
        raw: args.raw,
    };
    let seed = args.seed();
    let mut report = Summary { head: head(args, &bench, &volume, seed), rows: Vec::new(), read_paths: Vec::new() };
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

/// Runs all scenarios on all sides. Rows measured before a failure stay in the report.
fn measure(
    args: &RunArgs,
    bench: &Bench,
    specs: &[(SideSpec, String)],
    volume: &Volume,
    seed: u64,
    report: &mut Summary,
) -> Result<()> {
    let mut sides = create_sides(bench, specs)?;
    let scenarios = args.scenarios();
    let steps = sides.len() * (1 + scenarios.len() * args.repetitions().len()) + usize::from(args.index_read());
    let progress = Progress::new(steps);
    warm_up(&mut sides, volume, &progress)?;
    for (number, scenario) in scenarios.iter().enumerate() {
        for repetition in args.repetitions() {
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
        report.read_paths = lessfs_read::compare(&bench.directory, &lessfs_args, args.repetitions(), seed, &progress)?;
    }
    Ok(())
}

/// Runs a prepared scenario on one side.
pub fn run_once(
    side: &mut Side,
    body: &Body,
    repetition: usize,
    throttled: bool,
    progress: &Progress,
) -> Result<Vec<Row>> {
    machine::drop_caches()?;
    let label = side.label().to_owned();
    let say = |step: &str| progress.say(format!("repetition {}, {label}: {step}", repetition + 1));
    let mut case = Case::begin(side, repetition, throttled.then_some(SLOW_DISK), say)?;
    body(&mut case).during(|| format!("on {label}"))?;
    let rows = case.finish()?;
    progress.step();
    Ok(rows)
}

fn create_sides(bench: &Bench, specs: &[(SideSpec, String)]) -> Result<Vec<Side>> {
    specs.iter().enumerate().map(|(index, (spec, label))| Side::create(bench, spec, label, index)).collect()
}

/// Touches the memory that the run will use and writes a small file on every side; nothing is kept.
pub fn warm_up(sides: &mut [Side], volume: &Volume, progress: &Progress) -> Result<()> {
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
            "oncefs: {}; flat: our transport, writeback cache, readdirplus, parallel directory operations, 64 background requests",
            if bench.raw {
                "volume on ext4, data area on a second loop device"
            } else {
                "volume on ext4 on the loop device"
            }
        ),
        format!(
            "4 KiB operations by one thread, {}, seed {seed}, {} repetitions, sides alternating; new file system for \
             each; every file read back and compared",
            match volume.shrinks_to_percent {
                100 => "incompressible content".to_owned(),
                percent => format!("content that shrinks to {percent} %"),
            },
            args.repetitions().len()
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
