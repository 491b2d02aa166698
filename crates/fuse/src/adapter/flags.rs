//! Answers the ioctls for the flags of files.

use oncefs_fs::{FileFlags, FileSystem, Ino, Result};
use oncefs_transport::{Errno, Reply, may_be_late};

use super::Adapter;
use super::late::can_set_flags;
use crate::durable::reply_durably;
use crate::errno::errno;
use crate::file_flags::{Compressed, FlagRequest, check_may_set, flag_request};
use crate::privileges::Credentials;
use crate::reply::reply_with;

impl Adapter {
    /// Returns a file's flags, or sets them after all earlier writes have reached the daemon.
    pub(super) fn answer_flags(&self, credentials: Credentials, ino: Ino, command: u32, input: &[u8], reply: Reply) {
        let file_system = self.file_system.clone();
        let request = flag_request(command, input).and_then(|request| match request {
            FlagRequest::Set(flags, _) => check_may_set(&file_system, credentials, ino, flags).map(|()| request),
            FlagRequest::Get(_) => Ok(request),
        });
        match request {
            Ok(FlagRequest::Get(form)) => {
                let found = file_system.flags(ino).and_then(|flags| Ok((flags, file_system.compress_override(ino)?)));
                match found {
                    Ok((flags, compress)) => reply.ioctl(0, &form.encode(flags, Compressed::of(compress))),
                    Err(error) => reply.error(errno(&error)),
                }
            }
            Ok(FlagRequest::Set(..)) if !can_set_flags(self.kernel_cache.has_writer(ino), may_be_late) => {
                reply.error(Errno::new(libc::EBUSY));
            }
            Ok(FlagRequest::Set(flags, compressed)) => {
                let has_to_be = self.config.flags.is_sync();
                self.kernel_cache.when_written_back(ino, 0, move || {
                    let set = set_all(&file_system, ino, flags, compressed);
                    reply_durably(&file_system, has_to_be, set, move |answer| {
                        reply_with(answer, reply, |reply, ()| reply.ioctl(0, &[]));
                    });
                });
            }
            Err(errno) => reply.error(errno),
        }
    }
}

/// Sets flags, and the attribute for compression if they say something new about it.
fn set_all(file_system: &FileSystem, ino: Ino, flags: FileFlags, compressed: Compressed) -> Result<()> {
    match compressed.changed_from(file_system.compress_override(ino)?) {
        Some(compress) => file_system.set_flags_and_compression(ino, flags, compress),
        None => file_system.set_flags(ino, flags),
    }
}
