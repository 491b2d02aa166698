//! Lets a handler announce that it may wait, so that other requests are served meanwhile.

use std::cell::{Cell, RefCell};

/// The announcements of the present request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// It may wait.
    pub(crate) waits: bool,
    /// Moving its bytes takes longer than waking a thread on another CPU.
    pub(crate) is_long: bool,
}

/// The action of a serving thread before a request waits.
pub(crate) trait Waiter {
    /// Called at most once for each request.
    fn before_waiting(&mut self);

    /// Whether other requests are served while the present one waits for a late reply.
    fn leaves_room(&mut self) -> bool {
        true
    }
}

thread_local! {
    static WAITER: RefCell<Option<Box<dyn Waiter>>> = const { RefCell::new(None) };
    static SAID: Cell<Said> = const { Cell::new(Said { waits: false, is_long: false }) };
}

/// Announces that the present request may wait for a device or for other requests. Operations that usually do are known
/// ([`Operation::may_wait`](crate::Operation::may_wait)). A handler calls this for any other. Costs a microsecond, and
/// has no effect on threads that serve no requests.
///
/// Over rings the thread may then run on any CPU until it has replied; on `/dev/fuse` another thread takes up reading.
pub fn may_wait() {
    let said = SAID.get();
    if !said.waits {
        SAID.set(Said { waits: true, ..said });
        WAITER.with_borrow_mut(|waiter| {
            if let Some(waiter) = waiter {
                waiter.before_waiting();
            }
        });
    }
}

/// Whether the present request may wait for other requests. False: its queue has no further entry, so those requests
/// might never come.
pub fn may_be_late() -> bool {
    WAITER.with_borrow_mut(|waiter| waiter.as_mut().is_none_or(|waiter| waiter.leaves_room()))
}

/// Makes the present thread a serving thread.
pub(crate) fn install(waiter: Box<dyn Waiter>) {
    WAITER.set(Some(waiter));
}

/// Announces that the present request moves many bytes.
pub(crate) fn is_long() {
    SAID.set(Said { is_long: true, ..SAID.get() });
}

/// Resets the announcements for the next request, and returns those of the last one.
pub(crate) fn rearm() -> Said {
    SAID.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting<'a>(&'a Cell<u32>);

    impl Waiter for Counting<'static> {
        fn before_waiting(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn what_is_said_counts_for_one_request() {
        let calls: &'static Cell<u32> = Box::leak(Box::default());
        install(Box::new(Counting(calls)));
        is_long();
        may_wait();
        may_wait();
        assert_eq!(calls.get(), 1, "once for a request");
        assert_eq!(rearm(), Said { waits: true, is_long: true });
        assert_eq!(rearm(), Said::default(), "nothing is known of the next one");
        may_wait();
        assert_eq!((calls.get(), rearm()), (2, Said { waits: true, is_long: false }));
    }
}
