//! Measures cold sequential reads of a file all of whose blocks lie apart, beside a fresh file of the same size: speed,
//! and the daemon's processor time. The device is as fast as it is.

use std::time::Instant;

use clap::Args;
use oncefs_toolbox::Table;
use serde::Serialize;

use super::sizes_read::SizesRead;
use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::content::{Content, Random};
use crate::failure::{During, Failure, Result, tell};
use crate::files;
use crate::machine;
use crate::mount::{Mount, rotated, verify, write};
use crate::pieces::{Plan, Sources};
use crate::report::{as_markdown, verdict};
use crate::shared_args::Rounds;
use crate::side::{Bench, Side};
use crate::spread::Spread;

/// The files that are read, after the source.
const FILES: [&str; 2] = ["scattered", "fresh"];
const SCATTERED: usize = 0;
const FRESH: usize = 1;
/// Bytes of a read.
const READ_BYTES: usize = 1 << 20;

/// Arguments of this part.
#[derive(Args, Clone, Debug)]
pub struct ScatteredArgs {
    /// scattered: bytes of the source and of each file that is read
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse, default_value = "512M")]
    pub scattered_size: u64,
    /// scattered: further mount options; repeat it to compare several
    #[arg(long, default_value = "")]
    pub scattered_options: Vec<String>,
}

/// The result of one mount and one file in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    mount: String,
    repetition: usize,
    file: &'static str,
    /// Number of runs that the file consists of.
    runs: u64,
    /// MB/s.
    speed: f64,
    /// The same relative to the fresh file in the same repetition.
    ratio: f64,
    /// The daemon's processor time for each block, in microseconds.
    cpu_us: f64,
    /// Requests to the device.
    sizes: SizesRead,
}

/// Measures every mount in every repetition and prints the table.
pub fn run(args: &ScatteredArgs, rounds: Rounds, bench: &Bench) -> Result<Vec<Reading>> {
    let mounts: Vec<Mount> = args.scattered_options.iter().map(|options| mount(options)).collect();
    let mut readings = Vec::new();
    for (repetition, seed) in rounds.iter() {
        let (plan, content) = load(args.scattered_size, seed);
        for (_, mount) in rotated(&mounts, repetition) {
            tell(&format!("scattered, repetition {}: {}", repetition + 1, mount.name));
            readings.extend(measure(bench, mount, repetition, (&plan, &content))?);
        }
    }
    println!("\nCold sequential read of a file of scattered blocks\n{}", table(&mounts, &readings));
    println!("{}", verdicts(&mounts, &readings));
    Ok(readings)
}

/// Every block is shared while it is written.
fn mount(options: &str) -> Mount {
    let shared = Mount::in_line("1");
    match options {
        "" => Mount { name: "default".to_owned(), ..shared },
        more => Mount { name: more.to_owned(), options: format!("{},{more}", shared.options) },
    }
}

/// A source, a file of its blocks in random order, and a fresh one.
fn load(bytes: u64, seed: u64) -> (Plan, Content) {
    let blocks = bytes as usize / BLOCK_BYTES;
    let (mut plan, mut random) = (Plan::default(), Random::new(seed));
    let numbers = plan.unique(blocks);
    plan.add("source", numbers);
    plan.add(FILES[SCATTERED], Sources { files: 1, blocks, piece_blocks: 1..=1 }.shuffled(&mut random));
    let numbers = plan.unique(blocks);
    plan.add(FILES[FRESH], numbers);
    let content = Content::from_numbers(seed, plan.numbers.clone());
    (plan, content)
}

fn measure(
    bench: &Bench,
    mount: &Mount,
    repetition: usize,
    (plan, content): (&Plan, &Content),
) -> Result<Vec<Reading>> {
    let mut side = mount.begin(bench)?;
    plan.parts.iter().try_for_each(|part| write(&side, content, part))?;
    let mut readings = Vec::new();
    for (_, file) in rotated(&FILES, repetition) {
        readings.push(read_cold(&mut side, mount, repetition, file)?);
    }
    let fresh = readings.iter().find(|reading| reading.file == FILES[FRESH]).map_or(1.0, |reading| reading.speed);
    readings.iter_mut().for_each(|reading| reading.ratio = reading.speed / fresh);
    side.remount_cold()?;
    plan.parts.iter().try_for_each(|part| verify(&side, content, part))?;
    side.unmount()?;
    Ok(readings)
}

