//! Errors of file system operations. The `fuse` crate turns them into errno.

/// Errors of file system operations.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory has no such name, or was deleted.
    #[error("no such file or directory")]
    NotFound,
    /// The inode does not exist any more.
    #[error("the file was deleted")]
    Stale,
    /// The name exists already.
    #[error("the name exists already")]
    Exists,
    /// The operation needs a directory.
    #[error("not a directory")]
    NotADirectory,
    /// The operation needs a file and got a directory.
    #[error("is a directory")]
    IsADirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name is longer than [`crate::NAME_BYTES_MAX`], or the target of a symbolic link too long.
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    /// The data area or the host's file system is full.
    #[error("no space left")]
    NoSpace,
    /// The volume or the mount takes no changes; the message says why.
    #[error("the volume is read-only: {0}")]
    ReadOnly(String),
    /// The inode is part of a snapshot.
    #[error("it is part of a snapshot, which never changes")]
    InSnapshot,
    /// An argument is invalid; the message says which.
    #[error("{0}")]
    Invalid(&'static str),
    /// The attribute does not apply to this kind of file.
    #[error("permission denied")]
    PermissionDenied,
    /// The operation does not apply to this kind of file.
    #[error("operation not permitted")]
    OperationNotPermitted,
    /// The file already has [`crate::LINKS_MAX`] names.
    #[error("too many links")]
    TooManyLinks,
    /// The inode has no such extended attribute.
    #[error("no such attribute")]
    NoData,
    /// The name of an extended attribute is too long.
    #[error("the attribute's name is too long")]
    Range,
    /// The value of an extended attribute is too long.
    #[error("the attribute's value is longer than 64 KiB")]
    TooBig,
    /// The names of an inode's extended attributes are longer than listxattr(2) can return.
    #[error("the names of the attributes take more than 64 KiB; remove some by name")]
    ListTooBig,
    /// The file would be larger than [`crate::FILE_BYTES_MAX`].
    #[error("the file would be too large")]
    FileTooLarge,
    /// No data or hole lies at or after the offset.
    #[error("no data or hole at or after this offset")]
    NoSuchOffset,
    /// The volume takes no policies for compression.
    #[error("the volume was never mounted with compression; mount it with -o compress=later once")]
    NeverCompressed,
    /// oncefs does not support this.
    #[error("not supported")]
    NotSupported,
    /// The engine failed: a device, damaged metadata, or a setting.
    #[error(transparent)]
    Engine(oncefs_engine::Error),
}

/// Result of file system operations.
pub type Result<T> = std::result::Result<T, Error>;

impl From<oncefs_engine::Error> for Error {
    fn from(error: oncefs_engine::Error) -> Self {
        match error {
            oncefs_engine::Error::NoSpace => Self::NoSpace,
            oncefs_engine::Error::ReadOnly(why) => Self::ReadOnly(why),
            oncefs_engine::Error::MapDetached => Self::Stale,
            other => Self::Engine(other),
        }
    }
}

impl From<Error> for oncefs_engine::Error {
    /// For closures that the engine calls.
    fn from(error: Error) -> Self {
        match error {
            Error::Engine(error) => error,
            Error::NoSpace => Self::NoSpace,
            Error::ReadOnly(why) => Self::ReadOnly(why),
            other => Self::Invalid(other.to_string()),
        }
    }
}

impl Error {
    /// A record whose bytes are damaged.
    pub(crate) fn corrupt(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Engine(oncefs_engine::Error::corrupt(what, detail))
    }
}
