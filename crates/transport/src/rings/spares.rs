//! Counts the entries that may still be added to replace those with late replies. One count for all threads bounds
//! their memory. Also counts the entries that the kernel has of each queue.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Entries that may still be added, and those that wait for requests.
#[derive(Debug)]
pub(crate) struct Spares {
    left: AtomicUsize,
    /// By queue: the number of entries that wait for a request.
    waiting: Box<[AtomicUsize]>,
}

impl Spares {
    /// `count` entries to add, for `queues` queues.
    pub(crate) fn new(count: usize, queues: usize) -> Self {
        Self { left: AtomicUsize::new(count), waiting: (0..queues).map(|_| AtomicUsize::new(0)).collect() }
    }

    /// An entry of a queue waits for a request.
    pub(super) fn begin_to_wait(&self, queue: u16) {
        self.waiting[usize::from(queue)].fetch_add(1, Ordering::AcqRel);
    }

    /// An entry that waited has a request, or is gone.
    pub(super) fn end_to_wait(&self, queue: u16) {
        self.waiting[usize::from(queue)].fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether an entry of a queue waits for a request.
    pub(super) fn has_waiting(&self, queue: u16) -> bool {
        self.waiting[usize::from(queue)].load(Ordering::Acquire) > 0
    }

    /// Takes a spare for good: an added entry stays with its queue.
    pub(super) fn take(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_said() {
        let spares = Spares::new(2, 0);
        assert_eq!([spares.take(), spares.take(), spares.take()], [true, true, false]);
    }

    #[test]
    fn each_queue_counts_what_waits_in_it() {
        let spares = Spares::new(0, 2);
        spares.begin_to_wait(1);
        assert_eq!([spares.has_waiting(0), spares.has_waiting(1)], [false, true]);
        spares.end_to_wait(1);
        assert!(!spares.has_waiting(1));
    }
}
