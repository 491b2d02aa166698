//! Flags of an inode as chattr(1) sets them: what they forbid, which the kernel leaves to the file system here.
//!
//! Owns the rules: Linux checks them in its VFS for file systems whose inodes it holds, and does not know of ours. So each
//! operation asks its record. What is allowed to whom stays with the kernel.

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

    /// Sets all flags of a regular file or a directory. What was written before and is not here yet is refused from then
    /// on: the caller fetches it first.
    ///
    /// # Errors
    ///
    /// - `NotSupported`: the inode is neither a regular file nor a directory.
    /// - `Stale`: the inode does not exist.
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `NoSpace`: the host's file system is full.
    /// - `Engine`: the store failed, or metadata is damaged.
    pub fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<()> {
        let _room = self.begin_change()?;
        let inode = self.inode(ino)?;
        let mut record = inode.lock();
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

    /// Refuses to open a file for writing that takes no writes, or that takes them only at its end when they could go
    /// elsewhere.
    ///
    /// # Errors
    ///
    /// - `OperationNotPermitted`: its flags forbid it.
    /// - `Stale`: the inode does not exist.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn check_opened_to_write(&self, ino: Ino, appends: bool) -> Result<()> {
        let flags = self.flags(ino)?;
        permit(!flags.contains(FileFlags::IMMUTABLE) && (appends || !flags.contains(FileFlags::APPEND_ONLY)))
    }

    /// Refuses bytes that change what an append-only file holds, and any bytes for an immutable one. Bytes equal to those
    /// it holds pass: the kernel writes back whole pages.
    pub(crate) fn check_written(&self, inode: &Inode, at: u64, data: &[u8]) -> Result<()> {
        let flags = inode.lock().flags;
        if !flags.forbids_overwriting() {
            return Ok(());
        }
        permit(!flags.contains(FileFlags::IMMUTABLE))?;
        let held = self.read_inode(inode, at, data.len())?;
        permit(data.starts_with(&held))
    }
}

impl InodeRecord {
    /// Refuses a change of owner, mode, times, attributes or names, also of those in a directory.
    pub(crate) fn check_changeable(&self) -> Result<()> {
        permit(!self.flags.forbids_overwriting())
    }

    /// Refuses new names in a directory, and room for bytes in a file.
    pub(crate) fn check_grows(&self) -> Result<()> {
        permit(!self.flags.contains(FileFlags::IMMUTABLE))
    }

    /// Refuses a new range of bytes that does not lie behind the end of an append-only file.
    pub(crate) fn check_range(&self, range: &Range<u64>) -> Result<()> {
        let overwrites = range.start < self.size;
        permit(match overwrites {
            true => !self.flags.forbids_overwriting(),
            false => !self.flags.contains(FileFlags::IMMUTABLE),
        })
    }
}

fn permit(is_allowed: bool) -> Result<()> {
    if is_allowed { Ok(()) } else { Err(Error::OperationNotPermitted) }
}
