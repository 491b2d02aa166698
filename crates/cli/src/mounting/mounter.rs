//! The process that keeps the privilege to mount and unmount, which the daemon drops.
//!
//! It is forked before any part of the volume is read, and knows one mount. It does eight tasks for the daemon. Each is
//! a word of one byte, and the answer is an errno and the mount's device number. It gets nothing else from the daemon,
//! so an attacker who controls the daemon through a bug can unmount it and no more. It acts only on the mount that it
//! made, even if the mount point leads to another.
//!
//! It ends after the daemon in any case, and not before it, unless it is told to. So no thread of a dying daemon is the
//! last one in its mount namespace, whose end waits for requests. `guard` has its second thread.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use oncefs_fuse::{AbortSwitch, HeldMount, MountId, MountSpec, Mounted};

use super::guard::{self, Guard, Made};
use crate::process::privileges::{self, CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN};
use crate::process::{descriptors, setup};

/// Its name in `ps`.
const NAME: &std::ffi::CStr = c"oncefs-mounter";

/// The tasks that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Task {
    Mount = 1,
    Unmount = 2,
    Detach = 3,
    /// Send everything written through the mount to the daemon.
    Sync = 4,
    /// Make writes through the mount wait for the daemon.
    Synchronous = 5,
    /// Let writes pass through the kernel's buffers again.
    Buffered = 6,
    /// Stop holding the mount.
    LetGo = 7,
    /// End: the daemon waits for the process's exit.
    End = 8,
}

impl Task {
    const ALL: [Self; 8] = [
        Self::Mount,
        Self::Unmount,
        Self::Detach,
        Self::Sync,
        Self::Synchronous,
        Self::Buffered,
        Self::LetGo,
        Self::End,
    ];

    fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|task| *task as u8 == byte)
    }
}

/// Bytes of an answer: an errno (0 for none), and the device number's two parts.
const ANSWER_BYTES: usize = 12;

/// A mount that cannot be unmounted until this is dropped.
#[derive(Debug)]
pub struct Held<'a> {
    mounter: &'a Mounter,
    device: (u32, u32),
}

impl HeldMount for Held<'_> {
    fn device(&self) -> (u32, u32) {
        self.device
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Err(e) = self.mounter.ask(Task::LetGo) {
            log::warn!("the mount may be called busy for ever: {e}");
        }
    }
}

/// The daemon's end.
#[derive(Debug)]
pub struct Mounter {
    /// For one task at a time. None: the process has ended.
    stream: Mutex<Option<UnixStream>>,
    /// The line to its guard.
    guard: Guard,
    pid: libc::pid_t,
}

impl Mounter {
    /// Starts the process, which will mount `connection`. No other thread may exist. `detaches`: it detaches the mount
    /// that a dead daemon left behind.
    pub fn start(spec: MountSpec, connection: &OwnedFd, detaches: bool) -> io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        let (guard, guards) = UnixStream::pair()?;
        // On a kernel without such descriptors (before Linux 5.3), the mounter may end first.
        let end = guard::end_of(std::process::id(), 0);
        // SAFETY: this process has one thread, so the child may do whatever the parent could have done.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop((ours, guard));
                // SAFETY: the child's copy of the descriptor. The child never returns to the code that owns it in the
                // parent.
                let connection = unsafe { OwnedFd::from_raw_fd(connection.as_raw_fd()) };
                let mut place = Place { spec, connection: Some(connection), made: Arc::default(), held: None };
                serve(its, guards, &mut place);
                let _ = end.map(|end| descriptors::await_readable(end.as_fd(), None));
                if detaches {
                    // Fails if the mount has ended as it should.
                    let _ = place.carry_out(Task::Detach);
                }
                // SAFETY: the child ends without running the parent's exit handlers.
                unsafe { libc::_exit(0) }
            }
            pid => Ok(Self { stream: Mutex::new(Some(ours)), guard: Guard::new(guard), pid }),
        }
    }

    /// Mounts. The mount is held while the caller looks for its knobs.
    pub fn mount(&self) -> io::Result<Held<'_>> {
        let device = self.ask(Task::Mount)?;
        Ok(Held { mounter: self, device })
    }

    /// Calls umount2(2), which fails while the mount is in use.
    pub fn unmount(&self) -> io::Result<()> {
        self.ask(Task::Unmount).map(drop)
    }

    /// Unmounts lazily: open files stay usable, no new ones can be opened.
    pub fn detach(&self) {
        match self.ask(Task::Detach) {
            // It was never mounted, or is already gone.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            Err(e) => log::warn!("cannot unmount: {e}"),
            Ok(_) => {}
        }
    }

    /// Calls syncfs(2) for the mount.
    pub fn sync(&self) -> io::Result<()> {
        self.ask(Task::Sync).map(drop)
    }

    /// Makes the writes through the mount synchronous, or buffered again.
    pub fn set_synchronous(&self, is_on: bool) -> io::Result<()> {
        self.ask(if is_on { Task::Synchronous } else { Task::Buffered }).map(drop)
    }

    /// Returns the mount's device number, zeros while there is none.
    fn ask(&self, task: Task) -> io::Result<(u32, u32)> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        stream.write_all(&[task as u8])?;
        let mut answer = [0; ANSWER_BYTES];
        stream.read_exact(&mut answer)?;
        let number = |at: usize| u32::from_le_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]]);
        match number(0) {
            0 => Ok((number(4), number(8))),
            errno => Err(io::Error::from_raw_os_error(errno.cast_signed())),
        }
    }

    /// The guard, which aborts the connection of this process and of the mounter.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Ends the process and waits for it, so that nothing of the daemon is left.
    pub fn end(&self) {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut stream) = stream {
            // Fails only if it is already gone.
            let _ = stream.write_all(&[Task::End as u8]);
            // SAFETY: waits for a child of this process, without any other waiter. Null asks for no details.
            unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
        }
    }
}

