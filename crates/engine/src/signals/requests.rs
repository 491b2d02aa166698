//! The signals that wake the background threads, and the callers that wait for them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::sync::{AtomicBool, Condvar, LockRank, Mutex, as_another_thread};
use crate::{Error, MapId, Result};

/// Called once, when earlier publications are durable or cannot become so.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// The committer of a volume without threads. It is called on the publishing thread, after each publication at which
/// the group could be taken, and either makes the given commit or not. It runs under the publisher's locks, so it can
/// do nothing else to the volume.
pub type Committer = Box<dyn Fn(&dyn Fn() -> Result<()>) + Send + Sync>;

#[derive(Default)]
struct Requests {
    barriers: Vec<Done>,
    commit: bool,
    /// Whether a caller is committing inline.
    is_caller_committing: bool,
    checkpoint: bool,
    worker: bool,
    detached: VecDeque<MapId>,
    /// Whether the reclaimer is freeing a map.
    reclaiming: bool,
    /// Whether threads commit and checkpoint.
    has_threads: bool,
    ended: Ended,
    stop: bool,
}

/// Events that ended since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Groups that were taken, which frees their memory for the next one.
    pub groups: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Commits and checkpoints that failed.
    pub failures: u64,
    /// Claims of log room given back while a thread waited for one.
    pub claims: u64,
}

/// What a caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The current group.
    Group,
    /// A checkpoint: a new one, or the running one.
    Checkpoint {
        /// Whether a new one is needed.
        asks: bool,
    },
}

/// Requests to the committer, the checkpointer, the reclaimer and the worker.
pub struct Signals {
    requests: Mutex<Requests>,
    committer: Condvar,
    checkpointer: Condvar,
    reclaimer: Condvar,
    worker: Condvar,
    ended: Condvar,
    committer_sleeps: AtomicBool,
    driver: Option<Committer>,
}

/// Why the committer was woken.
pub struct CommitRequest {
    /// The callers that wait for it.
    pub barriers: Vec<Done>,
    /// A caller wants the commit now.
    pub now: bool,
    /// The volume is being closed.
    pub stop: bool,
}

impl Signals {
    /// Signals of a volume whose groups a driver commits. None: a thread does.
    pub fn new(driver: Option<Committer>) -> Self {
        Self {
            requests: Mutex::new(LockRank::Leaf, Requests::default()),
            committer: Condvar::default(),
            checkpointer: Condvar::default(),
            reclaimer: Condvar::default(),
            worker: Condvar::default(),
            ended: Condvar::default(),
            committer_sleeps: AtomicBool::new(false),
            driver,
        }
    }

    /// Learns of a publication. A sleeping committer's thread starts to watch the clock. A driver may `commit` at once
    /// if it `may_commit`: unless a change that belongs into one group is half published.
    pub fn published(&self, may_commit: impl FnOnce() -> bool, commit: &dyn Fn() -> Result<()>) {
        if let Some(driver) = &self.driver {
            if may_commit() {
                // The driver acts as the committer's thread, which holds none of the publisher's locks.
                as_another_thread(|| driver(commit));
            }
        } else if self.committer_sleeps.swap(false, Ordering::AcqRel) {
            let _requests = self.requests.lock();
            self.committer.notify_one();
        }
    }

    /// Asks for a commit and for a call when it is done.
    pub fn barrier(&self, done: Done) {
        let mut requests = self.requests.lock();
        if requests.stop {
            drop(requests);
            return done(Err(Error::ReadOnly("it was closed".to_owned())));
        }
        requests.barriers.push(done);
        self.committer.notify_one();
    }

    /// Whether a caller that wants a commit makes it inline: if no other caller does, and no caller waits for the
    /// committer. A handover would cost two wake-ups. The caller reports the end by [`Signals::end_commit`].
    pub fn begin_commit(&self) -> bool {
        let mut requests = self.requests.lock();
        let is_free = requests.barriers.is_empty() && !requests.is_caller_committing;
        let is_begun = is_free && requests.has_threads && !requests.stop;
        requests.is_caller_committing |= is_begun;
        is_begun
    }

    /// Ends the caller's commit. The committer makes the next one, for callers that came meanwhile.
    pub fn end_commit(&self) {
        let mut requests = self.requests.lock();
        assert!(requests.is_caller_committing, "a commit ends that no caller has begun");
        requests.is_caller_committing = false;
    }

    /// Learns that threads commit and checkpoint from now on.
    pub fn threads_start(&self) {
        self.requests.lock().has_threads = true;
    }

    /// The events counted so far, for [`Signals::wait_for_end`].
    pub fn ended(&self) -> Ended {
        self.requests.lock().ended
    }

    /// Asks for a commit or a checkpoint, and waits until one ended after `seen` was counted. False: it failed, the
    /// volume is being closed, or there are no threads to wait for.
    pub fn wait_for_end(&self, awaited: Awaited, seen: Ended) -> bool {
        let mut requests = self.requests.lock();
        if requests.ended == seen {
            match awaited {
                Awaited::Group => requests.commit = true,
                Awaited::Checkpoint { asks } => requests.checkpoint |= asks,
            }
            self.committer.notify_one();
            self.checkpointer.notify_one();
        }
        while requests.ended == seen && requests.has_threads && !requests.stop {
            self.ended.wait(&mut requests);
        }
        requests.has_threads && !requests.stop && requests.ended.failures == seen.failures
    }

    /// Counts ended events, and makes their waiters check again.
    pub fn note_end(&self, ended: Ended) {
        let mut requests = self.requests.lock();
        let Ended { groups, checkpoints, failures, claims } = requests.ended;
        requests.ended = Ended {
            groups: groups + ended.groups,
            checkpoints: checkpoints + ended.checkpoints,
            failures: failures + ended.failures,
            claims: claims + ended.claims,
        };
        self.ended.notify_all();
    }

    /// Waits for a request, at most `timeout`. `sleep`: no group is open, so a publication ends the wait too.
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

    /// Whether a checkpoint is requested that has not begun.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn is_checkpoint_wanted(&self) -> bool {
        self.requests.lock().checkpoint
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

    /// Learns that a map was detached: its blocks have to be freed.
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

    /// Tells the out-of-line worker that it has work.
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
        self.ended.notify_all();
    }

    /// Whether the volume is being closed.
    pub fn is_stopped(&self) -> bool {
        self.requests.lock().stop
    }
}
