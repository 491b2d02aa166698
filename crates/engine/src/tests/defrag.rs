//! Defrag on volumes in memory: its effect on a file, its cost, what it leaves alone, and the effect of a power cut.
//! Concurrent work of programs is tested in `race`, random work in `crash`.

use crate::device::Device;
use crate::format::extent_leaf::{Extent, LEAF_BLOCKS, Target};
use crate::format::keys::LeafKey;
use crate::fsck::parts::checker;
use crate::layout::defrag::outcome::{DefragOptions, DefragOutcome, ExtentsLeft};
use crate::place::free_blocks::Claim;
use crate::tests::fixture::{Devices, Random, one_level, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, Error, Lbn, MapId, OpenOptions, Pbn};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Files that pieces are taken from.
const SOURCES: u64 = 10;
const SOURCE_BLOCKS: usize = 300;
/// The file that is made of their pieces.
const STITCHED: MapId = MapId(100);

fn all_of_it(run_blocks_min: u32) -> DefragOptions {
    let run_blocks_min = Some(run_blocks_min);
    DefragOptions { run_blocks_min, space: Blocks(100_000), ..DefragOptions::default() }
}

/// A file stitched from others in pieces of 1 to `piece_blocks_max` blocks, and its content.
struct Stitched {
    devices: Devices,
    volume: Volume,
    sources: Vec<Vec<u8>>,
    content: Vec<u8>,
}

impl Stitched {
    fn new(data: Blocks, blocks: u64, piece_blocks_max: u64) -> Self {
        let devices = Devices::new(data, one_level());
        let volume = devices.open();
        let sources: Vec<Vec<u8>> = (0..SOURCES).map(|n| unique(SOURCE_BLOCKS, n + 1)).collect();
        for (n, source) in (1..).zip(&sources) {
            volume.write(MapId(n), 0, source, |_, _| ()).unwrap();
        }
        let mut random = Random::new(3);
        let mut content = Vec::new();
        while (content.len() as u64) < blocks * BLOCK {
            let left = blocks - content.len() as u64 / BLOCK;
            let piece = (1 + random.below(piece_blocks_max)).min(left);
            let source = random.below(SOURCES);
            let at = random.below(SOURCE_BLOCKS as u64 - piece);
            let to = Lbn(content.len() as u64 / BLOCK);
            let from = (MapId(source + 1), Lbn(at));
            volume.clone_blocks(from, (STITCHED, to), Blocks(piece), |_, _| ()).unwrap();
            content
                .extend_from_slice(&sources[source as usize][(at * BLOCK) as usize..((at + piece) * BLOCK) as usize]);
        }
        volume.commits.commit().unwrap();
        Self { devices, volume, sources, content }
    }

    fn defrag(&self, options: &DefragOptions) -> DefragOutcome {
        self.volume.defragmenter.defrag(STITCHED, options).unwrap()
    }

