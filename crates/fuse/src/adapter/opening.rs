//! Opens and closes files: truncates them, and notes that they are open.

use oncefs_fs::{Ino, Result, SetAttributes};
use oncefs_transport::Reply;
use oncefs_transport::flags::opened;

use super::Adapter;
use crate::convert::writes;
use crate::durable::{file_handle, reply_durably};
use crate::privileges::Credentials;
use crate::reply::reply_with;

impl Adapter {
    /// `flags` as in open(2). `kills_privileges`: an open with O_TRUNC by a caller that may not keep set-user-id.
    pub(super) fn open(&self, credentials: Credentials, ino: Ino, flags: i32, kills_privileges: bool, reply: Reply) {
        let truncates = flags & libc::O_TRUNC != 0;
        let allowed = self.check_opened(ino, flags);
        let truncated = allowed.and_then(|()| match truncates {
            true => self.truncate_opened(credentials, ino, kills_privileges),
            false => Ok(()),
        });
        let handle = truncated.map(|()| {
            self.note_opened(ino, flags);
            file_handle(self.file_system.opened(ino), flags)
        });
        let has_to_be = truncates && self.config.flags.is_sync();
        reply_durably(&self.file_system, has_to_be, handle, move |answer| {
            reply_with(answer, reply, |reply, handle| reply.opened(handle, opened::KEEP_CACHE));
        });
    }

    pub(super) fn release(&self, ino: Ino, flags: i32, reply: Reply) {
        if writes(flags) {
            self.kernel_cache.writer_released(ino);
        }
        self.kernel_cache.released(ino);
        reply.ok();
    }

    /// Notes that a file is open.
    pub(super) fn note_opened(&self, ino: Ino, flags: i32) {
        self.kernel_cache.opened();
        if writes(flags) {
            self.kernel_cache.writer_opened(ino);
        }
    }

    /// Refuses an open that the file's flags forbid.
    fn check_opened(&self, ino: Ino, flags: i32) -> Result<()> {
        match writes(flags) {
            true => self.file_system.check_opened_to_write(ino, flags & libc::O_APPEND != 0),
            false => Ok(()),
        }
    }

    fn truncate_opened(&self, credentials: Credentials, ino: Ino, kills_privileges: bool) -> Result<()> {
        let privileges = credentials.privileges_left(&self.file_system, ino, kills_privileges);
        let set = SetAttributes { size: Some(0), privileges, ..SetAttributes::default() };
        self.file_system.setattr(ino, &set).map(drop)
    }
}
