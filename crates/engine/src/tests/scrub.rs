//! The promises of the scrub, as plain calls on a volume in memory: damage is found and named, is never shared or read
//! as data, is repaired from every good copy that turns up, and survives power cuts in every step.

mod races;
mod sources;

use std::ops::Range;

use crate::device::Device;
use crate::format::damage_records::ScrubState;
use crate::format::keys::ShardKey;
use crate::format::page::Entry;
use crate::format::shard::{SHARD_BLOCKS, Target};
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
    let core = devices.open();
    (devices, core)
}

fn write(core: &Volume, map: u64, first: u64, data: &[u8]) {
    core.write(MapId(map), first * BLOCK, data, |_, _| ()).unwrap();
}

fn read(core: &Volume, map: u64, first: u64, blocks: u64) -> crate::Result<Vec<u8>> {
    core.reader.read(MapId(map), first * BLOCK, (blocks * BLOCK) as usize).map(|bytes| bytes.to_vec())
}

fn assert_holds(core: &Volume, map: u64, data: &[u8]) {
    assert!(read(core, map, 0, data.len() as u64 / BLOCK).unwrap() == data, "map {map} differs");
}

fn is_lost(result: crate::Result<Vec<u8>>) -> bool {
    matches!(result, Err(Error::Corrupt { .. }))
}

fn delete(core: &Volume, map: u64) {
    core.range_changes.detach(MapId(map), |_| ()).unwrap();
    let map = core.base.signals.next_detached(std::time::Duration::ZERO).unwrap();
    core.reclaimer.reclaim(map).unwrap();
}

/// Everything published is in the data area, and nothing rides in the log.
fn settle(core: &Volume) {
    core.commits.checkpoint().unwrap();
}

fn pbn(core: &Volume, map: u64, lbn: u64) -> Pbn {
    let key = ShardKey { map: MapId(map), shard: lbn / SHARD_BLOCKS };
    let at = (lbn % SHARD_BLOCKS) as u16;
    match core.metadata.shard(key).unwrap().slice(at, at + 1).next().unwrap().target {
        Target::Data(pbn) => pbn,
        other => panic!("block {lbn} of map {map} is {other:?}"),
    }
}

fn entry(core: &Volume, pbn: Pbn) -> Entry {
    core.metadata.known_entry(pbn).unwrap()
}

fn count(core: &Volume, name: &str) -> u64 {
    core.base.stats.counters.snapshot()[name]
}

fn tune(core: &Volume, name: &str, value: &str) {
    core.work_loop.tune(&[(name.to_owned(), value.to_owned())]).unwrap();
}

