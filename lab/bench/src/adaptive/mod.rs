//! Measures what adaptive in-line deduplication costs without duplicates, and how soon it returns when they come.
//!
//! Data without duplicates is written at full speed, then a stream of which half are duplicates. The share of requests
//! that are looked up is sampled throughout. The same mount without deduplication is measured in alternation.

mod battery;
mod share;

use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use oncefs_toolbox::Table;
use serde::Serialize;

use crate::aligned::BLOCK_BYTES;
use crate::content::{Content, Random};
use crate::failure::{During, Failure, Result, tell};
use crate::figures::Figures;
use crate::files::{self, open};
use crate::machine;
use crate::measure::Latencies;
use crate::report::as_markdown;
use crate::shared_args::SharedArgs;
use crate::side::{Bench, Side, SideSpec};
use crate::spread::Spread;
use share::Look;

/// How often the share is sampled.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Share of duplicates in the stream that follows.
const DUPLICATE_PERCENT: usize = 50;

/// Arguments: what is written, and on which mounts.
#[derive(Args, Clone, Debug)]
pub struct AdaptiveArgs {
    /// Bytes written without duplicates
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse, default_value = "4G")]
    size: u64,
    /// Bytes of the stream with duplicates
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse, default_value = "1G")]
    duplicate_size: u64,
    /// Order in which files are written
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sequential,random")]
    orders: Vec<WriteOrder>,
    /// Profiles of the mounts compared
    #[arg(long, value_delimiter = ',', default_value = "smartdedup,desktop")]
    profiles: Vec<String>,
    /// Instead, write --duplicate-size with duplicates at random, on mains and while a battery empties, on the first of
    /// --profiles
    #[arg(long)]
    battery: bool,
    /// Number of repetitions; the sides alternate within each
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    #[command(flatten)]
    shared: SharedArgs,
}

/// The order in which the blocks of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum WriteOrder {
    /// From its beginning: the kernel sends requests of up to 1 MiB.
    Sequential,
    /// At random: most requests are small.
    Random,
}

/// The sides of a comparison: the last shows how far two equal mounts are apart.
const SIDES: [&str; 3] = ["off", "adaptive", "off again"];
const ADAPTIVE: usize = 1;

/// One side in one repetition.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    /// MB/s of the two halves without duplicates, fsync included.
    halves: [f64; 2],
    /// CPU seconds of the whole machine in both.
    cpu_seconds: f64,
    /// Requests of the second half, and how many of them were not looked up.
    requests: [u64; 2],
    /// The share during both halves.
    looks: Vec<Look>,
    /// The floor of the share, in percent.
    floor_percent: f64,
    /// The share from the first duplicate on.
    looks_after: Vec<Look>,
}

/// All sides of one profile in one repetition.
#[derive(Debug, Serialize)]
struct Reading<'a> {
    profile: &'a str,
    order: WriteOrder,
    repetition: usize,
    /// Off, adaptive, and off again.
    sides: [Measured; 3],
}

/// Contents of one repetition: two files without duplicates, one with.
struct Load {
    halves: [Content; 2],
    duplicates: Content,
    order: WriteOrder,
    seed: u64,
}

impl Load {
    fn new(args: &AdaptiveArgs, order: WriteOrder, seed: u64) -> Result<Load> {
        let blocks = (args.size / 2) as usize / BLOCK_BYTES;
        let plain = |seed| Content::new(seed, blocks, 0, 0);
        let duplicates = Content::new(seed ^ 2, args.duplicate_size as usize / BLOCK_BYTES, DUPLICATE_PERCENT, 0)?;
        Ok(Load { halves: [plain(seed)?, plain(seed ^ 1)?], duplicates, order, seed })
    }

    fn places(&self, content: &Content) -> Vec<usize> {
        match self.order {
            WriteOrder::Sequential => (0..content.blocks()).collect(),
            WriteOrder::Random => Random::new(self.seed).permutation(content.blocks()),
        }
    }

