//! Judges a crash state: runs the real recovery, the audit of fsck, and then work on the volume, to show that it can be
//! used. The recovered state becomes a digest, and the caller knows which digests are right.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use oncefs_engine::{BLOCK_BYTES, BackgroundStep, Store};
use oncefs_fs::{Caller, Error, FileSystem, Ino, WriteOrigin};

use crate::image::{DeviceImage, Images, Part};
use crate::live::{Setup, StepClock};
use crate::operation::Content;
use crate::point::Doing;
use crate::tape::{Allowed, Recorded, Tape};
use crate::visible_state::Snapshot;

/// Later than every time of a workload.
const AFTERWARDS: i64 = 1_000_000;
/// The file that is written afterwards; the second one, if the volume has the first from a recovery before.
const TAILS: [&str; 2] = ["written-after-the-crash", "written-after-the-second-crash"];
/// Blocks that the base volume already holds, and a partial block that it does not hold.
const TAIL_CONTENT: [Content; 2] = [Content::from(1, 2 * 4096), Content::from(1 << 40, 4096 + 100)];

/// A recovered volume.
pub struct Recovered {
    /// Its content.
    pub snapshot: Snapshot,
    /// Its content after the work that followed.
    pub afterwards: Snapshot,
    /// The recovery and that work, if they were recorded.
    pub steps: Vec<Recorded>,
}

/// Opens a volume after a crash, audits it, works on it and audits it again. `records`: keeps the effects on the
/// devices. Snapshot 0 of the record is the recovered state, 1 the state after the work. An error says what is wrong.
pub fn recover(setup: &Setup, images: Images, records: bool) -> Result<Recovered, String> {
    let attempt = catch_unwind(AssertUnwindSafe(|| attempt(setup, images, records)));
    attempt.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("it panicked: {}", said.unwrap_or("no message")))
    })
}

fn attempt(setup: &Setup, images: Images, records: bool) -> Result<Recovered, String> {
    let tape = Tape::new(images, records);
    let clock = Arc::new(StepClock::default());
    clock.set(AFTERWARDS);
    let (store, file_system) = setup.open(&tape, clock).map_err(|error| format!("it does not open: {error}"))?;
    audit(&tape, &store, &file_system)?;
    let snapshot = seen(&file_system)?;
    let tail = TAILS[usize::from(file_system.lookup(Ino::ROOT, TAILS[0].as_bytes()).is_ok())];
    let afterwards = work(&tape, &store, &file_system, tail)
        .map_err(|error| format!("work after the recovery failed: {error}"))
        .and_then(|()| seen(&file_system))?;
    audit(&tape, &store, &file_system).map_err(|what| format!("after work that followed the recovery: {what}"))?;
    let differences = afterwards.clone().without(tail, &snapshot).differences(&snapshot);
    if !differences.is_empty() {
        return Err(format!("work after the recovery changed other files: {}", differences.join("; ")));
    }
    tape.doing(Doing::Rank);
    let rank = || -> oncefs_fs::Result<()> {
        while store.run(BackgroundStep::Rank)? {}
        Ok(())
    };
    rank().map_err(|error| format!("ranking after the recovery failed: {error}"))?;
    audit(&tape, &store, &file_system).map_err(|what| format!("after ranking that followed the recovery: {what}"))?;
    Ok(Recovered { snapshot, afterwards, steps: tape.take() })
}

fn seen(file_system: &FileSystem) -> Result<Snapshot, String> {
    Snapshot::of_file_system(file_system).map_err(|error| format!("it cannot be read: {error}"))
}

/// Audits as fsck does. A fault about a block that the medium lost is allowed. Another check shows that its files can
/// be read.
fn audit(tape: &Tape, store: &Store, file_system: &FileSystem) -> Result<(), String> {
    let report = store.check(true, &mut |_, _| ()).map_err(|error| format!("the check of blocks failed: {error}"))?;
    let mut problems = report.problems;
    let images = tape.images();
    problems.retain(|problem| !is_of_rot(problem, images.device(Part::Data)));
    let names = file_system.check(&mut |problem| problems.push(problem));
    names.map_err(|error| format!("the check of names failed: {error}"))?;
    if problems.is_empty() { Ok(()) } else { Err(format!("the check found: {}", problems.join("; "))) }
}

/// Whether a problem is the changed content of a block that the medium lost.
fn is_of_rot(problem: &str, data: &DeviceImage) -> bool {
    let block = problem.strip_suffix(" [rule 5]").and_then(|words| words.strip_prefix("block "));
    let block = block.and_then(|rest| rest.split(' ').next()?.parse().ok());
    block.is_some_and(|block| data.is_rotten(block))
}

/// Cleans up what the crash left, writes a file, commits and checkpoints.
fn work(tape: &Tape, store: &Store, file_system: &FileSystem, tail: &str) -> oncefs_fs::Result<()> {
    tape.doing(Doing::FillHints);
    store.run(BackgroundStep::FillHints)?;
    tape.doing(Doing::Reclaim);
    file_system.reclaim_left_behind()?;
    while store.run(BackgroundStep::Reclaim)? {}
    tape.doing(Doing::Change);
    let root = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };
    let made = file_system.mknod(Ino::ROOT, tail.as_bytes(), libc::S_IFREG | 0o600, 0, &root)?;
    let mut at = 0;
    for content in TAIL_CONTENT {
        let bytes = content.bytes();
        let room = file_system.statfs().available * BLOCK_BYTES as u64;
        match file_system.write(made.ino, at, &bytes, WriteOrigin::PageCache) {
            // A full volume refuses it, which does not change its content.
            Err(Error::NoSpace) if room < bytes.len() as u64 => break,
            written => written?,
        };
        at += bytes.len() as u64;
    }
    tape.doing(Doing::Commit);
    tape.allow(Allowed::either(0, 1));
    store.commit()?;
    tape.allow(Allowed::only(1));
    tape.mark("acknowledged");
    tape.doing(Doing::Release);
    store.run(BackgroundStep::Release)?;
    tape.doing(Doing::Checkpoint);
    store.run(BackgroundStep::Checkpoint)?;
    tape.mark("acknowledged");
    Ok(())
}
