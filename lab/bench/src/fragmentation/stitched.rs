//! Measures cold sequential reads of files stitched from ten others, beside a fresh file of the same size.
//!
//! A stitched file has each block of the ten once. The device is held to the speed of a slow disk.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use clap::{Args, ValueEnum};
use oncefs_toolbox::Table;
use serde::Serialize;

use super::sizes_read::SizesRead;
use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::command;
use crate::content::{Content, Random};
use crate::failure::{During, Result, tell};
use crate::files;
use crate::mount::{Mount, rotated, verify, write};
use crate::piece_cost;
use crate::pieces::{Plan, Sources};
use crate::report::{as_markdown, verdict};
use crate::shared_args::Rounds;
use crate::side::{Bench, Side};
use crate::spread::Spread;
use crate::throttle::{SLOW_DISK, Throttle};

const SOURCES: usize = 10;
/// The files that are read, after the sources.
const FILES: [&str; 3] = ["pieces of 1-3", "pieces of 16-64", "fresh"];
const SHORT: usize = 0;
const LONG: usize = 1;
const FRESH: usize = 2;
/// Bytes of a read.
const READ_BYTES: usize = 1 << 20;

/// Arguments of this part.
#[derive(Args, Clone, Debug)]
pub struct StitchedArgs {
    /// stitched: bytes of the ten sources together, and of each file made of them
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse, default_value = "240M")]
    pub size: u64,
    /// stitched: the mounts compared
    #[arg(long, value_enum, value_delimiter = ',', default_value = "auto,1,4,auto-full-pass,auto-out-of-line")]
    pub stitched: Vec<Case>,
    /// stitched: the programs that read the files
    #[arg(long, value_enum, value_delimiter = ',', default_value = "own,dd")]
    pub readers: Vec<Reader>,
}

/// What reads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Reader {
    /// A loop of reads of 1 MiB in this program.
    Own,
    /// `dd bs=1M`.
    Dd,
}

/// The result of one mount and one file in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    mount: String,
    repetition: usize,
    file: &'static str,
    /// Blocks of the file, and how many of them are shared with other places.
    blocks: [u64; 2],
    /// Number of runs that the file consists of.
    runs: u64,
    /// MB/s by each of the readers.
    speeds: Vec<f64>,
    /// The same relative to the fresh file in the same repetition.
    ratios: Vec<f64>,
    /// Requests to the device of the last reader.
    sizes: SizesRead,
}

/// A mount, and the arguments of `oncefs dedup` after everything is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Shared while it is written, with the automatic threshold.
    Auto,
    /// Every block is shared.
    #[value(name = "1")]
    One,
    /// iDedup's threshold.
    #[value(name = "4")]
    Four,
    /// Like `auto`, then the worker looks at every block.
    AutoFullPass,
    /// Nothing is shared while it is written; then the worker looks at everything.
    AutoOutOfLine,
    /// The profile as it is, once it knows what a piece costs on the slow device; and the worker, when it gets to it.
    Desktop,
    /// The same of this profile.
    Server,
}

impl Case {
    fn mount(self) -> Mount {
        let in_line = |number| Mount { name: self.name(), ..Mount::in_line(number) };
        match self {
            Case::Auto | Case::AutoFullPass => in_line("auto"),
            Case::One => in_line("1"),
            Case::Four => in_line("4"),
            Case::AutoOutOfLine => {
                Mount { name: self.name(), options: "run_blocks_min=auto,inline=off,worker=off".to_owned() }
            }
            Case::Desktop | Case::Server => Mount::in_profile(&self.name()),
        }
    }

    fn is_profile(self) -> bool {
        matches!(self, Case::Desktop | Case::Server)
    }

    /// Of the fresh file's speed, the percentage that the file of short pieces has at least; None: it is to be slower.
    fn percent_min(self) -> Option<f64> {
        match self {
            Case::One => None,
            Case::Desktop => Some(50.0),
            _ => Some(90.0),
        }
    }

    /// Its name on the command line.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn pass(self) -> &'static [&'static str] {
        match self {
            Case::Auto | Case::One | Case::Four => &[],
            Case::AutoFullPass => &["--now", "--full"],
            Case::AutoOutOfLine | Case::Desktop | Case::Server => &["--now"],
        }
    }
}

