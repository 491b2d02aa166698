//! A file or block device of the host.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::open_file::OpenFile;
use super::{Device, Io, ring, submit_threads};

/// A regular file or a raw block device.
pub struct FileDevice {
    file: OpenFile,
    is_block_device: bool,
}

impl FileDevice {
    /// Opens `path` for direct I/O, past the host's page cache, so that the daemon never waits for its own
    /// write-back. Buffers, offsets and lengths must be aligned to `ALIGN_BYTES`.
    /// A host file system without direct I/O (tmpfs) is used through its page cache.
    pub fn open_direct(path: &Path, writable: bool) -> io::Result<Self> {
        match Self::open(path, writable, libc::O_DIRECT) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Self::open(path, writable, 0),
            other => other,
        }
    }

    /// The same, and reads may ask for the host's page cache, if it keeps single blocks.
    pub fn open_both_ways(path: &Path, writable: bool) -> io::Result<Self> {
        let mut device = Self::open_direct(path, writable)?;
        device.file.open_through_host_cache();
        Ok(device)
    }

    /// Opens `path` through the host's page cache.
    pub fn open_buffered(path: &Path, writable: bool) -> io::Result<Self> {
        Self::open(path, writable, 0)
    }

    fn open(path: &Path, writable: bool, flags: i32) -> io::Result<Self> {
        let file = OpenFile::open(path, writable, flags)?;
        let is_block_device = file.direct.metadata()?.file_type().is_block_device();
        Ok(Self { file, is_block_device })
    }
}

impl Device for FileDevice {
    fn submit(&self, ios: &mut [Io<'_>]) {
        if let [one] = ios {
            one.of_file(self.file.way_of(one));
        } else if !ring::submit(&self.file, ios, None) {
            submit_threads::submit(&self.file, ios, &mut || ());
        }
    }

    fn submit_while(&self, ios: &mut [Io<'_>], meanwhile: &mut dyn FnMut()) {
        if !ring::submit(&self.file, ios, Some(meanwhile)) {
            submit_threads::submit(&self.file, ios, meanwhile);
        }
    }

    fn has_host_cache(&self) -> bool {
        self.file.cached.is_some()
    }

    fn leave_host_cache(&self, at: u64, len: u64) {
        self.file.leave_host_cache(at, len);
    }

    fn flush(&self) -> io::Result<()> {
        self.file.direct.sync_data()
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: fallocate takes no pointers; the descriptor is open for the length of the call.
        let result = unsafe { libc::fallocate(self.file.direct.as_raw_fd(), mode, at as i64, len as i64) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        if self.is_block_device {
            return Ok(Some(at));
        }
        // SAFETY: lseek takes no pointers. Nothing uses the file offset: all I/O is positional.
        let found = unsafe { libc::lseek(self.file.direct.as_raw_fd(), at as i64, libc::SEEK_DATA) };
        if found >= 0 {
            return Ok(Some(found as u64));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENXIO) => Ok(None),
            Some(libc::EINVAL) => Ok(Some(at)),
            _ => Err(error),
        }
    }

    fn len(&self) -> io::Result<u64> {
        if !self.is_block_device {
            return Ok(self.file.direct.metadata()?.len());
        }
        let mut bytes: u64 = 0;
        const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
        // SAFETY: the ioctl writes one u64 through the pointer, which is valid for the call.
        let result = unsafe { libc::ioctl(self.file.direct.as_raw_fd(), BLKGETSIZE64, &mut bytes) };
        if result == 0 { Ok(bytes) } else { Err(io::Error::last_os_error()) }
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        if self.len()? >= len {
            return Ok(());
        }
        if self.is_block_device {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the device is smaller than that"));
        }
        self.file.direct.set_len(len)?;
        self.file.direct.sync_all()
    }
}

#[cfg(test)]
mod tests;
