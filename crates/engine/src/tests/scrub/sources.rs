//! The sources of good content: the read cache, an equal block, a read, a replica. And the ones that must not be used.

use super::*;
use crate::volume::assembly::Volume;

/// Two files with equal content in blocks of their own, and the block of the first that is damaged.
fn equal_files(settings: Settings) -> (Devices, Volume, Vec<u8>, Pbn) {
    let (devices, volume) = volume(settings);
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &data);
    settle(&volume);
    let bad = pbn(&volume, 1, 8);
    assert_ne!(bad, pbn(&volume, 2, 8));
    (devices, volume, data, bad)
}

#[test]
fn the_read_cache_heals_a_block_at_once() {
    let (devices, volume) = volume(eager());
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    settle(&volume);
    (0..3).for_each(|_| drop(read(&volume, 1, 8, 4).unwrap()));
    rot(&devices, pbn(&volume, 1, 9));
    rot(&devices, pbn(&volume, 1, 30));
    assert_eq!(scrub(&volume), 2);
    let status = volume.scrubber.scrub_status();
    assert_eq!((status.blocks_bad, status.blocks_lost), (1, 1), "one was in the cache, is moved and in use again");
    assert!(read(&volume, 1, 0, 30).unwrap() == data[..30 * BLOCK_BYTES]);
    assert!(is_lost(read(&volume, 1, 30, 1)));
    assert_clean(&volume);
}

#[test]
fn an_equal_block_elsewhere_heals_at_once() {
    let (devices, volume, data, bad) = equal_files(apart());
    rot(&devices, bad);
    assert_eq!(scrub(&volume), 1);
    assert_eq!(pbn(&volume, 1, 8), pbn(&volume, 2, 8), "the file refers to the replacement itself");
    assert_eq!((volume.scrubber.scrub_status().blocks_bad, used(&volume)), (0, 79));
    (1..=2).for_each(|map| assert_holds(&volume, map, &data));
    assert_clean(&volume);
}

#[test]
fn reading_the_same_content_elsewhere_heals() {
    let (devices, volume, data, bad) = equal_files(apart());
    // Hints are advice: without them the equal block is unknown until it is read.
    volume.base.hints.clear_memory();
    rot(&devices, bad);
    assert_eq!(scrub(&volume), 1);
    assert!(is_lost(read(&volume, 1, 8, 1)));
    assert!(read(&volume, 2, 0, 40).unwrap() == data);
    volume.repairs.repair_noticed().unwrap();
    (1..=2).for_each(|map| assert_holds(&volume, map, &data));
    assert_eq!(count(&volume, "blocks_repaired"), 1);
    assert_clean(&volume);
}

#[test]
fn a_tag_alone_does_not_heal() {
    let (devices, volume, data, bad) = equal_files(apart());
    rot_sectors(&devices, bad, 5);
    assert_eq!(scrub(&volume), 1, "no fingerprint was known, and little of the block is left");
    write(&volume, 3, 0, &data);
    read(&volume, 2, 0, 40).unwrap();
    volume.repairs.repair_noticed().unwrap();
    assert!(is_lost(read(&volume, 1, 8, 1)));
    assert_eq!(count(&volume, "blocks_repaired"), 0);
    // With a fingerprint the same damage is harmless.
    let (devices, volume, data, bad) = equal_files(apart());
    scrub(&volume);
    rot_sectors(&devices, bad, 8);
    assert_eq!(scrub(&volume), 1);
    assert_holds(&volume, 1, &data);
    assert_clean(&volume);
}

#[test]
fn a_holder_that_is_damaged_itself_heals_nothing() {
    let (devices, volume, _, bad) = equal_files(apart());
    scrub(&volume);
    rot(&devices, bad);
    rot(&devices, pbn(&volume, 2, 8));
    assert_eq!(scrub(&volume), 2);
    assert!(is_lost(read(&volume, 1, 8, 1)) && is_lost(read(&volume, 2, 8, 1)));
    assert_eq!(count(&volume, "blocks_repaired"), 0);
    assert_clean(&volume);
}

#[test]
fn a_home_that_goes_bad_is_healed_as_any_other() {
    let (devices, volume) = volume(eager());
    let data = unique(4, 1);
    write(&volume, 1, 0, &data);
    settle(&volume);
    rot(&devices, pbn(&volume, 1, 2));
    scrub(&volume);
    write(&volume, 2, 0, &data);
    volume.repairs.repair_noticed().unwrap();
    settle(&volume);
    assert_holds(&volume, 1, &data);
    let replacement = pbn(&volume, 2, 2);
    rot(&devices, replacement);
    volume.base.read_cache.remove(replacement);
    volume.damage_reports.suspect(replacement);
    volume.repairs.repair_noticed().unwrap();
    assert!(is_lost(read(&volume, 1, 2, 1)) && is_lost(read(&volume, 2, 2, 1)));
    write(&volume, 3, 0, &data);
    volume.repairs.repair_noticed().unwrap();
    (1..=3).for_each(|map| assert_holds(&volume, map, &data));
    assert_clean(&volume);
    scrub(&volume);
    scrub(&volume);
    (1..=3).for_each(|map| assert_holds(&volume, map, &data));
    assert_eq!((volume.scrubber.scrub_status().blocks_bad, used(&volume)), (0, 4));
    assert_clean(&volume);
}