/// Measures every mount in every repetition and prints the tables.
pub fn run(args: &StitchedArgs, rounds: Rounds, bench: &Bench) -> Result<Vec<Reading>> {
    let mut readings = Vec::new();
    for (repetition, seed) in rounds.iter() {
        let (plan, content) = load(args.size, seed);
        for (_, case) in rotated(&args.stitched, repetition) {
            tell(&format!("stitched, repetition {}: {}", repetition + 1, case.name()));
            readings.extend(measure(args, bench, *case, repetition, (&plan, &content))?);
        }
    }
    println!("\nCold sequential read of stitched files, {SLOW_DISK:?}\n{}", table(args, &readings));
    println!("{}", verdicts(&args.stitched, &readings));
    Ok(readings)
}

/// Ten sources of unique blocks, then the files made of them, then a fresh one.
fn load(bytes: u64, seed: u64) -> (Plan, Content) {
    let blocks = bytes as usize / BLOCK_BYTES / SOURCES;
    let (mut plan, mut random) = (Plan::default(), Random::new(seed));
    for source in 0..SOURCES {
        let numbers = plan.unique(blocks);
        plan.add(format!("source{source}"), numbers);
    }
    let sources = |piece_blocks| Sources { files: SOURCES, blocks, piece_blocks };
    for (file, lengths) in [(SHORT, 1..=3), (LONG, 16..=64)] {
        plan.add(FILES[file], sources(lengths).shuffled(&mut random));
    }
    let numbers = plan.unique(blocks * SOURCES);
    plan.add(FILES[FRESH], numbers);
    let content = Content::from_numbers(seed, plan.numbers.clone());
    (plan, content)
}

fn measure(
    args: &StitchedArgs,
    bench: &Bench,
    case: Case,
    repetition: usize,
    (plan, content): (&Plan, &Content),
) -> Result<Vec<Reading>> {
    let mut side = case.mount().begin(bench)?;
    if case.is_profile() {
        piece_cost::learn(&side, SLOW_DISK)?;
    }
    plan.parts.iter().try_for_each(|part| write(&side, content, part))?;
    if !case.pass().is_empty() {
        side.ask("dedup", case.pass())?;
    }
    let mut readings = FILES.iter().map(|file| layout(&side, case, repetition, file)).collect::<Result<Vec<_>>>()?;
    for reader in &args.readers {
        let mut speeds = [0.0; FILES.len()];
        for (file, name) in rotated(&FILES, repetition) {
            (speeds[file], readings[file].sizes) = read_cold(&mut side, name, *reader)?;
        }
        for (reading, speed) in readings.iter_mut().zip(speeds) {
            reading.speeds.push(speed);
            reading.ratios.push(speed / speeds[FRESH]);
        }
    }
    side.remount_cold()?;
    plan.parts.iter().try_for_each(|part| verify(&side, content, part))?;
    side.unmount()?;
    Ok(readings)
}

/// The extents of a file that was not read yet.
fn layout(side: &Side, case: Case, repetition: usize, file: &'static str) -> Result<Reading> {
    let layout = side.layout(&side.root().join(file))?;
    let count = |name| layout.number("blocks", name);
    Ok(Reading {
        mount: case.name(),
        repetition,
        file,
        blocks: [count("data")?, count("shared")?],
        runs: count("runs")?,
        speeds: Vec::new(),
        ratios: Vec::new(),
        sizes: SizesRead::default(),
    })
}

/// MB/s and the requests to the device, after the daemon was restarted.
fn read_cold(side: &mut Side, name: &str, reader: Reader) -> Result<(f64, SizesRead)> {
    side.remount_cold()?;
    let path = side.root().join(name);
    let bytes = path.metadata().during(|| format!("cannot stat {}", path.display()))?.len();
    let throttle = Throttle::apply(SLOW_DISK, side.device_numbers()?)?;
    let began = Instant::now();
    match reader {
        Reader::Dd => dd(&path)?,
        Reader::Own => files::read_through(&path, &mut AlignedBuffer::new(READ_BYTES)).map(drop)?,
    }
    let seconds = began.elapsed().as_secs_f64();
    drop(throttle);
    Ok((bytes as f64 / 1e6 / seconds, SizesRead::take(side)?))
}

fn dd(path: &Path) -> Result<()> {
    command::run(Command::new("dd").arg("if=".to_owned() + &path.to_string_lossy()).args(["of=/dev/null", "bs=1M"]))
        .map(drop)
}

/// The spread of a value of one file on one mount.
fn spread_of(readings: &[Reading], mount: &str, file: usize, value: &dyn Fn(&Reading) -> f64) -> Option<Spread> {
    Spread::of(readings.iter().filter(|reading| reading.mount == mount && reading.file == FILES[file]).map(value))
}

