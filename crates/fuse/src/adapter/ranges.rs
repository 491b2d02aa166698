//! Reserves, punches, copies and searches ranges of files.

use std::ops::Range;

use oncefs_engine::BLOCK_BYTES;
use oncefs_fs::{AllocateMode, FileSystem, Ino, Whence};
use oncefs_transport::{Errno, Reply, may_be_late};

use super::Adapter;
use super::late::{Search, search};
use crate::durable::{is_writing, reply_durably};
use crate::errno::errno;
use crate::privileges::Credentials;
use crate::reply::{reply_done, reply_with};

/// Most bytes that one reply to copy_file_range can report, in whole blocks.
const COPY_BYTES_MAX: u64 = u32::MAX as u64 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;

/// Where data or a hole begins in a file that is all data.
fn within(at: u64, size: u64, whence: Whence) -> Option<u64> {
    let found = match whence {
        Whence::Data => at,
        Whence::Hole => size,
    };
    (at < size).then_some(found)
}

impl Adapter {
    /// `mode` as in fallocate(2).
    pub(super) fn fallocate(
        &self,
        credentials: Credentials,
        ino: Ino,
        of: u64,
        range: Range<u64>,
        mode: i32,
        reply: Reply,
    ) {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let mode = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => AllocateMode::Reserve { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => AllocateMode::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => AllocateMode::ZeroRange { keep_size },
            _ => return reply.error(Errno::new(libc::EOPNOTSUPP)),
        };
        let privileges = credentials.privileges_left_untold(&self.file_system, ino);
        let (at, len) = (range.start, range.end - range.start);
        let allocate = move |file_system: &FileSystem| file_system.fallocate(ino, at, len, mode, privileges);
        self.config.gauge.take(len);
        let (file_system, has_to_be) = (self.file_system.clone(), self.has_to_be_durable(of));
        let answer = move |result| {
            reply_durably(&file_system, has_to_be, result, move |answer| reply_done(answer, reply));
        };
        // A disk's discards and zeroed ranges wait as its writes do.
        self.reply_with_room_for(Some(ino), allocate(&self.file_system), allocate, answer);
    }

    /// `whence` as in lseek(2).
    pub(super) fn lseek(&self, ino: Ino, of: u64, at: i64, whence: i32, reply: Reply) {
        let whence = match whence {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return reply.error(Errno::new(libc::EINVAL)),
        };
        let Ok(at) = u64::try_from(at) else { return reply.error(Errno::new(libc::ENXIO)) };
        let file_system = self.file_system.clone();
        let way = search(self.kernel_cache.has_writer(ino), is_writing(of), may_be_late);
        if way == Search::Exact {
            return self.kernel_cache.when_written_back(ino, 0, move || {
                let found = file_system.lseek(ino, at, whence).map_err(|error| errno(&error));
                reply_with(found, reply, Reply::found_at);
            });
        }
        // The end of the file may exist only in a writer's pages. The pages before the known end stay in the kernel.
        let size = move |file_system: &FileSystem| file_system.getattr(ino).map(|attributes| attributes.size);
        match size(&file_system) {
            Ok(known) if whence == Whence::Data && at < known => reply.found_at(at),
            Ok(known) if way == Search::AsKnown => {
                // ENXIO would say that there is no data, and a copy would lose what the writer's pages hold.
                reply_with(within(at, known, whence).ok_or(Errno::new(libc::EBUSY)), reply, Reply::found_at);
            }
            Ok(known) => self.kernel_cache.when_written_back(ino, known, move || {
                let found = size(&file_system).map_err(|error| errno(&error));
                let found = found.and_then(|size| within(at, size, whence).ok_or(Errno::new(libc::ENXIO)));
                reply_with(found, reply, Reply::found_at);
            }),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Copies from an inode and offset to another inode, handle and offset.
    pub(super) fn copy(&self, credentials: Credentials, from: (Ino, u64), to: (Ino, u64, u64), len: u64, reply: Reply) {
        let ((source, at), (target, of, target_at)) = (from, to);
        let len = len.min(COPY_BYTES_MAX);
        let privileges = credentials.privileges_left_untold(&self.file_system, target);
        let copy =
            move |file_system: &FileSystem| file_system.copy_file_range(source, at, target, target_at, len, privileges);
        self.config.gauge.take(len);
        let (file_system, has_to_be) = (self.file_system.clone(), self.has_to_be_durable(of));
        self.reply_with_room(copy(&self.file_system), copy, move |result| {
            reply_durably(&file_system, has_to_be, result, move |answer| reply_with(answer, reply, Reply::written));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_all_data_ends_with_a_hole() {
        assert_eq!([Whence::Data, Whence::Hole].map(|whence| within(3, 10, whence)), [Some(3), Some(10)]);
        assert_eq!([Whence::Data, Whence::Hole].map(|whence| within(10, 10, whence)), [None, None]);
    }
}
