//! Measures figures 8 to 11: table 4's workloads, read 90 to 10 % sequentially.

use serde::Serialize;

use super::args::SelectiveArgs;
use super::cases::{Case, Prepared, Saved, Use, prepare};
use super::corpus::Corpus;
use super::counter::Counted;
use super::reading::{Distribution, Pattern, Reads};
use super::workload::{Duplicates, Workload};
use crate::failure::{Result, tell};
use crate::mount::rotated;
use crate::side::Bench;

/// Longer than the paper's evaluation interval of 2 days, and shorter than the 2 weeks after which a file is cold.
const DAYS: u32 = 3;

/// The result of one mount with one share of files read sequentially, in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    /// The workload.
    pub workload: Duplicates,
    /// The mount.
    pub case: Case,
    /// From 0 on.
    pub repetition: usize,
    /// Files that are read sequentially, in percent; the others are read at random.
    pub sequential_percent: usize,
    /// What it saved.
    pub saved: Saved,
    /// Response times of all files.
    pub all: Distribution,
    /// Response times of those read sequentially, read without the others.
    pub sequential: Distribution,
}

/// All readings, and what the counter found in the files.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    /// By workload and repetition.
    pub counted: Vec<(Duplicates, usize, Counted)>,
    /// In the order in which they were taken.
    pub readings: Vec<Reading>,
}

/// Measures one workload on every mount.
pub fn measure(args: &SelectiveArgs, bench: &Bench, duplicates: Duplicates, results: &mut Results) -> Result<()> {
    for (repetition, seed) in args.rounds().iter() {
        let workload = Workload::new(duplicates, args.size(), seed);
        let run = Run { args, bench, duplicates, repetition, seed, workload: &workload };
        for (_, case) in rotated(&args.cases, repetition) {
            tell(&format!("{}, repetition {}: {}", duplicates.describe(), repetition + 1, case.describe()));
            match case {
                Case::Selective => run.selective(results)?,
                _ => run.alike(*case, results)?,
            }
        }
    }
    Ok(())
}

/// One workload in one repetition.
struct Run<'a> {
    args: &'a SelectiveArgs,
    bench: &'a Bench,
    duplicates: Duplicates,
    repetition: usize,
    seed: u64,
    workload: &'a Workload,
}

impl Run<'_> {
    /// A mount on which it does not matter how files are used: written once, read with each share.
    fn alike(&self, case: Case, results: &mut Results) -> Result<()> {
        let usage = self.usage(0);
        let mut prepared = prepare(&self.args.memory, self.bench, case, self.workload, &usage)?;
        self.count(&prepared, results)?;
        for sequential_percent in self.args.sequential.iter().copied() {
            results.readings.push(self.read(case, &mut prepared, sequential_percent)?);
        }
        prepared.finish(self.workload)
    }

    /// Written anew for each share, as ranks follow from it.
    fn selective(&self, results: &mut Results) -> Result<()> {
        for sequential_percent in self.args.sequential.iter().copied() {
            let usage = self.usage(sequential_percent);
            let mut prepared = prepare(&self.args.memory, self.bench, Case::Selective, self.workload, &usage)?;
            self.count(&prepared, results)?;
            results.readings.push(self.read(Case::Selective, &mut prepared, sequential_percent)?);
            prepared.finish(self.workload)?;
        }
        Ok(())
    }

    fn usage(&self, sequential_percent: usize) -> Use {
        Use { days: DAYS, late_from: self.workload.files(), reads: self.reads(sequential_percent) }
    }

    fn reads(&self, sequential_percent: usize) -> Reads {
        Reads::mixed(self.workload.files(), sequential_percent, self.args.random_blocks_max, self.seed)
    }

    fn read(&self, case: Case, prepared: &mut Prepared, sequential_percent: usize) -> Result<Reading> {
        let reads = self.reads(sequential_percent);
        let all = prepared.read_cold(&reads, self.workload)?;
        // Alone, as the device's limits let reads catch up on what the reads before them left unused.
        let sequential = prepared.read_cold(&reads.only(Pattern::Sequential), self.workload)?;
        Ok(Reading {
            workload: self.duplicates,
            case,
            repetition: self.repetition,
            sequential_percent,
            saved: prepared.saved.clone(),
            all: all.figures(|_| true),
            sequential: sequential.figures(|_| true),
        })
    }

    /// Counts the duplicates in the files, unless that was done.
    fn count(&self, prepared: &Prepared, results: &mut Results) -> Result<()> {
        let this = (self.duplicates, self.repetition);
        if !results.counted.iter().any(|(duplicates, repetition, _)| (*duplicates, *repetition) == this) {
            let counted = Counted::of(prepared.side.root(), self.workload)?;
            results.counted.push((self.duplicates, self.repetition, counted));
        }
        Ok(())
    }
}
