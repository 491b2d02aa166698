//! The end of an asynchronous operation: a thread of librados notes the answer, and a waiter takes it.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::librados::{Handle, Library};
use crate::silence::Silence;

/// An operation that may be under way.
pub struct Completion {
    library: &'static Library,
    answer: Answer,
}

impl Completion {
    /// Begins an operation. `submit` gets the completion to pass on, and returns the library's answer to the
    /// submission: below 0, the operation did not begin.
    pub fn begin(library: &'static Library, submit: impl FnOnce(Handle) -> c_int) -> Arc<Self> {
        let completion = Arc::new(Self { library, answer: Answer::awaited_from(Instant::now()) });
        let argument = Arc::into_raw(completion.clone()).cast_mut().cast::<c_void>();
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is writable, and the callback takes the argument, a reference that was counted for it.
        let created = unsafe { (library.rados_aio_create_completion2)(argument, done, &mut handle) };
        let submitted = if created < 0 { created } else { submit(handle) };
        if submitted < 0 {
            // SAFETY: an operation that did not begin calls no callback, so the argument is still ours.
            drop(unsafe { Arc::from_raw(argument.cast_const().cast::<Self>()) });
            completion.answer.note(submitted, Instant::now());
        }
        if created >= 0 {
            // SAFETY: the handle was made above. librados keeps it until the callback has returned.
            unsafe { (library.rados_aio_release)(handle) };
        }
        completion
    }

    /// Waits for the answer: below 0, an errno. Says once that the cluster is silent.
    pub fn wait(&self, silence: &Silence) -> c_int {
        self.answer.wait(silence)
    }

    /// Whether there is an answer.
    pub fn is_done(&self) -> bool {
        self.answer.found.lock().is_some()
    }
}

/// An answer, and how long it took, whoever waited for it meanwhile.
struct Answer {
    began: Instant,
    /// The time goes to the first who waits.
    found: Mutex<Option<(c_int, Option<Duration>)>>,
    is_done: Condvar,
}

impl Answer {
    fn awaited_from(began: Instant) -> Self {
        Self { began, found: Mutex::new(None), is_done: Condvar::new() }
    }

    fn note(&self, answer: c_int, now: Instant) {
        *self.found.lock() = Some((answer, Some(now.saturating_duration_since(self.began))));
        self.is_done.notify_all();
    }

    fn wait(&self, silence: &Silence) -> c_int {
        let (mut found, mut was_silent) = (self.found.lock(), false);
        loop {
            if let Some((answer, took)) = found.as_mut() {
                if let Some(took) = took.take() {
                    silence.waited(took);
                }
                if was_silent {
                    silence.ended();
                }
                return *answer;
            }
            if self.is_done.wait_for(&mut found, Silence::PATIENCE).timed_out() && found.is_none() {
                was_silent = true;
                silence.noticed();
            }
        }
    }
}

/// Runs in a thread of librados.
unsafe extern "C" fn done(handle: Handle, argument: *mut c_void) {
    // SAFETY: `begin` counted this reference for the one call of this function.
    let completion = unsafe { Arc::from_raw(argument.cast_const().cast::<Completion>()) };
    // SAFETY: the handle is valid during the callback.
    let answer = unsafe { (completion.library.rados_aio_get_return_value)(handle) };
    completion.answer.note(answer, Instant::now());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Waits;

    #[test]
    fn a_request_counts_once_from_when_it_was_sent_to_its_answer() {
        let silence = Silence::of("c".to_owned());
        let sent = Instant::now();
        let answer = Answer::awaited_from(sent);
        // It came before anybody waited for it.
        answer.note(-5, sent + Duration::from_secs(7));
        assert_eq!([answer.wait(&silence), answer.wait(&silence)], [-5; 2]);
        assert_eq!(silence.waits(), Waits { count: 1, longest: Duration::from_secs(7) });
    }
}
