//! Merging of copies in memory, on disk, in the log only, after power cuts, and at random.

use super::*;
use crate::volume::assembly::Volume;

#[test]
fn two_files_of_the_same_content_take_the_blocks_of_one() {
    for fingerprints in [FingerprintMode::Eager, FingerprintMode::Lazy, FingerprintMode::Auto] {
        let devices = Devices::new(DATA, Settings { fingerprints, ..settings(Inline::Off) });
        let volume = devices.open();
        volume.hint_levels.fill_hints().unwrap();
        let data = unique(700, 1);
        write(&volume, 1, 0, &data);
        write(&volume, 2, 5, &data);
        assert_eq!((used(&volume), volume.free_blocks.totals().mapped), (1_400, Blocks(1_400)));
        revisit_all(&volume);
        assert_eq!((used(&volume), volume.free_blocks.totals().mapped), (700, Blocks(1_400)), "{fingerprints:?}");
        assert_eq!(counter(&volume, "blocks_remapped"), 700);
        assert!(counter(&volume, "blocks_compared") > 0, "no block has a fingerprint yet: they are compared");
        let shared = entry(&volume, pbn(&volume, 1, 600));
        assert_eq!(shared.count, 2);
        assert!(shared.fingerprint.is_some(), "a target is compared but once");
        assert_holds(&volume, 1, &data);
        assert_holds(&volume, 2, &[vec![0; 5 * BLOCK_BYTES], data.clone()].concat());
        assert_clean(&volume);
        volume.commits.commit().unwrap();
        let volume = devices.after_power_cut_of_all().open();
        assert_eq!((used(&volume), volume.free_blocks.totals().mapped), (700, Blocks(1_400)));
        assert_holds(&volume, 1, &data);
        assert_clean(&volume);
    }
}

#[test]
fn a_scan_sees_what_only_memory_has_of_the_block_table_and_fingerprints_spare_reads() {
    let devices = Devices::new(DATA, Settings { fingerprints: FingerprintMode::Eager, ..settings(Inline::All) });
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    let data = unique(100, 1);
    write(&volume, 1, 0, &data);
    volume.base.hints.clear_memory();
    write(&volume, 2, 0, &data);
    assert_eq!(used(&volume), 200);
    volume.hint_levels.scan_table().unwrap();
    revisit_all(&volume);
    assert_eq!((used(&volume), counter(&volume, "blocks_compared")), (100, 0));
    assert_clean(&volume);
}

#[test]
fn a_block_compared_with_one_of_other_content_and_equal_tag_is_left_alone() {
    let (_devices, volume) = volume(Inline::Off);
    tune(&volume, "verify", "off").unwrap();
    let (a, b) = (unique(40, 1), unique(40, 2));
    write(&volume, 1, 0, &a);
    write(&volume, 2, 0, &b);
    let (own, other) = (pbn(&volume, 1, 0), pbn(&volume, 2, 0));
    let tag = entry(&volume, own).tag;
    {
        // A collision of tags cannot be produced, so it is planted in the table.
        let mut state = volume.base.state.lock();
        let page = state.table.edit(crate::format::page::page_of(other));
        let entry = page.entry(other);
        page.set(other, &Entry { tag, ..entry });
    }
    volume.hint_levels.update_hints(&[], &[(tag, other)]);
    revisit_all(&volume);
    assert_eq!(used(&volume), 80);
    assert!(counter(&volume, "hints_refused") > 0);
    assert_holds(&volume, 1, &a);
    assert_holds(&volume, 2, &b);
}

#[test]
fn equal_blocks_within_one_file_and_many_copies_of_one_block_meet_in_one() {
    let (_devices, volume) = volume(Inline::Off);
    let block = unique(1, 1);
    let data = block.repeat(600);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &data[..40 * BLOCK_BYTES]);
    assert_eq!(used(&volume), 640);
    work_all(&volume, false);
    assert_eq!(used(&volume), 1);
    assert_holds(&volume, 1, &data);
    assert_clean(&volume);
}

/// More holders of one content than either level keeps: dropped ones must not be searched for again and again.
#[test]
fn more_equal_blocks_than_a_level_keeps_holders_do_not_keep_the_worker_scanning() {
    let (_devices, volume) = volume(Inline::Off);
    // 40 copies of each of 60 blocks lie between unique ones, so that all of them leave memory.
    let (popular, other) = (unique(60, 1), unique(2_400, 2));
    for copy in 0..40 {
        write(&volume, 1, copy * 100, &popular);
        write(&volume, 1, copy * 100 + 60, &other[copy as usize * 40 * BLOCK_BYTES..][..40 * BLOCK_BYTES]);
        write(&volume, 2, copy * 60, &other[copy as usize * 60 * BLOCK_BYTES..][..60 * BLOCK_BYTES]);
        volume.hint_levels.merge_waiting_hints();
    }
    volume.commits.checkpoint().unwrap();
    work_all(&volume, false);
    assert_eq!(used(&volume), 2_460);
    assert_clean(&volume);
}

