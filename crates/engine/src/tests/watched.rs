//! A device in memory of which a test sees every operation before it is done, and may refuse or delay it.

use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::device::{Device, JoinedRead, MemoryDevice};

/// What is told of operations. An error is their answer.
pub trait Watch: Send + Sync {
    /// Bytes are about to be read.
    fn before_read(&self, _bytes: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    /// Reads were asked for at once; each is told of by itself too.
    fn asked(&self, _reads: &[JoinedRead<'_>]) {}

    /// Reads of another device were asked for beside some of this one. They come first.
    fn asked_beside(&self, _reads: &[JoinedRead<'_>]) {}

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

impl<W: Watch> Device for Watched<W> {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.watch.before_read(range(at, bytes.len()))?;
        self.inner.read_at(bytes, at)
    }

    fn read_many(&self, reads: &mut [JoinedRead<'_>]) -> Vec<io::Result<()>> {
        self.watch.asked(reads);
        reads.iter_mut().map(|read| read.by_pieces(|bytes, at| self.read_at(bytes, at))).collect()
    }

    fn read_both<'a>(
        &self,
        reads: &mut [JoinedRead<'a>],
        (other, beside): (&dyn Device, &mut [JoinedRead<'a>]),
    ) -> (Vec<io::Result<()>>, Vec<io::Result<()>>) {
        self.watch.asked_beside(beside);
        let of_other = other.read_many(beside);
        (self.read_many(reads), of_other)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.watch.before_write(range(at, bytes.len()))?;
        self.inner.write_at(bytes, at)
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
