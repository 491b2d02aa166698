//! The memory of one entry, which the kernel and one thread use in turns: the kernel writes a request, the thread reads
//! it and writes the reply. Owns all access to this memory.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::buffers::{Buffers, ENTRY_OVERHEAD_BYTES};
use crate::protocol::Malformed;
use crate::protocol::header::{IN_BYTES, encode_out};

/// Layout of `fuse_uring_req_header`: the header of the request or the reply, the operation's own header, the entry's.
const INODE_AT: usize = 16;
const OPERATION_AT: usize = 128;
const OPERATION_BYTES: usize = 128;
const COMMIT_ID_AT: usize = 256 + 8;
const PAYLOAD_LEN_AT: usize = 256 + 16;
const HEADERS_BYTES: usize = 256 + 32;
const _: () = assert!(HEADERS_BYTES <= ENTRY_OVERHEAD_BYTES / 2);

/// One entry: a page with headers, a page in whose end a message is assembled, and the payload.
#[derive(Debug)]
pub(super) struct Entry {
    base: NonNull<u8>,
    payload_bytes: usize,
    /// The parts to register: the headers and the payload.
    parts: [libc::iovec; 2],
    /// Keeps the memory alive.
    _buffers: Arc<Buffers>,
}

// SAFETY: plain memory. Each function states who may access which part and when, and `slot` keeps to it.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

impl Entry {
    /// Takes a buffer. Fails if all are taken.
    pub(super) fn new(buffers: &Arc<Buffers>) -> io::Result<Self> {
        let base = buffers.take().ok_or(io::ErrorKind::OutOfMemory)?;
        let payload_bytes = buffers.payload_bytes();
        // SAFETY: within the taken buffer.
        let payload = unsafe { base.add(ENTRY_OVERHEAD_BYTES) };
        let part = |at: NonNull<u8>, len| libc::iovec { iov_base: at.as_ptr().cast(), iov_len: len };
        let parts = [part(base, HEADERS_BYTES), part(payload, payload_bytes)];
        Ok(Self { base, payload_bytes, parts, _buffers: buffers.clone() })
    }

    /// The address of the parts for registration. Valid as long as the entry does not move.
    pub(super) fn parts(&self) -> *const libc::iovec {
        self.parts.as_ptr()
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// A part of the headers.
    fn header<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= HEADERS_BYTES, "{N} bytes at {at} of {HEADERS_BYTES}");
        // SAFETY: within the headers, checked; initialised, since fresh memory is zero.
        unsafe { self.base.add(at).cast::<[u8; N]>().read() }
    }

    /// The number of the inode that the present request is for.
    pub(super) fn inode(&self) -> u64 {
        u64::from_ne_bytes(self.header(INODE_AT))
    }

    /// The number for committing the reply to the present request.
    pub(super) fn commit_id(&self) -> u64 {
        u64::from_ne_bytes(self.header(COMMIT_ID_AT))
    }

    /// Assembles the kernel's request in the form of `/dev/fuse`. Also returns how many of its bytes lie in the
    /// payload.
    ///
    /// # Safety
    /// The kernel has given this entry a request, which is not committed before the slice is gone. As long as the slice
    /// lives, no thread writes to the payload, unless the message has no bytes there.
    pub(super) unsafe fn message(&self) -> Result<(&[u8], usize), Malformed> {
        let len = u32::from_ne_bytes(self.header(0)) as usize;
        let payload_len = u32::from_ne_bytes(self.header(PAYLOAD_LEN_AT)) as usize;
        let operation_len = len.checked_sub(IN_BYTES).and_then(|rest| rest.checked_sub(payload_len));
        let operation_len = operation_len.filter(|len| *len <= OPERATION_BYTES && payload_len <= self.payload_bytes);
        let operation_len = operation_len.ok_or(Malformed("its parts have other lengths than it says"))?;
        // SAFETY: the lengths were checked: the message begins at most 168 bytes before the payload, in a page of its
        // own, and ends in the payload. The caller guarantees that no other thread accesses it.
        unsafe {
            let start = self.base.add(ENTRY_OVERHEAD_BYTES - operation_len - IN_BYTES);
            start.copy_from_nonoverlapping(self.base, IN_BYTES);
            start.add(IN_BYTES).copy_from_nonoverlapping(self.base.add(OPERATION_AT), operation_len);
            Ok((std::slice::from_raw_parts(start.as_ptr(), len), payload_len))
        }
    }

    /// The first bytes of the payload, for writing.
    ///
    /// # Safety
    /// No other thread accesses the payload as long as the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the memory is shared with the kernel; the caller says whose turn it is")]
    pub(super) unsafe fn payload(&self, len: usize) -> &mut [u8] {
        assert!(len <= self.payload_bytes, "{len} bytes of a payload of {}", self.payload_bytes);
        // SAFETY: within the mapping, initialised; the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(ENTRY_OVERHEAD_BYTES).as_ptr(), len) }
    }

    /// Writes the headers of a reply whose body, `body_len` bytes, is in the payload.
    ///
    /// # Safety
    /// The entry has a request that is not committed, and this is called by the thread that will commit it.
    pub(super) unsafe fn set_reply(&self, unique: u64, error: i32, body_len: usize) {
        let header = encode_out(body_len, error, unique);
        // SAFETY: within the headers; between request and commit the kernel leaves them alone.
        unsafe {
            self.base.copy_from_nonoverlapping(NonNull::from(&header).cast(), header.len());
            self.base.add(256).cast::<u64>().write(0);
            self.base.add(PAYLOAD_LEN_AT).cast::<u32>().write(body_len as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a request as the kernel does.
    fn fill(entry: &Entry, len: u32, operation: &[u8], payload: &[u8]) {
        // SAFETY: the test plays the kernel, and no other thread has the entry.
        unsafe {
            entry.base.cast::<u32>().write(len);
            entry.base.add(OPERATION_AT).copy_from_nonoverlapping(NonNull::from(operation).cast(), operation.len());
            entry.base.add(PAYLOAD_LEN_AT).cast::<u32>().write(payload.len() as u32);
            entry.payload(payload.len().min(entry.payload_bytes)).copy_from_slice(payload);
        }
    }

    #[test]
    fn a_message_is_put_together_from_its_three_parts() {
        let entry = Entry::new(&Buffers::new(1, 8192).unwrap()).unwrap();
        fill(&entry, 40 + 3 + 4, b"abc", b"name");
        // SAFETY: as above.
        let (message, in_payload) = unsafe { entry.message() }.unwrap();
        assert_eq!((&message[40..], in_payload, message.len()), (&b"abcname"[..], 4, 47));
    }

    #[test]
    fn parts_that_lie_about_their_lengths_are_refused() {
        let entry = Entry::new(&Buffers::new(1, 8192).unwrap()).unwrap();
        for (len, payload_len) in [(39, 0), (40, 1), (169, 0), (u32::MAX, 0), (40 + 8193, 8193), (40, u32::MAX)] {
            fill(&entry, len, &[], &[]);
            // SAFETY: as above.
            unsafe { entry.base.add(PAYLOAD_LEN_AT).cast::<u32>().write(payload_len) };
            // SAFETY: as above.
            assert!(unsafe { entry.message() }.is_err(), "{len} bytes, {payload_len} of them payload");
        }
    }
}
