//! Merging of copies in memory, on disk, in the log only, after power cuts, and at random.

use super::*;
use crate::volume::assembly::Volume;

#[test]
fn two_files_of_the_same_content_take_the_blocks_of_one() {
    for fingerprints in [FingerprintMode::Eager, FingerprintMode::Lazy, FingerprintMode::Auto] {
        let devices = Devices::new(DATA, Settings { fingerprints, ..settings(Inline::Off) });
        let core = devices.open();
        core.hint_levels.fill_hints().unwrap();
        let data = unique(700, 1);
        write(&core, 1, 0, &data);
        write(&core, 2, 5, &data);
        assert_eq!((used(&core), core.free_blocks.totals().mapped), (1_400, Blocks(1_400)));
        revisit_all(&core);
        assert_eq!((used(&core), core.free_blocks.totals().mapped), (700, Blocks(1_400)), "{fingerprints:?}");
        assert_eq!(counter(&core, "blocks_remapped"), 700);
        assert!(counter(&core, "blocks_compared") > 0, "no block has a fingerprint yet: they are compared");
        let shared = entry(&core, pbn(&core, 1, 600));
        assert_eq!(shared.count, 2);
        assert!(shared.fingerprint.is_some(), "a target is compared but once");
        assert_holds(&core, 1, &data);
        assert_holds(&core, 2, &[vec![0; 5 * BLOCK_BYTES], data.clone()].concat());
        assert_clean(&core);
        core.commits.commit().unwrap();
        let core = devices.after_power_cut_of_all().open();
        assert_eq!((used(&core), core.free_blocks.totals().mapped), (700, Blocks(1_400)));
        assert_holds(&core, 1, &data);
        assert_clean(&core);
    }
}

#[test]
fn a_scan_sees_what_only_memory_has_of_the_block_table_and_fingerprints_spare_reads() {
    let devices = Devices::new(DATA, Settings { fingerprints: FingerprintMode::Eager, ..settings(Inline::All) });
    let core = devices.open();
    core.hint_levels.fill_hints().unwrap();
    let data = unique(100, 1);
    write(&core, 1, 0, &data);
    core.base.hints.clear_memory();
    write(&core, 2, 0, &data);
    assert_eq!(used(&core), 200);
    core.hint_levels.scan_table().unwrap();
    revisit_all(&core);
    assert_eq!((used(&core), counter(&core, "blocks_compared")), (100, 0));
    assert_clean(&core);
}

#[test]
fn a_block_compared_with_one_of_other_content_and_equal_tag_is_left_alone() {
    let (_devices, core) = volume(Inline::Off);
    tune(&core, "verify", "off").unwrap();
    let (a, b) = (unique(40, 1), unique(40, 2));
    write(&core, 1, 0, &a);
    write(&core, 2, 0, &b);
    let (own, other) = (pbn(&core, 1, 0), pbn(&core, 2, 0));
    let tag = entry(&core, own).tag;
    {
        // A collision of tags cannot be produced, so it is planted in the table.
        let mut state = core.base.state.lock();
        let page = state.table.edit(crate::format::page::page_of(other));
        let entry = page.entry(other);
        page.set(other, &Entry { tag, ..entry });
    }
    core.hint_levels.update_hints(&[], &[(tag, other)]);
    revisit_all(&core);
    assert_eq!(used(&core), 80);
    assert!(counter(&core, "hints_refused") > 0);
    assert_holds(&core, 1, &a);
    assert_holds(&core, 2, &b);
}

#[test]
fn equal_blocks_within_one_file_and_many_copies_of_one_block_meet_in_one() {
    let (_devices, core) = volume(Inline::Off);
    let block = unique(1, 1);
    let data = block.repeat(600);
    write(&core, 1, 0, &data);
    write(&core, 2, 0, &data[..40 * BLOCK_BYTES]);
    assert_eq!(used(&core), 640);
    work_all(&core, false);
    assert_eq!(used(&core), 1);
    assert_holds(&core, 1, &data);
    assert_clean(&core);
}