/// Files were written and deleted often, so that the disk level has more stale hints of a content than it keeps
/// holders. Then the hints in memory are lost. If stale hints keep the place of live ones, the block that all copies
/// will merge into is passed before the others are known.
#[test]
fn one_full_pass_is_enough_however_many_hints_on_disk_are_stale() {
    for seed in 0..4 {
        let (_devices, volume) = volume(Inline::Off);
        let mut random = Random::new(seed + 1);
        let data = unique(700, 1);
        let mut blocks: Vec<&[u8]> = data.chunks(BLOCK_BYTES).collect();
        for map in 1..30 {
            for at in (1..blocks.len()).rev() {
                blocks.swap(at, random.below(at as u64 + 1) as usize);
            }
            // The last copies find only each other in-line. So the block with the most references is not the lowest.
            if map == 27 {
                volume.base.hints.clear_memory();
                tune(&volume, "inline", "all").unwrap();
            }
            write_many(&volume, map, &blocks.concat());
            if map == 24 {
                (1..=24).for_each(|map| delete(&volume, map));
                volume.commits.commit().unwrap();
            }
        }
        volume.commits.checkpoint().unwrap();
        while volume.base.backlog.take(u64::MAX).is_some() {}
        volume.base.hints.clear_memory();
        volume.hint_levels.scan_table().unwrap();
        volume.hint_levels.merge_waiting_hints();
        volume.worklist.begin_full_pass();
        while volume.revisits.revisit(256).unwrap().is_some() {}
        assert_eq!(used(&volume), 700, "seed {seed}");
        assert_clean(&volume);
    }
}

#[test]
fn a_duplicate_of_what_left_memory_is_found_on_disk_and_its_hint_comes_back() {
    let (_devices, volume) = volume(Inline::All);
    let data = unique(MANY, 1);
    write_many(&volume, 1, &data);
    assert!(counter(&volume, "hints_demoted") > 1_000, "the test has to fill the disk level");
    let oldest = &data[..200 * BLOCK_BYTES];
    write(&volume, 2, 0, oldest);
    assert_eq!(used(&volume), MANY as u64 + 200, "in-line knows memory only");
    revisit_all(&volume);
    assert_eq!(used(&volume), MANY as u64);
    assert!(counter(&volume, "disk_level_hits") > 0 && counter(&volume, "hints_promoted") > 0);
    write(&volume, 3, 0, oldest);
    assert_eq!(used(&volume), MANY as u64, "a third copy is shared as it is written");
    for map in [2, 3] {
        assert_holds(&volume, map, oldest);
    }
    assert_clean(&volume);
}

/// The second and third copy are written before the worker comes: the third shares the second in-line, so that
/// the second has two references, of which only one is known as skipped.
#[test]
fn copies_that_found_each_other_in_line_are_merged_with_the_one_on_disk() {
    let (_devices, volume) = volume(Inline::All);
    let data = unique(MANY, 1);
    write_many(&volume, 1, &data);
    revisit_all(&volume);
    let oldest = &data[..200 * BLOCK_BYTES];
    write(&volume, 2, 0, oldest);
    write(&volume, 3, 0, oldest);
    assert!(counter(&volume, "blocks_shared") > 100, "the test has to come there");
    revisit_all(&volume);
    assert_eq!(used(&volume), MANY as u64);
}

#[test]
fn equal_blocks_whose_hints_were_both_lost_find_each_other() {
    let (_devices, volume) = volume(Inline::Off);
    let data = unique(100, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &data);
    volume.base.hints.clear_memory();
    revisit_all(&volume);
    assert_eq!(used(&volume), 100);
    assert_eq!(counter(&volume, "hints_repaired"), 200);
}

#[test]
fn a_clone_of_a_skipped_block_is_merged_with_it() {
    let (_devices, volume) = volume(Inline::Off);
    let data = unique(100, 1);
    write(&volume, 1, 0, &data);
    revisit_all(&volume);
    write(&volume, 2, 0, &data);
    volume.clone_blocks((MapId(2), Lbn(0)), (MapId(3), Lbn(0)), Blocks(100), |_, _| ()).unwrap();
    revisit_all(&volume);
    assert_eq!(used(&volume), 100);
    assert_holds(&volume, 3, &data);
    assert_clean(&volume);
}

