//! The signals that wake the background threads, and the callers that wait for them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::commit::log::Journal;
use crate::sync::{AtomicBool, Condvar, LockRank, Mutex, as_another_thread};
use crate::{Error, MapId, Result};

/// Called once when what was published before is durable, or cannot become so.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// The committer of a volume without threads: called on the thread that published, after each publication at which the
/// group could be taken. It makes the commit that it gets, or leaves it. It runs under the locks of the publisher, so
/// it can do nothing else to the volume.
pub type Committer = Box<dyn Fn(&dyn Fn() -> Result<()>) + Send + Sync>;

#[derive(Default)]
struct Requests {
    barriers: Vec<Done>,
    commit: bool,
    checkpoint: bool,
    worker: bool,
    detached: VecDeque<MapId>,
    /// Whether the reclaimer has a map in hand.
    reclaiming: bool,
    stop: bool,
}

/// Requests to the committer, the checkpointer, the reclaimer and the worker.
pub struct Signals {
    requests: Mutex<Requests>,
    committer: Condvar,
    checkpointer: Condvar,
    reclaimer: Condvar,
    worker: Condvar,
    group_ended: Condvar,
    committer_sleeps: AtomicBool,
    driver: Option<Committer>,
}

/// What the committer was woken for.
pub struct CommitRequest {
    /// The callers that wait for it.
    pub barriers: Vec<Done>,
    /// A caller wants the commit now.
    pub now: bool,
    /// The volume is being closed.
    pub stop: bool,
}

impl Signals {
    /// Signals of a volume whose groups a driver commits; None: a thread does.
    pub fn new(driver: Option<Committer>) -> Self {
        Self {
            requests: Mutex::new(LockRank::Leaf, Requests::default()),
            committer: Condvar::default(),
            checkpointer: Condvar::default(),
            reclaimer: Condvar::default(),
            worker: Condvar::default(),
            group_ended: Condvar::default(),
            committer_sleeps: AtomicBool::new(false),
            driver,
        }
    }

    /// Something was published. A committer's thread that sleeps starts to watch the clock. A driver may `commit` at
    /// once, unless a change that belongs into one group is half published.
    pub fn published(&self, journal: &Journal, commit: &dyn Fn() -> Result<()>) {
        if let Some(driver) = &self.driver {
            if journal.is_gate_free() {
                // The driver stands for the committer's thread, which holds no lock of the publishing one.
                as_another_thread(|| driver(commit));
            }
        } else if self.committer_sleeps.swap(false, Ordering::AcqRel) {
            let _requests = self.requests.lock();
            self.committer.notify_one();
        }
    }

    /// Asks for a commit and to be told when it is done.
    pub fn barrier(&self, done: Done) {
        let mut requests = self.requests.lock();
        if requests.stop {
            drop(requests);
            return done(Err(Error::ReadOnly("it was closed".to_owned())));
        }
        requests.barriers.push(done);
        self.committer.notify_one();
    }

    /// Waits until a group ended, at most `timeout`.
    pub fn wait_for_group_end(&self, timeout: Duration) {
        let mut requests = self.requests.lock();
        requests.commit = true;
        self.committer.notify_one();
        self.group_ended.wait_for(&mut requests, timeout);
    }

    /// A group ended: its memory is free for the next one.
    pub fn group_ended(&self) {
        let _requests = self.requests.lock();
        self.group_ended.notify_all();
    }

    /// Waits for a request, at most `timeout`; `sleep`: nothing is published, so a publication wakes it too.
    pub fn next_commit(&self, timeout: Duration, sleep: bool) -> CommitRequest {
        let mut requests = self.requests.lock();
        self.committer_sleeps.store(sleep, Ordering::Release);
        if requests.barriers.is_empty() && !requests.commit && !requests.stop {
            self.committer.wait_for(&mut requests, timeout);
        }
        self.committer_sleeps.store(false, Ordering::Release);
        let barriers = std::mem::take(&mut requests.barriers);
        let now = std::mem::take(&mut requests.commit) || !barriers.is_empty();
        CommitRequest { barriers, now, stop: requests.stop }
    }

    /// Asks for a checkpoint.
    pub fn want_checkpoint(&self) {
        self.requests.lock().checkpoint = true;
        self.checkpointer.notify_one();
    }

    /// Waits for a request for a checkpoint. False: the volume is being closed.
    pub fn next_checkpoint(&self) -> bool {
        let mut requests = self.requests.lock();
        while !requests.checkpoint && !requests.stop {
            self.checkpointer.wait(&mut requests);
        }
        requests.checkpoint = false;
        !requests.stop
    }

    /// A map was detached: its blocks are to be freed.
    pub fn detached(&self, map: MapId) {
        self.requests.lock().detached.push_back(map);
        self.reclaimer.notify_one();
    }

    /// Waits for a detached map, at most `timeout`.
    pub fn next_detached(&self, timeout: Duration) -> Option<MapId> {
        let mut requests = self.requests.lock();
        if requests.detached.is_empty() && !requests.stop {
            self.reclaimer.wait_for(&mut requests, timeout);
        }
        let next = if requests.stop { None } else { requests.detached.pop_front() };
        requests.reclaiming = next.is_some();
        next
    }

    /// There is something for the out-of-line worker.
    pub fn wake_worker(&self) {
        self.requests.lock().worker = true;
        self.worker.notify_one();
    }

    /// Lets the worker sleep until it is woken, at most `time`.
    pub fn sleep_worker(&self, time: Duration) {
        let mut requests = self.requests.lock();
        if !requests.worker && !requests.stop {
            self.worker.wait_for(&mut requests, time);
        }
        requests.worker = false;
    }

    /// Whether deleted files wait to be freed, or one is being freed.
    pub fn is_reclaiming(&self) -> bool {
        let requests = self.requests.lock();
        requests.reclaiming || !requests.detached.is_empty()
    }

    /// Ends the background threads.
    pub fn stop(&self) {
        self.requests.lock().stop = true;
        self.committer.notify_all();
        self.checkpointer.notify_all();
        self.reclaimer.notify_all();
        self.worker.notify_all();
        self.group_ended.notify_all();
    }

    /// Whether the volume is being closed.
    pub fn is_stopped(&self) -> bool {
        self.requests.lock().stop
    }
}
