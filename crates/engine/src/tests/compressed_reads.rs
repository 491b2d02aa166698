//! Reads of compressed files: their requests to the device, what memory keeps of them, and what one damaged fragment
//! costs a large read.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::{Device, Io};
use crate::format::fragment::{FragmentPlace, PAGE_FRAGMENTS, is_fragment};
use crate::format::page::page_of;
use crate::settings::values::Settings;
use crate::tests::compress::{compress_all, pbns_of, text, zstd};
use crate::tests::fixture::{Devices, unique};
use crate::tests::watched::{Watch, Watched};
use crate::volume::assembly::Volume;
use crate::volume::backend::Backend;
use crate::{BLOCK_BYTES, Blocks, Error, MapId, Pbn};

const BLOCK: u64 = BLOCK_BYTES as u64;
const FILE: MapId = MapId(1);

/// Byte lengths of the requests of each call.
#[derive(Default)]
struct Noted(Mutex<Vec<Vec<usize>>>);

impl Watch for Noted {
    fn asked(&self, reads: &[Io<'_>]) {
        self.0.lock().push(reads.iter().map(Io::len).collect());
    }
}

/// A volume that was just opened, whose devices note requests.
struct Opened {
    volume: Volume,
    data: Arc<Watched<Noted>>,
    fragments: Arc<Watched<Noted>>,
}

impl Opened {
    fn of(devices: &Devices) -> Self {
        let (data, fragments) = (Watched::<Noted>::of(&devices.data), Watched::<Noted>::of(&devices.fragments));
        let backend = Backend { data: data.clone(), fragments: Some(fragments.clone()), ..devices.backend() };
        let opened = Self { volume: devices.open_medium(backend), data, fragments };
        opened.forget();
        opened
    }

    fn forget(&self) {
        self.data.0.lock().clear();
        self.fragments.0.lock().clear();
    }

    fn read(&self, map: MapId, first: usize, blocks: usize) -> Result<Vec<u8>, Error> {
        self.volume.reader.read(map, first as u64 * BLOCK, blocks * BLOCK_BYTES).map(|read| read.to_vec())
    }

    fn calls(&self) -> Vec<Vec<usize>> {
        self.data.0.lock().clone()
    }
}

impl Watched<Noted> {
    fn of(inner: &Arc<crate::device::MemoryDevice>) -> Arc<Self> {
        Self::new(inner, Noted::default())
    }
}

/// A volume with these files, compressed.
fn compressed(settings: Settings, files: &[(MapId, Vec<u8>)]) -> Devices {
    let devices = Devices::new(Blocks(4_000), settings);
    let volume = devices.open();
    for (map, content) in files {
        volume.write(*map, 0, content, |_, _| ()).unwrap();
    }
    volume.commits.checkpoint().unwrap();
    compress_all(&volume);
    volume.commits.checkpoint().unwrap();
    devices
}

fn place_of(volume: &Volume, pbn: Pbn) -> FragmentPlace {
    volume.metadata.with_pages(|| vec![page_of(pbn)], |pages| pages.fragment_place(pbn)).unwrap().unwrap()
}

#[test]
fn a_large_request_is_one_read_of_less_than_half_its_bytes() {
    let content = text(256, 1);
    let opened = Opened::of(&compressed(zstd(), &[(FILE, content.clone())]));
    assert!(opened.read(FILE, 0, 256).unwrap() == content);
    let calls = opened.calls();
    assert_eq!(calls.iter().map(Vec::len).collect::<Vec<_>>(), [1], "{calls:?}");
    assert!(calls[0][0] < 128 * BLOCK_BYTES, "{calls:?}");
    // The pages that say where the fragments lie came in one request too.
    assert_eq!(opened.fragments.0.lock().iter().map(Vec::len).sum::<usize>(), 1);
    assert!(pbns_of(&opened.volume, FILE).len() as u64 > 2 * PAGE_FRAGMENTS, "the fragments have several pages");
}

#[test]
fn a_small_request_is_one_read_of_one_or_two_blocks_while_its_page_is_in_memory() {
    let content = text(200, 1);
    let opened = Opened::of(&compressed(zstd(), &[(FILE, content.clone())]));
    opened.read(FILE, 7, 1).unwrap();
    opened.forget();
    for block in [90, 3, 55, 20] {
        assert!(opened.read(FILE, block, 1).unwrap() == content[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES]);
    }
    let calls = opened.calls();
    assert_eq!(calls.len(), 4);
    assert!(calls.iter().all(|call| call.len() == 1 && call[0] <= 2 * BLOCK_BYTES), "{calls:?}");
    assert!(opened.fragments.0.lock().is_empty(), "the page was read again");
}

#[test]
fn blocks_and_fragments_of_a_request_are_read_at_once() {
    let content = [text(60, 1), unique(40, 2), text(60, 3)].concat();
    let opened = Opened::of(&compressed(zstd(), &[(FILE, content.clone())]));
    let pbns = pbns_of(&opened.volume, FILE);
    assert!(is_fragment(pbns[0]) && !is_fragment(pbns[80]), "{pbns:?}");
    opened.forget();
    assert!(opened.read(FILE, 0, 160).unwrap() == content);
    let calls = opened.calls();
    assert!(calls.len() == 1 && calls[0].len() > 1, "{calls:?}");
}

#[test]
fn memory_keeps_shared_fragments_at_once_and_expanded() {
    let content = text(40, 1);
    let devices = compressed(zstd(), &[(FILE, content.clone()), (MapId(2), content.clone())]);
    let opened = Opened::of(&devices);
    assert_eq!(pbns_of(&opened.volume, FILE), pbns_of(&opened.volume, MapId(2)));
    assert!(opened.read(FILE, 0, 20).unwrap() == content[..20 * BLOCK_BYTES]);
    opened.forget();
    assert!(opened.read(MapId(2), 0, 20).unwrap() == content[..20 * BLOCK_BYTES]);
    assert!(opened.calls().is_empty(), "{:?}", opened.calls());
}

#[test]
fn small_files_that_were_compressed_together_come_together() {
    let files: Vec<_> = (1..=40).map(|n| (MapId(n), text(3, n))).collect();
    let opened = Opened::of(&compressed(zstd(), &files));
    opened.volume.base.read_cache.lend(1 << 20);
    for n in (0..40).map(|n| n * 17 % 40) {
        let (map, content) = &files[n];
        assert!(opened.read(*map, 0, 3).unwrap() == *content, "file {}", map.0);
    }
    assert!(opened.calls().len() <= 12, "{} calls for 120 blocks", opened.calls().len());
    let around = opened.volume.base.stats.counters.snapshot()["blocks_read_around"];
    assert!(around >= 90, "{around} blocks came with others");
}

#[test]
fn one_damaged_fragment_fails_a_large_read_and_no_other_block() {
    let content = text(250, 1);
    let devices = compressed(zstd(), &[(FILE, content.clone())]);
    let opened = Opened::of(&devices);
    let pbns = pbns_of(&opened.volume, FILE);
    let hit = place_of(&opened.volume, pbns[131]);
    devices.data.write_at(&[0xA5; 16], hit.at + 9).unwrap();
    assert!(matches!(opened.read(FILE, 0, 250), Err(Error::Corrupt { .. } | Error::Io { .. })));
    for (first, blocks) in [(0, 131), (132, 118)] {
        let expected = &content[first * BLOCK_BYTES..(first + blocks) * BLOCK_BYTES];
        assert!(opened.read(FILE, first, blocks).unwrap() == expected, "from block {first} on");
    }
}