#[test]
fn skipped_blocks_that_are_written_again_with_the_same_bytes_are_still_looked_at() {
    let (_devices, volume) = volume(Inline::Off);
    let data = unique(100, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &data);
    tune(&volume, "inline", "all").unwrap();
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &data);
    revisit_all(&volume);
    assert_eq!(used(&volume), 100);
}

#[test]
fn blocks_that_are_in_memory_or_in_the_log_only_are_remapped_and_survive() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let (devices, volume) = volume(Inline::Off);
        let data = unique(10, seed);
        write(&volume, 1, 0, &data);
        let rides = random.below(2) == 0;
        if rides {
            volume.commits.commit().unwrap();
        }
        write(&volume, 2, 3, &data);
        if random.below(2) == 0 {
            volume.commits.commit().unwrap();
        }
        revisit_all(&volume);
        assert_eq!(used(&volume), 10);
        let is_durable = random.below(2) == 0;
        match is_durable {
            true if random.below(2) == 0 => volume.commits.commit().unwrap(),
            true => volume.commits.checkpoint().unwrap(),
            false => {}
        }
        volume.groups.release_waiting();
        assert_holds(&volume, 1, &data);
        let cut = devices.after_power_cut(&mut random);
        let volume = cut.open();
        assert_clean(&volume);
        if is_durable || rides {
            assert_holds(&volume, 1, &data);
        }
        if is_durable {
            assert_holds(&volume, 2, &[vec![0; 3 * BLOCK_BYTES], data.clone()].concat());
            assert_eq!(used(&volume), 10);
        }
        // Freed blocks are reused, and no live block is overwritten.
        write(&volume, 4, 0, &unique(900, seed + 1_000));
        volume.commits.commit().unwrap();
        assert_clean(&volume);
    }
}

#[test]
fn after_a_power_cut_everything_is_looked_at_once() {
    let (devices, volume) = volume(Inline::Off);
    let data = unique(300, 1);
    write(&volume, 1, 0, &data);
    volume.backlog_notes.checkpoint_backlog(0);
    write(&volume, 2, 0, &data);
    volume.commits.commit().unwrap();
    let volume = devices.after_power_cut_of_all().open();
    assert!(volume.work_loop.dedup_status().full_pass);
    volume.hint_levels.fill_hints().unwrap();
    revisit_all(&volume);
    assert_eq!(used(&volume), 300);
    assert!(!volume.work_loop.dedup_status().full_pass);
    assert_clean(&volume);
}

#[test]
fn after_a_clean_unmount_the_worker_goes_on_where_it_was() {
    let (devices, volume) = volume(Inline::Off);
    let data = unique(300, 1);
    write(&volume, 1, 0, &data);
    revisit_all(&volume);
    write(&volume, 2, 0, &data);
    close(&volume);
    let volume = devices.open();
    let status = volume.work_loop.dedup_status();
    assert_eq!((status.full_pass, status.skipped_blocks), (false, 300));
    volume.hint_levels.fill_hints().unwrap();
    revisit_all(&volume);
    assert_eq!(used(&volume), 300);
    close(&volume);
    let volume = devices.open();
    assert!(!volume.worklist.is_revisit_left(), "all was done");
    drop(volume);
    // The same mount, cut off: nothing was committed, so the state of the clean unmount is still true.
    let volume = devices.after_power_cut_of_all().open();
    assert!(!volume.worklist.is_revisit_left());
    write(&volume, 3, 0, &unique(1, 2));
    volume.commits.commit().unwrap();
    assert!(devices.after_power_cut_of_all().open().work_loop.dedup_status().skipped_files == 0);
}

#[test]
fn a_pass_in_the_middle_goes_on_after_a_clean_unmount() {
    let (devices, volume) = volume(Inline::Off);
    let data = unique(5_000, 1);
    write_many(&volume, 1, &data);
    write_many(&volume, 2, &data);
    volume.base.backlog.restore([Skipped::Everything]);
    volume.revisits.revisit(10).unwrap();
    close(&volume);
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    assert!(volume.work_loop.dedup_status().full_pass);
    work_all(&volume, false);
    assert_eq!(used(&volume), 5_000);
    assert_clean(&volume);
}