fn table(args: &StitchedArgs, readings: &[Reading]) -> String {
    let speeds = args.readers.iter().flat_map(|reader| [format!("MB/s, {reader:?}"), "% of fresh".to_owned()]);
    let layout = ["shared %", "runs", "blocks a request"].map(str::to_owned);
    let headings: Vec<String> = ["mount", "file"].map(str::to_owned).into_iter().chain(speeds).chain(layout).collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for mount in args.stitched.iter().map(|case| case.name()) {
        for (file, name) in FILES.iter().enumerate() {
            let cell = |value: &dyn Fn(&Reading) -> f64, digits: usize| {
                spread_of(readings, &mount, file, value).map_or("-".to_owned(), |s| format!("{s:.digits$}"))
            };
            let mut cells = vec![mount.clone(), (*name).to_owned()];
            for reader in 0..args.readers.len() {
                cells.push(cell(&|reading| reading.speeds[reader], 1));
                cells.push(cell(&|reading| reading.ratios[reader] * 100.0, 1));
            }
            cells.push(cell(&shared_percent, 2));
            cells.push(cell(&|reading| reading.runs as f64, 0));
            cells.push(cell(&|reading| reading.sizes.mean(), 1));
            table.row(cells);
        }
    }
    as_markdown(table)
}

fn shared_percent(reading: &Reading) -> f64 {
    reading.blocks[1] as f64 * 100.0 / reading.blocks[0].max(1) as f64
}

fn verdicts(cases: &[Case], readings: &[Reading]) -> String {
    let median = |case: Case, file: usize, value: &dyn Fn(&Reading) -> f64| {
        spread_of(readings, &case.name(), file, value).map_or(0.0, |spread| spread.median)
    };
    let speed = "speed of the file of pieces of 1-3 over the fresh one's";
    let mut lines = Vec::new();
    for case in cases.iter().copied().filter(|case| *case != Case::Four) {
        let name = format!("{}: {speed}", case.name());
        let Some(percent_min) = case.percent_min() else {
            let fastest = median(case, SHORT, &|reading| reading.ratios.iter().copied().fold(0.0, f64::max) * 100.0);
            lines.push(verdict(&name, fastest, fastest < 90.0, "below 90 %"));
            continue;
        };
        let slowest = median(case, SHORT, &|reading| reading.ratios.iter().copied().fold(9.0, f64::min) * 100.0);
        lines.push(verdict(&name, slowest, slowest >= percent_min, &format!("at least {percent_min} %")));
        // How much a profile shares is decided by its budget.
        if case.is_profile() {
            continue;
        }
        let shared = median(case, LONG, &shared_percent);
        let name = format!("{}: blocks shared of the file of pieces of 16-64", case.name());
        lines.push(verdict(&name, shared, shared >= 95.0, "at least 95 %"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(mount: &str, file: usize, ratio: f64, shared: u64) -> Reading {
        Reading {
            mount: mount.to_owned(),
            repetition: 0,
            file: FILES[file],
            blocks: [100, shared],
            runs: 7,
            speeds: vec![90.0; 2],
            ratios: vec![ratio; 2],
            sizes: SizesRead::default(),
        }
    }

    #[test]
    fn the_files_are_of_the_same_size_and_only_the_fresh_one_is_new() {
        let (plan, content) = load(10 << 20, 3);
        let blocks = 2_560;
        assert!(plan.parts[SOURCES..].iter().all(|part| part.indexes.len() == blocks));
        assert_eq!((content.bytes(), content.unique_bytes()), (4 * (10 << 20), 2 * (10 << 20)));
    }

    #[test]
    fn an_aim_that_is_missed_is_said() {
        let readings = [reading("auto", SHORT, 0.95, 0), reading("auto", LONG, 0.9, 94), reading("1", SHORT, 0.4, 100)];
        let text = verdicts(&[Case::Auto, Case::One, Case::Four], &readings);
        assert_eq!(text.lines().count(), 3);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
        assert!(line("- auto: speed").ends_with("95.00 % (aim: at least 90 %): met"), "{text}");
        assert!(line("- auto: blocks").ends_with("94.00 % (aim: at least 95 %): MISSED"), "{text}");
        assert!(line("- 1: speed").ends_with("40.00 % (aim: below 90 %): met"), "{text}");
        let profiles = [reading("server", SHORT, 0.8, 0), reading("desktop", SHORT, 0.6, 0)];
        let text = verdicts(&[Case::Server, Case::Desktop], &profiles);
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("80.00 % (aim: at least 90 %): MISSED"), "{text}");
        assert!(text.contains("60.00 % (aim: at least 50 %): met"), "{text}");
    }
}
