//! The sources of good content: the read cache, an equal block, a read, a replica. And the ones that must not be used.

use super::*;
use crate::volume::assembly::Volume;

/// Two files with equal content in blocks of their own, and the block of the first that is damaged.
fn equal_files(settings: Settings) -> (Devices, Volume, Vec<u8>, Pbn) {
    let (devices, core) = volume(settings);
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    write(&core, 2, 0, &data);
    settle(&core);
    let bad = pbn(&core, 1, 8);
    assert_ne!(bad, pbn(&core, 2, 8));
    (devices, core, data, bad)
}

#[test]
fn the_read_cache_heals_a_block_at_once() {
    let (devices, core) = volume(eager());
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    settle(&core);
    (0..3).for_each(|_| drop(read(&core, 1, 8, 4).unwrap()));
    rot(&devices, pbn(&core, 1, 9));
    rot(&devices, pbn(&core, 1, 30));
    assert_eq!(scrub(&core), 2);
    let status = core.scrubber.scrub_status();
    assert_eq!((status.blocks_bad, status.blocks_lost), (1, 1), "one was in the cache, is moved and in use again");
    assert!(read(&core, 1, 0, 30).unwrap() == data[..30 * BLOCK_BYTES]);
    assert!(is_lost(read(&core, 1, 30, 1)));
    assert_clean(&core);
}

#[test]
fn an_equal_block_elsewhere_heals_at_once() {
    let (devices, core, data, bad) = equal_files(apart());
    rot(&devices, bad);
    assert_eq!(scrub(&core), 1);
    assert_eq!(pbn(&core, 1, 8), pbn(&core, 2, 8), "the file refers to the replacement itself");
    assert_eq!((core.scrubber.scrub_status().blocks_bad, used(&core)), (0, 79));
    (1..=2).for_each(|map| assert_holds(&core, map, &data));
    assert_clean(&core);
}

#[test]
fn reading_the_same_content_elsewhere_heals() {
    let (devices, core, data, bad) = equal_files(apart());
    // Hints are advice: without them the equal block is unknown until it is read.
    core.base.hints.clear_memory();
    rot(&devices, bad);
    assert_eq!(scrub(&core), 1);
    assert!(is_lost(read(&core, 1, 8, 1)));
    assert!(read(&core, 2, 0, 40).unwrap() == data);
    core.repairs.repair_noticed().unwrap();
    (1..=2).for_each(|map| assert_holds(&core, map, &data));
    assert_eq!(count(&core, "blocks_repaired"), 1);
    assert_clean(&core);
}

#[test]
fn a_tag_alone_does_not_heal() {
    let (devices, core, data, bad) = equal_files(apart());
    rot_sectors(&devices, bad, 5);
    assert_eq!(scrub(&core), 1, "no fingerprint was known, and little of the block is left");
    write(&core, 3, 0, &data);
    read(&core, 2, 0, 40).unwrap();
    core.repairs.repair_noticed().unwrap();
    assert!(is_lost(read(&core, 1, 8, 1)));
    assert_eq!(count(&core, "blocks_repaired"), 0);
    // With a fingerprint the same damage is harmless.
    let (devices, core, data, bad) = equal_files(apart());
    scrub(&core);
    rot_sectors(&devices, bad, 8);
    assert_eq!(scrub(&core), 1);
    assert_holds(&core, 1, &data);
    assert_clean(&core);
}

#[test]
fn a_holder_that_is_damaged_itself_heals_nothing() {
    let (devices, core, _, bad) = equal_files(apart());
    scrub(&core);
    rot(&devices, bad);
    rot(&devices, pbn(&core, 2, 8));
    assert_eq!(scrub(&core), 2);
    assert!(is_lost(read(&core, 1, 8, 1)) && is_lost(read(&core, 2, 8, 1)));
    assert_eq!(count(&core, "blocks_repaired"), 0);
    assert_clean(&core);
}

#[test]
fn a_home_that_goes_bad_is_healed_as_any_other() {
    let (devices, core) = volume(eager());
    let data = unique(4, 1);
    write(&core, 1, 0, &data);
    settle(&core);
    rot(&devices, pbn(&core, 1, 2));
    scrub(&core);
    write(&core, 2, 0, &data);
    core.repairs.repair_noticed().unwrap();
    settle(&core);
    assert_holds(&core, 1, &data);
    let replacement = pbn(&core, 2, 2);
    rot(&devices, replacement);
    core.base.read_cache.remove(replacement);
    core.damage_reports.suspect(replacement);
    core.repairs.repair_noticed().unwrap();
    assert!(is_lost(read(&core, 1, 2, 1)) && is_lost(read(&core, 2, 2, 1)));
    write(&core, 3, 0, &data);
    core.repairs.repair_noticed().unwrap();
    (1..=3).for_each(|map| assert_holds(&core, map, &data));
    assert_clean(&core);
    scrub(&core);
    scrub(&core);
    (1..=3).for_each(|map| assert_holds(&core, map, &data));
    assert_eq!((core.scrubber.scrub_status().blocks_bad, used(&core)), (0, 4));
    assert_clean(&core);
}

