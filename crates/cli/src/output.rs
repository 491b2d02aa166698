//! The output of commands. A failing output (a full disk) makes a command fail, but does not stop its work or make it
//! panic.
//!
//! A command prints with `say!` and `put!`, and reports problems with `tell!`. At the end `finish` returns whether
//! everything was written. A closed pipe never gets here, because its signal ends the process.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use crate::failure::{OrFail, Outcome, exit};

/// Why a write to stdout failed. Nothing is written to it after that.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints a line to stdout.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints text with its own line ends to stdout.
macro_rules! put {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

/// Prints a line to stderr.
macro_rules! tell {
    ($($text:tt)*) => { $crate::output::write_error(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes to stdout, unless that failed before.
pub fn write(text: fmt::Arguments<'_>) {
    attempt(|| io::stdout().write_fmt(text));
}

/// Writes to stderr. A failure cannot be reported anywhere.
pub fn write_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Lets `write` write to stdout, unless stdout failed before.
pub fn attempt(write: impl FnOnce() -> io::Result<()>) {
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if failed.is_none() {
        *failed = write().err();
    }
}

/// Flushes stdout. Returns the failure if any output was lost.
pub fn finish() -> Outcome {
    attempt(|| io::stdout().flush());
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner).take();
    failed.map_or(Ok(()), Err).or_fail_doing(exit::FAILED, "cannot write to the standard output")
}