    fn assert_intact(&self, volume: &Volume) {
        assert!(
            *volume.reader.read(STITCHED, 0, self.content.len()).unwrap() == *self.content,
            "the file has other bytes"
        );
        for (n, source) in (1..).zip(&self.sources) {
            assert!(*volume.reader.read(MapId(n), 0, source.len()).unwrap() == **source, "source {n} has other bytes");
        }
        let report = checker(volume).check(true, &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
    }
}

fn extents(volume: &Volume, map: MapId) -> u64 {
    let dry_run = DefragOptions { dry_run: true, ..all_of_it(1) };
    volume.defragmenter.defrag(map, &dry_run).unwrap().extents_before
}

/// Blocks of two files alternately, so that each file consists of unshared single blocks.
fn by_turns(volume: &Volume, blocks: usize) -> Vec<u8> {
    let content = unique(blocks, 50);
    for (n, block) in (0..).zip(content.chunks(BLOCK_BYTES)) {
        volume.write(STITCHED, n * BLOCK, block, |_, _| ()).unwrap();
        volume.write(MapId(STITCHED.0 + 1), n * BLOCK, &unique(1, 1_000 + n), |_, _| ()).unwrap();
    }
    content
}

#[test]
fn a_file_stitched_from_pieces_lies_in_one_place_afterwards_and_the_others_stay() {
    let stitched = Stitched::new(Blocks(40_000), 2_500, 3);
    let used = stitched.volume.free_blocks.totals().used;
    let outcome = stitched.defrag(&all_of_it(64));
    assert!(outcome.extents_before > 1_000, "{outcome:?}");
    assert_eq!((outcome.extents_after, outcome.left), (1, ExtentsLeft::default()), "{outcome:?}");
    assert_eq!((outcome.blocks_moved, outcome.blocks_unshared), (2_500, 2_500));
    assert_eq!(stitched.volume.free_blocks.totals().used, Blocks(used.0 + 2_500));
    assert_eq!(extents(&stitched.volume, STITCHED), 1);
    (1..=SOURCES).for_each(|n| assert_eq!(extents(&stitched.volume, MapId(n)), 1, "source {n} was touched"));
    stitched.assert_intact(&stitched.volume);
    assert!(stitched.volume.base.backlog.is_empty(), "the worker would share it again");
    let again = stitched.defrag(&all_of_it(64));
    assert_eq!((again.blocks_moved, again.extents_before), (0, 1), "nothing is left to do");
}

#[test]
fn before_its_commit_a_power_cut_leaves_the_old_layout_and_behind_it_the_new_one() {
    let stitched = Stitched::new(Blocks(40_000), 300, 3);
    let before = extents(&stitched.volume, STITCHED);
    stitched.defrag(&all_of_it(64));
    let cut = stitched.devices.after_power_cut_of_all().open();
    assert_eq!(extents(&cut, STITCHED), before);
    stitched.assert_intact(&cut);
    stitched.volume.commits.commit().unwrap();
    let cut = stitched.devices.after_power_cut_of_all().open();
    assert_eq!(extents(&cut, STITCHED), 1);
    stitched.assert_intact(&cut);
}

#[test]
fn long_runs_stay_shared_and_so_does_all_that_space_is_not_allowed_for() {
    let stitched = Stitched::new(Blocks(40_000), 1_000, 40);
    let used = stitched.volume.free_blocks.totals().used;
    let none = stitched.defrag(&DefragOptions { space: Blocks(0), ..all_of_it(64) });
    assert_eq!((none.blocks_moved, none.extents_after), (0, none.extents_before), "{none:?}");
    assert_eq!(none.left.space_limit, none.extents_before - 1);
    let some = stitched.defrag(&DefragOptions { space: Blocks(100), ..all_of_it(16) });
    assert!(some.extents_after < some.extents_before && some.blocks_unshared <= 100, "{some:?}");
    assert_eq!(stitched.volume.free_blocks.totals().used, Blocks(used.0 + some.blocks_unshared));
    let rest = stitched.defrag(&all_of_it(16));
    assert!(rest.blocks_unshared < 600, "long runs stay: {rest:?}");
    stitched.assert_intact(&stitched.volume);
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_would_be() {
    let stitched = Stitched::new(Blocks(40_000), 500, 3);
    let dry_run = DefragOptions { dry_run: true, ..all_of_it(64) };
    let planned = stitched.defrag(&dry_run);
    assert_eq!(stitched.defrag(&dry_run), planned);
    assert_eq!(stitched.volume.base.stats.counters.blocks_defragmented.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert_eq!(stitched.defrag(&all_of_it(64)), planned);
}

#[test]
fn what_nobody_shares_moves_without_space() {
    let devices = Devices::new(Blocks(40_000), one_level());
    let volume = devices.open();
    let content = by_turns(&volume, 500);
    volume.commits.commit().unwrap();
    let used = volume.free_blocks.totals().used;
    let outcome = volume.defragmenter.defrag(STITCHED, &DefragOptions { space: Blocks(0), ..all_of_it(8) }).unwrap();
    assert_eq!((outcome.extents_before, outcome.extents_after, outcome.blocks_unshared), (500, 1, 0));
    assert_eq!(volume.free_blocks.totals().used, used);
    assert!(*volume.reader.read(STITCHED, 0, content.len()).unwrap() == *content);
}

#[test]
fn holes_and_reserved_space_stay_and_do_not_end_a_run() {
    let devices = Devices::new(Blocks(40_000), one_level());
    let volume = devices.open();
    let mut content = by_turns(&volume, 600);
    volume.range_changes.zero(STITCHED, 100 * BLOCK, 200 * BLOCK, false, |_, _| ()).unwrap();
    volume.range_changes.zero(STITCHED, 400 * BLOCK, 50 * BLOCK, true, |_, _| ()).unwrap();
    [100..300, 400..450].into_iter().for_each(|zeros| {
        content[zeros.start * BLOCK_BYTES..zeros.end * BLOCK_BYTES].fill(0);
    });
    // Far away: the gap is not searched block by block.
    volume.write(STITCHED, 1 << 50, &unique(1, 9), |_, _| ()).unwrap();
    let (totals, mapped) = (volume.free_blocks.totals(), mapped(&volume));
    let outcome = volume.defragmenter.defrag(STITCHED, &all_of_it(8)).unwrap();
    assert_eq!((outcome.extents_before, outcome.extents_after), (351, 1));
    assert_eq!(volume.free_blocks.totals(), totals);
    assert!(*volume.reader.read(STITCHED, 0, content.len()).unwrap() == *content);
    assert!(*volume.reader.read(STITCHED, 1 << 50, BLOCK_BYTES).unwrap() == *unique(1, 9));
    assert_eq!(self::mapped(&volume), mapped);
}

/// The state of each block of the file, except for its place.
fn mapped(volume: &Volume) -> Vec<Target> {
    let leaves =
        (0..600_u64.div_ceil(LEAF_BLOCKS)).map(|leaf| volume.metadata.leaf(LeafKey { map: STITCHED, leaf }).unwrap());
    let kind = |extent: Extent| match extent.target {
        Target::Data(_) => Target::Data(Pbn(0)),
        other => other,
    };
    let of_leaf = |extent: Extent| vec![kind(extent); usize::from(extent.blocks)];
    leaves.flat_map(|leaf| leaf.slice(0, LEAF_BLOCKS as u16).flat_map(of_leaf).collect::<Vec<_>>()).collect()
}

#[test]
fn a_file_is_planned_in_parts_that_cut_no_run() {
    let devices = Devices::new(Blocks(40_000), one_level());
    let volume = devices.open();
    volume.write(STITCHED, 0, &unique(20 * LEAF_BLOCKS as usize, 1), |_, _| ()).unwrap();
    let behind = 20 * LEAF_BLOCKS;
    for n in (0..40).rev() {
        volume.write(STITCHED, (behind + n * 200) * BLOCK, &unique(200, 100 + n), |_, _| ()).unwrap();
    }
    let (whole, end) = volume.defragmenter.window_of(STITCHED, Lbn(0), 1_000).unwrap();
    assert_eq!((whole.len(), end), (41, None));
    let (mut parts, mut at) = (Vec::new(), Some(Lbn(0)));
    while let Some(from) = at {
        let (runs, next) = volume.defragmenter.window_of(STITCHED, from, 2).unwrap();
        assert!(next.is_none_or(|next| next > from && next == runs[runs.len() - 1].end));
        parts.extend(runs);
        at = next;
    }
    assert_eq!(parts, whole);
}

#[test]
fn a_file_can_be_laid_out_a_window_at_a_time() {
    let stitched = Stitched::new(Blocks(60_000), 9_000, 3);
    let (mut from, mut sum, mut calls) = (Some(0), DefragOutcome::default(), 0);
    while let Some(at) = from {
        let window = Some(Blocks(4_096));
        let part = stitched.defrag(&DefragOptions { from: Lbn(at), window, ..all_of_it(64) });
        assert!(part.blocks_moved <= 5_000, "{part:?}");
        from = part.next;
        sum.add(&part);
        calls += 1;
        stitched.volume.commits.commit().unwrap();
    }
    assert!(calls > 1 && sum.blocks_moved >= 8_990, "{calls} calls, {sum:?}");
    assert!(extents(&stitched.volume, STITCHED) <= 9_000 / 64);
    stitched.assert_intact(&stitched.volume);
}

#[test]
fn a_volume_that_is_full_or_has_no_long_free_run_is_left_as_it_is() {
    // One portion: a run across two portions would not be counted.
    let stitched = Stitched::new(Blocks(8_000), 250, 3);
    let volume = &stitched.volume;
    let totals = volume.free_blocks.totals();
    // Every second block of what is free stays free.
    let taken = volume.free_blocks.allocate(totals.data.0 - totals.used.0, Claim::KeptBack).unwrap();
    volume.free_blocks.unclaim(crate::space::allocator::blocks_in(&taken));
    let pbns = taken.iter().flat_map(|run| run.pbns()).step_by(2);
    pbns.for_each(|pbn| volume.base.space.give_back(&[crate::space::allocator::Run { pbn, blocks: 1 }]));
    let outcome = stitched.defrag(&all_of_it(64));
    assert_eq!((outcome.blocks_moved, outcome.extents_after), (0, outcome.extents_before), "{outcome:?}");
    assert_eq!(outcome.left.no_free_run, outcome.extents_before - 1);
    stitched.assert_intact(volume);
}

#[test]
fn the_last_space_is_left_for_others() {
    let stitched = Stitched::new(Blocks(6_400), 2_000, 3);
    let volume = &stitched.volume;
    let filler = volume.free_blocks.available().0 - 500;
    volume.write(MapId(200), 0, &unique(filler as usize, 77), |_, _| ()).unwrap();
    let outcome = stitched.defrag(&all_of_it(64));
    assert!(outcome.left.no_free_run > 0, "{outcome:?}");
    assert!(
        volume.free_blocks.available() >= Blocks(6_400 / 64),
        "{:?} after {outcome:?}",
        volume.free_blocks.totals()
    );
    volume.write(MapId(201), 0, &unique(90, 78), |_, _| ()).unwrap();
    stitched.assert_intact(volume);
}

#[test]
fn a_damaged_block_stays_with_its_run_and_keeps_nobody_from_the_others() {
    let stitched = Stitched::new(Blocks(40_000), 300, 3);
    let volume = &stitched.volume;
    volume.commits.checkpoint().unwrap();
    let Some(Target::Data(hit)) = volume.current(STITCHED, 150) else { panic!("a block of data") };
    stitched.devices.data.write_at(&[7; 100], hit.0 * BLOCK + 50).unwrap();
    let outcome = stitched.defrag(&all_of_it(64));
    assert!(outcome.left.damaged > 0, "{outcome:?}");
    assert!(outcome.extents_after <= 1 + 2 * outcome.left.damaged, "{outcome:?}");
    assert_eq!(volume.current(STITCHED, 150), Some(Target::Data(hit)));
    volume.repairs.repair_noticed().unwrap();
    assert_eq!(
        volume.affected_files.bad_blocks().iter().map(|bad| bad.pbn).collect::<Vec<_>>(),
        [hit],
        "the worker is told"
    );
    let outcome = stitched.defrag(&all_of_it(64));
    assert_eq!((outcome.blocks_moved, outcome.left.damaged), (0, 0), "known to be bad: not tried again");
}

impl Volume {
    fn current(&self, map: MapId, lbn: u64) -> Option<Target> {
        let leaf = self.metadata.leaf(LeafKey { map, leaf: lbn / LEAF_BLOCKS }).unwrap();
        let place = (lbn % LEAF_BLOCKS) as u16;
        leaf.slice(place, place + 1).next().map(|extent| extent.target)
    }
}

#[test]
fn runs_of_1024_blocks_stay_whatever_is_asked_for() {
    let devices = Devices::new(Blocks(40_000), one_level());
    let volume = devices.open();
    for n in [1, 0] {
        volume.write(STITCHED, n * 1_024 * BLOCK, &unique(1_024, 1 + n), |_, _| ()).unwrap();
    }
    let outcome = volume.defragmenter.defrag(STITCHED, &all_of_it(u32::MAX)).unwrap();
    assert_eq!((outcome.extents_before, outcome.blocks_moved), (2, 0), "a portion is as long as its longest run");
}

#[test]
fn a_read_only_volume_and_a_deleted_file_are_refused() {
    let stitched = Stitched::new(Blocks(40_000), 50, 3);
    stitched.volume.range_changes.detach(MapId(1), |_| ()).unwrap();
    assert!(matches!(stitched.volume.defragmenter.defrag(MapId(1), &all_of_it(8)), Err(Error::MapDetached)));
    stitched.volume.commits.checkpoint().unwrap();
    let options = OpenOptions { read_only: true, ..OpenOptions::new(2 << 20) };
    let volume =
        crate::volume::open::recover(stitched.devices.backend(), &options, one_level(), crate::TestHooks::default())
            .unwrap();
    assert!(matches!(volume.defragmenter.defrag(STITCHED, &all_of_it(8)), Err(Error::ReadOnly(_))));
    assert!(extents(&volume, STITCHED) > 10, "looking is allowed");
}
