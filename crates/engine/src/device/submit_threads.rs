//! Parallel requests to files by threads, for hosts that do not allow io_uring.

use std::thread;

use super::open_file::OpenFile;
use super::transfer::Io;
use crate::sync::{LockRank, Mutex};

/// Most threads that make requests at a time, including the caller's.
const THREADS_MAX: usize = 8;
/// Starting a thread takes as long as this many reads of a fast device.
const REQUESTS_PER_THREAD_MIN: usize = 4;

/// Makes all requests, and calls `meanwhile` while other threads begin with them.
pub fn submit(file: &OpenFile, ios: &mut [Io<'_>], meanwhile: &mut dyn FnMut()) {
    let threads = (ios.len() / REQUESTS_PER_THREAD_MIN).clamp(1, THREADS_MAX);
    let left = Mutex::new(LockRank::Leaf, ios.iter_mut());
    let make_what_is_left = || {
        loop {
            let Some(io) = left.lock().next() else { return };
            io.of_file(file.way_of(io));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            let thread = thread::Builder::new().name("oncefs-read".to_owned());
            // A machine that can start no more threads reads slowly, but it reads.
            if thread.spawn_scoped(scope, make_what_is_left).is_err() {
                break;
            }
        }
        meanwhile();
        make_what_is_left();
    });
}
