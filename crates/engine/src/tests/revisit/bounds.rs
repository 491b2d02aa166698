//! Stale hints, the bounds of hints and skipped blocks, and the effects of tuning them.

use super::*;

#[test]
fn hints_of_deleted_files_leave_memory_at_once_and_the_disk_level_by_and_by() {
    let (_devices, core, data) = volume_with_disk_level();
    let recent = unique(20, 5);
    write(&core, 2, 0, &recent);
    let gone: Vec<(crate::Tag, Pbn)> =
        (0..20).map(|lbn| pbn(&core, 2, lbn)).map(|pbn| (entry(&core, pbn).tag, pbn)).collect();
    let in_memory = |(tag, pbn): &(crate::Tag, Pbn)| core.base.hints.peek(&[*tag]).contains(&(*tag, *pbn));
    assert!(gone.iter().all(in_memory));
    delete(&core, 2);
    assert!(!gone.iter().any(in_memory), "the memory level forgets with the last reference");

    let on_disk = core.base.hints.disk_level_size().1;
    delete(&core, 1);
    core.commits.commit().unwrap();
    core.groups.release_waiting();
    assert_eq!((used(&core), core.base.hints.disk_level_size().1), (0, on_disk), "the disk level forgets lazily");

    // The same content again: the disk level names blocks that are free or hold other content by now.
    write_many(&core, 3, &unique(2_000, 9));
    write_many(&core, 4, &data);
    revisit_all(&core);
    assert!(counter(&core, "hints_stale") > 0, "stale hints are counted");
    assert_eq!(counter(&core, "hints_refused"), 0, "and go no further than the table");
    assert_eq!(used(&core), 2_000 + MANY as u64);
    assert_holds(&core, 4, &data);
    assert_clean(&core);

    delete(&core, 3);
    delete(&core, 4);
    core.hint_levels.merge_waiting_hints();
    for _ in 0..TURNS_MAX {
        core.hint_levels.sweep_hint_page();
    }
    assert_eq!(core.base.hints.disk_level_size().1, 0, "all of them are stale");
    assert!(counter(&core, "hints_swept") >= on_disk);
}

#[test]
fn a_sweep_leaves_what_is_live() {
    let (_devices, core, data) = volume_with_disk_level();
    let half = unique(MANY / 2, 3);
    write_many(&core, 2, &half);
    delete(&core, 2);
    for _ in 0..TURNS_MAX {
        core.hint_levels.sweep_hint_page();
    }
    write_many(&core, 3, &data);
    revisit_all(&core);
    assert_eq!(used(&core), MANY as u64);
    assert_eq!(counter(&core, "hints_repaired"), 0);
}

/// A content that comes and goes leaves more stale hints on disk than a level keeps holders.
#[test]
fn a_content_that_was_stored_and_deleted_often_is_still_found_and_keeps_nobody_scanning() {
    let (_devices, core) = volume(Inline::All);
    let popular = unique(50, 1);
    for round in 0..24 {
        write(&core, 10 + round, 0, &popular);
        // Its hints leave memory before it is deleted.
        write_many(&core, 100 + round, &unique(4_000, 50 + round));
        delete(&core, 10 + round);
        delete(&core, 100 + round);
        core.commits.commit().unwrap();
        core.groups.release_waiting();
    }
    write(&core, 1, 0, &popular);
    write_many(&core, 2, &unique(MANY, 2));
    write(&core, 3, 0, &popular);
    core.commits.checkpoint().unwrap();
    assert!(counter(&core, "hints_dropped") > 0, "the test has to come there");
    work_all(&core, true);
    assert_eq!(used(&core), MANY as u64 + 50);
    assert_clean(&core);
}

#[test]
fn hints_that_name_nothing_sensible_do_no_harm() {
    let (_devices, core) = volume(Inline::Off);
    let data = unique(300, 1);
    write(&core, 1, 0, &data);
    let tags: Vec<crate::Tag> = (0..300).map(|lbn| entry(&core, pbn(&core, 1, lbn)).tag).collect();
    let beyond = |n: usize| Pbn([0, DATA.0, DATA.0 + 1, (1 << 24) - 1, 17][n % 5]);
    let wrong: Vec<_> = tags.iter().enumerate().map(|(n, tag)| (*tag, beyond(n))).collect();
    core.hint_levels.update_hints(&[], &wrong);
    let mut on_disk: Vec<Hint> = wrong.iter().map(|(tag, pbn)| Hint::new(*tag, *pbn)).collect();
    on_disk.sort_unstable();
    core.hint_levels.wake_to_merge(core.base.hints.demote_later(&on_disk, &core.base.stats.counters));
    core.hint_levels.merge_waiting_hints();
    write(&core, 2, 0, &data);
    revisit_all(&core);
    core.hint_levels.sweep_hint_page();
    assert_eq!(used(&core), 300);
    assert_holds(&core, 2, &data);
    assert_clean(&core);
}

