//! Shuts a mount down for crash tests, as the ioctls of XFS and ext4 do: from then on every request is answered with EIO
//! until the mount ends, and nothing more becomes durable. The next mount recovers as after a crash.
//!
//! The kernel still answers from its own caches.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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

/// Makes durable what the mode names, and nothing after that. It calls the function that it gets when the kernel has
/// written back what it should: that function lets no request pass any more, and waits for those under way. So a write
/// that was answered before the shutdown is part of what becomes durable.
pub type ShutDown = Arc<dyn Fn(ShutdownMode, &dyn Fn()) -> io::Result<()> + Send + Sync>;

/// How long a shutdown waits for requests under way, at most, and how often it looks. One may wait for another program.
const REQUESTS_MAX: Duration = Duration::from_secs(10);
const REQUESTS_LOOK: Duration = Duration::from_millis(1);

/// Waits until a request may be answered. False: never again, because another machine may serve the volume.
pub type MayAnswer = Arc<dyn Fn() -> bool + Send + Sync>;

/// Passes requests on until the mount is shut down.
pub struct Gate<S> {
    inner: S,
    may_answer: Option<MayAnswer>,
    door: Arc<Door>,
    shut_down: ShutDown,
}

/// Whether requests pass, and how many have passed and are not served yet.
#[derive(Debug, Default)]
struct Door {
    is_shut: AtomicBool,
    under_way: AtomicUsize,
}

impl Door {
    fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::SeqCst)
    }

    /// Lets a request pass until the result is dropped. None: the mount is shut down.
    fn pass(&self) -> Option<Passing<'_>> {
        // Counted before the look, so that the thread that shuts the door misses none.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let passing = Passing(self);
        (!self.is_shut()).then_some(passing)
    }

    /// Lets no request pass from now on, and waits for those that have.
    fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
        let began = Instant::now();
        while self.under_way.load(Ordering::SeqCst) > 0 && began.elapsed() < REQUESTS_MAX {
            thread::sleep(REQUESTS_LOOK);
        }
    }
}

/// A request that passed.
struct Passing<'a>(&'a Door);

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<S: Service> Gate<S> {
    /// A gate that is open.
    pub fn new(inner: S, shut_down: ShutDown, may_answer: Option<MayAnswer>) -> Self {
        Self { inner, may_answer, door: Arc::default(), shut_down }
    }

    fn may_answer(&self) -> bool {
        self.may_answer.as_ref().is_none_or(|may_answer| may_answer())
    }

    /// Runs on a thread of its own: the kernel's dirty pages come as requests, which must be answered meanwhile.
    fn shut(&self, mode: ShutdownMode, reply: Reply) {
        let (door, shut_down) = (self.door.clone(), self.shut_down.clone());
        let work = move || {
            log::warn!("shutting the mount down for a test ({mode:?}): every request will fail until it is unmounted");
            let done = shut_down(mode, &|| door.shut());
            door.shut();
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
        // A request that waits for the lease has not passed.
        let may_answer = self.may_answer();
        let passing = self.door.pass();
        match mode {
            _ if !may_answer || passing.is_none() => reply.error(Errno::new(libc::EIO)),
            None => self.inner.serve(request, reply),
            Some(_) if !Credentials::of(&request.header).may_shut_down() => reply.error(Errno::new(libc::EPERM)),
            Some(mode) => self.shut(mode, reply),
        }
    }

    /// FORGETs are ignored after a shutdown. The next mount deletes the orphans.
    fn forget(&self, inode: u64, lookups: u64) {
        if !self.door.is_shut() {
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

    #[test]
    fn a_shutdown_waits_for_requests_under_way_and_lets_none_pass_after_it() {
        let door = Door::default();
        let request = door.pass().unwrap();
        thread::scope(|scope| {
            let shutting = scope.spawn(|| door.shut());
            while !door.is_shut() {
                thread::yield_now();
            }
            assert!(door.pass().is_none() && !shutting.is_finished());
            drop(request);
            shutting.join().unwrap();
        });
        assert_eq!(door.under_way.load(Ordering::SeqCst), 0);
    }
}
