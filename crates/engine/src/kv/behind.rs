//! Whether the list of copies lacks something that was flushed. Two threads bring it up to date, so each says which state it
//! has brought up to date: one that began before the last flush says nothing of it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// Odd: the list is behind. It only grows.
pub(super) struct Behind(AtomicU64);

/// A state in which the list was behind, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen(u64);

impl Behind {
    pub(super) fn new(is_behind: bool) -> Self {
        Self(AtomicU64::new(u64::from(is_behind)))
    }

    pub(super) fn is(&self) -> bool {
        self.0.load(Acquire) % 2 == 1
    }

    /// To be asked before the live files are looked at.
    pub(super) fn now(&self) -> Seen {
        Seen(self.0.load(Acquire))
    }

    /// The store was flushed: whatever was looked at before lacks something.
    pub(super) fn flushed(&self) -> Seen {
        let next = |now: u64| if now % 2 == 1 { now + 2 } else { now + 1 };
        let before = self.0.fetch_update(AcqRel, Acquire, |now| Some(next(now))).expect("it is never refused");
        Seen(next(before))
    }

    /// The list has everything that there was then. False: it was flushed meanwhile, or is up to date already.
    pub(super) fn caught_up(&self, seen: Seen) -> bool {
        seen.0 % 2 == 1 && self.0.compare_exchange(seen.0, seen.0 + 1, AcqRel, Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looked_before_the_last_flush_does_not_say_that_the_list_has_it() {
        let behind = Behind::new(true);
        let before = behind.now();
        let flushed = behind.flushed();
        assert!(!behind.caught_up(before) && behind.is());
        assert!(behind.caught_up(flushed) && !behind.is());
        assert!(!behind.caught_up(flushed) && !behind.caught_up(behind.now()) && !behind.is());
        assert!(behind.flushed() != flushed && behind.is());
    }
}
