//! The queue of a ublk device: takes requests from the kernel, does them on the disk's file, and answers.
//!
//! All of it is one ring of one thread. Each tag has one entry in the ring at any time: it waits for a request, or its
//! request is under way on the file. So a request that waits for room in the volume keeps no other waiting.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

use io_uring::{IoUring, opcode, squeue, types};

use super::wire::{self, Exchange, Numbers, Operation, REQUEST_BYTES, Request};

/// The driver maps requests in whole pages.
const PAGE_BYTES: usize = 4096;
/// In the user data of an entry: its tag's request is under way on the file.
const ON_FILE: u64 = 1 << 32;

/// The queue, and the memory that the kernel shares with it.
pub struct Queue<'a> {
    /// Closed before the memory is given back.
    ring: IoUring,
    server: &'a File,
    disk: &'a File,
    numbers: Numbers,
    depth: u16,
    requests: Mapped,
    /// For each tag `buffer_bytes`.
    buffers: Mapped,
    buffer_bytes: usize,
    operations: Vec<Operation>,
}

/// The answer to an entry of the ring.
struct Answer {
    tag: u16,
    is_on_file: bool,
    result: i32,
}

impl<'a> Queue<'a> {
    /// A queue of the calling thread over the server's device. `disk` takes aligned requests only.
    pub fn new(
        server: &'a File,
        disk: &'a File,
        numbers: Numbers,
        depth: u16,
        buffer_bytes: usize,
    ) -> io::Result<Self> {
        let slots = usize::from(depth);
        let ring = IoUring::new(u32::from(depth).next_power_of_two())?;
        // By default the kernel lets few calls to a file sleep at a time. Here each may wait for room in the volume.
        let _ = ring.submitter().register_iowq_max_workers(&mut [depth.into(), 0]);
        let requests = Mapped::of(Some(server), (slots * REQUEST_BYTES).next_multiple_of(PAGE_BYTES))?;
        let buffers = Mapped::of(None, slots * buffer_bytes)?;
        let operations = vec![Operation::Flush; slots];
        Ok(Self { ring, server, disk, numbers, depth, requests, buffers, buffer_bytes, operations })
    }

    /// Serves until the device is stopped.
    pub fn serve(mut self) -> io::Result<()> {
        for tag in 0..self.depth {
            self.exchange(Exchange::Fetch, tag, 0)?;
        }
        let mut waiting = usize::from(self.depth);
        let mut answers = Vec::new();
        while waiting > 0 {
            match self.ring.submit_and_wait(1) {
                Err(e) if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => return Err(e),
                _ => {}
            }
            answers.extend(self.ring.completion().map(|entry| Answer {
                tag: entry.user_data() as u16,
                is_on_file: entry.user_data() & ON_FILE != 0,
                result: entry.result(),
            }));
            for answer in answers.drain(..) {
                match answer {
                    Answer { tag, is_on_file: true, result } => self.answer(tag, result)?,
                    Answer { tag, result: 0, .. } => self.begin(tag)?,
                    // The device is stopped.
                    Answer { .. } => waiting -= 1,
                }
            }
        }
        Ok(())
    }

    /// Begins the request of a tag.
    fn begin(&mut self, tag: u16) -> io::Result<()> {
        let request = match self.request(tag) {
            Ok(request) => request,
            Err(_) => return self.exchange(Exchange::CommitAndFetch, tag, -libc::EOPNOTSUPP),
        };
        self.operations[usize::from(tag)] = request.operation;
        let entry = self.on_file(tag, request).user_data(u64::from(tag) | ON_FILE);
        self.push(&entry)
    }

    fn on_file(&self, tag: u16, Request { operation, at, bytes }: Request) -> squeue::Entry {
        let disk = types::Fd(self.disk.as_raw_fd());
        let change = |mode: libc::c_int| {
            let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
            opcode::Fallocate::new(disk, bytes.into()).offset(at).mode(mode).build()
        };
        match operation {
            Operation::Read => opcode::Read::new(disk, self.buffer(tag), bytes).offset(at).build(),
            Operation::Write => opcode::Write::new(disk, self.buffer(tag), bytes).offset(at).build(),
            Operation::Flush => opcode::Fsync::new(disk).build(),
            Operation::Discard | Operation::ZeroAndFree => change(libc::FALLOC_FL_PUNCH_HOLE),
            Operation::Zero => change(libc::FALLOC_FL_ZERO_RANGE),
        }
    }

    fn answer(&mut self, tag: u16, result: i32) -> io::Result<()> {
        let result = as_of_a_device(self.operations[usize::from(tag)], result);
        self.exchange(Exchange::CommitAndFetch, tag, result)
    }

    fn exchange(&mut self, exchange: Exchange, tag: u16, result: i32) -> io::Result<()> {
        let fields = wire::exchange(tag, result, self.buffer(tag) as u64);
        let server = types::Fd(self.server.as_raw_fd());
        let entry = opcode::UringCmd16::new(server, self.numbers.exchange(exchange)).cmd(fields);
        self.push(&entry.build().user_data(tag.into()))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the memory that an entry names is the buffer of its tag, which lives as long as the ring, and which
        // no other entry has: a tag has one entry at a time.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    fn buffer(&self, tag: u16) -> *mut u8 {
        // SAFETY: a tag is below the depth, and each has its part.
        unsafe { self.buffers.start.as_ptr().add(usize::from(tag) * self.buffer_bytes) }
    }

    fn request(&self, tag: u16) -> io::Result<Request> {
        // SAFETY: within the mapping, and the kernel changes the request of a tag only while that waits for one.
        let bytes = unsafe {
            let at = self.requests.start.as_ptr().add(usize::from(tag) * REQUEST_BYTES);
            ptr::read_volatile(at.cast::<[u8; REQUEST_BYTES]>())
        };
        let request = Request::decode(&bytes)?;
        let has_data = matches!(request.operation, Operation::Read | Operation::Write);
        let fits = !has_data || request.bytes as usize <= self.buffer_bytes;
        if fits { Ok(request) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

/// A result of the file as one of a block device. All errors look alike, as on a loop device: a full volume, too,
/// is a broken device to the file system on it. The kernel asks again for the rest of a short read or write.
fn as_of_a_device(operation: Operation, result: i32) -> i32 {
    match result {
        _ if result == -libc::EOPNOTSUPP => result,
        0 if operation == Operation::Write => -libc::EIO,
        0.. => result,
        _ => -libc::EIO,
    }
}

/// Memory of whole pages, of the device's or of no file.
struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapped {
    fn of(file: Option<&File>, bytes: usize) -> io::Result<Self> {
        let (rights, kind, descriptor) = match file {
            Some(file) => (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_POPULATE, file.as_raw_fd()),
            None => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        // SAFETY: a new mapping, wherever the kernel puts it.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, kind, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: NonNull::new(start.cast()).expect("a mapping is not at address 0"), bytes })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping that `of` made. The ring, which was dropped before, used it last.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_look_alike_and_a_write_of_nothing_is_one() {
        assert_eq!(as_of_a_device(Operation::Write, -libc::ENOSPC), -libc::EIO);
        assert_eq!(as_of_a_device(Operation::Read, -libc::ENOTCONN), -libc::EIO);
        assert_eq!(as_of_a_device(Operation::Discard, -libc::EOPNOTSUPP), -libc::EOPNOTSUPP);
        assert_eq!(as_of_a_device(Operation::Write, 0), -libc::EIO);
        assert_eq!(as_of_a_device(Operation::Write, 4096), 4096);
        assert_eq!(as_of_a_device(Operation::Flush, 0), 0);
    }
}