    fn files(&self) -> [(&'static str, &Content); 3] {
        [("first", &self.halves[0]), ("second", &self.halves[1]), ("duplicates", &self.duplicates)]
    }

    fn write(&self, root: &Path, file: usize) -> Result<f64> {
        let (name, content) = self.files()[file];
        let places = self.places(content);
        let file = open(&root.join(name), true)?;
        let began = Instant::now();
        files::write_at(&file, content, &places, &mut Latencies::with_capacity(content.blocks()))?;
        Ok(content.bytes() as f64 / 1e6 / began.elapsed().as_secs_f64())
    }

    fn verify(&self, root: &Path) -> Result<()> {
        self.files().into_iter().try_for_each(|(name, content)| {
            let written = files::last_writes(content.blocks(), &self.places(content));
            files::verify_written(&root.join(name), content, &written)
        })
    }
}

/// Measures every profile in every order and prints the tables.
pub fn run(args: &AdaptiveArgs) -> Result<()> {
    let device_bytes = (args.size + args.duplicate_size) * 2 + (2 << 30);
    let (_work_directory, bench) = args.shared.begin(device_bytes, args)?;
    if args.battery {
        let profile = args.profiles.first().ok_or_else(|| Failure::new("--battery needs one of --profiles"))?;
        let rounds = args.shared.rounds(args.repetitions);
        let readings = battery::run(profile, args.duplicate_size, rounds, &bench)?;
        println!("\n{}", machine::load_line());
        return args.shared.write_json(&readings);
    }
    let mut all = Vec::new();
    for profile in &args.profiles {
        let mut sides = create_sides(&bench, profile)?;
        for order in &args.orders {
            let measured = compare(args, &mut sides, *order, profile)?;
            println!("\nprofile {profile}, {order:?} order\n{}{}", table(&measured), share_lines(&measured));
            let numbered = args.shared.rounds(args.repetitions).iter().zip(measured);
            all.extend(numbered.map(|((repetition, _), sides)| Reading { profile, order: *order, repetition, sides }));
        }
    }
    println!("\n{}", machine::load_line());
    args.shared.write_json(&all)
}

fn create_sides(bench: &Bench, profile: &str) -> Result<Vec<Side>> {
    let create = |(index, label): (usize, &&str)| {
        let off = if index == ADAPTIVE { "" } else { ",inline=off,worker=off" };
        let spec: SideSpec = format!("oncefs=-o profile={profile}{off}").parse().map_err(Failure::new)?;
        Side::create(bench, &spec, label, index)
    };
    SIDES.iter().enumerate().map(create).collect()
}

/// All repetitions, each with all sides; the sides begin in rotating order.
fn compare(args: &AdaptiveArgs, sides: &mut [Side], order: WriteOrder, profile: &str) -> Result<Vec<[Measured; 3]>> {
    let mut measured = Vec::new();
    for (repetition, seed) in args.shared.rounds(args.repetitions).iter() {
        let load = Load::new(args, order, seed)?;
        let mut turns: [Option<Measured>; 3] = [None, None, None];
        for turn in 0..sides.len() {
            let side = (turn + repetition) % sides.len();
            tell(&format!("profile {profile}, {order:?}, repetition {}, {}", repetition + 1, SIDES[side]));
            turns[side] = Some(measure(&mut sides[side], &load, side == ADAPTIVE)?);
        }
        let [Some(off), Some(adaptive), Some(off_again)] = turns else {
            return Err(Failure::new("a side was skipped in the rotation"));
        };
        measured.push([off, adaptive, off_again]);
    }
    Ok(measured)
}

fn measure(side: &mut Side, load: &Load, is_adaptive: bool) -> Result<Measured> {
    side.unmount()?;
    machine::drop_caches()?;
    side.format()?;
    side.mount()?;
    let root = side.root().to_owned();
    let cpu = machine::cpu_seconds_machine()?;
    let written = share::watched(side, LOOK_EVERY, || {
        let first = load.write(&root, 0)?;
        let at_half = requests(&side.stats()?)?;
        Ok(([first, load.write(&root, 1)?], at_half))
    });
    let ((halves, at_half), looks) = written?;
    let cpu_seconds = machine::cpu_seconds_machine()? - cpu;
    let figures = side.stats()?;
    let at_end = requests(&figures)?;
    let ((), looks_after) = match is_adaptive {
        true => share::watched(side, LOOK_EVERY, || load.write(&root, 2).map(drop))?,
        false => (load.write(&root, 2).map(drop)?, Vec::new()),
    };
    side.remount_cold()?;
    load.verify(side.root()).during(|| format!("on {}", side.label()))?;
    side.unmount()?;
    Ok(Measured {
        halves,
        cpu_seconds,
        requests: [at_end[0] - at_half[0], at_end[1] - at_half[1]],
        looks,
        floor_percent: figures.setting("inline_percent_min")?,
        looks_after,
    })
}

fn requests(figures: &Figures) -> Result<[u64; 2]> {
    Ok([figures.number("counters", "write_requests")?, figures.number("counters", "write_requests_not_admitted")?])
}

/// Throughput of every side, beside the one that is off in the same repetition.
fn table(measured: &[[Measured; 3]]) -> String {
    let headings =
        ["side", "first half MB/s", "ratio to off", "second half MB/s", "ratio to off", "both, ratio to off", "CPU s"];
    let mut table = Table::new(&headings);
    for (side, name) in SIDES.iter().enumerate() {
        let spread = |value: &dyn Fn(&[Measured; 3]) -> f64, digits: usize| {
            Spread::of(measured.iter().map(value)).map_or("-".to_owned(), |spread| format!("{spread:.digits$}"))
        };
        let mut cells = vec![(*name).to_owned()];
        for half in 0..2 {
            cells.push(spread(&|sides| sides[side].halves[half], 1));
            cells.push(spread(&|sides| sides[side].halves[half] / sides[0].halves[half], 3));
        }
        cells.push(spread(&|sides| seconds_per_megabyte(&sides[0]) / seconds_per_megabyte(&sides[side]), 3));
        cells.push(spread(&|sides| sides[side].cpu_seconds, 2));
        table.row(cells);
    }
    as_markdown(table)
}

fn seconds_per_megabyte(measured: &Measured) -> f64 {
    measured.halves.iter().map(|speed| 1.0 / speed).sum()
}

/// How the share changed, over all repetitions.
fn share_lines(measured: &[[Measured; 3]]) -> String {
    let adaptive = || measured.iter().map(|sides| &sides[ADAPTIVE]);
    let seconds = |times: Vec<Option<f64>>| {
        let reached = times.iter().flatten().count();
        let spread = Spread::of(times.iter().flatten().copied()).map_or("never".to_owned(), |s| format!("{s:.2} s"));
        format!("{spread}, in {reached} of {} repetitions", times.len())
    };
    let floor = adaptive().next().map_or(0.0, |first| first.floor_percent);
    let fell = adaptive().map(|m| share::fell_to(&m.looks, m.floor_percent)).collect();
    let back = adaptive().map(|m| share::back_at_all(&m.looks_after)).collect();
    let looked_up =
        Spread::of(adaptive().map(|m| (m.requests[0] - m.requests[1]) as f64 * 100.0 / m.requests[0].max(1) as f64));
    let courses = adaptive().next().map(|m| (share::course(&m.looks), share::course(&m.looks_after)));
    let (course, course_after) = courses.unwrap_or_default();
    let looked_up = looked_up.map_or("-".to_owned(), |spread| format!("{spread:.2}"));
    [
        format!("share at its floor of {floor:.0} % after {}", seconds(fell)),
        format!("requests of the second half that were looked up, %: {looked_up}"),
        format!("share at 100 % after the first write of the stream with duplicates: {}", seconds(back)),
        format!("first repetition: {course}; with duplicates: {course_after}"),
    ]
    .iter()
    .map(|line| format!("\n{line}\n"))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(halves: [f64; 2]) -> Measured {
        let look = |seconds, percent| Look { seconds, percent };
        Measured {
            halves,
            cpu_seconds: 1.0,
            requests: [1000, 700],
            looks: vec![look(0.0, 100.0), look(1.0, 30.0)],
            floor_percent: 30.0,
            looks_after: vec![look(0.1, 30.0), look(0.4, 100.0)],
        }
    }

    #[test]
    fn ratios_are_to_the_side_that_is_off_in_the_same_repetition() {
        let rows = [[measured([100.0, 100.0]), measured([50.0, 100.0]), measured([100.0, 200.0])]];
        let text = table(&rows);
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("| adaptive ").contains("0.500 (0.500-0.500)"), "{text}");
        assert!(row("| adaptive ").contains("0.667 (0.667-0.667)"), "both halves take 3 parts of time for 2:\n{text}");
        assert!(row("| off again ").contains("2.000 (2.000-2.000)"), "{text}");
    }

