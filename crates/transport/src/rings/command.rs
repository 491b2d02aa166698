//! The commands that `/dev/fuse` takes over io_uring, and the ring that carries them.

use std::io;
use std::os::fd::RawFd;
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::entry::Entry;

/// `FUSE_IO_URING_CMD_REGISTER`: here is an entry, wait for a request.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: the entry has the reply, wait for the next request.
const COMMIT_AND_FETCH: u32 = 2;
/// The user data of a poll of the bell.
const BELL: u64 = u64::MAX;
/// After this time a temporary refusal is over, or it lasts.
pub(super) const FOR_NOW: Duration = Duration::from_millis(1);
/// `len` within `struct io_uring_sqe`.
const SQE_LEN_AT: usize = 24;

/// One thread's ring. Only that thread may use it.
pub(super) struct Ring(IoUring<squeue::Entry128, cqueue::Entry>);

/// Whether the kernel's refusal is temporary.
pub(super) fn is_for_now(errno: Option<i32>) -> bool {
    matches!(errno, Some(libc::EAGAIN | libc::EBUSY | libc::EINTR))
}

/// An event of the ring.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Replies came from other threads.
    Bell,
    /// An entry has a request.
    Request(usize),
    /// The kernel ended an entry with this errno.
    Ended(usize, i32),
}

impl Ring {
    /// A ring of the calling thread, for `entries` entries, over a descriptor of `/dev/fuse`.
    pub(super) fn new(entries: usize, device: RawFd) -> io::Result<Self> {
        let size = (entries as u32 + 1).next_power_of_two();
        let ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_submit_all().build(size)?;
        ring.submitter().register_files(&[device])?;
        Ok(Self(ring))
    }

    /// Registers an entry of a queue with the kernel. The entry must not move.
    pub(super) fn register(&mut self, queue: u16, index: usize, entry: &Entry) -> io::Result<()> {
        let (parts, parts_len) = (entry.parts() as u64, 2);
        self.push(command(REGISTER, queue, 0, Some(parts), parts_len, index))
    }

    /// Commits the reply in an entry.
    pub(super) fn commit(&mut self, queue: u16, index: usize, entry: &Entry) -> io::Result<()> {
        self.push(command(COMMIT_AND_FETCH, queue, entry.commit_id(), None, 0, index))
    }

    /// Reports the next ring of the bell, once.
    pub(super) fn listen(&mut self, bell: RawFd) -> io::Result<()> {
        let poll = opcode::PollAdd::new(types::Fd(bell), libc::POLLIN as u32).build().user_data(BELL);
        self.push(poll.into())
    }

    fn push(&mut self, entry: squeue::Entry128) -> io::Result<()> {
        // SAFETY: a poll refers to no memory. A command refers to an entry's, which is unmapped only after the ring is
        // closed (`serve::RingThread` drops the ring first, and an entry
        // does not move), and registration reads the list of its parts at once.
        while unsafe { self.0.submission().push(&entry) }.is_err() {
            self.submit(0)?;
        }
        Ok(())
    }

    /// Submits the pushed commands, and waits for at least `wait_for` events. If the kernel is short of room or memory
    /// at the moment, there may be fewer events, and the next call submits the rest.
    pub(super) fn submit(&mut self, wait_for: usize) -> io::Result<()> {
        loop {
            match self.0.submit_and_wait(wait_for) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_for_now(e.raw_os_error()) => {
                    thread::sleep(FOR_NOW);
                    return Ok(());
                }
                done => return done.map(drop),
            }
        }
    }

    /// Takes the new events.
    pub(super) fn events(&mut self, into: &mut Vec<Event>) {
        into.extend(self.0.completion().map(|completion| match (completion.user_data(), completion.result()) {
            (BELL, _) => Event::Bell,
            (index, 0..) => Event::Request(index as usize),
            (index, error) => Event::Ended(index as usize, -error),
        }));
    }
}

/// A command with its `fuse_uring_cmd_req`: flags, commit id, number of the queue.
fn command(
    number: u32,
    queue: u16,
    commit_id: u64,
    parts: Option<u64>,
    parts_len: u32,
    index: usize,
) -> squeue::Entry128 {
    let mut request = [0_u8; 80];
    request[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    request[16..18].copy_from_slice(&queue.to_ne_bytes());
    let mut entry =
        opcode::UringCmd80::new(types::Fixed(0), number).cmd(request).addr(parts).build().user_data(index as u64);
    // SAFETY: the entry is a `struct io_uring_sqe` of 128 bytes, whose `len` the crate cannot set for commands.
    unsafe { (&raw mut entry).cast::<u8>().add(SQE_LEN_AT).cast::<u32>().write_unaligned(parts_len) };
    entry
}
