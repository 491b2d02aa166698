//! Reads, writes and fsync.

use std::time::Instant;

use oncefs_engine::{BLOCK_BYTES, Blocks};
use oncefs_fs::{Error, FileSystem, Ino, Result, WriteOrigin};
use oncefs_transport::Reply;
use oncefs_transport::flags::write as from;

use super::Adapter;
use crate::durable::{handle, is_writing, reply_durably};
use crate::errno::errno;
use crate::patience::Patience;
use crate::privileges::Credentials;
use crate::reply::{reply_done, reply_with};
use crate::room_maker::Place;

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
        if let Ok(blocks_added) = written {
            let takes_reserve = blocks_added > 0 && self.config.patience.is_patient(ino);
            if !takes_reserve || !is_at_reserve(&self.file_system, &self.config.patience) {
                self.config.patience.found_room(ino);
            } else if let Some(place) = self.place_at_reserve(ino) {
                return self.wait_at_reserve(place, blocks_added, answer);
            }
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

    /// A place for a write of a disk that took some of the last room, and whose answer waits. None: the disk's time is
    /// over, or no further request may wait.
    fn place_at_reserve(&self, ino: Ino) -> Option<Place> {
        let now = Instant::now();
        let wait = self.config.patience.begin(ino, now).filter(|wait| now < wait.until)?;
        self.room_maker.as_ref()?.place_for_disk(0, wait)
    }

    /// Answers a write that has been done when there is room again, or when the disk's time is over.
    fn wait_at_reserve(&self, place: Place, blocks_added: i64, answer: impl FnOnce(Result<i64>) + Send + 'static) {
        let patience = self.config.patience.clone();
        let again = move |file_system: &FileSystem| match is_at_reserve(file_system, &patience) {
            true => Err(Error::NoSpace),
            false => Ok(blocks_added),
        };
        self.wait_for_room(place, again, move |_| answer(Ok(blocks_added)));
    }

    /// Makes everything durable that was answered before.
    pub(super) fn sync(&self, reply: Reply) {
        reply_durably(&self.file_system, true, Ok(()), move |answer| reply_done(answer, reply));
    }
}

/// Whether so little room is left that disks leave it to others for a while.
fn is_at_reserve(file_system: &FileSystem, patience: &Patience) -> bool {
    let store = file_system.store();
    let bytes = |blocks: Blocks| blocks.0 * BLOCK_BYTES as u64;
    bytes(store.available()) < patience.reserve(bytes(store.totals().data))
}
