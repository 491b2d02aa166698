//! Measures how soon the worker yields to a program that reads from a slow device: the time to its last request.
//!
//! The program reads one block of a file that is not cached. Whatever the device reads after that is for the worker. The
//! device's counters are sampled every millisecond, until shortly before the volume counts as idle again.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread::sleep;
use std::time::{Duration, Instant};

use oncefs_toolbox::Table;
use serde::Serialize;

use super::args::OverheadArgs;
use super::beside::Backlog;
use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::content::Content;
use crate::failure::{During, Failure, Result, tell};
use crate::files;
use crate::measure::Latencies;
use crate::report::{as_markdown, verdict};
use crate::side::{Bench, Side};
use crate::signal;
use crate::spread::Spread;
use crate::throttle::{SLOW_DISK, Throttle};

/// The time within which the worker must yield.
const AIM_MS: f64 = 50.0;
/// How long the device is watched after a request; the volume counts as idle after 500 ms.
const WATCHED: Duration = Duration::from_millis(400);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long the worker may take to begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(20);
/// Blocks between those that are read, more than the kernel or oncefs would read ahead.
const STRIDE_BLOCKS: usize = 1024;

/// One request beside the worker.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    /// From 0 on.
    pub repetition: usize,
    /// Until the request was answered, in milliseconds.
    pub answered_ms: f64,
    /// Until the device read for the last time, in milliseconds; 0 if it read nothing more.
    pub last_read_ms: f64,
    /// Bytes read meanwhile.
    pub read_bytes: u64,
}

/// Lets the worker begin and interrupts it, over and over, and prints the table.
pub fn run(args: &OverheadArgs, bench: &Bench) -> Result<Vec<Reading>> {
    let mut readings = Vec::new();
    for (repetition, seed) in args.rounds().iter() {
        tell(&format!("yield, repetition {}", repetition + 1));
        measure(args, bench, (repetition, seed), &mut readings)?;
    }
    println!("\nFrom a program's request to the worker's last, {SLOW_DISK:?}\n{}", table(&readings));
    if let Some(last) = Spread::of(readings.iter().map(|reading| reading.last_read_ms)) {
        let name = format!("requests after which the worker read for at most {AIM_MS} ms");
        let within = readings.iter().filter(|reading| reading.last_read_ms <= AIM_MS).count();
        let share = within as f64 * 100.0 / readings.len() as f64;
        println!("{}", verdict(&name, share, last.max <= AIM_MS, "100 %"));
    }
    Ok(readings)
}

fn measure(
    args: &OverheadArgs,
    bench: &Bench,
    (repetition, seed): (usize, u64),
    readings: &mut Vec<Reading>,
) -> Result<()> {
    let backlog = Backlog::new(args.backlog(), seed);
    let mut side = backlog.mount(&args.profile).begin(bench)?;
    side.ask("dedup", &["--pause"])?;
    backlog.write(&side)?;
    let content = Content::new(seed ^ 1, args.trials() * STRIDE_BLOCKS, 0, 0)?;
    let path = side.root().join("read");
    files::write_all(&files::open(&path, true)?, &content, &mut Latencies::with_capacity(content.blocks()))?;
    side.remount_cold()?;
    let throttle = Throttle::apply(SLOW_DISK, side.device_numbers()?)?;
    let options = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path);
    let file = options.during(|| format!("cannot open {}", path.display()))?;
    for trial in 0..args.trials() {
        if !wait_for_worker(&side)? {
            tell(&format!("the worker finished after {trial} requests: give it more work with --backlog"));
            break;
        }
        readings.push(interrupt(&side, &file, trial, repetition)?);
    }
    drop((file, throttle));
    side.unmount()
}

/// Waits until the device reads. False if it does not within the time.
fn wait_for_worker(side: &Side) -> Result<bool> {
    let (began, before) = (Instant::now(), side.device_bytes()?.read);
    while began.elapsed() < BEGINS_WITHIN {
        signal::check()?;
        sleep(Duration::from_millis(20));
        if side.device_bytes()?.read > before {
            // In the midst of its work.
            sleep(Duration::from_millis(100));
            return Ok(true);
        }
    }
    Ok(false)
}

fn interrupt(side: &Side, file: &File, trial: usize, repetition: usize) -> Result<Reading> {
    let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
    let at = (trial * STRIDE_BLOCKS * BLOCK_BYTES) as u64;
    let began = Instant::now();
    let read = file.read_at(buffer.bytes_mut(), at).during(|| "cannot read the program's block")?;
    if read != BLOCK_BYTES {
        return Err(Failure::new("the program's read returned only part of the block"));
    }
    let answered_ms = began.elapsed().as_secs_f64() * 1e3;
    let first = side.device_bytes()?.read;
    let (mut seen, mut last_read_ms) = (first, 0.0);
    while began.elapsed() < WATCHED {
        signal::check()?;
        sleep(LOOK_EVERY);
        let now = side.device_bytes()?.read;
        if now != seen {
            (seen, last_read_ms) = (now, began.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(Reading { repetition, answered_ms, last_read_ms, read_bytes: seen - first })
}

fn table(readings: &[Reading]) -> String {
    let mut table = Table::new(&["", "median (least-greatest)"]);
    let mut row = |name: &str, value: fn(&Reading) -> f64| {
        let spread = Spread::of(readings.iter().map(value)).map_or("-".to_owned(), |spread| format!("{spread:.1}"));
        table.row(vec![name.to_owned(), spread]);
    };
    row("answered after ms", |reading| reading.answered_ms);
    row("the worker's last read after ms", |reading| reading.last_read_ms);
    row("read meanwhile, KiB", |reading| reading.read_bytes as f64 / 1024.0);
    as_markdown(table)
}
