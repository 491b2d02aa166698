//! Measures response times of a mixed replay by threshold, and without deduplication: iDedup's figures 8 to 10.

use clap::Args;
use oncefs_toolbox::Table;
use serde::Serialize;

use super::plan::{Mix, Replay, ReplayArgs};
use super::replay::{Io, Played, play, prepare, read_again, verify_all};
use super::sizes_read::SizesRead;
use crate::failure::{Result, tell};
use crate::measure::Latencies;
use crate::mount::{Mount, rotated};
use crate::report::{as_markdown, verdict};
use crate::shared_args::Rounds;
use crate::side::{Bench, Side};
use crate::spread::Spread;
use crate::throttle::{SLOW_DISK, Throttle};

/// The mount that the others are compared with, and the same once more, which shows how far two equal mounts differ.
const OFF: &str = "off";
const OFF_AGAIN: &str = "off again";
/// Shares of the requests whose times are reported.
const SHARES: [f64; 8] = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999];
const MEDIAN: usize = 2;
/// Number of size classes reported: up to 1, 2, 4, ... blocks.
const SIZE_CLASSES: usize = 9;
/// The class of requests for up to 8 blocks, which the paper reports.
const CLASS_OF_8: usize = 3;

/// Arguments of this part, besides those of the replay.
#[derive(Args, Clone, Debug)]
pub struct ResponseArgs {
    /// response: the kinds of data written
    #[arg(long, value_enum, value_delimiter = ',', default_value = "unique,corporate")]
    pub mixes: Vec<Mix>,
    /// response: how requests reach the file system
    #[arg(long, value_enum, value_delimiter = ',', default_value = "buffered,direct")]
    pub io: Vec<Io>,
    /// response: limit the device to the speed of the slow disk too
    #[arg(long)]
    pub throttled: bool,
}

/// By how many percent a mount may take longer than another one.
pub struct Aim<'a> {
    mount: &'a str,
    baseline: &'a str,
    percent_max: f64,
}

/// What is expected of fixed thresholds, as in the paper.
pub const PAPER: [Aim; 3] = [
    Aim { mount: "8", baseline: OFF, percent_max: 2.0 },
    Aim { mount: "8", baseline: "1", percent_max: 2.0 },
    Aim { mount: OFF_AGAIN, baseline: OFF, percent_max: 2.0 },
];

impl<'a> Aim<'a> {
    /// Against the mount that shares nothing.
    pub fn beside_off(mount: &'a str, percent_max: f64) -> Aim<'a> {
        Aim { mount, baseline: OFF, percent_max }
    }
}

/// Times of requests, in microseconds.
#[derive(Clone, Debug, Serialize)]
struct Times {
    mean: f64,
    percentiles: Vec<f64>,
}

impl Times {
    fn of(mut latencies: Latencies) -> Times {
        let percentiles = latencies.percentiles_us(&SHARES);
        Times { mean: latencies.summary().map_or(0.0, |summary| summary.mean_us), percentiles }
    }

    fn median(&self) -> f64 {
        self.percentiles.get(MEDIAN).copied().unwrap_or_default()
    }
}

/// The result of one mount in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    mount: String,
    mix: Mix,
    io: Io,
    repetition: usize,
    writes: Times,
    reads: Times,
    all: Times,
    cpu_seconds: f64,
    cpu_percents: Vec<f64>,
    /// Duplicates among the blocks written, and blocks that became references as they were written.
    duplicates: [u64; 2],
    /// Requests to the device when the reads were repeated on a cold mount; buffered only.
    sizes: SizesRead,
}

/// Measures every mix on every mount and prints the tables.
pub fn run(
    args: &ResponseArgs,
    (mounts, aims): (&[Mount], &[Aim]),
    requests: &ReplayArgs,
    rounds: Rounds,
    bench: &Bench,
) -> Result<Vec<Reading>> {
    let [off, off_again] = [OFF, OFF_AGAIN].map(Mount::off);
    let mounts: Vec<Mount> = [off].into_iter().chain(mounts.iter().cloned()).chain([off_again]).collect();
    let mut readings = Vec::new();
    for mix in args.mixes.iter().copied() {
        for io in args.io.iter().copied() {
            let mut measured = Vec::new();
            for (repetition, seed) in rounds.iter() {
                let replay = requests.replay(mix, seed);
                for (_, mount) in rotated(&mounts, repetition) {
                    tell(&format!("{}, {io:?}, repetition {}: {}", mix.describe(), repetition + 1, mount.name));
                    measured.push(measure(args, bench, mount, (mix, io, repetition), &replay)?);
                }
            }
            print((&mounts, aims), mix, io, &measured);
            readings.extend(measured);
        }
    }
    Ok(readings)
}

