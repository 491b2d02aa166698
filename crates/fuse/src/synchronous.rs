//! Makes the writes of a mount synchronous or buffered, by the flag that `-o sync` sets.
//!
//! With the flag, write(2) still passes through the page cache, so that the kernel sets the times and drops the
//! privileges. But it waits for the daemon's answer, so write(2) itself reports that data does not fit. The flag also
//! applies to open files. Only the file system's own flag changes, not those of its mounts.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use oncefs_transport::{MountId, open_own};

/// linux/mount.h; the libc crate has none of them.
const FSPICK_CLOEXEC: libc::c_uint = 1;
const FSPICK_EMPTY_PATH: libc::c_uint = 8;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_CMD_RECONFIGURE: libc::c_uint = 7;

/// Sets or clears the flag of the file system of `own`, a mount that `dir` leads to. Waits until the kernel has sent
/// what was dirty, and on some kernels for the answers, so a thread that answers requests must not call it. Needs
/// CAP_SYS_ADMIN and Linux 5.2.
///
/// # Errors
/// EINVAL: `dir` leads to another mount. Otherwise the kernel's errors.
pub fn set_synchronous(dir: &Path, own: MountId, is_on: bool) -> io::Result<()> {
    let root = open_own(dir, own)?;
    reconfigure(&root, is_on)?;
    // The kernel sends what is dirty, and changes the flag then. What became dirty in between would wait for the
    // flusher, while synchronous writes take the room that it needs. So the second time sends that too.
    if is_on { reconfigure(&root, is_on) } else { Ok(()) }
}

fn reconfigure(root: &OwnedFd, is_on: bool) -> io::Result<()> {
    let context = pick(root)?;
    let name = if is_on { c"sync" } else { c"async" };
    configure(context.as_raw_fd(), FSCONFIG_SET_FLAG, name.as_ptr())?;
    configure(context.as_raw_fd(), FSCONFIG_CMD_RECONFIGURE, std::ptr::null())
}

fn pick(root: &OwnedFd) -> io::Result<OwnedFd> {
    let (empty, flags) = (CString::default(), FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
    // SAFETY: the descriptor is open and the string NUL-terminated; both outlive the call.
    let picked = unsafe { libc::syscall(libc::SYS_fspick, root.as_raw_fd(), empty.as_ptr(), flags) };
    match RawFd::try_from(picked) {
        // SAFETY: a new descriptor without another owner.
        Ok(context) if context >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(context) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn configure(context: RawFd, command: libc::c_uint, name: *const libc::c_char) -> io::Result<()> {
    let nothing: *const libc::c_char = std::ptr::null();
    // SAFETY: `name` is null or a NUL-terminated string that outlives the call, as the command wants it.
    match unsafe { libc::syscall(libc::SYS_fsconfig, context, command, name, nothing, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn another_file_system_in_its_place_is_left_alone() {
        let root = MountId::of(File::open("/").unwrap().as_fd()).unwrap();
        let error = set_synchronous(Path::new("/proc"), root, true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
    }
}