#[test]
fn a_target_that_cannot_be_compared_is_not_shared_and_not_in_the_way() {
    let devices = Devices::new(DATA, Settings { inline: Inline::All, ..apart() });
    let worn = Unreadable::of(&devices.data);
    let volume = devices.open_with(worn.clone());
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    settle(&volume);
    worn.set(bytes_of(pbn(&volume, 1, 8)));
    write(&volume, 2, 0, &data);
    assert_holds(&volume, 2, &data);
    assert_eq!(used(&volume), 41);
    volume.repairs.repair_noticed().unwrap();
    assert_eq!(volume.scrubber.scrub_status().blocks_bad, 1);
    assert_clean(&volume);
}

/// A file with fingerprints whose block 8 has rotted on the device, while the read cache still has it.
fn rotten_target(verify: Verify) -> (Devices, Volume, Vec<u8>, Pbn) {
    let (devices, volume) = volume(Settings { verify, ..eager() });
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    settle(&volume);
    let bad = pbn(&volume, 1, 8);
    (0..3).for_each(|_| drop(read(&volume, 1, 8, 4).unwrap()));
    rot(&devices, bad);
    (devices, volume, data, bad)
}

#[test]
fn with_verify_share_a_rotten_target_is_not_shared_and_the_good_copy_becomes_its_home() {
    let (devices, volume, data, bad) = rotten_target(Verify::Share);
    write(&volume, 2, 0, &data);
    assert_eq!((used(&volume), entry(&volume, bad).count), (41, 1), "one block is stored anew");
    assert_eq!(count(&volume, "blocks_compared"), 40);
    settle(&volume);
    // The cached content of the rotten block must not repair it here.
    volume.base.read_cache.remove(bad);
    volume.repairs.repair_noticed().unwrap();
    assert_eq!((count(&volume, "blocks_bad"), count(&volume, "blocks_repaired")), (1, 1));
    assert_eq!(volume.scrubber.scrub_status().blocks_lost, 0, "the block that was stored anew serves for it");
    (1..=2).for_each(|map| assert_holds(&volume, map, &data));
    assert_clean(&volume);
    let reopened = devices.after_power_cut_of_all().open();
    reopened.commits.commit().unwrap();
    assert_holds(&reopened, 2, &data);
}

#[test]
fn with_verify_share_only_the_first_share_reads() {
    let (devices, volume) = volume(Settings { verify: Verify::Share, ..eager() });
    let data = unique(40, 1);
    write(&volume, 1, 0, &data);
    assert_eq!(count(&volume, "blocks_compared"), 0);
    for map in 2..=4 {
        write(&volume, map, 0, &data);
        assert_eq!(count(&volume, "blocks_compared"), 40, "file {map}: staged blocks as those on the device");
    }
    write(&volume, 5, 0, &unique(40, 2));
    settle(&volume);
    rot(&devices, pbn(&volume, 5, 7));
    write(&volume, 5, 7, &unique(40, 2)[7 * BLOCK_BYTES..8 * BLOCK_BYTES]);
    volume.repairs.repair_noticed().unwrap();
    assert_holds(&volume, 5, &unique(40, 2));
    assert_clean(&volume);
}

#[test]
fn without_verify_share_the_fingerprint_alone_decides() {
    for verify in [Verify::Off, Verify::Read] {
        let (_devices, volume, data, bad) = rotten_target(verify);
        write(&volume, 2, 0, &data);
        assert_eq!((used(&volume), entry(&volume, bad).count), (40, 2), "{verify:?}");
        assert_eq!(count(&volume, "blocks_compared"), 0);
    }
}

fn with_replicas(above: u64) -> (Devices, Volume, Vec<u8>) {
    let (devices, volume) = volume(Settings { replicate_refs_above: above, ..eager() });
    let data = unique(10, 1);
    (1..=5).for_each(|map| write(&volume, map, 0, &data[..5 * BLOCK_BYTES]));
    write(&volume, 1, 5, &data[5 * BLOCK_BYTES..]);
    settle(&volume);
    assert_eq!(used(&volume), 10);
    (devices, volume, data)
}

