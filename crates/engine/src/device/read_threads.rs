//! Many reads of a file at once by threads, where io_uring is not allowed.

use std::io;
use std::thread;

use super::joined::{FileRead, read_joined};
use crate::sync::{LockRank, Mutex};

/// Threads that read at a time, the caller among them.
const THREADS_MAX: usize = 8;
/// A thread takes as long to start as so many reads of a fast device.
const READS_PER_THREAD_MIN: usize = 4;

/// Makes all reads, and gives the result of each.
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
            // A machine that can start no more threads is slow to read, not unable to.
            if thread.spawn_scoped(scope, read_what_is_left).is_err() {
                break;
            }
        }
        read_what_is_left();
    });
    results
}
