//! One drill: the workload with one fault, and what must hold during it and after it.

use std::sync::Arc;

use super::*;
use crate::volume::assembly::Volume;

/// The workload: every kind of change, every background step, several openings, with all parts in use.
pub(super) const WORKLOAD: [Step; 56] = {
    use Step::*;
    let fill_hints = BackgroundStep(crate::BackgroundStep::FillHints);
    [
        Write { map: 1, at: 0, key: 1, len: 64 * BLOCK },
        Write { map: 2, at: 0, key: 1, len: 40 * BLOCK },
        Write { map: 3, at: 5_000, key: 3, len: 9_000 },
        Commit,
        Write { map: 1, at: 20 * BLOCK, key: 4, len: 10 * BLOCK },
        Write { map: 1, at: 30 * BLOCK + 100, key: 5, len: 5_000 },
        Clone { from: (1, 0), to: (4, 3), blocks: 30 },
        Zero { map: 2, at: 6_000, len: 30_000, reserve: false },
        Zero { map: 2, at: 20 * BLOCK + 7, len: 10_000, reserve: true },
        Truncate { map: 1, size: 50 * BLOCK + 100 },
        Reserve { map: 5, at: 0, len: 20 * BLOCK },
        Write { map: 5, at: 2 * BLOCK, key: 6, len: 3 * BLOCK },
        Commit,
        Write { map: 3, at: 0, key: 7, len: 3 * BLOCK },
        Commit,
        BackgroundStep(crate::BackgroundStep::Checkpoint),
        ReadAll,
        Inline("off"),
        Write { map: 6, at: 0, key: 1, len: 36 * BLOCK },
        Write { map: 7, at: 0, key: 8, len: 300 * BLOCK },
        BackgroundStep(crate::BackgroundStep::MergeHints),
        BackgroundStep(crate::BackgroundStep::SaveSkipped),
        Commit,
        Write { map: 3, at: BLOCK, key: 9, len: 5 * BLOCK },
        Write { map: 3, at: 300 * BLOCK, key: 10, len: 100 },
        Commit,
        Reopen,
        fill_hints,
        ReadAll,
        Write { map: 8, at: 0, key: 8, len: 300 * BLOCK },
        BackgroundStep(crate::BackgroundStep::Revisit { blocks_max: 200 }),
        BackgroundStep(crate::BackgroundStep::MergeHints),
        BackgroundStep(crate::BackgroundStep::SweepHints),
        Commit,
        Detach { map: 7 },
        Detach { map: 2 },
        BackgroundStep(crate::BackgroundStep::Reclaim),
        Commit,
        BackgroundStep(crate::BackgroundStep::Release),
        BackgroundStep(crate::BackgroundStep::Punch),
        BackgroundStep(crate::BackgroundStep::Checkpoint),
        BackgroundStep(crate::BackgroundStep::Release),
        Write { map: 9, at: 0, key: 11, len: 60 * BLOCK },
        Grow,
        Write { map: 9, at: 60 * BLOCK, key: 12, len: 700 },
        Truncate { map: 9, size: 10 },
        BackgroundStep(crate::BackgroundStep::LeaveCleanly),
        Reopen,
        fill_hints,
        Clone { from: (1, 0), to: (1, 60), blocks: 20 },
        Detach { map: 8 },
        Commit,
        Reopen,
        BackgroundStep(crate::BackgroundStep::Reclaim),
        BackgroundStep(crate::BackgroundStep::LeaveCleanly),
        ReadAll,
    ]
};

/// The outcome of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// No effect was visible.
    GoesOn,
    /// A call answered with an error.
    Error,
    /// An opening answered with an error: there was no volume yet that could turn read-only.
    NotOpened,
    /// The volume is read-only until it is opened again.
    ReadOnly,
}

/// The run of a workload.
pub(super) struct Drill {
    devices: Devices,
    pub(super) faults: Arc<Faults>,
    volume: Volume,
    /// What is published.
    model: Model,
    /// The contents that an opening may find: the last commit, and groups whose commit failed.
    allowed: Vec<Model>,
    outcome: Outcome,
}

impl Drill {
    /// An empty volume whose operation with this number goes wrong.
    pub(super) fn new(fault: Option<(usize, Fault, Lasts)>) -> Self {
        let devices = Devices::new(DATA, settings());
        let faults = Arc::new(Faults::default());
        let volume = try_open(&devices, faulty_medium(&devices, &faults)).unwrap();
        // The test numbers its maps itself.
        volume.base.maps.skip_to(MapId(100));
        if let Some((at, fault, lasts)) = fault {
            faults.arm(faults.count() + at, fault, lasts);
        }
        Self { devices, faults, volume, model: Model::new(), allowed: vec![Model::new()], outcome: Outcome::GoesOn }
    }