/// More holders of one content than either level keeps: dropped ones must not be searched for again and again.
#[test]
fn more_equal_blocks_than_a_level_keeps_holders_do_not_keep_the_worker_scanning() {
    let (_devices, core) = volume(Inline::Off);
    // 40 copies of each of 60 blocks lie between unique ones, so that all of them leave memory.
    let (popular, other) = (unique(60, 1), unique(2_400, 2));
    for copy in 0..40 {
        write(&core, 1, copy * 100, &popular);
        write(&core, 1, copy * 100 + 60, &other[copy as usize * 40 * BLOCK_BYTES..][..40 * BLOCK_BYTES]);
        write(&core, 2, copy * 60, &other[copy as usize * 60 * BLOCK_BYTES..][..60 * BLOCK_BYTES]);
        core.hint_levels.merge_waiting_hints();
    }
    core.commits.checkpoint().unwrap();
    work_all(&core, false);
    assert_eq!(used(&core), 2_460);
    assert_clean(&core);
}

/// Files were written and deleted often, so that the disk level has more stale hints of a content than it keeps
/// holders. Then the hints in memory are lost. If stale hints keep the place of live ones, the block that all copies
/// will merge into is passed before the others are known.
#[test]
fn one_full_pass_is_enough_however_many_hints_on_disk_are_stale() {
    for seed in 0..4 {
        let (_devices, core) = volume(Inline::Off);
        let mut random = Random::new(seed + 1);
        let data = unique(700, 1);
        let mut blocks: Vec<&[u8]> = data.chunks(BLOCK_BYTES).collect();
        for map in 1..30 {
            for at in (1..blocks.len()).rev() {
                blocks.swap(at, random.below(at as u64 + 1) as usize);
            }
            // The last copies find only each other in-line. So the block with the most references is not the lowest.
            if map == 27 {
                core.base.hints.clear_memory();
                tune(&core, "inline", "all").unwrap();
            }
            write_many(&core, map, &blocks.concat());
            if map == 24 {
                (1..=24).for_each(|map| delete(&core, map));
                core.commits.commit().unwrap();
            }
        }
        core.commits.checkpoint().unwrap();
        while core.base.backlog.take(u64::MAX).is_some() {}
        core.base.hints.clear_memory();
        core.hint_levels.scan_table().unwrap();
        core.hint_levels.merge_waiting_hints();
        core.worklist.begin_full_pass();
        while core.revisits.revisit(256).unwrap().is_some() {}
        assert_eq!(used(&core), 700, "seed {seed}");
        assert_clean(&core);
    }
}

#[test]
fn a_duplicate_of_what_left_memory_is_found_on_disk_and_its_hint_comes_back() {
    let (_devices, core) = volume(Inline::All);
    let data = unique(MANY, 1);
    write_many(&core, 1, &data);
    assert!(counter(&core, "hints_demoted") > 1_000, "the test has to fill the disk level");
    let oldest = &data[..200 * BLOCK_BYTES];
    write(&core, 2, 0, oldest);
    assert_eq!(used(&core), MANY as u64 + 200, "in-line knows memory only");
    revisit_all(&core);
    assert_eq!(used(&core), MANY as u64);
    assert!(counter(&core, "disk_level_hits") > 0 && counter(&core, "hints_promoted") > 0);
    write(&core, 3, 0, oldest);
    assert_eq!(used(&core), MANY as u64, "a third copy is shared as it is written");
    for map in [2, 3] {
        assert_holds(&core, map, oldest);
    }
    assert_clean(&core);
}

/// The second and third copy are written before the worker comes: the third shares the second in-line, so that
/// the second has two references, of which only one is known as skipped.
#[test]
fn copies_that_found_each_other_in_line_are_merged_with_the_one_on_disk() {
    let (_devices, core) = volume(Inline::All);
    let data = unique(MANY, 1);
    write_many(&core, 1, &data);
    revisit_all(&core);
    let oldest = &data[..200 * BLOCK_BYTES];
    write(&core, 2, 0, oldest);
    write(&core, 3, 0, oldest);
    assert!(counter(&core, "blocks_shared") > 100, "the test has to come there");
    revisit_all(&core);
    assert_eq!(used(&core), MANY as u64);
}

