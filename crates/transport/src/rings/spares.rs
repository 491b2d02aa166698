//! Counts the entries that may still be added to replace those with late replies. One count for all threads bounds
//! their memory, and a share of each queue keeps the others from taking it all. Also counts, for each queue, the
//! entries that are sure to come back to the kernel.
//!
//! The kernel gives a queued request only to an entry that comes back with a reply (Linux 6.14 to 6.18). A new entry
//! gets requests that arrive later, and not those that are queued already. So a queue goes on only if one of its
//! entries comes back whatever else happens. Such an entry is steady: it has a request for a moment, or waits for one.
//! An entry whose reply waits for other requests is not steady, and a new entry is not before its first reply. Its thread
//! has the kernel send it a request at once. While that request comes, the entry is fresh.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// How long a request waits for a fresh entry to become steady, at most: as long as a busy machine may take to run the
/// entry's thread, ...
const FRESH_LOOKS: usize = 1000;
/// ... and how often it looks.
const FRESH_LOOK: Duration = Duration::from_millis(1);
/// Numbers of requests that were asked for begin here. Those of other requests count from 0.
const ASKED_FIRST: u64 = 1 << 63;

/// Entries that may still be added, and those that come back.
#[derive(Debug)]
pub(crate) struct Spares {
    left: AtomicUsize,
    /// Most that one queue takes.
    share: usize,
    /// By queue: the number of threads that serve it.
    threads: Box<[AtomicUsize]>,
    /// By queue: how many it has taken.
    taken: Box<[AtomicUsize]>,
    /// By queue: the number of steady entries.
    steady: Box<[AtomicUsize]>,
    /// By queue: the number of fresh entries.
    fresh: Box<[AtomicUsize]>,
    /// By queue: the number of late replies that have come and that no thread has committed yet.
    returning: Box<[AtomicUsize]>,
    /// How many requests were asked for.
    asked: AtomicU64,
}

impl Spares {
    /// `count` entries to add, for `queues` queues, of which each takes `share` at most.
    pub(crate) fn new(count: usize, queues: usize, share: usize) -> Self {
        let zeros = || (0..queues).map(|_| AtomicUsize::new(0)).collect();
        let (left, asked) = (AtomicUsize::new(count), AtomicU64::new(0));
        Self {
            left,
            share,
            threads: zeros(),
            taken: zeros(),
            steady: zeros(),
            fresh: zeros(),
            returning: zeros(),
            asked,
        }
    }

    /// A number for a request that is asked for. The lowest bit stands for interrupts.
    pub(super) fn next_asked(&self) -> u64 {
        ASKED_FIRST | (self.asked.fetch_add(1, Ordering::Relaxed) << 1 & !ASKED_FIRST)
    }

    /// A thread begins to serve a queue.
    pub(super) fn add_thread(&self, queue: u16) {
        self.threads[usize::from(queue)].fetch_add(1, Ordering::AcqRel);
    }

    /// A queue gets a new entry.
    fn add_fresh(&self, queue: u16) {
        self.fresh[usize::from(queue)].fetch_add(1, Ordering::AcqRel);
    }

    /// A fresh entry of a queue is steady, or gone.
    pub(super) fn lose_fresh(&self, queue: u16) {
        self.fresh[usize::from(queue)].fetch_sub(1, Ordering::AcqRel);
    }

    /// As [`Spares::let_go`]. If the entry is the last steady one, waits for a moment while another is coming. `own`: how
    /// many fresh entries of the queue the calling thread has. They stay fresh until it has served its present request.
    /// `has_own`: whether that thread has a late reply for the queue, which it commits right after the request.
    pub(super) fn let_go_soon(&self, queue: u16, own: usize, has_own: impl Fn() -> bool) -> bool {
        for _ in 0..FRESH_LOOKS {
            if self.let_go(queue) {
                return true;
            }
            if has_own() {
                self.lose_steady(queue);
                return true;
            }
            if !self.is_any_coming(queue, own) {
                break;
            }
            thread::sleep(FRESH_LOOK);
        }
        self.let_go(queue)
    }

    /// An entry of a queue is steady from now on.
    pub(super) fn add_steady(&self, queue: u16) {
        self.steady[usize::from(queue)].fetch_add(1, Ordering::AcqRel);
    }

    /// A steady entry is gone for good.
    pub(super) fn lose_steady(&self, queue: u16) {
        self.steady[usize::from(queue)].fetch_sub(1, Ordering::AcqRel);
    }