fn measure(
    args: &ResponseArgs,
    bench: &Bench,
    mount: &Mount,
    (mix, io, repetition): (Mix, Io, usize),
    replay: &Replay,
) -> Result<Reading> {
    let mut side = mount.begin(bench)?;
    prepare(&side, replay)?;
    let shared = |side: &Side| side.stats()?.number("counters", "blocks_shared");
    let shared_before = shared(&side)?;
    let throttle = args.throttled.then(|| Throttle::apply(SLOW_DISK, side.device_numbers()?)).transpose()?;
    let Played { writes, reads, cpu_seconds, cpu_percents } = play(&side, replay, io)?;
    drop(throttle);
    let duplicates = [replay.duplicate_blocks() as u64, shared(&side)? - shared_before];
    side.remount_cold()?;
    let sizes = match io {
        Io::Buffered => {
            read_again(&side, replay)?;
            SizesRead::take(&side)?
        }
        Io::Direct | Io::Synced => SizesRead::default(),
    };
    verify_all(&side, replay)?;
    side.unmount()?;
    let mut all = Latencies::with_capacity(0);
    all.join(&writes);
    all.join(&reads);
    let [writes, reads, all] = [writes, reads, all].map(Times::of);
    let mount = mount.name.clone();
    Ok(Reading { mount, mix, io, repetition, writes, reads, all, cpu_seconds, cpu_percents, duplicates, sizes })
}

fn print((mounts, aims): (&[Mount], &[Aim]), mix: Mix, io: Io, readings: &[Reading]) {
    println!("\nMixed replay, {}, {io:?}: times in microseconds\n{}", mix.describe(), times(mounts, readings));
    println!("All requests: time up to which so many took (figure 9)\n{}", percentiles(mounts, readings));
    println!("Samples of the daemon's share of all processors, % (figure 10)\n{}", processor(mounts, readings));
    if io == Io::Buffered {
        println!(
            "The reads again on a cold mount, joined where they go on: % of device requests up to so many blocks (figure 8)"
        );
        println!("{}{}\n", sizes(mounts, readings), small_requests(readings));
    }
    println!("{}", verdicts(aims, readings));
}

/// The spread of a value over the repetitions of one mount; `value` is given the reading and that of `baseline`.
fn against(
    readings: &[Reading],
    mount: &str,
    baseline: &str,
    value: &dyn Fn(&Reading, &Reading) -> f64,
) -> Option<Spread> {
    let of = |mount: &str, repetition: usize| {
        readings.iter().find(|reading| reading.mount == mount && reading.repetition == repetition)
    };
    let repetitions = 0..readings.iter().map(|reading| reading.repetition + 1).max().unwrap_or(0);
    Spread::of(repetitions.filter_map(|repetition| Some(value(of(mount, repetition)?, of(baseline, repetition)?))))
}

fn shown(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or("-".to_owned(), |spread| format!("{spread:.digits$}"))
}

fn times(mounts: &[Mount], readings: &[Reading]) -> String {
    let headings = [
        "mount",
        "write p50",
        "to off",
        "write mean",
        "to off",
        "read mean",
        "to off",
        "mean of all",
        "to off",
        "daemon CPU s",
        "shared % of duplicates",
    ];
    let values: [&dyn Fn(&Reading) -> f64; 4] =
        [&|r| r.writes.median(), &|r| r.writes.mean, &|r| r.reads.mean, &|r| r.all.mean];
    let mut table = Table::new(&headings);
    for mount in mounts {
        let mut cells = vec![mount.name.clone()];
        for value in values {
            cells.push(shown(against(readings, &mount.name, OFF, &|reading, _| value(reading)), 1));
            cells.push(shown(against(readings, &mount.name, OFF, &|reading, off| value(reading) / value(off)), 3));
        }
        cells.push(shown(against(readings, &mount.name, OFF, &|reading, _| reading.cpu_seconds), 2));
        let has_duplicates = readings.iter().any(|reading| reading.duplicates[0] > 0);
        let shared =
            |reading: &Reading, _: &Reading| reading.duplicates[1] as f64 * 100.0 / reading.duplicates[0] as f64;
        let shared = against(readings, &mount.name, OFF, &shared).filter(|_| has_duplicates);
        cells.push(shown(shared, 1));
        table.row(cells);
    }
    as_markdown(table)
}

fn percentiles(mounts: &[Mount], readings: &[Reading]) -> String {
    let headings = ["mount", "10 %", "25 %", "50 %", "75 %", "90 %", "95 %", "99 %", "99.9 %"];
    rows(mounts, &headings, SHARES.len(), 1, |mount, column| {
        against(readings, mount, OFF, &|reading, _| reading.all.percentiles.get(column).copied().unwrap_or_default())
    })
}

