//! A device in memory, for tests: separates the written bytes from those that would survive a power cut.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Device, Io};

const PAGE_BYTES: usize = 4096;
/// Images share equal pages.
type Pages = BTreeMap<u64, Arc<[u8; PAGE_BYTES]>>;

#[derive(Default)]
struct Images {
    written: Pages,
    durable: Pages,
    len: u64,
    flushes_until_failure: Option<u64>,
}

/// A sparse device in memory.
#[derive(Default)]
pub struct MemoryDevice {
    images: Mutex<Images>,
}

impl MemoryDevice {
    /// A device of `len` zero bytes.
    pub fn new(len: u64) -> Self {
        Self { images: Mutex::new(Images { len, ..Images::default() }) }
    }

    /// The device after a power cut: the flushed pages, plus the unflushed pages that `kept` chooses (a disk may have
    /// written any of them).
    pub fn after_power_cut(&self, mut kept: impl FnMut(u64) -> bool) -> Self {
        let images = self.images.lock();
        let mut survived = images.durable.clone();
        for (page, bytes) in &images.written {
            if images.durable.get(page) != Some(bytes) && kept(*page) {
                survived.insert(*page, bytes.clone());
            }
        }
        for page in images.durable.keys() {
            if !images.written.contains_key(page) && kept(*page) {
                survived.remove(page);
            }
        }
        let len = images.len;
        drop(images);
        Self {
            images: Mutex::new(Images {
                written: survived.clone(),
                durable: survived,
                len,
                flushes_until_failure: None,
            }),
        }
    }

    /// Makes flushes fail with EIO after the next `flushes` ones.
    pub fn fail_flush_after(&self, flushes: u64) {
        self.images.lock().flushes_until_failure = Some(flushes);
    }

    fn check(images: &Images, at: u64, len: usize) -> io::Result<()> {
        if at + len as u64 > images.len {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("bytes {at}+{len} are beyond the end at {}", images.len),
            ));
        }
        Ok(())
    }
}

/// Splits a range of bytes into (page, offset in page, range of the caller's bytes).
fn pages_of(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let here = at + done as u64;
        let offset = (here % PAGE_BYTES as u64) as usize;
        let take = (PAGE_BYTES - offset).min(len - done);
        debug_assert!(take > 0 && offset + take <= PAGE_BYTES, "{take} bytes at {offset} of a page");
        let range = done..done + take;
        done += take;
        Some((here / PAGE_BYTES as u64, offset, range))
    })
}

impl MemoryDevice {
    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let images = self.images.lock();
        Self::check(&images, at, bytes.len())?;
        for (page, offset, range) in pages_of(at, bytes.len()) {
            let target = &mut bytes[range];
            match images.written.get(&page) {
                Some(page) => target.copy_from_slice(&page[offset..offset + target.len()]),
                None => target.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut images = self.images.lock();
        Self::check(&images, at, bytes.len())?;
        for (page, offset, range) in pages_of(at, bytes.len()) {
            let source = &bytes[range];
            let page = images.written.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[offset..offset + source.len()].copy_from_slice(source);
        }
        Ok(())
    }
}

impl Device for MemoryDevice {
    fn submit(&self, ios: &mut [Io<'_>]) {
        ios.iter_mut().for_each(|io| io.by_pieces(|bytes, at| self.read(bytes, at), |bytes, at| self.write(bytes, at)));
    }

    fn flush(&self) -> io::Result<()> {
        let mut images = self.images.lock();
        match &mut images.flushes_until_failure {
            Some(0) => return Err(io::Error::from_raw_os_error(libc::EIO)),
            Some(left) => *left -= 1,
            None => {}
        }
        images.durable = images.written.clone();
        Ok(())
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        let mut images = self.images.lock();
        Self::check(&images, at, len as usize)?;
        let first = at.div_ceil(PAGE_BYTES as u64);
        let end = (at + len) / PAGE_BYTES as u64;
        for page in first..end {
            images.written.remove(&page);
        }
        Ok(())
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        let images = self.images.lock();
        let page = images.written.range(at / PAGE_BYTES as u64..).next();
        Ok(page.map(|(page, _)| at.max(page * PAGE_BYTES as u64)))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.images.lock().len)
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        let mut images = self.images.lock();
        images.len = images.len.max(len);
        Ok(())
    }
}
