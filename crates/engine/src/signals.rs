//! What wakes the background threads, and who waits for them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::sync::{AtomicBool, Condvar, Mutex};
use crate::{Error, MapId, Result};

/// Called once when what was published before is durable, or cannot become so.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

#[derive(Default)]
struct Wishes {
    barriers: Vec<Done>,
    commit: bool,
    checkpoint: bool,
    worker: bool,
    detached: VecDeque<MapId>,
    /// Whether the reclaimer has a map in hand.
    reclaiming: bool,
    stop: bool,
}

/// Wishes to the committer, the checkpointer, the reclaimer and the worker.
#[derive(Default)]
pub struct Signals {
    wishes: Mutex<Wishes>,
    committer: Condvar,
    checkpointer: Condvar,
    reclaimer: Condvar,
    worker: Condvar,
    group_ended: Condvar,
    committer_sleeps: AtomicBool,
}

/// What the committer was woken for.
pub struct CommitWish {
    /// Who waits for it.
    pub barriers: Vec<Done>,
    /// Somebody wants it now, without waiting.
    pub now: bool,
    /// The volume is being closed.
    pub stop: bool,
}

impl Signals {
    /// Something was published: a sleeping committer starts to watch the clock.
    pub fn published(&self) {
        if self.committer_sleeps.swap(false, Ordering::AcqRel) {
            let _wishes = self.wishes.lock();
            self.committer.notify_one();
        }
    }

    /// Asks for a commit and to be told when it is done.
    pub fn barrier(&self, done: Done) {
        let mut wishes = self.wishes.lock();
        if wishes.stop {
            drop(wishes);
            return done(Err(Error::ReadOnly("it was closed".to_owned())));
        }
        wishes.barriers.push(done);
        self.committer.notify_one();
    }

    /// Waits until a group ended, at most `timeout`.
    pub fn wait_for_group_end(&self, timeout: Duration) {
        let mut wishes = self.wishes.lock();
        wishes.commit = true;
        self.committer.notify_one();
        self.group_ended.wait_for(&mut wishes, timeout);
    }

    /// A group ended: its memory is free for the next one.
    pub fn group_ended(&self) {
        let _wishes = self.wishes.lock();
        self.group_ended.notify_all();
    }

    /// Waits for a wish, at most `timeout`; `sleep`: nothing is published, so a publication wakes it too.
    pub fn next_commit(&self, timeout: Duration, sleep: bool) -> CommitWish {
        let mut wishes = self.wishes.lock();
        self.committer_sleeps.store(sleep, Ordering::Release);
        if wishes.barriers.is_empty() && !wishes.commit && !wishes.stop {
            self.committer.wait_for(&mut wishes, timeout);
        }
        self.committer_sleeps.store(false, Ordering::Release);
        let barriers = std::mem::take(&mut wishes.barriers);
        let now = std::mem::take(&mut wishes.commit) || !barriers.is_empty();
        CommitWish { barriers, now, stop: wishes.stop }
    }

    /// Asks for a checkpoint.
    pub fn want_checkpoint(&self) {
        self.wishes.lock().checkpoint = true;
        self.checkpointer.notify_one();
    }

    /// Waits for a wish for a checkpoint. False: the volume is being closed.
    pub fn next_checkpoint(&self) -> bool {
        let mut wishes = self.wishes.lock();
        while !wishes.checkpoint && !wishes.stop {
            self.checkpointer.wait(&mut wishes);
        }
        wishes.checkpoint = false;
        !wishes.stop
    }

    /// A map was detached: its blocks are to be freed.
    pub fn detached(&self, map: MapId) {
        self.wishes.lock().detached.push_back(map);
        self.reclaimer.notify_one();
    }

    /// Waits for a detached map, at most `timeout`.
    pub fn next_detached(&self, timeout: Duration) -> Option<MapId> {
        let mut wishes = self.wishes.lock();
        if wishes.detached.is_empty() && !wishes.stop {
            self.reclaimer.wait_for(&mut wishes, timeout);
        }
        let next = if wishes.stop { None } else { wishes.detached.pop_front() };
        wishes.reclaiming = next.is_some();
        next
    }

    /// There is something for the out-of-line worker.
    pub fn wake_worker(&self) {
        self.wishes.lock().worker = true;
        self.worker.notify_one();
    }

    /// Lets the worker sleep until it is woken, at most `time`.
    pub fn sleep_worker(&self, time: Duration) {
        let mut wishes = self.wishes.lock();
        if !wishes.worker && !wishes.stop {
            self.worker.wait_for(&mut wishes, time);
        }
        wishes.worker = false;
    }

    /// Whether deleted files wait to be freed, or one is being freed.
    pub fn is_reclaiming(&self) -> bool {
        let wishes = self.wishes.lock();
        wishes.reclaiming || !wishes.detached.is_empty()
    }

    /// Ends the background threads.
    pub fn stop(&self) {
        self.wishes.lock().stop = true;
        self.committer.notify_all();
        self.checkpointer.notify_all();
        self.reclaimer.notify_all();
        self.worker.notify_all();
        self.group_ended.notify_all();
    }

    /// Whether the volume is being closed.
    pub fn is_stopped(&self) -> bool {
        self.wishes.lock().stop
    }
}
