//! Random operations on the file system and on a simple model of one in memory. Every answer must be the same, and
//! after each reopening the visible state too.
//!
//! Not covered: threads (`semantics.rs`), crashes (the crash explorer and the mounted tests), the kernel.
//! A failure names its seed and step.

mod reference;
mod steps;

use crate::common::Volume;
use oncefs_fs::AtimePolicy;
use oncefs_toolbox::Random;
use oncefs_toolbox::counts::{gate_or_drill, seed};
use steps::Run;

/// Steps of each run, in the gate and in the drill.
const STEPS: (u64, u64) = (3_000, 60_000);
/// Runs, with consecutive seeds from that of the test on.
const RUNS: u64 = 3;

#[test]
fn random_operations_have_the_same_effect_as_on_the_model() {
    let steps = gate_or_drill(STEPS.0, STEPS.1);
    let first = seed();
    for seed in first..first + RUNS {
        let volume = Volume::compressed(AtimePolicy::Never);
        let mut run = Run::new(&volume, Random::new(seed), seed);
        for step in 1..=steps {
            run.step(step);
        }
        run.reopen();
    }
}
