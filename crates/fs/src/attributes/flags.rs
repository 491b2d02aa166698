//! Inode flags as chattr(1) sets them, and the operations that they forbid.
//!
//! Owns the rules. The Linux VFS checks these flags only for file systems whose inodes it holds, and it does not know
//! the flags of oncefs. So each operation checks its inode record. Permissions stay with the kernel.

use std::ops::Range;

use oncefs_engine::{Change, Compress};

use crate::format::inode::InodeRecord;
use crate::inodes::cache::Inode;
use crate::inodes::staged::Staged;
use crate::{Error, FileFlags, FileKind, FileSystem, Ino, Result};

impl FileSystem {
    /// The flags of an inode.
    ///
    /// # Errors
    ///
    /// - `Stale`: the inode does not exist.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn flags(&self, ino: Ino) -> Result<FileFlags> {
        Ok(self.inode(ino)?.lock().flags)
    }

    /// Sets all flags of a regular file or a directory. From then on, writes that the kernel still holds back are
    /// refused, so the caller fetches them first.
    ///
    /// # Errors
    ///
    /// - `InSnapshot`: the inode is part of a snapshot.
    /// - `NotSupported`: the inode is neither a regular file nor a directory.
    /// - `Stale`: the inode does not exist.
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `NoSpace`: the host's file system is full.
    /// - `Engine`: the store failed, or metadata is damaged.
    pub fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<()> {
        self.set_flags_with(ino, flags, None)
    }

    /// When a file, or what is created in a directory, is compressed, as its attribute says.
    ///
    /// # Errors
    ///
    /// - `Stale`: the inode does not exist.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn compress_override(&self, ino: Ino) -> Result<Option<Compress>> {
        let record = self.inode(ino)?.lock().clone();
        Ok(self.read_overrides(ino, &record)?.compress)
    }

    /// Like [`FileSystem::set_flags`], and sets or removes the attribute for compression together with them.
    ///
    /// # Errors
    ///
    /// As [`FileSystem::set_flags`], and
    ///
    /// - `NoSpace`: the inode has no room for the attribute.
    /// - `NeverCompressed`: the volume was never mounted with compression, and the attribute is not removed.
    pub fn set_flags_and_compression(&self, ino: Ino, flags: FileFlags, compress: Option<Compress>) -> Result<()> {
        self.set_flags_with(ino, flags, Some(compress))
    }

    fn set_flags_with(&self, ino: Ino, flags: FileFlags, compress: Option<Option<Compress>>) -> Result<()> {
        let _room = self.begin_change()?;
        let inodes = [self.inode(ino)?];
        let mut staged = Staged::lock(&inodes);
        staged.get(ino).check_not_in_snapshot()?;
        if !matches!(staged.get(ino).kind, FileKind::Regular | FileKind::Directory) {
            return Err(Error::NotSupported);
        }
        let mut change = Change::new();
        if let Some(compress) = compress {
            if compress.is_some() {
                self.check_takes_compression()?;
            }
            self.put_compression(&mut change, &mut staged, ino, compress)?;
        }
        let record = staged.edit(ino);
        (record.flags, record.ctime) = (flags, self.clock.now());
        staged.publish(&self.store, change)
    }

    /// Refuses to open an immutable file for writing, and an append-only file for anything but appends.
    ///
    /// # Errors
    ///
    /// - `InSnapshot`: the file is part of a snapshot.
    /// - `OperationNotPermitted`: its flags forbid it.
    /// - `Stale`: the inode does not exist.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn check_opened_to_write(&self, ino: Ino, appends: bool) -> Result<()> {
        let flags = self.flags(ino)?;
        check_not_in_snapshot(flags)?;
        permit(!flags.contains(FileFlags::IMMUTABLE) && (appends || !flags.contains(FileFlags::APPEND_ONLY)))
    }

    /// Refuses writes to an immutable file, and writes that change the content of an append-only file. Bytes equal to
    /// the present ones pass, because the kernel writes back whole pages.
    pub(crate) fn check_written(&self, inode: &Inode, at: u64, data: &[u8]) -> Result<()> {
        let flags = inode.lock().flags;
        if !flags.forbids_overwriting() {
            return Ok(());
        }
        check_not_in_snapshot(flags)?;
        permit(!flags.contains(FileFlags::IMMUTABLE))?;
        let held = self.read_inode(inode, at, data.len())?;
        permit(data.starts_with(&held))
    }
}

impl InodeRecord {
    /// Refuses any change of an inode in a snapshot.
    pub(crate) fn check_not_in_snapshot(&self) -> Result<()> {
        check_not_in_snapshot(self.flags)
    }

    /// Refuses a change of owner, mode, times, attributes or names, including the names in a directory.
    pub(crate) fn check_changeable(&self) -> Result<()> {
        self.check_not_in_snapshot()?;
        permit(!self.flags.forbids_overwriting())
    }

    /// Refuses new names in a directory, and room for bytes in a file.
    pub(crate) fn check_grows(&self) -> Result<()> {
        self.check_not_in_snapshot()?;
        permit(!self.flags.contains(FileFlags::IMMUTABLE))
    }

    /// Refuses a range that begins before the end of an append-only file.
    pub(crate) fn check_range(&self, range: &Range<u64>) -> Result<()> {
        self.check_not_in_snapshot()?;
        let overwrites = range.start < self.size;
        permit(match overwrites {
            true => !self.flags.forbids_overwriting(),
            false => !self.flags.contains(FileFlags::IMMUTABLE),
        })
    }
}

/// Refuses any change of an inode with the flags of a snapshot.
pub(crate) fn check_not_in_snapshot(flags: FileFlags) -> Result<()> {
    if flags.contains(FileFlags::SNAPSHOT) { Err(Error::InSnapshot) } else { Ok(()) }
}

fn permit(is_allowed: bool) -> Result<()> {
    if is_allowed { Ok(()) } else { Err(Error::OperationNotPermitted) }
}
