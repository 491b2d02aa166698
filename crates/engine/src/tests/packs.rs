//! Packs on volumes in memory: what repacking gives back and what it writes, what a reader, a full volume and a power
//! cut see of it, and what fsck makes of damaged entries.

use std::sync::atomic::Ordering::Relaxed;

use crate::device::Device;
use crate::format::fragment::{FIRST_PAGE, FragmentPlace, PAGE_FRAGMENTS, is_fragment};
use crate::format::page::{PAGE_BYTES, PAGE_ENTRIES, Page, SECTOR_BYTES, page_of};
use crate::fsck::check::fault::{Fault, Remedy};
use crate::fsck::parts::{checker, fixer};
use crate::state::published::{MovedFragment, Plan};
use crate::tests::compress::{assert_content, compress_all, pbns_of, text, used, written, zstd};
use crate::tests::fixture::{Devices, Random, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, BackgroundStep, Blocks, Error, MapId, Pbn};

mod passes;

const BLOCK: u64 = BLOCK_BYTES as u64;

type Files = Vec<(MapId, Vec<u8>)>;

/// Repacks until nothing is left to do, and commits after each turn.
fn repack_all(volume: &Volume) {
    while volume.repacker.repack_some(64).unwrap().is_some() {
        volume.commits.commit().unwrap();
        volume.run(BackgroundStep::Release).unwrap();
    }
}

/// The part of what packs take that fragments take, in percent.
fn density(volume: &Volume) -> u64 {
    let totals = volume.base.state.lock().fragment_totals;
    totals.bytes * 100 / (totals.blocks * BLOCK)
}

fn place_of(volume: &Volume, pbn: Pbn) -> FragmentPlace {
    volume.metadata.with_pages(|| vec![page_of(pbn)], |pages| pages.fragment_place(pbn)).unwrap().unwrap()
}

fn rewrite(volume: &Volume, (map, content): &mut (MapId, Vec<u8>), lbn: usize, block: &[u8]) {
    content[lbn * BLOCK_BYTES..(lbn + 1) * BLOCK_BYTES].copy_from_slice(block);
    volume.write(*map, lbn as u64 * BLOCK, block, |_, _| ()).unwrap();
}

/// Files of text, compressed, of which every `kept`-th block is left as it was; the others are of random bytes now.
fn with_gaps(devices: &Devices, blocks: usize, kept: usize) -> (Volume, Files) {
    let mut files: Files = (1..4).map(|n| (MapId(n), text(blocks, n))).collect();
    let volume = written(devices, &files);
    compress_all(&volume);
    for (n, file) in files.iter_mut().enumerate() {
        for lbn in (0..blocks).filter(|lbn| lbn % kept > 0) {
            rewrite(&volume, file, lbn, &unique(1, (n * blocks + lbn) as u64));
        }
    }
    volume.commits.checkpoint().unwrap();
    volume.run(BackgroundStep::Release).unwrap();
    (volume, files)
}

#[test]
fn after_a_day_of_rewrites_and_deletes_packs_are_dense_within_the_budget_of_writes() {
    for seed in 0..3 {
        println!("seed {seed}");
        let devices = Devices::new(Blocks(12_000), zstd());
        let mut random = Random::new(seed);
        let mut files: Files = (1..7).map(|n| (MapId(n), text(500, n))).collect();
        let volume = written(&devices, &files);
        compress_all(&volume);
        volume.commits.commit().unwrap();
        for round in 0..3 {
            for file in &mut files {
                for _ in 0..file.1.len() / BLOCK_BYTES / 2 {
                    let lbn = random.below(file.1.len() as u64 / BLOCK) as usize;
                    rewrite(&volume, file, lbn, &text(1, random.word()));
                }
            }
            if round == 1 {
                let (map, _) = files.remove(2);
                volume.range_changes.truncate(map, 0, |_, _| ()).unwrap();
            }
            volume.commits.commit().unwrap();
            compress_all(&volume);
            volume.commits.commit().unwrap();
            volume.run(BackgroundStep::Release).unwrap();
            let before = density(&volume);
            repack_all(&volume);
            let after = density(&volume);
            assert!(before < 90 && after >= 95, "round {round}: {before} % became {after} %");
        }
        let counters = volume.base.stats.counters.snapshot();
        let (all, by_repacking) = (counters["data_bytes_written"], counters["repack_bytes_written"]);
        assert!(all * 10 <= (all - by_repacking) * 13, "{all} bytes were written, {by_repacking} by repacking");
        assert!(counters["fragments_repacked"] > 100);
        assert_content(&volume, &files);
        volume.commits.checkpoint().unwrap();
        drop(volume);
        let volume = devices.open();
        assert!(density(&volume) >= 95);
        assert_content(&volume, &files);
    }
}

