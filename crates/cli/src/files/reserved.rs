//! The directory `.oncefs` in the root of a mount, which holds disks, snapshots, and trees that are being received.
//!
//! Only root enters it, and listings of the root leave it out. A user who may write to the root could make a directory
//! of this name first, or a link. So a command descends without following links, and refuses a directory that is not
//! root's alone.

use std::ffi::CString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Its name in the root of the mount.
pub const NAME: &str = ".oncefs";
/// Only root looks in.
const MODE: libc::mode_t = 0o700;

/// Opens the directory `folder` in it, below the mount's root `root`, which `dir` leads to. Returns it with its path.
///
/// # Errors
/// NotFound: it is not there, and `creates` is false. PermissionDenied: a directory on the way is not root's alone, so
/// somebody else could put something there.
pub fn descend(root: &File, dir: &Path, folder: &str, creates: bool) -> io::Result<(File, PathBuf)> {
    let (mut held, mut path) = (root.try_clone()?, dir.to_owned());
    for name in [NAME, folder] {
        let text = CString::new(name)?;
        if creates {
            // SAFETY: an open directory and a NUL-terminated name that outlives the call.
            let made = unsafe { libc::mkdirat(held.as_raw_fd(), text.as_ptr(), MODE) };
            let error = io::Error::last_os_error();
            if made != 0 && error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error);
            }
        }
        path.push(name);
        held = open_at(&held, &text, libc::O_DIRECTORY)?;
        refuse_others(&held.metadata()?)?;
    }
    Ok((held, path))
}

/// Opens a file in a directory. Follows no link.
///
/// # Errors
/// Those of openat(2).
pub fn open_at(dir: &File, name: &CString, flags: libc::c_int) -> io::Result<File> {
    // SAFETY: an open directory and a NUL-terminated name that outlives the call.
    match unsafe { libc::openat(dir.as_raw_fd(), name.as_ptr(), flags | libc::O_NOFOLLOW | libc::O_CLOEXEC) } {
        // SAFETY: a new descriptor without another owner.
        opened @ 0.. => Ok(unsafe { File::from_raw_fd(opened) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Only root may own or change it.
fn refuse_others(found: &Metadata) -> io::Result<()> {
    match found.uid() == 0 && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not root's alone")),
    }
}