#[test]
fn a_clean_unmount_spares_the_scan_and_nothing_is_missing() {
    let (devices, volume) = volume(Inline::All);
    let data = unique(MANY, 1);
    write_many(&volume, 1, &data);
    revisit_all(&volume);
    close(&volume);
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    assert_eq!(volume.base.hints.coverage().take_pages_scanned(), 0, "the table was not scanned");
    write_many(&volume, 2, &data);
    revisit_all(&volume);
    assert_eq!(used(&volume), MANY as u64);
    assert_eq!(counter(&volume, "hints_repaired"), 0, "both levels named every block");
    // The mark is about the commit before. After one more commit it does not count.
    volume.commits.commit().unwrap();
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    assert!(volume.base.hints.coverage().take_pages_scanned() > 0);
    write_many(&volume, 3, &data);
    revisit_all(&volume);
    assert_eq!(used(&volume), MANY as u64);
    assert_clean(&volume);
}

struct Chance {
    random: Random,
    volume: Volume,
    files: Vec<(u64, Vec<u8>)>,
    next_map: u64,
}

impl Chance {
    fn content(&mut self, blocks: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..blocks {
            let id = self.random.below(1_500);
            bytes.extend(if id < 50 { vec![0; BLOCK_BYTES] } else { unique(1, id) });
        }
        bytes
    }

    fn step(&mut self) {
        let slot = self.random.below(self.files.len() as u64) as usize;
        let (map, mut bytes) = self.files[slot].clone();
        let at = self.random.below(600);
        let blocks = 1 + self.random.below(80);
        let (from, end) = (at as usize * BLOCK_BYTES, (at + blocks) as usize * BLOCK_BYTES);
        match self.random.below(10) {
            0..5 => {
                let data = self.content(blocks);
                bytes.resize(bytes.len().max(end), 0);
                bytes[from..end].copy_from_slice(&data);
                write(&self.volume, map, at, &data);
            }
            5 => {
                bytes.resize(from + 100, 0);
                self.volume.range_changes.truncate(MapId(map), from as u64 + 100, |_, _| ()).unwrap();
            }
            6 => {
                let (source, copied) = self.files[(slot + 1) % self.files.len()].clone();
                let mut copied = copied;
                copied.resize(copied.len().max(end).next_multiple_of(BLOCK_BYTES), 0);
                bytes.resize(bytes.len().max(end), 0);
                bytes[from..end].copy_from_slice(&copied[from..end]);
                let source = (MapId(source), Lbn(at));
                self.volume.clone_blocks(source, (MapId(map), Lbn(at)), Blocks(blocks), |_, _| ()).unwrap();
            }
            7 => {
                delete(&self.volume, map);
                self.next_map += 1;
                self.files[slot] = (self.next_map, Vec::new());
                return;
            }
            8 => drop(self.volume.revisits.revisit(1 + self.random.below(300)).unwrap()),
            _ => match self.random.below(5) {
                0 => self.volume.commits.commit().unwrap(),
                1 => self.volume.commits.checkpoint().unwrap(),
                2 => self.volume.hint_levels.merge_waiting_hints(),
                3 => drop(self.volume.hint_levels.sweep_hint_page()),
                _ => drop(self.volume.work_loop.work()),
            },
        }
        self.files[slot] = (map, bytes);
    }

    fn unique_blocks(&self) -> u64 {
        let blocks = self.files.iter().flat_map(|(_, bytes)| bytes.chunks(BLOCK_BYTES));
        let padded = blocks.map(|block| [block, &[0; BLOCK_BYTES][block.len()..]].concat());
        padded.filter(|block| !is_zero(block)).collect::<HashSet<_>>().len() as u64
    }
}

#[test]
fn after_a_full_pass_every_content_is_stored_once_whatever_happened() {
    for seed in 0..60 {
        let inline = [Inline::Off, Inline::All, Inline::Adaptive][seed as usize % 3];
        let fingerprints = [FingerprintMode::Lazy, FingerprintMode::Eager][seed as usize / 3 % 2];
        println!("seed {seed}: {inline:?} {fingerprints:?}");
        let devices = Devices::new(DATA, Settings { fingerprints, ..settings(inline) });
        let volume = devices.open();
        volume.hint_levels.fill_hints().unwrap();
        let files = (1..8).map(|map| (map, Vec::new())).collect();
        let mut chance = Chance { random: Random::new(seed), volume, files, next_map: 100 };
        for _ in 0..120 {
            chance.step();
        }
        for (map, bytes) in &chance.files {
            assert_holds(&chance.volume, *map, bytes);
        }
        work_all(&chance.volume, true);
        assert_eq!(used(&chance.volume), chance.unique_blocks());
        for (map, bytes) in &chance.files {
            assert_holds(&chance.volume, *map, bytes);
        }
        assert_clean(&chance.volume);
        chance.volume.base.hints.check();
        chance.volume.commits.commit().unwrap();
        let volume = devices.after_power_cut_of_all().open();
        assert_clean(&volume);
        for (map, bytes) in &chance.files {
            assert_holds(&volume, *map, bytes);
        }
    }
}
