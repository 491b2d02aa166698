//! Memory that the system provides as it is used, and takes back.

use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;

use crate::device::ALIGN_BYTES;

/// Bytes that are 0 until they are written.
pub struct LazyMemory {
    start: NonNull<u8>,
    len: usize,
    #[cfg(test)]
    given_back: u64,
}

// SAFETY: the memory belongs to this value alone; nothing about it is tied to a thread.
unsafe impl Send for LazyMemory {}
// SAFETY: shared access only reads.
unsafe impl Sync for LazyMemory {}

impl LazyMemory {
    /// Memory of `len` bytes.
    pub fn new(len: usize) -> Self {
        if len == 0 {
            return Self::at(NonNull::dangling(), len);
        }
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at a place that the kernel chooses, changes no other memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind | libc::MAP_NORESERVE, -1, 0) };
        assert!(start != libc::MAP_FAILED, "no {len} bytes of address space: {}", std::io::Error::last_os_error());
        Self::at(NonNull::new(start.cast()).expect("no mapping is at 0"), len)
    }

    fn at(start: NonNull<u8>, len: usize) -> Self {
        Self {
            start,
            len,
            #[cfg(test)]
            given_back: 0,
        }
    }

    /// How often memory was given back to the system.
    #[cfg(test)]
    pub fn given_back(&self) -> u64 {
        self.given_back
    }

    /// Makes the system provide these whole pages now, all at once. Their content stays. If it cannot (before Linux
    /// 5.14, or short of memory), each page comes as it is used.
    pub fn prepare(&mut self, bytes: Range<usize>) {
        self.advise(bytes, libc::MADV_POPULATE_WRITE);
    }

    /// Gives whole pages back to the system. They read as 0 again.
    pub fn give_back(&mut self, bytes: Range<usize>) {
        if bytes.is_empty() {
            return;
        }
        #[cfg(test)]
        {
            self.given_back += 1;
        }
        let done = self.advise(bytes, libc::MADV_DONTNEED);
        debug_assert!(done == 0, "madvise: {}", std::io::Error::last_os_error());
    }

    fn advise(&mut self, bytes: Range<usize>, advice: libc::c_int) -> libc::c_int {
        assert!(bytes.start <= bytes.end && bytes.end <= self.len, "{bytes:?} of {} bytes", self.len);
        assert!(
            bytes.start.is_multiple_of(ALIGN_BYTES) && bytes.end.is_multiple_of(ALIGN_BYTES),
            "{bytes:?} are no pages"
        );
        let pages = &mut self[bytes];
        // SAFETY: the range is within the mapping and borrowed exclusively. Both kinds of advice leave it mapped and
        // initialised: with its content, or as zeros.
        unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), advice) }
    }
}

impl Drop for LazyMemory {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: mapped in `new` with this length, unmapped once.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

impl Deref for LazyMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped and initialised as 0. An empty slice may be anywhere.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for LazyMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_zero_and_nothing_else_is() {
        let mut memory = LazyMemory::new(4 * ALIGN_BYTES);
        assert!(memory.iter().all(|byte| *byte == 0));
        memory.prepare(0..2 * ALIGN_BYTES);
        assert!(memory.iter().all(|byte| *byte == 0));
        memory.fill(7);
        memory.prepare(0..4 * ALIGN_BYTES);
        memory.give_back(ALIGN_BYTES..3 * ALIGN_BYTES);
        let expected = [7, 0, 0, 7].iter().flat_map(|byte| [*byte; ALIGN_BYTES]);
        assert!(memory.iter().copied().eq(expected));
        assert!(LazyMemory::new(0).is_empty());
    }
}
