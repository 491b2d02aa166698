//! Signals that ask a process to end, and the signal of a closed pipe.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

/// How often a process that stands by looks whether it is done.
const LOOK: Duration = Duration::from_millis(100);

/// Makes a command whose output is no longer read (`oncefs stats | head`) end like any other Unix command.
pub fn end_on_closed_pipe() {
    // SAFETY: SIG_DFL is a valid disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// The signals that ask the daemon to end.
const END_SIGNALS: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Blocks the signals that end a command in this thread until dropped, so that the work meanwhile is completed. Only
/// for a command with one thread, because other threads would still receive them.
pub struct Uninterrupted {
    before: libc::sigset_t,
}

impl Uninterrupted {
    /// Blocks the signals from here on.
    pub fn begin() -> Self {
        let set = end_signals();
        // SAFETY: a signal set is plain data; the call fills it, and both outlive it.
        unsafe {
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            Self { before }
        }
    }
}

impl Drop for Uninterrupted {
    fn drop(&mut self) {
        // SAFETY: the set was filled by the call that it came from. This call delivers the signals that came meanwhile.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

fn end_signals() -> libc::sigset_t {
    // SAFETY: a signal set is plain data; the calls fill it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in END_SIGNALS {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// The signals that ask the daemon to end, blocked in all threads that are started after this.
pub struct EndSignals {
    set: libc::sigset_t,
}

impl EndSignals {
    /// Blocks them in this thread and its children.
    pub fn block() -> Self {
        let set = end_signals();
        // SAFETY: the set outlives the call, which reads it.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
        Self { set }
    }

    /// Waits for one of them, at most for `timeout`. Returns its name, if one came.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<&'static str> {
        loop {
            let signal = match timeout {
                Some(timeout) => self.wait_for(timeout),
                // SAFETY: the set is initialised; null asks for no details.
                None => unsafe { libc::sigwaitinfo(&self.set, std::ptr::null_mut()) },
            };
            match signal {
                libc::SIGTERM => return Some("SIGTERM"),
                libc::SIGINT => return Some("SIGINT"),
                libc::SIGHUP => return Some("SIGHUP"),
                _ if io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) => {
                    return None;
                }
                _ => {}
            }
        }
    }

    /// Prints a message and ends this process with `code` as soon as one of them comes. For commands that lose nothing
    /// by it.
    pub fn end_process(self, said: &'static str, code: u8) -> io::Result<()> {
        let wait = move || {
            if self.wait(None).is_some() {
                tell!("oncefs: {said}");
                std::process::exit(code.into());
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
    }

    /// Ends this process if one of them comes during `work`, if `is_on` and `may_end` allows it. Otherwise returns the
    /// signal's name with the result, for the caller to follow it. For work that may wait for another machine.
    pub fn end_while<T>(
        &self,
        is_on: bool,
        may_end: impl Fn() -> bool + Send,
        work: impl FnOnce() -> T,
    ) -> (T, Option<&'static str>) {
        let is_done = &AtomicBool::new(false);
        let watch = move || {
            while !is_done.load(Acquire) {
                if let Some(signal) = self.wait(Some(LOOK)) {
                    if may_end() {
                        log::info!("{signal}: standing by no longer");
                        std::process::exit(0);
                    }
                    return Some(signal);
                }
            }
            None
        };
        std::thread::scope(|scope| {
            let watcher = is_on.then(|| scope.spawn(watch));
            let result = work();
            is_done.store(true, Release);
            // A panic of the watcher was reported when it happened.
            (result, watcher.and_then(|watcher| watcher.join().ok().flatten()))
        })
    }

    fn wait_for(&self, timeout: Duration) -> libc::c_int {
        let timeout =
            libc::timespec { tv_sec: timeout.as_secs() as libc::time_t, tv_nsec: timeout.subsec_nanos().into() };
        // SAFETY: set and timeout outlive the call; null asks for no details.
        unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &timeout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_meanwhile_waits() {
        let uninterrupted = Uninterrupted::begin();
        // SAFETY: raise takes an integer. The signal is for this thread, and blocked.
        assert_eq!(unsafe { libc::raise(libc::SIGHUP) }, 0);
        let signals = EndSignals { set: end_signals() };
        assert_eq!(signals.wait(Some(Duration::ZERO)), Some("SIGHUP"), "it is pending");
        drop(uninterrupted);
    }
}