#[test]
fn blocks_of_a_pack_that_moved_are_not_reused_before_its_readers_are_done() {
    let devices = Devices::new(Blocks(3_000), zstd());
    let (volume, files) = with_gaps(&devices, 300, 8);
    let pbn = pbns_of(&volume, MapId(1))[0];
    let place = place_of(&volume, pbn);
    let reader = volume.base.pins.pin();
    repack_all(&volume);
    volume.commits.checkpoint().unwrap();
    volume.run(BackgroundStep::Release).unwrap();
    assert_ne!(place_of(&volume, pbn), place, "the fragment moved");
    assert_eq!(pbns_of(&volume, MapId(1))[0], pbn, "its number stays");
    let is_free = |pbn: Pbn| volume.base.space.is_known_free(pbn);
    assert!(place.holders().all(|pbn| !is_free(pbn)), "a reader may still look there");
    drop(reader);
    volume.commits.commit().unwrap();
    volume.run(BackgroundStep::Release).unwrap();
    assert!(place.holders().all(is_free));
    assert_content(&volume, &files);
}

#[test]
fn blocks_of_a_pack_that_moved_are_free_in_the_totals_at_once_and_reused_after_the_commit() {
    let devices = Devices::new(Blocks(3_000), zstd());
    let (volume, files) = with_gaps(&devices, 300, 8);
    let place = place_of(&volume, pbns_of(&volume, MapId(1))[0]);
    let before = used(&volume);
    while volume.repacker.repack_some(64).unwrap().is_some() {}
    assert!(used(&volume) < before, "{before} blocks were used, {} are", used(&volume));
    volume.run(BackgroundStep::Release).unwrap();
    let is_free = |pbn: Pbn| volume.base.space.is_known_free(pbn);
    assert!(place.holders().all(|pbn| !is_free(pbn)), "a crash now would need the old place");
    volume.commits.commit().unwrap();
    volume.run(BackgroundStep::Release).unwrap();
    assert!(place.holders().all(is_free));
    assert_content(&volume, &files);
}

