//! Grace periods of the kernel (RCU) that it hurries for a moment.
//!
//! A freeze waits for three of them, for two of which programs already wait too: 40 to 100 ms on a busy machine, and 2
//! to 30 if the kernel hurries.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Signals with which a user ends a command.
const ENDING: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// The kernel hurries its grace periods until this is dropped. The calling thread takes signals that end it only then,
/// or the kernel would go on hurrying, which costs its CPUs some interrupts.
pub struct ShortGracePeriods(Option<(File, libc::sigset_t)>);

impl ShortGracePeriods {
    /// Does nothing where this cannot be set, or is set already.
    pub fn begin() -> Self {
        let knob = File::options().read(true).write(true).open("/sys/kernel/rcu_expedited").ok();
        let Some(knob) = knob.filter(is_off) else { return Self(None) };
        let before = hold_signals();
        if knob.write_all_at(b"1", 0).is_ok() {
            return Self(Some((knob, before)));
        }
        take_signals(&before);
        Self(None)
    }
}

impl Drop for ShortGracePeriods {
    fn drop(&mut self) {
        let Some((knob, before)) = self.0.take() else { return };
        if let Err(error) = knob.write_all_at(b"0", 0) {
            tell!("oncefs: the kernel hurries its grace periods from now on (/sys/kernel/rcu_expedited): {error}");
        }
        take_signals(&before);
    }
}

/// Whether a switch of the kernel reads as 0.
fn is_off(knob: &File) -> bool {
    let mut value = [0; 1];
    knob.read_exact_at(&mut value, 0).is_ok() && value == *b"0"
}

/// Blocks the signals that end a command. Returns the mask until now.
fn hold_signals() -> libc::sigset_t {
    // SAFETY: a signal set is plain data; the calls fill and read the two sets, which outlive them.
    unsafe {
        let (mut held, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut held);
        for signal in ENDING {
            libc::sigaddset(&mut held, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &held, &mut before);
        before
    }
}

/// Takes signals by this mask again.
fn take_signals(before: &libc::sigset_t) {
    // SAFETY: an initialised set that outlives the call; null asks for no mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_a_switch_that_reads_as_0_is_off() {
        for (value, expected) in [("0\n", true), ("1\n", false), ("", false)] {
            let mut knob = tempfile::tempfile().unwrap();
            knob.write_all(value.as_bytes()).unwrap();
            assert_eq!(is_off(&knob), expected, "{value:?}");
        }
    }
}
