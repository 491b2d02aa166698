//! Parallel reads of files by threads, for hosts that do not allow io_uring.

use std::io;
use std::thread;

use super::joined::{FileRead, read_joined};
use crate::sync::{LockRank, Mutex};

/// Most threads that read at a time, including the caller's.
const THREADS_MAX: usize = 8;
/// Starting a thread takes as long as this many reads of a fast device.
const READS_PER_THREAD_MIN: usize = 4;

/// Makes all reads, and returns the result of each.
pub fn read_many(reads: &mut [FileRead<'_, '_>]) -> Vec<io::Result<()>> {
    let threads = (reads.len() / READS_PER_THREAD_MIN).clamp(1, THREADS_MAX);
    let mut results: Vec<io::Result<()>> = reads.iter().map(|_| Ok(())).collect();
    let left = Mutex::new(LockRank::Leaf, reads.iter_mut().zip(&mut results));
    let read_what_is_left = || {
        loop {
            let Some((read, result)) = left.lock().next() else { return };
            *result = read_joined(read);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            let thread = thread::Builder::new().name("oncefs-read".to_owned());
            // A machine that can start no more threads reads slowly, but it reads.
            if thread.spawn_scoped(scope, read_what_is_left).is_err() {
                break;
            }
        }
        read_what_is_left();
    });
    results
}