/// Runs the process: answers until the daemon hangs up or ends it.
fn serve(mut daemon: UnixStream, guards: UnixStream, place: &mut Place) {
    // A failure here leaves the process with more privileges than it needs, never with fewer. The daemon depends on it.
    let _ = privileges::keep_only(&[CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN]);
    let _ = descriptors::detach_stdio();
    setup::set_name(NAME);
    let made = place.made.clone();
    let guard = move || guard::watch(guards, &made);
    let _ = std::thread::Builder::new().name("guard".to_owned()).spawn(guard);
    let mut byte = [0];
    while daemon.read_exact(&mut byte).is_ok() {
        if Task::of_byte(byte[0]) == Some(Task::End) {
            // SAFETY: as in `start`.
            unsafe { libc::_exit(0) };
        }
        let done = Task::of_byte(byte[0]).ok_or(libc::EINVAL).and_then(|task| place.carry_out(task));
        if daemon.write_all(&place.answer(done)).is_err() {
            return;
        }
    }
}

/// The one mount of the process.
struct Place {
    spec: MountSpec,
    /// The connection to mount, until it is mounted.
    connection: Option<OwnedFd>,
    /// The mount that it made.
    made: Made,
    /// Keeps the mount from being unmounted.
    held: Option<Mounted>,
}

impl Place {
    /// Does a task, or returns the errno.
    fn carry_out(&mut self, task: Task) -> Result<(), i32> {
        let dir = &self.spec.dir;
        let done = match (task, self.made.get().map(|(id, _)| *id)) {
            (Task::Mount, _) => self.mount(),
            (Task::End, _) => Ok(()),
            (_, None) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            (Task::Unmount, Some(own)) => oncefs_fuse::unmount_own(dir, own),
            (Task::Detach, Some(own)) => oncefs_fuse::detach_own(dir, own),
            (Task::Sync, Some(own)) => {
                oncefs_fuse::open_own(dir, own).and_then(|_held| descriptors::sync_file_system(dir))
            }
            (Task::Synchronous, Some(own)) => oncefs_fuse::set_synchronous(dir, own, true),
            (Task::Buffered, Some(own)) => oncefs_fuse::set_synchronous(dir, own, false),
            (Task::LetGo, Some(_)) => {
                self.held = None;
                Ok(())
            }
        };
        done.map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))
    }

    /// Mounts, and closes its copy of the connection: with a copy left, the kernel would not notice the daemon's death.
    fn mount(&mut self) -> io::Result<()> {
        let connection = self.connection.take().ok_or(io::Error::from_raw_os_error(libc::EBUSY))?;
        let mounted = oncefs_fuse::attach(connection.as_fd(), &self.spec)?;
        let switch = AbortSwitch::of(&self.spec.dir, mounted.id());
        let _ = self.made.set((mounted.id(), switch));
        self.held = Some(mounted);
        Ok(())
    }

    fn answer(&self, done: Result<(), i32>) -> [u8; ANSWER_BYTES] {
        let (major, minor) = self.made.get().map(|(id, _)| *id).map_or((0, 0), MountId::device);
        let mut answer = [0; ANSWER_BYTES];
        answer[..4].copy_from_slice(&done.err().unwrap_or(0).to_le_bytes());
        answer[4..8].copy_from_slice(&major.to_le_bytes());
        answer[8..].copy_from_slice(&minor.to_le_bytes());
        answer
    }
}

#[cfg(test)]
mod tests {
    use oncefs_fuse::MOUNT_TYPE;

    use super::*;

    #[test]
    fn tasks_are_told_apart_by_their_bytes() {
        for task in Task::ALL {
            assert_eq!(Task::of_byte(task as u8), Some(task));
        }
        assert_eq!(Task::of_byte(0), None);
    }

    #[test]
    fn it_mounts_once_and_unmounts_nothing_that_it_did_not_mount() {
        let (source, dir) = ("/none".into(), "/nonexistent".into());
        let spec = MountSpec { source, dir, kind: MOUNT_TYPE, kernel_flags: 0 };
        let connection = Some(std::fs::File::open("/dev/null").unwrap().into());
        let mut place = Place { spec, connection, made: Arc::default(), held: None };
        for task in [Task::Unmount, Task::Detach, Task::Sync, Task::Synchronous, Task::Buffered, Task::LetGo] {
            assert_eq!(place.carry_out(task), Err(libc::EINVAL));
        }
        assert_eq!(place.carry_out(Task::Mount), Err(libc::ENOENT));
        assert_eq!(place.carry_out(Task::Mount), Err(libc::EBUSY));
    }
}
