//! Repairs of names with a power cut after every step: after a second repair the volume is clean, and equals the result
//! of an uninterrupted repair. Repairs of blocks have such a test in the engine (`check/tests.rs`).

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use oncefs_engine::{BackgroundStep, Change, Committer, Remedy, Store};
use oncefs_explore::image::Images;
use oncefs_explore::live::{Setup, StepClock};
use oncefs_explore::setups;
use oncefs_explore::states::{Effort, for_each_state};
use oncefs_explore::tape::{Recorded, Tape};
use oncefs_explore::visible_state::Snapshot;
use oncefs_explore::workload::Base;
use oncefs_fs::fix_names;
use oncefs_toolbox::Random;

/// Damaged volumes, unless `ONCEFS_FSCK_SEEDS` says otherwise.
const SEEDS: u64 = 40;
/// Most records damaged in one volume.
const DAMAGES_MAX: u64 = 5;
/// Keys of the file system's records; smaller ones are the engine's.
const RECORDS: (&[u8], &[u8]) = (&[0x10], &[0xFF]);

/// Deletes records of names and inodes and their attachments, and flips bits in others.
fn damage(store: &Store, random: &mut Random) {
    let records = store.scan(RECORDS.0, RECORDS.1, usize::MAX).unwrap();
    let mut change = Change::new();
    for _ in 0..1 + random.below(DAMAGES_MAX) {
        let (key, value) = &records[random.below(records.len() as u64) as usize];
        let mut value = value.clone();
        let at = random.below(value.len().max(1) as u64) as usize;
        match value.get_mut(at).filter(|_| random.one_in(2)) {
            Some(byte) => {
                *byte ^= 1 << random.below(8);
                change.put(key.clone(), value);
            }
            None => change.delete(key.clone()),
        }
    }
    store.publish(change).unwrap();
    store.run(BackgroundStep::Checkpoint).unwrap();
}

/// Repairs the volume in `images`. `commits`: each fix is durable before the next. Returns the result, and the steps of
/// the repair.
fn repaired(setup: &Setup, images: Images, commits: bool) -> (Snapshot, Vec<Recorded>) {
    let tape = Tape::new(images, true);
    let committer: Committer = Box::new(|commit| commit().unwrap());
    let store = setup.open_store(&tape, Some(committer).filter(|_| commits)).unwrap();
    let blocks = store.repair(Remedy::Asked, &mut |_, _, _| ()).unwrap();
    assert!(blocks.left.is_clean(), "{:#?}", blocks.left.problems);
    let clock = StepClock::default();
    let names = fix_names(&store, &clock, Remedy::Asked, &mut |_, _, _| ()).unwrap();
    assert_eq!(names.left, Vec::<String>::new(), "after {:#?}", names.fixed);
    store.run(BackgroundStep::Checkpoint).unwrap();
    drop(store);
    let steps = tape.take();
    let (store, file_system) = setup.open(&tape, Arc::new(clock)).unwrap();
    assert_eq!(store.check(true, &mut |_, _| ()).unwrap().problems, Vec::<String>::new());
    let mut left = Vec::new();
    file_system.check(&mut |problem| left.push(problem)).unwrap();
    assert_eq!(left, Vec::<String>::new());
    (Snapshot::of_file_system(&file_system).unwrap(), steps)
}

#[test]
fn names_are_mended_also_when_the_power_fails_at_any_step_of_the_repair() {
    let setup = &setups::all()[0];
    let base = Base::make(setup).unwrap();
    let seeds = std::env::var("ONCEFS_FSCK_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let mut states = 0;
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let tape = Tape::new(base.images().clone(), false);
        damage(&setup.open_store(&tape, None).unwrap(), &mut random);
        let damaged = tape.images();
        let (expected, _) = repaired(setup, damaged.clone(), false);
        let (_, steps) = repaired(setup, damaged.clone(), true);
        let mut seen = HashSet::new();
        let _ = for_each_state(&damaged, &steps, Effort::WHOLE, seed, None, &mut |crash| {
            if seen.insert(crash.images.hash()) {
                let (mut found, _) = repaired(setup, crash.images.clone(), false);
                // A repair after a crash takes other inode numbers for the files that it creates.
                found.take_numbers_below("/lost+found", &expected);
                let differences = found.differences(&expected);
                assert!(differences.is_empty(), "seed {seed}, state {}: {}", crash.id, differences.join("; "));
            }
            ControlFlow::Continue(())
        });
        states += seen.len();
    }
    println!("{seeds} damaged volumes, {states} states that a power cut left of their repairs");
    assert!(states as u64 > 5 * seeds, "only {states} states");
}
