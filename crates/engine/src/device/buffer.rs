//! Aligned buffers for direct I/O, taken from a bounded pool so that a write under memory pressure does not wait for an
//! allocation.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::sync::{LockRank, Mutex};

/// Alignment of direct I/O: offsets, lengths and addresses.
pub const ALIGN_BYTES: usize = 4096;

/// A byte buffer whose address and capacity are multiples of `ALIGN_BYTES`.
pub struct AlignedBuf {
    start: NonNull<u8>,
    capacity: usize,
    len: usize,
}

// SAFETY: the buffer owns its memory alone; nothing about it is tied to a thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A zeroed buffer of at least `len` bytes (rounded up to the alignment), `len` of them visible.
    pub fn new(len: usize) -> Self {
        let capacity = len.max(1).next_multiple_of(ALIGN_BYTES);
        let layout = Self::layout(capacity);
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        let Some(start) = start else { handle_alloc_error(layout) };
        assert!(len <= capacity, "a buffer of {capacity} bytes for {len}");
        debug_assert_eq!(start.addr().get() % ALIGN_BYTES, 0, "a buffer at {start:?} is not aligned");
        Self { start, capacity, len }
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGN_BYTES).expect("a multiple of a power of two below isize::MAX")
    }

    /// The start of the buffer, for memory that only the kernel writes.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Makes `len` bytes visible; they keep their content.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "{len} bytes do not fit into {}", self.capacity);
        self.len = len;
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `capacity >= len` bytes were allocated and zeroed.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Buffers up to this size are pooled, all with this capacity.
const POOLED_BYTES: usize = 1 << 20;
/// Below this a fresh allocation is cheaper than keeping a large buffer busy.
const SMALL_BYTES: usize = 32 << 10;
const _: () = assert!(SMALL_BYTES < POOLED_BYTES && POOLED_BYTES.is_multiple_of(ALIGN_BYTES));

/// A bounded pool of buffers of 1 MiB.
pub struct BufferPool {
    free: Mutex<Vec<AlignedBuf>>,
    buffers_max: usize,
}

impl BufferPool {
    /// A pool that keeps at most this many buffers for reuse.
    pub fn keeping(buffers_max: usize) -> Self {
        Self { free: Mutex::new(LockRank::Leaf, Vec::new()), buffers_max }
    }

    /// A buffer with `len` visible bytes of undefined (but initialised) content.
    pub fn take(self: &Arc<Self>, len: usize) -> PooledBuf {
        let pooled = (SMALL_BYTES..=POOLED_BYTES).contains(&len);
        let mut buffer = match pooled {
            true => self.free.lock().pop().unwrap_or_else(|| AlignedBuf::new(POOLED_BYTES)),
            false => AlignedBuf::new(len),
        };
        assert!(!pooled || buffer.capacity == POOLED_BYTES, "a buffer of {} bytes from the pool", buffer.capacity);
        buffer.set_len(len);
        debug_assert_eq!(buffer.len(), len, "a buffer shows what was asked for");
        PooledBuf { buffer: Some(buffer), pool: pooled.then(|| self.clone()) }
    }
}

/// A buffer that returns to its pool when dropped.
pub struct PooledBuf {
    buffer: Option<AlignedBuf>,
    pool: Option<Arc<BufferPool>>,
}

impl Deref for PooledBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.as_ref().expect("taken only in drop")
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut().expect("taken only in drop")
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        if let (Some(pool), Some(buffer)) = (&self.pool, self.buffer.take()) {
            debug_assert_eq!(buffer.capacity, POOLED_BYTES, "only buffers of one size return to the pool");
            let mut free = pool.free.lock();
            if free.len() < pool.buffers_max {
                free.push(buffer);
            }
            debug_assert!(free.len() <= pool.buffers_max, "{} buffers are kept", free.len());
        }
    }
}
