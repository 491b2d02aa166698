//! Requests of programs during work that yields to them: the work ends at its next step, and the rest is done later.
//! Not covered: the duration of a step (`oncefs dedup --status` shows it, and so does `oncefs-bench`).

use oncefs_dedup::{PaceMode, Slowdown};

use super::*;
use crate::volume::assembly::Volume;

/// Two files of equal content that were not looked up, and a worker that runs while the volume is idle. Its first steps
/// have half as many blocks as one of the files.
fn two_copies(run_blocks_min: Option<u32>) -> TwoCopies {
    let settings = Settings {
        inline: Inline::Off,
        fingerprints: FingerprintMode::Lazy,
        worker: PaceMode::WhenIdle,
        idle_after: Duration::from_millis(10),
        run_blocks_min,
        slowdown: Some(Slowdown(100)),
        ..two_levels()
    };
    TwoCopies::with(settings)
}

/// One turn of the worker. A request comes before the read that follows the first `reads`. Returns how many reads
/// followed it. None: there were fewer reads.
fn turn_beside_request(copies: &TwoCopies, reads: u64) -> Option<u64> {
    let (volume, data) = (copies.volume.clone(), copies.data.clone());
    let (told, called_at) = mpsc::channel();
    copies.data.reads_before.store(reads, Relaxed);
    *copies.data.before_read.lock() = Some(Box::new(move || {
        volume.base.foreground.serve(|| ());
        told.send(data.reads.load(Relaxed)).unwrap();
        Ok(())
    }));
    copies.volume.work_loop.work();
    copies.data.before_read.lock().take();
    called_at.try_recv().ok().map(|before| copies.data.reads.load(Relaxed) - before)
}

/// How many blocks of file 2 are shared with file 1.
fn shared(volume: &Volume) -> usize {
    let pbns = |map| volume.worklist.stored_from(MapId(map), crate::Lbn(0), COMPARED as u64).unwrap();
    pbns(1).iter().zip(pbns(2)).filter(|(first, second)| **first == *second).count()
}

fn finish(copies: &TwoCopies) {
    while copies.volume.revisits.revisit(1_000).unwrap().is_some() {}
    assert_eq!(shared(&copies.volume), COMPARED);
    copies.assert_holds(&copies.content);
}

#[test]
fn the_worker_ends_at_its_next_step_when_a_program_calls_and_goes_on_later() {
    for run_blocks_min in [Some(1), Some(COMPARED as u32)] {
        let mut turns = 0;
        while let Some(behind) = turn_beside_request(&two_copies(run_blocks_min), turns) {
            let copies = two_copies(run_blocks_min);
            let again = turn_beside_request(&copies, turns);
            assert_eq!(again, Some(behind), "the same turn");
            assert!(behind <= 2, "{behind} reads behind the one that a request came before");
            let yield_time = copies.volume.work_loop.dedup_status().yield_time;
            assert_eq!(yield_time.count, 1, "{yield_time:?}");
            let some = shared(&copies.volume);
            let is_whole = some == 0 || some == COMPARED;
            assert!(run_blocks_min == Some(1) || is_whole, "{some} blocks of a run are shared");
            finish(&copies);
            turns += 1;
        }
        let steps = if run_blocks_min == Some(1) { 1 } else { 2 };
        assert_eq!(turns, 2 * steps, "a step reads both sides; where runs count, two steps are one turn");
    }
}

#[test]
fn a_request_that_comes_before_the_worker_reads_leaves_all_to_a_later_turn() {
    let copies = two_copies(None);
    copies.volume.base.foreground.watch();
    copies.volume.base.foreground.serve(|| ());
    assert_eq!(copies.volume.revisits.revisit(32).unwrap(), Some(0));
    assert!(copies.volume.base.foreground.unwatch().is_some());
    assert_eq!(copies.volume.work_loop.dedup_status().skipped_blocks, 2 * COMPARED as u64, "all of it is noted again");
    assert_eq!(copies.volume.work_loop.dedup_status().blocks_revisited, 0);
    finish(&copies);
}

