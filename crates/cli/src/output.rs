//! What commands print. An output that takes nothing (a full disk) makes a command fail; it stops no work, and no command
//! panics for it.
//!
//! A command prints with `say!` and `put!`, and tells of problems with `tell!`. `finish` says at the end whether everything
//! arrived. A closed pipe never gets here: its signal ends the process.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use crate::failure::{OrFail, Outcome, exit};

/// Why stdout took something not. Nothing is written to it any more.
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

/// Writes to stderr. Nobody is left to be told if it fails.
pub fn write_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Writes to stdout in its own way, unless stdout failed before.
pub fn attempt(write: impl FnOnce() -> io::Result<()>) {
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if failed.is_none() {
        *failed = write().err();
    }
}

/// Writes out what is still buffered. The failure, if anything that was printed did not arrive.
pub fn finish() -> Outcome {
    attempt(|| io::stdout().flush());
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner).take();
    failed.map_or(Ok(()), Err).or_fail_doing(exit::FAILED, "cannot write to the standard output")
}