#[test]
fn a_full_volume_is_repacked_in_the_room_that_is_kept_back() {
    let devices = Devices::new(Blocks(2_000), zstd());
    let (volume, mut files) = with_gaps(&devices, 200, 8);
    let mut map = 10;
    loop {
        let content = unique(16, map);
        match volume.write(MapId(map), 0, &content, |_, _| ()) {
            Ok(()) => files.push((MapId(map), content)),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
        map += 1;
    }
    volume.commits.commit().unwrap();
    assert!(volume.write(MapId(map), 0, &unique(16, map), |_, _| ()).is_err(), "the volume is full");
    repack_all(&volume);
    assert!(density(&volume) > 90, "{} %", density(&volume));
    let content = unique(16, map);
    volume.write(MapId(map), 0, &content, |_, _| ()).unwrap();
    files.push((MapId(map), content));
    assert_content(&volume, &files);
    for (map, _) in &files {
        volume.range_changes.truncate(*map, 0, |_, _| ()).unwrap();
        volume.commits.commit().unwrap();
    }
    assert_eq!(used(&volume), 1, "only the label is left");
}

#[test]
fn a_fragment_that_was_freed_or_moved_meanwhile_does_not_move() {
    let devices = Devices::new(Blocks(2_000), zstd());
    let (volume, files) = with_gaps(&devices, 200, 8);
    let pbn = pbns_of(&volume, MapId(1))[0];
    let (tag, from) = (volume.metadata.known_entry(pbn).unwrap().tag, place_of(&volume, pbn));
    let run = volume.free_blocks.take_to_repack(1).unwrap().unwrap();
    let to = FragmentPlace { at: run.pbn.0 * BLOCK, blocks_after: 0, ..from };
    let elsewhere = FragmentPlace { at: from.at + 1, ..from };
    for moved in
        [MovedFragment { pbn, tag, from: elsewhere, to }, MovedFragment { pbn, tag: crate::Tag(!tag.0), from, to }]
    {
        let refused = volume.publisher.publish_plan(Plan { moves: vec![moved], ..Plan::default() }).unwrap();
        assert_eq!(refused.unwrap().pbns, [pbn]);
    }
    assert_eq!(place_of(&volume, pbn), from);
    volume.free_blocks.give_back_unclaimed(&[run]);
    assert_content(&volume, &files);
}

#[test]
fn a_power_cut_leaves_each_fragment_in_its_old_place_or_in_its_new_one() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut devices = Devices::new(Blocks(4_000), zstd());
        let (volume, mut files) = with_gaps(&devices, 150, 3);
        drop(volume);
        for round in 0..5 {
            let volume = devices.open();
            for _ in 0..random.below(5) {
                volume.repacker.repack_some(64).unwrap();
                match random.below(5) {
                    0 => volume.commits.commit().unwrap(),
                    1 => volume.commits.checkpoint().unwrap(),
                    2 => drop(volume.run(BackgroundStep::Release).unwrap()),
                    3 => drop(volume.block_compressor.compress_some(300).unwrap()),
                    _ => {}
                }
            }
            let file = &mut files[random.below(3) as usize];
            for _ in 0..40 {
                let lbn = random.below(file.1.len() as u64 / BLOCK) as usize;
                rewrite(&volume, file, lbn, &text(1, seed * 100_000 + round * 1_000 + lbn as u64));
            }
            volume.commits.commit().unwrap();
            // These may or may not survive, and change no content.
            for _ in 0..random.below(4) {
                volume.block_compressor.compress_some(300).unwrap();
                volume.repacker.repack_some(64).unwrap();
            }
            drop(volume);
            devices = devices.after_power_cut(&mut random);
            assert_content(&devices.open(), &files);
        }
    }
}

/// Writes over the sectors of the file `fragments` with these numbers.
fn damage_sectors(devices: &Devices, numbers: &[Pbn]) {
    for pbn in numbers {
        let page = page_of(*pbn) - FIRST_PAGE;
        let at = page * PAGE_BYTES as u64 + (Page::sector_of(*pbn) * SECTOR_BYTES) as u64 + 100;
        devices.fragments.write_at(&[0xFF; 8], at).unwrap();
    }
}

/// Writes over the sector of the block table with the entry of a block.
fn damage_entry(devices: &Devices, pbn: Pbn) {
    let at = page_of(pbn) * PAGE_BYTES as u64 + (Page::sector_of(pbn) * SECTOR_BYTES) as u64 + 100;
    devices.table.write_at(&[0xFF; 8], at).unwrap();
}

fn repair(volume: &Volume) {
    fixer(volume).repair(Remedy::Asked, &mut |_, _, _| ()).unwrap();
}

#[test]
fn fsck_finds_the_places_of_fragments_with_damaged_entries_again() {
    let devices = Devices::new(Blocks(2_000), zstd());
    let files = vec![(MapId(1), text(60, 1)), (MapId(2), text(60, 2))];
    let volume = written(&devices, &files);
    compress_all(&volume);
    let first = pbns_of(&volume, MapId(1))[0];
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let all: Vec<Pbn> = (0..PAGE_FRAGMENTS).map(|n| Pbn(first.0 / PAGE_ENTRIES * PAGE_ENTRIES + n)).collect();
    for numbers in [&all[..1], &all] {
        damage_sectors(&devices, numbers);
        let volume = devices.open();
        assert!(matches!(volume.reader.read(MapId(1), 0, BLOCK_BYTES), Err(Error::Corrupt { .. })));
        assert!(!checker(&volume).check(true, &mut |_, _| ()).unwrap().is_clean());
        // Without leave to repair, nothing that a damaged entry may keep in use becomes free.
        fixer(&volume).repair(Remedy::Safe, &mut |_, _, _| ()).unwrap();
        repair(&volume);
        assert_content(&volume, &files);
        drop(volume);
        assert_content(&devices.open(), &files);
    }
}

