//! Parallel requests to files by io_uring: one system call passes them to the device, and one wait takes all answers.
//! The thread may do other work meanwhile, and submit other requests.
//!
//! Each thread has its own ring, created at first use. The rule that makes it safe: **nothing returns while a request
//! is under way**, so no buffer is given back while the kernel may still use it.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;

use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::open_file::OpenFile;
use super::transfer::Io;

/// Most requests under way per thread: enough to keep a solid-state disk busy, and half of a usual queue.
const DEPTH: usize = 128;
/// Marks a request that the ring has not answered. No error of the kernel has this number.
const UNANSWERED: i32 = i32::MIN;

thread_local! {
    /// None inside: io_uring is not allowed here.
    static RING: OnceCell<Option<RefCell<Ring>>> = const { OnceCell::new() };
}

/// The ring of a thread. A submission may begin while another one is under way, and then ends before it.
struct Ring {
    queue: IoUring,
    /// The kernel's answers to all submissions that are under way, those of the newest last.
    answers: Vec<i32>,
    /// Requests in the queue and in the kernel.
    under_way: usize,
}

/// A request to a file from byte `at` on, and the vectors of its memory, as a range of all vectors.
struct Request {
    file: RawFd,
    at: u64,
    is_write: bool,
    vectors: Range<usize>,
}

/// Makes all requests, and leaves the result in each. If there is work to do `meanwhile`, it begins once the requests
/// are on their way. False: io_uring is not allowed here, and nothing was done.
pub fn submit(file: &OpenFile, ios: &mut [Io<'_>], meanwhile: Option<&mut dyn FnMut()>) -> bool {
    RING.with(|ring| {
        let Some(ring) = ring.get_or_init(Ring::if_allowed) else { return false };
        let mut submission = Submission::begin(ring, file, ios);
        if let Some(meanwhile) = meanwhile {
            ring.borrow_mut().enter(0);
            meanwhile();
        }
        submission.wait_for_all();
        submission.take_answers();
        true
    })
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
        let mut queue = quiet.or_else(|_| IoUring::new(DEPTH as u32))?;
        let nothing = opcode::Nop::new().build();
        // SAFETY: the request names no memory.
        unsafe { queue.submission().push(&nothing) }.expect("an empty queue has room");
        queue.submit_and_wait(1)?;
        assert_eq!(queue.completion().count(), 1, "answers of a ring that was asked once");
        let mut known = Probe::new();
        queue.submitter().register_probe(&mut known)?;
        let has_all = known.is_supported(opcode::Read::CODE) && known.is_supported(opcode::Write::CODE);
        let ring = Self { queue, answers: Vec::new(), under_way: 0 };
        if has_all { Ok(ring) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    /// Passes queued requests to the kernel, waits for this many answers, or fewer if a signal comes, and takes the
    /// answers that are there.
    fn enter(&mut self, wanted: usize) {
        match self.queue.submit_and_wait(wanted) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {
                std::thread::yield_now();
            }
            // Buffers may still be used, and there is no way to wait for that. Continuing would corrupt memory.
            Err(e) => {
                log::error!("requests that are under way cannot be waited for: {e}");
                std::process::abort();
            }
        }
        for answer in self.queue.completion() {
            let place = &mut self.answers[answer.user_data() as usize];
            debug_assert_eq!(*place, UNANSWERED, "one answer a request");
            *place = answer.result();
            self.under_way -= 1;
        }
    }
}

/// Requests that the kernel has or will have. Dropping it waits for their end, even if the work meanwhile panics.
struct Submission<'r, 'i, 'a> {
    ring: &'r RefCell<Ring>,
    file: &'r OpenFile,
    ios: &'i mut [Io<'a>],
    vectors: Vec<libc::iovec>,
    requests: Vec<Request>,
    /// Where its answers begin among those of the ring.
    answers_at: usize,
    /// How many of the requests were queued.
    queued: usize,
}

impl<'r, 'i, 'a> Submission<'r, 'i, 'a> {
    /// Queues as many of the requests as there is room for.
    fn begin(ring: &'r RefCell<Ring>, file: &'r OpenFile, ios: &'i mut [Io<'a>]) -> Self {
        let mut vectors = Vec::with_capacity(ios.len());
        let mut requests = Vec::with_capacity(ios.len());
        for io in ios.iter_mut() {
            let first = vectors.len();
            io.add_vectors(&mut vectors);
            let (file, vectors) = (file.way_of(io).as_raw_fd(), first..vectors.len());
            requests.push(Request { file, at: io.at(), is_write: io.is_write(), vectors });
        }
        let answers_at = {
            let answers = &mut ring.borrow_mut().answers;
            let at = answers.len();
            answers.resize(at + requests.len(), UNANSWERED);
            at
        };
        let mut submission = Self { ring, file, ios, vectors, requests, answers_at, queued: 0 };
        submission.queue();
        submission
    }

    fn queue(&mut self) {
        let mut ring = self.ring.borrow_mut();
        while self.queued < self.requests.len() && ring.under_way < DEPTH {
            let mark = (self.answers_at + self.queued) as u64;
            let entry = self.requests[self.queued].entry(&self.vectors).user_data(mark);
            // SAFETY: this value keeps the vectors and borrows the memory that they name, and it is only dropped when
            // every request has its answer.
            unsafe { ring.queue.submission().push(&entry) }.expect("the queue has room for DEPTH requests");
            self.queued += 1;
            ring.under_way += 1;
        }
    }

    /// Queued requests without an answer.
    fn unanswered(&self) -> usize {
        let ring = self.ring.borrow();
        let own = &ring.answers[self.answers_at..self.answers_at + self.queued];
        own.iter().filter(|answer| **answer == UNANSWERED).count()
    }

    fn wait_for_all(&mut self) {
        loop {
            self.queue();
            let wanted = match self.unanswered() {
                0 if self.queued == self.requests.len() => return,
                left if self.queued == self.requests.len() => left,
                // The rest is queued when half of the queue is free.
                _ => DEPTH / 2,
            };
            self.ring.borrow_mut().enter(wanted);
        }
    }

    /// Gives each request its answer.
    fn take_answers(mut self) {
        let answers = self.ring.borrow_mut().answers.split_off(self.answers_at);
        self.queued = 0;
        debug_assert_eq!(answers.len(), self.ios.len(), "answers, and requests");
        for (io, answer) in self.ios.iter_mut().zip(answers) {
            io.answered(self.file.way_of(io), answer);
        }
    }
}

impl Drop for Submission<'_, '_, '_> {
    fn drop(&mut self) {
        while self.queued > 0 && self.unanswered() > 0 {
            self.ring.borrow_mut().enter(1);
        }
        self.ring.borrow_mut().answers.truncate(self.answers_at);
    }
}

impl Request {
    /// A single buffer costs the kernel less than a list.
    fn entry(&self, vectors: &[libc::iovec]) -> squeue::Entry {
        let file = types::Fd(self.file);
        match &vectors[self.vectors.clone()] {
            [one] if self.is_write => {
                opcode::Write::new(file, one.iov_base.cast_const().cast(), one.iov_len as u32).offset(self.at).build()
            }
            [one] => opcode::Read::new(file, one.iov_base.cast(), one.iov_len as u32).offset(self.at).build(),
            many => opcode::Readv::new(file, many.as_ptr(), many.len() as u32).offset(self.at).build(),
        }
    }
}
