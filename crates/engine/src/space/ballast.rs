//! Space set aside on the host file system and released when the host is full, so that a volume can still be opened,
//! acknowledged data can still be written, and files can still be deleted.
//!
//! It is released in steps, so that a program that fills the host takes only one step and not the rest. It is taken
//! back when the host has room again.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use crate::space::host::host_bytes;
use crate::sync::{AtomicBool, AtomicU64};
use crate::{Error, Result};

/// Size of the ballast.
pub const BALLAST_BYTES: u64 = 32 << 20;
/// Bytes released at a time.
const STEP_BYTES: u64 = 8 << 20;
/// The host must have this much left beside the ballast before the ballast is taken again.
const ROOMY_BYTES: u64 = 128 << 20;
/// If the host has less left, nothing is created that takes more room than it frees.
const SHORT_BYTES: u64 = BALLAST_BYTES;
/// Bytes that opening, deleting and a check write on a volume whose owner frees just enough.
const NEED_BYTES: u64 = 16 << 20;
const _: () = assert!(STEP_BYTES < BALLAST_BYTES && NEED_BYTES <= BALLAST_BYTES);

/// A file of the volume that only occupies space.
pub struct Ballast {
    path: Option<PathBuf>,
    /// Whether none of it was released, as far as known.
    is_whole: AtomicBool,
    /// Bytes that the host had left at the last look.
    left: AtomicU64,
}

impl Ballast {
    /// The ballast in this file.
    pub fn at(path: PathBuf) -> Self {
        Self { path: Some(path), is_whole: AtomicBool::new(false), left: AtomicU64::new(u64::MAX) }
    }

    /// No ballast, for volumes in memory.
    pub fn none() -> Self {
        Self { path: None, is_whole: AtomicBool::new(true), left: AtomicU64::new(u64::MAX) }
    }

    /// Takes the space. If the host lacks room, it keeps the part that it has, and the volume does without the rest.
    pub fn fill(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        let before = file.metadata()?.len();
        if before < BALLAST_BYTES {
            // SAFETY: fallocate takes no pointers; the descriptor is open for the length of the call.
            let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, BALLAST_BYTES as i64) };
            if result != 0 {
                log::warn!(
                    "no room on the host for a ballast of {BALLAST_BYTES} bytes: {}",
                    io::Error::last_os_error()
                );
                return file.set_len(before);
            }
        }
        self.is_whole.store(true, Relaxed);
        Ok(())
    }

    /// Checks how much the host has left, and takes back released space if that is enough.
    pub fn look(&self) {
        let Some(left) = self.directory().and_then(host_bytes) else { return };
        self.left.store(left, Relaxed);
        if !self.is_whole.load(Relaxed)
            && left >= BALLAST_BYTES + ROOMY_BYTES
            && let Err(error) = self.fill()
        {
            log::warn!("cannot take the ballast: {error}");
        }
    }

    /// Whether the host is so full that the rest is reserved for deleting.
    pub fn is_needed(&self) -> bool {
        self.left.load(Relaxed) < SHORT_BYTES
    }

    /// Releases one step of the space. True: there was some.
    pub fn let_go_some(&self) -> bool {
        let Some(path) = &self.path else { return false };
        let Ok(file) = File::options().write(true).open(path) else { return false };
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let left = bytes.saturating_sub(STEP_BYTES);
        assert!(left <= bytes, "a ballast of {bytes} bytes grows to {left} when some is let go");
        if bytes == 0 || file.set_len(left).is_err() {
            return false;
        }
        self.is_whole.store(false, Relaxed);
        log::warn!("the host file system is full: {} bytes of the volume's ballast let go, {left} left", bytes - left);
        true
    }

    /// Releases as much as the host needs to have `bytes` left.
    pub fn make_room(&self, bytes: u64) {
        while self.directory().and_then(host_bytes).is_some_and(|left| left < bytes) && self.let_go_some() {}
    }

    /// Runs work that needs room on the host. If there is none, releases ballast until all of it is gone.
    pub fn retry_releasing_reserve<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match work() {
                Err(Error::NoSpace) if self.let_go_some() => {}
                Err(Error::NoSpace) => return Err(self.host_full()),
                other => return other,
            }
        }
    }

    /// The error for a host that is full even without the ballast.
    pub fn host_full(&self) -> Error {
        let Some(directory) = self.directory() else { return Error::NoSpace };
        let left = host_bytes(directory).unwrap_or(0);
        let bytes = NEED_BYTES.checked_sub(left).filter(|lacking| *lacking > 0).unwrap_or(NEED_BYTES);
        Error::HostFull { directory: directory.display().to_string(), bytes }
    }

    /// The volume's directory.
    fn directory(&self) -> Option<&Path> {
        self.path.as_deref().and_then(Path::parent)
    }
}

// Under `schedules`, atomics need a scheduler, which these tests lack.
#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;

    fn ballast() -> (tempfile::TempDir, Ballast) {
        let dir = tempfile::tempdir().unwrap();
        let ballast = Ballast::at(dir.path().join("ballast"));
        ballast.fill().unwrap();
        (dir, ballast)
    }

    #[test]
    fn it_goes_in_steps_until_the_work_is_done() {
        let (dir, ballast) = ballast();
        let len = || std::fs::metadata(dir.path().join("ballast")).unwrap().len();
        let mut tries = 0;
        let done = ballast.retry_releasing_reserve(|| {
            tries += 1;
            if tries < 3 { Err(Error::NoSpace) } else { Ok(tries) }
        });
        assert_eq!((done.unwrap(), len()), (3, BALLAST_BYTES - 2 * STEP_BYTES));
        ballast.make_room(0);
        assert_eq!(len(), BALLAST_BYTES - 2 * STEP_BYTES, "the host has that much");
        ballast.make_room(u64::MAX);
        assert_eq!(len(), 0);
        ballast.fill().unwrap();
        assert_eq!(len(), BALLAST_BYTES);
    }

    #[test]
    fn when_it_is_gone_the_error_says_how_much_to_free_and_where() {
        let (dir, ballast) = ballast();
        let mut tries = 0;
        let error = ballast.retry_releasing_reserve::<()>(|| {
            tries += 1;
            Err(Error::NoSpace)
        });
        let text = error.unwrap_err().to_string();
        assert_eq!(tries, 1 + BALLAST_BYTES / STEP_BYTES, "every step of it was tried");
        let how_much = format!("free at least {} MiB", NEED_BYTES >> 20);
        assert!(text.contains(dir.path().to_str().unwrap()) && text.contains(&how_much), "{text}");
        let other = ballast.retry_releasing_reserve::<()>(|| Err(Error::MapDetached));
        assert!(matches!(other, Err(Error::MapDetached)));
        assert!(matches!(Ballast::none().retry_releasing_reserve::<()>(|| Err(Error::NoSpace)), Err(Error::NoSpace)));
    }
}
