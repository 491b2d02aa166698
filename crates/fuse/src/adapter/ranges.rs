//! Ranges of files: reserved, punched, copied, searched.

use std::ops::Range;

use oncefs_engine::BLOCK_BYTES;
use oncefs_fs::{AllocateMode, FileSystem, Ino, Whence};
use oncefs_transport::{Errno, Reply};

use super::Adapter;
use crate::durable::reply_durably;
use crate::errno::errno;
use crate::privileges::Asker;
use crate::reply::{reply_done, reply_with};

/// Most bytes that one reply to copy_file_range can report, in whole blocks.
const COPY_BYTES_MAX: u64 = u32::MAX as u64 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;

impl Adapter {
    /// `mode` as in fallocate(2).
    pub(super) fn fallocate(&self, asker: Asker, ino: Ino, of: u64, range: Range<u64>, mode: i32, reply: Reply) {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let mode = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => AllocateMode::Reserve { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => AllocateMode::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => AllocateMode::ZeroRange { keep_size },
            _ => return reply.error(Errno::new(libc::EOPNOTSUPP)),
        };
        let privileges = asker.privileges_left_untold(&self.file_system, ino);
        let (at, len) = (range.start, range.end - range.start);
        let allocate = move |file_system: &FileSystem| file_system.fallocate(ino, at, len, mode, privileges);
        self.config.gauge.take(len);
        let (file_system, has_to_be) = (self.file_system.clone(), self.has_to_be_durable(of));
        self.reply_with_room(allocate(&self.file_system), allocate, move |result| {
            reply_durably(&file_system, has_to_be, result, move |answer| reply_done(answer, reply));
        });
    }

    /// `whence` as in lseek(2).
    pub(super) fn lseek(&self, ino: Ino, at: i64, whence: i32, reply: Reply) {
        let whence = match whence {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return reply.error(Errno::new(libc::EINVAL)),
        };
        let Ok(at) = u64::try_from(at) else { return reply.error(Errno::new(libc::ENXIO)) };
        let file_system = self.file_system.clone();
        self.kernel_cache.when_written_back(ino, move || {
            let found = file_system.lseek(ino, at, whence).map_err(|error| errno(&error));
            reply_with(found, reply, Reply::found_at);
        });
    }

    /// From an inode and its byte to another one, with the handle it is open by.
    pub(super) fn copy(&self, asker: Asker, from: (Ino, u64), to: (Ino, u64, u64), len: u64, reply: Reply) {
        let ((source, at), (target, of, target_at)) = (from, to);
        let len = len.min(COPY_BYTES_MAX);
        let privileges = asker.privileges_left_untold(&self.file_system, target);
        let copy =
            move |file_system: &FileSystem| file_system.copy_file_range(source, at, target, target_at, len, privileges);
        self.config.gauge.take(len);
        let (file_system, has_to_be) = (self.file_system.clone(), self.has_to_be_durable(of));
        self.reply_with_room(copy(&self.file_system), copy, move |result| {
            reply_durably(&file_system, has_to_be, result, move |answer| reply_with(answer, reply, Reply::written));
        });
    }
}
