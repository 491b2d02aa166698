//! How a handler says that it may wait, so that others are served meanwhile.

use std::cell::RefCell;

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
    static HAS_SAID: RefCell<bool> = const { RefCell::new(false) };
}

/// Says that answering the present request may wait for a device or for other requests. Those that usually do are known
/// ([`Operation::may_wait`](crate::Operation::may_wait)); a handler calls this for one that turns out to. Costs a
/// microsecond, and without effect on threads that serve no requests.
///
/// Over rings the thread may then run on any CPU until it has replied; on `/dev/fuse` another thread takes up reading.
pub fn may_wait() {
    if !HAS_SAID.replace(true) {
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

/// The next request is yet to say that it waits. Returns whether the last one did.
pub(crate) fn rearm() -> bool {
    HAS_SAID.replace(false)
}
