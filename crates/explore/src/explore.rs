//! The exploration: runs workloads, recovers and judges every state that a crash may leave of them, and crashes some
//! recoveries again. Two threads share the workloads. The findings do not depend on their pace.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use hashbrown::HashMap;
use oncefs_toolbox::{Column, Table};
use parking_lot::Mutex;

use crate::image::Images;
use crate::judge;
use crate::live::{Recording, Setup};
use crate::point::Point;
use crate::states::{Crash, Effort, StateId, for_each_state};
use crate::tape::{Allowed, Recorded};
use crate::visible_state::Snapshot;
use crate::workload::{Base, Workload};

/// One recovery in this many is crashed again.
const NESTED_ONE_IN: u128 = 24;
/// Failures after which exploring ends.
const FAILURES_MAX: usize = 5;

/// Steps before a crash that a replay prints.
const STEPS_TOLD: usize = 24;

/// A crash that oncefs does not survive as promised.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Setup and workload.
    pub workload: String,
    /// The state. None: the workload failed without a crash.
    pub state: Option<StateId>,
    /// Where the crash happened.
    pub point: Option<Point>,
    /// The fault.
    pub what: String,
    /// Distinct states that were judged before.
    pub after: usize,
}

/// Counts of the explored work.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Workloads.
    pub workloads: u64,
    /// States enumerated, equal ones counted again.
    pub enumerated: u64,
    /// The enumerated states within a recovery.
    pub nested: u64,
    /// States enumerated by crash point: those of workloads, and those within recoveries.
    pub points: BTreeMap<Point, [u64; 2]>,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.workloads += other.workloads;
        self.enumerated += other.enumerated;
        self.nested += other.nested;
        for (point, [first, nested]) in other.points {
            let sum = self.points.entry(point).or_default();
            *sum = [sum[0] + first, sum[1] + nested];
        }
    }
}

/// A state: the setup's name and the hash of its images.
type Key = (&'static str, u128);

/// An exploration under way.
#[derive(Default)]
pub struct Explorer {
    /// The result of recovering a state: a digest by setup and images.
    known: Mutex<HashMap<Key, u128>>,
    counts: Mutex<Counts>,
    failures: Mutex<Vec<Failure>>,
    is_over: AtomicBool,
}

impl Explorer {
    /// Explores workloads, each on its own base.
    pub fn explore(&self, work: &[(Arc<Base>, Workload)], threads: usize) {
        let next = AtomicUsize::new(0);
        let take = || work.get(next.fetch_add(1, Relaxed)).filter(|_| !self.is_over.load(Relaxed));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some((base, workload)) = take() {
                        self.explore_one(base, workload);
                    }
                });
            }
        });
    }

    /// Explores one workload.
    pub fn explore_one(&self, base: &Base, workload: &Workload) {
        let name = format!("{}/{}", base.setup.name, workload.name);
        match workload.run(base) {
            Err(what) => self.fail(Failure { workload: name, state: None, point: None, what, after: self.distinct() }),
            Ok(recording) => self.explore_recording(base.setup, name, &recording, workload.effort),
        }
    }

    /// Explores the recording of a workload.
    pub fn explore_recording(&self, setup: &'static Setup, name: String, recording: &Recording, effort: Effort) {
        let mut counts = Counts { workloads: 1, ..Counts::default() };
        let one = One { explorer: self, setup, name, nested_one_in: NESTED_ONE_IN };
        one.explore(recording, effort, None, &mut counts);
        self.counts.lock().add(counts);
    }

    /// Explores one state of a workload with its recovery, and returns the steps that led to it.
    pub fn replay(&self, base: &Base, workload: &Workload, state: StateId) -> Result<String, String> {
        let name = format!("{}/{}", base.setup.name, workload.name);
        let recording = workload.run(base)?;
        let one = One { explorer: self, setup: base.setup, name, nested_one_in: 1 };
        let mut counts = Counts { workloads: 1, ..Counts::default() };
        one.explore(&recording, workload.effort, Some(state), &mut counts);
        if counts.enumerated == 0 {
            return Err(format!("the workload has no state {state}"));
        }
        self.counts.lock().add(counts);
        Ok(told(&recording.steps[..state.prefix]))
    }

    fn fail(&self, failure: Failure) {
        let mut failures = self.failures.lock();
        failures.push(failure);
        if failures.len() >= FAILURES_MAX {
            self.is_over.store(true, Relaxed);
        }
    }

    /// Counts of the explored work.
    pub fn counts(&self) -> Counts {
        self.counts.lock().clone()
    }

    /// Distinct states that were recovered and judged.
    pub fn distinct(&self) -> usize {
        self.known.lock().len()
    }

    /// The failures.
    pub fn failures(&self) -> Vec<Failure> {
        self.failures.lock().clone()
    }
}

/// The exploration of one workload.
struct One<'a> {
    explorer: &'a Explorer,
    setup: &'static Setup,
    name: String,
    /// One recovery in this many is crashed again.
    nested_one_in: u128,
}

