//! Reads, writes and fsync.

use oncefs_fs::{Error, FileSystem, Ino, Result, WriteOrigin};
use oncefs_transport::Reply;
use oncefs_transport::flags::write as from;

use super::Adapter;
use crate::durable::{handle, is_writing, reply_durably};
use crate::errno::errno;
use crate::privileges::Credentials;
use crate::reply::{reply_done, reply_with};

impl Adapter {
    /// `flags` are those of open(2), as the handle has them now.
    pub(super) fn read(&self, ino: Ino, of: u64, at: u64, len: u32, flags: i32, reply: Reply) {
        let update_atime = flags & libc::O_NOATIME == 0;
        reply.fill(len as usize, |room| {
            let read = self.file_system.read_into(handle(of), ino, at, room, update_atime);
            if let (true, Ok(len @ 1..)) = (is_writing(of), &read) {
                self.file_system.note_read_of_writer(ino, at, *len as u64);
            }
            read.map_err(|error| errno(&error))
        });
    }

    /// `flags`: the origin of the write, whether the file loses set-user-id, and the flags of open(2) as the handle has
    /// them now.
    pub(super) fn write(
        &self,
        credentials: Credentials,
        ino: Ino,
        of: u64,
        (at, data): (u64, &[u8]),
        (write_flags, flags): (u32, i32),
        reply: Reply,
    ) {
        let is_from_cache = write_flags & from::CACHE != 0;
        let drops = write_flags & from::KILL_SUIDGID != 0;
        let origin = match is_from_cache {
            true if self.has_to_be_durable(of) => WriteOrigin::PageCacheAwaited,
            true => WriteOrigin::PageCache,
            false => WriteOrigin::Caller { privileges: credentials.privileges_left(&self.file_system, ino, drops) },
        };
        let is_durable = !is_from_cache && flags & libc::O_DSYNC != 0;
        self.config.gauge.take(data.len() as u64);
        let len = data.len() as u64;
        let (file_system, kernel_cache) = (self.file_system.clone(), self.kernel_cache.clone());
        let answer = move |written: Result<i64>| {
            if is_from_cache && written.as_ref().is_ok_and(|blocks_added| *blocks_added != 0) {
                kernel_cache.blocks_changed(ino);
            }
            if is_from_cache && written.is_err() {
                kernel_cache.page_refused(ino);
            }
            reply_durably(&file_system, is_durable, written, move |answer| {
                reply_with(answer, reply, |reply, _| reply.written(len));
            });
        };
        let written = self.file_system.write(ino, at, data, origin);
        let is_full = matches!(written, Err(Error::NoSpace));
        if written.is_ok() {
            self.config.patience.found_room(ino);
        }
        match is_full.then(|| self.place_for_write(ino, data.len())).flatten() {
            Some(place) => {
                // The request's buffer is about to be reused.
                let data = data.to_vec();
                let again = move |file_system: &FileSystem| file_system.write(ino, at, &data, origin);
                self.wait_for_room(place, again, answer);
            }
            None if is_full => answer(self.try_for_a_moment(|file_system| file_system.write(ino, at, data, origin))),
            None => answer(written),
        }
    }

    /// Makes everything durable that was answered before.
    pub(super) fn sync(&self, reply: Reply) {
        reply_durably(&self.file_system, true, Ok(()), move |answer| reply_done(answer, reply));
    }
}
