//! Room in the log and in memory: which threads wait for it, and what the committer waits for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::background::threads::Threads;
use crate::format::group_bytes::GroupBytes;
use crate::volume::assembly::Volume;
use crate::{Change, Result};

/// Publishes a record of this many bytes, which takes room in the log.
fn publish(core: &Volume, bytes: usize) {
    let mut change = Change::new();
    change.put(b"\x10room".to_vec(), vec![7; bytes]);
    core.publisher.publish(change).unwrap();
}

/// A volume with its threads, whose group is at its maximum.
fn full_group() -> (Arc<HookedDevice>, Arc<Volume>, Threads) {
    let (_, data, core) = volume();
    let threads = Threads::start(&core).unwrap();
    (data, core, threads)
}

fn stop(core: &Volume, threads: &Threads) {
    core.base.signals.stop();
    threads.join();
}

#[test]
fn who_finds_no_room_waits_until_there_is_some_however_long_that_takes() {
    let (_, core, threads) = full_group();
    let gate = core.base.journal.gate();
    publish(&core, core.base.journal.bounds().group_bytes_max() as usize);
    thread::scope(|scope| {
        let waits = scope.spawn(|| core.change_room.wait_for_room());
        thread::sleep(A_WHILE);
        assert!(!waits.is_finished(), "a change is half published, so no commit can have made room");
        drop(gate);
        waits.join().unwrap();
    });
    assert!(core.base.state.lock().group_bytes() <= core.base.journal.bounds().group_bytes_max());
    stop(&core, &threads);
}

#[test]
fn who_waits_for_room_goes_on_when_the_commit_fails_or_the_volume_is_closed() {
    for is_closed in [false, true] {
        let (data, core, threads) = full_group();
        let gate = core.base.journal.gate();
        // On another thread, because this one holds off the commit with a lock that comes after a map's.
        let write = || core.write(MapId(1), 0, &unique(64, 1), |_, _| ()).unwrap();
        thread::scope(|scope| scope.spawn(write).join()).unwrap();
        publish(&core, core.base.journal.bounds().group_bytes_max() as usize);
        if !is_closed {
            *data.before_flush.lock() = Some(Box::new(|| Err(io::Error::other("the disk is gone"))));
        }
        thread::scope(|scope| {
            let waits = scope.spawn(|| core.change_room.wait_for_room());
            thread::sleep(A_WHILE);
            assert!(!waits.is_finished());
            if is_closed {
                core.base.signals.stop();
            }
            drop(gate);
            waits.join().unwrap();
        });
        // The group was taken, which ends the wait, before its write failed.
        stop(&core, &threads);
        assert_eq!(core.base.health.failure().is_none(), is_closed);
    }
}

#[test]
fn on_a_volume_without_threads_nobody_waits_for_room() {
    let (_, _, core) = volume();
    publish(&core, 2 * core.base.journal.bounds().group_bytes_max() as usize);
    core.change_room.wait_for_room();
}

/// A volume whose log is filled to this share, and a checkpoint during which `work` is done on a thread of its own.
/// Returns how many checkpoints were made.
fn beside_a_checkpoint(fullness: f64, work: impl FnOnce(&Volume) -> Result<()> + Send + 'static) -> (Arc<Volume>, u64) {
    let (_, data, core) = volume();
    core.write(MapId(1), 0, &unique(1, 1), |_, _| ()).unwrap();
    while core.base.journal.fullness() <= fullness {
        publish(&core, 50_000);
        core.groups.commit_group(false).unwrap();
    }
    publish(&core, 1);
    let (others, is_done) = (core.clone(), Arc::new(AtomicBool::new(false)));
    let done = is_done.clone();
    let (began, has_begun) = mpsc::channel();
    // The block that rides in the log is placed by the checkpoint.
    *data.before_write.lock() = Some(Box::new(move || {
        began.send(()).unwrap();
        thread::sleep(A_WHILE);
        Ok(())
    }));
    let worker = thread::spawn(move || {
        has_begun.recv().unwrap();
        publish(&others, 1);
        work(&others).unwrap();
        done.store(true, Relaxed);
    });
    core.commits.checkpoint().unwrap();
    worker.join().unwrap();
    assert!(is_done.load(Relaxed));
    let made = core.base.stats.counters.checkpoints.load(Relaxed);
    (core, made)
}

#[test]
fn a_commit_on_a_full_log_waits_for_the_checkpoint_under_way_and_for_no_second_one() {
    let (core, made) = beside_a_checkpoint(0.6, |core| core.commits.commit());
    assert_eq!(made, 1, "the first one has trimmed the log");
    assert!(core.base.state.lock().group_bytes() == 0, "it is committed");
}

#[test]
fn a_commit_beside_a_checkpoint_asks_for_no_further_one() {
    let (core, made) = beside_a_checkpoint(0.51, |core| core.commits.commit());
    assert_eq!(made, 1);
    assert!(!core.base.signals.is_checkpoint_wanted(), "the one under way trims the log");
    let (core, _) = beside_a_checkpoint(0.2, |core| {
        while core.base.journal.fullness_left() <= 0.51 {
            publish(core, 50_000);
            core.groups.commit_group(false)?;
        }
        core.groups.ask_for_checkpoint_if_due();
        Ok(())
    });
    assert!(core.base.signals.is_checkpoint_wanted(), "what came since then calls for one of its own");
}

#[test]
fn a_commit_that_others_forestall_does_not_cross_the_bound_of_the_log_as_well() {
    let (_, _, core) = volume();
    // It checked the log while that was below its bound. By the time it may append, another group has crossed the
    // bound.
    while core.base.journal.fullness() <= 0.6 {
        publish(&core, 50_000);
        assert!(core.groups.commit_unless_full().unwrap());
    }
    publish(&core, 50_000);
    let (full, group) = (core.base.journal.fullness(), core.base.state.lock().group_bytes());
    assert!(!core.groups.commit_unless_full().unwrap(), "nothing but a checkpoint may follow");
    assert_eq!((core.base.journal.fullness(), core.base.state.lock().group_bytes()), (full, group));
    core.commits.commit().unwrap();
    assert_eq!(core.base.stats.counters.checkpoints.load(Relaxed), 1);
}

/// Blocks whose change claims this many KiB.
fn claim_of(kib: u64) -> GroupBytes {
    GroupBytes::of_blocks(16 * kib)
}

#[test]
fn a_claim_of_room_in_the_log_waits_until_another_is_given_back() {
    let (_, core, threads) = full_group();
    let held = core.change_room.claim_log_room(claim_of(290));
    thread::scope(|scope| {
        scope.spawn(|| drop(core.change_room.claim_log_room(claim_of(70)))).join().unwrap();
        let waits = scope.spawn(|| drop(core.change_room.claim_log_room(claim_of(90))));
        thread::sleep(A_WHILE);
        assert!(!waits.is_finished(), "384 KiB are there for claims");
        drop(held);
        waits.join().unwrap();
    });
    stop(&core, &threads);
}

#[test]
fn a_claim_of_room_in_the_log_waits_until_the_group_is_taken() {
    let (_, core, threads) = full_group();
    publish(&core, 300 << 10);
    drop(core.change_room.claim_log_room(claim_of(90)));
    assert_eq!(core.base.state.lock().group_bytes(), 0, "it waited for the commit that it asked for");
    stop(&core, &threads);
}
