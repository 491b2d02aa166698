//! A device in memory of which a test sees every operation before it is done, and may refuse or delay it.

use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::device::{Device, Io, MemoryDevice};

/// What is told of operations. An error is their answer.
pub trait Watch: Send + Sync {
    /// Bytes are about to be read.
    fn before_read(&self, _bytes: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    /// Requests were asked for at once; each is told of by itself too.
    fn asked(&self, _ios: &[Io<'_>]) {}

    /// Other work is about to be done while requests of this device are made. It comes first.
    fn asked_beside(&self) {}

    /// Bytes are about to be written.
    fn before_write(&self, _bytes: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    /// What was written is about to be made durable.
    fn before_flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Space is about to be given back.
    fn before_punch(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The device with who watches it.
#[derive(Default)]
pub struct Watched<W> {
    /// What is read and written.
    pub inner: Arc<MemoryDevice>,
    watch: W,
}

impl<W> Watched<W> {
    /// A device that is watched from now on.
    pub fn new(inner: &Arc<MemoryDevice>, watch: W) -> Arc<Self> {
        Arc::new(Self { inner: inner.clone(), watch })
    }
}

impl<W> Deref for Watched<W> {
    type Target = W;

    fn deref(&self) -> &W {
        &self.watch
    }
}

fn range(at: u64, len: usize) -> Range<u64> {
    at..at + len as u64
}

impl<W: Watch> Watched<W> {
    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.watch.before_read(range(at, bytes.len()))?;
        self.inner.read_at(bytes, at)
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.watch.before_write(range(at, bytes.len()))?;
        self.inner.write_at(bytes, at)
    }
}

impl<W: Watch> Device for Watched<W> {
    fn submit(&self, ios: &mut [Io<'_>]) {
        self.watch.asked(ios);
        ios.iter_mut().for_each(|io| io.by_pieces(|bytes, at| self.read(bytes, at), |bytes, at| self.write(bytes, at)));
    }

    fn submit_while(&self, ios: &mut [Io<'_>], meanwhile: &mut dyn FnMut()) {
        self.watch.asked_beside();
        meanwhile();
        self.submit(ios);
    }

    fn flush(&self) -> io::Result<()> {
        self.watch.before_flush()?;
        self.inner.flush()
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        self.watch.before_punch()?;
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
