//! Room in the log and in memory: which threads wait for it, and what the committer waits for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::background::threads::Threads;
use crate::format::group_bytes::GroupBytes;
use crate::volume::assembly::Volume;
use crate::{Change, Result};

/// Publishes a record of this many bytes, which takes room in the log.
fn publish(volume: &Volume, bytes: usize) {
    let mut change = Change::new();
    change.put(b"\x10room".to_vec(), vec![7; bytes]);
    volume.publisher.publish(change).unwrap();
}

/// A volume with its threads, whose group is at its maximum.
fn full_group() -> (Arc<HookedDevice>, Arc<Volume>, Threads) {
    let (_, data, volume) = volume();
    let threads = Threads::start(&volume).unwrap();
    (data, volume, threads)
}

fn stop(volume: &Volume, threads: &Threads) {
    volume.base.signals.stop();
    threads.join();
}

#[test]
fn who_finds_no_room_waits_until_there_is_some_however_long_that_takes() {
    let (_, volume, threads) = full_group();
    let gate = volume.base.journal.gate();
    publish(&volume, volume.base.journal.bounds().group_bytes_max() as usize);
    thread::scope(|scope| {
        let waits = scope.spawn(|| volume.change_room.wait_for_room());
        thread::sleep(A_WHILE);
        assert!(!waits.is_finished(), "a change is half published, so no commit can have made room");
        drop(gate);
        waits.join().unwrap();
    });
    assert!(volume.base.state.lock().group_bytes() <= volume.base.journal.bounds().group_bytes_max());
    stop(&volume, &threads);
}

#[test]
fn who_waits_for_room_goes_on_when_the_commit_fails_or_the_volume_is_closed() {
    for is_closed in [false, true] {
        let (data, volume, threads) = full_group();
        let gate = volume.base.journal.gate();
        // On another thread, because this one holds off the commit with a lock that comes after a map's.
        let write = || volume.write(MapId(1), 0, &unique(64, 1), |_, _| ()).unwrap();
        thread::scope(|scope| scope.spawn(write).join()).unwrap();
        publish(&volume, volume.base.journal.bounds().group_bytes_max() as usize);
        if !is_closed {
            *data.before_flush.lock() = Some(Box::new(|| Err(io::Error::other("the disk is gone"))));
        }
        thread::scope(|scope| {
            let waits = scope.spawn(|| volume.change_room.wait_for_room());
            thread::sleep(A_WHILE);
            assert!(!waits.is_finished());
            if is_closed {
                volume.base.signals.stop();
            }
            drop(gate);
            waits.join().unwrap();
        });
        // The group was taken, which ends the wait, before its write failed.
        stop(&volume, &threads);
        assert_eq!(volume.base.health.failure().is_none(), is_closed);
    }
}

#[test]
fn on_a_volume_without_threads_nobody_waits_for_room() {
    let (_, _, volume) = volume();
    publish(&volume, 2 * volume.base.journal.bounds().group_bytes_max() as usize);
    volume.change_room.wait_for_room();
}

/// A volume whose log is filled to this share, and a checkpoint during which `work` is done on a thread of its own.
/// Returns how many checkpoints were made.
fn beside_a_checkpoint(fullness: f64, work: impl FnOnce(&Volume) -> Result<()> + Send + 'static) -> (Arc<Volume>, u64) {
    let (_, data, volume) = volume();
    volume.write(MapId(1), 0, &unique(1, 1), |_, _| ()).unwrap();
    while volume.base.journal.fullness() <= fullness {
        publish(&volume, 50_000);
        volume.groups.commit_group(false).unwrap();
    }
    publish(&volume, 1);
    let (others, is_done) = (volume.clone(), Arc::new(AtomicBool::new(false)));
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
    volume.commits.checkpoint().unwrap();
    worker.join().unwrap();
    assert!(is_done.load(Relaxed));
    let made = volume.base.stats.counters.checkpoints.load(Relaxed);
    (volume, made)
}

#[test]
fn a_commit_on_a_full_log_waits_for_the_checkpoint_under_way_and_for_no_second_one() {
    let (volume, made) = beside_a_checkpoint(0.6, |volume| volume.commits.commit());
    assert_eq!(made, 1, "the first one has trimmed the log");
    assert!(volume.base.state.lock().group_bytes() == 0, "it is committed");
}

#[test]
fn a_commit_beside_a_checkpoint_asks_for_no_further_one() {
    let (volume, made) = beside_a_checkpoint(0.51, |volume| volume.commits.commit());
    assert_eq!(made, 1);
    assert!(!volume.base.signals.is_checkpoint_wanted(), "the one under way trims the log");
    let (volume, _) = beside_a_checkpoint(0.2, |volume| {
        while volume.base.journal.fullness_left() <= 0.51 {
            publish(volume, 50_000);
            volume.groups.commit_group(false)?;
        }
        volume.groups.ask_for_checkpoint_if_due();
        Ok(())
    });
    assert!(volume.base.signals.is_checkpoint_wanted(), "what came since then calls for one of its own");
}

#[test]
fn a_commit_that_others_forestall_does_not_cross_the_bound_of_the_log_as_well() {
    let (_, _, volume) = volume();
    // It checked the log while that was below its bound. By the time it may append, another group has crossed the
    // bound.
    while volume.base.journal.fullness() <= 0.6 {
        publish(&volume, 50_000);
        assert!(volume.groups.commit_unless_full().unwrap());
    }
    publish(&volume, 50_000);
    let (full, group) = (volume.base.journal.fullness(), volume.base.state.lock().group_bytes());
    assert!(!volume.groups.commit_unless_full().unwrap(), "nothing but a checkpoint may follow");
    assert_eq!((volume.base.journal.fullness(), volume.base.state.lock().group_bytes()), (full, group));
    volume.commits.commit().unwrap();
    assert_eq!(volume.base.stats.counters.checkpoints.load(Relaxed), 1);
}

/// Blocks whose change claims this many KiB.
fn claim_of(kib: u64) -> GroupBytes {
    GroupBytes::of_blocks(16 * kib)
}

#[test]
fn a_claim_of_room_in_the_log_waits_until_another_is_given_back() {
    let (_, volume, threads) = full_group();
    let held = volume.change_room.claim_log_room(claim_of(290));
    thread::scope(|scope| {
        scope.spawn(|| drop(volume.change_room.claim_log_room(claim_of(70)))).join().unwrap();
        let waits = scope.spawn(|| drop(volume.change_room.claim_log_room(claim_of(90))));
        thread::sleep(A_WHILE);
        assert!(!waits.is_finished(), "384 KiB are there for claims");
        drop(held);
        waits.join().unwrap();
    });
    stop(&volume, &threads);
}

#[test]
fn a_claim_of_room_in_the_log_waits_until_the_group_is_taken() {
    let (_, volume, threads) = full_group();
    publish(&volume, 300 << 10);
    drop(volume.change_room.claim_log_room(claim_of(90)));
    assert_eq!(volume.base.state.lock().group_bytes(), 0, "it waited for the commit that it asked for");
    stop(&volume, &threads);
}
