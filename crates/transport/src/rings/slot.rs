//! The way back of one request that came over a ring: any thread may reply, and the ring's thread commits.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::entry::Entry;
use super::spares::Spares;
use crate::errno::Errno;

/// A reply to commit.
pub(super) struct Finished {
    pub(super) index: usize,
    pub(super) queue: u16,
    /// The request was late: another thread replied.
    pub(super) is_late: bool,
    unique: u64,
    error: i32,
    body: Body,
}

enum Body {
    /// Already in the entry's payload.
    InPlace(usize),
    /// In memory of its own, because the request in the payload may still be read.
    Apart(Vec<u8>),
}

/// Holds replies until the ring's thread commits them.
pub(crate) struct Mailbox {
    replies: Mutex<Vec<Finished>>,
    thread: ThreadId,
    /// Wakes the thread: an eventfd.
    bell: File,
    is_closed: AtomicBool,
    spares: Arc<Spares>,
    /// The queue of the present request.
    queue: AtomicU16,
    /// The entry of the present request is steady.
    is_steady: AtomicBool,
    /// How many fresh entries the thread has for that queue.
    own_fresh: AtomicUsize,
    /// The present request may be late, ...
    may_be_late: AtomicBool,
    /// ... or was told that it may not.
    must_not_be_late: AtomicBool,
}

impl Mailbox {
    /// A mailbox for the calling thread.
    pub(super) fn new(spares: Arc<Spares>) -> io::Result<Self> {
        let bell = File::from(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (replies, is_closed) = (Mutex::default(), AtomicBool::new(false));
        let no = || AtomicBool::new(false);
        let (queue, is_steady, may_be_late, must_not_be_late) = (AtomicU16::new(0), no(), no(), no());
        let (thread, own_fresh) = (thread::current().id(), AtomicUsize::new(0));
        Ok(Self {
            replies,
            thread,
            bell,
            is_closed,
            spares,
            queue,
            is_steady,
            own_fresh,
            may_be_late,
            must_not_be_late,
        })
    }

    /// A request of a queue is about to be served. `is_steady`: whether its entry is steady. `own_fresh`: the number of
    /// fresh entries that the thread has for the queue.
    pub(super) fn begin_request(&self, queue: u16, is_steady: bool, own_fresh: usize) {
        self.own_fresh.store(own_fresh, Ordering::Relaxed);
        self.queue.store(queue, Ordering::Relaxed);
        self.is_steady.store(is_steady, Ordering::Relaxed);
        self.may_be_late.store(false, Ordering::Relaxed);
        self.must_not_be_late.store(false, Ordering::Relaxed);
    }

    /// Whether the queue goes on while the present request waits for others. If so, its entry is not steady any more.
    pub(super) fn leaves_room(&self) -> bool {
        if !self.may_be_late.load(Ordering::Relaxed) && !self.must_not_be_late.load(Ordering::Relaxed) {
            let queue = self.queue.load(Ordering::Relaxed);
            let goes_on = match self.is_steady.load(Ordering::Relaxed) {
                true => self
                    .spares
                    .let_go_soon(queue, self.own_fresh.load(Ordering::Relaxed), || self.has_late_reply(queue)),
                false => self.spares.has_steady(queue),
            };
            self.may_be_late.store(goes_on, Ordering::Relaxed);
            self.must_not_be_late.store(!goes_on, Ordering::Relaxed);
        }
        self.may_be_late.load(Ordering::Relaxed)
    }

    /// Whether the entry of the present request is steady, after its handler.
    pub(super) fn is_steady(&self) -> bool {
        self.is_steady.load(Ordering::Relaxed) && !self.may_be_late.load(Ordering::Relaxed)
    }

    /// Ends the thread, because the mount is gone. Missing replies do not matter.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.ring();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Silences the bell, before the replies are taken.
    pub(super) fn hush(&self) {
        // Fails only if it does not ring.
        let _ = (&self.bell).read(&mut [0; 8]);
    }

    /// Takes the replies that came since the last call.
    pub(super) fn take(&self) -> Vec<Finished> {
        std::mem::take(&mut self.replies.lock())
    }

    /// Whether a late reply for a queue waits for the thread.
    fn has_late_reply(&self, queue: u16) -> bool {
        self.replies.lock().iter().any(|reply| reply.is_late && reply.queue == queue)
    }

    fn put(&self, reply: Finished) {
        let is_late = reply.is_late;
        if is_late {
            self.spares.add_returning(reply.queue);
        }
        self.replies.lock().push(reply);
        // The thread itself checks for replies after the request's handler.
        if is_late {
            self.ring();
        }
    }

    fn ring(&self) {
        // Fails only after 2^64 unread rings.
        let _ = (&self.bell).write(&1_u64.to_ne_bytes());
    }
}

impl Finished {
    /// Writes the reply into the entry, ready to commit.
    ///
    /// # Safety
    /// `entry` is the one with this index, the calling thread commits, and no borrow of the request is left.
    pub(super) unsafe fn prepare(&self, entry: &Entry) {
        let len = match &self.body {
            Body::InPlace(len) => *len,
            Body::Apart(bytes) => {
                // SAFETY: the caller guarantees that the request is no longer read.
                unsafe { entry.payload(bytes.len()) }.copy_from_slice(bytes);
                bytes.len()
            }
        };
        // SAFETY: the caller is the thread that commits.
        unsafe { entry.set_reply(self.unique, self.error, len) };
    }
}

/// The way back of one request.
pub(crate) struct Slot {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) entry: Arc<Entry>,
    pub(super) index: usize,
    pub(super) queue: u16,
    /// The payload holds no bytes of the request, so a reply may be written there at any time.
    pub(super) is_payload_free: bool,
}

impl Slot {
    pub(crate) fn reply(self, unique: u64, error: i32, body: Vec<u8>) {
        let is_too_long = body.len() > self.entry.payload_bytes();
        match is_too_long {
            // The kernel, too, fails a reply that is longer than requested.
            true => self.finish(unique, libc::EIO, Body::Apart(Vec::new())),
            false => self.finish(unique, error, Body::Apart(body)),
        }
    }

    pub(crate) fn reply_data(self, unique: u64, bytes: &[u8]) {
        match self.is_payload_free {
            true => self.fill(unique, bytes.len(), |payload| {
                payload.copy_from_slice(bytes);
                Ok(bytes.len())
            }),
            false => self.reply(unique, 0, bytes.to_vec()),
        }
    }

    /// Fills the payload in place if it is free.
    pub(crate) fn fill(self, unique: u64, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
        let entry = &self.entry;
        if len > entry.payload_bytes() {
            return self.finish(unique, libc::EIO, Body::Apart(Vec::new()));
        }
        let mut apart = Vec::new();
        let room = match self.is_payload_free {
            // SAFETY: the payload holds no bytes of the request, and this is the only way back to it.
            true => unsafe { entry.payload(len) },
            false => {
                apart.resize(len, 0);
                &mut apart[..]
            }
        };
        match fill(room) {
            Err(errno) => self.finish(unique, errno.code(), Body::Apart(Vec::new())),
            Ok(filled) => {
                assert!(filled <= len, "{filled} bytes filled where {len} have room");
                apart.truncate(filled);
                let body = if self.is_payload_free { Body::InPlace(filled) } else { Body::Apart(apart) };
                self.finish(unique, 0, body);
            }
        }
    }

    fn finish(&self, unique: u64, error: i32, body: Body) {
        let is_late = thread::current().id() != self.mailbox.thread;
        self.mailbox.put(Finished { index: self.index, queue: self.queue, is_late, unique, error, body });
    }
}