#[test]
fn blocks_with_many_references_are_kept_twice_until_they_have_few() {
    let (devices, volume, _) = with_replicas(4);
    scrub(&volume);
    assert_eq!((count(&volume, "replicas_made"), used(&volume)), (5, 15));
    scrub(&volume);
    assert_eq!((count(&volume, "replicas_made"), used(&volume)), (5, 15), "once");
    assert_clean(&volume);
    let volume = {
        volume.commits.commit().unwrap();
        devices.after_power_cut_of_all().open()
    };
    delete(&volume, 5);
    delete(&volume, 4);
    scrub(&volume);
    assert_eq!(used(&volume), 15, "more than half are left");
    delete(&volume, 3);
    delete(&volume, 2);
    scrub(&volume);
    assert_eq!((count(&volume, "replicas_dropped"), used(&volume)), (5, 10));
    assert_clean(&volume);
}

#[test]
fn freeing_a_block_drops_its_copy_and_so_does_the_setting() {
    let (_devices, volume, _) = with_replicas(4);
    scrub(&volume);
    (1..=5).for_each(|map| delete(&volume, map));
    volume.repairs.repair_noticed().unwrap();
    assert_eq!(used(&volume), 0);
    assert_clean(&volume);
    let (_devices, volume, _) = with_replicas(4);
    scrub(&volume);
    tune(&volume, "replicate_refs_above", "0");
    scrub(&volume);
    assert_eq!(used(&volume), 10);
    assert_clean(&volume);
}

#[test]
fn a_copy_that_outlived_its_block_is_dropped_by_a_pass_and_never_read_for_another_content() {
    let (devices, volume, _) = with_replicas(4);
    scrub(&volume);
    let old = pbn(&volume, 1, 0);
    (1..=5).for_each(|map| delete(&volume, map));
    settle(&volume);
    volume.groups.release_waiting();
    // The worker does not get to it before the power fails.
    let devices = devices.after_power_cut_of_all();
    let volume = devices.open();
    assert_eq!(used(&volume), 5, "the replicas alone");
    assert_clean(&volume);
    let data = unique(DATA.0 as usize - 300, 9);
    data.chunks(256 * BLOCK_BYTES).enumerate().for_each(|(n, part)| {
        write(&volume, 9, n as u64 * 256, part);
        volume.commits.commit().unwrap();
    });
    settle(&volume);
    assert!(entry(&volume, old).count > 0, "the block is used again");
    assert!(!volume.replica_reader.read_replica(old, &mut [0; BLOCK_BYTES]));
    scrub(&volume);
    assert_eq!(used(&volume), DATA.0 - 300);
    assert_clean(&volume);
}

#[test]
fn a_second_copy_serves_a_read_at_once_and_becomes_the_home() {
    for verify in [Verify::Read, Verify::Off] {
        let (devices, volume, data) = with_replicas(4);
        scrub(&volume);
        tune(&volume, "verify", if verify == Verify::Read { "read" } else { "off" });
        let bad = pbn(&volume, 3, 2);
        rot(&devices, bad);
        if verify == Verify::Read {
            assert_holds(&volume, 3, &data[..5 * BLOCK_BYTES]);
            volume.repairs.repair_noticed().unwrap();
        } else {
            assert_eq!(scrub(&volume), 1);
        }
        (1..=5).for_each(|map| assert!(read(&volume, map, 0, 5).unwrap() == data[..5 * BLOCK_BYTES]));
        assert_eq!((volume.scrubber.scrub_status().blocks_lost, count(&volume, "blocks_repaired")), (0, 1));
        assert_clean(&volume);
        scrub(&volume);
        assert_eq!(volume.scrubber.scrub_status().blocks_bad, 0);
        assert_ne!(pbn(&volume, 3, 2), bad);
        scrub(&volume);
        assert_eq!(used(&volume), 15, "and has a copy again");
        assert_clean(&volume);
    }
}

#[test]
fn a_damaged_copy_serves_nobody_and_is_replaced() {
    let (devices, volume, _) = with_replicas(4);
    scrub(&volume);
    let first = pbn(&volume, 1, 0);
    let copy = volume.replica_reader.replica_of(first).unwrap().unwrap();
    assert!(copy.0.abs_diff(first.0) > DATA.0 / 3, "far away");
    rot(&devices, copy);
    assert_eq!(scrub(&volume), 1);
    assert!(volume.affected_files.bad_places(10, &|| true).unwrap().unwrap().0.is_empty(), "no file is damaged");
    assert_clean(&volume);
    scrub(&volume);
    assert_eq!((volume.scrubber.scrub_status().blocks_bad, used(&volume)), (0, 15));
    assert_clean(&volume);
}
