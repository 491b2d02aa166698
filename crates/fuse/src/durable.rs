//! Answers to changes that have to be durable before they return: on a mount with `sync` or `dirsync`, and through a
//! file that was opened with O_SYNC or O_DSYNC.
//!
//! The first caller commits, and the committer answers those that ask meanwhile. A crash treats an unanswered change
//! like any other change that is not durable.

use std::sync::Arc;

use oncefs_fs::{FileSystem, Handle, Result};
use oncefs_transport::{Errno, may_wait};

use crate::convert::writes;
use crate::errno::{errno, lost};

/// A result as the kernel gets it.
pub(crate) type Answer<T> = std::result::Result<T, Errno>;

/// Replies to a change, once it is durable if it has to be.
pub(crate) fn reply_durably<T: Send + 'static>(
    file_system: &Arc<FileSystem>,
    has_to_be: bool,
    changed: Result<T>,
    reply: impl FnOnce(Answer<T>) + Send + 'static,
) {
    match changed {
        Ok(value) if has_to_be => {
            may_wait();
            file_system.fsync(move |durable| reply(durable.map(|()| value).map_err(|error| lost(&error))));
        }
        result => reply(result.map_err(|error| errno(&error))),
    }
}

/// Marks the handle of a file opened with O_SYNC or O_DSYNC, because the kernel sends these flags only with a write.
/// fcntl(2) cannot set them later.
const SYNCHRONOUS: u64 = 1 << 63;

/// Marks the handle of a file that was opened for writing.
const WRITING: u64 = 1 << 62;

/// The number that the kernel gets for an open file.
pub(crate) fn file_handle(handle: Handle, flags: i32) -> u64 {
    let synchronous = if flags & libc::O_DSYNC != 0 { SYNCHRONOUS } else { 0 };
    let writing = if writes(flags) { WRITING } else { 0 };
    handle.0 & !(SYNCHRONOUS | WRITING) | synchronous | writing
}

/// The handle in the kernel's number.
pub(crate) fn handle(of: u64) -> Handle {
    Handle(of & !(SYNCHRONOUS | WRITING))
}

/// Whether the file was opened for writing.
pub(crate) fn is_writing(of: u64) -> bool {
    of & WRITING != 0
}

/// Whether the file was opened with O_SYNC or O_DSYNC.
pub(crate) fn is_synchronous(of: u64) -> bool {
    of & SYNCHRONOUS != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_keeps_its_number_and_whether_it_is_synchronous() {
        for (flags, expected) in [(libc::O_RDWR, false), (libc::O_DSYNC, true), (libc::O_WRONLY | libc::O_SYNC, true)] {
            let given = file_handle(Handle(77), flags);
            assert_eq!((handle(given), is_synchronous(given)), (Handle(77), expected));
        }
    }
}
