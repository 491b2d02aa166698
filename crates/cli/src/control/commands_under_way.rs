//! The requests of commands that are under way, and the end of all requests.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts requests under way until they are over.
#[derive(Clone, Default)]
pub struct UnderWay(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    one_ended: Condvar,
}

#[derive(Default)]
struct State {
    begun: usize,
    are_over: bool,
}

/// A request under way, until it is dropped.
pub struct Begun(Arc<Shared>);

impl UnderWay {
    /// Begins a request. None: requests are over.
    pub fn begin(&self) -> Option<Begun> {
        let mut state = self.0.state();
        if state.are_over {
            return None;
        }
        state.begun += 1;
        Some(Begun(self.0.clone()))
    }

    /// Waits until the request of the caller is the only one, at most for `patience`. False: another is still under way.
    pub fn others_end(&self, patience: Duration) -> bool {
        let waited = self.0.one_ended.wait_timeout_while(self.0.state(), patience, |state| state.begun > 1);
        waited.unwrap_or_else(PoisonError::into_inner).0.begun <= 1
    }

    /// No request begins any more. Waits for those under way, at most for `patience`. False: one is still under way.
    pub fn end_all(&self, patience: Duration) -> bool {
        let mut state = self.0.state();
        state.are_over = true;
        let waited = self.0.one_ended.wait_timeout_while(state, patience, |state| state.begun > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.begun == 0
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.state().begun -= 1;
        self.0.one_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_alone_once_all_others_have_ended() {
        let requests = UnderWay::default();
        let (own, other) = (requests.begin(), requests.begin());
        assert!(!requests.others_end(Duration::ZERO), "another is under way");
        let waiting = requests.clone();
        let waiter = std::thread::spawn(move || waiting.others_end(Duration::MAX));
        drop(other);
        assert!(waiter.join().unwrap() && own.is_some());
        assert!(requests.begin().is_some(), "requests go on");
    }

    #[test]
    fn requests_are_over_when_the_last_one_has_ended_and_none_begins_after_that() {
        let requests = UnderWay::default();
        let (first, second) = (requests.begin(), requests.begin());
        drop(first);
        assert!(second.is_some() && !requests.end_all(Duration::ZERO), "one is under way");
        assert!(requests.begin().is_none());
        let waiting = requests.clone();
        let waiter = std::thread::spawn(move || waiting.end_all(Duration::MAX));
        drop(second);
        assert!(waiter.join().unwrap() && requests.end_all(Duration::ZERO));
    }
}
