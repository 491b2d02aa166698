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
mod schedule;
mod selective;
mod smartdedup;
mod verdict;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::command::find_oncefs;
use crate::failure::{During, Failure, Result, tell};
use crate::work_directory::clear_left_over;
use crate::{machine, signal};
use experiment::{Conditions, Experiment};
use figure::{Figure, Paper};
use readings::Readings;
use schedule::Due;

/// All papers, in the order of the summary.
fn papers() -> [&'static Paper; 4] {
    [&*smartdedup::PAPER, &*idedup::PAPER, &*selective::PAPER, &*lrlfs::PAPER]
}

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
    /// Only tell what is left to measure, and how long that takes
    #[arg(long)]
    plan: bool,
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
///
/// Each repetition of each experiment is kept as soon as it is there, so a run that was killed goes on with the next.
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
    let mut experiments = figure::experiments(chosen(paper, &args.figures)?);
    if args.again {
        experiments.iter().for_each(|experiment| drop(readings.0.remove(experiment.name)));
    }
    if args.plan {
        return tell_plan(&experiments, &readings, &conditions);
    }
    let _lock = lock(&args.readings)?;
    clear_left_over(directory)?;
    let mut failed = Vec::new();
    while let Some(Due { experiment, repetition }) = next_due(&experiments, &readings, &conditions) {
        signal::check()?;
        match runner::run(experiment, &conditions, repetition, &args.readings) {
            Ok(one) => readings.add(experiment, one).save(&args.readings, experiment.name)?,
            Err(failure) => {
                signal::check()?;
                // The others take hours and do not depend on it.
                tell(&format!("oncefs-bench: {failure}; going on with the others"));
                experiments.retain(|other| other.name != experiment.name);
                failed.push(experiment.name);
            }
        }
        // What is measured is on the page even if the next repetition fails.
        write_pages(paper, &readings, args)?;
    }
    write_pages(paper, &readings, args)?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!("failed: {}; run it again for these", failed.join(", ")))),
    }
}

/// Says what is left, experiment by experiment.
fn tell_plan(experiments: &[&'static Experiment], readings: &Readings, conditions: &Conditions) -> Result<()> {
    let due = schedule::left(experiments, readings, conditions);
    let minutes = |due: &[Due]| schedule::describe(schedule::minutes(due, experiments, readings, conditions));
    for of_one in due.chunk_by(|one, next| one.experiment.name == next.experiment.name) {
        let words = of_one[0].experiment.words(conditions).join(" ");
        println!("{} of {} left, {}: {words}", of_one.len(), conditions.repetitions, minutes(of_one));
    }
    println!("{}", if due.is_empty() { "nothing is left".to_owned() } else { format!("all: {}", minutes(&due)) });
    Ok(())
}

/// The repetition that is next, after saying how much is left.
fn next_due(experiments: &[&'static Experiment], readings: &Readings, conditions: &Conditions) -> Option<Due> {
    let due = schedule::left(experiments, readings, conditions);
    let next = *due.first()?;
    let minutes = schedule::describe(schedule::minutes(&due, experiments, readings, conditions));
    let (number, of) = (next.repetition + 1, conditions.repetitions);
    let name = next.experiment.name;
    tell(&format!("{} repetitions left, about {minutes}; next: {name}, {number} of {of}", due.len()));
    Some(next)
}

/// Keeps other runs away from these readings. Ends with the process.
fn lock(readings: &Path) -> Result<File> {
    let path = readings.join("lock");
    let file = File::create(&path).during(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(error) => Err(Failure::new(format!("another run keeps its readings in {}: {error}", readings.display()))),
    }
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
    for figure in &paper.figures {
        if let Some(svg) = plots::svg(figure, readings) {
            write(&args.pages.join("plots").join(plots::file_name(paper, figure)), &svg)?;
            drawn.push(figure.number);
        }
    }
    let page = page::page(paper, readings, |figure| drawn.contains(&figure.number));
    write(&args.pages.join(format!("paper-{}.md", paper.name)), &page)?;
    let of_all: Result<Vec<_>> =
        papers().into_iter().map(|paper| Ok((paper, Readings::load(&args.readings, &paper.experiments())?))).collect();
    write(&args.pages.join("papers.md"), &overview::page(&of_all?))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).during(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests;
