//! Measures the run detector's share of a write: the time of the stage `decide` over that of the other stages, and over
//! the daemon's processor time.

use std::time::Instant;

use clap::{Args, ValueEnum};
use oncefs_toolbox::Table;
use serde::Serialize;

use crate::aligned::BLOCK_BYTES;
use crate::content::{Content, Random};
use crate::failure::{Failure, Result, tell};
use crate::figures::Figures;
use crate::machine;
use crate::mount::{Mount, rotated, verify, write};
use crate::pieces::{Plan, Sources};
use crate::report::{as_markdown, verdict};
use crate::shared_args::Rounds;
use crate::side::{Bench, Side};
use crate::spread::Spread;

/// The stages of a write, by their names in `oncefs stats`.
const STAGES: [&str; 7] = ["receive", "tag", "lookup", "decide", "confirm", "place", "map"];
const DECIDE: usize = 3;
const PLACE: usize = 5;
/// Files that duplicates are taken from.
const SOURCES: usize = 10;

/// Arguments of this part.
#[derive(Args, Clone, Debug)]
pub struct DetectorArgs {
    /// detector: bytes of each file whose writing is measured
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse, default_value = "256M")]
    pub write_size: u64,
    /// detector: the kinds of data written
    #[arg(long, value_enum, value_delimiter = ',', default_value = "unique,runs,scattered")]
    pub data: Vec<Data>,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Data {
    /// No duplicates.
    Unique,
    /// Half of the blocks are duplicates, in runs of 64 to 256.
    Runs,
    /// Half of the blocks are duplicates, each alone.
    Scattered,
}

impl Data {
    fn describe(self) -> &'static str {
        match self {
            Data::Unique => "unique",
            Data::Runs => "half in runs of 64-256",
            Data::Scattered => "half, each alone",
        }
    }
}

/// The result of one mount with one kind of data in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    mount: String,
    data: Data,
    repetition: usize,
    blocks: u64,
    /// Blocks that became references as they were written.
    shared: u64,
    /// Wall-clock seconds, fsync included.
    seconds: f64,
    /// Processor seconds of the daemon.
    cpu_seconds: f64,
    /// Seconds in each of the write path's stages, all threads added.
    stages: [f64; STAGES.len()],
}

impl Reading {
    fn of_cpu(&self) -> f64 {
        self.stages[DECIDE] * 100.0 / self.cpu_seconds
    }

    /// Its share of all stages except the one that waits for the device.
    fn of_stages(&self) -> f64 {
        let sum: f64 = self.stages.iter().sum();
        self.stages[DECIDE] * 100.0 / (sum - self.stages[PLACE])
    }
}

/// Measures every kind of data on every mount and prints the tables.
pub fn run(args: &DetectorArgs, mounts: &[Mount], rounds: Rounds, bench: &Bench) -> Result<Vec<Reading>> {
    let mut readings = Vec::new();
    for data in args.data.iter().copied() {
        for (repetition, seed) in rounds.iter() {
            let (plan, content) = load(data, args.write_size, seed);
            for (_, mount) in rotated(mounts, repetition) {
                tell(&format!("detector, {}, repetition {}: {}", data.describe(), repetition + 1, mount.name));
                readings.push(measure(bench, mount, data, repetition, (&plan, &content))?);
            }
        }
    }
    println!(
        "\nThe detector on the write path, {} MB a file\n{}",
        args.write_size / 1_000_000,
        table(&args.data, mounts, &readings)
    );
    let worst = cells(&args.data, mounts, &readings).filter_map(|(mount, data, of)| {
        Some((Spread::of(of.map(Reading::of_cpu))?.median, format!("{}, mount {}", data.describe(), mount.name)))
    });
    if let Some((share, name)) = worst.max_by(|one, other| one.0.total_cmp(&other.0)) {
        let name = format!("decide's share of the daemon's processor time, most of all with {name}");
        println!("{}", verdict(&name, share, share < 5.0, "below 5 %"));
    }
    Ok(readings)
}

/// The files that duplicates come from, and the file that is measured, as large as all of them together.
fn load(data: Data, bytes: u64, seed: u64) -> (Plan, Content) {
    let blocks = bytes as usize / BLOCK_BYTES / SOURCES;
    let (mut plan, mut random) = (Plan::default(), Random::new(seed));
    for source in 0..SOURCES {
        let numbers = plan.unique(blocks);
        plan.add(format!("source{source}"), numbers);
    }
    let lengths = match data {
        Data::Unique => None,
        Data::Runs => Some(64..=256),
        Data::Scattered => Some(1..=1),
    };
    let numbers = match lengths {
        None => plan.unique(blocks * SOURCES),
        Some(piece_blocks) => {
            plan.pieced(blocks * SOURCES, &Sources { files: SOURCES, blocks, piece_blocks }, true, &mut random)
        }
    };
    plan.add("measured", numbers);
    let content = Content::from_numbers(seed, plan.numbers.clone());
    (plan, content)
}

