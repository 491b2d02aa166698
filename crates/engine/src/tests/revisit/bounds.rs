//! Stale hints, the bounds of hints and skipped blocks, and the effects of tuning them.

use super::*;

#[test]
fn hints_of_deleted_files_leave_memory_at_once_and_the_disk_level_by_and_by() {
    let (_devices, volume, data) = volume_with_disk_level();
    let recent = unique(20, 5);
    write(&volume, 2, 0, &recent);
    let gone: Vec<(crate::Tag, Pbn)> =
        (0..20).map(|lbn| pbn(&volume, 2, lbn)).map(|pbn| (entry(&volume, pbn).tag, pbn)).collect();
    let in_memory = |(tag, pbn): &(crate::Tag, Pbn)| volume.base.hints.peek(&[*tag]).contains(&(*tag, *pbn));
    assert!(gone.iter().all(in_memory));
    delete(&volume, 2);
    assert!(!gone.iter().any(in_memory), "the memory level forgets with the last reference");

    let on_disk = volume.base.hints.disk_level_size().1;
    delete(&volume, 1);
    volume.commits.commit().unwrap();
    volume.groups.release_waiting();
    assert_eq!((used(&volume), volume.base.hints.disk_level_size().1), (0, on_disk), "the disk level forgets lazily");

    // The same content again: the disk level names blocks that are free or hold other content by now.
    write_many(&volume, 3, &unique(2_000, 9));
    write_many(&volume, 4, &data);
    revisit_all(&volume);
    assert!(counter(&volume, "hints_stale") > 0, "stale hints are counted");
    assert_eq!(counter(&volume, "hints_refused"), 0, "and go no further than the table");
    assert_eq!(used(&volume), 2_000 + MANY as u64);
    assert_holds(&volume, 4, &data);
    assert_clean(&volume);

    delete(&volume, 3);
    delete(&volume, 4);
    volume.hint_levels.merge_waiting_hints();
    for _ in 0..TURNS_MAX {
        volume.hint_levels.sweep_hint_page();
    }
    assert_eq!(volume.base.hints.disk_level_size().1, 0, "all of them are stale");
    assert!(counter(&volume, "hints_swept") >= on_disk);
}

#[test]
fn a_sweep_leaves_what_is_live() {
    let (_devices, volume, data) = volume_with_disk_level();
    let half = unique(MANY / 2, 3);
    write_many(&volume, 2, &half);
    delete(&volume, 2);
    for _ in 0..TURNS_MAX {
        volume.hint_levels.sweep_hint_page();
    }
    write_many(&volume, 3, &data);
    revisit_all(&volume);
    assert_eq!(used(&volume), MANY as u64);
    assert_eq!(counter(&volume, "hints_repaired"), 0);
}

/// A content that comes and goes leaves more stale hints on disk than a level keeps holders.
#[test]
fn a_content_that_was_stored_and_deleted_often_is_still_found_and_keeps_nobody_scanning() {
    let (_devices, volume) = volume(Inline::All);
    let popular = unique(50, 1);
    for round in 0..24 {
        write(&volume, 10 + round, 0, &popular);
        // Its hints leave memory before it is deleted.
        write_many(&volume, 100 + round, &unique(4_000, 50 + round));
        delete(&volume, 10 + round);
        delete(&volume, 100 + round);
        volume.commits.commit().unwrap();
        volume.groups.release_waiting();
    }
    write(&volume, 1, 0, &popular);
    write_many(&volume, 2, &unique(MANY, 2));
    write(&volume, 3, 0, &popular);
    volume.commits.checkpoint().unwrap();
    assert!(counter(&volume, "hints_dropped") > 0, "the test has to come there");
    work_all(&volume, true);
    assert_eq!(used(&volume), MANY as u64 + 50);
    assert_clean(&volume);
}

#[test]
fn hints_that_name_nothing_sensible_do_no_harm() {
    let (_devices, volume) = volume(Inline::Off);
    let data = unique(300, 1);
    write(&volume, 1, 0, &data);
    let tags: Vec<crate::Tag> = (0..300).map(|lbn| entry(&volume, pbn(&volume, 1, lbn)).tag).collect();
    let beyond = |n: usize| Pbn([0, DATA.0, DATA.0 + 1, (1 << 24) - 1, 17][n % 5]);
    let wrong: Vec<_> = tags.iter().enumerate().map(|(n, tag)| (*tag, beyond(n))).collect();
    volume.hint_levels.update_hints(&[], &wrong);
    let mut on_disk: Vec<Hint> = wrong.iter().map(|(tag, pbn)| Hint::new(*tag, *pbn)).collect();
    on_disk.sort_unstable();
    volume.hint_levels.wake_to_merge(volume.base.hints.demote_later(&on_disk, &volume.base.stats.counters));
    volume.hint_levels.merge_waiting_hints();
    write(&volume, 2, 0, &data);
    revisit_all(&volume);
    volume.hint_levels.sweep_hint_page();
    assert_eq!(used(&volume), 300);
    assert_holds(&volume, 2, &data);
    assert_clean(&volume);
}

