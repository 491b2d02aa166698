//! The waiting of tests: for a state, and with one time limit.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// A state comes within this time on any machine under any load, or never.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How often a state without a notification is checked.
const POLL: Duration = Duration::from_millis(2);

/// Waits until `is_so` returns true.
///
/// # Panics
/// It does not become true within [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        thread::sleep(POLL);
    }
}

/// Repeats a call to a mount whose daemon was killed until the kernel reports that the mount has no daemon (ENOTCONN).
///
/// The connection ends a moment after the process. A call before that is interrupted or canceled with its ring, and is
/// repeated, or it ends with the connection.
///
/// # Panics
/// The call succeeds, fails in another way, or the connection does not end within [`PATIENCE`].
#[track_caller]
pub fn refused_by_the_dead<T>(mut call: impl FnMut() -> io::Result<T>) {
    /// EINTR, EAGAIN, ECONNABORTED and ECANCELED of Linux.
    const DYING: [i32; 4] = [4, 11, 103, 125];
    /// ENOTCONN of Linux.
    const DEAD: i32 = 107;
    eventually("the kernel notices that the daemon is dead", || {
        let error = call().err().expect("a dead daemon answers nothing");
        let number = error.raw_os_error().unwrap_or_default();
        assert!(number == DEAD || DYING.contains(&number), "the call failed otherwise: {error}");
        number == DEAD
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_comes_is_awaited() {
        let mut looks = 0;
        eventually("the third look", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    fn a_dying_daemon_is_asked_again_and_another_error_is_none_of_the_dead() {
        let mut numbers = [125, 4, 11, 103, 107].into_iter();
        refused_by_the_dead(|| Err::<(), _>(io::Error::from_raw_os_error(numbers.next().unwrap())));
        assert_eq!(numbers.next(), None, "all but the last are passed over");
        let wrong = || refused_by_the_dead(|| Err::<(), _>(io::Error::from_raw_os_error(5)));
        assert!(std::panic::catch_unwind(wrong).is_err(), "EIO is no sign of death");
    }
}