impl One<'_> {
    fn explore(&self, recording: &Recording, effort: Effort, only: Option<StateId>, counts: &mut Counts) {
        let digests: Vec<u128> = recording.snapshots.iter().map(Snapshot::digest).collect();
        let seed = seed_of(&self.name);
        let _ = for_each_state(&recording.base, &recording.steps, effort, seed, only, &mut |crash| {
            counts.enumerated += 1;
            counts.points.entry(crash.point).or_default()[0] += 1;
            if let Err(what) = self.judge(&crash, &digests, &recording.snapshots, counts) {
                self.fail(crash.id, crash.point, what);
                return ControlFlow::Break(());
            }
            if self.explorer.is_over.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }

    fn fail(&self, state: StateId, point: Point, what: String) {
        let workload = self.name.clone();
        self.explorer.fail(Failure {
            workload,
            state: Some(state),
            point: Some(point),
            what,
            after: self.explorer.distinct(),
        });
    }

    /// Recovers a state, unless an equal one was recovered before, and compares it with the allowed snapshots.
    fn judge(
        &self,
        crash: &Crash,
        digests: &[u128],
        snapshots: &[Snapshot],
        counts: &mut Counts,
    ) -> Result<(), String> {
        let hash = crash.images.hash();
        let key = (self.setup.name, hash);
        let known = self.explorer.known.lock().get(&key).copied();
        let digest = match known {
            Some(digest) => digest,
            None => {
                let is_nested = hash.is_multiple_of(self.nested_one_in);
                let recovered = judge::recover(self.setup, crash.images.clone(), is_nested)?;
                let digest = recovered.snapshot.digest();
                if is_nested {
                    let snapshots = [recovered.snapshot, recovered.afterwards];
                    self.crash_again(crash, &recovered.steps, &snapshots, counts)?;
                }
                self.explorer.known.lock().insert(key, digest);
                digest
            }
        };
        self.compare(digest, crash, digests, snapshots)
    }

    /// Compares a recovered state with the allowed snapshots.
    fn compare(&self, digest: u128, crash: &Crash, digests: &[u128], snapshots: &[Snapshot]) -> Result<(), String> {
        let Allowed { acknowledged, under_way, is_between } = crash.allowed;
        if [Some(acknowledged), under_way].into_iter().flatten().any(|number| digests[number as usize] == digest) {
            return Ok(());
        }
        let recovered = judge::recover(self.setup, crash.images.clone(), false)?.snapshot;
        let before = &snapshots[acknowledged as usize];
        let after = snapshots.get(acknowledged as usize + 1).unwrap_or(before);
        if is_between && recovered.differences_outside(before, after).is_empty() {
            return Ok(());
        }
        Err(not_allowed(&recovered, crash.allowed, snapshots))
    }

    /// Crashes within the recovery of a crash and within the work that followed it. A second recovery must reach the
    /// same state, or the commit of that work.
    fn crash_again(
        &self,
        first: &Crash,
        steps: &[Recorded],
        snapshots: &[Snapshot],
        counts: &mut Counts,
    ) -> Result<(), String> {
        let digests: Vec<u128> = snapshots.iter().map(Snapshot::digest).collect();
        let mut wrong = None;
        let seed = seed_of(&self.name) ^ first.id.prefix as u64;
        let _ = for_each_state(&first.images, steps, Effort::NESTED, seed, None, &mut |crash| {
            counts.enumerated += 1;
            counts.nested += 1;
            counts.points.entry(crash.point).or_default()[1] += 1;
            let key = (self.setup.name, crash.images.hash());
            let known = self.explorer.known.lock().get(&key).copied();
            let again = known.map_or_else(|| self.recover_again(key, &crash.images), Ok);
            let verdict = again.and_then(|digest| self.compare(digest, &crash, &digests, snapshots));
            match verdict {
                Ok(()) => ControlFlow::Continue(()),
                Err(what) => {
                    wrong = Some(format!(
                        "crashed again at {} ({}) after the recovery began: {what}",
                        crash.id, crash.point
                    ));
                    ControlFlow::Break(())
                }
            }
        });
        wrong.map_or(Ok(()), Err)
    }

    fn recover_again(&self, key: Key, images: &Images) -> Result<u128, String> {
        let digest = judge::recover(self.setup, images.clone(), false)?.snapshot.digest();
        self.explorer.known.lock().insert(key, digest);
        Ok(digest)
    }
}

fn not_allowed(recovered: &Snapshot, allowed: Allowed, snapshots: &[Snapshot]) -> String {
    let number = allowed.acknowledged as usize;
    let from_acknowledged = recovered.differences(&snapshots[number]).join("; ");
    let known = snapshots.iter().position(|snapshot| snapshot == recovered);
    let is = known.map_or("no snapshot of the model".to_owned(), |known| format!("the model's snapshot {known}"));
    let under_way = allowed.under_way.map_or(String::new(), |number| {
        let from = recovered.differences(&snapshots[number as usize]).join("; ");
        format!("; from {number}, whose commit was under way: {from}")
    });
    format!("it is {is}; it differs from the acknowledged {number}: {from_acknowledged}{under_way}")
}

/// The last steps before a crash, a line each.
fn told(steps: &[Recorded]) -> String {
    let from = steps.len().saturating_sub(STEPS_TOLD);
    let mut table = Table::of([Column::right(5), Column::left(44), Column::left(0)]);
    for (step, number) in steps.iter().zip(1..).skip(from) {
        let point = Point::after(step.doing, &step.effect);
        table.row(vec![number.to_string(), point.to_string(), step.effect.to_string()]);
    }
    table.plain()
}

/// A workload's own seed, from its name.
fn seed_of(name: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(name.as_bytes())
}
