//! The operations that the kernel requests: one variant for each, with its fields checked and named.

use super::attributes::Time;
use super::extensions::Extensions;

/// An operation on the inode in the request's header. A name is not empty and has no NUL byte.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are named as in fuse.h; those that are not obvious are explained")]
pub enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    Getattr {
        handle: Option<u64>,
    },
    /// `flags` and `mask` as in statx(2).
    Statx {
        handle: Option<u64>,
        flags: u32,
        mask: u32,
    },
    Setattr(SetAttributes),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
        extensions: Extensions<'a>,
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        rdev: u32,
        extensions: Extensions<'a>,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        extensions: Extensions<'a>,
    },
    /// A file without a name, opened.
    Tmpfile {
        mode: u32,
        umask: u32,
        flags: i32,
        extensions: Extensions<'a>,
    },
    /// A file with a name, opened.
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        flags: i32,
        kills_privileges: bool,
        extensions: Extensions<'a>,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    /// `flags` as in renameat2(2).
    Rename {
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    /// The header's inode is the new name's directory.
    Link {
        of: u64,
        name: &'a [u8],
    },
    /// `kills_privileges`: an open with O_TRUNC by a caller without CAP_FSETID.
    Open {
        flags: i32,
        kills_privileges: bool,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
        flags: i32,
    },
    /// `write_flags` of `flags::write`.
    Write {
        handle: u64,
        offset: u64,
        data: &'a [u8],
        write_flags: u32,
        flags: i32,
    },
    Statfs,
    Release {
        handle: u64,
        flags: i32,
    },
    Fsync {
        handle: u64,
        is_data_only: bool,
    },
    /// `clears_set_group_id`: with a new access control list, and known only where SETXATTR_EXT was negotiated.
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: i32,
        clears_set_group_id: bool,
    },
    /// A size of 0 asks for the length only.
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Flush {
        handle: u64,
    },
    Opendir {
        flags: i32,
    },
    /// `cookie`: that of the last entry seen, 0 for none. `size`: bytes that fit into the reply.
    Readdir {
        handle: u64,
        cookie: u64,
        size: u32,
    },
    ReaddirPlus {
        handle: u64,
        cookie: u64,
        size: u32,
    },
    Releasedir {
        handle: u64,
    },
    Fsyncdir {
        handle: u64,
        is_data_only: bool,
    },
    Access {
        mask: u32,
    },
    Ioctl {
        handle: u64,
        flags: u32,
        command: u32,
        argument: u64,
        input: &'a [u8],
        output_bytes: u32,
    },
    /// `mode` as in fallocate(2).
    Fallocate {
        handle: u64,
        offset: u64,
        len: u64,
        mode: i32,
    },
    /// `whence` as in lseek(2).
    Lseek {
        handle: u64,
        offset: i64,
        whence: i32,
    },
    /// From the header's inode to `target`.
    CopyFileRange {
        handle: u64,
        offset: u64,
        target: u64,
        target_handle: u64,
        target_offset: u64,
        len: u64,
        flags: u64,
    },
    Syncfs,
    /// The mount ends.
    Destroy,
    /// The number of a request whose caller got a signal.
    Interrupt {
        unique: u64,
    },
    /// Inodes that the kernel no longer holds, each with the number of lookups to take back. There is no reply.
    Forget(Forgotten<'a>),
    /// An operation that this crate does not know. After the reply ENOSYS the kernel does not send it again.
    Unknown,
}

impl<'a> Operation<'a> {
    /// The extensions of a request that creates an inode.
    pub fn extensions(&self) -> Option<&Extensions<'a>> {
        match self {
            Self::Symlink { extensions, .. }
            | Self::Mknod { extensions, .. }
            | Self::Mkdir { extensions, .. }
            | Self::Tmpfile { extensions, .. }
            | Self::Create { extensions, .. } => Some(extensions),
            _ => None,
        }
    }

    /// Whether moving the bytes takes longer than waking a thread on another CPU.
    pub(crate) fn is_long(&self) -> bool {
        const LONG_BYTES: usize = 128 << 10;
        match self {
            Self::Read { size, .. } => *size as usize >= LONG_BYTES,
            Self::Write { data, .. } => data.len() >= LONG_BYTES,
            _ => false,
        }
    }

    /// Whether an answer usually waits for a device.
    pub fn may_wait(&self) -> bool {
        /// A WRITE of this size takes longer than waking a thread.
        const LONG_WRITE_BYTES: usize = 64 << 10;
        match self {
            Self::Read { .. } | Self::Fsync { .. } | Self::Fsyncdir { .. } | Self::Syncfs => true,
            Self::CopyFileRange { .. } | Self::Fallocate { .. } | Self::Lseek { .. } => true,
            Self::Write { data, .. } => data.len() >= LONG_WRITE_BYTES,
            _ => false,
        }
    }
}

/// A change of attributes. `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in fuse.h")]
pub struct SetAttributes {
    pub handle: Option<u64>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    pub ctime: Option<Time>,
    /// A truncation by a caller without CAP_FSETID.
    pub kills_privileges: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the change.
    Now,
    /// This one.
    At(Time),
}

/// Pairs of an inode number and the number of lookups to take back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten<'a> {
    /// One inode.
    One(u64, u64),
    /// Several: a multiple of `PAIR_BYTES`.
    Many(&'a [u8]),
}

impl Forgotten<'_> {
    /// Bytes of one pair.
    pub(crate) const PAIR_BYTES: usize = 16;

    /// Calls back with each inode and its count.
    pub fn each(&self, mut forget: impl FnMut(u64, u64)) {
        match *self {
            Self::One(inode, lookups) => forget(inode, lookups),
            Self::Many(pairs) => {
                let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("half a pair has 8 bytes"));
                pairs.chunks_exact(Self::PAIR_BYTES).for_each(|pair| forget(number(&pair[..8]), number(&pair[8..])));
            }
        }
    }
}
