//! `setattr`: chmod, chown, truncate and utimens, which the kernel sends as one request.

use std::sync::Arc;

use oncefs_engine::Change;

use crate::attributes::flags::check_not_in_snapshot;
use crate::format::acl;
use crate::format::inode::InodeRecord;
use crate::format::xattr;
use crate::inodes::cache::Inode;
use crate::inodes::staged::Staged;
use crate::{Attributes, Error, FileFlags, FileSystem, Ino, Privileges, Result, Timestamp};

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// This one.
    At(Timestamp),
}

/// The attributes to change. None leaves one as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttributes {
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub permissions: Option<u32>,
    /// Owner. A new owner or group clears set-user-id and set-group-id, except on a directory.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size of a regular file, in bytes.
    pub size: Option<u64>,
    /// Time of last access.
    pub atime: Option<SetTime>,
    /// Time of last write. With `size`, None means the time of the call.
    pub mtime: Option<SetTime>,
    /// Time of last change. None means the time of the call.
    pub ctime: Option<Timestamp>,
    /// Which of set-user-id and set-group-id survive a new size, owner or group. A new owner or group never leaves
    /// both.
    pub privileges: Privileges,
    /// The kernel hands over times that it set when a program wrote. The file's flags no longer forbid this.
    pub is_write_back: bool,
}

impl FileSystem {
    /// Changes attributes and returns the new ones. A large file cut short takes several commit groups; a crash between
    /// them leaves it cut less.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `Stale`: the inode does not exist.
    /// - `IsADirectory`, `Invalid`: a size is given and the inode is not a regular file.
    /// - `OperationNotPermitted`: the file is immutable, or append-only and more would change than its times to now.
    /// - `FileTooLarge`: the size is above [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX).
    /// - `NoSpace`: the host's file system is full.
    /// - `Engine`: a device failed, or metadata is damaged.
    pub fn setattr(&self, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        self.check_writable()?;
        let inode = self.inode(ino)?;
        let now = self.clock.now();
        if let Some(size) = set.size {
            inode.lock().check_changeable()?;
            self.truncate(&inode, size, |record| {
                record.mtime = now;
                record.permissions = set.privileges.left_of(record.permissions);
                apply(record, set, now);
            })?;
        }
        // A chmod must also change the ACL; all else was set along with the size.
        if (set.size.is_none() || set.permissions.is_some()) && !self.set_times_of_orphan(&inode, set, now) {
            self.set_fields(&inode, set, now)?;
        }
        let attributes = inode.lock().attributes(ino);
        Ok(attributes)
    }

    /// Sets the times of an orphan in memory alone, because no crash leaves an orphan. The kernel sends the time of
    /// every removal as a request of its own. False: the change sets more than times, or the inode is not an orphan.
    fn set_times_of_orphan(&self, inode: &Arc<Inode>, set: &SetAttributes, now: Timestamp) -> bool {
        let has_names = inode.lock().nlink > 0;
        if has_names || !set.is_times_alone() || !self.orphans.hold(inode) {
            return false;
        }
        let mut record = inode.lock();
        let stays_in_memory = record.nlink == 0 && set.check_allowed_by(record.flags).is_ok();
        if stays_in_memory {
            apply(&mut record, set, now);
        }
        stays_in_memory
    }

    fn set_fields(&self, inode: &Arc<Inode>, set: &SetAttributes, now: Timestamp) -> Result<()> {
        let _room = self.store.room_for_records();
        let inodes = [inode.clone()];
        let mut staged = Staged::lock(&inodes);
        set.check_allowed_by(staged.get(inode.ino).flags)?;
        let mut change = Change::new();
        if let Some(permissions) = set.permissions
            && let Some(mut list) = self.read_acl(inode.ino, staged.get(inode.ino), acl::ACCESS)?
        {
            list.set_mode(permissions);
            change.put(xattr::key(inode.ino, acl::ACCESS), xattr::encode(inode.ino, &list.encode()));
        }
        apply(staged.edit(inode.ino), set, now);
        staged.publish(&self.store, change)
    }
}

impl SetAttributes {
    fn is_times_alone(&self) -> bool {
        self.permissions.or(self.uid).or(self.gid).is_none() && self.size.is_none()
    }

    /// Refuses what the flags of the inode forbid. Setting times to now is an exception: a caller that may append may
    /// do it. A kernel that keeps the times of writes sends a time instead of "now": it is now if it equals the
    /// request's ctime.
    fn check_allowed_by(&self, flags: FileFlags) -> Result<()> {
        check_not_in_snapshot(flags)?;
        let is_now = |time: Option<SetTime>| match time {
            Some(SetTime::At(at)) => self.ctime == Some(at),
            Some(SetTime::Now) | None => true,
        };
        let is_touch = self.permissions.or(self.uid).or(self.gid).is_none() && is_now(self.atime) && is_now(self.mtime);
        let is_forbidden = flags.contains(FileFlags::IMMUTABLE) || flags.contains(FileFlags::APPEND_ONLY) && !is_touch;
        if is_forbidden && !self.is_write_back { Err(Error::OperationNotPermitted) } else { Ok(()) }
    }
}

/// Sets everything but the size.
fn apply(record: &mut InodeRecord, set: &SetAttributes, now: Timestamp) {
    if (set.uid.is_some() || set.gid.is_some()) && !record.is_directory() {
        let privileges = match set.privileges {
            Privileges::Kept => Privileges::Dropped { is_group_member: true },
            dropped => dropped,
        };
        record.permissions = privileges.left_of(record.permissions);
    }
    record.uid = set.uid.unwrap_or(record.uid);
    record.gid = set.gid.unwrap_or(record.gid);
    record.permissions = set.permissions.map_or(record.permissions, |bits| bits & 0o7777);
    record.atime = time(set.atime, record.atime, now);
    record.mtime = time(set.mtime, record.mtime, now);
    record.ctime = set.ctime.unwrap_or(now);
    debug_assert_eq!(record.permissions & !0o7777, 0, "permissions {:o} have type bits", record.permissions);
}

fn time(set: Option<SetTime>, old: Timestamp, now: Timestamp) -> Timestamp {
    match set {
        None => old,
        Some(SetTime::Now) => now,
        Some(SetTime::At(time)) => time,
    }
}
