//! Turns Ctrl-C and SIGTERM into an error, so that guards undo mounts, loop devices and limits.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::failure::{Failure, Result};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_signal(_signal: libc::c_int) {
    INTERRUPTED.store(true, Relaxed);
}

/// Takes over SIGINT, SIGTERM and SIGHUP.
pub fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, note_signal as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

/// Fails after a signal has arrived; every loop of operations calls it.
pub fn check() -> Result<()> {
    if INTERRUPTED.load(Relaxed) {
        return Err(Failure::new("interrupted; removing mounts, loop devices and limits"));
    }
    Ok(())
}
