//! Random operations on the file system and on a simple model of one in memory: every answer must be the same, and after
//! each reopening so must everything visible.
//!
//! Not covered: threads (`semantics.rs`), crashes (the crash explorer and the mounted tests), the kernel.
//! `ONCEFS_MODEL_STEPS` and `ONCEFS_MODEL_SEED` select another run; a failure names its seed and step.

mod reference;
mod steps;

use crate::common::Volume;
use oncefs_fs::AtimePolicy;
use oncefs_toolbox::Random;
use steps::Run;

/// Steps of each run, unless the environment sets another number.
const STEPS: u64 = 6_000;
/// Seeds of the runs.
const SEEDS: [u64; 3] = [1, 2, 3];

fn number_from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

#[test]
fn random_operations_have_the_same_effect_as_on_the_model() {
    let steps = number_from_environment("ONCEFS_MODEL_STEPS").unwrap_or(STEPS);
    let seeds = number_from_environment("ONCEFS_MODEL_SEED").map_or(SEEDS.to_vec(), |seed| vec![seed]);
    for seed in seeds {
        let volume = Volume::new(AtimePolicy::Never);
        let mut run = Run::new(&volume, Random::new(seed), seed);
        for step in 1..=steps {
            run.step(step);
        }
        run.reopen();
    }
}
