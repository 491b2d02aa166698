//! When the worker runs and what its status says; and reads of blocks that it shared.

use std::sync::Arc;

use super::*;

#[test]
fn a_block_read_for_one_file_serves_the_other_and_is_counted() {
    for blocks in [1, 8, 40] {
        let (devices, volume) = volume(Inline::All);
        let data = unique(blocks, 1);
        write(&volume, 1, 0, &data);
        write(&volume, 2, 0, &data);
        volume.commits.checkpoint().unwrap();
        drop(volume);
        let volume = devices.open();
        // Whether a block is shared is known while the table's page is in memory.
        entry(&volume, pbn(&volume, 1, 0));
        assert_holds(&volume, 1, &data);
        assert_eq!(counter(&volume, "blocks_read_shared"), 0);
        let read = counter(&volume, "data_bytes_read");
        assert_holds(&volume, 1, &data);
        assert_eq!(counter(&volume, "blocks_read_shared"), 0, "one's own blocks are not another's");
        assert_holds(&volume, 2, &data);
        assert_eq!(counter(&volume, "blocks_read_shared"), blocks as u64, "{blocks} blocks");
        assert_eq!(counter(&volume, "data_bytes_read"), read, "shared blocks enter the cache when they are first read");
    }
}

#[test]
fn a_block_of_one_file_enters_the_cache_when_it_is_read_again() {
    let (devices, volume) = volume(Inline::All);
    let data = unique(8, 1);
    write(&volume, 1, 0, &data);
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let volume = devices.open();
    entry(&volume, pbn(&volume, 1, 0));
    let mut read = Vec::new();
    for _ in 0..3 {
        assert_holds(&volume, 1, &data);
        read.push(counter(&volume, "data_bytes_read") / BLOCK);
    }
    assert_eq!(read, [8, 16, 16]);
}

#[test]
fn a_paused_worker_looks_at_nothing_until_it_is_resumed() {
    let (_devices, volume) = volume(Inline::Off);
    let data = unique(100, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &data);
    volume.work_loop.dedup(DedupCommand::Pause);
    volume.work_loop.dedup(DedupCommand::Now { full: true });
    for _ in 0..50 {
        assert!(!volume.work_loop.work().is_zero(), "nobody waits by turning");
    }
    let status = volume.work_loop.dedup_status();
    assert_eq!((status.blocks_revisited, status.paused, status.now), (0, true, true));
    volume.work_loop.dedup(DedupCommand::Resume);
    work_all(&volume, false);
    assert_eq!(used(&volume), 100);
}

#[test]
fn told_to_work_now_the_worker_minds_neither_its_mode_nor_requests_and_ends_by_itself() {
    for worker in [PaceMode::Off, PaceMode::WhenIdle] {
        let devices = Devices::new(DATA, Settings { worker, worker_blocks_per_minute: 1, ..settings(Inline::Off) });
        let volume = devices.open();
        volume.hint_levels.fill_hints().unwrap();
        let data = unique(2_000, 1);
        volume.base.foreground.serve(|| write_many(&volume, 1, &data));
        volume.base.foreground.serve(|| write_many(&volume, 2, &data));
        volume.work_loop.work();
        let status = volume.work_loop.dedup_status();
        assert_eq!((status.blocks_revisited, status.now, status.skipped_blocks), (0, false, 4_000), "{status:?}");
        assert_eq!((status.inline_percent, status.rebuild_pages), (0.0, 0));
        work_all(&volume, false);
        let status = volume.work_loop.dedup_status();
        assert_eq!((status.blocks_revisited, status.blocks_remapped, status.skipped_blocks), (4_000, 2_000, 0));
        assert_eq!(used(&volume), 2_000);
        volume.base.foreground.serve(|| write_many(&volume, 3, &data));
        volume.work_loop.work();
        assert_eq!(volume.work_loop.dedup_status().blocks_revisited, 4_000, "and then minds them again");
    }
}

#[test]
fn a_full_pass_tells_how_far_it_is() {
    let (_devices, volume) = volume(Inline::Off);
    write_many(&volume, 1, &unique(6_000, 1));
    revisit_all(&volume);
    volume.work_loop.dedup(DedupCommand::Now { full: true });
    assert!(volume.work_loop.dedup_status().full_pass);
    let mut done = 0;
    loop {
        volume.work_loop.work();
        let status = volume.work_loop.dedup_status();
        if !status.full_pass {
            break;
        }
        assert_eq!(status.pass_blocks, 6_000);
        assert!(status.pass_blocks_done >= done && status.pass_blocks_done <= 6_000, "{status:?}");
        done = status.pass_blocks_done;
    }
    work_all(&volume, false);
    assert_eq!(volume.work_loop.dedup_status().blocks_revisited, 12_000);
    assert_eq!(volume.work_loop.dedup_status().eta_seconds, None);
}

#[test]
fn a_write_that_asks_to_be_admitted_and_a_status_do_not_wait_for_each_other() {
    let (_devices, volume) = volume(Inline::Adaptive);
    std::thread::scope(|scope| {
        let is_free = volume.base.inline.while_admission_waits(|| {
            scope.spawn(|| volume.admission.admit());
            std::thread::sleep(Duration::from_millis(100));
            volume.base.tuning.is_free_within(Duration::from_secs(20))
        });
        assert!(is_free, "whoever waits for the controller holds the settings, for which its holder may wait");
    });
}

#[test]
fn whoever_ranks_has_his_turns_when_nothing_is_left_to_look_at_and_now_ends_behind_them() {
    const TURNS: u64 = 5;
    let (_devices, volume) = volume(Inline::Off);
    let volume = Arc::new(volume);
    let (taken, ranked) = (Arc::new(AtomicU64::new(0)), Arc::downgrade(&volume));
    let turns = taken.clone();
    let turn = move || {
        let volume = ranked.upgrade().expect("the test holds it");
        assert!(!volume.worklist.is_revisit_left(), "blocks that were skipped come first");
        let turn = turns.fetch_add(1, Relaxed);
        if turn == 1 {
            // A file that may share more now.
            volume.base.backlog.requeue(Work::Owner(2));
        }
        Ok((turn < TURNS).then_some(0))
    };
    assert!(volume.base.worker.rank_by(Box::new(turn)));
    let data = unique(100, 1);
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &data);
    volume.work_loop.dedup(DedupCommand::Pause);
    volume.work_loop.work();
    assert_eq!(taken.load(Relaxed), 0, "he is held with the worker");
    volume.work_loop.dedup(DedupCommand::Resume);
    work_all(&volume, false);
    assert_eq!(
        (taken.load(Relaxed), volume.work_loop.dedup_status().now),
        (TURNS + 1, false),
        "the last one had nothing to do"
    );
    assert_eq!((used(&volume), volume.work_loop.dedup_status().blocks_revisited), (100, 300));
}
