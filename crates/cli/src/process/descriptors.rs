//! Descriptors: those a process was started with, those it waits for, and file systems behind them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use super::setup::check;

/// Closes what the process was started with beside stdin, stdout and stderr: a lock file that a script holds open must
/// not stay locked for as long as the volume is mounted. To be called before anything is opened.
pub fn close_inherited() {
    // SAFETY: nothing in this process has opened a descriptor above these three.
    unsafe { libc::close_range(libc::STDERR_FILENO as libc::c_uint + 1, libc::c_uint::MAX, 0) };
}

/// Puts `/dev/null` in the place of stdin, stdout and stderr.
pub fn detach_stdio() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    for standard in 0..=2 {
        // SAFETY: dup2 between descriptors that are open; the standard ones are nobody's property.
        if unsafe { libc::dup2(null.as_raw_fd(), standard) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Waits until a descriptor is readable; without a timeout for ever. Whether it is.
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

/// Everything written through the file system at `dir` reaches its daemon.
pub fn sync_file_system(dir: &Path) -> io::Result<()> {
    sync_held(&std::fs::File::open(dir)?)
}

/// The same, and gives the error of a write that failed before and that the kernel had told to nobody who synced the whole
/// file system: it is told once, also where the file is gone by now, and says nothing of what is written this time. So the
/// kernel is asked again, and what fails then is the result.
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
