//! Measures how much of what in-line deduplication missed with little memory one pass of the worker finds.
//!
//! While the worker is paused, data is written in which every block comes twice, far apart; then `oncefs dedup --now`
//! runs once. The reference is profile `lrlfs`, whose index holds everything in memory and is exact.

mod load;
mod outcome;

use std::time::Instant;

use clap::Args;
use oncefs_toolbox::Table;

use crate::failure::{During, Failure, Result, tell};
use crate::machine;
use crate::report::as_markdown;
use crate::shared_args::SharedArgs;
use crate::side::{Bench, Side, SideSpec};
use load::{Load, Order};
use outcome::{Outcome, Reading};

/// The profile whose index holds everything.
const EXACT: &str = "lrlfs";

/// Arguments: what is written, and on which mounts.
#[derive(Args, Clone, Debug)]
pub struct HybridArgs {
    /// Bytes written, half of them copies
    #[arg(long, value_parser = oncefs_toolbox::sizes::parse, default_value = "8G")]
    size: u64,
    /// Order in which the copies come
    #[arg(long, value_enum, value_delimiter = ',', default_value = "runs,sequential,shuffled")]
    orders: Vec<Order>,
    /// Profiles compared; `lrlfs` has the complete index and is the reference
    #[arg(long, value_delimiter = ',', default_value = "lrlfs,smartdedup,edge")]
    profiles: Vec<String>,
    /// Mount options of the other profiles, such as hint_memory=256K, for little memory with little data
    #[arg(long, default_value = "")]
    options: String,
    #[command(flatten)]
    shared: SharedArgs,
}

/// Runs every order on every mount and prints a table per order.
pub fn run(args: &HybridArgs) -> Result<()> {
    // mkfs is given three quarters; all data fit, even if no duplicate is found.
    let device_bytes = args.size * 2 + (4 << 30);
    let (_work_directory, bench) = args.shared.begin(device_bytes, args)?;
    let mut all = Vec::new();
    for order in &args.orders {
        let load = Load::new(args.size, *order, args.shared.seed)?;
        let mut outcomes = Vec::new();
        for (index, profile) in args.profiles.iter().enumerate() {
            let say = |step: &str| tell(&format!("{order:?}, {profile}: {step}"));
            outcomes.push(measure(&bench, &spec(args, profile)?, profile, index, &load, say)?);
        }
        println!("\n{}\n{}", order.describe(), table(&outcomes));
        all.push((format!("{order:?}"), outcomes));
    }
    println!("\n{}", machine::load_line());
    args.shared.write_json(&all)
}

fn spec(args: &HybridArgs, profile: &str) -> Result<SideSpec> {
    let options = if profile == EXACT { "" } else { args.options.as_str() };
    let comma = if options.is_empty() { "" } else { "," };
    format!("oncefs=-o profile={profile}{comma}{options}").parse().map_err(Failure::new)
}

/// Measures one mount, from mkfs to the comparison of every byte.
fn measure(
    bench: &Bench,
    spec: &SideSpec,
    profile: &str,
    index: usize,
    load: &Load,
    say: impl Fn(&str),
) -> Result<Outcome> {
    machine::drop_caches()?;
    let mut side = Side::create(bench, spec, profile, index)?;
    side.format()?;
    side.mount()?;
    let empty = Reading::take(&side)?;
    // So that what is found later is found by the one pass.
    side.ask("dedup", &["--pause"])?;
    say("writing");
    let began = Instant::now();
    load.write(side.root())?;
    let write_seconds = began.elapsed().as_secs_f64();
    let written = Reading::take(&side)?;
    side.ask("dedup", &["--resume"])?;
    say("the pass");
    let began = Instant::now();
    side.ask("dedup", &["--now"])?;
    let pass_seconds = began.elapsed().as_secs_f64();
    let passed = Reading::take(&side)?;
    let peak_memory = peak_memory(&side)?;
    side.unmount()?;
    let device_unmounted = side.device_bytes()?;
    machine::drop_caches()?;
    side.mount()?;
    let remounted = Reading::take(&side)?;
    say("verifying");
    load.verify(side.root()).during(|| format!("profile {profile}"))?;
    let peak_memory_reading = self::peak_memory(&side)?;
    side.unmount()?;
    Ok(Outcome {
        profile: profile.to_owned(),
        bytes: load.bytes(),
        duplicate_bytes: load.duplicate_bytes(),
        marks: [empty, written, passed],
        device_unmounted,
        remounted,
        write_seconds,
        pass_seconds,
        peak_memory,
        peak_memory_reading,
    })
}

fn peak_memory(side: &Side) -> Result<u64> {
    let daemon = side.daemon().ok_or_else(|| Failure::new("the mounted oncefs has no daemon"))?;
    machine::peak_memory_bytes(daemon)
}

/// A line per figure, a column per mount.
fn table(outcomes: &[Outcome]) -> String {
    let exact = outcomes.iter().find(|outcome| outcome.profile == EXACT);
    let headings: Vec<&str> = std::iter::once("").chain(outcomes.iter().map(|o| o.profile.as_str())).collect();
    let mut table = Table::new(&headings);
    let columns: Vec<_> = outcomes.iter().map(|outcome| outcome.lines(exact)).collect();
    for (line, (name, _)) in columns.first().into_iter().flatten().enumerate() {
        let values = columns.iter().map(|column| column[line].1.clone());
        table.row(std::iter::once((*name).to_owned()).chain(values).collect());
    }
    as_markdown(table)
}
