//! Looks up, creates and renames names.

use oncefs_fs::{Attributes, Error, Ino, RenameMode, Result};
use oncefs_transport::flags::opened;
use oncefs_transport::protocol::header::InHeader;
use oncefs_transport::{Errno, Operation, Reply};

use super::Adapter;
use crate::caller::{caller, labels};
use crate::convert::{entry, no_entry};
use crate::durable::{file_handle, reply_durably};
use crate::errno::errno;
use crate::reply::{reply_entry, reply_with};

impl Adapter {
    pub(super) fn lookup(&self, parent: Ino, name: &[u8], reply: Reply) {
        match self.file_system.lookup(parent, name) {
            // The kernel remembers that the name is free.
            Err(Error::NotFound) => reply.entry(&no_entry()),
            result => {
                if let Ok(attributes) = &result {
                    self.lookups.add(attributes.ino);
                }
                reply_entry(result.map_err(|error| errno(&error)), reply);
            }
        }
    }

    pub(super) fn readlink(&self, ino: Ino, reply: Reply) {
        let target = self.file_system.readlink(ino).map_err(|error| errno(&error));
        reply_with(target, reply, |reply, target| reply.data(&target));
    }

    /// Answers a request that creates an inode in the directory that the header names.
    pub(super) fn make(&self, header: &InHeader, operation: Operation<'_>, reply: Reply) {
        let (parent, file_system) = (Ino(header.inode), &self.file_system);
        let labels = operation.extensions().map_or_else(Vec::new, labels);
        let caller = |umask| caller(header, umask, &labels);
        match operation {
            Operation::Symlink { name, target, .. } => {
                self.reply_named(file_system.symlink(parent, name, target, &caller(0)), reply);
            }
            Operation::Mknod { name, mode, umask, rdev, .. } => {
                self.reply_named(file_system.mknod(parent, name, mode, rdev, &caller(umask)), reply);
            }
            Operation::Mkdir { name, mode, umask, .. } => {
                self.reply_named(file_system.mkdir(parent, name, mode, &caller(umask)), reply);
            }
            Operation::Create { name, mode, umask, flags, .. } => {
                self.reply_created(file_system.mknod(parent, name, mode, 0, &caller(umask)), flags, reply);
            }
            Operation::Tmpfile { mode, umask, flags, .. } => {
                self.reply_created(file_system.tmpfile(parent, mode, &caller(umask)), flags, reply);
            }
            other => unreachable!("{other:?} makes no inode"),
        }
    }

    /// Replies with a new open file. From then on the kernel knows it, with or without a name.
    fn reply_created(&self, made: Result<Attributes>, flags: i32, reply: Reply) {
        let created = made.map(|attributes| {
            self.lookups.add(attributes.ino);
            self.note_opened(attributes.ino, flags);
            (entry(&attributes), file_handle(self.file_system.new_handle(), flags))
        });
        reply_durably(&self.file_system, self.config.flags.syncs_names(), created, move |answer| {
            reply_with(answer, reply, |reply, (entry, handle)| reply.created(&entry, handle, opened::KEEP_CACHE));
        });
    }

    /// `flags` as in renameat2(2).
    pub(super) fn rename(
        &self,
        header: &InHeader,
        (parent, old): (Ino, &[u8]),
        (new_parent, new): (Ino, &[u8]),
        flags: u32,
        reply: Reply,
    ) {
        let mode = match flags & !libc::RENAME_WHITEOUT {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return reply.error(Errno::new(libc::EINVAL)),
        };
        let renamed = if flags & libc::RENAME_WHITEOUT != 0 {
            self.file_system.rename_leaving_whiteout(parent, old, new_parent, new, mode, &caller(header, 0, &[]))
        } else {
            self.file_system.rename(parent, old, new_parent, new, mode)
        };
        self.reply_orphaning(renamed, reply);
    }
}
