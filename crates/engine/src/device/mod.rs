//! The medium below the engine: one narrow trait, so that a memory twin, a crash
//! recorder or a fault injector can stand in for a file.

pub mod buffer;
mod faulty;
mod file;
mod memory;

use std::io;

pub use faulty::{Access, Fault, Faults, FaultyDevice, Lasts};
pub use file::FileDevice;
pub use memory::MemoryDevice;

/// Alignment of direct I/O: offsets, lengths and addresses.
pub const ALIGN_BYTES: usize = 4096;

#[expect(clippy::len_without_is_empty, reason = "no device is empty: the length is a size, not a count")]
/// Byte-addressed storage whose writes are durable after `flush`.
pub trait Device: Send + Sync {
    /// Fills `bytes` from `at`. Beyond the end: an error.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `at`.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Makes every finished write durable.
    fn flush(&self) -> io::Result<()>;
    /// Gives a range back to the host. Of a file it reads as zeros, durably after `flush`; of a raw device as zeros
    /// or as before.
    fn punch(&self, at: u64, len: u64) -> io::Result<()>;
    /// First byte at or after `at` that may hold data; None: only zeros follow.
    fn next_data(&self, at: u64) -> io::Result<Option<u64>>;
    /// Size in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Enlarges the device to `len` bytes, durably; the new part reads as zeros.
    fn grow(&self, len: u64) -> io::Result<()>;
}
