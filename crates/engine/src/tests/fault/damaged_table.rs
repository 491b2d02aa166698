//! One sector of the block table is damaged, or a page of it cannot be read: only work that needs these entries fails.
//! Writes, the worker and the scrub continue and end, and fsck rebuilds the entries.

use std::ops::Range;
use std::sync::Arc;

use super::*;
use crate::format::damage_records::{BadRecord, ScrubRecord};
use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::keys::{self, LeafKey};
use crate::format::page::{BAD, PAGE_BYTES, PAGE_ENTRIES, Page, SECTOR_BYTES, page_of};
use crate::fsck::parts::{checker, fixer};
use crate::settings::values::Inline;
use crate::tests::fixture::one_level;
use crate::tests::unreadable::Unreadable;
use crate::volume::assembly::Volume;
use crate::{Pbn, Remedy, ScrubCommand};

/// Blocks of the file, some of whose entries are damaged.
const BLOCKS: u64 = 200;
/// A block in the middle of it, whose entry is damaged.
const HIT: u64 = 150;
/// Steps that suffice for a pass over everything here.
const STEPS_MAX: usize = 2_000;

/// What is wrong with the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// A bit of a sector is flipped.
    Sector,
    /// The device cannot read a page.
    Page,
}

fn pbn(volume: &Volume, map: u64, lbn: u64) -> Pbn {
    let key = LeafKey { map: MapId(map), leaf: lbn / LEAF_BLOCKS };
    let at = (lbn % LEAF_BLOCKS) as u16;
    match volume.metadata.leaf(key).unwrap().slice(at, at + 1).next().unwrap().target {
        Target::Data(pbn) => pbn,
        other => panic!("block {lbn} of map {map} is {other:?}"),
    }
}

fn used(volume: &Volume) -> u64 {
    volume.base.state.lock().totals.used.0
}

fn write(volume: &Volume, map: u64, lbn: u64, data: &[u8]) -> Result<()> {
    volume.write(MapId(map), lbn * BLOCK, data, |_, _| ())
}

fn assert_holds(volume: &Volume, map: u64, data: &[u8]) {
    assert!(volume.reader.read(MapId(map), 0, data.len()).unwrap().iter().eq(data), "map {map} differs");
}

/// Maps with this content, each in blocks of its own, in its place. Returns the block of map 1 at `HIT`.
fn volume(settings: Settings, maps: u64) -> (Devices, Vec<u8>, Pbn) {
    let devices = Devices::new(DATA, settings);
    let volume = devices.open();
    volume.base.maps.skip_to(MapId(100));
    let data = unique(1, BLOCKS * BLOCK);
    volume.work_loop.tune(&[("inline".to_owned(), "off".to_owned())]).unwrap();
    (1..=maps).for_each(|map| write(&volume, map, 0, &data).unwrap());
    volume.run(BackgroundStep::LeaveCleanly).unwrap();
    let hit = pbn(&volume, 1, HIT);
    assert!(page_of(hit) > 0, "the stamp is in another page");
    drop(volume);
    (devices, data, hit)
}

fn flip_sector_of(devices: &Devices, hit: Pbn) {
    let at = page_of(hit) * PAGE_BYTES as u64;
    let mut page = vec![0; PAGE_BYTES];
    devices.table.read_at(&mut page, at).unwrap();
    page[Page::sector_of(hit) * SECTOR_BYTES + 100] ^= 4;
    devices.table.write_at(&page, at).unwrap();
    devices.table.flush().unwrap();
}

/// Damages the table at the entry of `hit`, and opens the volume. Returns the blocks with unknown entries.
fn open_damaged(devices: &Devices, hit: Pbn, damage: Damage) -> (Volume, Range<u64>) {
    let page = page_of(hit);
    match damage {
        Damage::Sector => {
            flip_sector_of(devices, hit);
            let (first, end) = Page::sector_blocks(page, Page::sector_of(hit));
            (devices.open(), first.0..end.0)
        }
        Damage::Page => {
            let table = Unreadable::of(&devices.table);
            table.set(page * PAGE_BYTES as u64..(page + 1) * PAGE_BYTES as u64);
            let volume = devices.open_medium(Backend { table, ..devices.backend() });
            (volume, page * PAGE_ENTRIES..(page + 1) * PAGE_ENTRIES)
        }
    }
}