    #[test]
    fn the_share_is_told_with_how_often_it_arrived() {
        let mut late = measured([1.0, 1.0]);
        late.looks_after.pop();
        let rows = [measured([1.0, 1.0]), late].map(|adaptive| {
            let off = measured([1.0, 1.0]);
            [off.clone(), adaptive, off]
        });
        let text = share_lines(&rows);
        assert!(text.contains("floor of 30 % after 1.00 (1.00-1.00) s, in 2 of 2"), "{text}");
        assert!(text.contains("0.40 (0.40-0.40) s, in 1 of 2"), "{text}");
        assert!(text.contains("30.00 (30.00-30.00)"), "{text}");
    }

    #[test]
    fn what_was_written_in_any_order_is_verified() {
        for order in [WriteOrder::Sequential, WriteOrder::Random] {
            let directory = tempfile::tempdir().unwrap();
            let content = |seed| Content::new(seed, 64, 0, 0).unwrap();
            let load = Load { halves: [content(1), content(2)], duplicates: content(3), order, seed: 5 };
            assert!((0..3).all(|file| load.write(directory.path(), file).unwrap() > 0.0));
            load.verify(directory.path()).unwrap();
            std::fs::copy(directory.path().join("first"), directory.path().join("second")).unwrap();
            assert!(load.verify(directory.path()).is_err());
        }
    }
}
