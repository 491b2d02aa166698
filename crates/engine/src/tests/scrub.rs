//! The promises of the scrub, as plain calls on a volume in memory: damage is found and named, is never shared or read
//! as data, is repaired from every good copy that turns up, and survives power cuts in every step.

mod races;
mod sources;

use std::ops::Range;

use crate::device::Device;
use crate::format::damage_records::ScrubState;
use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::keys::LeafKey;
use crate::format::page::Entry;
use crate::fsck::parts::checker;
use crate::settings::values::{FingerprintMode, Inline, Settings, Verify};
use crate::tests::fixture::{Devices, Random, one_level, unique};
use crate::tests::unreadable::Unreadable;
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, Error, Lbn, MapId, Pbn, ScrubCommand};

const DATA: Blocks = Blocks(20_000);
const BLOCK: u64 = BLOCK_BYTES as u64;
/// Steps that suffice for a pass over everything here.
const STEPS_MAX: usize = 10_000;

fn eager() -> Settings {
    Settings { fingerprints: FingerprintMode::Eager, verify: Verify::Off, ..one_level() }
}

/// No request is looked up, so that equal blocks stay apart, and no block has a fingerprint.
fn apart() -> Settings {
    Settings { inline: Inline::Off, fingerprints: FingerprintMode::Lazy, ..eager() }
}

fn volume(settings: Settings) -> (Devices, Volume) {
    let devices = Devices::new(DATA, settings);
    let volume = devices.open();
    (devices, volume)
}

fn write(volume: &Volume, map: u64, first: u64, data: &[u8]) {
    volume.write(MapId(map), first * BLOCK, data, |_, _| ()).unwrap();
}

fn read(volume: &Volume, map: u64, first: u64, blocks: u64) -> crate::Result<Vec<u8>> {
    volume.reader.read(MapId(map), first * BLOCK, (blocks * BLOCK) as usize).map(|bytes| bytes.to_vec())
}

fn assert_holds(volume: &Volume, map: u64, data: &[u8]) {
    assert!(read(volume, map, 0, data.len() as u64 / BLOCK).unwrap() == data, "map {map} differs");
}

fn is_lost(result: crate::Result<Vec<u8>>) -> bool {
    matches!(result, Err(Error::Corrupt { .. }))
}

fn delete(volume: &Volume, map: u64) {
    volume.range_changes.detach(MapId(map), |_| ()).unwrap();
    let map = volume.base.signals.next_detached(std::time::Duration::ZERO).unwrap();
    volume.reclaimer.reclaim(map).unwrap();
}

/// Everything published is in the data area, and nothing rides in the log.
fn settle(volume: &Volume) {
    volume.commits.checkpoint().unwrap();
}

fn pbn(volume: &Volume, map: u64, lbn: u64) -> Pbn {
    let key = LeafKey { map: MapId(map), leaf: lbn / LEAF_BLOCKS };
    let at = (lbn % LEAF_BLOCKS) as u16;
    match volume.metadata.leaf(key).unwrap().slice(at, at + 1).next().unwrap().target {
        Target::Data(pbn) => pbn,
        other => panic!("block {lbn} of map {map} is {other:?}"),
    }
}

fn entry(volume: &Volume, pbn: Pbn) -> Entry {
    volume.metadata.known_entry(pbn).unwrap()
}

fn count(volume: &Volume, name: &str) -> u64 {
    volume.base.stats.counters.snapshot()[name]
}

fn tune(volume: &Volume, name: &str, value: &str) {
    volume.work_loop.tune(&[(name.to_owned(), value.to_owned())]).unwrap();
}

/// Blocks in use without the label.
fn used(volume: &Volume) -> u64 {
    volume.free_blocks.totals().used.0 - 1
}

/// Damages one bit of a block in its place, durably.
fn rot(devices: &Devices, pbn: Pbn) {
    rot_sectors(devices, pbn, 1);
}

fn rot_sectors(devices: &Devices, pbn: Pbn, sectors: usize) {
    let mut block = vec![0; BLOCK_BYTES];
    devices.data.read_at(&mut block, pbn.0 * BLOCK).unwrap();
    (0..sectors).for_each(|sector| block[sector * 512 + 77] ^= 4);
    devices.data.write_at(&block, pbn.0 * BLOCK).unwrap();
    devices.data.flush().unwrap();
}

