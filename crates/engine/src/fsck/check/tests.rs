//! Each invariant broken by itself: the audit names it, the repair fixes it or leaves it, and everything else stays as
//! it is. Then many at once, by seed, and a power cut in the middle of a repair.
//!
//! Not covered here: names (`oncefs_fs`), real devices and the command (`tests/system/tests/fsck.rs`).

use crate::device::Device;
use crate::format::extent_leaf::{Extent, Target};
use crate::format::keys::{self, LeafKey};
use crate::format::page::{PAGE_BYTES, page_of};
use crate::fsck::check::fault::{Fault, Remedy, Sum};
use crate::fsck::fix::Fixed;
use crate::fsck::parts::{checker, fixer};
use crate::kv::Kv;
use crate::tests::fixture::{Devices, Random, one_level};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId, Pbn};

const DATA: Blocks = Blocks(9_000);
const FILES: u64 = 5;
const FILE_BLOCKS: u64 = 300;

/// Files 1 to `FILES` with content of their own, each followed by the first 40 blocks of file 1, checkpointed.
fn volume() -> (Devices, Vec<Vec<u8>>) {
    let devices = Devices::new(DATA, one_level());
    let volume = devices.open();
    let mut files = Vec::new();
    for n in 1..=FILES {
        let mut filler = Random::new(n);
        let mut content: Vec<u8> =
            (0..FILE_BLOCKS * BLOCK_BYTES as u64 / 8).flat_map(|_| filler.word().to_le_bytes()).collect();
        let first: &Vec<u8> = files.first().unwrap_or(&content);
        let shared = first[..40 * BLOCK_BYTES].to_vec();
        content.extend(shared);
        volume.write(MapId(n), 0, &content, |_, _| ()).unwrap();
        files.push(content);
    }
    volume.range_changes.reserve(MapId(1), 400 * BLOCK_BYTES as u64, 7 * BLOCK_BYTES as u64, |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    (devices, files)
}

fn repair(volume: &Volume, limit: Remedy) -> Fixed {
    fixer(volume).repair(limit, &mut |_, _, _| ()).unwrap()
}

fn assert_clean(volume: &Volume) {
    let report = checker(volume).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// Whether a fault of one audit is among those of another.
fn found(volume: &Volume, read_data: bool, is_it: impl Fn(&Fault) -> bool) -> bool {
    checker(volume).check(read_data, &mut |_, _| ()).unwrap().faults.iter().any(is_it)
}

fn assert_content(volume: &Volume, files: &[Vec<u8>], except: &[u64]) {
    for (n, content) in (1..).zip(files).filter(|(n, _)| !except.contains(n)) {
        assert!(volume.reader.read(MapId(n), 0, content.len()).unwrap().iter().eq(content), "file {n} has other bytes");
    }
}

/// The pbn of a block of a file.
fn pbn_of(volume: &Volume, map: u64, lbn: u64) -> Pbn {
    let leaf = volume.metadata.leaf(LeafKey { map: MapId(map), leaf: lbn / 256 }).unwrap();
    let extent = leaf.slice((lbn % 256) as u16, (lbn % 256) as u16 + 1).next().unwrap();
    let Target::Data(pbn) = extent.target else { panic!("block {lbn} of map {map} is {extent:?}") };
    pbn
}

/// Changes an entry directly, as a fault of oncefs would.
fn set_count(volume: &Volume, pbn: Pbn, count: u32) {
    let mut state = volume.metadata.lock_with_pages(&volume.base.state, || vec![page_of(pbn)]).unwrap();
    state.table.edit(page_of(pbn)).set_count(pbn, count);
}

fn flip(device: &dyn Device, at: u64) {
    let mut bytes = vec![0; PAGE_BYTES];
    let page = at / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    device.read_at(&mut bytes, page).unwrap();
    bytes[(at - page) as usize] ^= 0x10;
    device.write_at(&bytes, page).unwrap();
    device.flush().unwrap();
}

fn set_extent(volume: &Volume, map: u64, extent: Extent) {
    let key = LeafKey { map: MapId(map), leaf: 0 };
    let mut leaf = (*volume.metadata.leaf(key).unwrap()).clone();
    leaf.set(extent);
    volume.base.state.lock().leaves.set(key, leaf.into());
}

/// A repair fixes it, a second audit is clean, also after reopening, and all files but some are as they were.
fn assert_fixed(devices: &Devices, volume: Volume, files: &[Vec<u8>], except: &[u64]) {
    let repaired = repair(&volume, Remedy::Asked);
    assert!(repaired.fixed_count > 0 && repaired.left.is_clean(), "{repaired:#?}");
    assert_clean(&volume);
    drop(volume);
    let volume = devices.open();
    assert_clean(&volume);
    assert_content(&volume, files, except);
}

#[test]
fn a_part_of_a_map_outside_the_data_area_becomes_a_hole() {
    for (pbn, blocks, lost) in [(DATA.0 - 1, 3, 2), (0, 2, 1), (u64::MAX - 9, 4, 4)] {
        let (devices, files) = volume();
        let volume = devices.open();
        set_extent(&volume, 2, Extent { first: 9, blocks, target: Target::Data(Pbn(pbn)) });
        assert!(found(&volume, false, |f| matches!(f, Fault::Outside { extent, .. } if extent.blocks == lost)));
        let left = repair(&volume, Remedy::Safe).left;
        assert!(left.faults.iter().any(|f| matches!(f, Fault::Outside { .. })), "not without asking");
        assert_fixed(&devices, volume, &files, &[2]);
        let read = devices.open().reader.read(MapId(2), 0, 9 * BLOCK_BYTES).unwrap().to_vec();
        assert_eq!(read, files[1][..9 * BLOCK_BYTES], "blocks before it stay");
    }
}

#[test]
fn a_count_becomes_the_number_of_references() {
    for (lbn, count) in [(0, 4), (0, 7), (0, u32::MAX), (100, 2)] {
        let (devices, files) = volume();
        let volume = devices.open();
        let pbn = pbn_of(&volume, 1, lbn);
        set_count(&volume, pbn, count);
        assert!(found(
            &volume,
            false,
            |f| matches!(f, Fault::Count { pbn: at, stored, .. } if (*at, *stored) == (pbn, count))
        ));
        assert!(repair(&volume, Remedy::Safe).left.is_clean(), "safe without asking");
        set_count(&volume, pbn, count);
        assert_fixed(&devices, volume, &files, &[]);
    }
}

#[test]
fn a_block_that_nobody_refers_to_is_free_again() {
    let (devices, files) = volume();
    let volume = devices.open();
    set_count(&volume, Pbn(8_000), 1);
    let used = volume.free_blocks.totals().used;
    assert_fixed(&devices, volume, &files, &[]);
    let volume = devices.open();
    assert_eq!(volume.free_blocks.totals().used, used);
    let unique: Vec<u8> = (0..(DATA.0 - used.0 - 270) * 512).flat_map(|n| (n * 77 + 5).to_le_bytes()).collect();
    volume.write(MapId(9), 0, &unique, |_, _| ()).unwrap();
    assert_clean(&volume);
}

#[test]
fn a_referenced_block_without_an_entry_gets_one_from_its_content() {
    let (devices, files) = volume();
    let volume = devices.open();
    set_count(&volume, pbn_of(&volume, 1, 0), 0);
    set_count(&volume, pbn_of(&volume, 3, 70), 0);
    assert_fixed(&devices, volume, &files, &[]);
}

#[test]
fn sums_are_set_from_what_is_there() {
    for sum in [Sum::Used, Sum::Mapped, Sum::Reserved] {
        let (devices, files) = volume();
        let volume = devices.open();
        fixer(&volume).set_sum(sum, Blocks(3));
        assert!(found(&volume, false, |f| matches!(f, Fault::Sum { sum: s, stored: 3, .. } if *s == sum)));
        assert_fixed(&devices, volume, &files, &[]);
    }
}

#[test]
fn more_promises_than_space_are_named() {
    let (devices, _) = volume();
    let volume = devices.open();
    for n in 0..40 {
        let key = LeafKey { map: MapId(8), leaf: n };
        let mut leaf = (*volume.metadata.leaf(key).unwrap()).clone();
        leaf.set(Extent { first: 0, blocks: 256, target: Target::Reserved });
        volume.base.state.lock().leaves.set(key, leaf.into());
    }
    assert!(found(&volume, false, |f| matches!(f, Fault::Promised { .. })));
}

#[test]
fn a_live_block_that_the_allocator_calls_free_is_named() {
    let (devices, _) = volume();
    let volume = devices.open();
    let pbn = pbn_of(&volume, 1, 5);
    let mut load = |region| volume.free_blocks.load_region(region);
    volume.base.space.allocate(1, &mut load).unwrap();
    volume.base.space.give_back(&[crate::space::allocator::Run { pbn, blocks: 1 }]);
    assert!(found(&volume, false, |f| *f == Fault::Free { pbn }));
}

#[test]
fn content_that_rots_is_named_and_kept() {
    let (devices, files) = volume();
    let pbn = pbn_of(&devices.open(), 1, 3);
    flip(&*devices.data, pbn.0 * BLOCK_BYTES as u64 + 77);
    let volume = devices.open();
    assert!(found(&volume, true, |f| matches!(f, Fault::Rot { pbn: at, .. } if *at == pbn)));
    assert!(!found(&volume, false, |_| true), "not without reading it");
    let repaired = repair(&volume, Remedy::Asked);
    assert_eq!(repaired.fixed_count, 0);
    assert!(found(&volume, true, |f| matches!(f, Fault::Rot { .. })), "it is still named");
    let places = fixer(&volume).places_of(&[pbn], 99).unwrap();
    let expected: Vec<_> = (1..=FILES).map(|n| (pbn, MapId(n), Lbn(303))).chain([(pbn, MapId(1), Lbn(3))]).collect();
    assert!(places.len() == 6 && expected.iter().all(|place| places.contains(place)), "{places:?}");
    assert_content(&volume, &files, &[1, 2, 3, 4, 5]);
}

#[test]
fn damaged_sectors_of_the_table_are_rebuilt_from_references_and_content() {
    let (devices, files) = volume();
    let pbn = pbn_of(&devices.open(), 1, 0);
    for n in 0..4 {
        flip(&*devices.table, page_of(pbn) * PAGE_BYTES as u64 + n * 1_000 + 99);
    }
    let volume = devices.open();
    assert!(found(&volume, false, |f| matches!(f, Fault::Page { sectors, .. } if sectors.count_ones() == 4)));
    assert_fixed(&devices, volume, &files, &[]);
}

#[test]
fn a_damaged_sector_with_changes_in_the_log_is_rebuilt_too() {
    let (devices, mut files) = volume();
    let volume = devices.open();
    let pbn = pbn_of(&volume, 1, 0);
    volume.write(MapId(2), 0, &files[0][..BLOCK_BYTES], |_, _| ()).unwrap();
    volume.commits.commit().unwrap();
    drop(volume);
    let block = files[0][..BLOCK_BYTES].to_vec();
    files[1][..BLOCK_BYTES].copy_from_slice(&block);
    flip(&*devices.table, page_of(pbn) * PAGE_BYTES as u64 + 99);
    let volume = devices.open();
    assert_fixed(&devices, volume, &files, &[]);
}

#[test]
fn a_page_newer_than_the_log_is_named_and_left() {
    let (devices, _) = volume();
    let volume = devices.open();
    let mut page = crate::format::page::Page::empty();
    page.set_count(Pbn(0), 0);
    devices.table.write_at(&page.sealed(60, 1 << 40), 60 * PAGE_BYTES as u64).unwrap();
    assert!(found(&volume, false, |f| matches!(f, Fault::PageAge { number: 60, .. })));
    assert!(!repair(&volume, Remedy::Asked).left.is_clean());
}

#[test]
fn a_damaged_part_of_a_map_is_kept_and_with_it_the_blocks_that_it_may_hold() {
    let (devices, files) = volume();
    let key = keys::leaf(LeafKey { map: MapId(3), leaf: 0 });
    let mut value = devices.kv.get(&key).unwrap().unwrap();
    value[1] ^= 1;
    devices.kv.write(vec![(key.clone(), Some(value.clone()))]).unwrap();
    devices.kv.flush().unwrap();
    let volume = devices.open();
    assert!(found(&volume, false, |f| matches!(f, Fault::Leaf { key } if key.map == MapId(3))));
    let used = volume.free_blocks.totals().used;
    let repaired = repair(&volume, Remedy::Asked);
    assert_eq!((repaired.fixed_count, volume.free_blocks.totals().used), (0, used), "{:#?}", repaired.left.problems);
    assert_eq!(devices.kv.get(&key).unwrap().unwrap(), value);
    assert_content(&volume, &files, &[3]);
    assert!(volume.reader.read(MapId(3), 0, BLOCK_BYTES).is_err(), "and never reads as something else");
}

#[test]
fn a_map_beyond_the_next_one_raises_that() {
    let (devices, files) = volume();
    let volume = devices.open();
    volume.write(MapId(5 << 20), 0, &files[0], |_, _| ()).unwrap();
    assert!(found(&volume, false, |f| matches!(f, Fault::MapNumber { .. })));
    assert_fixed(&devices, volume, &files, &[]);
}

#[test]
fn records_with_unknown_keys_go() {
    for key in [vec![2, 7], vec![9, 9], vec![4]] {
        let (devices, files) = volume();
        devices.kv.write(vec![(key.clone(), Some(vec![1]))]).unwrap();
        devices.kv.flush().unwrap();
        let volume = devices.open();
        assert!(found(&volume, false, |f| matches!(f, Fault::Key { key: k } if *k == key)));
        assert_fixed(&devices, volume, &files, &[]);
    }
}

/// Several faults at places chosen by the seed. Returns the files whose content is affected.
fn damage(devices: &Devices, random: &mut Random) -> Vec<u64> {
    let volume = devices.open();
    let mut touched = Vec::new();
    for _ in 0..1 + random.below(12) {
        let (map, lbn) = (1 + random.below(FILES), random.below(250));
        match random.below(6) {
            0 => set_count(&volume, Pbn(1 + random.below(DATA.0 - 1)), random.below(4) as u32),
            1 => {
                let target = Target::Data(Pbn(DATA.0 - 2 + random.below(99)));
                set_extent(&volume, map, Extent { first: lbn as u16, blocks: 5, target });
                touched.push(map);
            }
            2 => fixer(&volume).set_sum(Sum::Used, Blocks(random.below(DATA.0))),
            3 => {
                volume.base.state.lock().records.put(vec![12, random.below(9) as u8], Some(vec![0]));
            }
            4 => set_count(&volume, pbn_of(&volume, 1 + random.below(FILES), 299), random.below(9) as u32),
            _ => {
                set_extent(&volume, 1 << 21, Extent { first: lbn as u16, blocks: 9, target: Target::Data(Pbn(77)) });
            }
        }
    }
    volume.base.state.lock().group.touch(std::time::Instant::now());
    volume.commits.checkpoint().unwrap();
    drop(volume);
    for _ in 0..random.below(4) {
        flip(&*devices.table, random.below(18) * PAGE_BYTES as u64 + random.below(PAGE_BYTES as u64));
    }
    touched
}

#[test]
fn many_faults_at_once_are_mended_also_when_the_power_fails_in_between() {
    let seeds = std::env::var("ONCEFS_FSCK_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40);
    for seed in 0..seeds {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let (mut devices, files) = volume();
        let touched = damage(&devices, &mut random);
        if seed % 2 == 1 {
            let volume = devices.open();
            devices.log.fail_flush_after(random.below(6));
            let cut = fixer(&volume).repair(Remedy::Asked, &mut |_, _, _| ());
            println!("the repair that was cut: {:?}", cut.map(|repaired| repaired.fixed_count));
            drop(volume);
            devices = devices.after_power_cut(&mut random);
        }
        let volume = devices.open();
        let repaired = repair(&volume, Remedy::Asked);
        assert!(repaired.left.is_clean(), "{:#?}", repaired.left.problems);
        assert_clean(&volume);
        drop(volume);
        let volume = devices.open();
        assert_clean(&volume);
        assert_content(&volume, &files, &touched);
    }
}

#[test]
fn a_clean_volume_is_not_changed() {
    let (devices, files) = volume();
    let volume = devices.open();
    let repaired = repair(&volume, Remedy::Asked);
    assert_eq!((repaired.fixed_count, repaired.left.problems_count), (0, 0));
    assert_eq!(volume.base.state.lock().durable_sequence, volume.base.journal.opened_at());
    assert_content(&volume, &files, &[]);
}

#[test]
#[ignore = "a measurement, for docs/results/older/fsck.md"]
fn how_long_a_small_volume_takes() {
    for blocks in [4_096, 40_960] {
        let devices = Devices::new(Blocks(blocks), one_level());
        let volume = devices.open();
        let content: Vec<u8> = (0..40 * BLOCK_BYTES as u64 / 8).flat_map(|n| (n * 77 + 5).to_le_bytes()).collect();
        volume.write(MapId(1), 0, &content, |_, _| ()).unwrap();
        volume.commits.checkpoint().unwrap();
        let began = std::time::Instant::now();
        (0..1_000).for_each(|_| assert!(checker(&volume).check(true, &mut |_, _| ()).unwrap().is_clean()));
        println!("{blocks} blocks, 40 of them live: {:?} for a check", began.elapsed() / 1_000);
    }
}

#[test]
#[ignore = "a measurement, for docs/results/older/fsck.md"]
fn how_long_many_references_take() {
    let millions: u64 = std::env::var("ONCEFS_FSCK_MILLIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let (mut random, began) = (Random::new(1), std::time::Instant::now());
    let mut references = crate::fsck::check::reference_counts::References::default();
    for _ in 0..millions * 1_000_000 {
        let run = crate::space::allocator::Run { pbn: Pbn(random.below(2_684_354_560)), blocks: 1 };
        references.add(run).unwrap();
    }
    let collected = began.elapsed();
    let mut counts = references.counts().unwrap();
    let mut window = vec![0; 32_768];
    let total: u64 = (0..81_920)
        .map(|n| {
            counts.fill(n * 32_768, &mut window).unwrap();
            window.iter().map(|count| u64::from(*count)).sum::<u64>()
        })
        .sum();
    assert_eq!(total, millions * 1_000_000);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    println!("{millions} million references to 10 TiB: {collected:?} to collect, {:?} in all, {peak}", began.elapsed());
}
