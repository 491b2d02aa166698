//! Errors say what the caller can do; errno exists only in the `fuse` crate.

use std::io;

/// What can go wrong in the engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path holds no volume: make one with `oncefs mkfs`.
    #[error("{0} is not an oncefs volume (make one with: oncefs mkfs {0})")]
    NotAVolume(String),
    /// There is something at the place where a volume should be made.
    #[error("{0}")]
    InTheWay(String),
    /// The volume was written by a newer oncefs.
    #[error("the volume has format version {found}, this oncefs reads up to {known}: use a newer oncefs")]
    NewerFormat {
        /// Version in the superblock.
        found: u32,
        /// Newest version that this program reads.
        known: u32,
    },
    /// Others than root can change the volume: the message says how to end that.
    #[error("{0}")]
    Exposed(String),
    /// Another process has the volume open.
    #[error("the volume {0} is in use by another process: unmount it first (oncefs umount DIR)")]
    InUse(String),
    /// Bytes on disk contradict their checksum, their bounds or each other.
    #[error("{what} is damaged: {detail}")]
    Corrupt {
        /// The structure, with its place.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A device or file answered with an error.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The data area, or the host file system below it, is full.
    #[error("no space left")]
    NoSpace,
    /// An earlier failure made the volume read-only until it is opened again.
    #[error("the volume is read-only: {0}")]
    ReadOnly(String),
    /// The map was detached (truncated to zero or deleted) meanwhile: look its id up again.
    #[error("the map was detached")]
    MapDetached,
    /// An argument is outside its range.
    #[error("{0}")]
    Invalid(String),
}

/// Result of the engine's operations.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Wraps an I/O error with what was being done. A full host file system becomes `NoSpace`.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::NoSpace,
            _ => Self::Io { what: what.into(), source },
        }
    }

    /// A structure whose bytes cannot be trusted.
    pub fn corrupt(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), detail: detail.into() }
    }
}
