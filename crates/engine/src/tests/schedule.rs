//! Threads on one small volume, under a scheduler that decides at every lock, atomic operation and device request which
//! thread runs next. Interleavings that real threads would meet once in years are tried in seconds, and repeat from
//! their seed.
//!
//! After every schedule: each file holds what its one writer wrote, `check` finds nothing, a power cut loses nothing
//! that a commit acknowledged, and every unused block can be handed out. `docs/schedules.md` says how many schedules
//! there are and how to repeat one. Not covered here: memory orders (the scheduler's atomics are sequentially
//! consistent), RocksDB, real devices.

mod model;
mod roles;
mod room;
mod volume;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use oncefs_toolbox::counts::gate_or_drill;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

use crate::settings::values::{FingerprintMode, Inline};
use crate::tests::fixture::Random;
use roles::{Roles, run};
use volume::Shape;

/// Schedules per seed: the same work in this many orders.
const ROUND: usize = 20;
/// Schedules of each test in the gate, which catch all planted bugs, and in the drill. `ONCEFS_SCHEDULES` overrides
/// them.
const SCHEDULES: (u64, u64) = (500, 10_000);
/// Moments at which the thread with the highest priority drops to the lowest, plus one (PCT's depth).
const PCT_DEPTH: usize = 4;
/// A schedule of this many steps does not end.
const STEPS_MAX: usize = 1_000_000;
const STACK_BYTES: usize = 256 << 10;

fn number(variable: &str) -> Option<usize> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value} is not a number")))
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = shuttle::MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    config
}

/// Seeds alternate: any thread may continue at any moment, or priorities decide that change at a few of them.
fn run_round(seed: u64, work: impl Fn() + Send + Sync + 'static) {
    fn run(scheduler: impl Scheduler + 'static, work: impl Fn() + Send + Sync + 'static) {
        Runner::new(scheduler, config()).run(work);
    }
    match seed % 2 {
        0 => run(RandomScheduler::new_from_seed(seed, ROUND), work),
        _ => run(PctScheduler::new_from_seed(seed, PCT_DEPTH, ROUND), work),
    }
}

/// Runs one round for each seed. On a failure it tells how to repeat it. The calling test supplies the name.
fn explore<F: Fn(Random) + Copy + Send + Sync + 'static>(work: F) {
    let name = std::any::type_name::<F>().trim_start_matches("oncefs_engine::").trim_end_matches("::{{closure}}");
    let only = number("ONCEFS_SCHEDULES_SEED");
    let schedules = number("ONCEFS_SCHEDULES").unwrap_or_else(|| gate_or_drill(SCHEDULES.0, SCHEDULES.1) as usize);
    let rounds = schedules.div_ceil(ROUND);
    let seeds = only.map_or(0..rounds, |seed| seed..seed + 1);
    println!("{name}: {} schedules, seeds {} to {}", seeds.len() * ROUND, seeds.start, seeds.end - 1);
    for seed in seeds.map(|seed| seed as u64) {
        let begun = Arc::new(AtomicUsize::new(0));
        let counter = begun.clone();
        let round = move || {
            run_round(seed, move || {
                counter.fetch_add(1, Relaxed);
                work(Random::new(seed));
            })
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(round)) {
            eprintln!(
                "schedule {} of seed {seed} fails; to repeat it: ONCEFS_SCHEDULES_SEED={seed} cargo test --release \
                 -p oncefs-engine --features schedules --lib {name} -- --exact --nocapture",
                begun.load(Relaxed)
            );
            resume_unwind(panic);
        }
    }
}

const NOBODY: Roles = Roles {
    writers: 0,
    cutters: 0,
    cloners: 0,
    readers: 0,
    committers: 0,
    checkpointers: 0,
    releasers: 0,
    reclaimers: 0,
    workers: 0,
    takers: 0,
    compressors: 0,
    repackers: 0,
    expanders: 0,
};

/// One writer frees the blocks that another shares in-line.
#[test]
fn writers_share_what_others_free() {
    explore(|random| run(Shape::sharing(), Roles { writers: 2, committers: 1, releasers: 1, ..NOBODY }, random));
}

/// The same without a disk level and with missing fingerprints, so that bytes are compared.
#[test]
fn writers_compare_what_others_free() {
    explore(|random| {
        let shape = Shape { fingerprints: FingerprintMode::Lazy, has_two_levels: false, ..Shape::sharing() };
        run(shape, Roles { writers: 2, committers: 1, releasers: 1, ..NOBODY }, random);
    });
}

/// Data in the log is placed while its blocks are freed, and its records are trimmed.
#[test]
fn checkpoints_run_beside_writers() {
    explore(|random| run(Shape::small(), Roles { writers: 2, checkpointers: 2, releasers: 1, ..NOBODY }, random));
}