    /// A steady entry of a queue asks to be late. False: it is the last.
    pub(super) fn let_go(&self, queue: u16) -> bool {
        let less = |steady: usize| (steady > 1).then(|| steady - 1);
        self.steady[usize::from(queue)].fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// Whether a queue has a steady entry.
    pub(super) fn has_steady(&self, queue: u16) -> bool {
        self.steady[usize::from(queue)].load(Ordering::Acquire) > 0
    }

    /// Takes a spare for good: an added entry stays with its queue. It counts as fresh from now on, so that there is no
    /// moment at which a queue seems to get none.
    pub(super) fn take(&self, queue: u16) -> bool {
        let less = |left: usize| left.checked_sub(1);
        let more = |taken: usize| (taken < self.share).then_some(taken + 1);
        let taken = &self.taken[usize::from(queue)];
        self.add_fresh(queue);
        let is_taken = taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
            && self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok();
        if !is_taken {
            self.lose_fresh(queue);
        }
        is_taken
    }

    /// Whether a queue of whose entries only one is steady gets another: a late reply is about to be committed, an entry
    /// of another thread is fresh, or another thread adds one. Each does once its last entry is late, as long as there
    /// are spares.
    fn is_any_coming(&self, queue: u16, own: usize) -> bool {
        let of = |counts: &[AtomicUsize]| counts[usize::from(queue)].load(Ordering::Acquire);
        let is_any_added =
            of(&self.threads) > 1 && of(&self.taken) < self.share && self.left.load(Ordering::Acquire) > 0;
        of(&self.returning) > 0 || of(&self.fresh) > own || is_any_added
    }

    /// A late reply has come to an entry of a queue.
    pub(super) fn add_returning(&self, queue: u16) {
        self.returning[usize::from(queue)].fetch_add(1, Ordering::AcqRel);
    }

    /// It is committed.
    pub(super) fn lose_returning(&self, queue: u16) {
        self.returning[usize::from(queue)].fetch_sub(1, Ordering::AcqRel);
    }

    /// The spare that a queue took last is not to be had: it takes no more.
    pub(super) fn end(&self, queue: u16) {
        self.taken[usize::from(queue)].store(self.share, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_said_and_no_queue_takes_those_of_another() {
        let spares = Spares::new(3, 3, 2);
        assert_eq!([0, 0, 0].map(|queue| spares.take(queue)), [true, true, false]);
        assert_eq!([1, 2].map(|queue| spares.take(queue)), [true, false], "there were three");
    }

    #[test]
    fn each_queue_keeps_its_last_steady_entry() {
        let spares = Spares::new(0, 2, 0);
        assert!(!spares.has_steady(1) && !spares.let_go(1));
        spares.add_steady(1);
        spares.add_steady(1);
        assert_eq!([spares.let_go(1), spares.let_go(1)], [true, false]);
        assert_eq!([spares.has_steady(0), spares.has_steady(1)], [false, true]);
        spares.lose_steady(1);
        assert!(!spares.has_steady(1));
    }

    #[test]
    fn the_last_steady_entry_waits_for_a_fresh_one() {
        let spares = Spares::new(0, 1, 0);
        spares.add_steady(0);
        assert!(!spares.let_go_soon(0, 0, || false), "there is no other entry");
        spares.add_fresh(0);
        thread::scope(|scope| {
            let waits = scope.spawn(|| spares.let_go_soon(0, 0, || false));
            spares.add_steady(0);
            spares.lose_fresh(0);
            assert!(waits.join().unwrap());
        });
        assert!(!spares.let_go_soon(0, 0, || false));
    }

    #[test]
    fn an_entry_is_coming_from_before_a_thread_takes_a_spare_until_the_spare_has_replied() {
        let spares = Spares::new(2, 2, 1);
        spares.add_thread(0);
        assert!(!spares.is_any_coming(0, 0), "there is no other thread");
        spares.add_thread(0);
        assert!(spares.is_any_coming(0, 0), "a thread may be about to take one");
        assert!(spares.take(0) && spares.is_any_coming(0, 0), "it is fresh");
        assert!(!spares.is_any_coming(0, 1), "the caller's own does not come while it waits");
        spares.lose_fresh(0);
        assert!(!spares.is_any_coming(0, 0), "there are no more");
        assert!(!spares.take(0) && !spares.is_any_coming(0, 0));
        spares.add_thread(1);
        spares.add_thread(1);
        spares.end(1);
        assert!(!spares.take(1) && !spares.is_any_coming(1, 0), "a spare was refused");
    }

    #[test]
    fn a_thread_that_has_a_late_reply_to_commit_lets_the_last_steady_entry_go() {
        let spares = Spares::new(0, 1, 0);
        spares.add_steady(0);
        assert!(spares.let_go_soon(0, 0, || true) && !spares.has_steady(0), "the commit makes one steady");
    }

    #[test]
    fn an_entry_is_coming_while_a_late_reply_waits_for_its_thread() {
        let spares = Spares::new(0, 1, 0);
        spares.add_returning(0);
        assert!(spares.is_any_coming(0, 0));
        spares.lose_returning(0);
        assert!(!spares.is_any_coming(0, 0));
    }

    #[test]
    fn a_thread_does_not_wait_for_a_fresh_entry_of_its_own() {
        let spares = Spares::new(0, 1, 0);
        spares.add_steady(0);
        spares.add_fresh(0);
        spares.add_fresh(0);
        thread::scope(|scope| {
            // It would wait for the entry of the other thread, and not for its own.
            let waits = scope.spawn(|| spares.let_go_soon(0, 1, || false));
            spares.add_steady(0);
            spares.lose_fresh(0);
            assert!(waits.join().unwrap());
        });
        assert!(!spares.let_go_soon(0, 1, || false), "only its own is fresh");
    }

    #[test]
    fn numbers_of_requests_that_were_asked_for_are_even_and_high() {
        let spares = Spares::new(0, 1, 0);
        assert_eq!([spares.next_asked(), spares.next_asked()], [1 << 63, (1 << 63) + 2]);
    }
}
