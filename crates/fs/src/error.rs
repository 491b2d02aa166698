//! What can go wrong with names, in words; the `fuse` crate turns it into errno.

/// Errors of file system operations.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such name.
    #[error("no such file or directory")]
    NotFound,
    /// The inode existed once and is gone.
    #[error("the file was deleted")]
    Stale,
    /// The name is taken.
    #[error("the name exists already")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotADirectory,
    /// Anything but a directory was needed.
    #[error("is a directory")]
    IsADirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// Longer than [`crate::NAME_BYTES_MAX`].
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    /// The data area or the host is full.
    #[error("no space left")]
    NoSpace,
    /// The volume takes no changes.
    #[error("the volume is read-only: {0}")]
    ReadOnly(String),
    /// An argument that has no meaning.
    #[error("{0}")]
    Invalid(&'static str),
    /// The operation needs another kind of file.
    #[error("permission denied")]
    PermissionDenied,
    /// The operation is not for this kind of file.
    #[error("operation not permitted")]
    OperationNotPermitted,
    /// The file has [`crate::LINKS_MAX`] names.
    #[error("too many links")]
    TooManyLinks,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoData,
    /// The name of an extended attribute is too long.
    #[error("the attribute's name is too long")]
    Range,
    /// The value of an extended attribute is too long.
    #[error("the attribute's value is longer than 64 KiB")]
    TooBig,
    /// Beyond [`crate::FILE_BYTES_MAX`].
    #[error("the file would be too large")]
    FileTooLarge,
    /// No data or hole at or after the offset.
    #[error("no data or hole at or after this offset")]
    NoSuchOffset,
    /// oncefs does not do this.
    #[error("not supported")]
    NotSupported,
    /// The engine failed.
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
    /// For what the engine calls.
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
    /// A record whose bytes cannot be trusted.
    pub(crate) fn corrupt(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Engine(oncefs_engine::Error::corrupt(what, detail))
    }
}
