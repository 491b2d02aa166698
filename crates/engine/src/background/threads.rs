//! The background threads: committer, checkpointer, reclaimer (which also takes the leaves of clones and
//! punches holes), out-of-line worker. Other
//! modules make the decisions. This file only says which thread runs when.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::background::committer::{COMMIT_AFTER_QUIET, IDLE_TICK, run_committer};
use crate::sync::{LockRank, Mutex};
use crate::volume::assembly::Volume;
use crate::{Error, Result};

/// Holes are punched after this long without a publication.
const PUNCH_AFTER_QUIET: Duration = Duration::from_millis(500);
// Holes are punched only after the release of their blocks was committed.
const _: () = assert!(COMMIT_AFTER_QUIET.as_millis() < PUNCH_AFTER_QUIET.as_millis());

/// The work of a thread until the volume is closed.
type Work = fn(&Volume);
/// Starts a thread of this name.
type Spawn<'a> = &'a dyn Fn(&str, &Arc<Volume>, Work) -> Result<JoinHandle<()>>;

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
    /// Starts them: all of them, or none on an error.
    pub fn start(volume: &Arc<Volume>) -> Result<Self> {
        Self::start_by(volume, &spawn)
    }

    /// If one cannot be started, those started before end: they would work on a volume that is not open.
    fn start_by(volume: &Arc<Volume>, spawn: Spawn<'_>) -> Result<Self> {
        let threads = Self { handles: Mutex::new(LockRank::Thread, Vec::new()) };
        volume.base.signals.threads_start();
        for (name, work) in WORK {
            match spawn(name, volume, work) {
                Ok(handle) => threads.handles.lock().push(handle),
                Err(error) => {
                    volume.base.signals.stop();
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

fn spawn(name: &str, volume: &Arc<Volume>, work: Work) -> Result<JoinHandle<()>> {
    let volume = volume.clone();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || work(&volume))
        .map_err(|e| Error::io("starting a background thread", e))
}

fn run_checkpointer(volume: &Volume) {
    while volume.base.signals.next_checkpoint() {
        if let Err(error) = volume.commits.checkpoint() {
            volume.base.health.tell("a checkpoint failed", &error);
        }
    }
}

fn run_reclaimer(volume: &Volume) {
    let mut takes_leaves = false;
    while !volume.base.signals.is_stopped() {
        let patience = if takes_leaves { Duration::ZERO } else { IDLE_TICK };
        if let Some(map) = volume.base.signals.next_detached(patience) {
            if let Err(error) = volume.reclaimer.reclaim(map) {
                volume.base.health.tell("the blocks of a deleted file are not freed before the next mount", &error);
            }
            continue;
        }
        takes_leaves = takes_some_leaves(volume);
        if takes_leaves {
            continue;
        }
        let is_quiet = || volume.groups.group_times().1.is_none_or(|last| last.elapsed() >= PUNCH_AFTER_QUIET);
        while is_quiet() && !volume.base.signals.is_stopped() && volume.free_blocks.punch_some() {}
    }
}

/// Takes leaves of a pending clone, unless another clone is about to begin. Returns whether there may be more.
fn takes_some_leaves(volume: &Volume) -> bool {
    let clones = &volume.lazy_clones;
    let taken = if clones.makes_way() { Ok(false) } else { clones.step() };
    taken.unwrap_or_else(|error| {
        volume.base.health.tell("leaves of a clone are not taken before the next mount", &error);
        false
    })
}

fn run_worker(volume: &Volume) {
    if let Err(error) = volume.hint_levels.fill_hints() {
        log::error!("the block table was not read to its end, some duplicates will be missed: {error}");
    }
    while !volume.base.signals.is_stopped() {
        let sleep = volume.work_loop.work();
        if !sleep.is_zero() {
            volume.base.signals.sleep_worker(sleep);
        }
    }
}

// Under `schedules`, every lock needs a scheduler, which these tests lack.
#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use std::io;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::sync::AtomicUsize;
    use crate::tests::fixture::{Devices, two_levels, unique};
    use crate::{Blocks, MapId};

    #[test]
    fn if_a_thread_cannot_be_started_none_is_left_and_the_volume_opens_again() {
        let devices = Devices::new(Blocks(700), two_levels());
        let content = unique(3, 1);
        let volume = devices.open();
        volume.write(MapId(1), 0, &content, |_, _| ()).unwrap();
        volume.commits.commit().unwrap();
        drop(volume);
        for fails in 0..WORK.len() {
            let volume = Arc::new(devices.open());
            let begun = AtomicUsize::new(0);
            let started = Threads::start_by(&volume, &|name, volume, work| match begun.fetch_add(1, Relaxed) {
                number if number == fails => Err(Error::io("starting", io::Error::from_raw_os_error(libc::EAGAIN))),
                _ => spawn(name, volume, work),
            });
            assert!(started.is_err(), "thread {fails} was not started");
            assert_eq!(Arc::strong_count(&volume), 1, "a thread goes on after thread {fails} was not started");
            drop(volume);
            let read = devices.open().reader.read(MapId(1), 0, content.len()).unwrap();
            assert!(read.iter().eq(&content));
        }
        let volume = Arc::new(devices.open());
        let threads = Threads::start(&volume).unwrap();
        volume.base.signals.stop();
        threads.join();
    }
}