#[test]
fn a_volume_in_use_searches_its_packs_for_fragments_with_damaged_entries_and_reads_them() {
    let devices = Devices::new(Blocks(2_000), zstd());
    let files = vec![(MapId(1), text(60, 1)), (MapId(2), text(60, 2))];
    let volume = written(&devices, &files);
    compress_all(&volume);
    let (first, second) = (pbns_of(&volume, MapId(1))[0], pbns_of(&volume, MapId(2))[30]);
    volume.commits.checkpoint().unwrap();
    drop(volume);
    damage_sectors(&devices, &[first, second]);
    let volume = devices.open();
    assert_eq!(volume.fragment_finder.find_some().unwrap(), None, "nothing is known to be damaged");
    let is_read = |(map, content): &(MapId, Vec<u8>)| match volume.reader.read(*map, 0, content.len()) {
        Ok(read) => *read == **content,
        Err(Error::Corrupt { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    assert!(files.iter().all(|file| !is_read(file)));
    while volume.fragment_finder.find_some().unwrap().is_some() {}
    assert!(files.iter().all(is_read));
    // Nothing of it changes before fsck.
    volume.range_changes.truncate(MapId(1), 0, |_, _| ()).unwrap_err();
    repack_all(&volume);
    assert!(files.iter().all(is_read));
    drop(volume);
    let volume = devices.open();
    repair(&volume);
    assert_content(&volume, &files);
}

#[test]
fn what_was_not_found_again_is_an_error_and_can_be_removed() {
    let devices = Devices::new(Blocks(2_000), zstd());
    let files = vec![(MapId(1), text(60, 1)), (MapId(2), text(60, 2))];
    let volume = written(&devices, &files);
    compress_all(&volume);
    let first = pbns_of(&volume, MapId(1))[0];
    let end = place_of(&volume, first).pack_end();
    volume.commits.checkpoint().unwrap();
    drop(volume);
    damage_sectors(&devices, &[first]);
    devices.data.write_at(&[0xFF; 8], end.0 * BLOCK + BLOCK - 20).unwrap();
    let volume = devices.open();
    repair(&volume);
    let read = |n: u64| volume.reader.read(MapId(1), n * BLOCK, BLOCK_BYTES).map(|read| read.to_vec());
    let lost = (0..60).filter(|n| read(*n).is_err()).count();
    assert!((1..=12).contains(&lost), "{lost} blocks are lost with a sector");
    for (n, block) in (0..).zip(files[0].1.chunks(BLOCK_BYTES)) {
        assert!(read(n).is_ok_and(|read| read == block) || read(n).is_err(), "block {n} has other bytes");
    }
    for (map, _) in &files {
        volume.range_changes.truncate(*map, 0, |_, _| ()).unwrap();
    }
    volume.commits.checkpoint().unwrap();
    let report = checker(&volume).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
    assert_eq!(used(&volume), 1);
}

#[test]
fn a_number_with_other_content_by_now_gets_its_newest_place_back() {
    let devices = Devices::new(Blocks(6_000), zstd());
    let (volume, mut files) = with_gaps(&devices, 200, 2);
    // Packs with directories that name freed numbers are still there. The numbers are handed out again.
    let before: Vec<Pbn> = (1..4).flat_map(|n| pbns_of(&volume, MapId(n))).collect();
    let more = (MapId(9), text(250, 9));
    volume.write(more.0, 0, &more.1, |_, _| ()).unwrap();
    files.push(more);
    volume.commits.commit().unwrap();
    compress_all(&volume);
    let again = pbns_of(&volume, MapId(9));
    assert!(again.iter().all(|pbn| is_fragment(*pbn) && !before.contains(pbn)));
    volume.commits.checkpoint().unwrap();
    // A move in between, whose directories are newer than those of the first packs.
    repack_all(&volume);
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let numbers: Vec<Pbn> = again.into_iter().chain(before).filter(|pbn| is_fragment(*pbn)).collect();
    damage_sectors(&devices, &numbers);
    let volume = devices.open();
    repair(&volume);
    assert_content(&volume, &files);
}

#[test]
fn each_contradiction_between_packs_and_fragments_is_named_and_put_right_if_that_is_certain() {
    type Break = fn(&mut crate::state::published::State, Pbn, FragmentPlace);
    type Named = fn(&Fault) -> bool;
    let cases: [(Break, Named, bool); 5] = [
        // The length of a pack.
        (
            |state, _, place| {
                let end = place.pack_end();
                let entry = state.table.entry(end).unwrap();
                state.table.edit(page_of(end)).set(end, &crate::format::page::Entry { tag: crate::Tag(7), ..entry });
            },
            |fault| matches!(fault, Fault::PackBytes { stored: 7, .. }),
            true,
        ),
        // How many fragments a block holds: one too many, and one too few.
        (
            |state, _, place| {
                let block = place.blocks().next().unwrap();
                let count = state.table.entry(block).unwrap().count;
                state.table.edit(page_of(block)).set_count(block, count + 1);
            },
            |fault| matches!(fault, Fault::Count { stored, found, .. } if stored == &(found + 1)),
            true,
        ),
        (
            |state, _, place| {
                let block = place.pack_end();
                let count = state.table.entry(block).unwrap().count;
                state.table.edit(page_of(block)).set_count(block, count - 1);
            },
            |fault| matches!(fault, Fault::Count { stored, found, .. } if stored + 1 == *found),
            true,
        ),
        // Two fragments in one place.
        (
            |state, pbn, place| state.table.edit(page_of(pbn)).set_fragment_place(pbn.plus(1), place),
            |fault| matches!(fault, Fault::Overlap { .. }),
            false,
        ),
        // How much is compressed.
        (|state, _, _| state.fragment_totals.blocks += 1, |fault| matches!(fault, Fault::FragmentTotals { .. }), true),
    ];
    for (n, (break_it, is_named, is_mended)) in cases.into_iter().enumerate() {
        println!("case {n}");
        let devices = Devices::new(Blocks(2_000), zstd());
        let files = vec![(MapId(1), text(100, 1))];
        let volume = written(&devices, &files);
        compress_all(&volume);
        volume.commits.checkpoint().unwrap();
        let pbn = pbns_of(&volume, MapId(1))[20];
        let place = place_of(&volume, pbn);
        volume.metadata.with_pages(|| place.holders().map(page_of).collect(), |_| ()).unwrap();
        break_it(&mut volume.base.state.lock(), pbn, place);
        let report = checker(&volume).check(false, &mut |_, _| ()).unwrap();
        assert!(report.faults.iter().any(is_named), "{:#?}", report.problems);
        repair(&volume);
        let report = checker(&volume).check(true, &mut |_, _| ()).unwrap();
        assert_eq!(report.is_clean(), is_mended, "{:#?}", report.problems);
        let block = &files[0].1[20 * BLOCK_BYTES..21 * BLOCK_BYTES];
        assert!(*volume.reader.read(MapId(1), 20 * BLOCK, BLOCK_BYTES).unwrap() == *block);
    }
}

#[test]
fn a_damaged_pack_stays_where_it_is_and_its_fragment_is_suspected() {
    let devices = Devices::new(Blocks(3_000), zstd());
    let (volume, files) = with_gaps(&devices, 100, 8);
    let pbn = pbns_of(&volume, MapId(1))[8];
    let place = place_of(&volume, pbn);
    let mut byte = [0];
    devices.data.read_at(&mut byte, place.at + 9).unwrap();
    devices.data.write_at(&[byte[0] ^ 0x20], place.at + 9).unwrap();
    repack_all(&volume);
    assert_eq!(place_of(&volume, pbn), place);
    volume.repairs.repair_noticed().unwrap();
    assert!(volume.metadata.known_entry(pbn).unwrap().is_bad());
    assert!(volume.base.stats.counters.fragments_repacked.load(Relaxed) > 0, "other packs moved");
    for (map, content) in &files {
        for (n, block) in content.chunks(BLOCK_BYTES).enumerate() {
            match volume.reader.read(*map, n as u64 * BLOCK, BLOCK_BYTES) {
                Ok(read) => assert!(*read == *block, "block {n} of {map:?} has other bytes"),
                Err(error) => assert!((*map, n) == (MapId(1), 8), "block {n} of {map:?}: {error}"),
            }
        }
    }
}

/// A volume whose repacking passed over a pack with a damaged entry.
pub fn passed_over() -> (Volume, Files) {
    let devices = Devices::new(Blocks(3_000), zstd());
    let (volume, files) = with_gaps(&devices, 300, 8);
    let places: Vec<FragmentPlace> = pbns_of(&volume, MapId(1))
        .into_iter()
        .filter(|pbn| is_fragment(*pbn))
        .map(|pbn| place_of(&volume, pbn))
        .collect();
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let sector = |pbn: Pbn| (page_of(pbn), Page::sector_of(pbn));
    let first = |place: &FragmentPlace| place.blocks().next().unwrap();
    let apart = places.iter().find(|place| sector(first(place)) != sector(place.pack_end())).unwrap();
    damage_entry(&devices, first(apart));
    let volume = devices.open();
    repack_all(&volume);
    (volume, files)
}

#[test]
fn a_pack_whose_first_block_has_a_damaged_entry_stays_and_the_others_move() {
    let (volume, files) = passed_over();
    let counters = volume.base.stats.counters.snapshot();
    assert!(counters["fragments_repacked"] > 0, "other packs moved");
    assert!(counters["packs_passed_over"] > 0);
    assert_eq!(volume.repacker.repack_some(64).unwrap(), None, "the pass has ended");
    for (map, content) in &files {
        assert!(*volume.reader.read(*map, 0, content.len()).unwrap() == **content, "map {} has other bytes", map.0);
    }
    repair(&volume);
    assert_content(&volume, &files);
}

#[test]
fn a_place_that_was_found_is_forgotten_when_the_entry_is_readable_again() {
    let devices = Devices::new(Blocks(2_000), zstd());
    let files = vec![(MapId(1), text(60, 1)), (MapId(2), text(60, 2))];
    let volume = written(&devices, &files);
    compress_all(&volume);
    let first = pbns_of(&volume, MapId(1))[0];
    let place = place_of(&volume, first);
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let page = page_of(first) - FIRST_PAGE;
    let at = page * PAGE_BYTES as u64;
    let mut sound = vec![0; PAGE_BYTES];
    devices.fragments.read_at(&mut sound, at).unwrap();
    damage_sectors(&devices, &[first]);
    let volume = devices.open();
    assert!(volume.reader.read(MapId(1), 0, BLOCK_BYTES).is_err());
    while volume.fragment_finder.find_some().unwrap().is_some() {}
    let table = volume.base.damage.table();
    assert_eq!(table.found_place(first).map(|(_, place)| place), Some(place));
    assert!(*volume.reader.read(MapId(1), 0, BLOCK_BYTES).unwrap() == files[0].1[..BLOCK_BYTES]);
    // The disk gives the sector back.
    let sound = Page::as_found(page_of(first), sound.as_slice().try_into().unwrap());
    table.note_read(page_of(first), &sound);
    assert_eq!(table.found_place(first), None);
    assert_eq!(table.unknown_blocks().blocks, 0);
}

#[test]
fn a_found_place_with_other_content_than_its_pack_lists_is_an_error() {
    let devices = Devices::new(Blocks(2_000), zstd());
    let files = vec![(MapId(1), text(60, 1))];
    let volume = written(&devices, &files);
    compress_all(&volume);
    let numbers = pbns_of(&volume, MapId(1));
    let other = place_of(&volume, numbers[40]);
    let tag = volume.metadata.known_entry(numbers[0]).unwrap().tag;
    volume.commits.checkpoint().unwrap();
    drop(volume);
    damage_sectors(&devices, &numbers[..1]);
    let volume = devices.open();
    assert!(volume.reader.read(MapId(1), 0, BLOCK_BYTES).is_err());
    let table = volume.base.damage.table();
    assert!(table.begin_search().contains(&numbers[0]));
    table.add_found([(numbers[0], (tag, other))].into_iter());
    assert!(matches!(volume.reader.read(MapId(1), 0, BLOCK_BYTES), Err(Error::Corrupt { .. })));
}
