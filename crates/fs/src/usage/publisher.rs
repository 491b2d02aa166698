//! The thread that publishes reads noted in memory. It sleeps while there are none.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use oncefs_engine::sync::Mutex;

use crate::{Error, Result};

/// How long a noted read waits for more reads of the same files.
const WAIT: Duration = Duration::from_secs(30);

/// Publishes what is noted. None: the file system is gone.
pub(super) type Publish = Box<dyn Fn() -> Option<Result<()>> + Send>;

/// How soon the thread should publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// Not at all.
    Never = 0,
    /// After [`WAIT`].
    Soon = 1,
    /// At once.
    Now = 2,
}

/// Wakes the thread. Before `start` there is none, and `ask` has no effect.
#[derive(Default)]
pub(super) struct Publisher {
    /// Requests to the thread; None ends it.
    to_thread: OnceLock<Sender<Option<Due>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The most urgent request since publishing last began, as a number.
    asked: AtomicU8,
}

impl Publisher {
    /// Starts the thread. Called once, when the file system is opened.
    pub fn start(&self, publish: Publish) -> Result<()> {
        assert!(self.to_thread.get().is_none(), "the thread that publishes reads was started twice");
        let (to_thread, asked) = channel();
        let work = move || publish_when_due(&asked, &publish);
        let thread = thread::Builder::new().name("reads".to_owned()).spawn(work);
        *self.thread.lock() =
            Some(thread.map_err(|e| Error::Engine(oncefs_engine::Error::io("cannot start the thread 'reads'", e)))?);
        // Set once, as asserted above.
        let _ = self.to_thread.set(to_thread);
        Ok(())
    }

    /// Ends the thread after the publication under way.
    pub fn end(&self) {
        if let Some(to_thread) = self.to_thread.get() {
            // Fails only if the thread panicked, and the panic was reported then.
            let _ = to_thread.send(None);
        }
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }

    /// Asks the thread to publish. Costs one load if a request as urgent is pending.
    pub fn ask(&self, due: Due) {
        debug_assert!(due > Due::Never, "a request that is never due");
        let number = due as u8;
        if self.asked.load(Relaxed) < number
            && self.asked.fetch_max(number, Relaxed) < number
            && let Some(to_thread) = self.to_thread.get()
        {
            let _ = to_thread.send(Some(due));
        }
    }

    /// Publishing begins: reads noted from now on need a new request.
    pub fn begins(&self) {
        self.asked.store(Due::Never as u8, Relaxed);
    }
}

fn publish_when_due(asked: &Receiver<Option<Due>>, publish: &Publish) {
    while let Ok(Some(due)) = asked.recv() {
        if due < Due::Now {
            match asked.recv_timeout(WAIT) {
                Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Some(_)) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        match publish() {
            None => return,
            Some(Ok(())) => {}
            Some(Err(error)) => log::debug!("cannot publish how files were read: {error}"),
        }
    }
}
