//! The host file system that a volume's directory lies on.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes that the host can still take below a directory.
pub fn host_bytes(directory: &Path) -> Option<u64> {
    let path = CString::new(directory.as_os_str().as_bytes()).ok()?;
    // SAFETY: all-zero bytes are a valid statvfs.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with NUL and `stat` is valid for writes during the call.
    let result = unsafe { libc::statvfs(path.as_ptr(), &mut stat) };
    (result == 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
}
