//! Comparisons of files whose layout is known by construction, and of changed clones with a comparison of their bytes.

use super::*;
use crate::settings::values::{Inline, Settings};
use crate::tests::fixture::{Devices, Random, two_levels, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks};

const BLOCK: u64 = BLOCK_BYTES as u64;
const OLD: MapId = MapId(1);
const NEW: MapId = MapId(2);

fn new_volume() -> Volume {
    Devices::new(Blocks(60_000), Settings { inline: Inline::Off, ..two_levels() }).open()
}

fn write(volume: &Volume, map: MapId, first: u64, data: &[u8]) {
    volume.write(map, first * BLOCK, data, |_, _| ()).unwrap();
}

/// All of a file, portion by portion.
fn compared(volume: &Volume, newer: MapId, older: Option<MapId>) -> Vec<(u64, u64, ComparedState)> {
    let (mut runs, mut from) = (Vec::new(), Some(0));
    while let Some(lbn) = from {
        let portion = volume.comparer.compare(newer, older, Lbn(lbn)).unwrap();
        portion.runs.into_iter().for_each(|run| add(&mut runs, run));
        from = portion.next;
    }
    runs.into_iter().map(|run| (run.lbn, run.blocks, run.state)).collect()
}

#[test]
fn blocks_are_the_same_where_both_files_have_the_same_address() {
    use ComparedState::{Own, Reserved, Same, Shared};
    let volume = new_volume();
    write(&volume, OLD, 0, &unique(100, 1));
    volume.clone_blocks((OLD, Lbn(0)), (NEW, Lbn(0)), Blocks(100), |_, _| ()).unwrap();
    write(&volume, NEW, 10, &unique(5, 2));
    volume.clone_blocks((OLD, Lbn(0)), (NEW, Lbn(50)), Blocks(5), |_, _| ()).unwrap();
    volume.reserve_in_parts(NEW, 120 * BLOCK..130 * BLOCK);
    let expected = [(0, 10, Same), (10, 5, Own), (15, 35, Same), (50, 5, Shared), (55, 45, Same), (120, 10, Reserved)];
    assert_eq!(compared(&volume, NEW, Some(OLD)), expected);
    let alone = [(0, 10, Shared), (10, 5, Own), (15, 85, Shared), (120, 10, Reserved)];
    assert_eq!(compared(&volume, NEW, None), alone, "without an older file nothing is the same");
    let portion = volume.comparer.compare(NEW, Some(OLD), Lbn(12)).unwrap();
    assert_eq!((portion.runs[0].lbn, portion.runs[0].blocks, portion.next), (12, 3, None));
    volume.range_changes.detach(OLD, |_| ()).unwrap();
    assert!(matches!(volume.comparer.compare(NEW, Some(OLD), Lbn(0)), Err(crate::Error::MapDetached)));
}

#[test]
fn what_a_pending_clone_reads_is_shared_until_it_is_counted_and_afterwards() {
    use ComparedState::{Own, Shared};
    let volume = new_volume();
    write(&volume, OLD, 0, &unique(600, 1));
    assert_eq!(compared(&volume, OLD, None), [(0, 600, Own)]);
    let clone = volume.lazy_clones.clone_map(OLD, || Blocks(600), |_, _, _| ()).unwrap();
    // A change of either takes the leaf first.
    write(&volume, OLD, 10, &unique(5, 2));
    let of_both = [compared(&volume, OLD, None), compared(&volume, clone, None)];
    assert_eq!(
        of_both,
        [
            vec![(0, 10, Shared), (10, 5, Own), (15, 585, Shared)],
            vec![(0, 10, Shared), (10, 5, Own), (15, 585, Shared)]
        ]
    );
    while volume.lazy_clones.step().unwrap() {}
    assert_eq!([compared(&volume, OLD, None), compared(&volume, clone, None)], of_both);
    volume.range_changes.detach(clone, |_| ()).unwrap();
}

#[test]
fn of_a_changed_clone_the_rest_is_the_same_over_many_portions() {
    let (volume, mut random) = (new_volume(), Random::new(7));
    let blocks = 20_000;
    for part in 0..blocks / 1_000 {
        write(&volume, OLD, part * 1_000, &unique(1_000, part));
        let from = Lbn(part * 1_000);
        volume.clone_blocks((OLD, from), (NEW, from), Blocks(1_000), |_, _| ()).unwrap();
    }
    let mut is_changed = vec![false; blocks as usize];
    for n in 0..200 {
        let (at, count) = (random.below(blocks - 20), 1 + random.below(20));
        write(&volume, NEW, at, &unique(count as usize, 1_000 + n));
        is_changed[at as usize..][..count as usize].fill(true);
    }
    let runs = compared(&volume, NEW, Some(OLD));
    assert_eq!(runs.iter().map(|run| run.1).sum::<u64>(), blocks);
    for (lbn, count, state) in runs {
        for n in lbn..lbn + count {
            assert_eq!(state != ComparedState::Same, is_changed[n as usize], "block {n}");
        }
    }
}
