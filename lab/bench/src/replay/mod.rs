//! Replays traces on a mount of oncefs and on ext4, with contents made from the fingerprints.

mod measure;
mod play;
mod table;
mod trace;

use std::path::PathBuf;

use clap::Args;

use crate::aligned::BLOCK_BYTES;
use crate::failure::{During, Failure, Result, tell};
use crate::fragmentation::replay::Io;
use crate::mount::rotated;
use crate::origin::Origin;
use crate::shared_args::SharedArgs;
use crate::side::{KernelFs, Kind, SideSpec};
use measure::measure;
use play::Pace;
use trace::Trace;

/// Arguments: traces or twins, the mounts, and the pace.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// Traces in FIU's nine columns or in four (time, file, block, MD5), recognised by their first line
    #[arg(value_name = "TRACE", required_unless_present = "twin")]
    traces: Vec<PathBuf>,
    /// Twins: 1 to 6 of SmartDedup's Table 1, corporate and engineering of iDedup, phone
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    twin: Vec<String>,
    /// Twins at one N-th of their size
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    scale: u64,
    /// Only so many requests of each trace [default: all]
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// Profiles of oncefs to compare with ext4
    #[arg(long, value_delimiter = ',', default_value = "desktop,smartdedup")]
    profiles: Vec<String>,
    /// Issue requests when the trace does, at so many times its speed [default: as fast as possible]
    #[arg(long, value_name = "FACTOR")]
    speed: Option<f64>,
    /// How requests reach the file system
    #[arg(long, value_enum, default_value = "buffered")]
    io: Io,
    /// Number of repetitions; the mounts take turns at going first
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    #[command(flatten)]
    shared: SharedArgs,
}

impl ReplayArgs {
    fn check(&self) -> Result<Pace> {
        if self.repetitions == 0 || self.profiles.is_empty() || self.requests == Some(0) {
            return Err(Failure::new("--repetitions, --requests and the number of --profiles must be at least 1"));
        }
        match self.speed {
            None => Ok(Pace::Asap),
            Some(speed) if speed > 0.0 && speed.is_finite() => Ok(Pace::Open(speed)),
            Some(_) => Err(Failure::new("--speed must be more than 0")),
        }
    }

    fn traces(&self) -> Result<Vec<Trace>> {
        let requests_max = self.requests.unwrap_or(usize::MAX);
        let files = self.traces.iter().map(|path| Trace::from_file(path, requests_max));
        let twins = self.twin.iter().map(|name| Trace::twin(name, self.scale, self.shared.seed, requests_max));
        files.chain(twins).collect()
    }

    /// ext4 first, then a volume of each profile.
    fn mounts(&self) -> Vec<SideSpec> {
        let ext4 = (table::BASELINE.to_owned(), Kind::Kernel(KernelFs::Ext4), Vec::new());
        let oncefs = self.profiles.iter().map(|profile| {
            let format_arguments = vec!["--profile".to_owned(), profile.clone()];
            (format!("oncefs, {profile}"), Kind::Oncefs, format_arguments)
        });
        let spec = |(name, kind, format_arguments)| SideSpec { name, kind, arguments: Vec::new(), format_arguments };
        std::iter::once(ext4).chain(oncefs).map(spec).collect()
    }
}

/// Replays each trace on each mount, prints the tables, and writes the page that was named.
pub fn run(args: &ReplayArgs) -> Result<()> {
    let pace = args.check()?;
    let (traces, mounts) = (args.traces()?, args.mounts());
    let places = traces.iter().map(|trace| trace.last.len()).max().unwrap_or_default();
    // The volume of oncefs has three quarters; places that lie scattered take more metadata.
    let (_work_directory, bench) = args.shared.begin((places * BLOCK_BYTES * 4) as u64 + (4 << 30), args)?;
    let origin = Origin::begin(&bench.oncefs)?;
    let mut readings = Vec::new();
    for trace in &traces {
        for (repetition, _) in args.shared.rounds(args.repetitions).iter() {
            for (_, mount) in rotated(&mounts, repetition) {
                tell(&format!("{}, repetition {}: {}", trace.name, repetition + 1, mount.name));
                readings.push(measure(&bench, trace, mount, (pace, args.io), repetition)?);
            }
        }
    }
    let page = format!("{TITLE}\n\n{}\n\n{}", origin.head(), table::tables(&traces, &mounts, &readings));
    println!("\n{page}");
    if let Some(file) = &args.page {
        std::fs::write(file, page).during(|| format!("cannot write {}", file.display()))?;
    }
    args.shared.write_json(&readings)
}

const TITLE: &str = "# Results: traces replayed on mounts

How long recorded and made traces take on oncefs beside ext4, what they save, and what reaches the device. How it is \
measured: [replays](../benchmarks.md#replays).";
