//! Reads of many runs: their requests, and the cost of one bad place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::device::buffer::AlignedBuf;
use crate::device::{Device, Io, MemoryDevice};
use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::keys::LeafKey;
use crate::format::page::{PAGE_BYTES, Page, SECTOR_BYTES, page_of};
use crate::read::parts::Part;
use crate::settings::values::{FingerprintMode, Settings, Verify};
use crate::tests::fixture::{Devices, Random, one_level, unique};
use crate::tests::unreadable::Unreadable;
use crate::tests::watched::{Watch, Watched};
use crate::volume::assembly::Volume;
use crate::volume::backend::Backend;
use crate::{BLOCK_BYTES, Blocks, MapId, Pbn, Result, ScrubCommand};

const BLOCK: u64 = BLOCK_BYTES as u64;
const DATA: Blocks = Blocks(4_000);
const SOURCE: MapId = MapId(1);
const FILE: MapId = MapId(2);
const OTHER: MapId = MapId(3);

/// First block and blocks of each request of a call.
type Requests = Vec<(u64, u64)>;

/// Records the requests that are made in parallel.
#[derive(Default)]
struct Noted {
    at_once: Mutex<Vec<Requests>>,
    /// How often other work was done in the same call.
    beside: AtomicU64,
}

fn requests(reads: &[Io<'_>]) -> Requests {
    reads.iter().map(|read| (read.at() / BLOCK, read.len() as u64 / BLOCK)).collect()
}

impl Watch for Noted {
    fn asked(&self, reads: &[Io<'_>]) {
        self.at_once.lock().push(requests(reads));
    }

    fn asked_beside(&self) {
        self.beside.fetch_add(1, Relaxed);
    }
}

/// A volume with a source of 256 blocks, stored in one piece, and a file of some of them in this order.
fn volume(order: &[u64], settings: Settings) -> (Devices, Vec<u8>) {
    let devices = Devices::new(DATA, Settings { fingerprints: FingerprintMode::Eager, ..settings });
    let volume = devices.open();
    let source = unique(256, 1);
    volume.write(SOURCE, 0, &source, |_, _| ()).unwrap();
    let at = |block: u64| block as usize * BLOCK_BYTES;
    let content: Vec<u8> = order.iter().flat_map(|&block| &source[at(block)..at(block + 1)]).copied().collect();
    volume.write(FILE, 0, &content, |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    assert_eq!(volume.free_blocks.totals().used, Blocks(1 + 256), "all of the file is shared");
    (devices, content)
}

fn noting(inner: &Arc<MemoryDevice>) -> Arc<Watched<Noted>> {
    Watched::new(inner, Noted::default())
}

fn noted(devices: &Devices) -> (Arc<Watched<Noted>>, Volume) {
    let device = noting(&devices.data);
    let volume = devices.open_with(device.clone());
    device.at_once.lock().clear();
    (device, volume)
}

fn read(volume: &Volume, content: &[u8]) -> Result<bool> {
    volume.reader.read(FILE, 0, content.len()).map(|bytes| *bytes == *content)
}

fn pbn(volume: &Volume, map: MapId, lbn: u64) -> Pbn {
    let at = (lbn % LEAF_BLOCKS) as u16;
    match volume
        .metadata
        .leaf(LeafKey { map, leaf: lbn / LEAF_BLOCKS })
        .unwrap()
        .slice(at, at + 1)
        .next()
        .unwrap()
        .target
    {
        Target::Data(pbn) => pbn,
        other => panic!("block {lbn} is {other:?}"),
    }
}

/// Every tenth block of the source, in random order.
fn far_apart() -> Vec<u64> {
    let mut order: Vec<u64> = (0..25).map(|n| n * 10).collect();
    let mut random = Random::new(3);
    order.sort_by_cached_key(|_| random.word());
    order
}

#[test]
fn all_parts_of_a_request_are_asked_for_at_once() {
    let (devices, content) = volume(&far_apart(), one_level());
    let (device, volume) = noted(&devices);
    assert!(read(&volume, &content).unwrap());
    let first = pbn(&volume, SOURCE, 0).0;
    let expected: Vec<(u64, u64)> = (0..25).map(|n| (first + n * 10, 1)).collect();
    assert_eq!(*device.at_once.lock(), [expected]);
}

#[test]
fn neighbours_and_small_gaps_are_one_request_even_for_two_parts() {
    let requests_of = |order: &[u64]| {
        let (devices, content) = volume(order, one_level());
        let (device, volume) = noted(&devices);
        assert!(read(&volume, &content).unwrap());
        let first = pbn(&volume, SOURCE, 0).0;
        let at_once = device.at_once.lock().clone();
        (at_once, first)
    };
    let (at_once, first) = requests_of(&[9, 0, 100, 1, 101]);
    assert_eq!(at_once, [[(first, 10), (first + 100, 2)]]);
    let (at_once, first) = requests_of(&[5, 3]);
    assert_eq!(at_once, [[(first + 3, 3)]]);
}

#[test]
fn a_block_that_a_request_needs_several_times_is_read_once() {
    let (devices, content) =
        volume(&[50, 7, 50, 50, 200, 7, 201, 200], Settings { verify: Verify::Off, ..one_level() });
    let (device, volume) = noted(&devices);
    assert!(read(&volume, &content).unwrap());
    let first = pbn(&volume, SOURCE, 0).0;
    assert_eq!(*device.at_once.lock(), [[(first + 7, 1), (first + 50, 1), (first + 200, 2)]]);
}

#[test]
fn only_what_memory_lacks_is_asked_for() {
    let (devices, content) = volume(&far_apart(), one_level());
    let (device, volume) = noted(&devices);
    // Shared blocks enter the read cache at once, and a small write stays in memory until the next commit.
    assert!(volume.reader.read(SOURCE, 0, 101 * BLOCK_BYTES).is_ok());
    let mut content = content;
    let new = unique(1, 8);
    volume.write(FILE, 0, &new, |_, _| ()).unwrap();
    content[..BLOCK_BYTES].copy_from_slice(&new);
    device.at_once.lock().clear();
    assert!(read(&volume, &content).unwrap());
    let first = pbn(&volume, SOURCE, 0).0;
    let lacking = (11..25).map(|n| (first + n * 10, 1));
    let replaced = far_apart()[0];
    let expected: Vec<(u64, u64)> = lacking.filter(|(pbn, _)| *pbn != first + replaced).collect();
    assert_eq!(*device.at_once.lock(), [expected]);
}

#[test]
fn pages_of_the_block_table_are_asked_for_at_once() {
    let devices = Devices::new(DATA, one_level());
    let table = noting(&devices.table);
    let volume = devices.open_medium(Backend { table: table.clone(), ..devices.backend() });
    table.at_once.lock().clear();
    volume.metadata.load_pages(&[3, 4, 9, 20]).unwrap();
    assert_eq!(*table.at_once.lock(), [[(3, 2), (9, 1), (20, 1)]]);
}

/// A file of every tenth block, so that its blocks have their tags in two pages of the table.
fn volume_of_two_pages() -> (Devices, Vec<u8>) {
    volume(&far_apart(), one_level())
}

#[test]
fn pages_that_verify_a_read_are_asked_for_with_its_blocks_and_once() {
    let (devices, content) = volume_of_two_pages();
    let (data, table) = (noting(&devices.data), noting(&devices.table));
    let volume = devices.open_medium(Backend { data: data.clone(), table: table.clone(), ..devices.backend() });
    let pages = far_apart().into_iter().map(|block| page_of(pbn(&volume, SOURCE, block)));
    assert_eq!(pages.max(), Some(1), "pages 0 and 1 are needed, and come with their group");
    data.at_once.lock().clear();
    table.at_once.lock().clear();
    assert!(read(&volume, &content).unwrap());
    assert_eq!((data.at_once.lock()[0].len(), data.beside.load(Relaxed)), (25, 1));
    assert_eq!(*table.at_once.lock(), [[(0, 4)]], "they are in memory then");
    volume.reader.read(SOURCE, 0, BLOCK_BYTES).unwrap();
    assert_eq!((data.beside.load(Relaxed), table.at_once.lock().len()), (1, 1), "as long as they stay there");
}

#[test]
fn where_nothing_is_verified_no_page_is_asked_for() {
    let (devices, content) = volume(&far_apart(), Settings { verify: Verify::Off, ..one_level() });
    let (device, volume) = noted(&devices);
    assert!(read(&volume, &content).unwrap());
    assert_eq!((device.at_once.lock().len(), device.beside.load(Relaxed)), (1, 0));
}

#[test]
fn the_scrub_asks_for_all_runs_of_its_window_at_once() {
    let (devices, _) = volume(&far_apart(), one_level());
    let volume = devices.open();
    volume.range_changes.truncate(SOURCE, 0, |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    let (device, volume) = noted(&devices);
    volume.scrubber.command_scrub(ScrubCommand::Start { rate: None }).unwrap();
    while volume.scrubber.scrub_status().state != "finished" {
        volume.scrubber.scrub_some(256).unwrap();
        volume.commits.commit().unwrap();
    }
    let first = (0..25).map(|lbn| pbn(&volume, FILE, lbn).0).min().unwrap();
    let expected: Requests = (0..25).map(|n| (first + n * 10, 1)).collect();
    assert!(device.at_once.lock().contains(&expected), "{:?}", device.at_once.lock());
}

/// Flips a bit of a stored block.
fn rot(devices: &Devices, pbn: Pbn) {
    let mut bytes = vec![0; BLOCK_BYTES];
    devices.data.read_at(&mut bytes, pbn.0 * BLOCK).unwrap();
    bytes[100] ^= 1;
    devices.data.write_at(&bytes, pbn.0 * BLOCK).unwrap();
}

#[test]
fn a_page_that_cannot_be_read_costs_its_own_blocks_their_check_and_nobody_else_anything() {
    let (devices, content) = volume_of_two_pages();
    let table = Unreadable::of(&devices.table);
    let volume = devices.open_medium(Backend { table: table.clone(), ..devices.backend() });
    let bad_page = page_of(pbn(&volume, FILE, 0));
    table.set(bad_page * BLOCK..(bad_page + 1) * BLOCK);
    assert!(read(&volume, &content).unwrap(), "a page's damage is not that of its blocks");
    rot(&devices, pbn(&volume, FILE, 0));
    assert!(!read(&volume, &content).unwrap(), "nothing is known of this block");
    let others = (0..25).find(|lbn| page_of(pbn(&volume, FILE, *lbn)) != bad_page).unwrap();
    rot(&devices, pbn(&volume, FILE, others));
    let volume = devices.open_medium(Backend { table, ..devices.backend() });
    assert!(volume.reader.read(FILE, others * BLOCK, BLOCK_BYTES).is_err(), "the tag of this one is known");
}

#[test]
fn a_damaged_sector_of_a_page_read_beside_data_is_met_as_by_any_reader() {
    let (devices, content) = volume_of_two_pages();
    let volume = devices.open();
    let (block, page) = (pbn(&volume, FILE, 0), page_of(pbn(&volume, FILE, 0)));
    let mut bytes = vec![0; PAGE_BYTES];
    devices.table.read_at(&mut bytes, page * BLOCK).unwrap();
    bytes[Page::sector_of(block) * SECTOR_BYTES + 100] ^= 1;
    devices.table.write_at(&bytes, page * BLOCK).unwrap();
    let volume = devices.open();
    assert!(read(&volume, &content).unwrap());
    assert_eq!(volume.scrubber.scrub_status().unknown.blocks, 16, "the blocks of one sector");
}

fn unreadable(devices: &Devices) -> (Arc<Watched<Unreadable>>, Volume) {
    let device = Unreadable::of(&devices.data);
    let volume = devices.open_with(device.clone());
    (device, volume)
}

fn cannot_read(device: &Unreadable, pbn: Pbn) {
    device.set(pbn.0 * BLOCK..(pbn.0 + 1) * BLOCK);
}

#[test]
fn a_bad_place_in_a_gap_costs_nobody_anything() {
    let (devices, content) = volume(&[3, 9, 0, 100], one_level());
    let (device, volume) = unreadable(&devices);
    cannot_read(&device, pbn(&volume, SOURCE, 5));
    assert!(read(&volume, &content).unwrap());
    volume.repairs.repair_noticed().unwrap();
    assert_eq!(volume.report().counters["blocks_bad"], 0);
}

#[test]
fn a_bad_block_is_served_from_its_second_copy_and_all_others_from_their_own() {
    let settings = Settings { replicate_refs_above: 1, ..one_level() };
    for order in [far_apart(), vec![3, 9, 0, 100], (0..200).rev().collect(), vec![4, 100, 4]] {
        let (devices, content) = volume(&order, settings.clone());
        let (device, volume) = unreadable(&devices);
        volume.scrubber.command_scrub(ScrubCommand::Start { rate: None }).unwrap();
        while volume.scrubber.scrub_status().state != "finished" {
            volume.scrubber.scrub_some(256).unwrap();
            volume.commits.commit().unwrap();
        }
        for block in &order {
            cannot_read(&device, pbn(&volume, SOURCE, *block));
            assert!(read(&volume, &content).unwrap(), "block {block} of {order:?}");
        }
        assert_eq!(volume.scrubber.scrub_status().blocks_lost, 0);
    }
}

#[test]
fn a_bad_block_without_a_second_copy_fails_its_own_requests_only() {
    let order = far_apart();
    let (devices, content) = volume(&order, one_level());
    let (device, volume) = unreadable(&devices);
    cannot_read(&device, pbn(&volume, FILE, 7));
    assert!(read(&volume, &content).is_err());
    let at = 8 * BLOCK_BYTES;
    assert!(*volume.reader.read(FILE, at as u64, content.len() - at).unwrap() == content[at..]);
    assert!(*volume.reader.read(FILE, 0, at - BLOCK_BYTES).unwrap() == content[..at - BLOCK_BYTES]);
    volume.write(OTHER, 0, &unique(1, 9), |_, _| ()).unwrap();
}

#[test]
fn the_read_cache_is_lent_what_other_caches_do_not_use_and_gives_it_back() {
    let volume = Devices::new(DATA, one_level()).open();
    let bytes_max = || volume.report().caches["read"].bytes_max;
    let own = bytes_max();
    volume.lend_memory();
    let lent = bytes_max();
    assert!(lent > own + own / 2, "{lent} bytes instead of {own}");
    // Hints and maps use their share.
    for map in 0..40 {
        volume.write(MapId(10 + map), (map * BLOCK) << 20, &unique(64, 100 + map), |_, _| ()).unwrap();
    }
    volume.lend_memory();
    assert!(bytes_max() < lent, "{} bytes are lent as before", bytes_max());
}

#[test]
fn of_one_request_the_shared_blocks_enter_the_read_cache_and_others_when_they_are_read_again() {
    for verify in [Verify::Read, Verify::Off] {
        let shared = [0, 3, 4, 9, 29, 101];
        let (devices, _) = volume(&shared, Settings { verify, ..one_level() });
        let volume = devices.open();
        let first = pbn(&volume, SOURCE, 0);
        // Without `verify`, no read waits for the table to know which blocks are shared.
        volume.metadata.entries_at(&[first, first.plus(100)]).unwrap();
        let _pin = volume.base.pins.pin();
        let (mut near, mut far) = (AlignedBuf::new(30 * BLOCK_BYTES), AlignedBuf::new(4 * BLOCK_BYTES));
        let mut read = || {
            let parts = vec![Part { pbn: first.plus(100), bytes: &mut far }, Part { pbn: first, bytes: &mut near }];
            volume.block_reader.read_parts(OTHER, parts).unwrap();
            (0..30)
                .chain(100..104)
                .filter(|block| volume.base.read_cache.holds(first.plus(*block)))
                .collect::<Vec<u64>>()
        };
        assert_eq!(read(), shared, "{verify:?}");
        assert_eq!(read().len(), 34, "{verify:?}");
    }
}

/// A volume with a source of 256 blocks without fingerprints, and copies of 25 of its blocks that lie far apart.
fn uncompared() -> (Devices, Vec<u8>) {
    let settings = Settings { fingerprints: FingerprintMode::Lazy, ..one_level() };
    let devices = Devices::new(DATA, settings);
    let volume = devices.open();
    let source = unique(256, 1);
    volume.write(SOURCE, 0, &source, |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    let at = |block: u64| block as usize * BLOCK_BYTES;
    let copies = far_apart().iter().flat_map(|&block| &source[at(block)..at(block + 1)]).copied().collect();
    (devices, copies)
}

#[test]
fn what_a_write_has_to_compare_is_read_at_once() {
    let (devices, copies) = uncompared();
    let (device, volume) = noted(&devices);
    volume.hint_levels.scan_table().unwrap();
    device.at_once.lock().clear();
    volume.write(FILE, 0, &copies, |_, _| ()).unwrap();
    let first = pbn(&volume, SOURCE, 0).0;
    let expected: Vec<(u64, u64)> = (0..25).map(|n| (first + n * 10, 1)).collect();
    assert_eq!(*device.at_once.lock(), [expected]);
    assert_eq!(volume.free_blocks.totals().used, Blocks(1 + 256), "all of them are shared");
}

#[test]
fn a_target_that_cannot_be_read_costs_no_other_block_its_share() {
    let (devices, copies) = uncompared();
    let (device, volume) = unreadable(&devices);
    volume.hint_levels.scan_table().unwrap();
    cannot_read(&device, pbn(&volume, SOURCE, 70));
    volume.write(FILE, 0, &copies, |_, _| ()).unwrap();
    assert_eq!(volume.free_blocks.totals().used, Blocks(1 + 256 + 1), "all others are shared");
    let at = far_apart().iter().position(|block| *block == 70).unwrap() as u64;
    assert_ne!(pbn(&volume, FILE, at), pbn(&volume, SOURCE, 70));
    volume.commits.commit().unwrap();
    assert!(read(&volume, &copies).unwrap());
}
