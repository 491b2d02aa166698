//! Converts between the types of `fs` and those of the kernel's protocol.

use std::time::Duration;

use oncefs_engine::BLOCK_BYTES;
use oncefs_fs::{Attributes, FileFlags, SetTime, Timestamp};
use oncefs_transport::protocol::attributes::{Attributes as Shown, Entry, Statx, Time};
use oncefs_transport::protocol::operation;

/// Unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;

/// How long the kernel may cache names and attributes: longer than any mount lives.
pub(crate) const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Attributes as stat(2) shows them.
pub(crate) fn shown(attributes: &Attributes) -> Shown {
    Shown {
        inode: attributes.ino.0,
        size: attributes.size,
        blocks: attributes.blocks * (BLOCK_BYTES as u64 / SECTOR_BYTES),
        atime: time(attributes.atime),
        mtime: time(attributes.mtime),
        ctime: time(attributes.ctime),
        mode: attributes.kind.mode_bits() | attributes.permissions,
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.rdev,
        block_bytes: BLOCK_BYTES as u32,
    }
}

/// The inode that a name leads to.
pub(crate) fn entry(attributes: &Attributes) -> Entry {
    Entry {
        inode: attributes.ino.0,
        generation: attributes.generation.into(),
        name_valid: FOREVER,
        attributes_valid: FOREVER,
        attributes: shown(attributes),
    }
}

/// A name without an inode, which the kernel caches.
pub(crate) fn no_entry() -> Entry {
    Entry { name_valid: FOREVER, attributes_valid: FOREVER, ..Entry::default() }
}

/// What statx(2) shows.
pub(crate) fn statx(attributes: &Attributes, flags: FileFlags) -> Statx {
    /// Each flag's bit, from linux/stat.h.
    const BITS: [(libc::c_int, FileFlags); 3] = [
        (libc::STATX_ATTR_IMMUTABLE, FileFlags::IMMUTABLE),
        (libc::STATX_ATTR_APPEND, FileFlags::APPEND_ONLY),
        (libc::STATX_ATTR_NODUMP, FileFlags::NO_DUMP),
    ];
    let bits = |is_set: fn(FileFlags, FileFlags) -> bool| {
        BITS.iter().filter(|(_, flag)| is_set(flags, *flag)).map(|(bit, _)| *bit as u64).sum()
    };
    Statx {
        attributes: shown(attributes),
        birth: Some(time(attributes.btime)),
        flags: bits(FileFlags::contains),
        flags_known: bits(|_, _| true),
    }
}

fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// The time that the kernel sent.
pub(crate) fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

pub(crate) fn set_time(time: operation::SetTime) -> SetTime {
    match time {
        operation::SetTime::Now => SetTime::Now,
        operation::SetTime::At(time) => SetTime::At(timestamp(time)),
    }
}

/// Whether a file is opened for writing, by the flags of open(2).
pub(crate) fn writes(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

#[cfg(test)]
mod tests {
    use oncefs_fs::{FileKind, Ino};

    use super::*;

    fn sample() -> Attributes {
        let time = |seconds| Timestamp { seconds, nanoseconds: 800_000_000 };
        Attributes {
            ino: Ino(7),
            generation: 3,
            kind: FileKind::Fifo,
            permissions: 0o4751,
            nlink: 2,
            uid: 10,
            gid: 11,
            rdev: 0,
            size: 12,
            blocks: 5,
            atime: time(-2),
            mtime: time(i64::MAX),
            ctime: time(i64::MIN),
            btime: time(1),
        }
    }

    #[test]
    fn a_mode_has_type_and_permissions_and_blocks_are_sectors() {
        let shown = shown(&sample());
        assert_eq!((shown.mode, shown.blocks), (libc::S_IFIFO | 0o4751, 40));
        assert_eq!(shown.atime, Time { seconds: -2, nanoseconds: 800_000_000 });
        assert_eq!(entry(&sample()).generation, 3);
        assert_eq!(no_entry().inode, 0);
    }

    #[test]
    fn statx_shows_the_birth_and_the_flags_that_are_set() {
        let shown = statx(&sample(), FileFlags::APPEND_ONLY.with(FileFlags::NO_ATIME));
        assert_eq!(shown.birth, Some(Time { seconds: 1, nanoseconds: 800_000_000 }));
        assert_eq!((shown.flags, shown.flags_known), (0x20, 0x70));
    }

    #[test]
    fn whoever_may_write_has_opened_for_writing() {
        assert_eq!([libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR].map(writes), [false, true, true]);
    }
}
