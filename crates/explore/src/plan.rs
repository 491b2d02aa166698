//! The plan of an exploration: the workloads and their order.

use std::sync::Arc;

use crate::explore::Explorer;
use crate::live::Setup;
use crate::setups;
use crate::workload::{Base, Workload, directed, interrupted, sequences};

/// Seeded workloads that begin at a time, on each setup. The explored work depends on this number and not on the
/// threads' pace.
const ROUND: u64 = 16;
/// The endings of sequences of one operation.
const ONE_ENDINGS: [&str; 3] = ["commit", "checkpoint", "leave"];

/// A workload on its volume.
pub type Job = (Arc<Base>, Workload);

/// The scope of an exploration.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Whether sequences of two operations are explored too.
    pub pairs: bool,
    /// Distinct states to reach, with seeded workloads after all others.
    pub states: usize,
    /// The first seed of the seeded workloads.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
}

impl Plan {
    /// Runs the plan. Calls `progress` after each step with its description.
    pub fn run(&self, progress: &mut dyn FnMut(&Explorer, &str)) -> Result<Explorer, String> {
        let explorer = Explorer::default();
        let bases = setups::all().iter().map(Base::make).collect::<Result<Vec<_>, String>>()?;
        let mut step = |what: &str, jobs: &[Job]| {
            explorer.explore(jobs, self.threads);
            progress(&explorer, what);
        };
        step("directed workloads", &jobs(&bases, &directed(), |setup, workload| workload.runs_on(setup)));
        let short = |setup: &Setup, _: &Workload| setup.has_short_work;
        step("sequences of one operation", &jobs(&bases, &sequences(1, "", &ONE_ENDINGS), short));
        let within = [interrupted(&directed()), interrupted(&sequences(1, "", &["checkpoint"]))].concat();
        let fits_within = |setup: &Setup, workload: &Workload| {
            setup.has_short_work || setup.gated_leaves_max < setups::ONE_GROUP_LEAVES_MAX && workload.runs_on(setup)
        };
        step("commits within operations", &jobs(&bases, &within, fits_within));
        if self.pairs {
            step("sequences of two operations", &jobs(&bases, &sequences(2, "", &["checkpoint"]), short));
            step("the same, committed in between", &jobs(&bases, &sequences(2, "commit,", &["commit"]), short));
        }
        let seeded = |setup: &Setup, _: &Workload| setup.has_seeded_work();
        let mut seed = self.seed;
        while explorer.distinct() < self.states && explorer.failures().is_empty() {
            let round: Vec<Workload> = (seed..seed + ROUND).map(Workload::random).collect();
            step(&format!("seeds {seed} to {}", seed + ROUND - 1), &jobs(&bases, &round, seeded));
            seed += ROUND;
        }
        Ok(explorer)
    }
}

fn jobs(bases: &[Arc<Base>], workloads: &[Workload], fits: impl Fn(&Setup, &Workload) -> bool) -> Vec<Job> {
    let all = bases.iter().flat_map(|base| workloads.iter().map(move |workload| (base.clone(), workload.clone())));
    all.filter(|(base, workload)| fits(base.setup, workload)).collect()
}

/// The job with this name, in the form of failures: `SETUP/WORKLOAD`.
pub fn named(name: &str) -> Result<Job, String> {
    let (setup, workload) = name.split_once('/').ok_or_else(|| format!("'{name}' is not SETUP/WORKLOAD"))?;
    Ok((Base::make(setups::named(setup)?)?, Workload::named(workload)?))
}
