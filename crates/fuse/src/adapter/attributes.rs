//! Attributes of an inode, and of the file system.

use oncefs_engine::BLOCK_BYTES;
use oncefs_fs::{FileSystem, Ino, NAME_BYTES_MAX, SetAttributes};
use oncefs_transport::Reply;
use oncefs_transport::protocol::attributes::Statfs;
use oncefs_transport::protocol::operation::SetAttributes as Asked;

use super::Adapter;
use crate::convert::{FOREVER, set_time, statx, timestamp};
use crate::durable::reply_durably;
use crate::errno::errno;
use crate::privileges::Credentials;
use crate::reply::{reply_attributes, reply_with};

impl Adapter {
    pub(super) fn getattr(&self, ino: Ino, reply: Reply) {
        reply_attributes(self.file_system.getattr(ino).map_err(|error| errno(&error)), reply);
    }

    pub(super) fn statx(&self, ino: Ino, reply: Reply) {
        let file_system = &self.file_system;
        let found = file_system.getattr(ino).and_then(|attributes| Ok(statx(&attributes, file_system.flags(ino)?)));
        reply_with(found.map_err(|error| errno(&error)), reply, |reply, statx| reply.statx(&statx, FOREVER));
    }

    pub(super) fn setattr(&self, credentials: Credentials, ino: Ino, asked: &Asked, reply: Reply) {
        let drops = asked.uid.or(asked.gid).is_some() || asked.kills_privileges;
        let set = SetAttributes {
            permissions: asked.mode.map(|mode| mode & 0o7777),
            uid: asked.uid,
            gid: asked.gid,
            size: asked.size,
            atime: asked.atime.map(set_time),
            mtime: asked.mtime.map(set_time),
            ctime: asked.ctime.map(timestamp),
            privileges: credentials.privileges_left(&self.file_system, ino, drops),
            // Without a size to set, only the kernel itself passes a handle.
            is_write_back: asked.handle.is_some() && asked.size.is_none(),
        };
        let changed = self.file_system.setattr(ino, &set);
        let again = move |file_system: &FileSystem| file_system.setattr(ino, &set);
        let (file_system, has_to_be) = (self.file_system.clone(), self.config.flags.is_sync());
        self.reply_with_room(changed, again, move |result| {
            reply_durably(&file_system, has_to_be, result, move |answer| reply_attributes(answer, reply));
        });
    }

    pub(super) fn statfs(&self, reply: Reply) {
        let space = self.file_system.statfs();
        reply.statfs(&Statfs {
            blocks: space.total,
            blocks_free: space.available,
            blocks_available: space.available,
            files: 0,
            files_free: 0,
            block_bytes: BLOCK_BYTES as u32,
            name_bytes_max: NAME_BYTES_MAX as u32,
        });
    }
}
