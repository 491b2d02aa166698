//! The storage below the engine: one narrow trait, so that a device in memory, a crash recorder or a fault injector can
//! replace a file.

pub mod buffer;
#[cfg(any(test, feature = "testing"))]
mod faulty;
mod file;
#[cfg(any(test, feature = "testing"))]
mod memory;
mod open_file;
mod ring;
pub mod signatures;
mod submit_threads;
mod transfer;

use std::io;

pub use buffer::ALIGN_BYTES;
#[cfg(any(test, feature = "testing"))]
pub use faulty::{Access, Fault, Faults, FaultyDevice, Lasts};
pub use file::FileDevice;
#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryDevice;
pub use transfer::Io;

#[expect(clippy::len_without_is_empty, reason = "no device is empty: the length is a size, not a count")]
/// Byte-addressed storage whose writes are durable after `flush`.
pub trait Device: Send + Sync {
    /// Makes reads and writes, as many in parallel as the device can, and leaves its result in each.
    fn submit(&self, ios: &mut [Io<'_>]);
    /// The same, and calls `meanwhile` once, while they are under way if possible. It may submit others.
    fn submit_while(&self, ios: &mut [Io<'_>], meanwhile: &mut dyn FnMut()) {
        meanwhile();
        self.submit(ios);
    }
    /// Makes one read, which fills `bytes` from byte `at` on. Fails beyond the end.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let mut read = [Io::read(at, bytes)];
        self.submit(&mut read);
        read.map(Io::into_result).into_iter().collect()
    }
    /// Makes one write of all of `bytes` at byte `at`.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut write = [Io::write(at, bytes)];
        self.submit(&mut write);
        write.map(Io::into_result).into_iter().collect()
    }
    /// Whether reads can go through a page cache of the host.
    fn has_host_cache(&self) -> bool {
        false
    }
    /// Forgets what the host's page cache keeps of `len` bytes from byte `at` on, if there is such a cache.
    fn leave_host_cache(&self, _at: u64, _len: u64) {}
    /// Makes every finished write durable.
    fn flush(&self) -> io::Result<()>;
    /// Returns `len` bytes from byte `at` on to the host. A file then reads as zeros there, durably after `flush`. A
    /// raw device reads as zeros or as before.
    fn punch(&self, at: u64, len: u64) -> io::Result<()>;
    /// Holes of this size, aligned to it, give back most. 0: any size is as good.
    fn punch_bytes(&self) -> u64 {
        0
    }
    /// First byte at or after `at` that may hold data. None: only zeros follow.
    fn next_data(&self, at: u64) -> io::Result<Option<u64>>;
    /// Size in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Enlarges the device to `len` bytes, durably; the new part reads as zeros.
    fn grow(&self, len: u64) -> io::Result<()>;
}
