//! The failure of a command: one line that says what to do, and an exit code that its caller knows.

use std::fmt;

use crate::names::printable;

/// Exit codes: mount(8)'s for mount and umount, but 2 for a wrong command line unless they run as helpers of mount(8);
/// fsck(8)'s for fsck; 1 and 2 for everything else.
pub mod exit {
    /// Everything was done.
    pub const SUCCESS: u8 = 0;
    /// The command failed.
    pub const FAILED: u8 = 1;
    /// The command line makes no sense.
    pub const USAGE: u8 = 2;
    /// scrub: damage was found and repaired.
    pub const SCRUB_REPAIRED: u8 = 3;
    /// scrub: files are damaged.
    pub const SCRUB_DAMAGED: u8 = 4;
    /// estimate: cancelled by the user, with the code that shells use.
    pub const CANCELLED: u8 = 130;
    /// mount(8): wrong invocation or no permission.
    pub const MOUNT_USAGE: u8 = 1;
    /// mount(8): the machine lacks something (processes, memory, a device node).
    pub const MOUNT_SYSTEM: u8 = 2;
    /// mount(8): mounting or unmounting failed.
    pub const MOUNT_FAILED: u8 = 32;
    /// fsck(8): errors were repaired.
    pub const FSCK_ERRORS_REPAIRED: u8 = 1;
    /// fsck(8): errors are left.
    pub const FSCK_ERRORS_LEFT: u8 = 4;
    /// fsck(8): the check could not run.
    pub const FSCK_OPERATIONAL: u8 = 8;
    /// fsck(8): wrong usage.
    pub const FSCK_USAGE: u8 = 16;
    /// fsck(8): cancelled by the user.
    pub const FSCK_CANCELLED: u8 = 32;
}

/// Why a command ends without success.
#[derive(Clone, Debug)]
pub struct Failure {
    /// One line that says what happened and what to do.
    pub message: String,
    /// The process's exit code.
    pub code: u8,
}

/// Result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with its exit code.
    pub fn new(code: u8, message: impl fmt::Display) -> Self {
        Self { message: printable(&message.to_string()), code }
    }
}

/// Names the exit code of an error on its way up.
pub trait OrFail<T> {
    /// The error becomes a failure with this code.
    fn or_fail(self, code: u8) -> Outcome<T>;
    /// The error becomes a failure with this code. The message begins with `doing`.
    fn or_fail_doing(self, code: u8, doing: impl fmt::Display) -> Outcome<T>;
}

impl<T, E: fmt::Display> OrFail<T> for Result<T, E> {
    fn or_fail(self, code: u8) -> Outcome<T> {
        self.map_err(|e| Failure::new(code, e))
    }

    fn or_fail_doing(self, code: u8, doing: impl fmt::Display) -> Outcome<T> {
        self.map_err(|e| Failure::new(code, format!("{doing}: {e}")))
    }
}
