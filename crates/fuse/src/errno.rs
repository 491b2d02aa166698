//! The one place where errors become errno.

use fuser::Errno;
use oncefs_fs::Error;

/// What the program that made the call is told. What it cannot be told in a number goes to the log.
pub(crate) fn errno(error: &Error) -> Errno {
    match error {
        Error::NotFound => Errno::ENOENT,
        Error::Stale => Errno::ESTALE,
        Error::Exists => Errno::EEXIST,
        Error::NotADirectory => Errno::ENOTDIR,
        Error::IsADirectory => Errno::EISDIR,
        Error::NotEmpty => Errno::ENOTEMPTY,
        Error::NameTooLong => Errno::ENAMETOOLONG,
        Error::NoSpace => Errno::ENOSPC,
        Error::ReadOnly(_) => Errno::EROFS,
        Error::Invalid(_) => Errno::EINVAL,
        Error::PermissionDenied => Errno::EACCES,
        Error::OperationNotPermitted => Errno::EPERM,
        Error::TooManyLinks => Errno::EMLINK,
        Error::NoData => Errno::ENODATA,
        Error::Range => Errno::ERANGE,
        Error::TooBig | Error::ListTooBig => Errno::E2BIG,
        Error::FileTooLarge => Errno::EFBIG,
        Error::NoSuchOffset => Errno::ENXIO,
        Error::NotSupported => Errno::EOPNOTSUPP,
        Error::Engine(oncefs_engine::Error::HostFull { .. }) => Errno::ENOSPC,
        Error::Engine(error) => {
            log::error!("{error}");
            Errno::EIO
        }
    }
}

/// The errno for data that was accepted and did not become durable.
pub(crate) fn lost(error: &Error) -> Errno {
    match error {
        Error::ReadOnly(_) => Errno::EIO,
        error => errno(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_structure_is_an_input_output_error() {
        let damage = oncefs_engine::Error::corrupt("inode 7", "its checksum is wrong");
        assert_eq!(errno(&Error::from(damage)).code(), libc::EIO);
    }

    #[test]
    fn a_full_disk_and_a_failed_volume_keep_their_meaning_through_the_layers() {
        assert_eq!(errno(&Error::from(oncefs_engine::Error::NoSpace)).code(), libc::ENOSPC);
        let failed = oncefs_engine::Error::ReadOnly("a write failed".to_owned());
        assert_eq!(errno(&Error::from(failed)).code(), libc::EROFS);
    }
}
