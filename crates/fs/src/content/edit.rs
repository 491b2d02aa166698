//! Inode records that change together with content: size, block count, times and privilege bits in one commit group.

use oncefs_engine::{Change, OnPublish};
use parking_lot::MutexGuard;

use crate::format::inode::{InodeRecord, put_inode};
use crate::inodes::cache::Inode;
use crate::{FileSystem, Ino, Timestamp};

/// Where written bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOrigin {
    /// The kernel's page cache writes back: it has stamped the times and dropped the privileges already.
    PageCache,
    /// A program's write(2).
    Caller {
        /// The caller may not keep set-user-id and set-group-id of what it writes to.
        drop_privileges: bool,
    },
}

impl FileSystem {
    /// Locks the inode, edits its record and adds it to the change: what closures under a map's lock do.
    pub(super) fn edit_inode<'a>(
        &self,
        inode: &'a Inode,
        change: &mut Change,
        edit: impl FnOnce(&mut InodeRecord),
    ) -> Edited<'a> {
        let current = inode.lock();
        let mut edited = current.clone();
        edit(&mut edited);
        self.put_used(change, inode.ino, &current, &edited);
        Edited { current, edited }
    }

    /// As `edit_inode`, where the map grew by `mapped` blocks.
    pub(crate) fn commit_content<'a>(
        &self,
        inode: &'a Inode,
        change: &mut Change,
        mapped: i64,
        edit: impl FnOnce(&mut InodeRecord),
    ) -> Edited<'a> {
        self.edit_inode(inode, change, |record| {
            record.blocks = record.blocks.saturating_add_signed(mapped);
            edit(record);
        })
    }

    /// Adds the record of an inode to a change, and what follows from a use of the file that is another than before.
    pub(super) fn put_used(&self, change: &mut Change, ino: Ino, before: &InodeRecord, after: &InodeRecord) {
        put_inode(change, ino, after);
        self.follow_use(change, ino, before, after);
    }
}

/// A locked inode and what a change on its way makes of it: taken over when that is published, else forgotten.
pub(crate) struct Edited<'a> {
    current: MutexGuard<'a, InodeRecord>,
    edited: InodeRecord,
}

impl OnPublish for Edited<'_> {
    fn published(mut self) {
        *self.current = self.edited;
    }
}

/// What writing does to an inode besides its size.
pub(crate) fn written(record: &mut InodeRecord, origin: WriteOrigin, now: Timestamp) {
    if let WriteOrigin::Caller { drop_privileges } = origin {
        (record.mtime, record.ctime) = (now, now);
        if drop_privileges {
            self::drop_privileges(record);
        }
    }
}

/// Clears set-user-id, and set-group-id where it is not the mark of mandatory locking.
pub(crate) fn drop_privileges(record: &mut InodeRecord) {
    record.permissions &= !libc::S_ISUID;
    if record.permissions & libc::S_IXGRP != 0 {
        record.permissions &= !libc::S_ISGID;
    }
}
