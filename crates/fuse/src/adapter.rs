//! The kernel's requests as calls of `oncefs_fs::FileSystem`, and its answers as replies.
//!
//! Owns what only the kernel's protocol knows: how long the kernel may remember what, the counts of
//! inodes that it knows, errno. Decides nothing about files. flock and record locks stay in the kernel, and so do
//! permission checks (`default_permissions`).
//!
//! The kernel may remember names and attributes for ever: all changes go through it. Times of last access it asks for
//! again after a read; where it does not see by itself that it is out of date, `kernel_cache` tells it.

mod flags;
mod listing;
mod opening;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, Generation, INodeNo, IoctlFlags, KernelConfig,
    LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use oncefs_engine::BLOCK_BYTES;
use oncefs_fs::{
    AllocateMode, Attributes, Error, FileKind, FileSystem, Ino, NAME_BYTES_MAX, RenameMode, Result, SetAttributes,
    Whence, WriteOrigin, XattrMode,
};

use crate::caller::caller;
use crate::convert::{file_attr, file_type, generation, no_inode, set_time, timestamp, writes};
use crate::durable::{file_handle, handle, is_synchronous, reply_durably};
use crate::errno::{errno, lost};
use crate::init::negotiate;
use crate::inode_counts::InodeCounts;
use crate::kernel_cache::KernelCache;
use crate::mount_flags::MountFlags;
use crate::privileges::{
    CAPABILITY, keeps_set_group_id, lacks_fsetid, may_take_capability, names_shown_to, privileges_left,
};
use crate::reply::{FOREVER, reply_attr, reply_empty, reply_entry, reply_xattr};
use crate::room_maker::RoomMaker;
use crate::room_watch::RoomGauge;

/// Most bytes that one reply to copy_file_range can report, in whole blocks.
const COPY_BYTES_MAX: u64 = u32::MAX as u64 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;

/// Settings of the adapter.
#[derive(Clone, Debug)]
pub struct AdapterConfig {
    /// Largest WRITE or READ that the kernel may send.
    pub request_bytes_max: u32,
    /// Told of all that takes room.
    pub gauge: Arc<RoomGauge>,
    /// Which changes have to be durable before they return.
    pub flags: Arc<MountFlags>,
}

/// Answers the kernel's requests from a file system.
pub struct Adapter {
    file_system: Arc<FileSystem>,
    config: AdapterConfig,
    /// What the kernel was told about and has not forgotten.
    lookups: InodeCounts,
    kernel_cache: Arc<KernelCache>,
    /// Waits for room on a full volume; there from INIT on.
    room_maker: Option<RoomMaker>,
}

impl Adapter {
    /// An adapter for one mount.
    pub fn new(file_system: Arc<FileSystem>, config: AdapterConfig) -> Self {
        let kernel_cache = KernelCache::new();
        let weak = Arc::downgrade(&kernel_cache);
        file_system.on_privileges_dropped(Box::new(move |ino| {
            if let Some(kernel_cache) = weak.upgrade() {
                kernel_cache.privileges_dropped(ino);
            }
        }));
        Self { file_system, config, lookups: InodeCounts::new(), kernel_cache, room_maker: None }
    }

    /// What has to be connected to the mount's notifier before requests are answered.
    pub fn kernel_cache(&self) -> Arc<KernelCache> {
        self.kernel_cache.clone()
    }

    /// Replies with an inode that got a name, and that the kernel knows from then on: if the name does not become
    /// durable, the volume has failed, and it does no harm to count what the kernel was not told.
    fn reply_named(&self, result: Result<Attributes>, reply: ReplyEntry) {
        if let Ok(attributes) = &result {
            self.lookups.add(attributes.ino);
        }
        let has_to_be = self.config.flags.syncs_names();
        reply_durably(&self.file_system, has_to_be, result, move |answer| reply_entry(answer, reply));
    }

    /// Replies to a change of what is not a name.
    fn reply_changed(&self, result: Result<()>, reply: ReplyEmpty) {
        let has_to_be = self.config.flags.is_sync();
        reply_durably(&self.file_system, has_to_be, result, move |answer| reply_empty(answer, reply));
    }

