//! Inode flags as chattr(1) sets them, and the operations that they forbid.
//!
//! Owns the rules. The Linux VFS checks these flags only for file systems whose inodes it holds, and it does not know
//! the flags of oncefs. So each operation checks its inode record. Permissions stay with the kernel.

use std::ops::Range;

use oncefs_engine::Change;

use crate::format::inode::{InodeRecord, put_inode};
use crate::inodes::cache::Inode;
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
        let _room = self.begin_change()?;
        let inode = self.inode(ino)?;
        let mut record = inode.lock();
        record.check_not_in_snapshot()?;
        if !matches!(record.kind, FileKind::Regular | FileKind::Directory) {
            return Err(Error::NotSupported);
        }
        let edited = InodeRecord { flags, ctime: self.clock.now(), ..record.clone() };
        let mut change = Change::new();
        put_inode(&mut change, ino, &edited);
        self.store.publish(change)?;
        *record = edited;
        Ok(())
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
