//! Parallel reads of files by io_uring: one system call passes them to the device, and one wait takes all answers. Also
//! a write during which the thread does other work.
//!
//! Each thread has its own ring, created at first use. The rule that makes it safe: **nothing returns while a request
//! is under way**, so no buffer is given back while the kernel may still use it.

use std::cell::{OnceCell, RefCell};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Once;

use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::joined::{FileRead, read_joined};

/// Most reads under way per thread: enough to keep a solid-state disk busy, and half of a usual queue.
const DEPTH: usize = 128;
/// Marks a read that the ring has not answered. No error of the kernel has this number.
const UNANSWERED: i32 = i32::MIN;

thread_local! {
    /// None inside: io_uring is not allowed here.
    static RING: OnceCell<Option<RefCell<Ring>>> = const { OnceCell::new() };
}

struct Ring(IoUring);

/// A read of a file from byte `at` on, and the vectors that it fills, as a range of all vectors.
struct Request {
    file: RawFd,
    at: u64,
    vectors: Range<usize>,
}

/// Makes all reads, and returns the result of each. None: io_uring is not allowed here, and nothing was read.
///
/// A read that came back short or was interrupted is repeated by itself, and the error of that read counts.
pub fn read_many(reads: &mut [FileRead<'_, '_>]) -> Option<Vec<io::Result<()>>> {
    let answers = RING.with(|ring| {
        let mut ring = ring.get_or_init(Ring::if_allowed).as_ref()?.borrow_mut();
        Some(ring.read(reads))
    })?;
    let results = reads.iter_mut().zip(answers).map(|(read, answer)| match answer {
        answer if answer == read.read.len() as i32 => Ok(()),
        answer if answer >= 0 || is_passing(-answer) => read_joined(read),
        answer => Err(io::Error::from_raw_os_error(-answer)),
    });
    Some(results.collect())
}

/// Writes all of `bytes` at byte `at` of a file, and calls `meanwhile`, which must not make such a request itself.
/// None: io_uring is not allowed here, nothing was written and nothing called.
pub fn write_beside(file: &File, bytes: &[u8], at: u64, meanwhile: &mut dyn FnMut()) -> Option<io::Result<()>> {
    let answer = RING.with(|ring| {
        let mut ring = ring.get_or_init(Ring::if_allowed).as_ref()?.borrow_mut();
        let under_way = ring.begin_write(file, bytes, at);
        meanwhile();
        Some(under_way.end())
    })?;
    Some(match answer {
        answer if usize::try_from(answer) == Ok(bytes.len()) => Ok(()),
        answer if answer >= 0 || is_passing(-answer) => file.write_all_at(bytes, at),
        answer => Err(io::Error::from_raw_os_error(-answer)),
    })
}

fn is_passing(errno: i32) -> bool {
    matches!(errno, libc::EINTR | libc::EAGAIN)
}

impl Ring {
    fn if_allowed() -> Option<RefCell<Self>> {
        static TOLD: Once = Once::new();
        match Self::new() {
            Ok(ring) => Some(RefCell::new(ring)),
            Err(e) => {
                TOLD.call_once(|| log::info!("io_uring cannot be used: {e}; scattered blocks are read by threads"));
                None
            }
        }
    }

