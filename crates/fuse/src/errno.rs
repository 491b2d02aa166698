//! The one place where errors become errno.

use oncefs_fs::Error;
use oncefs_transport::Errno;

/// The errno for the calling program. Details that a number cannot carry go to the log.
pub(crate) fn errno(error: &Error) -> Errno {
    Errno::new(match error {
        Error::NotFound => libc::ENOENT,
        Error::Stale => libc::ESTALE,
        Error::Exists => libc::EEXIST,
        Error::NotADirectory => libc::ENOTDIR,
        Error::IsADirectory => libc::EISDIR,
        Error::NotEmpty => libc::ENOTEMPTY,
        Error::NameTooLong => libc::ENAMETOOLONG,
        Error::NoSpace => libc::ENOSPC,
        Error::ReadOnly(_) | Error::InSnapshot => libc::EROFS,
        Error::Invalid(_) => libc::EINVAL,
        Error::PermissionDenied => libc::EACCES,
        Error::OperationNotPermitted => libc::EPERM,
        Error::TooManyLinks => libc::EMLINK,
        Error::NoData => libc::ENODATA,
        Error::Range => libc::ERANGE,
        Error::TooBig | Error::ListTooBig => libc::E2BIG,
        Error::FileTooLarge => libc::EFBIG,
        Error::NoSuchOffset => libc::ENXIO,
        Error::NotSupported | Error::NeverCompressed => libc::EOPNOTSUPP,
        Error::Engine(oncefs_engine::Error::HostFull { .. }) => libc::ENOSPC,
        Error::Engine(error) => {
            log::error!("{error}{}", way_out(error));
            libc::EIO
        }
    })
}

/// The remedy for an error that programs see as EIO, for an administrator.
fn way_out(error: &oncefs_engine::Error) -> &'static str {
    match error {
        oncefs_engine::Error::Corrupt { .. } => {
            " (a program got EIO: oncefs scrub names damaged files, oncefs fsck -y repairs the unmounted volume)"
        }
        oncefs_engine::Error::Io { .. } => " (a program got EIO: the kernel's log may say what the device lacks)",
        _ => "",
    }
}

/// The errno for accepted data that did not become durable.
pub(crate) fn lost(error: &Error) -> Errno {
    match error {
        Error::ReadOnly(_) => Errno::new(libc::EIO),
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
    fn the_log_says_what_to_do_about_damage_and_about_a_failing_device() {
        let damage = oncefs_engine::Error::corrupt("inode 7", "its checksum is wrong");
        assert!(way_out(&damage).contains("oncefs scrub"));
        let failed = oncefs_engine::Error::io("reading the log", std::io::Error::from_raw_os_error(libc::EIO));
        assert!(way_out(&failed).contains("kernel's log"));
        assert_eq!(way_out(&oncefs_engine::Error::TooLargeForGroup), "");
    }

    #[test]
    fn a_full_disk_and_a_failed_volume_keep_their_meaning_through_the_layers() {
        assert_eq!(errno(&Error::from(oncefs_engine::Error::NoSpace)).code(), libc::ENOSPC);
        let failed = oncefs_engine::Error::ReadOnly("a write failed".to_owned());
        assert_eq!(errno(&Error::from(failed)).code(), libc::EROFS);
    }
}