/// One pass from beginning to end. Returns how many bad blocks it found.
fn scrub(volume: &Volume) -> u64 {
    volume.scrubber.command_scrub(ScrubCommand::Start { rate: None }).unwrap();
    for _ in 0..STEPS_MAX {
        if volume.scrubber.scrub_status().state == "finished" {
            return volume.scrubber.scrub_status().blocks_bad_found;
        }
        volume.scrubber.scrub_some(256).unwrap();
        // There is no committer here, and the scrub would wait for room.
        volume.commits.commit().unwrap();
    }
    panic!("the scrub comes to no end: {:?}", volume.scrubber.scrub_status());
}

fn assert_clean(volume: &Volume) {
    let report = checker(volume).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// The bytes of a block.
fn bytes_of(Pbn(block): Pbn) -> Range<u64> {
    block * BLOCK..(block + 1) * BLOCK
}

#[test]
fn a_sound_volume_is_found_sound_and_gets_its_fingerprints() {
    let (_devices, volume) = volume(apart());
    let data = unique(3_000, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 700, &unique(5, 2));
    settle(&volume);
    assert_eq!(entry(&volume, pbn(&volume, 1, 5)).fingerprint, None);
    assert_eq!(scrub(&volume), 0);
    assert_eq!((count(&volume, "blocks_scrubbed"), count(&volume, "blocks_bad")), (3_005, 0));
    assert!(entry(&volume, pbn(&volume, 1, 5)).fingerprint.is_some());
    assert_holds(&volume, 1, &data);
    assert_clean(&volume);
}

#[test]
fn a_damaged_block_is_marked_named_and_read_as_an_error() {
    let (devices, volume) = volume(eager());
    let data = unique(600, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 10, &data[300 * BLOCK_BYTES..310 * BLOCK_BYTES]);
    settle(&volume);
    let bad = pbn(&volume, 1, 305);
    assert_eq!(bad, pbn(&volume, 2, 15));
    rot(&devices, bad);
    let before = used(&volume);
    assert_eq!(scrub(&volume), 1);
    let status = volume.scrubber.scrub_status();
    assert_eq!((status.blocks_bad, status.blocks_lost, status.passes, used(&volume)), (1, 1, 1, before));
    let blocks = volume.affected_files.bad_blocks();
    assert_eq!((blocks.len(), blocks[0].pbn, blocks[0].replacement, blocks[0].references), (1, bad, None, 2));
    let (places, all) = volume.affected_files.bad_places(10, &|| true).unwrap().unwrap();
    let places: Vec<_> = places.iter().map(|place| (place.map.0, place.lbn.0, place.is_lost)).collect();
    assert_eq!((places, all), (vec![(1, 305, true), (2, 15, true)], true));
    assert_eq!(volume.affected_files.bad_places(1, &|| true).unwrap().unwrap().0.len(), 1);
    for _ in 0..2 {
        assert!(
            is_lost(read(&volume, 1, 305, 1)) && is_lost(read(&volume, 1, 0, 600)) && is_lost(read(&volume, 2, 12, 8))
        );
        assert!(read(&volume, 1, 0, 305).unwrap() == data[..305 * BLOCK_BYTES]);
        assert!(read(&volume, 1, 306, 294).unwrap() == data[306 * BLOCK_BYTES..]);
    }
    assert_clean(&volume);
    assert_eq!(scrub(&volume), 0, "what is known is not found again");
    let reopened = devices.after_power_cut_of_all();
    let volume = reopened.open();
    assert!(is_lost(read(&volume, 1, 305, 1)));
    assert_clean(&volume);
}

#[test]
fn a_bad_block_is_not_shared_and_writing_its_content_heals_it() {
    let (devices, volume) = volume(eager());
    let data = unique(100, 1);
    (1..=3).for_each(|map| write(&volume, map, 0, &data));
    settle(&volume);
    let before = used(&volume);
    let bad = pbn(&volume, 1, 50);
    rot(&devices, bad);
    scrub(&volume);
    let content = &data[50 * BLOCK_BYTES..51 * BLOCK_BYTES];
    // First in its own place: the same bytes as before, but still needed.
    write(&volume, 1, 50, content);
    let replacement = pbn(&volume, 1, 50);
    assert_ne!(replacement, bad);
    assert!(read(&volume, 1, 50, 1).unwrap() == content && is_lost(read(&volume, 2, 50, 1)));
    volume.repairs.repair_noticed().unwrap();
    (1..=3).for_each(|map| assert_holds(&volume, map, &data));
    assert_eq!(pbn(&volume, 2, 50), bad, "files move later");
    assert_eq!((volume.scrubber.scrub_status().blocks_bad, volume.scrubber.scrub_status().blocks_lost), (1, 0));
    assert_clean(&volume);
    // A later write shares the replacement.
    write(&volume, 4, 0, content);
    assert_eq!(pbn(&volume, 4, 0), replacement);
    assert_eq!(scrub(&volume), 0);
    assert_eq!((pbn(&volume, 2, 50), pbn(&volume, 3, 50)), (replacement, replacement));
    assert_eq!(
        (volume.scrubber.scrub_status().blocks_bad, used(&volume)),
        (0, before),
        "the block took new bytes and is free"
    );
    assert_eq!(count(&volume, "blocks_restored"), 1);
    (1..=3).for_each(|map| assert_holds(&volume, map, &data));
    assert_clean(&volume);
}

#[test]
fn copying_a_file_takes_the_home_and_fails_where_there_is_none() {
    let (devices, volume) = volume(eager());
    let data = unique(20, 1);
    write(&volume, 1, 0, &data);
    settle(&volume);
    rot(&devices, pbn(&volume, 1, 7));
    scrub(&volume);
    let clone = |target| volume.clone_blocks((MapId(1), Lbn(0)), (MapId(target), Lbn(0)), Blocks(20), |_, _| ());
    assert!(matches!(clone(2), Err(Error::Corrupt { .. })));
    write(&volume, 3, 0, &data[7 * BLOCK_BYTES..8 * BLOCK_BYTES]);
    volume.repairs.repair_noticed().unwrap();
    clone(4).unwrap();
    assert_holds(&volume, 4, &data);
    assert_eq!(pbn(&volume, 4, 7), pbn(&volume, 3, 0));
    assert_clean(&volume);
}

#[test]
fn a_block_that_takes_no_bytes_stays_retired_and_the_sums_hold() {
    let devices = Devices::new(DATA, eager());
    let worn = Unreadable::of(&devices.data);
    let volume = devices.open_with(worn.clone());
    write(&volume, 1, 0, &unique(50, 1));
    write(&volume, 2, 0, &unique(50, 2));
    settle(&volume);
    let bad = pbn(&volume, 1, 20);
    worn.set(bytes_of(bad));
    assert_eq!(scrub(&volume), 1);
    delete(&volume, 1);
    volume.commits.commit().unwrap();
    assert_eq!((used(&volume), volume.affected_files.bad_blocks()[0].references), (51, 0));
    scrub(&volume);
    assert_eq!((used(&volume), volume.scrubber.scrub_status().blocks_bad), (51, 1), "it is kept out of use");
    assert!(volume.affected_files.bad_places(10, &|| true).unwrap().unwrap().0.is_empty());
    assert_clean(&volume);
    worn.set(0..0);
    scrub(&volume);
    assert_eq!((used(&volume), volume.scrubber.scrub_status().blocks_bad), (50, 0));
    assert_clean(&volume);
}

#[test]
fn a_block_that_could_not_be_read_for_a_time_is_as_before() {
    let devices = Devices::new(DATA, eager());
    let worn = Unreadable::of(&devices.data);
    let volume = devices.open_with(worn.clone());
    let data = unique(50, 1);
    write(&volume, 1, 0, &data);
    settle(&volume);
    worn.set(bytes_of(pbn(&volume, 1, 20)));
    assert_eq!(scrub(&volume), 1);
    assert!(is_lost(read(&volume, 1, 20, 1)));
    worn.set(0..0);
    scrub(&volume);
    assert_holds(&volume, 1, &data);
    assert_clean(&volume);
}

#[test]
fn a_device_that_is_gone_makes_no_block_bad() {
    let devices = Devices::new(DATA, eager());
    let worn = Unreadable::of(&devices.data);
    let volume = devices.open_with(worn.clone());
    let data = unique(50, 1);
    write(&volume, 1, 0, &data);
    settle(&volume);
    worn.set(0..DATA.bytes());
    volume.scrubber.command_scrub(ScrubCommand::Start { rate: None }).unwrap();
    let outcome = (0..20).map(|_| volume.scrubber.scrub_some(256)).find(Result::is_err);
    assert!(outcome.is_some(), "the scrub waits, and says why");
    assert_eq!(count(&volume, "blocks_bad"), 0);
    assert!(read(&volume, 1, 0, 1).is_err());
    worn.set(0..0);
    volume.repairs.repair_noticed().unwrap();
    assert_eq!(scrub(&volume), 0);
    assert_holds(&volume, 1, &data);
}

#[test]
fn with_verify_no_read_gives_damaged_bytes_even_before_a_scrub() {
    let (devices, volume) = volume(Settings { verify: Verify::Read, ..eager() });
    let data = unique(600, 1);
    write(&volume, 1, 0, &data);
    settle(&volume);
    rot(&devices, pbn(&volume, 1, 300));
    assert!(
        is_lost(read(&volume, 1, 300, 1)) && is_lost(read(&volume, 1, 290, 20)) && is_lost(read(&volume, 1, 0, 600))
    );
    assert!(read(&volume, 1, 0, 300).unwrap() == data[..300 * BLOCK_BYTES]);
    volume.repairs.repair_noticed().unwrap();
    assert_eq!(volume.scrubber.scrub_status().blocks_bad, 1, "the worker looked at it and marked it");
    tune(&volume, "verify", "off");
    assert!(is_lost(read(&volume, 1, 300, 1)), "what is known to be bad is never read");
    rot(&devices, pbn(&volume, 1, 10));
    assert!(read(&volume, 1, 10, 1).unwrap() != data[10 * BLOCK_BYTES..11 * BLOCK_BYTES], "off means off");
}

#[test]
fn a_pass_goes_on_where_it_was_after_an_unmount_and_a_crash() {
    let (devices, volume) = volume(eager());
    write(&volume, 1, 0, &unique(4_000, 1));
    settle(&volume);
    volume.scrubber.command_scrub(ScrubCommand::Start { rate: Some(1 << 20) }).unwrap();
    for _ in 0..8 {
        volume.scrubber.scrub_some(256).unwrap();
    }
    let before = volume.scrubber.scrub_status();
    assert!((500..3_000).contains(&before.blocks_done), "{before:?}");
    volume.scrubber.save_scrub().unwrap();
    volume.commits.commit().unwrap();
    let devices = devices.after_power_cut_of_all();
    let volume = devices.open();
    let status = volume.scrubber.scrub_status();
    assert_eq!(
        (status.state.as_str(), status.blocks_done, status.bytes_per_second_max),
        ("running", before.blocks_done, 1 << 20)
    );
    volume.scrubber.command_scrub(ScrubCommand::Pause).unwrap();
    volume.commits.commit().unwrap();
    let volume = devices.after_power_cut_of_all().open();
    assert_eq!(volume.scrubber.scrub_status().state, "paused");
    volume.scrubber.command_scrub(ScrubCommand::Resume).unwrap();
    while volume.scrubber.scrub_status().state == "running" {
        volume.scrubber.scrub_some(256).unwrap();
        volume.commits.commit().unwrap();
    }
    assert_eq!((volume.scrubber.scrub_status().blocks_done, volume.scrubber.scrub_status().passes), (4_000, 1));
    assert!(count(&volume, "blocks_scrubbed") <= 4_000 - before.blocks_done);
    assert!(volume.scrubber.command_scrub(ScrubCommand::Pause).is_err(), "nothing is under way");
    volume.scrubber.command_scrub(ScrubCommand::Start { rate: Some(0) }).unwrap();
    volume.scrubber.command_scrub(ScrubCommand::Stop).unwrap();
    assert_eq!(volume.scrubber.scrub_status().state, ScrubState::Stopped.name());
}

#[test]
fn the_worker_keeps_to_the_rate() {
    let (_devices, volume) = volume(eager());
    write(&volume, 1, 0, &unique(2_000, 1));
    settle(&volume);
    volume.scrubber.command_scrub(ScrubCommand::Start { rate: Some(100 * BLOCK) }).unwrap();
    let began = std::time::Instant::now();
    while began.elapsed().as_millis() < 300 {
        volume.work_loop.work();
    }
    let at_most = 256 + 100 * began.elapsed().as_secs() + 200;
    assert!(volume.scrubber.scrub_status().blocks_done <= at_most, "{:?}", volume.scrubber.scrub_status());
    volume.scrubber.command_scrub(ScrubCommand::Start { rate: Some(0) }).unwrap();
    while volume.scrubber.scrub_status().state == "running" {
        volume.work_loop.work();
        volume.commits.commit().unwrap();
    }
    assert_eq!(volume.scrubber.scrub_status().blocks_done, 2_000);
}
