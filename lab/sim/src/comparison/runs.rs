//! Which replays there are, and how they are run.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Comparison, ComparisonOptions, MemoryPoint, Run, TwinResult};
use crate::design_choice::DesignChoice;
use crate::designs::Outcome;
use crate::generate::{Mixed, TWINS, Twin};
use crate::oracle::Truth;
use crate::replay::replay;
use crate::trace::Recording;

/// Compared over the whole sweep of memory.
pub(super) const SWEPT: [DesignChoice; 8] = [
    DesignChoice::Oncefs,
    DesignChoice::OncefsInline,
    DesignChoice::OncefsInlineGroups,
    DesignChoice::Lru,
    DesignChoice::Caftl,
    DesignChoice::CaftlAll,
    DesignChoice::CaftlPrehash,
    DesignChoice::Dmdedup,
];
/// Compared where memory holds a stated share of the fingerprints.
pub(super) const EVICTIONS: [DesignChoice; 3] =
    [DesignChoice::OncefsSingles, DesignChoice::OncefsGroups, DesignChoice::Oncefs];
/// Shortest runs worth sharing, as in SmartDedup's figure 12. One is in the comparison of evictions.
const RUN_BLOCKS_MIN: [u32; 3] = [2, 3, 4];

impl Comparison {
    /// Makes the twins and replays them; `tell` is called after each replay.
    pub fn run(options: ComparisonOptions, tell: &(impl Fn(&str) + Sync)) -> Self {
        let twins = options.traces.iter().map(|trace| run_twin(TWINS[trace - 1], &options, tell)).collect();
        Self { options, twins }
    }
}

fn run_twin(twin: Twin, options: &ComparisonOptions, tell: &(impl Fn(&str) + Sync)) -> TwinResult {
    let spec = twin.spec(options.scale, options.seed);
    let mut mixed = Mixed::new(spec).expect("the twins' specifications are checked by a test");
    let recording = Recording::of(&mut mixed).expect("a made trace has no bad line");
    let truth = Truth::of(&recording);
    tell(&format!("trace {}: {} blocks made", twin.trace, truth.written));
    let runs = runs(options);
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = replay_once(*run, &recording, &truth, options);
            let [inline, all] = [outcome.found_inline, outcome.found()].map(|found| truth.percent_of_written(found));
            tell(&format!("trace {}: {run}: {inline:.2} % found in-line, {all:.2} % in all", twin.trace));
            outcomes.lock().expect("no replay panics while it holds the lock").insert(*run, outcome);
        }
    };
    std::thread::scope(|scope| {
        (0..options.threads).for_each(|_| drop(scope.spawn(work)));
    });
    let outcomes = outcomes.into_inner().expect("no replay panics while it holds the lock");
    TwinResult { twin, truth, outcomes }
}

/// The long ones first, so that threads end together.
fn runs(options: &ComparisonOptions) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut add = |choice, memory, run_blocks_min| runs.push(Run { choice, memory, run_blocks_min });
    for percent in options.percents.iter().map(|percent| MemoryPoint::Percent(*percent)) {
        EVICTIONS.into_iter().for_each(|choice| add(choice, percent, 1));
        add(DesignChoice::DmdedupTree, percent, 1);
    }
    if let Some(percent) = options.percents.iter().max().map(|percent| MemoryPoint::Percent(*percent)) {
        RUN_BLOCKS_MIN.into_iter().for_each(|blocks| add(DesignChoice::Oncefs, percent, blocks));
        add(DesignChoice::None, percent, 1);
    }
    for choice in SWEPT {
        options.megabytes.iter().for_each(|megabytes| add(choice, MemoryPoint::Megabytes(*megabytes), 1));
    }
    runs
}

fn replay_once(run: Run, recording: &Recording, truth: &Truth, options: &ComparisonOptions) -> Outcome {
    let mut design = run.choice.build(run.memory.settings(run, truth, options.scale));
    replay(&mut recording.replay(), &mut [&mut *design], None, options.idle).expect("a recording has no bad line");
    design.check();
    design.outcome()
}
