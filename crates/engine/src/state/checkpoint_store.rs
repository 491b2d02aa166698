//! The stores that checkpoints write: the block table and the sorted state.

use std::io;
use std::sync::Arc;

use crate::device::{Device, Io};
use crate::format::extent_leaf::ExtentLeaf;
use crate::format::fragment::FIRST_PAGE;
use crate::format::keys::{self, LeafKey};
use crate::format::page::{PAGE_BYTES, Page};
use crate::kv::{FilesFound, Kv, KvMemory, Put};
use crate::sync::{LockRank, RwLock, assert_may_read_disk, count_reads};
use crate::{Error, Result};

/// Most pages read in one request.
const REQUEST_PAGES: usize = 256;

/// The stores that checkpoints write.
pub struct CheckpointStore {
    table: Arc<dyn Device>,
    /// The pages of fragments, in a device of their own. None: the volume has no compressed blocks.
    fragments: Option<Arc<dyn Device>>,
    /// Held shared to read table pages, and exclusively to write some, so that no read sees a torn page.
    table_io: RwLock<()>,
    /// Names, inodes, maps and records, by key.
    kv: Arc<dyn Kv>,
}

impl CheckpointStore {
    /// The stores of a volume.
    pub fn new(table: Arc<dyn Device>, fragments: Option<Arc<dyn Device>>, kv: Arc<dyn Kv>) -> Self {
        Self { table, fragments, table_io: RwLock::new(LockRank::TableIo, ()), kv }
    }

    /// The device with a page, and the first byte of the page there. An error: a map refers to a page that no device
    /// has.
    fn place_of(&self, page: u64) -> Result<(&dyn Device, u64)> {
        let device = match page < FIRST_PAGE {
            true => Some(&self.table),
            false => self.fragments.as_ref(),
        };
        let no_page =
            || Error::corrupt("a map", format!("it names fragments of table page {page}, and there are none"));
        Ok((&**device.ok_or_else(no_page)?, byte_of(page)?))
    }

    /// Reads `count` consecutive pages of the block table, each as far as it is intact.
    pub fn read_pages(&self, first: u64, count: usize) -> Result<Vec<(u64, Page)>> {
        let bytes = self.read_raw_pages(first, count)?;
        Ok(pages_in(&bytes, first..first + count as u64))
    }

    /// Reads pages, which come in ascending order: neighbours in one request, and all requests in parallel.
    pub fn read_each_page(&self, numbers: &[u64]) -> Result<Vec<(u64, Page)>> {
        let mut bytes = vec![0; numbers.len() * PAGE_BYTES];
        let (of_blocks, of_fragments) = numbers.split_at(numbers.partition_point(|number| *number < FIRST_PAGE));
        let (blocks, fragments) = bytes.split_at_mut(of_blocks.len() * PAGE_BYTES);
        for (numbers, bytes) in [(of_blocks, blocks), (of_fragments, fragments)] {
            let Some(first) = numbers.first() else { continue };
            let device = self.place_of(*first)?.0;
            let mut reads = reads_of(numbers, bytes)?;
            assert_may_read_disk(reads.len() as u64);
            let whole = self.table_io.read();
            device.submit(&mut reads);
            drop(whole);
            reads.into_iter().try_for_each(Io::into_result).map_err(unread)?;
        }
        Ok(pages_in(&bytes, numbers.iter().copied()))
    }

    /// Makes reads of pages of blocks, each as it is. It does not block writers of pages, so a page written meanwhile
    /// may be torn.
    pub fn submit_page_reads(&self, reads: &mut [Io<'_>]) {
        self.table.submit(reads);
    }

    /// Reads `count` consecutive pages as they are.
    pub fn read_raw_pages(&self, first: u64, count: usize) -> Result<Vec<u8>> {
        assert_may_read_disk(1);
        let mut bytes = vec![0; count * PAGE_BYTES];
        let (device, at) = self.place_of(first)?;
        let _whole = self.table_io.read();
        device.read_at(&mut bytes, at).map_err(unread)?;
        Ok(bytes)
    }

    /// Writes consecutive pages of the block table. A flush makes them durable.
    pub fn write_pages(&self, first: u64, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len().is_multiple_of(PAGE_BYTES), "{} bytes are not whole pages", bytes.len());
        let (device, at) = self.place_of(first)?;
        let _alone = self.table_io.write();
        device.write_at(bytes, at).map_err(|e| Error::io("writing the block table", e))
    }

    /// Makes a page a hole, which reads as zeros. False: the host does not support it.
    pub fn punch_page(&self, number: u64) -> bool {
        let Ok((device, at)) = self.place_of(number) else { return false };
        let _alone = self.table_io.write();
        device.punch(at, PAGE_BYTES as u64).is_ok()
    }

    /// Makes everything written to the block table durable.
    pub fn flush_pages(&self) -> Result<()> {
        let devices = [Some(&self.table), self.fragments.as_ref()];
        let flushed = devices.into_iter().flatten().try_for_each(|device| device.flush());
        flushed.map_err(|e| Error::io("flushing the block table", e))
    }

    /// The first page at or after `number`, of the same device, that may have been written. None: the rest is zeros.
    pub fn next_written_page(&self, number: u64) -> Result<Option<u64>> {
        let (device, at) = self.place_of(number)?;
        let found = device.next_data(at).map_err(|e| Error::io("scanning the block table", e))?;
        let first = if number < FIRST_PAGE { 0 } else { FIRST_PAGE };
        Ok(found.map(|at| first + at / PAGE_BYTES as u64))
    }

