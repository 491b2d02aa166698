//! Reads files for an estimate: data and no holes, once, and without taking the memory of what other programs read.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use oncefs_engine::{BLOCK_BYTES, Hasher, is_zero};
use oncefs_estimate::Estimator;

use super::found::Length;

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Reads one file after the other.
pub struct Reader {
    hasher: Hasher,
    buffer: Vec<u8>,
}

impl Reader {
    /// Tags come from this hasher.
    pub fn new(hasher: Hasher) -> Self {
        Self { hasher, buffer: vec![0; CHUNK_BYTES] }
    }

    /// Reads a file or device. What is added meanwhile is not read; where it ends earlier, it ends there.
    /// Gives the number of its duplicates, and how far it got.
    pub fn read(
        &mut self,
        file: &File,
        length: Length,
        estimator: &mut Estimator,
        advance: &mut dyn FnMut(u64),
    ) -> (u64, io::Result<()>) {
        estimator.begin_file(length.stored_bytes.div_ceil(BLOCK));
        let read = self.read_data(file, length, estimator, advance);
        (estimator.end_file(), read)
    }

    fn read_data(
        &mut self,
        file: &File,
        Length { bytes, stored_bytes }: Length,
        estimator: &mut Estimator,
        advance: &mut dyn FnMut(u64),
    ) -> io::Result<()> {
        let may_have_holes = stored_bytes < bytes;
        let mut at = 0;
        while at < bytes {
            let (data, end) = if may_have_holes { next_data(file, at, bytes)? } else { (at, bytes) };
            estimator.add_zeros((data - at).div_ceil(BLOCK));
            at = data;
            while at < end {
                let wanted = (end - at).min(CHUNK_BYTES as u64) as usize;
                let got = read_chunk(file, &mut self.buffer[..wanted], at)?;
                self.add(got, estimator);
                advance(got as u64);
                if got < wanted {
                    return Ok(());
                }
                at += got as u64;
            }
        }
        Ok(())
    }

    /// The last block of a file is padded with zeros.
    fn add(&mut self, bytes: usize, estimator: &mut Estimator) {
        let end = bytes.next_multiple_of(BLOCK_BYTES);
        self.buffer[bytes..end].fill(0);
        for block in self.buffer[..end].chunks_exact(BLOCK_BYTES) {
            if is_zero(block) {
                estimator.add_zeros(1);
            } else {
                estimator.add(self.hasher.tag(block), block);
            }
        }
    }
}

/// The next range of data from a place on, in whole blocks; at the end, an empty one.
fn next_data(file: &File, at: u64, bytes: u64) -> io::Result<(u64, u64)> {
    let data = match seek(file, at, libc::SEEK_DATA) {
        Ok(data) => data.min(bytes) / BLOCK * BLOCK,
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok((bytes, bytes)),
        // The file system knows no holes.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok((at, bytes)),
        Err(e) => return Err(e),
    };
    let data = data.max(at);
    let hole = seek(file, data, libc::SEEK_HOLE).unwrap_or(bytes);
    Ok((data, hole.next_multiple_of(BLOCK).max(data + BLOCK).min(bytes)))
}

fn seek(file: &File, at: u64, whence: libc::c_int) -> io::Result<u64> {
    // SAFETY: lseek takes integers, and the descriptor is open.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, whence) };
    u64::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// Reads until the buffer is full or the file ends. What was not in memory before leaves it again.
fn read_chunk(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let in_memory = read_in_memory(file, buffer, at);
    let mut got = in_memory.unwrap_or(0);
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], at + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    if let Some(before) = in_memory.filter(|before| *before < got) {
        let (first, bytes) = (at + before as u64, (got - before) as libc::off_t);
        // SAFETY: posix_fadvise takes integers, and the descriptor is open. It is advice: nothing depends on the answer.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), first as libc::off_t, bytes, libc::POSIX_FADV_DONTNEED) };
    }
    Ok(got)
}

/// Reads what the page cache has. None: the file system cannot tell.
fn read_in_memory(file: &File, buffer: &mut [u8], at: u64) -> Option<usize> {
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the one part lies in the buffer, which outlives the call.
    let got = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, at as libc::off_t, libc::RWF_NOWAIT) };
    match usize::try_from(got) {
        Ok(got) => Some(got),
        Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) => Some(0),
        Err(_) => None,
    }
}
