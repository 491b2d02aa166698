//! mount(2) and umount2(2) of a FUSE file system. Who serves a mount need not be who may make it: the descriptor of
//! `/dev/fuse` may be another process's.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where and how to mount.
#[derive(Clone, Debug)]
pub struct MountSpec {
    /// Shown as the mount's source.
    pub source: PathBuf,
    /// The mount point. Absolute.
    pub dir: PathBuf,
    /// Shown as its type, such as `fuse.flat`; umount(8) finds its helper by it.
    pub kind: &'static str,
    /// `MS_...` flags of mount(2).
    pub kernel_flags: libc::c_ulong,
}

/// mount(2): whoever reads from `connection` serves the mount, for all users. The kernel checks permissions by the
/// attributes that it is told.
///
/// # Errors
/// The kernel's own.
pub fn attach(connection: BorrowedFd<'_>, spec: &MountSpec) -> io::Result<()> {
    let mode = File::open(&spec.dir)?.metadata()?.mode();
    let descriptor = connection.as_raw_fd();
    let data = format!("fd={descriptor},rootmode={mode:o},user_id=0,group_id=0,default_permissions,allow_other");
    let (source, dir) = (c_string(&spec.source)?, c_string(&spec.dir)?);
    let (kind, data) = (c_string(Path::new(spec.kind))?, c_string(Path::new(&data))?);
    // SAFETY: all four strings are NUL-terminated and outlive the call.
    let done =
        unsafe { libc::mount(source.as_ptr(), dir.as_ptr(), kind.as_ptr(), spec.kernel_flags, data.as_ptr().cast()) };
    check(done)
}

/// umount2(2) of what is mounted on `dir` itself: a link that somebody put there is not followed.
///
/// # Errors
/// The kernel's own.
pub fn unmount(dir: &Path, flags: libc::c_int) -> io::Result<()> {
    let dir = c_string(dir)?;
    // SAFETY: `dir` is a NUL-terminated string that outlives the call.
    check(unsafe { libc::umount2(dir.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) })
}

/// mount(2) with MS_REMOUNT: changes the flags of an existing mount.
///
/// # Errors
/// The kernel's own.
pub fn remount(dir: &Path, kernel_flags: libc::c_ulong) -> io::Result<()> {
    let dir = c_string(dir)?;
    let nothing = std::ptr::null();
    // SAFETY: `dir` outlives the call; the kernel ignores source and type and accepts null data on a remount.
    check(unsafe { libc::mount(nothing, dir.as_ptr(), nothing, kernel_flags | libc::MS_REMOUNT, nothing.cast()) })
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path must not hold a NUL byte"))
}

fn check(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
