//! Shuts a mount down for crash tests, as the ioctls of XFS and ext4 do: from then on every request is answered with EIO
//! until the mount ends, and nothing more becomes durable. The next mount recovers as after a crash.
//!
//! The kernel still answers from its own caches.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use oncefs_transport::{Errno, Negotiation, Operation, Reply, Request, Service};

use crate::privileges::Credentials;

/// `_IOR('X', 125, __u32)` of XFS and ext4. FUSE delivers the argument of an ioctl only if it is an `_IOW`, so this one
/// counts as a request not to write the log.
const GOING_DOWN: u32 = 0x8004_587d;
/// `_IOW('X', 125, __u32)`: the same with its argument.
const GOING_DOWN_WITH_FLAGS: u32 = 0x4004_587d;

/// The writes that become durable before a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownMode {
    /// Everything that was written.
    Flush,
    /// Everything in the daemon. Data that the kernel has not written back is lost.
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

/// Makes durable what the mode names, and nothing after that.
pub type ShutDown = Arc<dyn Fn(ShutdownMode) -> io::Result<()> + Send + Sync>;

/// Passes requests on until the mount is shut down.
pub struct Gate<S> {
    inner: S,
    is_shut: Arc<AtomicBool>,
    shut_down: ShutDown,
}

impl<S: Service> Gate<S> {
    /// A gate that is open.
    pub fn new(inner: S, shut_down: ShutDown) -> Self {
        Self { inner, is_shut: Arc::default(), shut_down }
    }

    fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Acquire)
    }

    /// Runs on a thread of its own: the kernel's dirty pages come as requests, which must be answered meanwhile.
    fn shut(&self, mode: ShutdownMode, reply: Reply) {
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
                    reply.error(Errno::new(libc::EIO));
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("shutdown".to_owned()).spawn(work) {
            // The reply went with the thread: dropped, it answers EIO.
            log::error!("cannot start the thread that shuts the mount down: {error}");
        }
    }
}

impl<S: Service> Service for Gate<S> {
    fn init(&mut self, negotiation: &mut Negotiation) -> io::Result<()> {
        self.inner.init(negotiation)
    }

    fn serve(&self, request: Request<'_>, reply: Reply) {
        let mode = match request.operation {
            Operation::Ioctl { command, input, .. } => ShutdownMode::of(command, input),
            _ => None,
        };
        match mode {
            _ if self.is_shut() => reply.error(Errno::new(libc::EIO)),
            None => self.inner.serve(request, reply),
            Some(_) if !Credentials::of(&request.header).may_shut_down() => reply.error(Errno::new(libc::EPERM)),
            Some(mode) => self.shut(mode, reply),
        }
    }

    /// FORGETs are ignored after a shutdown. The next mount deletes the orphans.
    fn forget(&self, inode: u64, lookups: u64) {
        if !self.is_shut() {
            self.inner.forget(inode, lookups);
        }
    }

    fn interrupt(&self, unique: u64) -> bool {
        self.inner.interrupt(unique)
    }

    fn destroy(&self) {
        self.inner.destroy();
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
