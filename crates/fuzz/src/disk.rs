//! The devices and the sorted state of a volume in memory: cheap to copy, open to damage, with a bound on requests, so
//! that endless work is noticed.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use oncefs_engine::Result;
use oncefs_engine::device::{Device, Io};
use oncefs_engine::kv::{Kv, KvMemory, Put};
use parking_lot::Mutex;

/// The unit that a crash may lose of a device.
pub const PAGE_BYTES: usize = 4096;

/// Most requests of one execution. Executions without a fault need at most a hundredth of this.
const REQUESTS_MAX: u64 = 2_000_000;

/// Counts requests to all parts of one volume.
#[derive(Default)]
pub struct Requests(AtomicU64);

impl Requests {
    fn count(&self) {
        let so_far = self.0.fetch_add(1, Relaxed);
        assert!(so_far < REQUESTS_MAX, "no end after {REQUESTS_MAX} requests");
    }
}

type Pages = BTreeMap<u64, Arc<[u8; PAGE_BYTES]>>;

/// The content of a device.
#[derive(Clone, Default)]
pub struct Image {
    pages: Pages,
    /// Size in bytes.
    pub len: u64,
}

impl Image {
    /// A device of `len` zero bytes.
    pub fn new(len: u64) -> Self {
        Self { pages: Pages::new(), len }
    }

    /// Numbers of the pages that were written, in order.
    pub fn written(&self) -> Vec<u64> {
        self.pages.keys().copied().collect()
    }

    /// A page.
    pub fn page(&self, page: u64) -> [u8; PAGE_BYTES] {
        self.pages.get(&page).map_or([0; PAGE_BYTES], |bytes| **bytes)
    }

    /// A page, for changes.
    pub fn page_mut(&mut self, page: u64) -> &mut [u8; PAGE_BYTES] {
        Arc::make_mut(self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES])))
    }

    fn each_part(
        &self,
        at: u64,
        len: usize,
        mut each: impl FnMut(u64, usize, std::ops::Range<usize>),
    ) -> io::Result<()> {
        if at.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{at}+{len} is beyond {}", self.len)));
        }
        let mut done = 0;
        while done < len {
            let here = at + done as u64;
            let from = (here % PAGE_BYTES as u64) as usize;
            let taken = (PAGE_BYTES - from).min(len - done);
            each(here / PAGE_BYTES as u64, from, done..done + taken);
            done += taken;
        }
        Ok(())
    }

    /// Copies a range out.
    pub fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.each_part(at, bytes.len(), |page, from, range| {
            let target = &mut bytes[range];
            match self.pages.get(&page) {
                Some(page) => target.copy_from_slice(&page[from..from + target.len()]),
                None => target.fill(0),
            }
        })
    }

    /// Copies a range in.
    pub fn write(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut parts = Vec::new();
        self.each_part(at, bytes.len(), |page, from, range| parts.push((page, from, range)))?;
        for (page, from, range) in parts {
            let source = &bytes[range];
            self.page_mut(page)[from..from + source.len()].copy_from_slice(source);
        }
        Ok(())
    }
}

/// A device: its written and its flushed content.
pub struct Disk {
    requests: Arc<Requests>,
    written: Mutex<Image>,
    durable: Mutex<Image>,
}

impl Disk {
    /// A device with the durable content `image`.
    pub fn new(image: &Image, requests: &Arc<Requests>) -> Self {
        Self { requests: requests.clone(), written: Mutex::new(image.clone()), durable: Mutex::new(image.clone()) }
    }

    /// Its content.
    pub fn image(&self) -> Image {
        self.written.lock().clone()
    }

    /// The content after a power cut: the flushed pages, and those of the later writes that `is_kept` chooses.
    pub fn after_power_cut(&self, mut is_kept: impl FnMut() -> bool) -> Image {
        let (written, mut left) = (self.written.lock(), self.durable.lock().clone());
        for (page, bytes) in &written.pages {
            let is_new = left.pages.get(page).is_none_or(|before| !Arc::ptr_eq(before, bytes));
            if is_new && is_kept() {
                left.pages.insert(*page, bytes.clone());
            }
        }
        left.len = written.len;
        left
    }
}

impl Disk {
    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.requests.count();
        self.written.lock().read(bytes, at)
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.requests.count();
        self.written.lock().write(bytes, at)
    }
}

impl Device for Disk {
    fn submit(&self, ios: &mut [Io<'_>]) {
        ios.iter_mut().for_each(|io| io.by_pieces(|bytes, at| self.read(bytes, at), |bytes, at| self.write(bytes, at)));
    }

    fn flush(&self) -> io::Result<()> {
        self.requests.count();
        *self.durable.lock() = self.written.lock().clone();
        Ok(())
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        self.requests.count();
        let mut written = self.written.lock();
        let (first, end) = (at.div_ceil(PAGE_BYTES as u64), at.saturating_add(len) / PAGE_BYTES as u64);
        written.pages.retain(|page, _| !(first..end).contains(page));
        Ok(())
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.requests.count();
        let page = at / PAGE_BYTES as u64;
        let next = self.written.lock().pages.range(page..).next().map(|(page, _)| *page);
        Ok(next.map(|page| at.max(page * PAGE_BYTES as u64)))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.written.lock().len)
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        let mut written = self.written.lock();
        written.len = written.len.max(len);
        Ok(())
    }
}

/// Records by key.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// The sorted state: its written and its flushed content.
pub struct Sorted {
    requests: Arc<Requests>,
    written: Mutex<Records>,
    durable: Mutex<Records>,
}

impl Sorted {
    /// A sorted state with the durable content `records`.
    pub fn new(records: &Records, requests: &Arc<Requests>) -> Self {
        Self { requests: requests.clone(), written: Mutex::new(records.clone()), durable: Mutex::new(records.clone()) }
    }

    /// Its content.
    pub fn records(&self) -> Records {
        self.written.lock().clone()
    }

    /// The content after a power cut: the flushed records, or all records, because a flush may have happened meanwhile.
    pub fn after_power_cut(&self, is_flushed: bool) -> Records {
        if is_flushed { self.written.lock().clone() } else { self.durable.lock().clone() }
    }
}

impl Kv for Sorted {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.requests.count();
        Ok(self.written.lock().get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.requests.count();
        if from >= to {
            return Ok(Vec::new());
        }
        let written = self.written.lock();
        let found = written.range(from.to_vec()..to.to_vec()).take(limit);
        Ok(found.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn write(&self, batch: Vec<Put>) -> Result<()> {
        self.requests.count();
        let mut written = self.written.lock();
        for (key, value) in batch {
            match value {
                Some(value) => written.insert(key, value),
                None => written.remove(&key),
            };
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.requests.count();
        *self.durable.lock() = self.written.lock().clone();
        Ok(())
    }

    fn memory(&self) -> KvMemory {
        KvMemory::default()
    }
}
