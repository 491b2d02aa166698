//! The disk level's pages in a file: a header, then pages by number. A damaged page counts as missing.

use std::io;
use std::sync::Arc;

use oncefs_dedup::{Adoption, DiskLevel, HintPage, HintPages, PageNo, Sample};

use crate::device::Device;
use crate::device::buffer::AlignedBuf;
use crate::format::hint_header::{self, HintHeader};
use crate::format::hint_page::{self, Decoded};

const PAGE_BYTES: u64 = hint_page::BYTES as u64;
/// The file grows by this much at a time.
const GROWTH_BYTES: u64 = 4 << 20;
/// Pages read in one request after a mount.
const REQUEST_PAGES: usize = 256;

/// The open file.
pub struct HintFile {
    device: Arc<dyn Device>,
    header: HintHeader,
    pbn_bytes: usize,
    len: u64,
    bytes_read: u64,
    bytes_written: u64,
    damaged: u64,
}

impl HintFile {
    /// Opens the file. A file that is not a hint file of this volume is reset. The second value tells whether such a
    /// file was not just empty.
    pub fn open(device: Arc<dyn Device>, volume_id: [u8; 16], data_blocks: u64) -> io::Result<(Self, bool)> {
        let len = device.len()?;
        let mut bytes = AlignedBuf::new(hint_header::BYTES);
        if len >= PAGE_BYTES {
            device.read_at(&mut bytes, 0)?;
        }
        let header = HintHeader::decode(bytes[..].try_into().expect("one page"));
        let header = header.filter(|header| header.volume_id == volume_id);
        let fresh = HintHeader { volume_id, incarnation: 1, sample: Sample::ALL, complete_at: 0 };
        let mut file = Self {
            device,
            header: header.unwrap_or(fresh),
            pbn_bytes: hint_page::pbn_bytes(data_blocks),
            len,
            bytes_read: 0,
            bytes_written: 0,
            damaged: 0,
        };
        if header.is_none() {
            file.reset()?;
        }
        Ok((file, header.is_none() && len > 0))
    }

    /// Forgets every page, for good.
    pub fn reset(&mut self) -> io::Result<()> {
        self.header.incarnation = self.header.incarnation.wrapping_add(1);
        self.len = self.device.len()?;
        self.set_complete_at(0, self.header.sample)?;
        if self.len > PAGE_BYTES {
            self.device.punch(PAGE_BYTES, self.len - PAGE_BYTES)?;
        }
        Ok(())
    }

    /// The last commit of a clean unmount at which the file named every live block of a sample. 0: none. A file made
    /// with a sparser sample is not complete for it. A file made with a denser one is.
    pub fn complete_at(&self, sample: Sample) -> u64 {
        if self.header.sample.covers(sample) { self.header.complete_at } else { 0 }
    }

    /// Marks the file, durably and after all its pages, as complete for a sample at a commit.
    pub fn set_complete_at(&mut self, sequence: u64, sample: Sample) -> io::Result<()> {
        self.grow_to(PAGE_BYTES)?;
        self.device.flush()?;
        (self.header.complete_at, self.header.sample) = (sequence, sample);
        self.write_page(0, &self.header.encode())?;
        self.device.flush()
    }

    /// Hints that fit into a page.
    pub fn page_hints_max(&self) -> usize {
        hint_page::capacity(self.pbn_bytes)
    }

    /// Sets the number of blocks of the data area.
    pub fn set_data_blocks(&mut self, data_blocks: u64) {
        self.pbn_bytes = hint_page::pbn_bytes(data_blocks);
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Pages found damaged so far.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Bytes of pages, the header included.
    pub fn bytes(&self, pages: u32) -> u64 {
        (u64::from(pages) + 1) * PAGE_BYTES
    }

    /// Rebuilds the directory from the pages' own headers.
    pub fn adopt(&mut self) -> io::Result<DiskLevel> {
        let mut adoption = Adoption::new(self.page_hints_max());
        let pages_end = (self.len / PAGE_BYTES).saturating_sub(1).min(u64::from(u32::MAX)) as u32;
        let mut number = 0;
        while number < pages_end {
            let at = u64::from(number + 1) * PAGE_BYTES;
            let Some(data) = self.device.next_data(at)? else { break };
            number = ((data / PAGE_BYTES).saturating_sub(1) as u32).max(number);
            let count = REQUEST_PAGES.min((pages_end - number.min(pages_end)) as usize);
            for (number, page) in self.read_pages(number, count)? {
                adoption.adopt(PageNo(number), page.prefix, page.hints.len());
            }
            number += count as u32;
        }
        adoption.finish(self, pages_end)
    }

    fn read_pages(&mut self, first: u32, count: usize) -> io::Result<Vec<(u32, HintPage)>> {
        let mut bytes = AlignedBuf::new(count * hint_page::BYTES);
        self.device.read_at(&mut bytes, u64::from(first + 1) * PAGE_BYTES)?;
        self.bytes_read += bytes.len() as u64;
        let mut pages = Vec::new();
        for (bytes, number) in bytes.chunks_exact(hint_page::BYTES).zip(first..) {
            let bytes = bytes.try_into().expect("chunks of a page");
            match hint_page::decode(bytes, self.header.incarnation, number) {
                Decoded::Page(page) => pages.push((number, page)),
                Decoded::Unused => {}
                Decoded::Damaged => self.damaged += 1,
            }
        }
        Ok(pages)
    }

    fn grow_to(&mut self, end: u64) -> io::Result<()> {
        if end > self.len {
            let len = end.next_multiple_of(GROWTH_BYTES);
            self.device.grow(len)?;
            self.len = len;
        }
        Ok(())
    }

    fn write_page(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(at + bytes.len() as u64 <= self.len, "a page at byte {at} of a file of {} bytes", self.len);
        let mut page = AlignedBuf::new(bytes.len());
        page.copy_from_slice(bytes);
        self.device.write_at(&page, at)?;
        self.bytes_written += bytes.len() as u64;
        Ok(())
    }
}

impl HintPages for HintFile {
    type Error = io::Error;

    fn read(&mut self, page: PageNo) -> io::Result<Option<HintPage>> {
        if (u64::from(page.0) + 2) * PAGE_BYTES > self.len {
            return Ok(None);
        }
        Ok(self.read_pages(page.0, 1)?.pop().map(|(_, page)| page))
    }

    fn write(&mut self, page: PageNo, content: &HintPage) -> io::Result<()> {
        let at = (u64::from(page.0) + 1) * PAGE_BYTES;
        self.grow_to(at + PAGE_BYTES)?;
        self.write_page(at, &hint_page::encode(content, self.header.incarnation, page.0, self.pbn_bytes))
    }

    fn discard(&mut self, page: PageNo) -> io::Result<()> {
        self.device.punch((u64::from(page.0) + 1) * PAGE_BYTES, PAGE_BYTES)
    }
}
