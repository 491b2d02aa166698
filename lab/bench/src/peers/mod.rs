//! Five corpora that nobody built for the result, on ext4, XFS, Btrfs, SquashFS and oncefs.
//!
//! `scripts/corpora` makes them. The output is a page in Markdown, `docs/results/peers.md`.

pub mod corpus;
mod measure;
mod page;
mod system;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::failure::{During, Failure, Result, tell};
use crate::mount::rotated;
use crate::origin::Origin;
use crate::shared_args::SharedArgs;
use corpus::Corpus;
use measure::{Reading, measure};
use system::System;

/// Arguments: corpora, how much of them, and the systems.
#[derive(Args, Clone, Debug)]
pub struct PeersArgs {
    /// Directory of the corpora, as scripts/corpora makes it [default: ~/.cache/oncefs/corpora]
    #[arg(long, value_name = "DIR")]
    corpora: Option<PathBuf>,
    /// The corpora to measure
    #[arg(long, value_delimiter = ',', default_value = "debian,vm,npm,crates,history")]
    only: Vec<String>,
    /// The share of each corpus that is copied: the same files of every item, the same pieces of every image
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// The systems to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    systems: Vec<System>,
    /// Number of repetitions; the systems take turns at going first
    #[arg(long, default_value_t = 1)]
    repetitions: usize,
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    #[command(flatten)]
    shared: SharedArgs,
}

/// Where scripts/corpora puts its corpora. None: there is no $HOME.
pub fn corpora_directory() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    cache.map(|cache| cache.join("oncefs/corpora"))
}

impl PeersArgs {
    fn systems(&self) -> &[System] {
        if self.systems.is_empty() { System::value_variants() } else { &self.systems }
    }

    fn corpora(&self) -> Result<Vec<Corpus>> {
        let directory = self.corpora.clone().or_else(corpora_directory);
        let directory = directory.ok_or_else(|| Failure::new("there is no $HOME: name the corpora with --corpora"))?;
        self.only.iter().map(|name| Corpus::below(&directory.join(name), self.scale)).collect()
    }

    fn check(&self) -> Result<()> {
        if !(self.scale > 0.0 && self.scale <= 1.0) || self.repetitions == 0 || self.only.is_empty() {
            return Err(Failure::new(
                "--scale is above 0 and at most 1, --repetitions at least 1, and --only not empty",
            ));
        }
        self.systems().iter().try_for_each(|system| system.require_programs())
    }
}

/// Measures every system with every corpus, prints the page, and writes it to the file that was named.
pub fn run(args: &PeersArgs) -> Result<()> {
    args.check()?;
    let corpora = args.corpora()?;
    let largest = corpora.iter().map(|corpus| corpus.bytes).max().unwrap_or_default();
    // The volume of oncefs has three quarters; small files take whole blocks, and more metadata than data.
    let (_work_directory, bench) = args.shared.begin(largest * 4 + (4 << 30), args)?;
    // Begun before the run, so that it names the commit that was measured.
    let origin = Origin::begin(&bench.oncefs)?;
    let mut readings: Vec<Reading> = Vec::new();
    for (turn, corpus) in corpora.iter().enumerate() {
        for (repetition, _) in args.shared.rounds(args.repetitions).iter() {
            for (_, system) in rotated(args.systems(), turn + repetition) {
                tell(&format!("{}, repetition {}: {}", corpus.name, repetition + 1, system.name()));
                readings.push(measure(&bench, corpus, *system, repetition)?);
            }
        }
        // After each corpus, so that a run that is ended leaves what it has measured whole.
        if let Some(file) = &args.page {
            std::fs::write(file, page(&origin, &readings)).during(|| format!("cannot write {}", file.display()))?;
        }
    }
    println!("\n{}", page(&origin, &readings));
    args.shared.write_json(&readings)
}

fn page(origin: &Origin, readings: &[Reading]) -> String {
    format!("{TITLE}\n\n{}\n\n{}", origin.head(), page::tables(readings))
}

const TITLE: &str = "# Results: oncefs beside other file systems on five corpora

What oncefs saves, and what that costs, on files that nobody built for the result: roots of Debian, images of virtual \
machines made of them, node_modules, vendored crates, and releases of a project's sources, all from package registries. \
How it is measured: [peers](../benchmarks.md#peers).";