#[test]
fn equal_blocks_whose_hints_were_both_lost_find_each_other() {
    let (_devices, core) = volume(Inline::Off);
    let data = unique(100, 1);
    write(&core, 1, 0, &data);
    write(&core, 2, 0, &data);
    core.base.hints.clear_memory();
    revisit_all(&core);
    assert_eq!(used(&core), 100);
    assert_eq!(counter(&core, "hints_repaired"), 200);
}

#[test]
fn a_clone_of_a_skipped_block_is_merged_with_it() {
    let (_devices, core) = volume(Inline::Off);
    let data = unique(100, 1);
    write(&core, 1, 0, &data);
    revisit_all(&core);
    write(&core, 2, 0, &data);
    core.clone_blocks((MapId(2), Lbn(0)), (MapId(3), Lbn(0)), Blocks(100), |_, _| ()).unwrap();
    revisit_all(&core);
    assert_eq!(used(&core), 100);
    assert_holds(&core, 3, &data);
    assert_clean(&core);
}

#[test]
fn skipped_blocks_that_are_written_again_with_the_same_bytes_are_still_looked_at() {
    let (_devices, core) = volume(Inline::Off);
    let data = unique(100, 1);
    write(&core, 1, 0, &data);
    write(&core, 2, 0, &data);
    tune(&core, "inline", "all").unwrap();
    write(&core, 1, 0, &data);
    write(&core, 2, 0, &data);
    revisit_all(&core);
    assert_eq!(used(&core), 100);
}

#[test]
fn blocks_that_are_in_memory_or_in_the_log_only_are_remapped_and_survive() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let (devices, core) = volume(Inline::Off);
        let data = unique(10, seed);
        write(&core, 1, 0, &data);
        let rides = random.below(2) == 0;
        if rides {
            core.commits.commit().unwrap();
        }
        write(&core, 2, 3, &data);
        if random.below(2) == 0 {
            core.commits.commit().unwrap();
        }
        revisit_all(&core);
        assert_eq!(used(&core), 10);
        let is_durable = random.below(2) == 0;
        match is_durable {
            true if random.below(2) == 0 => core.commits.commit().unwrap(),
            true => core.commits.checkpoint().unwrap(),
            false => {}
        }
        core.groups.release_waiting();
        assert_holds(&core, 1, &data);
        let cut = devices.after_power_cut(&mut random);
        let core = cut.open();
        assert_clean(&core);
        if is_durable || rides {
            assert_holds(&core, 1, &data);
        }
        if is_durable {
            assert_holds(&core, 2, &[vec![0; 3 * BLOCK_BYTES], data.clone()].concat());
            assert_eq!(used(&core), 10);
        }
        // Freed blocks are reused, and no live block is overwritten.
        write(&core, 4, 0, &unique(900, seed + 1_000));
        core.commits.commit().unwrap();
        assert_clean(&core);
    }
}

#[test]
fn after_a_power_cut_everything_is_looked_at_once() {
    let (devices, core) = volume(Inline::Off);
    let data = unique(300, 1);
    write(&core, 1, 0, &data);
    core.backlog_notes.checkpoint_backlog(0);
    write(&core, 2, 0, &data);
    core.commits.commit().unwrap();
    let core = devices.after_power_cut_of_all().open();
    assert!(core.work_loop.dedup_status().full_pass);
    core.hint_levels.fill_hints().unwrap();
    revisit_all(&core);
    assert_eq!(used(&core), 300);
    assert!(!core.work_loop.dedup_status().full_pass);
    assert_clean(&core);
}

#[test]
fn after_a_clean_unmount_the_worker_goes_on_where_it_was() {
    let (devices, core) = volume(Inline::Off);
    let data = unique(300, 1);
    write(&core, 1, 0, &data);
    revisit_all(&core);
    write(&core, 2, 0, &data);
    close(&core);
    let core = devices.open();
    let status = core.work_loop.dedup_status();
    assert_eq!((status.full_pass, status.skipped_blocks), (false, 300));
    core.hint_levels.fill_hints().unwrap();
    revisit_all(&core);
    assert_eq!(used(&core), 300);
    close(&core);
    let core = devices.open();
    assert!(!core.worklist.is_revisit_left(), "all was done");
    drop(core);
    // The same mount, cut off: nothing was committed, so the state of the clean unmount is still true.
    let core = devices.after_power_cut_of_all().open();
    assert!(!core.worklist.is_revisit_left());
    write(&core, 3, 0, &unique(1, 2));
    core.commits.commit().unwrap();
    assert!(devices.after_power_cut_of_all().open().work_loop.dedup_status().skipped_files == 0);
}

