//! A device of which one range of bytes cannot be read, for tests of damage.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::watched::{Watch, Watched};
use crate::device::MemoryDevice;

/// A range of bytes that cannot be read, and takes whatever is written there.
#[derive(Default)]
pub struct Unreadable {
    from: AtomicU64,
    to: AtomicU64,
}

impl Unreadable {
    /// The device, with all of it readable.
    pub fn of(device: &Arc<MemoryDevice>) -> Arc<Watched<Self>> {
        Watched::new(device, Self::default())
    }

    /// From now on these bytes cannot be read, and all others can.
    pub fn set(&self, bytes: Range<u64>) {
        self.from.store(bytes.start, Relaxed);
        self.to.store(bytes.end, Relaxed);
    }
}

impl Watch for Unreadable {
    fn before_read(&self, bytes: Range<u64>) -> io::Result<()> {
        if bytes.start < self.to.load(Relaxed) && self.from.load(Relaxed) < bytes.end {
            return Err(io::Error::other("this place cannot be read"));
        }
        Ok(())
    }
}
