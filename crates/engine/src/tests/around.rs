//! Reads of small files bring in the blocks around them, and nothing wrong enters memory.

use crate::device::Device;
use crate::tests::fixture::{Devices, one_level, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId, Pbn};

const SMALL: usize = 3;
const FILES: u64 = 40;

/// Small files that were written one after the other, on a volume that was just opened.
fn small_files() -> (Devices, Volume) {
    let devices = Devices::new(Blocks(4_000), one_level());
    let volume = devices.open();
    (1..=FILES).for_each(|map| write(&volume, map, map));
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let volume = devices.open();
    volume.base.read_cache.lend(1 << 20);
    (devices, volume)
}

fn write(volume: &Volume, map: u64, seed: u64) {
    volume.write(MapId(map), 0, &unique(SMALL, seed), |_, _| ()).unwrap();
}

fn read(volume: &Volume, map: u64) -> Vec<u8> {
    volume.reader.read(MapId(map), 0, SMALL * BLOCK_BYTES).unwrap().to_vec()
}

fn counter(volume: &Volume, name: &str) -> u64 {
    volume.base.stats.counters.snapshot()[name]
}

fn bytes_read(volume: &Volume) -> u64 {
    counter(volume, "data_bytes_read")
}

fn pbns(volume: &Volume, map: u64) -> Vec<Pbn> {
    volume.worklist.stored_from(MapId(map), Lbn(0), SMALL as u64).unwrap()
}

#[test]
fn small_files_side_by_side_come_in_few_requests_whatever_the_order() {
    let (_, volume) = small_files();
    for map in (1..=FILES).map(|n| n * 17 % FILES + 1) {
        assert!(read(&volume, map) == unique(SMALL, map), "file {map}");
    }
    let read_bytes = bytes_read(&volume) / BLOCK_BYTES as u64;
    let stored = FILES * SMALL as u64;
    assert!((stored..=stored + 32).contains(&read_bytes), "{read_bytes} blocks were read, {stored} are stored");
    let around = counter(&volume, "blocks_read_around");
    assert!(around >= stored * 3 / 4, "{around} of {stored} blocks came with others");
}

#[test]
fn a_part_of_a_file_and_a_large_one_bring_nothing() {
    let (_, volume) = small_files();
    volume.reader.read(MapId(1), BLOCK_BYTES as u64, BLOCK_BYTES).unwrap();
    volume.reader.read(MapId(2), 0, BLOCK_BYTES).unwrap();
    volume.write(MapId(99), 0, &unique(20, 99), |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    volume.reader.read(MapId(99), 0, 20 * BLOCK_BYTES).unwrap();
    assert_eq!(counter(&volume, "blocks_read_around"), 0);
}

#[test]
fn a_small_file_in_pieces_brings_nothing() {
    let (devices, volume) = small_files();
    volume.hint_levels.fill_hints().unwrap();
    let pieces = [unique(SMALL, 5), unique(SMALL, 30)].concat();
    volume.write(MapId(99), 0, &pieces, |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    let places = volume.worklist.stored_from(MapId(99), Lbn(0), 2 * SMALL as u64).unwrap();
    assert_eq!(places, [pbns(&volume, 5), pbns(&volume, 30)].concat(), "all of it is shared");
    drop(volume);
    let volume = devices.open();
    assert!(*volume.reader.read(MapId(99), 0, pieces.len()).unwrap() == *pieces);
    assert_eq!(counter(&volume, "blocks_read_around"), 0);
}

#[test]
fn what_was_brought_is_not_served_once_its_place_holds_something_else() {
    let (_, volume) = small_files();
    read(&volume, 1);
    let places = pbns(&volume, 2);
    assert!(places.iter().all(|pbn| volume.base.read_cache.holds(*pbn)), "file 2 came with file 1");
    volume.range_changes.detach(MapId(2), |_| ()).unwrap();
    let map = volume.base.signals.next_detached(std::time::Duration::ZERO).unwrap();
    volume.reclaimer.reclaim(map).unwrap();
    volume.commits.checkpoint().unwrap();
    volume.groups.release_waiting();
    assert!(!places.iter().any(|pbn| volume.base.read_cache.holds(*pbn)), "its places are free");
    // The first free place is taken first.
    (1000..1000 + FILES).for_each(|map| write(&volume, map, map));
    volume.commits.checkpoint().unwrap();
    for map in (1..=FILES).filter(|map| *map != 2).chain(1000..1000 + FILES) {
        assert!(read(&volume, map) == unique(SMALL, map), "file {map}");
    }
}

#[test]
fn what_is_only_in_memory_free_or_damaged_does_not_enter() {
    let (devices, volume) = small_files();
    let [damaged, free, staged] = [2, 3, 500];
    let bad = pbns(&volume, damaged)[1];
    devices.data.write_at(&[0x5A; BLOCK_BYTES], bad.0 * BLOCK_BYTES as u64).unwrap();
    let freed = pbns(&volume, free);
    volume.range_changes.detach(MapId(free), |_| ()).unwrap();
    let map = volume.base.signals.next_detached(std::time::Duration::ZERO).unwrap();
    volume.reclaimer.reclaim(map).unwrap();
    volume.commits.commit().unwrap();
    write(&volume, staged, staged);
    read(&volume, 1);
    assert!(counter(&volume, "blocks_read_around") > 0);
    assert!(!volume.base.read_cache.holds(bad), "its content has not its tag");
    assert!(!freed.iter().any(|pbn| volume.base.read_cache.holds(*pbn)));
    assert!(!pbns(&volume, staged).iter().any(|pbn| volume.base.read_cache.holds(*pbn)));
    assert!(read(&volume, staged) == unique(SMALL, staged));
    let others = (4..=FILES).all(|map| read(&volume, map) == unique(SMALL, map));
    assert!(others, "a bad block costs nobody else anything");
}

#[test]
fn where_nothing_around_is_there_nothing_is_brought() {
    let devices = Devices::new(Blocks(4_000), one_level());
    let volume = devices.open();
    write(&volume, 1, 1);
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let volume = devices.open();
    assert!(read(&volume, 1) == unique(SMALL, 1));
    assert_eq!((counter(&volume, "blocks_read_around"), bytes_read(&volume)), (0, (SMALL * BLOCK_BYTES) as u64));
}