#[test]
fn a_target_that_cannot_be_compared_is_not_shared_and_not_in_the_way() {
    let devices = Devices::new(DATA, Settings { inline: Inline::All, ..apart() });
    let worn = Unreadable::of(&devices.data);
    let core = devices.open_with(worn.clone());
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    settle(&core);
    worn.set(bytes_of(pbn(&core, 1, 8)));
    write(&core, 2, 0, &data);
    assert_holds(&core, 2, &data);
    assert_eq!(used(&core), 41);
    core.repairs.repair_noticed().unwrap();
    assert_eq!(core.scrubber.scrub_status().blocks_bad, 1);
    assert_clean(&core);
}

/// A file with fingerprints whose block 8 has rotted on the device, while the read cache still has it.
fn rotten_target(verify: Verify) -> (Devices, Volume, Vec<u8>, Pbn) {
    let (devices, core) = volume(Settings { verify, ..eager() });
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    settle(&core);
    let bad = pbn(&core, 1, 8);
    (0..3).for_each(|_| drop(read(&core, 1, 8, 4).unwrap()));
    rot(&devices, bad);
    (devices, core, data, bad)
}

#[test]
fn with_verify_share_a_rotten_target_is_not_shared_and_the_good_copy_becomes_its_home() {
    let (devices, core, data, bad) = rotten_target(Verify::Share);
    write(&core, 2, 0, &data);
    assert_eq!((used(&core), entry(&core, bad).count), (41, 1), "one block is stored anew");
    assert_eq!(count(&core, "blocks_compared"), 40);
    settle(&core);
    // The cached content of the rotten block must not repair it here.
    core.base.read_cache.remove(bad);
    core.repairs.repair_noticed().unwrap();
    assert_eq!((count(&core, "blocks_bad"), count(&core, "blocks_repaired")), (1, 1));
    assert_eq!(core.scrubber.scrub_status().blocks_lost, 0, "the block that was stored anew serves for it");
    (1..=2).for_each(|map| assert_holds(&core, map, &data));
    assert_clean(&core);
    let reopened = devices.after_power_cut_of_all().open();
    reopened.commits.commit().unwrap();
    assert_holds(&reopened, 2, &data);
}

#[test]
fn with_verify_share_only_the_first_share_reads() {
    let (devices, core) = volume(Settings { verify: Verify::Share, ..eager() });
    let data = unique(40, 1);
    write(&core, 1, 0, &data);
    assert_eq!(count(&core, "blocks_compared"), 0);
    for map in 2..=4 {
        write(&core, map, 0, &data);
        assert_eq!(count(&core, "blocks_compared"), 40, "file {map}: staged blocks as those on the device");
    }
    write(&core, 5, 0, &unique(40, 2));
    settle(&core);
    rot(&devices, pbn(&core, 5, 7));
    write(&core, 5, 7, &unique(40, 2)[7 * BLOCK_BYTES..8 * BLOCK_BYTES]);
    core.repairs.repair_noticed().unwrap();
    assert_holds(&core, 5, &unique(40, 2));
    assert_clean(&core);
}

#[test]
fn without_verify_share_the_fingerprint_alone_decides() {
    for verify in [Verify::Off, Verify::Read] {
        let (_devices, core, data, bad) = rotten_target(verify);
        write(&core, 2, 0, &data);
        assert_eq!((used(&core), entry(&core, bad).count), (40, 2), "{verify:?}");
        assert_eq!(count(&core, "blocks_compared"), 0);
    }
}

fn with_replicas(above: u64) -> (Devices, Volume, Vec<u8>) {
    let (devices, core) = volume(Settings { replicate_refs_above: above, ..eager() });
    let data = unique(10, 1);
    (1..=5).for_each(|map| write(&core, map, 0, &data[..5 * BLOCK_BYTES]));
    write(&core, 1, 5, &data[5 * BLOCK_BYTES..]);
    settle(&core);
    assert_eq!(used(&core), 10);
    (devices, core, data)
}

