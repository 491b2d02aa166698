//! Converts between the types of `fs` and of `fuser`, and says what those mean.

use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, Generation, INodeNo, OpenAccMode, OpenFlags, TimeOrNow};
use oncefs_engine::BLOCK_BYTES;
use oncefs_fs::{Attributes, FileKind, SetTime, Timestamp};

/// Unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(crate) fn file_attr(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.ino.0),
        size: attributes.size,
        blocks: attributes.blocks * (BLOCK_BYTES as u64 / SECTOR_BYTES),
        atime: system_time(attributes.atime),
        mtime: system_time(attributes.mtime),
        ctime: system_time(attributes.ctime),
        crtime: system_time(attributes.btime),
        kind: file_type(attributes.kind),
        perm: attributes.permissions as u16,
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.rdev,
        blksize: BLOCK_BYTES as u32,
        flags: 0,
    }
}

/// Inode 0 tells the kernel that there is none: it remembers that a name is free, or looks an entry of a listing
/// up when it needs it.
pub(crate) fn no_inode(kind: FileKind) -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: file_type(kind),
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES as u32,
        flags: 0,
    }
}

pub(crate) fn generation(attributes: &Attributes) -> Generation {
    Generation(attributes.generation.into())
}

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    // Every i64 of seconds fits; nanoseconds below one second cannot overflow the last of them.
    whole
        .and_then(|time_of| time_of.checked_add(Duration::from_nanos(time.nanoseconds.into())))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The time that the kernel sent. For times before 1970 fuser 0.18 subtracts the nanoseconds from the epoch
/// together with the seconds, where the kernel means them to be added; taking both apart again undoes it.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => Timestamp { seconds: after.as_secs() as i64, nanoseconds: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Timestamp { seconds: (before.as_secs() as i64).wrapping_neg(), nanoseconds: before.subsec_nanos() }
        }
    }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp(time)),
    }
}

/// Whether a file is opened for writing.
pub(crate) fn writes(flags: OpenFlags) -> bool {
    flags.acc_mode() != OpenAccMode::O_RDONLY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_shown_as_they_are_stored() {
        let shown = system_time(Timestamp { seconds: -2, nanoseconds: 800_000_000 });
        assert_eq!(shown, SystemTime::UNIX_EPOCH - Duration::new(1, 200_000_000));
        for seconds in [i64::MIN, -1, 0, 1, i64::MAX] {
            let shown = system_time(Timestamp { seconds, nanoseconds: 0 });
            assert_eq!(shown == SystemTime::UNIX_EPOCH, seconds == 0);
        }
    }

    #[test]
    fn what_fuser_does_to_times_before_1970_is_undone() {
        let sent = Timestamp { seconds: -2, nanoseconds: 800_000_000 };
        let from_fuser = SystemTime::UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(timestamp(from_fuser), sent);
        let after = SystemTime::UNIX_EPOCH + Duration::new(2, 5);
        assert_eq!(timestamp(after), Timestamp { seconds: 2, nanoseconds: 5 });
    }
}
