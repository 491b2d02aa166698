//! The data area of an open volume: its device, its buffers, and what must reach it before a commit.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::device::buffer::{BufferPool, PooledBuf};
use crate::device::{Device, Io};
use crate::signals::health::Health;
use crate::space::allocator::Run;
use crate::space::location::Location;
use crate::sync::{AtomicBool, LockRank, Mutex, RwLock, RwLockReadGuard};
use crate::{BLOCK_BYTES, Blocks, Error, Pbn, Result};

/// The device that holds blocks, with the buffers for its requests.
pub struct DataArea {
    device: Arc<dyn Device>,
    pool: Arc<BufferPool>,
    /// Whether the device was written since its last flush began.
    is_dirty: AtomicBool,
    /// Held during a flush, so that a caller with nothing to flush waits for the flush under way.
    flushing: Mutex<()>,
    /// Held shared while staged blocks are on their way to the device, so that a commit can wait for them.
    write_outs: RwLock<()>,
}

impl DataArea {
    /// A device, with `buffers_max` buffers of 1 MiB kept for reuse.
    pub fn new(device: Arc<dyn Device>, buffers_max: usize) -> Self {
        Self {
            device,
            pool: Arc::new(BufferPool::keeping(buffers_max)),
            is_dirty: AtomicBool::new(false),
            flushing: Mutex::new(LockRank::Flushing, ()),
            write_outs: RwLock::new(LockRank::WriteOuts, ()),
        }
    }

    /// A buffer of `bytes` bytes for direct I/O. It returns to the pool when it is dropped.
    pub fn take_buffer(&self, bytes: usize) -> PooledBuf {
        let buffer = self.pool.take(bytes);
        debug_assert_eq!(buffer.len(), bytes, "the pool gave another length");
        buffer
    }

    /// Reads consecutive blocks from `pbn` on, unverified.
    pub fn read(&self, pbn: Pbn, bytes: &mut [u8]) -> Result<()> {
        let location = Location::of(pbn, bytes.len())?;
        self.device.read_at(bytes, location.at).map_err(|e| unread(pbn, e))
    }

    /// Makes several reads in parallel, and returns the result of each.
    pub fn read_many(&self, reads: &mut [Io<'_>]) -> Vec<Result<()>> {
        self.device.submit(reads);
        reads.iter_mut().map(result_of_read).collect()
    }

    /// The same, and calls `meanwhile` once, during the reads if possible. It may read another device.
    pub fn read_many_while(&self, reads: &mut [Io<'_>], meanwhile: &mut dyn FnMut()) -> Vec<Result<()>> {
        self.device.submit_while(reads, meanwhile);
        reads.iter_mut().map(result_of_read).collect()
    }

    /// Like [`DataArea::read`]. The error is the device's own.
    pub fn try_read(&self, pbn: Pbn, bytes: &mut [u8]) -> io::Result<()> {
        let location = Location::of(pbn, bytes.len()).map_err(io::Error::other)?;
        self.device.read_at(bytes, location.at)
    }

    /// Writes consecutive blocks from `pbn` on. The next flush covers them.
    pub fn write(&self, pbn: Pbn, bytes: &[u8]) -> Result<()> {
        self.write_by(pbn, bytes, |device, write| device.submit(write))
    }

    /// The same, and calls `meanwhile` once, during the write if possible.
    pub fn write_while(&self, pbn: Pbn, bytes: &[u8], meanwhile: &mut dyn FnMut()) -> Result<()> {
        self.write_by(pbn, bytes, |device, write| device.submit_while(write, meanwhile))
    }

    fn write_by(&self, pbn: Pbn, bytes: &[u8], submit: impl FnOnce(&dyn Device, &mut [Io<'_>])) -> Result<()> {
        if pbn == Pbn(0) {
            return Err(Error::corrupt("a record", "it gives block 0, the label, to be written over"));
        }
        let mut write = Io::write(Location::of(pbn, bytes.len())?.at, bytes);
        submit(&*self.device, std::slice::from_mut(&mut write));
        write.into_result().map_err(|e| Error::io("writing to the data area", e))?;
        // Set after the write: a flush that began before its end may not cover it.
        self.is_dirty.store(true, Relaxed);
        Ok(())
    }

    /// Whether reads can go through a page cache of the host.
    pub fn has_host_cache(&self) -> bool {
        self.device.has_host_cache()
    }

    /// Makes the host's page cache forget a block.
    pub fn leave_host_cache(&self, pbn: Pbn) {
        if let Ok(location) = Location::of(pbn, BLOCK_BYTES) {
            self.device.leave_host_cache(location.at, location.bytes);
        }
    }

    /// Gives the space of free blocks back to the host. Returns how many bytes.
    pub fn punch(&self, run: Run) -> Result<u64> {
        assert!(run.pbn > Pbn(0) && run.blocks > 0, "a hole of {} blocks at block {}", run.blocks, run.pbn);
        let hole = Location::of(run.pbn, run.blocks as usize * BLOCK_BYTES)?;
        let punched = self.device.punch(hole.at, hole.bytes);
        punched.map(|()| hole.bytes).map_err(|e| Error::io("giving space back to the host", e))
    }

    /// Holes of this many blocks, aligned to it, give back most. 0: any are as good.
    pub fn hole_blocks(&self) -> u64 {
        self.device.punch_bytes() / BLOCK_BYTES as u64
    }

    /// Enlarges the device to hold `data` blocks.
    pub fn grow(&self, data: Blocks) -> Result<()> {
        self.device.grow(data.bytes()).map_err(|e| Error::io("enlarging the data area", e))
    }

    /// Whether any write is not covered by a flush yet.
    pub fn is_dirty(&self) -> bool {
        self.is_dirty.load(Relaxed)
    }

    /// Makes everything written before this call durable. True: a flush was needed.
    ///
    /// A failure fails the volume: the host reports it only once, so the next flush would falsely succeed for a caller
    /// that waited for this one.
    pub fn flush_if_dirty(&self, health: &Health) -> Result<bool> {
        let _one = self.flushing.lock();
        health.usable()?;
        if !self.is_dirty.swap(false, Relaxed) {
            return Ok(false);
        }
        let flushed = self.device.flush().map_err(|e| Error::io("flushing the data area", e));
        flushed.inspect_err(|error| health.fail(error)).map(|()| true)
    }

    /// Announces that staged blocks are about to be taken and written. A commit waits until the guard is dropped.
    pub fn begin_write_out(&self) -> RwLockReadGuard<'_, ()> {
        self.write_outs.read()
    }

    /// Waits until every write-out that has begun is done.
    pub fn wait_for_write_outs(&self) {
        drop(self.write_outs.write());
    }
}

/// One read for runs of blocks, which come in the order of the device, and for the gaps between them.
pub fn joined_read<'a>(mut runs: impl Iterator<Item = (Pbn, &'a mut [u8])>) -> Result<Io<'a>> {
    let (pbn, bytes) = runs.next().expect("a read has a run");
    let mut location = Location::of(pbn, bytes.len())?;
    let mut read = Io::read(location.at, bytes);
    for (pbn, bytes) in runs {
        let next = Location::of(pbn, bytes.len())?;
        read.join((next.at - location.end()) as usize, bytes);
        location = next;
    }
    Ok(read)
}

/// The result of a read, with an error that says what was read.
fn result_of_read(read: &mut Io<'_>) -> Result<()> {
    read.take_result().map_err(|e| unread(Location::block_at(read.at()), e))
}

fn unread(first: Pbn, error: io::Error) -> Error {
    Error::io(format!("reading block {first} of the data area"), error)
}
