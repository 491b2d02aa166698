//! A file of the host, open for both ways to it: past the host's page cache, and through it.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::transfer::Io;
use crate::BLOCK_BYTES;

/// The ways to one file.
pub struct OpenFile {
    /// The way of all writes, and of reads unless they say otherwise.
    pub direct: File,
    /// The way through the host's page cache, if the other one passes it by.
    pub cached: Option<File>,
}

impl OpenFile {
    /// Opens a file, for one way.
    pub fn open(path: &Path, writable: bool, flags: i32) -> io::Result<Self> {
        let direct = open_untimed(OpenOptions::new().read(true).write(writable), flags | libc::O_CLOEXEC, path)?;
        Ok(Self { direct, cached: None })
    }

    /// Opens the second way, through a page cache that keeps single blocks, where the host has one. It forgets what
    /// earlier users left there: another machine may have written the file since.
    ///
    /// A raw device has none: whoever else reads it fills its page cache, which the kernel does not make forget again
    /// what an asynchronous direct write has replaced meanwhile.
    ///
    /// The second descriptor is of the very file that is open, whatever its path leads to by now.
    pub fn open_through_host_cache(&mut self) {
        if !self.is_direct() || !is_file_with_single_blocks(&self.direct) {
            return;
        }
        let path = format!("/proc/self/fd/{}", self.direct.as_raw_fd());
        if let Ok(file) = open_untimed(OpenOptions::new().read(true), libc::O_CLOEXEC, Path::new(&path)) {
            // No read-ahead: the cache reads what it is asked for.
            let follows =
                [libc::POSIX_FADV_RANDOM, libc::POSIX_FADV_DONTNEED].map(|advice| advise(&file, 0, 0, advice));
            self.cached = follows.iter().all(|follows| *follows).then_some(file);
        }
    }

    /// Makes the host's page cache forget `len` bytes from byte `at` on.
    pub fn leave_host_cache(&self, at: u64, len: u64) {
        if let Some(cached) = &self.cached {
            advise(cached, at, len, libc::POSIX_FADV_DONTNEED);
        }
    }

    /// The way that a request takes. The kernel keeps both ways to a file coherent: a direct write makes the page cache
    /// forget what it replaces, before and after.
    pub fn way_of(&self, io: &Io<'_>) -> &File {
        if io.is_through_host_cache() { self.cached.as_ref().unwrap_or(&self.direct) } else { &self.direct }
    }

    /// Whether the first way passes the page cache by.
    fn is_direct(&self) -> bool {
        // SAFETY: F_GETFL takes no pointers; the descriptor is open for the length of the call.
        let flags = unsafe { libc::fcntl(self.direct.as_raw_fd(), libc::F_GETFL) };
        flags >= 0 && flags & libc::O_DIRECT != 0
    }
}

/// Whether it is a regular file whose pages in the cache are no larger than a block. Larger ones bring in neighbours,
/// which may be written meanwhile.
fn is_file_with_single_blocks(file: &File) -> bool {
    // SAFETY: sysconf takes no pointers.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let has_small_blocks = |file: Metadata| file.is_file() && file.blksize() <= BLOCK_BYTES as u64;
    page_bytes == BLOCK_BYTES as i64 && file.metadata().is_ok_and(has_small_blocks)
}

/// Tells the host how bytes of a file are used, or all of it if `len` is 0. False: this host takes no advice.
fn advise(file: &File, at: u64, len: u64, advice: libc::c_int) -> bool {
    // SAFETY: posix_fadvise takes no pointers; the descriptor is open for the length of the call.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), at as i64, len as i64, advice) == 0 }
}

/// Opens a file without access-time updates: these are never read, and cost a tenth of a read. On a file of another
/// user the kernel may not allow this, and the updates stay on.
fn open_untimed(options: &mut OpenOptions, flags: i32, path: &Path) -> io::Result<File> {
    match options.custom_flags(flags | libc::O_NOATIME).open(path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => options.custom_flags(flags).open(path),
        other => other,
    }
}
