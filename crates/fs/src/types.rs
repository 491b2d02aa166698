//! The words of the interface: inode numbers, kinds of files, what `stat` shows, who calls.

use crate::clock::Timestamp;

/// Number of an inode. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(1);
}

/// What an inode is.
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
    /// The kind in the type bits of a mode.
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

    /// The type bits of a mode.
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

/// What `stat` shows of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Number.
    pub ino: Ino,
    /// Distinguishes inodes with the same number on volumes made one after the other (NFS handles).
    pub generation: u32,
    /// Kind of file.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub permissions: u32,
    /// Number of names; of a directory 2 and one for each subdirectory.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of device files.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Blocks mapped or reserved, counted without sharing.
    pub blocks: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last write.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
}

/// Who creates a file.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Owner of what is created.
    pub uid: u32,
    /// Group of what is created, unless the directory hands down its own.
    pub gid: u32,
    /// Permission bits taken away, unless the directory has a default ACL.
    pub umask: u32,
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
}