/// Data goes to the data area, which commits have to flush.
#[test]
fn large_writes_run_beside_commits() {
    explore(|random| {
        let roles = Roles { writers: 2, committers: 2, checkpointers: 1, releasers: 1, ..NOBODY };
        run(Shape::large(), roles, random);
    });
}

/// A waiter for the committer is told when all of its publications are durable, and not before.
#[test]
fn barriers_are_answered_when_all_is_durable() {
    explore(|random| {
        let shape = Shape { has_committer: true, ..Shape::small() };
        run(shape, Roles { writers: 3, committers: 1, releasers: 1, ..NOBODY }, random);
    });
}

/// Holes are punched where large writes go next.
#[test]
fn holes_are_punched_beside_large_writes() {
    explore(|random| run(Shape::large(), Roles { writers: 2, committers: 1, releasers: 2, ..NOBODY }, random));
}

/// A reader that looked up a block reads it, although it was freed meanwhile.
#[test]
fn readers_meet_no_block_of_others() {
    explore(|random| {
        run(Shape::small(), Roles { writers: 2, readers: 2, committers: 1, releasers: 1, ..NOBODY }, random);
    });
}

/// The worker remaps blocks that writers change, cut, clone and delete.
#[test]
fn the_worker_remaps_beside_writers() {
    explore(|random| {
        let shape = Shape { inline: Inline::Off, fingerprints: FingerprintMode::Lazy, ..Shape::small() };
        run(shape, Roles { writers: 2, workers: 1, committers: 1, reclaimers: 1, ..NOBODY }, random);
    });
}

/// Its remaps meet checkpoints, releases and punched holes.
#[test]
fn the_worker_remaps_beside_checkpoints() {
    explore(|random| {
        let shape = Shape { inline: Inline::Off, ..Shape::small() };
        run(shape, Roles { writers: 1, workers: 1, checkpointers: 1, releasers: 1, ..NOBODY }, random);
    });
}

/// Lazy clones begin while their sources are written, cut and deleted, and leaves are taken by each of these changes, by
/// the background and by further clones.
#[test]
fn clones_begin_and_take_leaves_beside_changes() {
    explore(|random| {
        let roles = Roles { writers: 1, cutters: 1, cloners: 1, readers: 1, takers: 1, ..NOBODY };
        run(Shape::on_two_leaves(), Roles { committers: 1, reclaimers: 1, ..roles }, random);
    });
}

/// Clones meet remaps of blocks that they share, checkpoints and released blocks.
#[test]
fn clones_meet_remaps_and_checkpoints() {
    explore(|random| {
        let roles = Roles { writers: 1, cloners: 1, takers: 1, workers: 1, ..NOBODY };
        let shape = Shape { inline: Inline::Off, ..Shape::on_two_leaves() };
        run(shape, Roles { checkpointers: 1, releasers: 1, reclaimers: 1, ..roles }, random);
    });
}

/// Packs get gaps by writes and are packed anew, while their fragments are read, rewritten and freed.
#[test]
fn packs_are_packed_anew_beside_reads_and_writes() {
    explore(|random| {
        let roles = Roles { writers: 2, readers: 1, compressors: 1, repackers: 1, ..NOBODY };
        run(Shape::compressed(), Roles { checkpointers: 1, releasers: 1, ..roles }, random);
    });
}

/// Fragments become blocks while they are read, rewritten, cloned and freed.
#[test]
fn fragments_are_expanded_beside_reads_and_writes() {
    explore(|random| {
        let roles = Roles { writers: 1, cutters: 1, readers: 1, expanders: 1, repackers: 1, ..NOBODY };
        run(Shape::compressed(), Roles { committers: 1, releasers: 1, ..roles }, random);
    });
}

/// Threads wait for room in the log, while changes that hold off the commit need the lock of an inode.
#[test]
fn nobody_waits_for_room_for_ever() {
    explore(|random| room::run(Shape { has_committer: true, ..Shape::small() }, random));
}

#[test]
fn all_roles_together() {
    explore(|random| {
        let background = Roles { checkpointers: 1, releasers: 1, reclaimers: 1, workers: 1, ..NOBODY };
        run(Shape::small(), Roles { writers: 2, readers: 1, committers: 1, ..background }, random);
    });
}

/// The message of a failure is worthless if the next run differs.
#[test]
fn a_seed_repeats_its_schedules() {
    let steps = |seed: u64| {
        let steps = Arc::new(AtomicUsize::new(0));
        let sum = steps.clone();
        run_round(seed, move || {
            let roles = Roles { writers: 2, workers: 1, checkpointers: 1, releasers: 1, ..NOBODY };
            run(Shape::small(), roles, Random::new(seed));
            sum.fetch_add(shuttle::current::context_switches(), Relaxed);
        });
        steps.load(Relaxed)
    };
    for seed in 0..8 {
        assert_eq!(steps(seed), steps(seed), "steps of seed {seed}, run twice");
    }
    assert_ne!(steps(0), steps(2), "other seeds do other things");
}