    /// Deletes an inode that lost its last name, unless the kernel still knows it: then `forget` will.
    fn reply_orphaning(&self, result: Result<Option<Ino>>, reply: ReplyEmpty) {
        if let Ok(Some(orphan)) = result
            && !self.lookups.has(orphan)
        {
            self.delete(orphan);
        }
        let has_to_be = self.config.flags.syncs_names();
        reply_durably(&self.file_system, has_to_be, result.map(drop), move |answer| reply_empty(answer, reply));
    }

    fn delete(&self, ino: Ino) {
        if let Err(error) = self.file_system.forget(ino) {
            log::error!("inode {} was deleted, but its space is not freed before the next mount: {error}", ino.0);
        }
    }

    /// Whether a change through this open file has to be durable before it returns.
    fn has_to_be_durable(&self, fh: FileHandle) -> bool {
        is_synchronous(fh) || self.config.flags.is_sync()
    }

    /// Replies to a request that takes space. Before it is told that there is none, what was freed a moment ago is
    /// made usable and the request is tried again; no event loop waits for that.
    fn reply_with_room<T>(
        &self,
        result: Result<T>,
        again: impl Fn(&FileSystem) -> Result<T> + Send + 'static,
        reply: impl FnOnce(Result<T>) + Send + 'static,
    ) {
        if let (Err(Error::NoSpace), Some(room_maker)) = (&result, &self.room_maker) {
            let file_system = self.file_system.clone();
            return room_maker.try_again(move || again(&file_system), reply);
        }
        reply(result);
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        negotiate(config, self.config.request_bytes_max)?;
        self.room_maker = Some(RoomMaker::start(self.file_system.clone())?);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.file_system.lookup(ino(parent), name.as_bytes()) {
            // The kernel remembers that the name is free.
            Err(Error::NotFound) => reply.entry(&FOREVER, &no_inode(FileKind::Regular), Generation(0)),
            result => {
                if let Ok(attributes) = &result {
                    self.lookups.add(attributes.ino);
                }
                reply_entry(result.map_err(|error| errno(&error)), reply);
            }
        }
    }

    fn forget(&self, _req: &Request, number: INodeNo, count: u64) {
        if self.lookups.subtract(ino(number), count) {
            self.delete(ino(number));
        }
    }

    fn getattr(&self, _req: &Request, number: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply_attr(self.file_system.getattr(ino(number)).map_err(|error| errno(&error)), reply);
    }

    fn setattr(
        &self,
        req: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttributes {
            permissions: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(timestamp),
            privileges: privileges_left(
                &self.file_system,
                req,
                ino(number),
                uid.or(gid).is_some() || lacks_fsetid(req),
            ),
            // Only the kernel names a handle where there is no size to set.
            is_write_back: fh.is_some() && size.is_none(),
        };
        let changed = self.file_system.setattr(ino(number), &set);
        let again = move |file_system: &FileSystem| file_system.setattr(ino(number), &set);
        let (file_system, has_to_be) = (self.file_system.clone(), self.config.flags.is_sync());
        self.reply_with_room(changed, again, move |result| {
            reply_durably(&file_system, has_to_be, result, move |answer| reply_attr(answer, reply));
        });
    }

