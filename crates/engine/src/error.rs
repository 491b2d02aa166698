//! The engine's errors: each tells the caller what to do. Errno exists only in the `fuse` crate.

use std::io;

/// What can go wrong in the engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path (the field) is not a volume: make one with `oncefs mkfs`.
    #[error("{0} is not an oncefs volume: give a directory in which oncefs mkfs made one")]
    NotAVolume(String),
    /// The creation of the volume (the field) did not finish: repeat it with `oncefs mkfs`.
    #[error("the volume {0} was not made to its end: run oncefs mkfs {0} again")]
    Unfinished(String),
    /// Something else is at the place of the new volume: choose another path or remove it.
    #[error("{0}")]
    InTheWay(String),
    /// A newer oncefs wrote the volume: use that.
    #[error("the volume has format version {found}, this oncefs reads up to {known}: use a newer oncefs")]
    NewerFormat {
        /// Version in the superblock.
        found: u32,
        /// Newest version that this program reads.
        known: u32,
    },
    /// Users other than root can change the volume: the message says how to prevent it.
    #[error("{0}")]
    Exposed(String),
    /// Another process has the volume (the field) open: unmount it there.
    #[error("the volume {0} is in use by another process: unmount it first (oncefs umount DIR)")]
    InUse(String),
    /// Another program holds a device or file that the volume needs (the field): end that program first.
    #[error("{0} is held by another volume, mount or program: end that first (see lsblk {0} and fuser -v {0})")]
    Held(String),
    /// Bytes on disk contradict their checksum, their bounds or each other: run fsck, or restore the file.
    #[error("{what} is damaged: {detail}")]
    Corrupt {
        /// The structure and its place.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A device, a file or the record store failed.
    #[error("{what}: {source}")]
    Io {
        /// The action that failed.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The data area, or the host file system below it, is full: free space, then try again (see
    /// [`crate::Store::make_room`]).
    #[error("no space left")]
    NoSpace,
    /// The host file system is full, and the volume has released everything that it had set aside there: free some
    /// space.
    #[error(
        "the file system that holds {directory} is full: free at least {} MiB there; until then the volume can be \
         read (mount it with -o ro, check it with fsck -n)", .bytes.div_ceil(1 << 20)
    )]
    HostFull {
        /// The volume.
        directory: String,
        /// How much.
        bytes: u64,
    },
    /// The volume was opened read-only, or an earlier failure (the field) made it so until it is opened again.
    #[error("the volume is read-only: {0}")]
    ReadOnly(String),
    /// A range has more parts of its map than fit into one commit group, because another program wrote there: split it
    /// again (see [`crate::Store::parts`]).
    #[error("the range is too large for one change")]
    TooLargeForGroup,
    /// The map was detached (its file truncated to zero or deleted) meanwhile: look up the file's map again.
    #[error("the map was detached")]
    MapDetached,
    /// An argument is out of its range; the message gives the range.
    #[error("{0}")]
    Invalid(String),
}

/// Result of the engine's operations.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Wraps an I/O error with the action that failed. A full host file system or quota becomes `NoSpace`.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::NoSpace,
            _ => Self::Io { what: what.into(), source },
        }
    }

    /// A copy of the error, for each of several callers of one failed action. The system's error number stays.
    pub fn repeated(&self) -> Self {
        match self {
            Self::NotAVolume(path) => Self::NotAVolume(path.clone()),
            Self::InTheWay(why) => Self::InTheWay(why.clone()),
            Self::Unfinished(volume) => Self::Unfinished(volume.clone()),
            Self::NewerFormat { found, known } => Self::NewerFormat { found: *found, known: *known },
            Self::Exposed(why) => Self::Exposed(why.clone()),
            Self::InUse(volume) => Self::InUse(volume.clone()),
            Self::Held(device) => Self::Held(device.clone()),
            Self::Corrupt { what, detail } => Self::Corrupt { what: what.clone(), detail: detail.clone() },
            Self::Io { what, source } => Self::Io { what: what.clone(), source: repeated_io(source) },
            Self::NoSpace => Self::NoSpace,
            Self::HostFull { directory, bytes } => Self::HostFull { directory: directory.clone(), bytes: *bytes },
            Self::ReadOnly(why) => Self::ReadOnly(why.clone()),
            Self::TooLargeForGroup => Self::TooLargeForGroup,
            Self::MapDetached => Self::MapDetached,
            Self::Invalid(why) => Self::Invalid(why.clone()),
        }
    }

    /// The error for a structure whose bytes cannot be trusted.
    pub fn corrupt(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), detail: detail.into() }
    }
}

fn repeated_io(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_several_get_is_the_same_for_each() {
        let io = Error::Io { what: "flushing the log".to_owned(), source: io::Error::from_raw_os_error(libc::EIO) };
        let full = Error::HostFull { directory: "/srv".to_owned(), bytes: 7 };
        for error in [io, full, Error::NoSpace, Error::corrupt("a page", "why"), Error::ReadOnly("why".to_owned())] {
            let repeated = error.repeated();
            assert_eq!(format!("{error:?}"), format!("{repeated:?}"));
        }
    }
}
