//! The thread that publishes what was noted of reads. It sleeps while nothing is.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use crate::{Error, FileSystem, Result};

/// How long what was noted may wait for more of the same files.
const WAIT: Duration = Duration::from_secs(30);

/// How soon the thread is to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// Not at all.
    Never = 0,
    /// After [`WAIT`].
    Soon = 1,
    /// At once.
    Now = 2,
}

/// Wakes the thread, of which there is none unless it was started: then nothing is published before it is asked for.
#[derive(Default)]
pub(super) struct Publisher {
    /// To the thread: None ends it.
    to_thread: OnceLock<Sender<Option<Due>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The most urgent thing that was asked for since publishing last began, as a number.
    asked: AtomicU8,
}

impl Publisher {
    /// Starts the thread.
    pub fn start(&self, file_system: &Arc<FileSystem>) -> Result<()> {
        let (to_thread, asked) = channel();
        let file_system = Arc::downgrade(file_system);
        let work = move || publish_when_due(&asked, &file_system);
        let thread = thread::Builder::new().name("reads".to_owned()).spawn(work);
        *self.thread.lock() =
            Some(thread.map_err(|e| Error::Engine(oncefs_engine::Error::io("starting a thread", e)))?);
        // Called once, when the file system is opened.
        let _ = self.to_thread.set(to_thread);
        Ok(())
    }

    /// Ends the thread, when it has published what it is about to.
    pub fn end(&self) {
        if let Some(to_thread) = self.to_thread.get() {
            // It has ended only if it panicked, which was reported when it happened.
            let _ = to_thread.send(None);
        }
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }

    /// Asks the thread to publish. Costs nothing if something as urgent was asked for already.
    pub fn ask(&self, due: Due) {
        let number = due as u8;
        if self.asked.load(Relaxed) < number
            && self.asked.fetch_max(number, Relaxed) < number
            && let Some(to_thread) = self.to_thread.get()
        {
            let _ = to_thread.send(Some(due));
        }
    }

    /// Publishing begins: what is noted from here on has to be asked for again.
    pub fn begins(&self) {
        self.asked.store(Due::Never as u8, Relaxed);
    }
}

fn publish_when_due(asked: &Receiver<Option<Due>>, file_system: &Weak<FileSystem>) {
    while let Ok(Some(due)) = asked.recv() {
        if due < Due::Now {
            match asked.recv_timeout(WAIT) {
                Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Some(_)) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        let Some(file_system) = file_system.upgrade() else { return };
        if let Err(error) = file_system.publish_reads() {
            log::debug!("how files were read was not noted: {error}");
        }
    }
}