#[test]
fn blocks_with_many_references_are_kept_twice_until_they_have_few() {
    let (devices, core, _) = with_replicas(4);
    scrub(&core);
    assert_eq!((count(&core, "replicas_made"), used(&core)), (5, 15));
    scrub(&core);
    assert_eq!((count(&core, "replicas_made"), used(&core)), (5, 15), "once");
    assert_clean(&core);
    let core = {
        core.commits.commit().unwrap();
        devices.after_power_cut_of_all().open()
    };
    delete(&core, 5);
    delete(&core, 4);
    scrub(&core);
    assert_eq!(used(&core), 15, "more than half are left");
    delete(&core, 3);
    delete(&core, 2);
    scrub(&core);
    assert_eq!((count(&core, "replicas_dropped"), used(&core)), (5, 10));
    assert_clean(&core);
}

#[test]
fn freeing_a_block_drops_its_copy_and_so_does_the_setting() {
    let (_devices, core, _) = with_replicas(4);
    scrub(&core);
    (1..=5).for_each(|map| delete(&core, map));
    core.repairs.repair_noticed().unwrap();
    assert_eq!(used(&core), 0);
    assert_clean(&core);
    let (_devices, core, _) = with_replicas(4);
    scrub(&core);
    tune(&core, "replicate_refs_above", "0");
    scrub(&core);
    assert_eq!(used(&core), 10);
    assert_clean(&core);
}

#[test]
fn a_copy_that_outlived_its_block_is_dropped_by_a_pass_and_never_read_for_another_content() {
    let (devices, core, _) = with_replicas(4);
    scrub(&core);
    let old = pbn(&core, 1, 0);
    (1..=5).for_each(|map| delete(&core, map));
    settle(&core);
    core.groups.release_waiting();
    // The worker does not get to it before the power fails.
    let devices = devices.after_power_cut_of_all();
    let core = devices.open();
    assert_eq!(used(&core), 5, "the replicas alone");
    assert_clean(&core);
    let data = unique(DATA.0 as usize - 300, 9);
    data.chunks(256 * BLOCK_BYTES).enumerate().for_each(|(n, part)| {
        write(&core, 9, n as u64 * 256, part);
        core.commits.commit().unwrap();
    });
    settle(&core);
    assert!(entry(&core, old).count > 0, "the block is used again");
    assert!(!core.replica_reader.read_replica(old, &mut [0; BLOCK_BYTES]));
    scrub(&core);
    assert_eq!(used(&core), DATA.0 - 300);
    assert_clean(&core);
}

#[test]
fn a_second_copy_serves_a_read_at_once_and_becomes_the_home() {
    for verify in [Verify::Read, Verify::Off] {
        let (devices, core, data) = with_replicas(4);
        scrub(&core);
        tune(&core, "verify", if verify == Verify::Read { "read" } else { "off" });
        let bad = pbn(&core, 3, 2);
        rot(&devices, bad);
        if verify == Verify::Read {
            assert_holds(&core, 3, &data[..5 * BLOCK_BYTES]);
            core.repairs.repair_noticed().unwrap();
        } else {
            assert_eq!(scrub(&core), 1);
        }
        (1..=5).for_each(|map| assert!(read(&core, map, 0, 5).unwrap() == data[..5 * BLOCK_BYTES]));
        assert_eq!((core.scrubber.scrub_status().blocks_lost, count(&core, "blocks_repaired")), (0, 1));
        assert_clean(&core);
        scrub(&core);
        assert_eq!(core.scrubber.scrub_status().blocks_bad, 0);
        assert_ne!(pbn(&core, 3, 2), bad);
        scrub(&core);
        assert_eq!(used(&core), 15, "and has a copy again");
        assert_clean(&core);
    }
}

#[test]
fn a_damaged_copy_serves_nobody_and_is_replaced() {
    let (devices, core, _) = with_replicas(4);
    scrub(&core);
    let first = pbn(&core, 1, 0);
    let copy = core.replica_reader.replica_of(first).unwrap().unwrap();
    assert!(copy.0.abs_diff(first.0) > DATA.0 / 3, "far away");
    rot(&devices, copy);
    assert_eq!(scrub(&core), 1);
    assert!(core.affected_files.bad_places(10, &|| true).unwrap().unwrap().0.is_empty(), "no file is damaged");
    assert_clean(&core);
    scrub(&core);
    assert_eq!((core.scrubber.scrub_status().blocks_bad, used(&core)), (0, 15));
    assert_clean(&core);
}
