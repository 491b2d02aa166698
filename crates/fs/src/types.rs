//! The types of the interface: inode numbers, kinds of files, attributes, callers, times, and the clock that gives them.

/// Number of an inode. Never used again, unless a crash took the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(1);
}

/// The kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl FileKind {
    /// The kind that the type bits of a mode stand for. None: no known kind.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & libc::S_IFMT {
            libc::S_IFREG => Self::Regular,
            libc::S_IFDIR => Self::Directory,
            libc::S_IFLNK => Self::Symlink,
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFSOCK => Self::Socket,
            libc::S_IFCHR => Self::CharDevice,
            libc::S_IFBLK => Self::BlockDevice,
            _ => return None,
        })
    }

    /// The type bits of a mode (`S_IFMT`) that stand for this kind.
    pub fn mode_bits(self) -> u32 {
        match self {
            Self::Regular => libc::S_IFREG,
            Self::Directory => libc::S_IFDIR,
            Self::Symlink => libc::S_IFLNK,
            Self::Fifo => libc::S_IFIFO,
            Self::Socket => libc::S_IFSOCK,
            Self::CharDevice => libc::S_IFCHR,
            Self::BlockDevice => libc::S_IFBLK,
        }
    }
}

/// Flags of an inode, as chattr(1) sets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileFlags(u16);

impl FileFlags {
    /// Nothing of it can be changed; a directory takes and gives no names (`chattr +i`).
    pub const IMMUTABLE: Self = Self(1);
    /// It can only grow; a directory gives no names (`chattr +a`).
    pub const APPEND_ONLY: Self = Self(1 << 1);
    /// dump(8) leaves it out (`chattr +d`).
    pub const NO_DUMP: Self = Self(1 << 2);
    /// Reads leave the time of last access (`chattr +A`).
    pub const NO_ATIME: Self = Self(1 << 3);
    /// It is part of a snapshot: neither it nor anything of it changes, for root either. No program sets or sees this.
    pub const SNAPSHOT: Self = Self(1 << 4);
    const ALL: u16 = 0b1_1111;

    /// From the bits that are stored. None: a bit has no meaning.
    pub fn from_bits(bits: u16) -> Option<Self> {
        (bits & !Self::ALL == 0).then_some(Self(bits))
    }

    /// The bits as they are stored.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Whether all of `flags` are set.
    pub fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These and `other`.
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in which this differs from `other`.
    pub fn changed_from(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    /// These without `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the present content of the inode must stay.
    pub fn forbids_overwriting(self) -> bool {
        self.0 & (Self::IMMUTABLE.0 | Self::APPEND_ONLY.0 | Self::SNAPSHOT.0) != 0
    }
}

/// What `stat` shows of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub ino: Ino,
    /// Distinguishes inodes with the same number, of different volumes or before and after a crash (NFS handles).
    pub generation: u32,
    /// Kind of file.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub permissions: u32,
    /// Number of names. For a directory: 2, and 1 for each subdirectory.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for device files.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Blocks of 4 KiB mapped or reserved. Shared blocks count in full.
    pub blocks: u64,
    /// Time of the last read.
    pub atime: Timestamp,
    /// Time of the last write.
    pub mtime: Timestamp,
    /// Time of the last change of the inode.
    pub ctime: Timestamp,
    /// Time of creation.
    pub btime: Timestamp,
}

/// The process that creates a file.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Owner of the new file.
    pub uid: u32,
    /// Group of the new file, unless the directory passes on its own (set-group-id).
    pub gid: u32,
    /// Permission bits to clear, unless the directory has a default ACL.
    pub umask: u32,
    /// The labels that the kernel's security modules give the new file, together at most [`LABELS_BYTES_MAX`] bytes.
    pub labels: &'a [Label<'a>],
}

/// A security label for a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label<'a> {
    /// The name of the extended attribute that holds it, such as `security.selinux`.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// Bytes of names and values of all labels of one new file. SELinux, Smack and AppArmor use less than 300.
pub const LABELS_BYTES_MAX: usize = 8 << 10;

/// A point in time: seconds since 1970 (negative before) and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// Which of set-user-id and set-group-id a change of a file leaves. Linux decides this in
/// `setattr_should_drop_suidgid`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privileges {
    /// Both stay: the caller has CAP_FSETID, or the kernel has dropped them already.
    #[default]
    Kept,
    /// Set-user-id goes, and set-group-id too.
    Dropped {
        /// Whether the caller belongs to the file's group. Then set-group-id stays where the group may not execute.
        is_group_member: bool,
    },
}

impl Privileges {
    /// The permission bits that are left.
    pub fn left_of(self, permissions: u32) -> u32 {
        let Privileges::Dropped { is_group_member } = self else { return permissions };
        let stays = is_group_member && permissions & libc::S_IXGRP == 0;
        permissions & !libc::S_ISUID & if stays { !0 } else { !libc::S_ISGID }
    }
}

/// A source of the current time.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// The kernel's coarse clock (`CLOCK_REALTIME_COARSE`).
///
/// With writeback caching the kernel takes the times of writes from it. A finer clock here could make a new file look
/// newer than one written a moment later.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid timespec to write to; the clock exists on every Linux, so the call cannot fail.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
        debug_assert!((0..1_000_000_000).contains(&time.tv_nsec), "the clock gave {} ns", time.tv_nsec);
        Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_way_through_its_mode_bits() {
        for kind in [
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Symlink,
            FileKind::Fifo,
            FileKind::Socket,
            FileKind::CharDevice,
            FileKind::BlockDevice,
        ] {
            assert_eq!(FileKind::from_mode(kind.mode_bits() | 0o644), Some(kind));
        }
        assert_eq!(FileKind::from_mode(0), None);
    }

    #[test]
    fn privileges_go_unless_the_group_of_the_caller_may_not_execute_anyway() {
        for (privileges, permissions, left) in [
            (Privileges::Kept, 0o6777, 0o6777),
            (Privileges::Dropped { is_group_member: true }, 0o7777, 0o1777),
            (Privileges::Dropped { is_group_member: true }, 0o6767, 0o2767),
            (Privileges::Dropped { is_group_member: false }, 0o6767, 0o767),
            (Privileges::Dropped { is_group_member: false }, 0o1644, 0o1644),
        ] {
            assert_eq!(privileges.left_of(permissions), left, "{privileges:?} of {permissions:o}");
        }
    }

    #[test]
    fn the_system_clock_agrees_with_the_standard_library() {
        let library = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
        assert!((SystemClock.now().seconds - library).abs() <= 1);
    }
}
