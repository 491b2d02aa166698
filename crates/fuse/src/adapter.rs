//! Turns the kernel's requests into calls of `oncefs_fs::FileSystem`, and their results into replies.
//!
//! Owns what belongs to the kernel's protocol: how long the kernel may cache things, the counts of inodes that it
//! knows, errno. Decides nothing about files. flock, record locks and permission checks (`default_permissions`) stay in
//! the kernel.
//!
//! The kernel may cache names and attributes forever, because all changes go through it. It asks again for the time of
//! last access after a read. Where it cannot see that its cache is out of date, `kernel_cache` tells it.
//!
//! This file dispatches the requests. Submodules answer them: `names`, `opening`, `content`, `ranges`, `attributes`,
//! `xattrs`, `listing`, and `flags` for chattr(1).

mod attributes;
mod content;
mod flags;
mod late;
mod listing;
mod names;
mod opening;
mod ranges;
mod xattrs;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use oncefs_fs::{Attributes, Error, FileSystem, Ino, Result};
use oncefs_transport::{Errno, Negotiation, Operation, Reply, Request, Service, flags::init};

use crate::durable::{is_synchronous, reply_durably};
use crate::init::negotiate;
use crate::inode_counts::InodeCounts;
use crate::kernel_cache::KernelCache;
use crate::mount_flags::MountFlags;
use crate::patience::Patience;
use crate::privileges::Credentials;
use crate::reply::{reply_done, reply_entry};
use crate::request_memory;
use crate::room_maker::{Place, RoomMaker};
use crate::room_watch::RoomGauge;

/// How long a request is tried again that must not be late.
const MOMENT: Duration = Duration::from_millis(500);

/// Settings of the adapter.
#[derive(Clone, Debug)]
pub struct AdapterConfig {
    /// Largest WRITE or READ that the kernel may send.
    pub request_bytes_max: u32,
    /// Counts the room that requests take.
    pub gauge: Arc<RoomGauge>,
    /// Which changes have to be durable before they return.
    pub flags: Arc<MountFlags>,
    /// Files whose writes wait for room on a full volume.
    pub patience: Arc<Patience>,
}

/// Answers the kernel's requests from a file system.
pub struct Adapter {
    file_system: Arc<FileSystem>,
    config: AdapterConfig,
    /// Inodes that the kernel was told about and has not forgotten.
    lookups: Arc<InodeCounts>,
    kernel_cache: Arc<KernelCache>,
    /// Waits for room on a full volume. Set at INIT.
    room_maker: Option<RoomMaker>,
    /// Whether the kernel says if a file loses set-group-id with a new access control list.
    is_told_of_groups: bool,
}

impl Adapter {
    /// An adapter for one mount.
    pub fn new(file_system: Arc<FileSystem>, config: AdapterConfig) -> Self {
        let lookups = Arc::new(InodeCounts::new());
        let kernel_cache = KernelCache::new(lookups.clone());
        let weak = Arc::downgrade(&kernel_cache);
        file_system.on_privileges_dropped(Box::new(move |ino| {
            if let Some(kernel_cache) = weak.upgrade() {
                kernel_cache.privileges_dropped(ino);
            }
        }));
        let (room_maker, is_told_of_groups) = (None, false);
        Self { file_system, config, lookups, kernel_cache, room_maker, is_told_of_groups }
    }

    /// The part to connect to the mount's notifier before requests are answered.
    pub fn kernel_cache(&self) -> Arc<KernelCache> {
        self.kernel_cache.clone()
    }

    /// Replies with an inode that got a name, and counts that the kernel now knows it. If the name does not become
    /// durable, the volume has failed, and counting an inode that the kernel was not told about does no harm.
    fn reply_named(&self, result: Result<Attributes>, reply: Reply) {
        if let Ok(attributes) = &result {
            self.lookups.add(attributes.ino);
        }
        let has_to_be = self.config.flags.syncs_names();
        reply_durably(&self.file_system, has_to_be, result, move |answer| reply_entry(answer, reply));
    }

