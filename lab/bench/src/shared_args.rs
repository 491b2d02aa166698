//! Arguments that every comparison of oncefs mounts takes: directory, program, seed and file for the readings.

use std::fmt::Debug;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::command::find_oncefs;
use crate::failure::Result;
use crate::machine;
use crate::report::write_json;
use crate::side::Bench;
use crate::signal;
use crate::work_directory::WorkDirectory;

/// Where a comparison works, with which program, from which seed, and where its readings go.
#[derive(Args, Clone, Debug)]
pub struct SharedArgs {
    /// Directory for the loop devices' sparse files; its disk is what is measured
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// The oncefs program [default: the one beside this program]
    #[arg(long)]
    oncefs: Option<PathBuf>,
    /// Seed of contents and orders
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of the first repetition, from 0 on: to take up a run where it ended
    #[arg(long, default_value_t = 0)]
    first_repetition: usize,
    /// Write the raw readings to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

impl SharedArgs {
    /// Makes the run's directory and what its mounts share. Prints the machine and `args`.
    pub fn begin(&self, device_bytes: u64, args: &impl Debug) -> Result<(WorkDirectory, Bench)> {
        machine::require_root_and_fuse()?;
        signal::install();
        let work_directory = WorkDirectory::create(&self.dir)?;
        let directory = work_directory.path().to_owned();
        let bench = Bench { directory, device_bytes, oncefs: find_oncefs(self.oncefs.clone())?, raw: false };
        println!("{}\n{args:?}", machine::describe());
        Ok((work_directory, bench))
    }

    /// This many repetitions from the seed.
    pub fn rounds(&self, repetitions: usize) -> Rounds {
        Rounds { first: self.first_repetition, repetitions, seed: self.seed }
    }

    /// The seed of a repetition.
    pub fn seed_of(&self, repetition: usize) -> u64 {
        seed_of(self.seed, repetition)
    }

    /// Writes the readings to the file that was named, if any.
    pub fn write_json(&self, readings: &impl Serialize) -> Result<()> {
        self.json.as_deref().map_or(Ok(()), |path| write_json(path, readings))
    }
}

/// Repetitions, each with a seed of its own.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    first: usize,
    repetitions: usize,
    seed: u64,
}

impl Rounds {
    /// Number and seed of each repetition, in order.
    pub fn iter(self) -> impl Iterator<Item = (usize, u64)> {
        let numbers = self.first..self.first + self.repetitions;
        numbers.map(move |repetition| (repetition, seed_of(self.seed, repetition)))
    }
}

fn seed_of(seed: u64, repetition: usize) -> u64 {
    seed.wrapping_add((repetition as u64) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_repetition_has_a_seed_of_its_own_and_the_first_the_one_that_was_given() {
        let rounds = |first, repetitions| -> Vec<_> { Rounds { first, repetitions, seed: u64::MAX }.iter().collect() };
        assert_eq!(rounds(0, 3), [(0, u64::MAX), (1, 255), (2, 511)]);
        assert_eq!(rounds(2, 1), [(2, 511)], "a run that goes on repeats nothing");
    }
}
