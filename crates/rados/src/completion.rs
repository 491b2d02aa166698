//! The end of an asynchronous operation: a thread of librados notes the answer, and a waiter takes it.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::librados::{Handle, Library};
use crate::silence::Silence;

/// An operation that may be under way.
pub struct Completion {
    library: &'static Library,
    answer: Mutex<Option<c_int>>,
    is_done: Condvar,
}

impl Completion {
    /// Begins an operation. `submit` gets the completion to pass on, and returns the library's answer to the
    /// submission: below 0, the operation did not begin.
    pub fn begin(library: &'static Library, submit: impl FnOnce(Handle) -> c_int) -> Arc<Self> {
        let completion = Arc::new(Self { library, answer: Mutex::new(None), is_done: Condvar::new() });
        let argument = Arc::into_raw(completion.clone()).cast_mut().cast::<c_void>();
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is writable, and the callback takes the argument, a reference that was counted for it.
        let created = unsafe { (library.rados_aio_create_completion2)(argument, done, &mut handle) };
        let submitted = if created < 0 { created } else { submit(handle) };
        if submitted < 0 {
            // SAFETY: an operation that did not begin calls no callback, so the argument is still ours.
            drop(unsafe { Arc::from_raw(argument.cast_const().cast::<Self>()) });
            completion.note(submitted);
        }
        if created >= 0 {
            // SAFETY: the handle was made above. librados keeps it until the callback has returned.
            unsafe { (library.rados_aio_release)(handle) };
        }
        completion
    }

    /// Waits for the answer: below 0, an errno. Says once that the cluster is silent.
    pub fn wait(&self, silence: &Silence) -> c_int {
        let mut answer = self.answer.lock();
        let (began, mut was_silent) = (Instant::now(), false);
        loop {
            if let Some(answer) = *answer {
                silence.waited(began.elapsed());
                if was_silent {
                    silence.ended();
                }
                return answer;
            }
            if self.is_done.wait_for(&mut answer, Silence::PATIENCE).timed_out() && answer.is_none() {
                was_silent = true;
                silence.noticed();
            }
        }
    }

    /// Whether there is an answer.
    pub fn is_done(&self) -> bool {
        self.answer.lock().is_some()
    }

    fn note(&self, answer: c_int) {
        *self.answer.lock() = Some(answer);
        self.is_done.notify_all();
    }
}

/// Runs in a thread of librados.
unsafe extern "C" fn done(handle: Handle, argument: *mut c_void) {
    // SAFETY: `begin` counted this reference for the one call of this function.
    let completion = unsafe { Arc::from_raw(argument.cast_const().cast::<Completion>()) };
    // SAFETY: the handle is valid during the callback.
    let answer = unsafe { (completion.library.rados_aio_get_return_value)(handle) };
    completion.note(answer);
}
