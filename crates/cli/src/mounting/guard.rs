//! The mounter's second thread, which waits only for its own line. It aborts the connection when the daemon asks for
//! that, or dies.
//!
//! The mounter's first thread may itself wait for requests that are never answered (syncfs, a change of flags). And if
//! a daemon is killed while one of its threads waits in the kernel for such a request, that thread keeps the connection
//! open. No signal ends it, only an abort by another process.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use oncefs_fuse::{AbortSwitch, MountId};

/// The mount, once it exists.
pub type Made = Arc<OnceLock<(MountId, AbortSwitch)>>;

/// Flag of pidfd_open(2) for a single thread: the descriptor is readable when that thread has ended, even if others of
/// its process still wait (Linux 6.9).
const PIDFD_THREAD: libc::c_uint = libc::O_EXCL as libc::c_uint;

/// The word for an abort. Any other word is the number of the thread whose end counts as the daemon's.
const ABORT: i32 = 0;

/// A descriptor that is readable when a process, or one of its threads, has ended.
pub fn end_of(number: u32, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: a system call with integer arguments.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, number, flags) };
    match RawFd::try_from(descriptor) {
        // SAFETY: a new descriptor without another owner.
        Ok(descriptor @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The daemon's end of the line.
#[derive(Debug)]
pub struct Guard(Mutex<UnixStream>);

impl Guard {
    pub fn new(line: UnixStream) -> Self {
        Self(Mutex::new(line))
    }

    /// Ends the connection at once.
    pub fn abort(&self) -> io::Result<()> {
        self.ask(ABORT)
    }

    /// Makes the end of the calling thread count as the daemon's. The thread must never wait for an answer of the
    /// mount.
    pub fn watch_me(&self) -> io::Result<()> {
        // SAFETY: a system call without arguments.
        self.ask(unsafe { libc::gettid() })
    }

    fn ask(&self, word: i32) -> io::Result<()> {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        line.write_all(&word.to_le_bytes())?;
        let mut answer = [0; 4];
        line.read_exact(&mut answer)?;
        match i32::from_le_bytes(answer) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Runs the guard until the daemon hangs up or the named thread has ended.
pub fn watch(mut line: UnixStream, made: &Made) {
    let mut word = [0; 4];
    let mut thread = None;
    while is_asked(&line, thread.as_ref()) && line.read_exact(&mut word).is_ok() {
        let done = match i32::from_le_bytes(word) {
            ABORT => abort(made),
            number => end_of(number.cast_unsigned(), PIDFD_THREAD).map(|end| thread = Some(end)),
        };
        let errno = done.err().map_or(0, |e| e.raw_os_error().unwrap_or(libc::EIO));
        if line.write_all(&errno.to_le_bytes()).is_err() {
            break;
        }
    }
    // Fails if the mount is gone, and then an abort is not needed.
    let _ = abort(made);
}

fn abort(made: &Made) -> io::Result<()> {
    made.get().ok_or(io::Error::from_raw_os_error(libc::EINVAL))?.1.abort()
}

/// Waits for a word. False: the thread has ended.
fn is_asked(line: &UnixStream, thread: Option<&OwnedFd>) -> bool {
    let poll = |descriptor: RawFd| libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // poll(2) ignores a negative descriptor.
    let mut both = [poll(line.as_raw_fd()), poll(thread.map_or(-1, AsRawFd::as_raw_fd))];
    // SAFETY: two pollfds that outlive the call.
    while unsafe { libc::poll(both.as_mut_ptr(), 2, -1) } < 0 {}
    both[1].revents == 0
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;
    use crate::process::descriptors::await_readable;

    #[test]
    fn the_end_of_a_process_is_told() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let end = end_of(child.id(), 0).unwrap();
        assert!(!await_readable(end.as_fd(), Some(std::time::Duration::ZERO)), "it runs");
        child.kill().unwrap();
        assert!(await_readable(end.as_fd(), None));
        child.wait().unwrap();
    }

    #[test]
    fn the_guard_answers_until_the_thread_that_was_named_has_ended() {
        let (ours, its) = UnixStream::pair().unwrap();
        let guard = Arc::new(Guard::new(ours));
        let watching = thread::spawn(move || watch(its, &Arc::default()));
        let (end, until) = channel::<()>();
        let (told, is_named) = channel();
        let naming = guard.clone();
        let named = thread::spawn(move || {
            told.send(naming.watch_me()).unwrap();
            let _ = until.recv();
        });
        is_named.recv().unwrap().expect("Linux 6.9");
        assert_eq!(guard.abort().unwrap_err().raw_os_error(), Some(libc::EINVAL), "nothing is mounted");
        assert!(!watching.is_finished());
        drop(end);
        named.join().unwrap();
        watching.join().unwrap();
        guard.abort().unwrap_err();
    }
}
