//! The thread that keeps a volume's history: a point at the mount, one every hour, and one at the end. Between them it
//! gives freed memory back to the system, when no program makes requests. On a volume that takes no changes it does only
//! that.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use oncefs_engine::{History, Store};

use crate::process::memory::KeptMemory;
use crate::text::unix_seconds;

/// How often the thread looks after freed memory.
const LOOK: Duration = Duration::from_secs(60);
/// A point is taken at one look in this many, every hour.
const LOOKS_PER_POINT: u32 = 60;
/// Freed memory goes back after this long without a request: allocations wait for it.
const IDLE: Duration = Duration::from_secs(5);

/// The thread. Dropping this takes the last point and ends it.
pub struct Historian {
    /// Carries no messages: dropping it ends the thread.
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Historian {
    /// Starts the thread. `volume`: where the history is kept, if the volume takes changes.
    pub fn start(volume: Option<&Path>, store: Arc<Store>, memory_bytes_max: u64) -> std::io::Result<Self> {
        let (running, ended) = mpsc::channel();
        let mut history = volume.map(History::of);
        let work = move || {
            let (mut has_failed, mut kept) = (false, KeptMemory::new(memory_bytes_max));
            loop {
                note(&mut history, &store, &mut has_failed);
                for _ in 0..LOOKS_PER_POINT {
                    if let Err(RecvTimeoutError::Disconnected) = ended.recv_timeout(LOOK) {
                        return note(&mut history, &store, &mut has_failed);
                    }
                    if store.idle_time() >= IDLE
                        && let Some(bytes) = kept.give_back()
                    {
                        log::debug!("gave back what the C library kept of {bytes} freed bytes");
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("history".into()).spawn(work)?;
        Ok(Self { running: Some(running), thread: Some(thread) })
    }
}

impl Drop for Historian {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            log::error!("the thread that keeps the history panicked");
        }
    }
}

/// Adds a point, except on a volume that takes no changes.
fn note(history: &mut Option<History>, store: &Store, has_failed: &mut bool) {
    let Some(history) = history.as_mut().filter(|_| store.failure().is_none()) else { return };
    if let Err(e) = history.note(store, unix_seconds())
        && !std::mem::replace(has_failed, true)
    {
        log::warn!("the history lacks points from now on ({e}); nothing else depends on it");
    }
}