/// Blocks in use without the label.
fn used(core: &Volume) -> u64 {
    core.free_blocks.totals().used.0 - 1
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
fn scrub(core: &Volume) -> u64 {
    core.scrubber.command_scrub(ScrubCommand::Start { rate: None }).unwrap();
    for _ in 0..STEPS_MAX {
        if core.scrubber.scrub_status().state == "finished" {
            return core.scrubber.scrub_status().blocks_bad_found;
        }
        core.scrubber.scrub_some(256).unwrap();
        // There is no committer here, and the scrub would wait for room.
        core.commits.commit().unwrap();
    }
    panic!("the scrub comes to no end: {:?}", core.scrubber.scrub_status());
}

fn assert_clean(core: &Volume) {
    let report = checker(core).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// The bytes of a block.
fn bytes_of(Pbn(block): Pbn) -> Range<u64> {
    block * BLOCK..(block + 1) * BLOCK
}

#[test]
fn a_sound_volume_is_found_sound_and_gets_its_fingerprints() {
    let (_devices, core) = volume(apart());
    let data = unique(3_000, 1);
    write(&core, 1, 0, &data);
    write(&core, 2, 700, &unique(5, 2));
    settle(&core);
    assert_eq!(entry(&core, pbn(&core, 1, 5)).fingerprint, None);
    assert_eq!(scrub(&core), 0);
    assert_eq!((count(&core, "blocks_scrubbed"), count(&core, "blocks_bad")), (3_005, 0));
    assert!(entry(&core, pbn(&core, 1, 5)).fingerprint.is_some());
    assert_holds(&core, 1, &data);
    assert_clean(&core);
}

#[test]
fn a_damaged_block_is_marked_named_and_read_as_an_error() {
    let (devices, core) = volume(eager());
    let data = unique(600, 1);
    write(&core, 1, 0, &data);
    write(&core, 2, 10, &data[300 * BLOCK_BYTES..310 * BLOCK_BYTES]);
    settle(&core);
    let bad = pbn(&core, 1, 305);
    assert_eq!(bad, pbn(&core, 2, 15));
    rot(&devices, bad);
    let before = used(&core);
    assert_eq!(scrub(&core), 1);
    let status = core.scrubber.scrub_status();
    assert_eq!((status.blocks_bad, status.blocks_lost, status.passes, used(&core)), (1, 1, 1, before));
    let blocks = core.affected_files.bad_blocks();
    assert_eq!((blocks.len(), blocks[0].pbn, blocks[0].replacement, blocks[0].references), (1, bad, None, 2));
    let (places, all) = core.affected_files.bad_places(10, &|| true).unwrap().unwrap();
    let places: Vec<_> = places.iter().map(|place| (place.map.0, place.lbn.0, place.is_lost)).collect();
    assert_eq!((places, all), (vec![(1, 305, true), (2, 15, true)], true));
    assert_eq!(core.affected_files.bad_places(1, &|| true).unwrap().unwrap().0.len(), 1);
    for _ in 0..2 {
        assert!(is_lost(read(&core, 1, 305, 1)) && is_lost(read(&core, 1, 0, 600)) && is_lost(read(&core, 2, 12, 8)));
        assert!(read(&core, 1, 0, 305).unwrap() == data[..305 * BLOCK_BYTES]);
        assert!(read(&core, 1, 306, 294).unwrap() == data[306 * BLOCK_BYTES..]);
    }
    assert_clean(&core);
    assert_eq!(scrub(&core), 0, "what is known is not found again");
    let reopened = devices.after_power_cut_of_all();
    let core = reopened.open();
    assert!(is_lost(read(&core, 1, 305, 1)));
    assert_clean(&core);
}

#[test]
fn a_bad_block_is_not_shared_and_writing_its_content_heals_it() {
    let (devices, core) = volume(eager());
    let data = unique(100, 1);
    (1..=3).for_each(|map| write(&core, map, 0, &data));
    settle(&core);
    let before = used(&core);
    let bad = pbn(&core, 1, 50);
    rot(&devices, bad);
    scrub(&core);
    let content = &data[50 * BLOCK_BYTES..51 * BLOCK_BYTES];
    // First in its own place: the same bytes as before, but still needed.
    write(&core, 1, 50, content);
    let replacement = pbn(&core, 1, 50);
    assert_ne!(replacement, bad);
    assert!(read(&core, 1, 50, 1).unwrap() == content && is_lost(read(&core, 2, 50, 1)));
    core.repairs.repair_noticed().unwrap();
    (1..=3).for_each(|map| assert_holds(&core, map, &data));
    assert_eq!(pbn(&core, 2, 50), bad, "files move later");
    assert_eq!((core.scrubber.scrub_status().blocks_bad, core.scrubber.scrub_status().blocks_lost), (1, 0));
    assert_clean(&core);
    // A later write shares the replacement.
    write(&core, 4, 0, content);
    assert_eq!(pbn(&core, 4, 0), replacement);
    assert_eq!(scrub(&core), 0);
    assert_eq!((pbn(&core, 2, 50), pbn(&core, 3, 50)), (replacement, replacement));
    assert_eq!(
        (core.scrubber.scrub_status().blocks_bad, used(&core)),
        (0, before),
        "the block took new bytes and is free"
    );
    assert_eq!(count(&core, "blocks_restored"), 1);
    (1..=3).for_each(|map| assert_holds(&core, map, &data));
    assert_clean(&core);
}

#[test]
fn copying_a_file_takes_the_home_and_fails_where_there_is_none() {
    let (devices, core) = volume(eager());
    let data = unique(20, 1);
    write(&core, 1, 0, &data);
    settle(&core);
    rot(&devices, pbn(&core, 1, 7));
    scrub(&core);
    let clone = |target| core.clone_blocks((MapId(1), Lbn(0)), (MapId(target), Lbn(0)), Blocks(20), |_, _| ());
    assert!(matches!(clone(2), Err(Error::Corrupt { .. })));
    write(&core, 3, 0, &data[7 * BLOCK_BYTES..8 * BLOCK_BYTES]);
    core.repairs.repair_noticed().unwrap();
    clone(4).unwrap();
    assert_holds(&core, 4, &data);
    assert_eq!(pbn(&core, 4, 7), pbn(&core, 3, 0));
    assert_clean(&core);
}

#[test]
fn a_block_that_takes_no_bytes_stays_retired_and_the_sums_hold() {
    let devices = Devices::new(DATA, eager());
    let worn = Unreadable::of(&devices.data);
    let core = devices.open_with(worn.clone());
    write(&core, 1, 0, &unique(50, 1));
    write(&core, 2, 0, &unique(50, 2));
    settle(&core);
    let bad = pbn(&core, 1, 20);
    worn.set(bytes_of(bad));
    assert_eq!(scrub(&core), 1);
    delete(&core, 1);
    core.commits.commit().unwrap();
    assert_eq!((used(&core), core.affected_files.bad_blocks()[0].references), (51, 0));
    scrub(&core);
    assert_eq!((used(&core), core.scrubber.scrub_status().blocks_bad), (51, 1), "it is kept out of use");
    assert!(core.affected_files.bad_places(10, &|| true).unwrap().unwrap().0.is_empty());
    assert_clean(&core);
    worn.set(0..0);
    scrub(&core);
    assert_eq!((used(&core), core.scrubber.scrub_status().blocks_bad), (50, 0));
    assert_clean(&core);
}

#[test]
fn a_block_that_could_not_be_read_for_a_time_is_as_before() {
    let devices = Devices::new(DATA, eager());
    let worn = Unreadable::of(&devices.data);
    let core = devices.open_with(worn.clone());
    let data = unique(50, 1);
    write(&core, 1, 0, &data);
    settle(&core);
    worn.set(bytes_of(pbn(&core, 1, 20)));
    assert_eq!(scrub(&core), 1);
    assert!(is_lost(read(&core, 1, 20, 1)));
    worn.set(0..0);
    scrub(&core);
    assert_holds(&core, 1, &data);
    assert_clean(&core);
}

#[test]
fn a_device_that_is_gone_makes_no_block_bad() {
    let devices = Devices::new(DATA, eager());
    let worn = Unreadable::of(&devices.data);
    let core = devices.open_with(worn.clone());
    let data = unique(50, 1);
    write(&core, 1, 0, &data);
    settle(&core);
    worn.set(0..DATA.bytes());
    core.scrubber.command_scrub(ScrubCommand::Start { rate: None }).unwrap();
    let outcome = (0..20).map(|_| core.scrubber.scrub_some(256)).find(Result::is_err);
    assert!(outcome.is_some(), "the scrub waits, and says why");
    assert_eq!(count(&core, "blocks_bad"), 0);
    assert!(read(&core, 1, 0, 1).is_err());
    worn.set(0..0);
    core.repairs.repair_noticed().unwrap();
    assert_eq!(scrub(&core), 0);
    assert_holds(&core, 1, &data);
}

#[test]
fn with_verify_no_read_gives_damaged_bytes_even_before_a_scrub() {
    let (devices, core) = volume(Settings { verify: Verify::Read, ..eager() });
    let data = unique(600, 1);
    write(&core, 1, 0, &data);
    settle(&core);
    rot(&devices, pbn(&core, 1, 300));
    assert!(is_lost(read(&core, 1, 300, 1)) && is_lost(read(&core, 1, 290, 20)) && is_lost(read(&core, 1, 0, 600)));
    assert!(read(&core, 1, 0, 300).unwrap() == data[..300 * BLOCK_BYTES]);
    core.repairs.repair_noticed().unwrap();
    assert_eq!(core.scrubber.scrub_status().blocks_bad, 1, "the worker looked at it and marked it");
    tune(&core, "verify", "off");
    assert!(is_lost(read(&core, 1, 300, 1)), "what is known to be bad is never read");
    rot(&devices, pbn(&core, 1, 10));
    assert!(read(&core, 1, 10, 1).unwrap() != data[10 * BLOCK_BYTES..11 * BLOCK_BYTES], "off means off");
}

#[test]
fn a_pass_goes_on_where_it_was_after_an_unmount_and_a_crash() {
    let (devices, core) = volume(eager());
    write(&core, 1, 0, &unique(4_000, 1));
    settle(&core);
    core.scrubber.command_scrub(ScrubCommand::Start { rate: Some(1 << 20) }).unwrap();
    for _ in 0..8 {
        core.scrubber.scrub_some(256).unwrap();
    }
    let before = core.scrubber.scrub_status();
    assert!((500..3_000).contains(&before.blocks_done), "{before:?}");
    core.scrubber.save_scrub().unwrap();
    core.commits.commit().unwrap();
    let devices = devices.after_power_cut_of_all();
    let core = devices.open();
    let status = core.scrubber.scrub_status();
    assert_eq!(
        (status.state.as_str(), status.blocks_done, status.bytes_per_second_max),
        ("running", before.blocks_done, 1 << 20)
    );
    core.scrubber.command_scrub(ScrubCommand::Pause).unwrap();
    core.commits.commit().unwrap();
    let core = devices.after_power_cut_of_all().open();
    assert_eq!(core.scrubber.scrub_status().state, "paused");
    core.scrubber.command_scrub(ScrubCommand::Resume).unwrap();
    while core.scrubber.scrub_status().state == "running" {
        core.scrubber.scrub_some(256).unwrap();
        core.commits.commit().unwrap();
    }
    assert_eq!((core.scrubber.scrub_status().blocks_done, core.scrubber.scrub_status().passes), (4_000, 1));
    assert!(count(&core, "blocks_scrubbed") <= 4_000 - before.blocks_done);
    assert!(core.scrubber.command_scrub(ScrubCommand::Pause).is_err(), "nothing is under way");
    core.scrubber.command_scrub(ScrubCommand::Start { rate: Some(0) }).unwrap();
    core.scrubber.command_scrub(ScrubCommand::Stop).unwrap();
    assert_eq!(core.scrubber.scrub_status().state, ScrubState::Stopped.name());
}

#[test]
fn the_worker_keeps_to_the_rate() {
    let (_devices, core) = volume(eager());
    write(&core, 1, 0, &unique(2_000, 1));
    settle(&core);
    core.scrubber.command_scrub(ScrubCommand::Start { rate: Some(100 * BLOCK) }).unwrap();
    let began = std::time::Instant::now();
    while began.elapsed().as_millis() < 300 {
        core.work_loop.work();
    }
    let at_most = 256 + 100 * began.elapsed().as_secs() + 200;
    assert!(core.scrubber.scrub_status().blocks_done <= at_most, "{:?}", core.scrubber.scrub_status());
    core.scrubber.command_scrub(ScrubCommand::Start { rate: Some(0) }).unwrap();
    while core.scrubber.scrub_status().state == "running" {
        core.work_loop.work();
        core.commits.commit().unwrap();
    }
    assert_eq!(core.scrubber.scrub_status().blocks_done, 2_000);
}
