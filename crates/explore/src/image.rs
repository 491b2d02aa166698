//! The contents of a volume's parts at one moment. All crash states share pages and copy them when they are written, so
//! a state takes memory only for its differences. Each image keeps its own hash, so equal states are found at once.
//!
//! Invariant: a page of zeros is not stored. So two images are equal exactly if they hold equal pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncefs_engine::kv::Put;
use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// Bytes of a page: the unit of all writes of the engine.
pub const PAGE_BYTES: usize = 4096;
/// Bytes that a disk writes as a whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// The bytes of a page that lost its content.
const ROTTEN: [u8; PAGE_BYTES] = [0xDB; PAGE_BYTES];

/// A device of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The data area.
    Data,
    /// The block table.
    Table,
    /// The block table's pages of fragments.
    Fragments,
    /// The log.
    Log,
    /// The disk level of the hint store.
    Hints,
    /// The skipped buffer.
    Skipped,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 6] = [Part::Data, Part::Table, Part::Fragments, Part::Log, Part::Hints, Part::Skipped];

    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Part::Data => "data",
            Part::Table => "table",
            Part::Fragments => "fragments",
            Part::Log => "log",
            Part::Hints => "hints",
            Part::Skipped => "skipped",
        }
    }
}

/// A page and its hash.
pub struct Page {
    bytes: [u8; PAGE_BYTES],
    hash: u128,
}

impl Page {
    /// None: the page is zeros.
    pub fn new(bytes: &[u8]) -> Option<Arc<Self>> {
        let bytes: [u8; PAGE_BYTES] = bytes.try_into().expect("a whole page");
        (bytes != [0; PAGE_BYTES]).then(|| Arc::new(Self { hash: xxh3_128(&bytes), bytes }))
    }

    /// The content.
    pub fn bytes(&self) -> &[u8; PAGE_BYTES] {
        &self.bytes
    }

    /// The hash of the content.
    pub fn hash(&self) -> u128 {
        self.hash
    }

    fn hash_at(&self, number: u64) -> u128 {
        xxh3_128_with_seed(&self.hash.to_le_bytes(), number)
    }
}

/// The content of one device.
#[derive(Clone, Default)]
pub struct DeviceImage {
    len: u64,
    pages: Arc<BTreeMap<u64, Arc<Page>>>,
    hash: u128,
}

impl DeviceImage {
    /// A device of zeros.
    pub fn new(len: u64) -> Self {
        Self { len, ..Self::default() }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// A page; None: zeros.
    pub fn page(&self, number: u64) -> Option<&Arc<Page>> {
        self.pages.get(&number)
    }

    /// Replaces a page.
    pub fn set_page(&mut self, number: u64, page: Option<Arc<Page>>) {
        let pages = Arc::make_mut(&mut self.pages);
        let new = page.as_ref().map_or(0, |page| page.hash_at(number));
        let old = match page {
            Some(page) => pages.insert(number, page),
            None => pages.remove(&number),
        };
        self.hash ^= new ^ old.map_or(0, |page| page.hash_at(number));
    }

    /// The first page that holds these bytes.
    pub fn page_with(&self, bytes: &[u8]) -> Option<u64> {
        self.pages.iter().find(|(_, page)| page.bytes[..] == *bytes).map(|(number, _)| *number)
    }

    /// Makes a page lose its content, as a medium does.
    pub fn rot(&mut self, number: u64) {
        self.set_page(number, Page::new(&ROTTEN));
    }

    /// Whether a page lost its content and was not overwritten since.
    pub fn is_rotten(&self, number: u64) -> bool {
        self.page(number).is_some_and(|page| page.bytes == ROTTEN)
    }

    /// Fills `bytes` from `at`.
    pub fn read(&self, bytes: &mut [u8], at: u64) {
        let mut done = 0;
        while done < bytes.len() {
            let here = at + done as u64;
            let offset = (here % PAGE_BYTES as u64) as usize;
            let take = (PAGE_BYTES - offset).min(bytes.len() - done);
            let target = &mut bytes[done..done + take];
            match self.page(here / PAGE_BYTES as u64) {
                Some(page) => target.copy_from_slice(&page.bytes[offset..offset + take]),
                None => target.fill(0),
            }
            done += take;
        }
    }

    /// The first page from `number` on that is not zeros.
    pub fn next_page(&self, number: u64) -> Option<u64> {
        self.pages.range(number..).next().map(|(number, _)| *number)
    }

    /// Enlarges it.
    pub fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    fn hash(&self) -> u128 {
        self.hash ^ xxh3_128(&self.len.to_le_bytes())
    }
}

/// The content of the sorted state.
#[derive(Clone, Default)]
pub struct RecordsImage {
    records: Arc<BTreeMap<Vec<u8>, Vec<u8>>>,
    hash: u128,
}

impl RecordsImage {
    /// The records by key.
    pub fn records(&self) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.records
    }

    /// Applies a batch.
    pub fn apply(&mut self, batch: &[Put]) {
        let records = Arc::make_mut(&mut self.records);
        for (key, value) in batch {
            let new = value.as_ref().map_or(0, |value| hash_of_record(key, value));
            let old = match value {
                Some(value) => records.insert(key.clone(), value.clone()),
                None => records.remove(key),
            };
            self.hash ^= new ^ old.map_or(0, |old| hash_of_record(key, &old));
        }
    }
}

fn hash_of_record(key: &[u8], value: &[u8]) -> u128 {
    let mut bytes = xxh3_128(key).to_le_bytes().to_vec();
    bytes.extend_from_slice(&xxh3_128(value).to_le_bytes());
    xxh3_128(&bytes)
}

/// The contents of all parts of a volume.
#[derive(Clone, Default)]
pub struct Images {
    devices: [DeviceImage; Part::ALL.len()],
    /// The sorted state.
    pub records: RecordsImage,
}

impl Images {
    /// A device.
    pub fn device(&self, part: Part) -> &DeviceImage {
        &self.devices[part as usize]
    }

    /// A device, for changes.
    pub fn device_mut(&mut self, part: Part) -> &mut DeviceImage {
        &mut self.devices[part as usize]
    }

    /// Identifies the images: equal for equal images, different for others (128 bits).
    pub fn hash(&self) -> u128 {
        let hashes = self.devices.iter().map(DeviceImage::hash).chain([self.records.hash]);
        let bytes: Vec<u8> = hashes.flat_map(u128::to_le_bytes).collect();
        xxh3_128(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_images_have_equal_hashes_whatever_came_before() {
        let page = |byte: u8| Page::new(&[byte; PAGE_BYTES]);
        let mut image = DeviceImage::new(1 << 20);
        let empty = image.hash();
        image.set_page(3, page(1));
        let one = image.hash();
        image.set_page(4, page(1));
        image.set_page(3, page(2));
        assert_ne!(image.hash(), one);
        image.set_page(3, page(1));
        image.set_page(4, page(0));
        assert_eq!(image.hash(), one);
        let mut elsewhere = DeviceImage::new(1 << 20);
        elsewhere.set_page(4, page(1));
        assert_ne!(elsewhere.hash(), one, "the place counts");
        image.set_page(3, page(0));
        assert_eq!(image.hash(), empty);
        image.grow(2 << 20);
        assert_ne!(image.hash(), empty, "the size counts");
    }
}