#[test]
fn a_rewritten_block_replaces_its_entry_and_a_shared_one_leaves() {
    let (_devices, core) = volume(Inline::All);
    let data = unique(100, 1);
    let skipped = || core.work_loop.dedup_status().skipped_blocks;
    write(&core, 1, 0, &data);
    assert_eq!(skipped(), 100, "not found in memory: to be looked up on disk");
    write(&core, 1, 0, &unique(100, 2));
    assert_eq!(skipped(), 100);
    write(&core, 2, 0, &unique(100, 2));
    assert_eq!(skipped(), 100, "shared as they were written");
    write(&core, 1, 0, &vec![0; 10 * BLOCK_BYTES]);
    assert_eq!(skipped(), 90, "zero blocks are no blocks");
    core.range_changes.detach(MapId(1), |_| ()).unwrap();
    assert_eq!(skipped(), 0, "the file is gone");
}

#[test]
fn an_overflow_to_files_and_to_everything_misses_no_duplicate() {
    // One file with single blocks far apart; then many files with one block each.
    for (files, stride) in [(1, 64), (3, 100), (1_500, 1)] {
        println!("{files} files");
        let (_devices, core) = volume(Inline::Off);
        let data = unique(1_500, 1);
        let (mut was_whole, mut was_everything) = (false, false);
        for round in 0..2 {
            for (n, block) in data.chunks(BLOCK_BYTES).enumerate() {
                let n = n as u64;
                write(&core, 1 + round * files + n % files, n / files * stride, block);
            }
            let status = core.work_loop.dedup_status();
            was_whole |= status.skipped_files > 0;
            was_everything |= status.full_pass;
        }
        assert_eq!(used(&core), 3_000);
        assert_eq!((was_whole, was_everything), (files < 1_500, files == 1_500), "the test has to come there");
        core.base.backlog.check();
        revisit_all(&core);
        assert_eq!(used(&core), 1_500);
        assert_clean(&core);
    }
}

#[test]
fn blocks_written_while_a_pass_is_under_way_are_looked_at_too() {
    let (_devices, core) = volume(Inline::Off);
    let data = unique(3_000, 1);
    write_many(&core, 5, &data);
    core.base.backlog.restore([Skipped::Everything]);
    core.revisits.revisit(10).unwrap();
    // After and before the present place of the pass.
    write_many(&core, 1, &data);
    write_many(&core, 9, &data);
    revisit_all(&core);
    assert_eq!(used(&core), 3_000);
}

#[test]
fn a_small_batch_is_small_also_in_a_pass() {
    let (_devices, core) = volume(Inline::Off);
    write_many(&core, 1, &unique(6_000, 1));
    core.base.backlog.restore([Skipped::Everything]);
    while let Some(blocks) = core.revisits.revisit(256).unwrap() {
        assert!(blocks <= 256 + SHARD_BLOCKS, "{blocks} blocks at once: writers and the rate count on small batches");
    }
}

#[test]
fn smaller_bounds_on_a_live_volume_miss_no_duplicate() {
    let (_devices, core) = volume(Inline::Off);
    tune(&core, "hint_memory", "1M").unwrap();
    tune(&core, "skipped_memory", "64K").unwrap();
    let data = unique(MANY, 1);
    write_many(&core, 1, &data);
    write_many(&core, 2, &data);
    tune(&core, "hint_memory", "64K").unwrap();
    tune(&core, "skipped_memory", "6000").unwrap();
    assert!(core.base.hints.memory_size().0 <= 64 << 10);
    assert!(core.base.backlog.size().0 <= 6_000);
    core.base.backlog.check();
    core.base.hints.check();
    work_all(&core, false);
    assert_eq!(used(&core), MANY as u64);
    assert_clean(&core);
}

#[test]
fn a_skipped_buffer_that_was_off_for_a_while_misses_no_duplicate() {
    let (_devices, core) = volume(Inline::Off);
    let data = unique(100, 1);
    write(&core, 1, 0, &data);
    revisit_all(&core);
    tune(&core, "skipped_memory", "0").unwrap();
    revisit_all(&core);
    write(&core, 2, 0, &data);
    tune(&core, "skipped_memory", "64K").unwrap();
    revisit_all(&core);
    assert_eq!(used(&core), 100);
}

#[test]
fn nonsense_is_refused_and_nothing_is_changed() {
    let (_devices, core) = volume(Inline::All);
    let before = core.base.tuning.settings();
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
        let error = core.work_loop.tune(&changes).unwrap_err().to_string();
        assert!(error.contains(name), "{name}={value}: {error}");
        assert_eq!(core.base.tuning.settings(), before, "{name}={value}: all or nothing");
        assert_eq!(core.base.hints.memory_size().1, before.hint_bytes);
        assert_eq!(core.base.worker.pace_rule().mode, PaceMode::Always);
    }
}
