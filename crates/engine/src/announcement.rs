//! What a process that waits for a volume in objects shares with what ends its wait, a signal.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::sync::{LockRank, Mutex};

/// What says in the cluster that this process waits for a volume, while it does, and what ends the wait. All clones are
/// the same.
#[derive(Clone)]
pub struct Announcement(Arc<Mutex<Waiting>>);

/// How far the wait is.
#[derive(Default)]
struct Waiting {
    announcing: Option<Announcing>,
    /// Disconnected once the present request for the volume has its answer, and what follows from that is done.
    asking: Option<Receiver<()>>,
    /// The process ends, so it takes no volume.
    is_ending: bool,
    /// It has the volume.
    has_taken: bool,
}

/// The thread that repeats an announcement.
struct Announcing {
    /// Dropped, it ends the thread.
    goes_on: Sender<()>,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
}

/// A request for the volume under way, until it is dropped. If it brings the volume, and the process may not keep that,
/// it is given back before.
pub(crate) struct Asking<'a> {
    announcement: &'a Announcement,
    _goes_on: Sender<()>,
}

impl Default for Announcement {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LockRank::Leaf, Waiting::default())))
    }
}

impl std::fmt::Debug for Announcement {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Announcement")
    }
}

impl Announcement {
    /// How long its end waits for a cluster that does not answer.
    const PATIENCE: Duration = Duration::from_secs(1);
    /// How long the end of the wait waits for the answer to a request for the volume. A process that is gone before it
    /// leaves a lock that others have to break.
    const PATIENCE_WITH_LOCK: Duration = Duration::from_secs(10);

    /// For the thread that announces: what tells it to end, and what it drops at its end.
    pub(crate) fn begin(&self) -> (Receiver<()>, Sender<()>) {
        let ((goes_on, ends), (ending, ended)) = (mpsc::channel(), mpsc::channel());
        self.0.lock().announcing = Some(Announcing { goes_on, ended });
        (ends, ending)
    }

    /// For the thread that asks for the volume, before each request. None: the process ends.
    pub(crate) fn ask(&self) -> Option<Asking<'_>> {
        let (goes_on, ended) = mpsc::channel();
        let mut waiting = self.0.lock();
        waiting.asking = Some(ended);
        (!waiting.is_ending).then_some(Asking { announcement: self, _goes_on: goes_on })
    }

    /// Takes back that this process waits, and waits for that a second at most: the cluster may not answer.
    pub(crate) fn withdraw(&self) {
        // Not in the lock: it waits for the cluster.
        let announcing = self.0.lock().announcing.take();
        let Some(Announcing { goes_on, ended }) = announcing else { return };
        drop(goes_on);
        if !is_over(&ended, Self::PATIENCE) {
            log::info!("the cluster does not answer: that this process waits runs out by itself");
        }
    }

    /// Ends the wait, because the process is to end: it takes no volume from here on. False: it has taken it before, and
    /// has to close it.
    pub fn end(&self) -> bool {
        let asking = {
            let mut waiting = self.0.lock();
            if waiting.has_taken {
                return false;
            }
            waiting.is_ending = true;
            waiting.asking.take()
        };
        self.withdraw();
        if asking.is_some_and(|asking| !is_over(&asking, Self::PATIENCE_WITH_LOCK)) {
            log::warn!("the cluster does not answer: a lock that it gives this process later has to be broken");
        }
        true
    }

    /// Whether the process ends.
    #[cfg(test)]
    pub(crate) fn is_ending(&self) -> bool {
        self.0.lock().is_ending
    }
}

fn is_over(ended: &Receiver<()>, patience: Duration) -> bool {
    ended.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
}

impl Asking<'_> {
    /// The request brought the volume. False: the process ends, so it goes back.
    pub(crate) fn keeps(&self) -> bool {
        let mut waiting = self.announcement.0.lock();
        waiting.has_taken = !waiting.is_ending;
        waiting.has_taken
    }
}