#[test]
fn a_rewritten_block_replaces_its_entry_and_a_shared_one_leaves() {
    let (_devices, volume) = volume(Inline::All);
    let data = unique(100, 1);
    let skipped = || volume.work_loop.dedup_status().skipped_blocks;
    write(&volume, 1, 0, &data);
    assert_eq!(skipped(), 100, "not found in memory: to be looked up on disk");
    write(&volume, 1, 0, &unique(100, 2));
    assert_eq!(skipped(), 100);
    write(&volume, 2, 0, &unique(100, 2));
    assert_eq!(skipped(), 100, "shared as they were written");
    write(&volume, 1, 0, &vec![0; 10 * BLOCK_BYTES]);
    assert_eq!(skipped(), 90, "zero blocks are no blocks");
    volume.range_changes.detach(MapId(1), |_| ()).unwrap();
    assert_eq!(skipped(), 0, "the file is gone");
}

#[test]
fn an_overflow_to_files_and_to_everything_misses_no_duplicate() {
    // One file with single blocks far apart; then many files with one block each.
    for (files, stride) in [(1, 64), (3, 100), (1_500, 1)] {
        println!("{files} files");
        let (_devices, volume) = volume(Inline::Off);
        let data = unique(1_500, 1);
        let (mut was_whole, mut was_everything) = (false, false);
        for round in 0..2 {
            for (n, block) in data.chunks(BLOCK_BYTES).enumerate() {
                let n = n as u64;
                write(&volume, 1 + round * files + n % files, n / files * stride, block);
            }
            let status = volume.work_loop.dedup_status();
            was_whole |= status.skipped_files > 0;
            was_everything |= status.full_pass;
        }
        assert_eq!(used(&volume), 3_000);
        assert_eq!((was_whole, was_everything), (files < 1_500, files == 1_500), "the test has to come there");
        volume.base.backlog.check();
        revisit_all(&volume);
        assert_eq!(used(&volume), 1_500);
        assert_clean(&volume);
    }
}

#[test]
fn blocks_written_while_a_pass_is_under_way_are_looked_at_too() {
    let (_devices, volume) = volume(Inline::Off);
    let data = unique(3_000, 1);
    write_many(&volume, 5, &data);
    volume.base.backlog.restore([Skipped::Everything]);
    volume.revisits.revisit(10).unwrap();
    // After and before the present place of the pass.
    write_many(&volume, 1, &data);
    write_many(&volume, 9, &data);
    revisit_all(&volume);
    assert_eq!(used(&volume), 3_000);
}

#[test]
fn a_small_batch_is_small_also_in_a_pass() {
    let (_devices, volume) = volume(Inline::Off);
    write_many(&volume, 1, &unique(6_000, 1));
    volume.base.backlog.restore([Skipped::Everything]);
    while let Some(blocks) = volume.revisits.revisit(256).unwrap() {
        assert!(blocks <= 256 + LEAF_BLOCKS, "{blocks} blocks at once: writers and the rate count on small batches");
    }
}

#[test]
fn smaller_bounds_on_a_live_volume_miss_no_duplicate() {
    let (_devices, volume) = volume(Inline::Off);
    tune(&volume, "hint_memory", "1M").unwrap();
    tune(&volume, "skipped_memory", "64K").unwrap();
    let data = unique(MANY, 1);
    write_many(&volume, 1, &data);
    write_many(&volume, 2, &data);
    tune(&volume, "hint_memory", "64K").unwrap();
    tune(&volume, "skipped_memory", "6000").unwrap();
    assert!(volume.base.hints.memory_size().0 <= 64 << 10);
    assert!(volume.base.backlog.size().0 <= 6_000);
    volume.base.backlog.check();
    volume.base.hints.check();
    work_all(&volume, false);
    assert_eq!(used(&volume), MANY as u64);
    assert_clean(&volume);
}

#[test]
fn a_skipped_buffer_that_was_off_for_a_while_misses_no_duplicate() {
    let (_devices, volume) = volume(Inline::Off);
    let data = unique(100, 1);
    write(&volume, 1, 0, &data);
    revisit_all(&volume);
    tune(&volume, "skipped_memory", "0").unwrap();
    revisit_all(&volume);
    write(&volume, 2, 0, &data);
    tune(&volume, "skipped_memory", "64K").unwrap();
    revisit_all(&volume);
    assert_eq!(used(&volume), 100);
}

#[test]
fn nonsense_is_refused_and_nothing_is_changed() {
    let (_devices, volume) = volume(Inline::All);
    let before = volume.base.tuning.settings();
    for (name, value) in [
        ("inline", "maybe"),
        ("hint_memory", "1"),
        ("hint_memory", "-1"),
        ("skipped_memory", "1G"),
        ("worker_blocks_per_minute", "fast"),
        ("idle_after_ms", "0"),
        ("hint_prefix_bits", "12"),
        ("hint_disk_level", "off"),
        ("no_such_thing", "1"),
    ] {
        let changes = [("worker", "off"), ("hint_memory", "2M"), (name, value), ("inline", "off")];
        let changes = changes.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let error = volume.work_loop.tune(&changes).unwrap_err().to_string();
        assert!(error.contains(name), "{name}={value}: {error}");
        assert_eq!(volume.base.tuning.settings(), before, "{name}={value}: all or nothing");
        assert_eq!(volume.base.hints.memory_size().1, before.hint_bytes);
        assert_eq!(volume.base.worker.pace_rule().mode, PaceMode::Always);
    }
}
