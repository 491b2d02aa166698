//! The data area as a part of an open volume: its device, and what has to reach it before a commit.

use std::sync::Arc;

use crate::device::Device;
use crate::device::buffer::BufferPool;
use crate::sync::{AtomicBool, Mutex, RwLock};

/// The device that holds blocks, with the buffers for its requests.
pub struct DataArea {
    /// The device.
    pub device: Arc<dyn Device>,
    /// Buffers for direct I/O.
    pub pool: Arc<BufferPool>,
    /// Whether the device was written since its last flush began.
    pub is_dirty: AtomicBool,
    /// Held while the device is flushed: who finds nothing to flush waits for the flush under way.
    pub flushing: Mutex<()>,
    /// Held shared while staged blocks are on their way to the device, so that a commit can wait for them.
    pub write_outs: RwLock<()>,
    /// Requests to the device at a time for one scattered read.
    pub reads_at_a_time: usize,
}

impl DataArea {
    /// A device, with `buffers_max` buffers of 1 MiB kept for reuse.
    pub fn new(device: Arc<dyn Device>, buffers_max: usize, reads_at_a_time: usize) -> Self {
        Self {
            device,
            pool: Arc::new(BufferPool::keeping(buffers_max)),
            is_dirty: AtomicBool::new(false),
            flushing: Mutex::new(()),
            write_outs: RwLock::new(()),
            reads_at_a_time,
        }
    }
}
