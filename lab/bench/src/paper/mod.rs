//! Measures the evaluations of the four papers whose systems oncefs contains, and writes a page for each.
//!
//! A paper is a table of figures, a figure a table of claims, and a claim a number of the paper with a place among the
//! readings of an experiment. An experiment is a command line of this program, so each number can be had by hand too.

mod experiment;
mod figure;
mod idedup;
mod lrlfs;
mod overview;
mod page;
mod plots;
mod readings;
mod runner;
mod selective;
mod smartdedup;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::command::find_oncefs;
use crate::failure::{During, Failure, Result};
use crate::{machine, signal};
use experiment::Conditions;
use figure::{Figure, Paper};
use readings::Readings;

/// All papers, in the order of the summary.
static PAPERS: [&Paper; 4] = [&smartdedup::PAPER, &idedup::PAPER, &selective::PAPER, &lrlfs::PAPER];

/// Arguments.
#[derive(Args, Clone, Debug)]
pub struct PaperArgs {
    /// The paper
    #[arg(value_enum)]
    paper: PaperName,
    /// What the papers' sizes are multiplied with
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Figures and tables to measure, as the page names them: 3 or "Table 6" [default: all]
    #[arg(long = "figure", value_delimiter = ',')]
    figures: Vec<String>,
    /// Measure anew what was measured before at the same scale
    #[arg(long)]
    again: bool,
    /// Directory where readings are kept
    #[arg(long, default_value = "paper-readings")]
    readings: PathBuf,
    /// Directory of the pages
    #[arg(long, default_value = "docs/results")]
    pages: PathBuf,
    /// Number of repetitions; the mounts alternate within each
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Seed of contents and orders
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the loop devices' sparse files; its disk is what is measured
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// The oncefs program [default: the one beside this program]
    #[arg(long)]
    oncefs: Option<PathBuf>,
}

/// A paper by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PaperName {
    /// SmartDedup: in-line and out-of-line together, with little memory.
    Smartdedup,
    /// iDedup: runs that are worth sharing.
    Idedup,
    /// Selective: by how files are used.
    Selective,
    /// LRLFS: a map instead of a fingerprint index.
    Lrlfs,
}

impl PaperName {
    fn paper(self) -> &'static Paper {
        match self {
            PaperName::Smartdedup => &smartdedup::PAPER,
            PaperName::Idedup => &idedup::PAPER,
            PaperName::Selective => &selective::PAPER,
            PaperName::Lrlfs => &lrlfs::PAPER,
        }
    }
}

/// Measures what is asked for and not yet there, and writes the paper's page and the summary.
pub fn run(args: &PaperArgs) -> Result<()> {
    machine::require_root_and_fuse()?;
    signal::install();
    if !(args.scale > 0.0 && args.scale <= 100.0) || args.repetitions == 0 {
        return Err(Failure::new("--scale must be above 0 and at most 100, and --repetitions at least 1"));
    }
    for directory in [&args.readings, &args.pages.join("plots")] {
        fs::create_dir_all(directory).during(|| format!("cannot create {}", directory.display()))?;
    }
    let (paper, oncefs) = (args.paper.paper(), find_oncefs(args.oncefs.clone())?);
    let (directory, scale) = (args.dir.as_path(), args.scale);
    let conditions = Conditions { directory, oncefs: &oncefs, scale, repetitions: args.repetitions, seed: args.seed };
    let mut readings = Readings::load(&args.readings, &paper.experiments())?;
    let mut measured: Vec<&str> = Vec::new();
    for experiment in chosen(paper, &args.figures)?.into_iter().flat_map(Figure::experiments) {
        let is_there = readings.has(experiment, &conditions) && !args.again;
        if is_there || measured.contains(&experiment.name) {
            continue;
        }
        signal::check()?;
        readings.0.insert(experiment.name, runner::run(experiment, &conditions, &args.readings)?);
        measured.push(experiment.name);
        // What is measured is on the page even if the next experiment fails.
        write_pages(paper, &readings, args)?;
    }
    write_pages(paper, &readings, args)
}

/// The figures that were named, or all.
fn chosen(paper: &'static Paper, names: &[String]) -> Result<Vec<&'static Figure>> {
    let find = |name: &String| {
        let number = |figure: &&Figure| figure.number.eq_ignore_ascii_case(name);
        paper.figures.iter().find(number).ok_or_else(|| {
            let known: Vec<&str> = paper.figures.iter().map(|figure| figure.number).collect();
            Failure::new(format!("{} has no figure {name}; it has {}", paper.name, known.join(", ")))
        })
    };
    if names.is_empty() { Ok(paper.figures.iter().collect()) } else { names.iter().map(find).collect() }
}

fn write_pages(paper: &'static Paper, readings: &Readings, args: &PaperArgs) -> Result<()> {
    let mut drawn = Vec::new();
    for figure in paper.figures {
        if let Some(svg) = plots::svg(figure, readings) {
            write(&args.pages.join("plots").join(plots::file_name(paper, figure)), &svg)?;
            drawn.push(figure.number);
        }
    }
    let page = page::page(paper, readings, |figure| drawn.contains(&figure.number));
    write(&args.pages.join(format!("paper-{}.md", paper.name)), &page)?;
    let of_all: Result<Vec<_>> =
        PAPERS.into_iter().map(|paper| Ok((paper, Readings::load(&args.readings, &paper.experiments())?))).collect();
    write(&args.pages.join("papers.md"), &overview::page(&of_all?))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).during(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests;
