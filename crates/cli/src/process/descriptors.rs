//! Descriptors: inherited ones, waiting for them, and syncing the file systems behind them.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
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
    let null = File::options().read(true).write(true).open("/dev/null")?;
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
    sync_held(&File::open(dir)?)
}

/// Calls `sync`, syncfs(2) or fdatasync(2), for `held`. Returns the error of an earlier write that no such call has
/// reported yet. The kernel reports it once, even if the file is gone, and it says nothing about the present data. So a
/// second call decides, and its failure is the result.
pub fn sync_what_is_there(
    held: &File,
    sync: unsafe extern "C" fn(libc::c_int) -> libc::c_int,
) -> io::Result<Option<io::Error>> {
    // SAFETY: both calls take a descriptor, which is open.
    let call = || check(unsafe { sync(held.as_raw_fd()) });
    match call() {
        Ok(()) => Ok(None),
        Err(earlier) => call().map(|()| Some(earlier)),
    }
}

fn sync_held(file: &File) -> io::Result<()> {
    // SAFETY: syncfs on a descriptor that is open.
    check(unsafe { libc::syncfs(file.as_raw_fd()) })
}

/// The handle of an inode of a FUSE file system, as open_by_handle_at(2) takes it.
#[repr(C)]
struct InodeHandle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    /// The inode number's upper and lower half, and the generation.
    words: [u32; 3],
}

/// linux/exportfs.h: FILEID_INO64_GEN.
const INODE_AND_GENERATION: libc::c_int = 0x81;

/// Opens an inode of the FUSE file system that `root` lies in for reading, whatever its name and permissions. None: it
/// is gone. Needs CAP_DAC_READ_SEARCH.
pub fn open_inode(root: &File, inode: u64, generation: u32) -> io::Result<Option<File>> {
    let words = [(inode >> 32) as u32, inode as u32, generation];
    let mut handle = InodeHandle { bytes: size_of_val(&words) as libc::c_uint, kind: INODE_AND_GENERATION, words };
    // SAFETY: the handle has the layout of `struct file_handle` with `bytes` bytes behind it, and outlives the call.
    let opened = unsafe { libc::open_by_handle_at(root.as_raw_fd(), (&raw mut handle).cast(), libc::O_CLOEXEC) };
    if opened >= 0 {
        // SAFETY: a new descriptor without another owner.
        return Ok(Some(unsafe { File::from_raw_fd(opened) }));
    }
    match io::Error::last_os_error() {
        gone if gone.raw_os_error() == Some(libc::ESTALE) => Ok(None),
        error => Err(error),
    }
}