/// Reads a file after the daemon was restarted.
fn read_cold(side: &mut Side, mount: &Mount, repetition: usize, file: &'static str) -> Result<Reading> {
    side.remount_cold()?;
    let path = side.root().join(file);
    let bytes = path.metadata().during(|| format!("cannot stat {}", path.display()))?.len();
    let daemon = side.daemon().ok_or_else(|| Failure::new("the daemon is not running"))?;
    let (began, cpu_before) = (Instant::now(), machine::cpu_seconds_process(daemon)?);
    files::read_through(&path, &mut AlignedBuffer::new(READ_BYTES))?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu_seconds = machine::cpu_seconds_process(daemon)? - cpu_before;
    Ok(Reading {
        mount: mount.name.clone(),
        repetition,
        file,
        sizes: SizesRead::take(side)?,
        runs: side.layout(&path)?.number("blocks", "runs")?,
        speed: bytes as f64 / 1e6 / seconds,
        ratio: 1.0,
        cpu_us: cpu_seconds * 1e6 / (bytes / BLOCK_BYTES as u64).max(1) as f64,
    })
}

/// The spread of a value of one file on one mount.
fn spread_of(readings: &[Reading], mount: &Mount, file: usize, value: &dyn Fn(&Reading) -> f64) -> Option<Spread> {
    let of_file = readings.iter().filter(|reading| reading.mount == mount.name && reading.file == FILES[file]);
    Spread::of(of_file.map(value))
}

fn table(mounts: &[Mount], readings: &[Reading]) -> String {
    let mut table =
        Table::new(&["mount", "file", "MB/s", "% of fresh", "daemon us a block", "runs", "blocks a request"]);
    for mount in mounts {
        for (file, name) in FILES.iter().enumerate() {
            let cell = |value: &dyn Fn(&Reading) -> f64, digits: usize| {
                spread_of(readings, mount, file, value).map_or("-".to_owned(), |s| format!("{s:.digits$}"))
            };
            table.row(vec![
                mount.name.clone(),
                (*name).to_owned(),
                cell(&|reading| reading.speed, 0),
                cell(&|reading| reading.ratio * 100.0, 0),
                cell(&|reading| reading.cpu_us, 2),
                cell(&|reading| reading.runs as f64, 0),
                cell(&|reading| reading.sizes.mean(), 1),
            ]);
        }
    }
    as_markdown(table)
}

fn verdicts(mounts: &[Mount], readings: &[Reading]) -> String {
    let of_mount = |mount: &Mount| {
        let percent = spread_of(readings, mount, SCATTERED, &|reading| reading.ratio * 100.0);
        let percent = percent.map_or(0.0, |spread| spread.median);
        let name = format!("{}: speed of the scattered file over the fresh one's", mount.name);
        verdict(&name, percent, percent >= 60.0, "at least 60 %")
    };
    mounts.iter().map(of_mount).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_of_the_scattered_file_goes_on_where_the_one_before_ends() {
        let (plan, content) = load(10 << 20, 3);
        assert_eq!((content.bytes(), content.unique_bytes()), (3 * (10 << 20), 2 * (10 << 20)));
        let scattered = &plan.numbers[plan.parts[1 + SCATTERED].indexes.clone()];
        assert!(scattered.windows(2).all(|pair| pair[0] + 1 != pair[1]));
    }

    #[test]
    fn an_aim_that_is_missed_is_said() {
        let reading = |file: usize, ratio| Reading {
            mount: "default".to_owned(),
            repetition: 0,
            file: FILES[file],
            runs: 7,
            speed: 100.0 * ratio,
            ratio,
            cpu_us: 3.0,
            sizes: SizesRead::default(),
        };
        let line = |ratio| verdicts(&[mount("")], &[reading(SCATTERED, ratio), reading(FRESH, 1.0)]);
        assert!(line(0.59).ends_with("59.00 % (aim: at least 60 %): MISSED"), "{}", line(0.59));
        assert!(line(0.6).ends_with("60.00 % (aim: at least 60 %): met"), "{}", line(0.6));
    }
}