fn processor(mounts: &[Mount], readings: &[Reading]) -> String {
    let headings = ["mount", "10 %", "25 %", "50 %", "75 %", "90 %", "95 %", "99 %", "99.9 %"];
    rows(mounts, &headings, SHARES.len(), 1, |mount, column| {
        let samples = readings.iter().filter(|reading| reading.mount == mount);
        let mut samples: Vec<f64> = samples.flat_map(|reading| reading.cpu_percents.iter().copied()).collect();
        samples.sort_unstable_by(f64::total_cmp);
        let last = samples.len().checked_sub(1)?;
        Spread::of([samples[(last as f64 * SHARES[column]).round() as usize]])
    })
}

fn sizes(mounts: &[Mount], readings: &[Reading]) -> String {
    let headings = ["mount", "1", "2", "4", "8", "16", "32", "64", "128", "256", "requests", "mean blocks"];
    rows(mounts, &headings, SIZE_CLASSES + 2, 1, |mount, column| {
        against(readings, mount, OFF, &|reading, _| match column.checked_sub(SIZE_CLASSES) {
            None => reading.sizes.percent_up_to(column),
            Some(0) => reading.sizes.requests() as f64,
            Some(_) => reading.sizes.mean(),
        })
    })
}

/// A row for each mount, a median for each column.
fn rows(
    mounts: &[Mount],
    headings: &[&str],
    columns: usize,
    digits: usize,
    value: impl Fn(&str, usize) -> Option<Spread>,
) -> String {
    let mut table = Table::new(headings);
    for mount in mounts {
        let cells = (0..columns).map(|column| {
            value(&mount.name, column).map_or("-".to_owned(), |spread| format!("{:.digits$}", spread.median))
        });
        table.row(std::iter::once(mount.name.clone()).chain(cells).collect());
    }
    as_markdown(table)
}

/// How many more requests are small than without deduplication, beside the paper's Corporate and Engineering.
fn small_requests(readings: &[Reading]) -> String {
    let more = |mount: &str| {
        let more = |reading: &Reading, off: &Reading| {
            reading.sizes.percent_up_to(CLASS_OF_8) - off.sizes.percent_up_to(CLASS_OF_8)
        };
        against(readings, mount, OFF, &more).map_or("-".to_owned(), |spread| format!("{:+.1}", spread.median))
    };
    format!(
        "more requests for up to 8 blocks than with off, in percent of all: run_blocks_min 1: {} (paper: +11, +12), 8: {} (paper: +2)",
        more("1"),
        more("8")
    )
}

fn verdicts(aims: &[Aim], readings: &[Reading]) -> String {
    type Value<'a> = &'a dyn Fn(&Reading) -> f64;
    let times: [(&str, Value); 2] =
        [("median write", &|reading| reading.writes.median()), ("mean response time", &|reading| reading.all.mean)];
    let mut lines = Vec::new();
    for (name, value) in times {
        let longer = |mount, baseline| {
            let ratio = |reading: &Reading, base: &Reading| (value(reading) / value(base) - 1.0) * 100.0;
            against(readings, mount, baseline, &ratio)
        };
        for Aim { mount, baseline, percent_max } in aims {
            let Some(longer) = longer(mount, baseline) else { continue };
            let line = format!("{name}, {mount} against {baseline}: longer by");
            lines.push(verdict(
                &line,
                longer.median,
                longer.median <= *percent_max,
                &format!("at most {percent_max:.0} %"),
            ));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(mount: &str, repetition: usize, us: f64) -> Reading {
        let times = Times { mean: us, percentiles: vec![us; SHARES.len()] };
        Reading {
            mount: mount.to_owned(),
            mix: Mix::Corporate,
            io: Io::Buffered,
            repetition,
            writes: times.clone(),
            reads: times.clone(),
            all: times,
            cpu_seconds: 1.0,
            cpu_percents: vec![us / 10.0],
            duplicates: [100, 60],
            sizes: SizesRead::default(),
        }
    }

    #[test]
    fn ratios_are_to_the_mount_that_is_off_in_the_same_repetition() {
        let readings = [reading("8", 0, 100.0), reading(OFF, 0, 50.0), reading(OFF, 1, 100.0), reading("8", 1, 400.0)];
        let text = times(&[Mount::in_line("8")], &readings);
        assert!(text.contains("3.000 (2.000-4.000)") && text.contains("60.0 (60.0-60.0)"), "{text}");
        assert!(
            verdicts(&PAPER, &readings)
                .contains("median write, 8 against off: longer by: 200.00 % (aim: at most 2 %): MISSED")
        );
    }

    #[test]
    fn every_mount_has_a_row_in_every_table() {
        let readings = [reading("8", 0, 100.0), reading(OFF, 0, 50.0)];
        let mounts = [Mount::off(OFF), Mount::in_line("8")];
        for table in [percentiles(&mounts, &readings), processor(&mounts, &readings), sizes(&mounts, &readings)] {
            assert_eq!(table.lines().count(), 4, "{table}");
        }
        assert!(small_requests(&readings).contains("8: +0.0 (paper"), "{}", small_requests(&readings));
    }
}