#[test]
fn a_pass_in_the_middle_goes_on_after_a_clean_unmount() {
    let (devices, core) = volume(Inline::Off);
    let data = unique(5_000, 1);
    write_many(&core, 1, &data);
    write_many(&core, 2, &data);
    core.base.backlog.restore([Skipped::Everything]);
    core.revisits.revisit(10).unwrap();
    close(&core);
    let core = devices.open();
    core.hint_levels.fill_hints().unwrap();
    assert!(core.work_loop.dedup_status().full_pass);
    work_all(&core, false);
    assert_eq!(used(&core), 5_000);
    assert_clean(&core);
}

#[test]
fn a_clean_unmount_spares_the_scan_and_nothing_is_missing() {
    let (devices, core) = volume(Inline::All);
    let data = unique(MANY, 1);
    write_many(&core, 1, &data);
    revisit_all(&core);
    close(&core);
    let core = devices.open();
    core.hint_levels.fill_hints().unwrap();
    assert_eq!(core.base.hints.coverage().take_pages_scanned(), 0, "the table was not scanned");
    write_many(&core, 2, &data);
    revisit_all(&core);
    assert_eq!(used(&core), MANY as u64);
    assert_eq!(counter(&core, "hints_repaired"), 0, "both levels named every block");
    // The mark is about the commit before. After one more commit it does not count.
    core.commits.commit().unwrap();
    let core = devices.open();
    core.hint_levels.fill_hints().unwrap();
    assert!(core.base.hints.coverage().take_pages_scanned() > 0);
    write_many(&core, 3, &data);
    revisit_all(&core);
    assert_eq!(used(&core), MANY as u64);
    assert_clean(&core);
}

struct Chance {
    random: Random,
    core: Volume,
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
                write(&self.core, map, at, &data);
            }
            5 => {
                bytes.resize(from + 100, 0);
                self.core.range_changes.truncate(MapId(map), from as u64 + 100, |_, _| ()).unwrap();
            }
            6 => {
                let (source, copied) = self.files[(slot + 1) % self.files.len()].clone();
                let mut copied = copied;
                copied.resize(copied.len().max(end).next_multiple_of(BLOCK_BYTES), 0);
                bytes.resize(bytes.len().max(end), 0);
                bytes[from..end].copy_from_slice(&copied[from..end]);
                let source = (MapId(source), Lbn(at));
                self.core.clone_blocks(source, (MapId(map), Lbn(at)), Blocks(blocks), |_, _| ()).unwrap();
            }
            7 => {
                delete(&self.core, map);
                self.next_map += 1;
                self.files[slot] = (self.next_map, Vec::new());
                return;
            }
            8 => drop(self.core.revisits.revisit(1 + self.random.below(300)).unwrap()),
            _ => match self.random.below(5) {
                0 => self.core.commits.commit().unwrap(),
                1 => self.core.commits.checkpoint().unwrap(),
                2 => self.core.hint_levels.merge_waiting_hints(),
                3 => drop(self.core.hint_levels.sweep_hint_page()),
                _ => drop(self.core.work_loop.work()),
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
        let core = devices.open();
        core.hint_levels.fill_hints().unwrap();
        let files = (1..8).map(|map| (map, Vec::new())).collect();
        let mut chance = Chance { random: Random::new(seed), core, files, next_map: 100 };
        for _ in 0..120 {
            chance.step();
        }
        for (map, bytes) in &chance.files {
            assert_holds(&chance.core, *map, bytes);
        }
        work_all(&chance.core, true);
        assert_eq!(used(&chance.core), chance.unique_blocks());
        for (map, bytes) in &chance.files {
            assert_holds(&chance.core, *map, bytes);
        }
        assert_clean(&chance.core);
        chance.core.base.hints.check();
        chance.core.commits.commit().unwrap();
        let core = devices.after_power_cut_of_all().open();
        assert_clean(&core);
        for (map, bytes) in &chance.files {
            assert_holds(&core, *map, bytes);
        }
    }
}