    /// Replies to a change of anything but names.
    fn reply_changed(&self, result: Result<()>, reply: Reply) {
        let has_to_be = self.config.flags.is_sync();
        reply_durably(&self.file_system, has_to_be, result, move |answer| reply_done(answer, reply));
    }

    /// Deletes an inode that lost its last name, unless the kernel still knows it. Then `forget` deletes it later.
    fn reply_orphaning(&self, result: Result<Option<Ino>>, reply: Reply) {
        if let Ok(Some(orphan)) = result
            && !self.lookups.has(orphan)
        {
            self.delete(orphan);
        }
        let has_to_be = self.config.flags.syncs_names();
        reply_durably(&self.file_system, has_to_be, result.map(drop), move |answer| reply_done(answer, reply));
    }

    fn delete(&self, ino: Ino) {
        if let Err(error) = self.file_system.forget(ino) {
            log::error!("inode {} was deleted, but its space is not freed before the next mount: {error}", ino.0);
        }
    }

    /// Whether a change through this open file has to be durable before it returns.
    fn has_to_be_durable(&self, handle: u64) -> bool {
        is_synchronous(handle) || self.config.flags.is_sync()
    }

    /// Replies to a request that takes space. Before it answers ENOSPC, freed blocks are made usable and the request is
    /// tried again. No thread that serves requests waits for this, but for a moment where a request must not be late
    /// (`try_for_a_moment`).
    fn reply_with_room<T>(
        &self,
        result: Result<T>,
        again: impl Fn(&FileSystem) -> Result<T> + Send + 'static,
        reply: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        self.reply_with_room_for(None, result, again, reply);
    }

    /// The same for a change of a file's content, which may be a disk.
    fn reply_with_room_for<T>(
        &self,
        ino: Option<Ino>,
        result: Result<T>,
        again: impl Fn(&FileSystem) -> Result<T> + Send + 'static,
        reply: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        let is_full = matches!(result, Err(Error::NoSpace));
        if let (Some(ino), true) = (ino, result.is_ok()) {
            self.config.patience.found_room(ino);
        }
        let place = || ino.map_or_else(|| self.place(0), |ino| self.place_for_write(ino, 0));
        match is_full.then(place).flatten() {
            Some(place) => self.wait_for_room(place, again, reply),
            None if is_full => reply(self.try_for_a_moment(again)),
            None => reply(result),
        }
    }

    /// Tries a request again that must not be late, because its queue would stand still, while room is being made for
    /// others: at most for a moment, since its thread serves nothing meanwhile.
    fn try_for_a_moment<T>(&self, again: impl Fn(&FileSystem) -> Result<T>) -> Result<T> {
        let began = Instant::now();
        loop {
            match again(&self.file_system) {
                Err(Error::NoSpace) if self.is_room_coming() && began.elapsed() < MOMENT => thread::sleep(MOMENT / 20),
                result => return result,
            }
        }
    }

    fn is_room_coming(&self) -> bool {
        self.room_maker.as_ref().is_some_and(RoomMaker::is_room_coming)
    }

    /// A place for a request that waits for room and keeps `bytes` bytes meanwhile.
    fn place(&self, bytes: usize) -> Option<Place> {
        self.room_maker.as_ref()?.place(bytes, self.config.patience.other_waits()?)
    }

    /// A place for a write of `bytes` bytes. A write of a disk that must not wait for long waits like one of any file.
    fn place_for_write(&self, ino: Ino, bytes: usize) -> Option<Place> {
        let room_maker = self.room_maker.as_ref()?;
        let wait = self.config.patience.begin(ino, Instant::now());
        wait.and_then(|wait| room_maker.place_for_disk(bytes, wait)).or_else(|| self.place(bytes))
    }

    fn wait_for_room<T>(
        &self,
        place: Place,
        again: impl Fn(&FileSystem) -> Result<T> + Send + 'static,
        reply: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        let file_system = self.file_system.clone();
        match &self.room_maker {
            Some(room_maker) => room_maker.try_again(place, move || again(&file_system), reply),
            None => reply(Err(Error::NoSpace)),
        }
    }
}

