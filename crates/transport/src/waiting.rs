//! How a handler says that it may wait, so that others are served meanwhile.

use std::cell::{Cell, RefCell};

/// What is known of the present request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// It may wait.
    pub(crate) waits: bool,
    /// Moving its bytes takes longer than waking a thread on another CPU.
    pub(crate) is_long: bool,
}

/// What a thread that serves requests does before one of them waits.
pub(crate) trait Waiter {
    /// Called at most once for each request.
    fn before_waiting(&mut self);

    /// Whether others are served although the present request is answered late.
    fn leaves_room(&mut self) -> bool {
        true
    }
}

thread_local! {
    static WAITER: RefCell<Option<Box<dyn Waiter>>> = const { RefCell::new(None) };
    static SAID: Cell<Said> = const { Cell::new(Said { waits: false, is_long: false }) };
}

/// Says that answering the present request may wait for a device or for other requests. Those that usually do are known
/// ([`Operation::may_wait`](crate::Operation::may_wait)); a handler calls this for one that turns out to. Costs a
/// microsecond, and without effect on threads that serve no requests.
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

/// Whether the present request may be answered after what others do. False: its queue has no further entry, so what it
/// would wait for might not come through.
pub fn may_be_late() -> bool {
    WAITER.with_borrow_mut(|waiter| waiter.as_mut().is_none_or(|waiter| waiter.leaves_room()))
}

/// Makes the present thread one that serves requests.
pub(crate) fn install(waiter: Box<dyn Waiter>) {
    WAITER.set(Some(waiter));
}

/// Says that the present request moves many bytes.
pub(crate) fn is_long() {
    SAID.set(Said { is_long: true, ..SAID.get() });
}

/// Nothing is known of the next request yet. Returns what was known of the last one.
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
