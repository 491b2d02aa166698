//! Measures what reaches the device when real trees are copied in and then used: in each round half of all blocks are
//! rewritten, a tenth of the files deleted, and new files made. How dense the packs of compressed blocks are then, and
//! what packing them anew writes.
//!
//! The output is a page in Markdown, `docs/results/churn.md`.

mod changes;
mod outcome;
mod page;
mod setting;

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use clap::Args;

use crate::failure::{During, Failure, Result, tell};
use crate::files::compare;
use crate::machine;
use crate::origin::Origin;
use crate::peers::corpus::Corpus;
use crate::shared_args::SharedArgs;
use crate::side::{Bench, Side};
use crate::tree::make_durable;
use changes::{change, files_below};
use outcome::{Outcome, Reading, Round, Wear};
use setting::Setting;

/// The worker has nothing more to do when its figures stay as they are for this long.
const QUIET: Duration = Duration::from_secs(12);
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Arguments: the trees, how they are used, and the file systems.
#[derive(Args, Clone, Debug)]
pub struct ChurnArgs {
    /// Trees that are copied in
    #[arg(required = true, value_name = "DIR")]
    trees: Vec<PathBuf>,
    /// How often half of all blocks are rewritten, files deleted and files made. 0: the trees are copied in only
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// The file systems to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ext4,btrfs-zstd,off,inline,later")]
    settings: Vec<Setting>,
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    #[command(flatten)]
    shared: SharedArgs,
}

/// Measures each setting, prints the page, and writes it to the file that was named.
pub fn run(args: &ChurnArgs) -> Result<()> {
    let trees = args.trees.iter().map(|tree| Corpus::below(tree, 1.0)).collect::<Result<Vec<_>>>()?;
    let bytes: u64 = trees.iter().map(|tree| tree.bytes).sum();
    let (_work_directory, bench) = args.shared.begin(bytes * 4 + (4 << 30), args)?;
    // Begun before the run, so that it names the commit that was measured.
    let origin = Origin::begin(&bench.oncefs)?;
    let mut outcomes = Vec::new();
    for (index, setting) in args.settings.iter().enumerate() {
        tell(setting.name());
        outcomes.push(measure(&bench, args, &trees, *setting, index)?);
    }
    let page = page::page(&origin, &outcomes);
    if let Some(file) = &args.page {
        std::fs::write(file, &page).during(|| format!("cannot write {}", file.display()))?;
    }
    println!("\n{page}");
    args.shared.write_json(&outcomes)
}

fn measure(bench: &Bench, args: &ChurnArgs, trees: &[Corpus], setting: Setting, index: usize) -> Result<Outcome> {
    let mut side = Side::create(bench, &setting.spec(), setting.name(), index)?;
    side.format()?;
    side.mount()?;
    let empty_bytes = side.used_bytes()?;
    let device_before = side.device_bytes()?;
    // The same files beside it, changed in the same way.
    let twin = bench.directory.join(format!("twin-{index}"));
    copy_in(trees, &twin)?;
    let written_bytes = copy_in(trees, side.root())?;
    let mut rounds = vec![settled(&side, written_bytes, Reading::default())?];
    let mut peak_memory = daemon_peak(&side)?;
    let copied = rested(&mut side, device_before.written, empty_bytes)?;
    let earlier = rounds[0].after;
    for round in 1..=args.rounds {
        let seed = args.shared.seed_of(round as usize);
        change(&twin, seed)?;
        let written_bytes = change(side.root(), seed)?;
        make_durable(side.root())?;
        rounds.push(settled(&side, written_bytes, earlier)?);
    }
    peak_memory = peak_memory.max(daemon_peak(&side)?);
    let used = rested(&mut side, device_before.written + copied.device_bytes, empty_bytes)?;
    machine::drop_caches()?;
    verify(&twin, side.root()).during(|| setting.name())?;
    side.unmount()?;
    std::fs::remove_dir_all(&twin).during(|| format!("cannot remove {}", twin.display()))?;
    Ok(Outcome { setting, rounds, copied, used, peak_memory })
}

/// Copies the trees, each to a directory of its own. Gives the bytes written.
fn copy_in(trees: &[Corpus], root: &Path) -> Result<u64> {
    let mut written = 0;
    for (number, tree) in trees.iter().enumerate() {
        let place = root.join(number.to_string());
        std::fs::create_dir_all(&place).during(|| format!("cannot create {}", place.display()))?;
        written += tree.copy_to(&place)?;
    }
    Ok(written)
}

/// Lets the worker do all that it would do, and reads the figures before and after. `earlier` are those of the mount
/// before.
fn settled(side: &Side, written_bytes: u64, earlier: Reading) -> Result<Round> {
    let take = || Reading::take(side).map(|reading| reading.after(earlier));
    let before = take()?;
    if side.daemon().is_none() {
        return Ok(Round { written_bytes, before, after: before });
    }
    side.ask("dedup", &["--now", "--full"])?;
    let (mut last, mut unchanged) = (take()?, Duration::ZERO);
    while unchanged < QUIET {
        crate::signal::check()?;
        sleep(LOOK_EVERY);
        let now = take()?;
        unchanged = if now == last { unchanged + LOOK_EVERY } else { Duration::ZERO };
        last = now;
    }
    Ok(Round { written_bytes, before, after: last })
}

/// Unmounts and mounts again. Gives what has reached the device since `device_before`, and what is in use: oncefs moves
/// records from its log to their place by then, and others their delayed allocations.
fn rested(side: &mut Side, device_before: u64, empty_bytes: u64) -> Result<Wear> {
    side.unmount()?;
    let device_bytes = side.device_bytes()?.written.saturating_sub(device_before);
    side.mount()?;
    Ok(Wear { device_bytes, stored_bytes: side.used_bytes()?.saturating_sub(empty_bytes) })
}

/// The most memory that the daemon has had since the mount.
fn daemon_peak(side: &Side) -> Result<Option<u64>> {
    side.daemon().map(machine::peak_memory_bytes).transpose()
}

fn verify(twin: &Path, root: &Path) -> Result<()> {
    // Each tree has its directory: ext4 has another one beside them.
    let trees = std::fs::read_dir(twin).during(|| "cannot list the copies")?;
    for tree in trees {
        let tree = tree.during(|| "cannot list the copies")?.file_name();
        let (twin, root) = (twin.join(&tree), root.join(&tree));
        let (expected, found) = (files_below(&twin)?, files_below(&root)?);
        if expected != found {
            return Err(Failure::new(format!("WRONG NAMES: {} files instead of {}", found.len(), expected.len())));
        }
        expected.iter().try_for_each(|file| compare(&twin.join(file), &root.join(file)))?;
    }
    Ok(())
}
