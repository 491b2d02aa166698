//! Shuts a mount down for crash tests, as the ioctls of XFS and ext4 do: from then on every request is answered with EIO
//! until the mount ends, and nothing more becomes durable. The next mount recovers as after a crash.
//!
//! What the kernel has cached, it still answers by itself.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, INodeNo, IoctlFlags, KernelConfig, LockOwner,
    OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::privileges::may_shut_down;

/// `_IOR('X', 125, __u32)` of XFS and ext4. FUSE brings the argument of an ioctl only if it is an `_IOW`, so that this
/// one is taken to say that the log is not written.
const GOING_DOWN: u32 = 0x8004_587d;
/// `_IOW('X', 125, __u32)`: the same with its argument.
const GOING_DOWN_WITH_FLAGS: u32 = 0x4004_587d;

/// What becomes durable before a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownMode {
    /// Everything that was written.
    Flush,
    /// What the daemon has; what the kernel has not written yet is lost.
    LogFlush,
    /// Nothing.
    NoLogFlush,
}

impl ShutdownMode {
    /// From the flags of the ioctl.
    fn of(command: u32, input: &[u8]) -> Option<Self> {
        match (command, input.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))) {
            (GOING_DOWN, _) | (GOING_DOWN_WITH_FLAGS, Some(2)) => Some(Self::NoLogFlush),
            (GOING_DOWN_WITH_FLAGS, Some(0)) => Some(Self::Flush),
            (GOING_DOWN_WITH_FLAGS, Some(1)) => Some(Self::LogFlush),
            _ => None,
        }
    }
}

/// Makes durable what the mode says, and then nothing more.
pub type ShutDown = Arc<dyn Fn(ShutdownMode) -> io::Result<()> + Send + Sync>;

/// Passes requests on until the mount is shut down.
pub struct Gate<F> {
    inner: F,
    is_shut: Arc<AtomicBool>,
    shut_down: ShutDown,
}

impl<F: Filesystem> Gate<F> {
    /// A gate that is open.
    pub fn new(inner: F, shut_down: ShutDown) -> Self {
        Self { inner, is_shut: Arc::default(), shut_down }
    }

    fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Acquire)
    }

    /// On a thread of its own: what the kernel holds comes as requests, which the event loops have to answer.
    fn shut(&self, mode: ShutdownMode, reply: ReplyIoctl) {
        let (is_shut, shut_down) = (self.is_shut.clone(), self.shut_down.clone());
        let work = move || {
            log::warn!("shutting the mount down for a test ({mode:?}): every request will fail until it is unmounted");
            if mode == ShutdownMode::NoLogFlush {
                is_shut.store(true, Ordering::Release);
            }
            let done = shut_down(mode);
            is_shut.store(true, Ordering::Release);
            match done {
                Ok(()) => reply.ioctl(0, &[]),
                Err(error) => {
                    log::error!("not everything became durable before the shutdown: {error}");
                    reply.error(Errno::EIO);
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("shutdown".to_owned()).spawn(work) {
            // The reply went with the thread: dropped, it answers EIO.
            log::error!("cannot start a thread: {error}");
        }
    }
}

/// Requests that are refused once the gate is shut.
macro_rules! gated {
    ($($request:ident($($name:ident: $kind:ty),*) -> $reply:ty;)*) => {
        $(fn $request(&self, req: &Request, $($name: $kind,)* reply: $reply) {
            match self.is_shut() {
                true => reply.error(Errno::EIO),
                false => self.inner.$request(req, $($name,)* reply),
            }
        })*
    };
}

impl<F: Filesystem> Filesystem for Gate<F> {
    fn init(&mut self, req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.inner.init(req, config)
    }

    fn destroy(&mut self) {
        self.inner.destroy();
    }

    /// What the kernel forgets is counted to the end; what would be deleted then stays for the next mount.
    fn forget(&self, req: &Request, number: INodeNo, count: u64) {
        if !self.is_shut() {
            self.inner.forget(req, number, count);
        }
    }

    fn ioctl(
        &self,
        req: &Request,
        number: INodeNo,
        fh: FileHandle,
        flags: IoctlFlags,
        command: u32,
        input: &[u8],
        output_bytes: u32,
        reply: ReplyIoctl,
    ) {
        match ShutdownMode::of(command, input) {
            _ if self.is_shut() => reply.error(Errno::EIO),
            None => self.inner.ioctl(req, number, fh, flags, command, input, output_bytes, reply),
            Some(_) if !may_shut_down(req) => reply.error(Errno::EPERM),
            Some(mode) => self.shut(mode, reply),
        }
    }

    gated! {
        lookup(parent: INodeNo, name: &OsStr) -> ReplyEntry;
        getattr(number: INodeNo, fh: Option<FileHandle>) -> ReplyAttr;
        setattr(
            number: INodeNo, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, size: Option<u64>,
            atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>, ctime: Option<SystemTime>, fh: Option<FileHandle>,
            crtime: Option<SystemTime>, chgtime: Option<SystemTime>, bkuptime: Option<SystemTime>,
            flags: Option<BsdFileFlags>
        ) -> ReplyAttr;
        readlink(number: INodeNo) -> ReplyData;
        mknod(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32) -> ReplyEntry;
        mkdir(parent: INodeNo, name: &OsStr, mode: u32, umask: u32) -> ReplyEntry;
        symlink(parent: INodeNo, name: &OsStr, target: &Path) -> ReplyEntry;
        link(number: INodeNo, parent: INodeNo, name: &OsStr) -> ReplyEntry;
        unlink(parent: INodeNo, name: &OsStr) -> ReplyEmpty;
        rmdir(parent: INodeNo, name: &OsStr) -> ReplyEmpty;
        rename(
            parent: INodeNo, name: &OsStr, new_parent: INodeNo, new_name: &OsStr, flags: RenameFlags
        ) -> ReplyEmpty;
        open(number: INodeNo, flags: OpenFlags) -> ReplyOpen;
        create(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32) -> ReplyCreate;
        read(
            number: INodeNo, fh: FileHandle, at: u64, len: u32, flags: OpenFlags, lock_owner: Option<LockOwner>
        ) -> ReplyData;
        write(
            number: INodeNo, fh: FileHandle, at: u64, data: &[u8], write_flags: WriteFlags, flags: OpenFlags,
            lock_owner: Option<LockOwner>
        ) -> ReplyWrite;
        flush(number: INodeNo, fh: FileHandle, lock_owner: LockOwner) -> ReplyEmpty;
        release(
            number: INodeNo, fh: FileHandle, flags: OpenFlags, lock_owner: Option<LockOwner>, flush: bool
        ) -> ReplyEmpty;
        fsync(number: INodeNo, fh: FileHandle, datasync: bool) -> ReplyEmpty;
        fsyncdir(number: INodeNo, fh: FileHandle, datasync: bool) -> ReplyEmpty;
        opendir(number: INodeNo, flags: OpenFlags) -> ReplyOpen;
        readdir(number: INodeNo, fh: FileHandle, cookie: u64) -> ReplyDirectory;
        readdirplus(number: INodeNo, fh: FileHandle, cookie: u64) -> ReplyDirectoryPlus;
        statfs(number: INodeNo) -> ReplyStatfs;
        setxattr(number: INodeNo, name: &OsStr, value: &[u8], flags: i32, position: u32) -> ReplyEmpty;
        getxattr(number: INodeNo, name: &OsStr, size: u32) -> ReplyXattr;
        listxattr(number: INodeNo, size: u32) -> ReplyXattr;
        removexattr(number: INodeNo, name: &OsStr) -> ReplyEmpty;
        fallocate(number: INodeNo, fh: FileHandle, at: u64, len: u64, mode: i32) -> ReplyEmpty;
        lseek(number: INodeNo, fh: FileHandle, at: i64, whence: i32) -> ReplyLseek;
        copy_file_range(
            source: INodeNo, source_fh: FileHandle, from: u64, target: INodeNo, target_fh: FileHandle, to: u64,
            len: u64, flags: CopyFileRangeFlags
        ) -> ReplyWrite;
        poll(number: INodeNo, fh: FileHandle, notifier: PollNotifier, events: PollEvents, flags: PollFlags) -> ReplyPoll;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_those_of_xfs_and_the_standard_ioctl_has_none() {
        assert_eq!(ShutdownMode::of(GOING_DOWN, &[]), Some(ShutdownMode::NoLogFlush));
        let with = |flags: u32| ShutdownMode::of(GOING_DOWN_WITH_FLAGS, &flags.to_ne_bytes());
        assert_eq!(with(0), Some(ShutdownMode::Flush));
        assert_eq!(with(1), Some(ShutdownMode::LogFlush));
        assert_eq!(with(2), Some(ShutdownMode::NoLogFlush));
        assert_eq!((with(3), ShutdownMode::of(GOING_DOWN_WITH_FLAGS, &[])), (None, None));
        assert_eq!(ShutdownMode::of(0x1234, &[0; 4]), None);
    }
}