    /// Whether there is a device for the pages of fragments.
    pub fn has_fragments(&self) -> bool {
        self.fragments.is_some()
    }

    /// The page after the last one that has room for entries of fragments. The first one: there is no room.
    pub fn fragment_pages_end(&self) -> Result<u64> {
        let Some(fragments) = &self.fragments else { return Ok(FIRST_PAGE) };
        let bytes = fragments.len().map_err(|e| Error::io("looking at the table of fragments", e))?;
        Ok(FIRST_PAGE + bytes / PAGE_BYTES as u64)
    }

    /// Makes room for the entries of more fragments, in the pages before `end`.
    pub fn grow_fragments(&self, end: u64) -> Result<()> {
        let fragments = self.fragments.as_ref().ok_or(Error::NoSpace)?;
        let grown = fragments.grow((end - FIRST_PAGE) * PAGE_BYTES as u64);
        grown.map_err(|e| Error::io("enlarging the table of fragments", e))
    }

    /// Enlarges the block table to `bytes` bytes.
    pub fn grow_table(&self, bytes: u64) -> Result<()> {
        assert!(bytes.is_multiple_of(PAGE_BYTES as u64), "a table of {bytes} bytes has no whole pages");
        self.table.grow(bytes).map_err(|e| Error::io("enlarging the block table", e))
    }

    /// A record of the sorted state. Some callers may read a single record but nothing more, such as a change of a
    /// file's rank, which reads the file's policy.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        count_reads(1);
        self.kv.get(key)
    }

    /// Records with `from <= key < to`, in order, at most `limit`.
    pub fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        assert_may_read_disk(1);
        let found = self.kv.scan(from, to, limit)?;
        assert!(found.len() <= limit, "{} records, at most {limit} were asked for", found.len());
        Ok(found)
    }

    /// The leaf of a map as the last checkpoint left it; an empty one if there is no record.
    pub fn read_leaf(&self, key: LeafKey) -> Result<ExtentLeaf> {
        assert_may_read_disk(1);
        match self.kv.get(&keys::leaf(key))? {
            None => Ok(ExtentLeaf::default()),
            Some(value) => ExtentLeaf::decode(key, &value).ok_or_else(|| {
                Error::corrupt(format!("leaf {} of map {}", key.leaf, key.map.0), "its checksum does not match")
            }),
        }
    }

    /// Applies a batch of records. Until they are sealed, a crash may leave any of them.
    pub fn write_records(&self, batch: Vec<Put>) -> Result<()> {
        self.kv.write(batch)
    }

    /// Makes every record written durable, and then this one. See [`Kv::seal`].
    pub fn seal_records(&self, last: Put) -> Result<()> {
        self.kv.seal(last)
    }

    /// See [`Kv::restore`].
    pub fn restore_records(&self) -> bool {
        self.kv.restore()
    }

    /// See [`Kv::settle`].
    pub fn settle_records(&self) {
        self.kv.settle();
    }

    /// See [`Kv::catch_up`].
    #[cfg(any(test, feature = "testing"))]
    pub fn catch_up_records(&self) {
        self.kv.catch_up();
    }

    /// See [`Kv::check_files`].
    pub fn check_record_files(&self, mend: bool) -> Result<FilesFound> {
        self.kv.check_files(mend)
    }

    /// The sorted state's memory use.
    pub fn records_in_memory(&self) -> KvMemory {
        self.kv.memory()
    }
}

/// The first byte, in its device, of a page that a map refers to.
fn byte_of(page: u64) -> Result<u64> {
    let at = page.checked_sub(FIRST_PAGE).unwrap_or(page).checked_mul(PAGE_BYTES as u64);
    at.ok_or_else(|| Error::corrupt("a map", format!("it names blocks of table page {page}")))
}

/// Requests for pages of one device, which come in ascending order: one for each run of neighbours.
pub fn reads_of<'a>(numbers: &[u64], mut bytes: &'a mut [u8]) -> Result<Vec<Io<'a>>> {
    assert_eq!(bytes.len(), numbers.len() * PAGE_BYTES, "bytes for {} pages", numbers.len());
    let mut reads = Vec::new();
    let mut rest = numbers;
    while let Some(&first) = rest.first() {
        let neighbours = rest.iter().zip(first..).take_while(|(number, expected)| **number == *expected).count();
        let count = neighbours.min(REQUEST_PAGES);
        let (here, behind) = std::mem::take(&mut bytes).split_at_mut(count * PAGE_BYTES);
        reads.push(Io::read(byte_of(first)?, here));
        (rest, bytes) = (&rest[count..], behind);
    }
    Ok(reads)
}

fn unread(error: io::Error) -> Error {
    Error::io("reading the block table", error)
}

/// A page with this number, as far as it is intact.
pub fn page_in((number, bytes): (u64, &[u8])) -> (u64, Page) {
    (number, Page::as_found(number, bytes.try_into().expect("bytes of a page")))
}

/// Pages with these numbers, each as far as it is intact.
fn pages_in(bytes: &[u8], numbers: impl Iterator<Item = u64>) -> Vec<(u64, Page)> {
    let pages: Vec<(u64, Page)> = numbers.zip(bytes.chunks_exact(PAGE_BYTES)).map(page_in).collect();
    debug_assert_eq!(pages.len() * PAGE_BYTES, bytes.len(), "a page for each chunk");
    pages
}
