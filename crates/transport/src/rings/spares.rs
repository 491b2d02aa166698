//! Counts the entries that may still be added to replace those with late replies. One count for all threads bounds
//! their memory, and a share of each queue keeps the others from taking it all. Also counts, for each queue, the entries that are sure to come back to the kernel.
//!
//! The kernel gives a queued request only to an entry that comes back with a reply (Linux 6.14 to 6.18). A new entry
//! gets requests that arrive later, and not those that are queued already. So a queue goes on only if one of its entries
//! comes back whatever else happens. Such an entry is steady: it has a request for a moment, or waits for one. An entry
//! whose reply waits for other requests is not steady, and a new entry is not before its first reply.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Entries that may still be added, and those that come back.
#[derive(Debug)]
pub(crate) struct Spares {
    left: AtomicUsize,
    /// Most that one queue takes.
    share: usize,
    /// By queue: how many it has taken.
    taken: Box<[AtomicUsize]>,
    /// By queue: the number of steady entries.
    steady: Box<[AtomicUsize]>,
}

impl Spares {
    /// `count` entries to add, for `queues` queues, of which each takes `share` at most.
    pub(crate) fn new(count: usize, queues: usize, share: usize) -> Self {
        let zeros = || (0..queues).map(|_| AtomicUsize::new(0)).collect();
        Self { left: AtomicUsize::new(count), share, taken: zeros(), steady: zeros() }
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

    /// Takes a spare for good: an added entry stays with its queue.
    pub(super) fn take(&self, queue: u16) -> bool {
        let less = |left: usize| left.checked_sub(1);
        let more = |taken: usize| (taken < self.share).then_some(taken + 1);
        let taken = &self.taken[usize::from(queue)];
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
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
}
