//! Passes of repacking that meet what they cannot move: they go on behind it, and end.

use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::tests::watched::{Watch, Watched};

/// Refuses writes while it is told to.
#[derive(Default)]
struct Refusing(AtomicBool);

impl Watch for Refusing {
    fn before_write(&self, _: Range<u64>) -> io::Result<()> {
        if self.0.load(Relaxed) { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
    }
}

#[test]
fn a_turn_that_fails_is_behind_the_pass_and_the_next_one_moves_others() {
    let devices = Devices::new(Blocks(9_000), zstd());
    let (volume, files) = with_gaps(&devices, 900, 8);
    drop(volume);
    let data = Watched::new(&devices.data, Refusing::default());
    let volume = devices.open_with(data.clone());
    let numbers = files.iter().flat_map(|(map, _)| pbns_of(&volume, *map)).filter(|pbn| is_fragment(*pbn));
    let first = numbers.min_by_key(|pbn| place_of(&volume, *pbn).at).unwrap();
    let place = place_of(&volume, first);
    let repacked = || volume.base.stats.counters.fragments_repacked.load(Relaxed);
    data.0.store(true, Relaxed);
    assert!(volume.repacker.repack_some(1).is_err());
    data.0.store(false, Relaxed);
    assert!(volume.repacker.repack_some(1).unwrap().is_some() && repacked() > 0);
    assert_eq!(place_of(&volume, first), place, "the packs that failed come with the next level");
    repack_all(&volume);
    assert_ne!(place_of(&volume, first), place);
    assert!(density(&volume) >= 95, "{} %", density(&volume));
    assert_content(&volume, &files);
}

#[test]
fn a_pack_whose_count_is_wrong_stays_and_the_others_move() {
    let devices = Devices::new(Blocks(3_000), zstd());
    let (volume, files) = with_gaps(&devices, 300, 8);
    let first = pbns_of(&volume, MapId(1))[0];
    let place = place_of(&volume, first);
    let end = place.pack_end();
    let state = &volume.base.state;
    let set_count = |count: u32| {
        let mut state = volume.metadata.lock_with_pages(state, || vec![page_of(end)]).unwrap();
        let before = state.table.entry(end).unwrap().count;
        state.table.edit(page_of(end)).set_count(end, count);
        before
    };
    let count = set_count(1);
    assert!(count > 1, "a pack with several fragments");
    repack_all(&volume);
    assert_eq!(place_of(&volume, first), place);
    assert!(volume.base.stats.counters.fragments_repacked.load(Relaxed) > 0, "other packs moved");
    assert!(volume.base.damage.passed_over().iter().any(|why| why.contains("are given back")));
    set_count(count);
    assert_content(&volume, &files);
}