/// If looking up a batch takes longer than programs pause, it would otherwise never be completed.
#[test]
fn a_batch_that_is_left_for_programs_again_and_again_becomes_smaller_until_it_is_done() {
    let copies = two_copies(None);
    let volume = &copies.volume;
    let sizes = || {
        let places = volume.worklist.next_batch(1);
        volume.base.backlog.put_back(places.iter().map(|(map, lbn, _)| (*map, *lbn)));
        places.len()
    };
    let mut seen = vec![sizes()];
    while *seen.last().unwrap() > 1 {
        volume.base.foreground.watch();
        volume.base.foreground.serve(|| ());
        assert_eq!(volume.revisits.revisit(1).unwrap(), Some(0));
        volume.base.foreground.unwatch();
        seen.push(sizes());
        assert!(seen.len() <= 10, "{seen:?}");
    }
    assert!(seen.is_sorted_by(|a, b| a >= b) && seen[0] > 1, "{seen:?}");
    for _ in 0..2 {
        volume.revisits.revisit(1).unwrap();
    }
    assert!(sizes() > 1, "it grows again");
    finish(&copies);
}

#[test]
fn told_to_work_now_or_always_the_worker_ends_its_batches_whatever_comes() {
    for (worker, now) in [(PaceMode::WhenIdle, true), (PaceMode::Always, false)] {
        let copies = two_copies(Some(1));
        copies
            .volume
            .work_loop
            .tune(&[("worker".into(), if worker == PaceMode::Always { "always" } else { "idle" }.into())])
            .unwrap();
        if now {
            copies.volume.work_loop.dedup(crate::DedupCommand::Now { full: false });
        }
        turn_beside_request(&copies, 0).expect("the files are compared");
        assert!(shared(&copies.volume) > 0, "{worker:?}");
        assert_eq!(copies.volume.work_loop.dedup_status().yield_time.count, 0, "{worker:?}");
    }
}

#[test]
fn a_file_that_the_worker_lays_out_again_is_left_at_a_portion_s_end_when_a_program_calls() {
    let (devices, data, volume) = volume();
    let content = unique(SCATTERED, 1);
    for (n, block) in (0..).zip(content.chunks(BLOCK_BYTES)) {
        volume.write(MapId(1), n * BLOCK_BYTES as u64, block, |_, _| ()).unwrap();
        volume.write(MapId(2), n * BLOCK_BYTES as u64, &unique(1, 100 + n), |_, _| ()).unwrap();
    }
    volume.commits.checkpoint().unwrap();
    let options = DefragOptions { run_blocks_min: Some(64), gives_way: true, ..DefragOptions::default() };
    volume.base.foreground.watch();
    let program = volume.clone();
    *data.before_read.lock() = Some(Box::new(move || {
        program.base.foreground.serve(|| ());
        Ok(())
    }));
    let outcome = volume.defragmenter.defrag(MapId(1), &options).unwrap();
    // Neighbouring blocks take one read, so the next step is the end: the portion is carried out.
    assert!(outcome.blocks_moved == 0 || outcome.blocks_moved == SCATTERED as u64, "{outcome:?}");
    let before = outcome.blocks_moved;
    let called = volume.defragmenter.defrag(MapId(2), &options).unwrap();
    assert_eq!((called.blocks_moved, called.next, called.extents_before), (0, Some(0), 0), "{called:?}");
    let kept = volume.defragmenter.defrag(MapId(2), &DefragOptions { gives_way: false, ..options }).unwrap();
    assert_eq!((kept.blocks_moved, kept.next), (SCATTERED as u64, None), "a user's own command goes on");
    volume.base.foreground.unwatch();
    let rest = volume.defragmenter.defrag(MapId(1), &options).unwrap();
    assert_eq!(before + rest.blocks_moved, SCATTERED as u64, "{rest:?}");
    assert_laid_out(&devices, &volume, &content);
}
