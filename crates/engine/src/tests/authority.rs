//! Only the block table decides what a block holds and whether it can take a reference. Wrong hints, and counts at
//! their maximum, which no test workload produces, are planted in the volume here.

use std::sync::atomic::Ordering::Relaxed;

use crate::format::keys::ShardKey;
use crate::format::page::{COUNT_MAX, Entry, page_of};
use crate::format::shard::Target;
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

fn write(core: &Volume, map: u64, data: &[u8]) {
    core.write(MapId(map), 0, data, |_, _| ()).unwrap();
}

fn assert_holds(core: &Volume, map: u64, data: &[u8]) {
    assert!(core.reader.read(MapId(map), 0, data.len()).unwrap().iter().eq(data), "map {map} differs");
}

fn first_pbn(core: &Volume, map: u64) -> Pbn {
    match core.metadata.shard(ShardKey { map: MapId(map), shard: 0 }).unwrap().slice(0, 1).next().unwrap().target {
        Target::Data(pbn) => pbn,
        other => panic!("map {map} begins with {other:?}"),
    }
}

/// Replaces a block's count in the table.
fn tell_count(core: &Volume, pbn: Pbn, count: u32) {
    let mut state = core.base.state.lock();
    let page = state.table.edit(page_of(pbn));
    let entry = page.entry(pbn);
    page.set(pbn, &Entry { count, ..entry });
}

fn count(core: &Volume, pbn: Pbn) -> u32 {
    core.base.state.lock().table.entry(pbn).unwrap().count
}

#[test]
fn a_hint_about_another_content_or_a_free_block_is_refused() {
    for fingerprints in [FingerprintMode::Eager, FingerprintMode::Lazy] {
        let core = volume(fingerprints);
        let (stored, new) = (block(1), block(2));
        write(&core, 1, &stored);
        let tag = core.base.hasher.tag(&new);
        core.hint_levels.update_hints(&[], &[(tag, first_pbn(&core, 1)), (tag, Pbn(900))]);
        write(&core, 2, &new);
        assert_holds(&core, 2, &new);
        assert_holds(&core, 1, &stored);
        assert_eq!(core.free_blocks.totals().used, Blocks(3));
        assert!(core.base.stats.counters.hints_refused.load(Relaxed) > 0);
        assert!(checker(&core).check(true, &mut |_, _| ()).unwrap().is_clean());
    }
}

#[test]
fn a_block_with_the_largest_count_takes_no_further_reference() {
    let core = volume(FingerprintMode::Eager);
    let data = block(1);
    write(&core, 1, &data);
    let pbn = first_pbn(&core, 1);
    tell_count(&core, pbn, COUNT_MAX - 1);
    write(&core, 2, &data);
    assert_eq!(
        (count(&core, pbn), core.free_blocks.totals().used),
        (COUNT_MAX, Blocks(2)),
        "the last reference is shared"
    );
    core.base.hints.clear_memory();
    core.hint_levels.update_hints(&[], &[(core.base.hasher.tag(&data), pbn)]);
    write(&core, 3, &data);
    assert_eq!(
        (count(&core, pbn), core.free_blocks.totals().used),
        (COUNT_MAX, Blocks(3)),
        "the next one is stored anew"
    );
    assert_ne!(first_pbn(&core, 3), pbn);
    let cloned = core.clone_blocks((MapId(1), Lbn(0)), (MapId(4), Lbn(0)), Blocks(1), |_, _| ());
    assert!(matches!(cloned, Err(Error::Invalid(_))), "{cloned:?}");
    assert_eq!(count(&core, pbn), COUNT_MAX);
    (1..4).for_each(|map| assert_holds(&core, map, &data));
}
