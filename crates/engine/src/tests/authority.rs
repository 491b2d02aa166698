//! Only the block table decides what a block holds and whether it can take a reference. Wrong hints, and counts at
//! their maximum, which no test workload produces, are planted in the volume here.

use std::sync::atomic::Ordering::Relaxed;

use crate::format::extent_leaf::Target;
use crate::format::keys::LeafKey;
use crate::format::page::{COUNT_MAX, Entry, page_of};
use crate::fsck::parts::checker;
use crate::settings::values::{FingerprintMode, Settings};
use crate::tests::fixture::{Devices, Random, one_level};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, Error, Lbn, MapId, Pbn};

const DATA: Blocks = Blocks(1_000);

fn volume(fingerprints: FingerprintMode) -> Volume {
    Devices::new(DATA, Settings { fingerprints, ..one_level() }).open()
}

fn block(seed: u64) -> Vec<u8> {
    let mut words = Random::new(seed);
    (0..BLOCK_BYTES / 8).flat_map(|_| words.word().to_le_bytes()).collect()
}

fn write(volume: &Volume, map: u64, data: &[u8]) {
    volume.write(MapId(map), 0, data, |_, _| ()).unwrap();
}

fn assert_holds(volume: &Volume, map: u64, data: &[u8]) {
    assert!(volume.reader.read(MapId(map), 0, data.len()).unwrap().iter().eq(data), "map {map} differs");
}

fn first_pbn(volume: &Volume, map: u64) -> Pbn {
    match volume.metadata.leaf(LeafKey { map: MapId(map), leaf: 0 }).unwrap().slice(0, 1).next().unwrap().target {
        Target::Data(pbn) => pbn,
        other => panic!("map {map} begins with {other:?}"),
    }
}

/// Replaces a block's count in the table.
fn tell_count(volume: &Volume, pbn: Pbn, count: u32) {
    let mut state = volume.base.state.lock();
    let page = state.table.edit(page_of(pbn));
    let entry = page.entry(pbn);
    page.set(pbn, &Entry { count, ..entry });
}

fn count(volume: &Volume, pbn: Pbn) -> u32 {
    volume.base.state.lock().table.entry(pbn).unwrap().count
}

#[test]
fn a_hint_about_another_content_or_a_free_block_is_refused() {
    for fingerprints in [FingerprintMode::Eager, FingerprintMode::Lazy] {
        let volume = volume(fingerprints);
        let (stored, new) = (block(1), block(2));
        write(&volume, 1, &stored);
        let tag = volume.base.hasher.tag(&new);
        volume.hint_levels.update_hints(&[], &[(tag, first_pbn(&volume, 1)), (tag, Pbn(900))]);
        write(&volume, 2, &new);
        assert_holds(&volume, 2, &new);
        assert_holds(&volume, 1, &stored);
        assert_eq!(volume.free_blocks.totals().used, Blocks(3));
        assert!(volume.base.stats.counters.hints_refused.load(Relaxed) > 0);
        assert!(checker(&volume).check(true, &mut |_, _| ()).unwrap().is_clean());
    }
}

#[test]
fn a_block_with_the_largest_count_takes_no_further_reference() {
    let volume = volume(FingerprintMode::Eager);
    let data = block(1);
    write(&volume, 1, &data);
    let pbn = first_pbn(&volume, 1);
    tell_count(&volume, pbn, COUNT_MAX - 1);
    write(&volume, 2, &data);
    assert_eq!(
        (count(&volume, pbn), volume.free_blocks.totals().used),
        (COUNT_MAX, Blocks(2)),
        "the last reference is shared"
    );
    volume.base.hints.clear_memory();
    volume.hint_levels.update_hints(&[], &[(volume.base.hasher.tag(&data), pbn)]);
    write(&volume, 3, &data);
    assert_eq!(
        (count(&volume, pbn), volume.free_blocks.totals().used),
        (COUNT_MAX, Blocks(3)),
        "the next one is stored anew"
    );
    assert_ne!(first_pbn(&volume, 3), pbn);
    let cloned = volume.clone_blocks((MapId(1), Lbn(0)), (MapId(4), Lbn(0)), Blocks(1), |_, _| ());
    assert!(matches!(cloned, Err(Error::Invalid(_))), "{cloned:?}");
    assert_eq!(count(&volume, pbn), COUNT_MAX);
    (1..4).for_each(|map| assert_holds(&volume, map, &data));
}
