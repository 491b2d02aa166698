//! The background threads: committer, checkpointer, reclaimer (which also punches holes), out-of-line worker.
//! Decisions are made elsewhere; this file only says which thread runs when.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::background::signals::CommitRequest;
use crate::core::Core;
use crate::sync::{LockRank, Mutex};
use crate::{Error, Result};

/// A group is committed at the latest so long after its first change.
const COMMIT_AFTER: Duration = Duration::from_secs(5);
/// And when nothing was published for so long: sync(2) never reaches a FUSE daemon.
const COMMIT_AFTER_QUIET: Duration = Duration::from_millis(100);
/// How often the committer looks at the clock while a group is open.
const TICK: Duration = Duration::from_millis(25);
/// How often an idle volume looks after the host's free space.
const IDLE_TICK: Duration = Duration::from_secs(1);
/// Holes are punched when nothing was published for so long.
const PUNCH_AFTER_QUIET: Duration = Duration::from_millis(500);
// A quiet volume is committed before the longest wait ends, the clock is looked at often enough to see that, and holes
// are punched only after what freed their blocks was committed.
const _: () = assert!(TICK.as_millis() <= COMMIT_AFTER_QUIET.as_millis());
const _: () = assert!(COMMIT_AFTER_QUIET.as_millis() < COMMIT_AFTER.as_millis());
const _: () = assert!(COMMIT_AFTER_QUIET.as_millis() < PUNCH_AFTER_QUIET.as_millis());

/// What a thread does until the volume is closed.
type Work = fn(&Core);
/// Starts a thread of this name.
type Spawn<'a> = &'a dyn Fn(&str, &Arc<Core>, Work) -> Result<JoinHandle<()>>;

const WORK: [(&str, Work); 4] = [
    ("oncefs-commit", run_committer),
    ("oncefs-checkpt", run_checkpointer),
    ("oncefs-reclaim", run_reclaimer),
    ("oncefs-worker", run_worker),
];

/// The threads of an open volume.
pub struct Threads {
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    /// Starts them: all, or on an error none.
    pub fn start(core: &Arc<Core>) -> Result<Self> {
        Self::start_by(core, &spawn)
    }

    /// If one cannot be started, those before it end: they would go on with a volume that is not open.
    fn start_by(core: &Arc<Core>, spawn: Spawn<'_>) -> Result<Self> {
        let threads = Self { handles: Mutex::new(LockRank::Thread, Vec::new()) };
        for (name, work) in WORK {
            match spawn(name, core, work) {
                Ok(handle) => threads.handles.lock().push(handle),
                Err(error) => {
                    core.signals.stop();
                    threads.join();
                    return Err(error);
                }
            }
        }
        Ok(threads)
    }

    /// Waits until all have ended.
    pub fn join(&self) {
        for handle in std::mem::take(&mut *self.handles.lock()) {
            if handle.join().is_err() {
                log::error!("a background thread panicked");
            }
        }
    }
}

fn spawn(name: &str, core: &Arc<Core>, work: Work) -> Result<JoinHandle<()>> {
    let core = core.clone();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || work(&core))
        .map_err(|e| Error::io("starting a background thread", e))
}

fn run_committer(core: &Core) {
    let mut looked_at_host = Instant::now();
    loop {
        let (began, last) = core.group_times();
        let is_idle = began.is_none();
        let request = core.signals.next_commit(if is_idle { IDLE_TICK } else { TICK }, is_idle);
        let is_due = began.is_some_and(|began| began.elapsed() >= COMMIT_AFTER)
            || last.is_some_and(|last| last.elapsed() >= COMMIT_AFTER_QUIET);
        if request.now || is_due {
            answer(core, request.barriers);
        } else {
            core.release_waiting();
        }
        if request.stop {
            let CommitRequest { barriers, .. } = core.signals.next_commit(Duration::ZERO, false);
            return answer(core, barriers);
        }
        if looked_at_host.elapsed() >= IDLE_TICK {
            looked_at_host = Instant::now();
            core.space.look_up_host();
        }
    }
}

/// Commits, and tells everybody who waits for it.
pub fn answer(core: &Core, barriers: Vec<crate::background::signals::Done>) {
    let result = core.commit();
    core.stats.counters.barriers.fetch_add(barriers.len() as u64, Relaxed);
    if let Err(error) = &result
        && barriers.is_empty()
    {
        log::debug!("a commit without a waiting caller failed: {error}");
    }
    for done in barriers {
        done(match &result {
            Ok(()) => Ok(()),
            Err(error) => Err(Error::io(error.to_string(), io::Error::from_raw_os_error(libc::EIO))),
        });
    }
}

fn run_checkpointer(core: &Core) {
    while core.signals.next_checkpoint() {
        if let Err(error) = core.checkpoint() {
            core.health.tell("a checkpoint failed", &error);
        }
    }
}

fn run_reclaimer(core: &Core) {
    while !core.signals.is_stopped() {
        if let Some(map) = core.signals.next_detached(IDLE_TICK) {
            if let Err(error) = core.reclaim(map) {
                core.health.tell("the blocks of a deleted file are not freed before the next mount", &error);
            }
            continue;
        }
        let is_quiet = || core.group_times().1.is_none_or(|last| last.elapsed() >= PUNCH_AFTER_QUIET);
        while is_quiet() && !core.signals.is_stopped() && core.punch_some() {}
    }
}

fn run_worker(core: &Core) {
    if let Err(error) = core.fill_hints() {
        log::error!("the block table was not read to its end, some duplicates will be missed: {error}");
    }
    while !core.signals.is_stopped() {
        let sleep = core.work();
        if !sleep.is_zero() {
            core.signals.sleep_worker(sleep);
        }
    }
}

// Under `schedules` every lock asks a scheduler, and here is none.
#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;
    use crate::sync::AtomicUsize;
    use crate::tests::fixture::{Devices, two_levels, unique};
    use crate::{Blocks, MapId};

    #[test]
    fn if_a_thread_cannot_be_started_none_is_left_and_the_volume_opens_again() {
        let devices = Devices::new(Blocks(700), two_levels());
        let content = unique(3, 1);
        let core = devices.open();
        core.write(MapId(1), 0, &content, |_, _| ()).unwrap();
        core.commit().unwrap();
        drop(core);
        for fails in 0..WORK.len() {
            let core = Arc::new(devices.open());
            let begun = AtomicUsize::new(0);
            let started = Threads::start_by(&core, &|name, core, work| match begun.fetch_add(1, Relaxed) {
                number if number == fails => Err(Error::io("starting", io::Error::from_raw_os_error(libc::EAGAIN))),
                _ => spawn(name, core, work),
            });
            assert!(started.is_err(), "thread {fails} was not started");
            assert_eq!(Arc::strong_count(&core), 1, "a thread goes on after thread {fails} was not started");
            drop(core);
            let read = devices.open().read(MapId(1), 0, content.len()).unwrap();
            assert!(read.iter().eq(&content));
        }
        let core = Arc::new(devices.open());
        let threads = Threads::start(&core).unwrap();
        core.signals.stop();
        threads.join();
    }
}
