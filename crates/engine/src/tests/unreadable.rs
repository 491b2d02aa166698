//! A device of which one range of bytes cannot be read, for tests of damage.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::device::{Device, MemoryDevice};

/// A device of which one range of bytes cannot be read. It takes whatever is written there.
pub struct Unreadable {
    inner: Arc<MemoryDevice>,
    from: AtomicU64,
    to: AtomicU64,
}

impl Unreadable {
    /// The device, with all of it readable.
    pub fn of(device: &Arc<MemoryDevice>) -> Arc<Self> {
        Arc::new(Self { inner: device.clone(), from: AtomicU64::new(0), to: AtomicU64::new(0) })
    }

    /// From now on these bytes cannot be read, and all others can.
    pub fn set(&self, bytes: Range<u64>) {
        self.from.store(bytes.start, Relaxed);
        self.to.store(bytes.end, Relaxed);
    }
}

impl Device for Unreadable {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        if at < self.to.load(Relaxed) && self.from.load(Relaxed) < at + bytes.len() as u64 {
            return Err(io::Error::other("this place cannot be read"));
        }
        self.inner.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.inner.write_at(bytes, at)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        self.inner.punch(at, len)
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.inner.next_data(at)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.inner.grow(len)
    }
}
