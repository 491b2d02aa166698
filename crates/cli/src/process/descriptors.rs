//! Descriptors: inherited ones, waiting for them, and syncing the file systems behind them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use super::setup::check;

/// Closes all inherited descriptors except stdin, stdout and stderr: a lock file that a script holds open must not stay
/// locked for as long as the volume is mounted. To be called before any file is opened.
pub fn close_inherited() {
    // SAFETY: nothing in this process has opened a descriptor above these three.
    unsafe { libc::close_range(libc::STDERR_FILENO as libc::c_uint + 1, libc::c_uint::MAX, 0) };
}

/// Replaces stdin, stdout and stderr by `/dev/null`.
pub fn detach_stdio() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    for standard in 0..=2 {
        // SAFETY: dup2 between open descriptors. The standard ones have no owner.
        if unsafe { libc::dup2(null.as_raw_fd(), standard) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Waits until a descriptor is readable, without a timeout forever. Returns whether it is.
pub fn await_readable(fd: BorrowedFd, timeout: Option<Duration>) -> bool {
    let millis = timeout.map_or(-1, |t| t.as_millis().min(i32::MAX as u128) as libc::c_int);
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: one pollfd that outlives the call.
        match unsafe { libc::poll(&mut poll, 1, millis) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            ready => return ready > 0,
        }
    }
}

/// Sends everything written through the file system at `dir` to its daemon.
pub fn sync_file_system(dir: &Path) -> io::Result<()> {
    sync_held(&std::fs::File::open(dir)?)
}

/// As `sync_file_system`. Returns the error of an earlier write that no sync of the whole file system has reported yet.
/// The kernel reports it once, even if the file is gone, and it says nothing about the present data. So a second sync
/// decides, and its failure is the result.
pub fn sync_what_is_there(dir: &Path) -> io::Result<Option<io::Error>> {
    let dir = std::fs::File::open(dir)?;
    match sync_held(&dir) {
        Ok(()) => Ok(None),
        Err(earlier) => sync_held(&dir).map(|()| Some(earlier)),
    }
}

fn sync_held(file: &std::fs::File) -> io::Result<()> {
    // SAFETY: syncfs on a descriptor that is open.
    check(unsafe { libc::syncfs(file.as_raw_fd()) })
}
