//! Space set aside on the host file system, let go when the host is full, so that what was acknowledged
//! can still be written and files can still be deleted.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Size of the ballast.
pub const BALLAST_BYTES: u64 = 32 << 20;

/// A file of the volume that holds nothing but space.
pub struct Ballast {
    path: Option<PathBuf>,
}

impl Ballast {
    /// The ballast in this file.
    pub fn at(path: PathBuf) -> Self {
        Self { path: Some(path) }
    }

    /// For volumes in memory.
    pub fn none() -> Self {
        Self { path: None }
    }

    /// Takes the space. A host without room for it does without.
    pub fn fill(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        // SAFETY: fallocate takes no pointers; the descriptor is open for the length of the call.
        let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, BALLAST_BYTES as i64) };
        if result != 0 {
            log::warn!("no room on the host for a ballast of {BALLAST_BYTES} bytes: {}", io::Error::last_os_error());
        }
        Ok(())
    }

    /// Lets the space go. True: there was some.
    pub fn drop_it(&self) -> bool {
        let Some(path) = &self.path else { return false };
        let Ok(file) = File::options().write(true).open(path) else { return false };
        let had_some = file.metadata().is_ok_and(|metadata| metadata.len() > 0);
        had_some && file.set_len(0).is_ok()
    }
}
