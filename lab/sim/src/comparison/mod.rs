//! The comparison on twins of published traces: which runs there are, their outcomes, and the pages made of them.

mod equal_hints;
mod plots;
mod runs;
mod tables;
mod verdicts;

use std::collections::BTreeMap;
use std::fmt;

pub(crate) use equal_hints::bytes_for;

use crate::design_choice::{DesignChoice, Settings};
use crate::designs::{Outcome, Threshold, with_skipped_buffer};
use crate::generate::Twin;
use crate::oracle::Truth;
use crate::replay::Idle;

/// What is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonOptions {
    /// Numbers of the traces, from 1.
    pub traces: Vec<usize>,
    /// One part in so many of the traces' sizes, and of the memory.
    pub scale: u64,
    /// Memory of the sweep in MiB, before it is scaled.
    pub megabytes: Vec<u64>,
    /// Memory that holds this percentage of the fingerprints.
    pub percents: Vec<u64>,
    /// When out-of-line work is done.
    pub idle: Idle,
    /// Of the twins.
    pub seed: u64,
    /// Runs at the same time.
    pub threads: usize,
}

/// How much memory a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryPoint {
    /// MiB, before they are scaled.
    Megabytes(u64),
    /// Hints for at least this percentage of the contents that are live at most at a time, and beside them a skipped buffer and
    /// the disk level's directory. For the other designs: as many bytes as oncefs's groups take.
    Percent(u64),
}

/// One replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Of this design,
    pub choice: DesignChoice,
    /// with this memory,
    pub memory: MemoryPoint,
    /// sharing runs of at least so many blocks.
    pub run_blocks_min: u32,
}

/// All replays of one twin.
#[derive(Clone, Debug, PartialEq)]
pub struct TwinResult {
    /// The row of Table 1.
    pub twin: Twin,
    /// What can be found.
    pub truth: Truth,
    /// What was found.
    pub outcomes: BTreeMap<Run, Outcome>,
}

/// All replays.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What was asked for.
    pub options: ComparisonOptions,
    /// In the order asked for.
    pub twins: Vec<TwinResult>,
}

impl MemoryPoint {
    /// What a design is set to.
    fn settings(self, run: Run, truth: &Truth, scale: u64) -> Settings {
        let Run { choice, run_blocks_min, .. } = run;
        let (memory, directory_beside) = match self {
            Self::Megabytes(megabytes) => ((megabytes << 20) / scale, false),
            Self::Percent(percent) => {
                let hints = equal_hints::boundable(truth.contents_max * percent / 100);
                (with_skipped_buffer(equal_hints::bytes_for(choice.eviction(), hints)), true)
            }
        };
        Settings {
            memory,
            directory_beside,
            prefix_bits: None,
            threshold: Threshold::Fixed(run_blocks_min),
            extends: false,
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.memory {
            MemoryPoint::Megabytes(megabytes) => write!(f, "{}, {megabytes} MB", self.choice)?,
            MemoryPoint::Percent(percent) => write!(f, "{}, memory for {percent} %", self.choice)?,
        }
        if self.run_blocks_min > 1 { write!(f, ", runs of {}", self.run_blocks_min) } else { Ok(()) }
    }
}

impl TwinResult {
    /// A run's outcome. Panics if there was no such run.
    fn outcome(&self, choice: DesignChoice, memory: MemoryPoint) -> &Outcome {
        let run = Run { choice, memory, run_blocks_min: 1 };
        self.outcomes.get(&run).unwrap_or_else(|| panic!("{run:?} is not among the runs"))
    }

    /// Percent of the written blocks.
    fn percent(&self, blocks: u64) -> f64 {
        self.truth.percent_of_written(blocks)
    }
}
