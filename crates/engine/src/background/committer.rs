//! The committer: decides when a group is committed, and answers all callers that wait for it, fsync above all. A
//! single caller commits inline: handing over a commit and its answer costs two wake-ups, more than half of the time of
//! a small commit.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::Result;
use crate::signals::requests::{CommitRequest, Done};
use crate::volume::assembly::Volume;

/// A group is committed at the latest this long after its first change.
const COMMIT_AFTER: Duration = Duration::from_secs(5);
/// It is also committed after this long without a publication: sync(2) never reaches a FUSE daemon.
pub const COMMIT_AFTER_QUIET: Duration = Duration::from_millis(100);
/// How often the committer checks the clock while a group is open.
const TICK: Duration = Duration::from_millis(25);
/// How often a volume checks the host's free space and its own memory.
pub const IDLE_TICK: Duration = Duration::from_secs(1);
// A quiet volume is committed before the longest wait ends, and the clock is checked often enough for that.
const _: () = assert!(TICK.as_millis() <= COMMIT_AFTER_QUIET.as_millis());
const _: () = assert!(COMMIT_AFTER_QUIET.as_millis() < COMMIT_AFTER.as_millis());

/// The work of the committer's thread until the volume is closed.
pub fn run_committer(volume: &Volume) {
    let mut looked_around = Instant::now();
    loop {
        let (began, last) = volume.groups.group_times();
        let is_idle = began.is_none();
        let request = volume.base.signals.next_commit(if is_idle { IDLE_TICK } else { TICK }, is_idle);
        let is_due = began.is_some_and(|began| began.elapsed() >= COMMIT_AFTER)
            || last.is_some_and(|last| last.elapsed() >= COMMIT_AFTER_QUIET);
        if request.now || is_due {
            answer(volume, request.barriers);
        } else {
            volume.groups.release_waiting();
        }
        if request.stop {
            let CommitRequest { barriers, .. } = volume.base.signals.next_commit(Duration::ZERO, false);
            return answer(volume, barriers);
        }
        if looked_around.elapsed() >= IDLE_TICK {
            looked_around = Instant::now();
            volume.base.space.look_up_host();
            volume.base.space.ballast().look();
            volume.lend_memory();
        }
    }
}

/// See [`crate::Store::barrier`]. The first waiter commits inline. Waiters that come meanwhile are answered together, by
/// the committer.
pub fn barrier(volume: &Volume, done: Done) {
    if !volume.base.signals.begin_commit() {
        return volume.base.signals.barrier(done);
    }
    let result = volume.commits.commit();
    volume.base.signals.end_commit();
    tell(volume, &result, vec![done]);
}

/// Commits, and notifies all waiters.
pub fn answer(volume: &Volume, barriers: Vec<Done>) {
    let result = volume.commits.commit();
    if let Err(error) = &result
        && barriers.is_empty()
    {
        log::debug!("a commit without a waiting caller failed: {error}");
    }
    tell(volume, &result, barriers);
}

/// Notifies callers that wait for a commit of its result.
fn tell(volume: &Volume, result: &Result<()>, barriers: Vec<Done>) {
    volume.base.stats.counters.barriers.fetch_add(barriers.len() as u64, Relaxed);
    for done in barriers {
        done(match result {
            Ok(()) => Ok(()),
            Err(error) => Err(error.repeated()),
        });
    }
}