fn measure(bench: &Bench, mount: &Mount, data: Data, repetition: usize, load: (&Plan, &Content)) -> Result<Reading> {
    let (plan, content) = load;
    let mut side = mount.begin(bench)?;
    let (measured, sources) = plan.parts.split_last().ok_or_else(|| Failure::new("nothing to write"))?;
    sources.iter().try_for_each(|part| write(&side, content, part))?;
    let before = Marks::take(&side)?;
    let began = Instant::now();
    write(&side, content, measured)?;
    let seconds = began.elapsed().as_secs_f64();
    let after = Marks::take(&side)?;
    side.remount_cold()?;
    verify(&side, content, measured)?;
    side.unmount()?;
    Ok(Reading {
        mount: mount.name.clone(),
        data,
        repetition,
        blocks: measured.indexes.len() as u64,
        shared: after.shared - before.shared,
        seconds,
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        stages: std::array::from_fn(|stage| after.stages[stage] - before.stages[stage]),
    })
}

/// Sums since the mount.
struct Marks {
    cpu_seconds: f64,
    stages: [f64; STAGES.len()],
    shared: u64,
}

impl Marks {
    fn take(side: &Side) -> Result<Marks> {
        let daemon = side.daemon().ok_or_else(|| Failure::new("the mounted oncefs has no daemon"))?;
        let cpu_seconds = machine::cpu_seconds_process(daemon)?;
        let figures: Figures = side.stats()?;
        let mut stages = [0.0; STAGES.len()];
        for (stage, name) in stages.iter_mut().zip(STAGES) {
            *stage = figures.number_at(&["stages", name, "latency", "nanoseconds"])? as f64 / 1e9;
        }
        Ok(Marks { cpu_seconds, stages, shared: figures.number("counters", "blocks_shared")? })
    }
}

/// Every kind of data on every mount, with its readings.
fn cells<'a>(
    data: &'a [Data],
    mounts: &'a [Mount],
    readings: &'a [Reading],
) -> impl Iterator<Item = (&'a Mount, Data, impl Iterator<Item = &'a Reading> + Clone)> {
    data.iter().copied().flat_map(move |data| {
        mounts.iter().map(move |mount| {
            (mount, data, readings.iter().filter(move |reading| reading.data == data && reading.mount == mount.name))
        })
    })
}

fn table(data: &[Data], mounts: &[Mount], readings: &[Reading]) -> String {
    let headings = [
        "duplicates",
        "mount",
        "MB/s",
        "shared %",
        "daemon CPU s",
        "decide us/block",
        "decide, % of CPU",
        "% of the stages but place",
    ];
    let mut table = Table::new(&headings);
    for (mount, data, of) in cells(data, mounts, readings) {
        let spread = |value: &dyn Fn(&Reading) -> f64, digits: usize| {
            Spread::of(of.clone().map(value)).map_or("-".to_owned(), |spread| format!("{spread:.digits$}"))
        };
        table.row(vec![
            data.describe().to_owned(),
            mount.name.clone(),
            spread(&|r| r.blocks as f64 * BLOCK_BYTES as f64 / 1e6 / r.seconds, 0),
            spread(&|r| r.shared as f64 * 100.0 / r.blocks as f64, 1),
            spread(&|r| r.cpu_seconds, 2),
            spread(&|r| r.stages[DECIDE] * 1e6 / r.blocks as f64, 3),
            spread(&Reading::of_cpu, 2),
            spread(&Reading::of_stages, 2),
        ]);
    }
    as_markdown(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(data: Data, decide: f64) -> Reading {
        let stages = [0.1, 0.2, 0.1, decide, 0.1, 5.0, 0.5 - decide];
        Reading {
            mount: "8".to_owned(),
            data,
            repetition: 0,
            blocks: 1000,
            shared: 250,
            seconds: 1.0,
            cpu_seconds: 2.0,
            stages,
        }
    }

    #[test]
    fn decide_is_told_beside_the_processor_time_and_the_stages_that_do_not_wait() {
        let reading = reading(Data::Unique, 0.1);
        assert!((reading.of_cpu() - 5.0).abs() < 1e-9 && (reading.of_stages() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn each_kind_of_data_has_its_row_on_each_mount() {
        let readings = [reading(Data::Unique, 0.1), reading(Data::Scattered, 0.2)];
        let text = table(&[Data::Unique, Data::Scattered], &[Mount::in_line("8")], &readings);
        assert_eq!(text.lines().count(), 4, "{text}");
        let row = text.lines().find(|line| line.starts_with("| half, each alone")).unwrap();
        assert!(row.contains("10.00 (10.00-10.00)") && row.contains("25.0 (25.0-25.0)"), "{text}");
    }

    #[test]
    fn half_of_what_is_measured_are_duplicates_if_any() {
        for (data, unique) in [(Data::Unique, 100), (Data::Runs, 50), (Data::Scattered, 50)] {
            let (plan, _) = load(data, 40 << 20, 3);
            let part = plan.parts.last().unwrap();
            let new = part.indexes.clone().filter(|index| plan.numbers[*index] as usize >= 10_240 - 10).count();
            let percent = (new * 100).div_ceil(part.indexes.len());
            assert!(percent.abs_diff(unique) <= 3, "{data:?}: {percent}");
        }
    }
}
