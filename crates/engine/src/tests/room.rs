//! A volume never promises more blocks than it has, even with concurrent reservations, clones, cuts, zeroing and
//! writes. So it opens again, and reserved space can be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::fsck::parts::checker;
use crate::place::free_blocks::KEPT_BACK_BLOCKS;
use crate::tests::fixture::{Devices, Random, one_level, two_levels, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, Error, Lbn, MapId, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;
const DATA: Blocks = Blocks(4_096);

/// Asserts that used and reserved blocks fit into the data area.
fn assert_bound(volume: &Volume) {
    let totals = volume.free_blocks.totals();
    let taken = totals.used.0 + totals.reserved.0;
    assert!(taken <= totals.data.0, "{taken} blocks are used or reserved: {totals:?}");
}

/// Asserts that the volume opens again, is clean, and takes a write into reserved space.
fn assert_sound(devices: &Devices, volume: Volume) {
    assert_eq!(volume.base.state.lock().claims.blocks(), Blocks(0), "claims of operations that have ended");
    assert_bound(&volume);
    volume.commits.commit().unwrap();
    drop(volume);
    let volume = devices.open();
    assert_bound(&volume);
    let report = checker(&volume).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// Files that all refer to one block, each with half of it twice.
fn clones_of_one_block(volume: &Volume, files: u64) -> Vec<MapId> {
    let source = volume.base.maps.take_id();
    volume.write(source, 0, &unique(1, 7), |_, _| ()).unwrap();
    let clone = |_| {
        let map = volume.base.maps.take_id();
        volume.clone_blocks((source, Lbn(0)), (map, Lbn(0)), Blocks(1), |_, _| ()).unwrap();
        map
    };
    (0..files).map(clone).collect()
}

fn reserve_all(volume: &Volume) -> MapId {
    let map = volume.base.maps.take_id();
    volume.reserve_in_parts(map, 0..volume.free_blocks.available().0 * BLOCK);
    map
}

#[test]
fn cutting_clones_on_a_volume_that_is_all_reserved_ends_with_no_space() {
    let devices = Devices::new(DATA, two_levels());
    let volume = devices.open();
    let clones = clones_of_one_block(&volume, 400);
    reserve_all(&volume);
    let cut = |map: &MapId| volume.range_changes.truncate(*map, 100, |_, _| ());
    let results: Vec<Result<()>> = clones.iter().map(cut).collect();
    let done = results.iter().take_while(|result| result.is_ok()).count() as u64;
    // Every cut but one stores a block of its own, and the blocks kept back are for that.
    assert!((KEPT_BACK_BLOCKS..400).contains(&done), "{done} files were cut");
    assert!(results[done as usize..].iter().all(|result| matches!(result, Err(Error::NoSpace))));
    assert_sound(&devices, volume);
}

#[test]
fn zeros_in_a_request_over_reserved_space_pay_for_no_other_block() {
    let devices = Devices::new(DATA, one_level());
    let volume = devices.open();
    let reserved = reserve_all(&volume);
    // The first half lies over reserved space and is zeros, which stay reserved; the second half is new.
    let other = volume.base.maps.take_id();
    volume.truncate_in_parts(reserved, 5 * BLOCK);
    reserve_all(&volume);
    for n in 0..KEPT_BACK_BLOCKS {
        let request = [vec![0; 5 * BLOCK_BYTES], unique(5, 100 + n)].concat();
        let result = volume.write(reserved, 0, &request, |_, _| ());
        assert!(matches!(result, Err(Error::NoSpace)), "{result:?}");
        assert_bound(&volume);
    }
    assert!(matches!(volume.write(other, 0, &unique(1, 9), |_, _| ()), Err(Error::NoSpace)));
    assert_sound(&devices, volume);
}

#[test]
fn what_is_reserved_can_be_written_on_a_full_volume_whoever_else_writes_there() {
    let devices = Devices::new(DATA, one_level());
    let volume = Arc::new(devices.open());
    let files: Vec<MapId> = (0..4).map(|_| volume.base.maps.take_id()).collect();
    let blocks = (volume.free_blocks.available().0 / 4) & !1;
    files.iter().for_each(|map| volume.range_changes.reserve(*map, 0, blocks * BLOCK, |_, _| ()).unwrap());
    reserve_all(&volume);
    thread::scope(|scope| {
        for (n, map) in files.iter().enumerate() {
            let volume = &volume;
            scope.spawn(move || {
                for at in (0..blocks).step_by(2) {
                    volume.write(*map, at * BLOCK, &unique(2, ((n as u64) << 32) + at + 1), |_, _| ()).unwrap();
                }
            });
        }
    });
    let volume = Arc::into_inner(volume).unwrap();
    assert_sound(&devices, volume);
}

#[test]
fn zeroing_shared_blocks_reserves_no_more_than_there_is() {
    let devices = Devices::new(DATA, two_levels());
    let volume = devices.open();
    let clones = clones_of_one_block(&volume, 400);
    let own = volume.base.maps.take_id();
    volume.write(own, 0, &unique(64, 3), |_, _| ()).unwrap();
    reserve_all(&volume);
    volume.range_changes.zero(own, 100, 63 * BLOCK, true, |_, _| ()).unwrap();
    let zeroed = |map: &&MapId| volume.range_changes.zero(**map, 0, BLOCK, true, |_, _| ()).is_ok();
    let done = clones.iter().take_while(zeroed).count();
    assert!(done < 400, "{done} files have a block reserved in the place of a shared one");
    assert_sound(&devices, volume);
}

#[test]
fn a_volume_that_promises_more_than_it_has_opens_and_is_emptied() {
    let devices = Devices::new(DATA, one_level());
    let volume = devices.open();
    let map = volume.base.maps.take_id();
    volume.write(map, 0, &unique(600, 1), |_, _| ()).unwrap();
    // As earlier versions left it.
    volume.base.state.lock().totals.reserved = DATA - Blocks(100);
    volume.write(map, 0, &unique(1, 2), |_, _| ()).unwrap_err();
    volume.truncate_in_parts(map, 500 * BLOCK);
    volume.commits.commit().unwrap();
    drop(volume);
    let volume = devices.open();
    let totals = volume.free_blocks.totals();
    assert!(totals.used.0 + totals.reserved.0 > totals.data.0, "{totals:?}");
    assert_eq!(volume.free_blocks.available(), Blocks(0));
    assert!(matches!(volume.write(map, 0, &unique(1, 3), |_, _| ()), Err(Error::NoSpace)));
    assert!(matches!(volume.range_changes.reserve(map, 1 << 30, BLOCK, |_, _| ()), Err(Error::NoSpace)));
    volume.range_changes.truncate(map, 0, |_, _| ()).unwrap();
    volume.base.state.lock().totals.reserved = Blocks(0);
    volume.write(map, 0, &unique(1, 3), |_, _| ()).unwrap();
    assert_sound(&devices, volume);
}

/// One thread's work on files of its own and one that all share.
fn work(volume: &Volume, shared: &[MapId], seed: u64, refused: &AtomicUsize) {
    let mut random = Random::new(seed);
    let own = volume.base.maps.take_id();
    for step in 0..400 {
        let map = if random.below(3) == 0 { own } else { shared[random.below(shared.len() as u64) as usize] };
        let (at, blocks) = (random.below(600), 1 + random.below(200));
        let (from, len) = (at * BLOCK + random.below(2) * 77, blocks * BLOCK);
        let source = shared[random.below(shared.len() as u64) as usize];
        let result = match random.below(8) {
            0 | 1 => volume.range_changes.reserve(map, from, len, |_, _| ()),
            2 => volume.range_changes.zero(map, from, len, true, |_, _| ()),
            3 => volume.range_changes.zero(map, from, len, false, |_, _| ()),
            4 => volume.range_changes.truncate(map, from, |_, _| ()),
            5 if source != map => {
                volume.clone_blocks((source, Lbn(0)), (map, Lbn(at)), Blocks(blocks.min(30)), |_, _| ())
            }
            6 => {
                let zeros = vec![0; 3 * BLOCK_BYTES];
                let request = [unique(2, (seed << 32) + step + 1), zeros, unique(3, 1 + step % 5)].concat();
                volume.write(map, from, &request, |_, _| ())
            }
            _ => volume.write(map, from, &unique(1 + (blocks % 60) as usize, 1 + random.below(9)), |_, _| ()),
        };
        match result {
            Ok(()) => {}
            Err(Error::NoSpace) => {
                refused.fetch_add(1, Relaxed);
            }
            Err(error) => panic!("step {step} of thread {seed}: {error}"),
        }
        assert_bound(volume);
    }
}

#[test]
fn threads_that_reserve_clone_cut_zero_and_write_on_a_full_volume_leave_it_sound() {
    for seed in 1..4 {
        let devices = Devices::new(Blocks(1_200), two_levels());
        let volume = devices.open();
        let shared: Vec<MapId> = (0..5).map(|_| volume.base.maps.take_id()).collect();
        volume.write(shared[0], 0, &unique(300, seed), |_, _| ()).unwrap();
        let refused = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (volume, shared, refused) = (&volume, &shared, &refused);
                scope.spawn(move || work(volume, shared, seed * 10 + thread, refused));
            }
            scope.spawn(|| {
                for _ in 0..40 {
                    volume.commits.commit().unwrap();
                    volume.groups.release_waiting();
                    thread::yield_now();
                }
            });
        });
        assert!(refused.load(Relaxed) > 100, "{} of 1600 steps found no room", refused.load(Relaxed));
        assert_eq!(volume.base.health.failure(), None, "no step may leave the volume read-only");
        assert_sound(&devices, volume);
    }
}