/// The lbns whose blocks in one of the first `maps` maps are among these.
fn lbns_within(volume: &Volume, maps: u64, blocks: &Range<u64>) -> Vec<u64> {
    (0..BLOCKS).filter(|lbn| (1..=maps).any(|map| blocks.contains(&pbn(volume, map, *lbn).0))).collect()
}

fn is_damage(result: &Result<()>) -> bool {
    matches!(result, Err(Error::Corrupt { .. } | Error::Io { .. }))
}

/// fsck rebuilds the entries; nothing is lost, and everything can be changed again.
fn assert_mended_by_fsck(devices: &Devices, maps: &[(u64, &[u8])]) {
    let volume = devices.open();
    let repaired = fixer(&volume).repair(Remedy::Asked, &mut |_, _, _| ()).unwrap();
    assert!(repaired.fixed_count > 0 && repaired.left.is_clean(), "{repaired:#?}");
    drop(volume);
    let volume = devices.open();
    assert_clean(&volume, "mended");
    maps.iter().for_each(|(map, data)| assert_holds(&volume, *map, data));
    write(&volume, 1, HIT, &unique(77, BLOCK)).unwrap();
    volume.range_changes.truncate(MapId(1), 0, |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    assert_clean(&volume, "mended, and written to");
}

#[test]
fn a_write_whose_candidate_has_a_damaged_entry_stores_its_block_anew() {
    for damage in [Damage::Sector, Damage::Page] {
        println!("{damage:?}");
        let (devices, data, hit) = volume(one_level(), 1);
        let (volume, unknown) = open_damaged(&devices, hit, damage);
        let blocks = data.chunks_exact(BLOCK_BYTES).zip(0..);
        let hints: Vec<_> = blocks.map(|(block, lbn)| (volume.base.hasher.tag(block), pbn(&volume, 1, lbn))).collect();
        volume.hint_levels.update_hints(&[], &hints);
        let (before, hit_lbns) = (used(&volume), lbns_within(&volume, 1, &unknown));
        assert!(hit_lbns.contains(&HIT) && (hit_lbns.len() as u64) < BLOCKS, "{hit_lbns:?}");
        write(&volume, 2, 0, &data).unwrap();
        assert_eq!(used(&volume) - before, hit_lbns.len() as u64, "all other blocks are shared");
        assert_holds(&volume, 1, &data);
        assert_holds(&volume, 2, &data);
        volume.commits.commit().unwrap();
        volume.commits.checkpoint().unwrap();
        assert_eq!(volume.base.health.failure(), None);
    }
}

#[test]
fn only_what_changes_a_damaged_entry_fails_and_its_blocks_are_never_handed_out() {
    for damage in [Damage::Sector, Damage::Page] {
        println!("{damage:?}");
        let (devices, mut data, hit) = volume(one_level(), 1);
        let (volume, unknown) = open_damaged(&devices, hit, damage);
        let hit_lbns = lbns_within(&volume, 1, &unknown);
        for lbn in 0..BLOCKS {
            let block = unique(1_000 + lbn, BLOCK);
            let written = write(&volume, 1, lbn, &block);
            match hit_lbns.contains(&lbn) {
                true => assert!(is_damage(&written), "block {lbn}: {written:?}"),
                false => {
                    written.unwrap_or_else(|error| panic!("block {lbn}: {error}"));
                    data[(lbn * BLOCK) as usize..((lbn + 1) * BLOCK) as usize].copy_from_slice(&block);
                }
            }
        }
        let cloned = volume.clone_blocks((MapId(1), Lbn(HIT)), (MapId(3), Lbn(0)), Blocks(1), |_, _| ());
        assert!(is_damage(&cloned), "{cloned:?}");
        assert!(is_damage(&volume.range_changes.truncate(MapId(1), HIT * BLOCK, |_, _| ())));
        let mut files = 0;
        while write(&volume, 10 + files, 0, &unique(5_000 + files, 10 * BLOCK)).is_ok() {
            files += 1;
            volume.commits.commit().unwrap();
            volume.groups.release_waiting();
        }
        assert!(files > 100, "only {files} files were written");
        (0..files).for_each(|file| assert_holds(&volume, 10 + file, &unique(5_000 + file, 10 * BLOCK)));
        assert_holds(&volume, 1, &data);
        (0..files).for_each(|file| volume.range_changes.truncate(MapId(10 + file), 0, |_, _| ()).unwrap());
        volume.commits.checkpoint().unwrap();
        assert_eq!(volume.base.health.failure(), None);
        drop(volume);
        if damage == Damage::Sector {
            assert!(is_damage(&write(&devices.open(), 1, HIT, &unique(7, BLOCK))), "the damage is still there");
        }
        assert_holds(&devices.open(), 1, &data);
        if damage == Damage::Sector {
            assert_mended_by_fsck(&devices, &[(1, &data)]);
        }
    }
}

/// Its page could become a hole, which reads as entries of free blocks. Then the damage would be hidden for good.
#[test]
fn a_page_with_a_damaged_sector_stays_when_all_its_other_blocks_are_free() {
    let (devices, data, hit) = volume(one_level(), 1);
    let (volume, unknown) = open_damaged(&devices, hit, Damage::Sector);
    let sector = || {
        let mut bytes = [0; SECTOR_BYTES];
        devices.table.read_at(&mut bytes, unknown.start / (unknown.end - unknown.start) * SECTOR_BYTES as u64).unwrap();
        bytes
    };
    let found = sector();
    let hit_lbns = lbns_within(&volume, 1, &unknown);
    (0..BLOCKS).filter(|lbn| !hit_lbns.contains(lbn)).for_each(|lbn| {
        volume.range_changes.zero(MapId(1), lbn * BLOCK, BLOCK, false, |_, _| ()).unwrap();
    });
    volume.commits.checkpoint().unwrap();
    volume.commits.checkpoint().unwrap();
    drop(volume);
    assert!(sector() == found, "a hole says that blocks are free of which nobody knows");
    let mut left = vec![0; data.len()];
    for lbn in hit_lbns {
        let range = (lbn * BLOCK) as usize..((lbn + 1) * BLOCK) as usize;
        left[range.clone()].copy_from_slice(&data[range]);
    }
    let volume = devices.open();
    assert_holds(&volume, 1, &left);
    assert!(is_damage(&write(&volume, 1, HIT, &unique(7, BLOCK))), "the damage is still there");
    assert!(!checker(&volume).check(false, &mut |_, _| ()).unwrap().is_clean());
    drop(volume);
    assert_mended_by_fsck(&devices, &[(1, &left)]);
}

#[test]
fn the_worker_passes_damaged_entries_over_merges_the_rest_and_comes_to_an_end() {
    for damage in [Damage::Sector, Damage::Page] {
        for is_full in [false, true] {
            println!("{damage:?}, full: {is_full}");
            let settings = Settings { inline: Inline::Off, ..two_levels() };
            let (devices, data, hit) = volume(settings, 2);
            let (volume, unknown) = open_damaged(&devices, hit, damage);
            let hit_lbns = lbns_within(&volume, 2, &unknown).len() as u64;
            volume.hint_levels.fill_hints().unwrap();
            match is_full {
                true => volume.worklist.begin_full_pass(),
                false => volume
                    .base
                    .backlog
                    .put_back((1..3).flat_map(|map| (0..BLOCKS).map(move |lbn| (MapId(map), Lbn(lbn))))),
            }
            let ended = (0..STEPS_MAX).any(|_| matches!(volume.revisits.revisit(1_000), Ok(None)));
            assert!(ended && !volume.worklist.is_revisit_left(), "the worker does not end");
            assert_eq!(used(&volume), 1 + BLOCKS + hit_lbns, "all others are merged");
            assert_holds(&volume, 1, &data);
            assert_holds(&volume, 2, &data);
            let status = volume.work_loop.dedup_status();
            assert_eq!(status.unknown.ranges, [(unknown.start, unknown.end)]);
        }
    }
}

#[test]
fn the_scrub_passes_damaged_entries_over_and_comes_to_an_end() {
    for damage in [Damage::Sector, Damage::Page] {
        println!("{damage:?}");
        let (devices, data, hit) = volume(one_level(), 2);
        let (volume, unknown) = open_damaged(&devices, hit, damage);
        let rotten = pbn(&volume, 2, 100);
        devices.data.write_at(&[0x5A; BLOCK_BYTES], rotten.0 * BLOCK).unwrap();
        volume.scrubber.command_scrub(ScrubCommand::Start { rate: None }).unwrap();
        let ended = (0..STEPS_MAX).any(|_| matches!(volume.scrubber.scrub_step(64), Ok(false)));
        assert!(ended, "the scrub does not end");
        let status = volume.scrubber.scrub_status();
        assert_eq!((status.state.as_str(), status.blocks_bad_found), ("finished", 1), "rot is found all the same");
        let seen = 2 * BLOCKS - (unknown.end.min(1 + 2 * BLOCKS) - unknown.start);
        assert_eq!(status.blocks_done, seen, "all others are read");
        assert_eq!(status.unknown.ranges, [(unknown.start, unknown.end)]);
        assert_eq!(status.unknown.blocks, unknown.end - unknown.start);
        assert_holds(&volume, 1, &data);
        volume.commits.checkpoint().unwrap();
        drop(volume);
        // The next mount reports it too, until fsck has repaired it.
        let said = |volume: &Volume| {
            ScrubRecord::decode(&volume.metadata.get(&keys::scrub()).unwrap().unwrap()).unwrap().unknown
        };
        let volume = devices.open();
        assert_eq!(said(&volume), unknown.end - unknown.start);
        if damage == Damage::Sector {
            fixer(&volume).repair(Remedy::Asked, &mut |_, _, _| ()).unwrap();
            assert_eq!(said(&volume), 0);
        }
    }
}

/// The log has a change for the damaged sector, so no further checkpoint is possible.
#[test]
fn a_checkpoint_that_cannot_read_its_pages_ends_in_read_only_and_keeps_what_was_committed() {
    for damage in [Damage::Sector, Damage::Page] {
        println!("{damage:?}");
        let (devices, data, hit) = volume(one_level(), 1);
        let volume = devices.open();
        let mut changed = data.clone();
        let block = unique(9, BLOCK);
        write(&volume, 1, HIT, &block).unwrap();
        changed[(HIT * BLOCK) as usize..((HIT + 1) * BLOCK) as usize].copy_from_slice(&block);
        volume.commits.commit().unwrap();
        drop(volume);
        let (volume, _) = open_damaged(&devices, hit, damage);
        let new = unique(10, 20 * BLOCK);
        write(&volume, 2, 0, &new).unwrap();
        volume.commits.commit().unwrap();
        let newer = unique(11, 20 * BLOCK);
        write(&volume, 3, 0, &newer).unwrap();
        assert!(is_damage(&volume.commits.checkpoint()), "the log cannot be trimmed");
        let why = volume.base.health.failure().expect("the volume is read-only");
        assert!(why.contains("block table"), "{why}");
        for _ in 0..3 {
            assert!(matches!(write(&volume, 4, 0, &new), Err(Error::ReadOnly(_))));
            assert!(matches!(volume.commits.commit(), Err(Error::ReadOnly(_))));
            assert!(volume.commits.checkpoint().is_err());
        }
        assert_eq!(volume.base.health.failure(), Some(why), "the first reason stays");
        let files: [(u64, &[u8]); 3] = [(1, &changed), (2, &new), (3, &newer)];
        files.iter().for_each(|(map, data)| assert_holds(&volume, *map, data));
        drop(volume);
        let cut = devices.after_power_cut_of_all();
        let volume = cut.open();
        files.iter().for_each(|(map, data)| assert_holds(&volume, *map, data));
        drop(volume);
        if damage == Damage::Sector {
            assert_mended_by_fsck(&cut, &files);
        }
    }
}

/// A bad block whose record names another block: one without a reference, or none at all.
#[test]
fn a_crafted_record_of_a_bad_block_ends_neither_the_daemon_nor_keeps_the_scrub_from_its_end() {
    for replacement in [DATA.0 - 10, DATA.0 + 5, u64::MAX, HIT + 1] {
        println!("replacement {replacement}");
        let (devices, data, hit) = volume(one_level(), 1);
        let volume = devices.open();
        let tag = volume.metadata.known_entry(hit).unwrap().tag;
        let mut state = volume.metadata.lock_with_pages(&volume.base.state, || vec![page_of(hit)]).unwrap();
        let page = state.table.edit(page_of(hit));
        page.set_count(hit, 2);
        page.set_flags(hit, BAD);
        drop(state);
        let mut change = Change::default();
        change.put(keys::bad(hit), BadRecord { replacement: Some(Pbn(replacement)), tag }.encode());
        volume.publisher.publish(change).unwrap();
        volume.commits.checkpoint().unwrap();
        drop(volume);
        let volume = devices.open();
        volume.scrubber.command_scrub(ScrubCommand::Start { rate: None }).unwrap();
        let ended = (0..STEPS_MAX).any(|_| matches!(volume.scrubber.scrub_step(64), Ok(false)));
        assert!(ended, "the scrub does not end");
        write(&volume, 2, 0, &data[..BLOCK_BYTES]).unwrap();
        volume.commits.checkpoint().unwrap();
        assert_eq!(volume.base.health.failure(), None);
    }
}

/// Two blocks are noticed, and one operation fails while they are checked.
#[test]
fn an_error_at_one_notice_of_damage_drops_no_other() {
    let mut hits = 0;
    for at in 0..12 {
        let (devices, _, hit) = volume(one_level(), 1);
        let faults = Arc::new(Faults::default());
        let volume = try_open(&devices, faulty_medium(&devices, &faults)).unwrap();
        for pbn in [hit, hit.plus(1)] {
            devices.data.write_at(&[0x5A; BLOCK_BYTES], pbn.0 * BLOCK).unwrap();
            volume.damage_reports.suspect(pbn);
        }
        faults.arm(faults.count() + at, Fault::Broken, Lasts::Once);
        drop(volume.repairs.repair_noticed());
        hits += usize::from(faults.hit().is_some());
        assert!(!volume.affected_files.bad_blocks().is_empty(), "operation {at} fails, and both notices are lost");
    }
    assert!(hits > 0, "the test has to come there");
}

/// Counts the entries that are read, instead of measuring time.
#[test]
fn the_places_of_many_bad_blocks_cost_one_look_at_each_and_end_with_the_command() {
    const BAD_BLOCKS: u64 = 400;
    let devices = Devices::new(DATA, one_level());
    let volume = devices.open();
    for n in 0..2 * BAD_BLOCKS {
        write(&volume, 1, n * LEAF_BLOCKS, &unique(n, BLOCK)).unwrap();
    }
    for n in 0..BAD_BLOCKS {
        let pbn = pbn(&volume, 1, n * LEAF_BLOCKS);
        let mut state = volume.base.state.lock();
        state.table.edit(page_of(pbn)).set_count(pbn, 2);
        let tag = state.table.entry(pbn).unwrap().tag;
        state.bad.set(pbn, Some(BadRecord { replacement: None, tag }));
    }
    let looks = || {
        let report = volume.base.state.lock().table.report();
        report.hits + report.misses
    };
    let before = looks();
    let (places, are_all) = volume.affected_files.bad_places(10_000, &|| true).unwrap().unwrap();
    assert_eq!((places.len() as u64, are_all), (BAD_BLOCKS, true));
    assert!(looks() - before <= 2 * BAD_BLOCKS, "{} looks at the block table", looks() - before);
    assert_eq!(volume.affected_files.bad_places(10_000, &|| false).unwrap(), None, "nobody waits for it any more");
}

/// Blocks that a scrub found bad are no contradiction, but are still reported, with and without reading the data.
#[test]
fn an_audit_tells_of_blocks_that_are_known_to_be_bad() {
    let (devices, _, hit) = volume(one_level(), 1);
    devices.data.write_at(&[0x5A; BLOCK_BYTES], hit.0 * BLOCK).unwrap();
    let volume = devices.open();
    volume.scrubber.command_scrub(ScrubCommand::Start { rate: None }).unwrap();
    assert!((0..STEPS_MAX).any(|_| matches!(volume.scrubber.scrub_step(64), Ok(false))));
    volume.commits.checkpoint().unwrap();
    drop(volume);
    for read_data in [false, true] {
        let volume = devices.open();
        let report = checker(&volume).check(read_data, &mut |_, _| ()).unwrap();
        let bad: Vec<_> = report.bad.iter().map(|bad| (bad.pbn, bad.replacement, bad.references)).collect();
        assert_eq!((bad, report.is_clean()), (vec![(hit, None, 1)], true));
    }
    // The sector with its entry is damaged too: fsck makes it a bad block again, with the tag of its right content.
    flip_sector_of(&devices, hit);
    let volume = devices.open();
    fixer(&volume).repair(Remedy::Asked, &mut |_, _, _| ()).unwrap();
    let entry = volume.metadata.known_entry(hit).unwrap();
    assert!(entry.is_bad() && entry.count == 2, "{entry:?}");
    assert_eq!(Some(entry.tag), volume.base.state.lock().bad.get(hit).map(|record| record.tag));
}
