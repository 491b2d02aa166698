//! The thread that lists record files as soon as RocksDB has merged them.
//!
//! A flush of the store copies and lists its own new files. Files that RocksDB merges afterwards have copies, but no list
//! would name them until the next flush, so the thread checks repeatedly until RocksDB is at rest. Then it sleeps until
//! the next flush. It also makes the copies that the host refused a merge.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::sync::{Condvar, LockRank, Mutex};

/// The longest time that a finished file waits for its place in the list.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const NAME: &str = "oncefs-copies";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    Look,
    End,
}

struct Signal {
    asked: Mutex<Asked>,
    changed: Condvar,
}

/// The thread. Dropping it waits for its end.
pub struct Follower {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Starts it with a first check. `look` brings the copies up to date and returns whether more will follow. If the
    /// thread cannot be started, the next flush copies.
    pub fn start(look: impl Fn() -> bool + Send + 'static) -> Self {
        let signal = Arc::new(Signal { asked: Mutex::new(LockRank::Leaf, Asked::Look), changed: Condvar::default() });
        let own = signal.clone();
        let spawned = thread::Builder::new().name(NAME.into()).spawn(move || {
            while own.wait() {
                while look() && own.rest() {}
            }
        });
        let thread = spawned.inspect_err(|e| log::warn!("record files are copied late: no thread for it: {e}")).ok();
        Self { signal, thread }
    }

    /// Learns that the store was flushed: new files may appear soon.
    pub fn wake(&self) {
        let mut asked = self.signal.asked.lock();
        if *asked == Asked::Nothing {
            *asked = Asked::Look;
            self.signal.changed.notify_one();
        }
    }
}

impl Signal {
    /// Waits for something to check. False: the thread must end.
    fn wait(&self) -> bool {
        let mut asked = self.asked.lock();
        while *asked == Asked::Nothing {
            self.changed.wait(&mut asked);
        }
        let goes_on = *asked == Asked::Look;
        if goes_on {
            *asked = Asked::Nothing;
        }
        goes_on
    }

    /// Waits between two checks. False: the thread must end.
    fn rest(&self) -> bool {
        let mut asked = self.asked.lock();
        if *asked != Asked::End {
            self.changed.wait_for(&mut asked, LOOK_EVERY);
        }
        *asked != Asked::End
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        *self.signal.asked.lock() = Asked::End;
        self.signal.changed.notify_one();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            log::error!("the thread that copies record files panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn it_looks_until_nothing_is_to_come_and_again_when_woken() {
        let (looks, (sender, seen)) = (AtomicU32::new(0), mpsc::channel());
        let follower = Follower::start(move || {
            let look = looks.fetch_add(1, SeqCst);
            sender.send(look).unwrap();
            look < 2
        });
        assert_eq!([0, 1, 2].map(|_| seen.recv().unwrap()), [0, 1, 2]);
        follower.wake();
        assert_eq!(seen.recv().unwrap(), 3);
        drop(follower);
        assert!(seen.recv().is_err(), "it ends when it is dropped");
    }
}
