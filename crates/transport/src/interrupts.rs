//! Remembers signals to the callers of requests that no thread has taken up yet. INTERRUPT may overtake the request
//! that it names, above all if requests come over rings and interrupts through `/dev/fuse`.

use std::collections::VecDeque;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// No more than this many are remembered: by then the oldest request has long been answered.
const REMEMBERED_MAX: usize = 256;

/// Numbers of requests that were interrupted and not found.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    /// How many there are. At 0, a request need not take the lock.
    count: AtomicUsize,
    numbers: Mutex<VecDeque<u64>>,
}

impl Interrupts {
    pub(crate) fn remember(&self, unique: u64) {
        let mut numbers = self.numbers.lock();
        if numbers.len() == REMEMBERED_MAX {
            numbers.pop_front();
        }
        numbers.push_back(unique);
        self.count.store(numbers.len(), Ordering::Release);
    }

    /// Whether a request was interrupted before it was taken up.
    pub(crate) fn take(&self, unique: u64) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut numbers = self.numbers.lock();
        let found = numbers.iter().position(|number| *number == unique);
        found.map(|at| numbers.remove(at));
        self.count.store(numbers.len(), Ordering::Release);
        found.is_some()
    }
}

/// Whether a thread has a pending signal. For requests over rings: Linux 6.18 sends no INTERRUPT for a signal that
/// comes after the call and before the daemon has the request, and the thread waits with the signal pending. False if
/// `/proc` does not show the thread.
pub(crate) fn has_signal(thread: u32) -> bool {
    fs::read_to_string(format!("/proc/{thread}/status")).is_ok_and(|status| is_signal_in(&status))
}

/// Whether a status file (proc(5)) shows a pending signal that is neither blocked nor ignored.
fn is_signal_in(status: &str) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    (mask("SigPnd") | mask("ShdPnd")) & !(mask("SigBlk") | mask("SigIgn")) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_counts_unless_it_is_blocked_or_ignored() {
        let status = |pending: &str, shared: &str| {
            format!("Name:\tcat\nSigPnd:\t{pending}\nShdPnd:\t{shared}\nSigBlk:\t0004\nSigIgn:\t0008\nSigCgt:\t0001\n")
        };
        for (pending, shared, expected) in
            [("0", "0", false), ("100", "0", true), ("0", "2", true), ("4", "8", false), ("c", "2", true)]
        {
            assert_eq!(is_signal_in(&status(pending, shared)), expected, "{pending} {shared}");
        }
        assert!(!is_signal_in("") && !has_signal(std::process::id()) && !has_signal(u32::MAX));
    }

    #[test]
    fn a_number_is_found_once_and_old_ones_make_room() {
        let interrupts = Interrupts::default();
        assert!(!interrupts.take(2));
        (1..=REMEMBERED_MAX as u64 + 1).for_each(|number| interrupts.remember(2 * number));
        assert!(!interrupts.take(2), "the oldest was forgotten");
        assert!(interrupts.take(4) && !interrupts.take(4));
        assert_eq!(interrupts.count.load(Ordering::Relaxed), REMEMBERED_MAX - 1);
    }
}