    /// Runs the workload as far as the volume takes it.
    pub(super) fn work(&mut self) {
        for step in WORKLOAD {
            self.step(step);
            if self.outcome == Outcome::ReadOnly {
                return;
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Reopen => return self.reopen(),
            Step::ReadAll => return self.read_all(),
            _ => {}
        }
        let after = step.applied(self.model.clone());
        let was_hit = self.faults.hit().is_some();
        let done = perform(&self.volume, step, &after);
        let failure = self.volume.base.health.failure();
        match done {
            Ok(()) => {
                self.model = after;
                if step.is_barrier() {
                    self.allowed = vec![self.model.clone()];
                }
            }
            Err(error) => {
                assert!(self.faults.hit().is_some(), "{step:?}: {error}, and no fault was met");
                self.assert_right_kind(&error, step);
                self.outcome = self.outcome.max(Outcome::Error);
                if step.is_barrier() {
                    self.allowed.push(self.model.clone());
                }
                if failure.is_some() {
                    // Published or not: an opening decides, and both are right.
                    self.read_either(&after);
                }
            }
        }
        if failure.is_some() {
            self.outcome = Outcome::ReadOnly;
        } else if !was_hit && self.faults.hit().is_some() {
            self.read_all();
        }
    }

    /// The caller learns the real cause, and nothing else is blamed.
    fn assert_right_kind(&self, error: &Error, step: Step) {
        let is_right = match error {
            Error::Io { .. } | Error::NoSpace => true,
            Error::ReadOnly(_) => self.volume.base.health.failure().is_some(),
            _ => false,
        };
        assert!(is_right, "{step:?} answers {error:?}");
    }

    /// Everything that can be read is right.
    fn read_all(&mut self) {
        for (map, bytes) in &self.model {
            match self.volume.reader.read(MapId(*map), 0, bytes.len()) {
                Ok(read) => assert!(*read == bytes[..], "map {map} reads wrong"),
                Err(error) => {
                    self.assert_right_kind(&error, Step::ReadAll);
                    self.outcome = self.outcome.max(Outcome::Error);
                }
            }
        }
    }

    /// After a step that failed for good, each file is as before it or as after it.
    fn read_either(&self, after: &Model) {
        for (map, before) in &self.model {
            let after = after.get(map).unwrap_or(before);
            if let Ok(read) = self.volume.reader.read(MapId(*map), 0, before.len().min(after.len())) {
                let equals = |bytes: &[u8]| *read == bytes[..read.len()];
                assert!(equals(before) || equals(after), "map {map} reads wrong after a failure");
            }
        }
    }

    /// Opens the volume again. A fault may stop only the first attempt.
    fn reopen(&mut self) {
        let volume = try_open(&self.devices, faulty_medium(&self.devices, &self.faults)).or_else(|error| {
            assert!(self.faults.hit().is_some(), "opening: {error}, and no fault was met");
            assert!(matches!(error, Error::Io { .. } | Error::NoSpace), "opening answers {error:?}");
            self.outcome = self.outcome.max(Outcome::NotOpened);
            self.faults.mend();
            try_open(&self.devices, faulty_medium(&self.devices, &self.faults))
        });
        self.volume = volume.unwrap_or_else(|error| panic!("opening again: {error}"));
        let found = contents(&self.volume).or_else(|_| {
            self.faults.mend();
            contents(&self.volume)
        });
        self.model = found.unwrap_or_else(|error| panic!("reading after opening again: {error}"));
        assert!(self.allowed.contains(&self.model), "opening finds a state that never was committed");
        self.allowed = vec![self.model.clone()];
    }

    /// The fault is removed: the volume is whole as it is, and as openings find it.
    pub(super) fn finish(mut self) -> Outcome {
        if self.outcome == Outcome::ReadOnly {
            let refused = perform(&self.volume, Step::Write { map: 1, at: 0, key: 99, len: 1 }, &self.model);
            assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
            assert!(self.volume.commits.commit().is_err(), "no commit succeeds on a volume that failed");
        }
        self.faults.mend();
        if self.outcome != Outcome::ReadOnly {
            self.volume.commits.commit().unwrap_or_else(|error| panic!("a commit after the fault: {error}"));
            assert_eq!(contents(&self.volume).unwrap(), self.model, "the volume in use");
            assert_clean(&self.volume, "the volume in use");
            self.allowed = vec![self.model.clone()];
        }
        let cut = self.devices.after_power_cut_of_all();
        self.assert_whole(&self.devices, "opened again");
        self.assert_whole(&cut, "opened again after a power cut");
        self.outcome
    }

    fn assert_whole(&self, devices: &Devices, when: &str) {
        let volume = try_open(devices, devices.backend()).unwrap_or_else(|error| panic!("{when}: {error}"));
        let found = contents(&volume).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(self.allowed.contains(&found), "{when}: what was committed is not there");
        assert_clean(&volume, when);
        let step = Step::Write { map: 50, at: 0, key: 50, len: 40 * BLOCK };
        let after = step.applied(found);
        perform(&volume, step, &after).unwrap();
        volume.run(BackgroundStep::LeaveCleanly).unwrap();
        assert_eq!(contents(&volume).unwrap(), after, "{when}, and written to");
        assert_clean(&volume, when);
    }
}
