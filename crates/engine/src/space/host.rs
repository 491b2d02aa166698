//! The provider of the data area's space: the host file system that a volume's directory lies on, or a pool of
//! objects.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::objects::pool_rooms::PoolRooms;

/// Kept free on the host for writes that follow the log: block table, record store and its compaction.
pub const HOST_MARGIN_BYTES: u64 = 64 << 20;

/// The provider of room for new blocks.
#[derive(Clone)]
pub enum Host {
    /// The file system of a volume's directory.
    Directory(PathBuf),
    /// The pools with the volume's objects.
    Pools(PoolRooms),
}

impl Host {
    /// Bytes that it can still take, if it says so.
    pub fn bytes_left(&self) -> Option<u64> {
        match self {
            Self::Directory(directory) => host_bytes(directory),
            Self::Pools(rooms) => Some(rooms.look(HOST_MARGIN_BYTES)),
        }
    }

    /// Takes bytes for new data, where the figures of the next look may not have them yet.
    pub fn take(&self, bytes: u64) {
        match self {
            Self::Directory(_) => {}
            Self::Pools(rooms) => rooms.take(bytes),
        }
    }

    /// Whether it may say in some seconds that it can take more, though nothing was given back to it.
    pub fn may_turn_out_larger(&self) -> bool {
        match self {
            Self::Directory(_) => false,
            Self::Pools(rooms) => rooms.may_turn_out_larger(HOST_MARGIN_BYTES),
        }
    }

    /// Whether requests wait for it because it does not answer.
    pub fn is_silent(&self) -> bool {
        match self {
            Self::Directory(_) => false,
            Self::Pools(rooms) => rooms.is_silent(),
        }
    }

    /// Whether it refused a write, and has not been seen to have room since.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Directory(_) => false,
            Self::Pools(rooms) => rooms.is_full(),
        }
    }
}

/// Bytes that the host can still take below a directory.
pub fn host_bytes(directory: &Path) -> Option<u64> {
    let path = CString::new(directory.as_os_str().as_bytes()).ok()?;
    // SAFETY: all-zero bytes are a valid statvfs.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with NUL and `stat` is valid for writes during the call.
    let result = unsafe { libc::statvfs(path.as_ptr(), &mut stat) };
    (result == 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
}
