//! The storage below the engine: one narrow trait, so that a device in memory, a crash recorder or a fault injector can
//! replace a file.

pub mod buffer;
mod faulty;
mod file;
mod joined;
mod memory;
mod read_threads;
mod ring;
pub mod signatures;

use std::fs::File;
use std::io;

pub use buffer::ALIGN_BYTES;
pub use faulty::{Access, Fault, Faults, FaultyDevice, Lasts};
pub use file::FileDevice;
pub use joined::JoinedRead;
pub use memory::MemoryDevice;

#[expect(clippy::len_without_is_empty, reason = "no device is empty: the length is a size, not a count")]
/// Byte-addressed storage whose writes are durable after `flush`.
pub trait Device: Send + Sync {
    /// Fills `bytes` from byte `at` on. Fails beyond the end.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;
    /// Makes several reads, as many in parallel as the device can, and returns the result of each.
    fn read_many(&self, reads: &mut [JoinedRead<'_>]) -> Vec<io::Result<()>> {
        reads.iter_mut().map(|read| read.by_pieces(|bytes, at| self.read_at(bytes, at))).collect()
    }
    /// Makes reads of this device and of another one, in parallel if both are files, and returns the results of each.
    fn read_both<'a>(
        &self,
        reads: &mut [JoinedRead<'a>],
        (other, beside): (&dyn Device, &mut [JoinedRead<'a>]),
    ) -> (Vec<io::Result<()>>, Vec<io::Result<()>>) {
        (self.read_many(reads), other.read_many(beside))
    }
    /// The file behind the device, if it is one.
    fn as_file(&self) -> Option<&File> {
        None
    }
    /// Writes all of `bytes` at byte `at`.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Writes all of `bytes` at byte `at`, and calls `meanwhile` once, during the write if possible.
    fn write_beside(&self, bytes: &[u8], at: u64, meanwhile: &mut dyn FnMut()) -> io::Result<()> {
        meanwhile();
        self.write_at(bytes, at)
    }
    /// Makes every finished write durable.
    fn flush(&self) -> io::Result<()>;
    /// Returns `len` bytes from byte `at` on to the host. A file then reads as zeros there, durably after `flush`. A
    /// raw device reads as zeros or as before.
    fn punch(&self, at: u64, len: u64) -> io::Result<()>;
    /// First byte at or after `at` that may hold data. None: only zeros follow.
    fn next_data(&self, at: u64) -> io::Result<Option<u64>>;
    /// Size in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Enlarges the device to `len` bytes, durably; the new part reads as zeros.
    fn grow(&self, len: u64) -> io::Result<()>;
}