impl Service for Adapter {
    fn init(&mut self, negotiation: &mut Negotiation) -> io::Result<()> {
        negotiate(negotiation, self.config.request_bytes_max);
        self.is_told_of_groups = negotiation.has(init::SETXATTR_EXT);
        self.room_maker = Some(RoomMaker::start(self.file_system.clone())?);
        Ok(())
    }

    fn serve(&self, request: Request<'_>, reply: Reply) {
        request_memory::bounded(|| self.answer(request, reply));
    }

    fn forget(&self, inode: u64, lookups: u64) {
        if self.lookups.subtract(Ino(inode), lookups) {
            self.kernel_cache.forgotten(Ino(inode));
            self.delete(Ino(inode));
        }
    }
}

impl Adapter {
    fn answer(&self, request: Request<'_>, reply: Reply) {
        let header = &request.header;
        let (ino, credentials) = (Ino(header.inode), Credentials::of(header));
        match request.operation {
            Operation::Lookup { name } => self.lookup(ino, name, reply),
            Operation::Getattr { .. } => self.getattr(ino, reply),
            Operation::Statx { .. } => self.statx(ino, reply),
            Operation::Setattr(set) => self.setattr(credentials, ino, &set, reply),
            Operation::Readlink => self.readlink(ino, reply),
            Operation::Symlink { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Tmpfile { .. }
            | Operation::Create { .. } => self.make(header, request.operation, reply),
            Operation::Link { of, name } => self.reply_named(self.file_system.link(Ino(of), ino, name), reply),
            Operation::Unlink { name } => self.reply_orphaning(self.file_system.unlink(ino, name), reply),
            Operation::Rmdir { name } => self.reply_orphaning(self.file_system.rmdir(ino, name), reply),
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename(header, (ino, name), (Ino(new_parent), new_name), flags, reply);
            }
            Operation::Open { flags, kills_privileges } => self.open(credentials, ino, flags, kills_privileges, reply),
            Operation::Release { flags, .. } => self.release(ino, flags, reply),
            Operation::Read { handle, offset, size, flags } => self.read(ino, handle, offset, size, flags, reply),
            Operation::Write { handle, offset, data, write_flags, flags } => {
                self.write(credentials, ino, handle, (offset, data), (write_flags, flags), reply);
            }
            Operation::Fsync { .. } | Operation::Fsyncdir { .. } | Operation::Syncfs => self.sync(reply),
            Operation::Fallocate { handle, offset, len, mode } => {
                self.fallocate(credentials, ino, handle, offset..offset.saturating_add(len), mode, reply);
            }
            Operation::Lseek { handle, offset, whence } => self.lseek(ino, handle, offset, whence, reply),
            Operation::CopyFileRange { offset, target, target_handle, target_offset, len, .. } => {
                self.copy(credentials, (ino, offset), (Ino(target), target_handle, target_offset), len, reply);
            }
            Operation::Readdir { cookie, size, .. } => self.readdir(ino, cookie, size, reply),
            Operation::ReaddirPlus { cookie, size, .. } => self.readdir_plus(ino, cookie, size, reply),
            Operation::Setxattr { name, value, flags, clears_set_group_id } => {
                self.setxattr(credentials, ino, (name, value), flags, clears_set_group_id, reply);
            }
            Operation::Getxattr { name, size } => self.getxattr(ino, name, size, reply),
            Operation::Listxattr { size } => self.listxattr(credentials, ino, size, reply),
            Operation::Removexattr { name } => self.removexattr(credentials, ino, name, reply),
            Operation::Statfs => self.statfs(reply),
            Operation::Ioctl { command, input, .. } => self.answer_flags(credentials, ino, command, input, reply),
            // After ENOSYS the kernel handles these itself. An open directory has no state here, permissions are
            // already checked, and close(2) sends pages as WRITEs and reports their errors to the program that closes.
            Operation::Opendir { .. } | Operation::Access { .. } | Operation::Flush { .. } => {
                reply.error(Errno::new(libc::ENOSYS));
            }
            Operation::Releasedir { .. } => reply.ok(),
            // The transport answers these itself.
            Operation::Destroy | Operation::Interrupt { .. } | Operation::Forget(_) | Operation::Unknown => {
                reply.error(Errno::new(libc::ENOSYS));
            }
        }
    }
}