    fn readlink(&self, _req: &Request, number: INodeNo, reply: ReplyData) {
        match self.file_system.readlink(ino(number)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32, reply: ReplyEntry) {
        let made = self.file_system.mknod(ino(parent), name.as_bytes(), mode, rdev, &caller(req, umask));
        self.reply_named(made, reply);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        self.reply_named(self.file_system.mkdir(ino(parent), name.as_bytes(), mode, &caller(req, umask)), reply);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        self.reply_named(self.file_system.symlink(ino(parent), name.as_bytes(), target, &caller(req, 0)), reply);
    }

    fn link(&self, _req: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_named(self.file_system.link(ino(number), ino(parent), name.as_bytes()), reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.reply_orphaning(self.file_system.unlink(ino(parent), name.as_bytes()), reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.reply_orphaning(self.file_system.rmdir(ino(parent), name.as_bytes()), reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags - RenameFlags::RENAME_WHITEOUT {
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            flags if flags.is_empty() => RenameMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let (parent, old, new_parent, new) = (ino(parent), name.as_bytes(), ino(new_parent), new_name.as_bytes());
        let renamed = if flags.contains(RenameFlags::RENAME_WHITEOUT) {
            let owner = caller(req, 0);
            self.file_system.rename_leaving_whiteout(parent, old, new_parent, new, mode, &owner)
        } else {
            self.file_system.rename(parent, old, new_parent, new, mode)
        };
        self.reply_orphaning(renamed, reply);
    }

    fn open(&self, req: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let allowed = self.check_opened(ino(number), flags);
        let truncated = allowed.and_then(|()| self.truncate_opened(req, ino(number), flags));
        let opened = truncated.map(|()| (self.file_system.opened(ino(number)), self.opened(ino(number), flags)));
        let has_to_be = flags.0 & libc::O_TRUNC != 0 && self.config.flags.is_sync();
        reply_durably(&self.file_system, has_to_be, opened, move |answer| match answer {
            Ok((handle, open_flags)) => reply.opened(file_handle(handle, flags), open_flags),
            Err(errno) => reply.error(errno),
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let flags = OpenFlags(flags);
        let made = self.file_system.mknod(ino(parent), name.as_bytes(), mode, 0, &caller(req, umask));
        let opened = made.map(|attributes| {
            self.lookups.add(attributes.ino);
            let open_flags = self.opened(attributes.ino, flags);
            (attributes, self.file_system.new_handle(), open_flags)
        });
        reply_durably(&self.file_system, self.config.flags.syncs_names(), opened, move |answer| match answer {
            Ok((attributes, handle, open_flags)) => {
                let (attr, handle) = (file_attr(&attributes), file_handle(handle, flags));
                reply.created(&FOREVER, &attr, generation(&attributes), handle, open_flags);
            }
            Err(errno) => reply.error(errno),
        });
    }

    fn read(
        &self,
        _req: &Request,
        number: INodeNo,
        fh: FileHandle,
        at: u64,
        len: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let update_atime = flags.0 & libc::O_NOATIME == 0;
        match self.file_system.read_by(handle(fh), ino(number), at, len as usize, update_atime) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        req: &Request,
        number: INodeNo,
        fh: FileHandle,
        at: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let from_cache = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let drops = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let origin = match from_cache {
            true if self.has_to_be_durable(fh) => WriteOrigin::PageCacheAwaited,
            true => WriteOrigin::PageCache,
            false => WriteOrigin::Caller { privileges: privileges_left(&self.file_system, req, ino(number), drops) },
        };
        let durable = !from_cache && flags.0 & libc::O_DSYNC != 0;
        self.config.gauge.take(data.len() as u64);
        // A request is smaller than 4 GiB.
        let (number, len) = (ino(number), data.len() as u32);
        let (file_system, kernel_cache) = (self.file_system.clone(), self.kernel_cache.clone());
        let answer = move |written: Result<i64>| match written {
            Ok(_) if durable => file_system.fsync(move |synced| match synced {
                Ok(()) => reply.written(len),
                Err(error) => reply.error(lost(&error)),
            }),
            Ok(blocks_added) => {
                if from_cache && blocks_added != 0 {
                    kernel_cache.blocks_changed(number);
                }
                reply.written(len);
            }
            Err(error) => reply.error(errno(&error)),
        };
        match self.file_system.write(number, at, data, origin) {
            Err(Error::NoSpace) => {
                // The request's buffer is about to be used for the next one.
                let data = data.to_vec();
                let again = move |file_system: &FileSystem| file_system.write(number, at, &data, origin);
                self.reply_with_room(Err(Error::NoSpace), again, answer);
            }
            result => answer(result),
        }
    }

    fn flush(&self, _req: &Request, _number: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        match self.file_system.flush() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(lost(&error)),
        }
    }

    fn release(
        &self,
        _req: &Request,
        number: INodeNo,
        _fh: FileHandle,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if writes(flags) {
            self.kernel_cache.writer_released(ino(number));
        }
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _number: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.file_system.fsync(move |durable| match durable {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(lost(&error)),
        });
    }

    fn fsyncdir(&self, req: &Request, number: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.fsync(req, number, fh, datasync, reply);
    }

    /// Nothing is kept for an open directory: the kernel need not ask, and may cache listings.
    fn opendir(&self, _req: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _req: &Request, number: INodeNo, _fh: FileHandle, cookie: u64, mut reply: ReplyDirectory) {
        let listed = self.file_system.readdir(ino(number), cookie, &mut |entry| {
            !reply.add(INodeNo(entry.ino.0), entry.cookie, file_type(entry.kind), OsStr::from_bytes(entry.name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        number: INodeNo,
        _fh: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut listed = 0_usize;
        let result = self.file_system.readdir(ino(number), cookie, &mut |entry| {
            listed += 1;
            self.readdir_plus_entry(&mut reply, entry)
        });
        match result {
            // Entries in the reply are counted: it has to arrive. The kernel asks again and meets the error then.
            Err(error) if listed == 0 => reply.error(errno(&error)),
            _ => reply.ok(),
        }
    }

    fn statfs(&self, _req: &Request, _number: INodeNo, reply: ReplyStatfs) {
        let space = self.file_system.statfs();
        let (total, available, block) = (space.total, space.available, BLOCK_BYTES as u32);
        reply.statfs(total, available, available, 0, 0, block, NAME_BYTES_MAX as u32, block);
    }

    fn setxattr(
        &self,
        req: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let (number, name) = (ino(number), name.as_bytes());
        let result = keeps_set_group_id(&self.file_system, req, number)
            .and_then(|keeps| self.file_system.setxattr(number, name, value, mode, keeps));
        self.reply_changed(result, reply);
    }

    fn getxattr(&self, _req: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_xattr(self.file_system.getxattr(ino(number), name.as_bytes()), size, reply);
    }

    fn listxattr(&self, req: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(self.file_system.listxattr(ino(number)).map(|names| names_shown_to(req, names)), size, reply);
    }

    fn removexattr(&self, req: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (number, name) = (ino(number), name.as_bytes());
        if name == CAPABILITY
            && !self.kernel_cache.has_writer(number)
            && !may_take_capability(&self.file_system, req, number)
        {
            return reply.error(Errno::EPERM);
        }
        self.reply_changed(self.file_system.removexattr(number, name), reply);
    }

    fn fallocate(
        &self,
        req: &Request,
        number: INodeNo,
        fh: FileHandle,
        at: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let mode = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => AllocateMode::Reserve { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => AllocateMode::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => AllocateMode::ZeroRange { keep_size },
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let privileges = privileges_left(&self.file_system, req, ino(number), lacks_fsetid(req));
        let allocate = move |file_system: &FileSystem| file_system.fallocate(ino(number), at, len, mode, privileges);
        self.config.gauge.take(len);
        let (file_system, has_to_be) = (self.file_system.clone(), self.has_to_be_durable(fh));
        self.reply_with_room(allocate(&self.file_system), allocate, move |result| {
            reply_durably(&file_system, has_to_be, result, move |answer| reply_empty(answer, reply));
        });
    }

    fn lseek(&self, _req: &Request, number: INodeNo, _fh: FileHandle, at: i64, whence: i32, reply: ReplyLseek) {
        let whence = match whence {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(at) = u64::try_from(at) else { return reply.error(Errno::ENXIO) };
        let file_system = self.file_system.clone();
        self.kernel_cache.when_written_back(ino(number), move || match file_system.lseek(ino(number), at, whence) {
            // Files are smaller than 2^63 bytes.
            Ok(offset) => reply.offset(offset as i64),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn copy_file_range(
        &self,
        req: &Request,
        source: INodeNo,
        _source_fh: FileHandle,
        from: u64,
        target: INodeNo,
        target_fh: FileHandle,
        to: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (source, target, len) = (ino(source), ino(target), len.min(COPY_BYTES_MAX));
        let privileges = privileges_left(&self.file_system, req, target, lacks_fsetid(req));
        let copy =
            move |file_system: &FileSystem| file_system.copy_file_range(source, from, target, to, len, privileges);
        self.config.gauge.take(len);
        let (keeper, has_to_be) = (self.file_system.clone(), self.has_to_be_durable(target_fh));
        self.reply_with_room(copy(&self.file_system), copy, move |result| {
            reply_durably(&keeper, has_to_be, result, move |answer| match answer {
                // No more than was asked for, at most `COPY_BYTES_MAX`.
                Ok(copied) => reply.written(copied as u32),
                Err(errno) => reply.error(errno),
            });
        });
    }

    /// Only for the flags of files.
    fn ioctl(
        &self,
        req: &Request,
        number: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        input: &[u8],
        _output_bytes: u32,
        reply: ReplyIoctl,
    ) {
        self.answer_flags(req, ino(number), command, input, reply);
    }

    /// Files are always ready: the kernel need not ask.
    fn poll(
        &self,
        _req: &Request,
        _number: INodeNo,
        _fh: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }
}

/// The inode that the kernel names.
fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}
