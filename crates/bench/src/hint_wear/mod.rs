//! What the hint store's disk level costs in wear: bytes written to disk per hint that leaves memory.
//!
//! A memory level of hints with random tags overflows into RocksDB, set up as the engine sets it up and in other
//! ways, or into a file of sorted groups, until as many hints lie on disk as asked for. Nothing is looked up.

mod demotion;
mod rocks;
mod sorted_groups;

use std::path::Path;

use clap::Args;
use oncefs_toolbox::Table;

use crate::content::Random;
use crate::failure::Result;
use crate::machine;
use crate::report::as_markdown;
use crate::signal;
use demotion::{MemoryLevel, Order};
use rocks::{Form, Rocks};
use sorted_groups::SortedGroups;

/// What is compared, and how much of it.
#[derive(Args, Clone, Debug)]
pub struct HintWearArgs {
    /// Hints that the memory level holds
    #[arg(long, default_value_t = 280_000)]
    memory_hints: usize,
    /// Millions of hints on disk at the end, each measured from an empty disk level
    #[arg(long, value_delimiter = ',', default_value = "1,2,8")]
    disk_hints_millions: Vec<usize>,
}

/// One hint: the leading bits of a tag and where such content may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The tag's 40 leading bits, leading zeros above them.
    pub tag: u64,
    /// 40 bits.
    pub pbn: u64,
}

/// Bits of a tag that a hint keeps.
pub const TAG_BITS: u32 = 40;
/// Leading bits of a tag that name its group in memory: the paper's 14.
pub const GROUP_BITS: u32 = 14;

impl Hint {
    fn draw(random: &mut Random) -> Hint {
        Hint { tag: random.word() >> (64 - TAG_BITS), pbn: random.word() >> 24 }
    }

    /// The group of the memory level that the hint belongs to.
    pub fn group(self) -> usize {
        (self.tag >> (TAG_BITS - GROUP_BITS)) as usize
    }
}

/// Bytes that a disk level has moved.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Bytes written to files.
    pub written: u64,
    /// Bytes read from files for the sake of writing.
    pub read: u64,
}

/// A way to keep hints on disk.
trait DiskLevel {
    /// Takes hints that memory gives up.
    fn demote(&mut self, hints: &[Hint]) -> Result<()>;

    /// Leading tag bits that the hints of one write share, where this level gains by getting them together.
    fn bits_of_a_write(&self, group: usize) -> u32;

    /// Writes what still waits in memory and ends background work.
    fn settle(&mut self) -> Result<()>;

    /// What was moved so far.
    fn traffic(&self) -> Traffic;

    /// Bytes on disk.
    fn bytes(&self) -> Result<u64>;

    /// Whether it only counts: nothing of it reaches a disk, and the memory that it takes is the model's.
    fn is_model(&self) -> bool;

    /// Looks the hint up as the write path would, and returns the pages or blocks that it had to read.
    fn look_up(&self, hint: Hint) -> Result<u64>;
}

const HEADINGS: [&str; 10] = [
    "disk level",
    "leaves memory",
    "hints on disk, M",
    "W B/hint",
    "W B/hint, 2nd half",
    "R B/hint",
    "write_bytes/hint",
    "on disk, B/hint",
    "reads/look-up (worst)",
    "peak memory, MB",
];

/// Measures every disk level in every order and prints the table.
pub fn run(dir: &Path, args: &HintWearArgs, seed: u64) -> Result<()> {
    signal::install();
    let directory = tempfile::Builder::new().prefix("oncefs-bench.").tempdir_in(dir).map_err(|error| {
        crate::failure::Failure::new(format!("cannot create a directory in {} (see --dir): {error}", dir.display()))
    })?;
    println!("{}\nseed {seed}, {args:?}", machine::describe());
    let path = directory.path().join("records");
    // The first database brings RocksDB's code and tables into memory, which are no part of a disk level.
    measure("warm-up", Order::LeastRecent, 1, args, seed, || rocks_level(&path, Form::ALL[0]))?;
    Rocks::destroy(&path)?;
    for millions in &args.disk_hints_millions {
        let mut table = Table::new(&HEADINGS);
        for order in [Order::Scattered, Order::LeastRecent, Order::Sweep] {
            for form in Form::ALL {
                let open = || rocks_level(&path, form);
                table.row(measure(&form.to_string(), order, *millions, args, seed, open)?);
                Rocks::destroy(&path)?;
            }
            let open = || Ok(Box::new(SortedGroups::default()) as Box<dyn DiskLevel>);
            table.row(measure("sorted groups", order, *millions, args, seed, open)?);
        }
        println!("\n{}", as_markdown(table));
    }
    Ok(())
}

fn rocks_level(path: &Path, form: Form) -> Result<Box<dyn DiskLevel>> {
    Ok(Box::new(Rocks::create(path, form)?))
}

/// Mean and greatest number of blocks read by look-ups of hints that came to memory first after its first fill.
///
/// Nearly all of them are on disk; those that are not cost a look all the same.
fn reads_per_look_up(level: &dyn DiskLevel, args: &HintWearArgs, seed: u64) -> Result<String> {
    const LOOK_UPS: u64 = 20_000;
    let mut random = Random::new(seed);
    for _ in 0..args.memory_hints {
        let _first_fill = Hint::draw(&mut random);
    }
    let (mut sum, mut worst) = (0, 0);
    for _ in 0..LOOK_UPS {
        let reads = level.look_up(Hint::draw(&mut random))?;
        (sum, worst) = (sum + reads, reads.max(worst));
    }
    Ok(format!("{:.2} ({worst})", sum as f64 / LOOK_UPS as f64))
}

/// One row: demotes hints into a new disk level until it holds `millions` million.
fn measure(
    name: &str,
    order: Order,
    millions: usize,
    args: &HintWearArgs,
    seed: u64,
    open: impl FnOnce() -> Result<Box<dyn DiskLevel>>,
) -> Result<Vec<String>> {
    let hints_max = millions * 1_000_000;
    crate::failure::tell(&format!("{name}, {order}, {millions} M hints"));
    let mut random = Random::new(seed);
    let mut memory = MemoryLevel::filled(args.memory_hints, &mut random);
    let resident_before = machine::resident_bytes_after_trim()?;
    machine::reset_peak_memory(std::process::id())?;
    let (disk_before, mut level) = (machine::disk_written_bytes()?, open()?);
    let (mut demoted, mut half) = (0, None);
    while demoted < hints_max {
        signal::check()?;
        demoted += memory.overflow(order, &mut random, level.as_mut())?;
        if demoted >= hints_max / 2 && half.is_none() {
            half = Some((demoted, level.traffic()));
        }
    }
    level.settle()?;
    let (traffic, (half_demoted, half_traffic)) = (level.traffic(), half.unwrap_or_default());
    let per_hint = |bytes: u64| format!("{:.1}", bytes as f64 / demoted as f64);
    let second_half = (traffic.written - half_traffic.written) as f64 / (demoted - half_demoted).max(1) as f64;
    let unless_model = |cell: String| if level.is_model() { "-".to_owned() } else { cell };
    let peak = machine::peak_memory_bytes(std::process::id())?.saturating_sub(resident_before);
    Ok(vec![
        name.to_owned(),
        order.to_string(),
        millions.to_string(),
        per_hint(traffic.written),
        format!("{second_half:.1}"),
        per_hint(traffic.read),
        unless_model(per_hint(machine::disk_written_bytes()? - disk_before)),
        per_hint(level.bytes()?),
        reads_per_look_up(level.as_ref(), args, seed)?,
        unless_model(format!("{:.1}", peak as f64 / 1e6)),
    ])
}