    /// A tested ring: a system may allow creating a ring but not using it.
    fn new() -> io::Result<Self> {
        // The waiting thread takes the answers itself (Linux 6.1), and is not interrupted by each.
        let quiet = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(DEPTH as u32);
        let ring = quiet.or_else(|_| IoUring::new(DEPTH as u32))?;
        let mut ring = Self(ring);
        let nothing = opcode::Nop::new().build();
        // SAFETY: the request names no memory.
        unsafe { ring.0.submission().push(&nothing) }.expect("an empty queue has room");
        ring.0.submit_and_wait(1)?;
        assert_eq!(ring.0.completion().count(), 1, "answers of a ring that was asked once");
        let mut known = Probe::new();
        ring.0.submitter().register_probe(&mut known)?;
        let has_all = known.is_supported(opcode::Read::CODE) && known.is_supported(opcode::Write::CODE);
        if has_all { Ok(ring) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    /// The kernel's answer to each read: bytes read, or less than 0.
    fn read(&mut self, reads: &mut [FileRead<'_, '_>]) -> Vec<i32> {
        let mut vectors = Vec::with_capacity(reads.len());
        let mut requests = Vec::with_capacity(reads.len());
        for FileRead { file, read } in reads.iter_mut() {
            let first = vectors.len();
            read.add_vectors(&mut vectors);
            requests.push(Request { file: file.as_raw_fd(), at: read.at(), vectors: first..vectors.len() });
        }
        self.read_vectors(&vectors, &requests)
    }

    /// Reads into ranges of `vectors`. Returns when all requests are answered.
    fn read_vectors(&mut self, vectors: &[libc::iovec], requests: &[Request]) -> Vec<i32> {
        let mut answers = vec![UNANSWERED; requests.len()];
        let (mut asked, mut answered) = (0, 0);
        while answered < requests.len() {
            while asked < requests.len() && asked - answered < DEPTH {
                let entry = requests[asked].entry(vectors).user_data(asked as u64);
                // SAFETY: the vectors, and the buffers that they name, are borrowed until this function returns, and it
                // returns only when every read has its answer.
                unsafe { self.0.submission().push(&entry) }.expect("the queue has room for DEPTH reads");
                asked += 1;
            }
            let under_way = asked - answered;
            let wanted = if asked == requests.len() { under_way } else { under_way / 2 };
            self.wait(wanted);
            for answer in self.0.completion() {
                let place = &mut answers[answer.user_data() as usize];
                debug_assert_eq!(*place, UNANSWERED, "one answer a read");
                *place = answer.result();
                answered += 1;
            }
        }
        answers
    }

    /// Submits a write.
    fn begin_write<'a>(&'a mut self, file: &File, bytes: &'a [u8], at: u64) -> WriteUnderWay<'a> {
        let len = u32::try_from(bytes.len()).expect("a write is much shorter than 4 GiB");
        let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), bytes.as_ptr(), len).offset(at).build();
        // SAFETY: the returned value borrows the bytes, and waits for the answer before it releases them.
        unsafe { self.0.submission().push(&entry) }.expect("the queue has room: nothing is under way");
        self.wait(0);
        WriteUnderWay { ring: self, _bytes: bytes, answer: None }
    }

    /// Submits new requests and waits for this many answers, or fewer if a signal comes.
    fn wait(&self, answers: usize) {
        match self.0.submit_and_wait(answers) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {
                std::thread::yield_now();
            }
            // Buffers may still be written, and there is no way to wait for that. Continuing would corrupt memory.
            Err(e) => {
                log::error!("reads that are under way cannot be waited for: {e}");
                std::process::abort();
            }
        }
    }
}

/// A write that the kernel has. Dropping it waits for its end, even if the work beside it panics.
struct WriteUnderWay<'a> {
    ring: &'a mut Ring,
    _bytes: &'a [u8],
    answer: Option<i32>,
}

impl WriteUnderWay<'_> {
    /// Bytes written, or less than 0.
    fn end(mut self) -> i32 {
        self.wait();
        self.answer.expect("it was waited for")
    }

    fn wait(&mut self) {
        while self.answer.is_none() {
            self.ring.wait(1);
            self.answer = self.ring.0.completion().next().map(|answer| answer.result());
        }
    }
}

impl Drop for WriteUnderWay<'_> {
    fn drop(&mut self) {
        self.wait();
    }
}

impl Request {
    /// A single buffer costs the kernel less than a list.
    fn entry(&self, vectors: &[libc::iovec]) -> squeue::Entry {
        let file = types::Fd(self.file);
        match &vectors[self.vectors.clone()] {
            [one] => opcode::Read::new(file, one.iov_base.cast(), one.iov_len as u32).offset(self.at).build(),
            many => opcode::Readv::new(file, many.as_ptr(), many.len() as u32).offset(self.at).build(),
        }
    }
}
