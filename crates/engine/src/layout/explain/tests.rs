//! Explanations of files whose layout is known: by construction, and by a naive search of all maps.
//!
//! Names of files, and the output for people: `oncefs-fs`, `oncefs` and the system tests.

use std::collections::BTreeMap;

use super::*;
use crate::device::Device;
use crate::layout::fragmentation::{FileLayout, LayoutCursor, RunClass};
use crate::layout::referrers::{MapCursor, Referrer};
use crate::layout::run_states::Equal;
use crate::settings::values::{Inline, Settings};
use crate::tests::fixture::{Devices, Random, two_levels, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn volume(inline: Inline) -> (Devices, Volume) {
    let devices = Devices::new(Blocks(60_000), Settings { inline, ..two_levels() });
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    (devices, volume)
}

fn write(volume: &Volume, map: u64, first: u64, data: &[u8]) {
    volume.write(MapId(map), first * BLOCK, data, |_, _| ()).unwrap();
}

fn revisit_all(volume: &Volume) {
    while volume.revisits.revisit(1_000).unwrap().is_some() {}
}

/// All of a file, portion by portion.
fn explained(volume: &Volume, map: u64, run_blocks_min: u32) -> Vec<ExplainedRun> {
    let mut runs = Vec::new();
    let mut from = Some(0);
    while let Some(lbn) = from {
        let (portion, next) = volume.explainer.explain_with(MapId(map), Lbn(lbn), run_blocks_min).unwrap();
        portion.into_iter().for_each(|run| push_run(&mut runs, run));
        from = next;
    }
    runs
}

/// Each run in a few words: where, how long, what.
fn told(runs: &[ExplainedRun]) -> Vec<String> {
    let what = |what: &What| match what {
        What::Hole => "hole".to_owned(),
        What::Reserved => "reserved".to_owned(),
        What::Changed => "changed".to_owned(),
        What::Unknown { .. } => "unknown".to_owned(),
        What::Shared { references, .. } => format!("shared by {references}"),
        What::Bad { replacement, .. } => format!("bad, {}", if replacement.is_some() { "at its home" } else { "lost" }),
        What::Own { equal, waits, .. } => {
            let equal = match equal {
                Equal::None => "no equal".to_owned(),
                Equal::TooShort { longest_run_blocks, .. } => format!("run of {longest_run_blocks}"),
                Equal::LongEnough { .. } => "long enough".to_owned(),
            };
            format!("own, {equal}{}", if *waits { ", waits" } else { "" })
        }
    };
    runs.iter().map(|run| format!("{}+{} {}", run.lbn, run.blocks, what(&run.what))).collect()
}

fn pbn(volume: &Volume, map: u64, lbn: u64) -> u64 {
    let (runs, _) = volume.explainer.explain_with(MapId(map), Lbn(lbn), 1).unwrap();
    runs[0].what.pbn().unwrap()
}

#[test]
fn shared_and_own_blocks_holes_and_reserved_space_are_told_apart() {
    let (_devices, volume) = volume(Inline::All);
    let (a, own) = (unique(60, 1), unique(40, 2));
    write(&volume, 1, 0, &a);
    write(&volume, 2, 0, &[&own[..12 * BLOCK_BYTES], &a[20 * BLOCK_BYTES..36 * BLOCK_BYTES]].concat());
    write(&volume, 2, 40, &own[12 * BLOCK_BYTES..]);
    volume.range_changes.reserve(MapId(2), 80 * BLOCK, 5 * BLOCK, |_, _| ()).unwrap();
    let expected = ["0+12 own, no equal, waits", "12+16 shared by 2", "28+12 hole", "40+28 own, no equal, waits"];
    let behind = ["68+12 hole", "80+5 reserved"];
    assert_eq!(told(&explained(&volume, 2, 1)), [&expected[..], &behind].concat());
    revisit_all(&volume);
    let expected = ["0+12 own, no equal", "12+16 shared by 2", "28+12 hole", "40+28 own, no equal"];
    assert_eq!(told(&explained(&volume, 2, 1)), [&expected[..], &behind].concat());
    assert_eq!(told(&explained(&volume, 1, 1)), ["0+20 own, no equal", "20+16 shared by 2", "36+24 own, no equal"]);
    assert_eq!(told(&explained(&volume, 9, 1)), [""; 0], "a map that was never written");
}

#[test]
fn a_run_with_equal_blocks_that_is_too_short_is_told_with_its_length_and_place() {
    let (_devices, volume) = volume(Inline::Off);
    let (a, own) = (unique(60, 1), unique(40, 2));
    write(&volume, 1, 0, &a);
    let part = |from: usize, blocks: usize| &a[from * BLOCK_BYTES..(from + blocks) * BLOCK_BYTES];
    // Equal to blocks 5 to 7 of the other file, then one block that is equal to nothing, then to 30 to 37.
    write(&volume, 2, 0, &[part(5, 3), &own[..BLOCK_BYTES], part(30, 8)].concat());
    let runs = explained(&volume, 2, 8);
    assert_eq!(told(&runs), ["0+3 own, run of 3, waits", "3+1 own, no equal, waits", "4+8 own, long enough, waits"]);
    let at = |n: usize| match runs[n].what {
        What::Own { equal: Equal::TooShort { equal_pbn, .. } | Equal::LongEnough { equal_pbn }, .. } => equal_pbn,
        _ => panic!("{:?}", runs[n]),
    };
    assert_eq!((at(0), at(2)), (pbn(&volume, 1, 5), pbn(&volume, 1, 30)));
    assert_eq!(told(&explained(&volume, 2, 9))[2], "4+8 own, run of 8, waits");
    assert_eq!(told(&explained(&volume, 2, 3))[0], "0+3 own, long enough, waits");
    revisit_all(&volume);
    assert_eq!(told(&explained(&volume, 2, 1)), ["0+3 shared by 2", "3+1 own, no equal", "4+8 shared by 2"]);
}

#[test]
fn a_run_goes_on_where_its_blocks_are_shared_already() {
    let (_devices, volume) = volume(Inline::Off);
    let (a, own) = (unique(20, 1), unique(20, 2));
    write(&volume, 1, 0, &a);
    volume.clone_blocks((MapId(1), Lbn(8)), (MapId(2), Lbn(8)), Blocks(4), |_, _| ()).unwrap();
    write(&volume, 2, 12, &[&a[12 * BLOCK_BYTES..15 * BLOCK_BYTES], &own[..BLOCK_BYTES]].concat());
    let expected = ["0+8 hole", "8+4 shared by 2", "12+3 own, long enough, waits", "15+1 own, no equal, waits"];
    assert_eq!(told(&explained(&volume, 2, 7)), expected);
    assert_eq!(told(&explained(&volume, 2, 8))[2], "12+3 own, run of 7, waits");
}

#[test]
fn a_run_of_which_a_hint_names_one_block_is_found_whole() {
    let (_devices, volume) = volume(Inline::Off);
    let (a, own) = (unique(60, 1), unique(2, 2));
    write(&volume, 1, 0, &a);
    let middle = &a[20 * BLOCK_BYTES..40 * BLOCK_BYTES];
    write(&volume, 2, 0, &[&own[..BLOCK_BYTES], middle, &own[BLOCK_BYTES..]].concat());
    volume.base.hints.clear_memory();
    let none = ["0+22 own, no equal, waits"];
    assert_eq!(told(&explained(&volume, 2, 8)), none);
    let named = Pbn(pbn(&volume, 1, 30));
    volume.hint_levels.update_hints(&[], &[(volume.metadata.known_entry(named).unwrap().tag, named)]);
    let runs = told(&explained(&volume, 2, 20));
    assert_eq!(runs, ["0+1 own, no equal, waits", "1+20 own, long enough, waits", "21+1 own, no equal, waits"]);
    assert_eq!(told(&explained(&volume, 2, 21))[1], "1+20 own, run of 20, waits");
}

#[test]
fn a_file_that_repeats_itself_shares_with_itself() {
    let (_devices, volume) = volume(Inline::Off);
    let data = unique(30, 1);
    write(&volume, 1, 0, &data.repeat(3));
    revisit_all(&volume);
    assert_eq!(told(&explained(&volume, 1, 1)), ["0+30 shared by 3", "30+30 shared by 3", "60+30 shared by 3"]);
    let found = volume.referrer_search.referrers(&[(pbn(&volume, 1, 4), 2)], MapCursor { map: 0, leaf: 0 }).unwrap();
    let lbns: Vec<u64> = found.places.iter().map(|place| place.lbn).collect();
    assert_eq!((lbns, found.next), (vec![4, 34, 64], None));
}

#[test]
fn a_bad_block_is_told_and_references_of_records_are_not_sharing() {
    let (devices, volume) = volume(Inline::Off);
    volume.work_loop.tune(&[("verify".to_owned(), "read".to_owned())]).unwrap();
    let data = unique(10, 1);
    write(&volume, 1, 0, &data);
    volume.commits.commit().unwrap();
    volume.commits.checkpoint().unwrap();
    let hit = pbn(&volume, 1, 4);
    devices.data.write_at(&unique(1, 9)[..512], hit * BLOCK).unwrap();
    assert!(volume.reader.read(MapId(1), 4 * BLOCK, BLOCK_BYTES).is_err());
    volume.repairs.repair_noticed().unwrap();
    let lost = told(&explained(&volume, 1, 1));
    assert_eq!(lost, ["0+4 own, no equal, waits", "4+1 bad, lost", "5+5 own, no equal, waits"]);
    // The same content elsewhere is its replacement: a record refers to it, but no second file does.
    write(&volume, 2, 0, &data[4 * BLOCK_BYTES..5 * BLOCK_BYTES]);
    volume.repairs.repair_noticed().unwrap();
    assert_eq!(told(&explained(&volume, 1, 1))[1], "4+1 bad, at its home");
    assert_eq!(told(&explained(&volume, 2, 1)), ["0+1 own, no equal, waits"]);
}

#[test]
fn a_file_of_many_portions_is_told_as_one_and_a_sparse_one_without_walking_its_holes() {
    let (_devices, volume) = volume(Inline::Off);
    let blocks = (PORTION_LEAVES as u64 + 8) * LEAF_BLOCKS;
    for (n, part) in unique(blocks as usize, 1).chunks(256 * BLOCK_BYTES).enumerate() {
        write(&volume, 1, n as u64 * 256, part);
        volume.commits.commit().unwrap();
    }
    let covered: u64 = explained(&volume, 1, 300).iter().map(|run| run.blocks).sum();
    assert_eq!(covered, blocks);
    for n in [0, 1 << 20, 1 << 30, (1 << 40) - 1] {
        write(&volume, 2, n, &unique(1, 77 + n));
    }
    let own = |lbn: u64| format!("{lbn}+1 own, no equal, waits");
    let hole = |from: u64, to: u64| format!("{from}+{} hole", to - from);
    let last = (1 << 40) - 1;
    assert_eq!(
        told(&explained(&volume, 2, 1)),
        [
            own(0),
            hole(1, 1 << 20),
            own(1 << 20),
            hole((1 << 20) + 1, 1 << 30),
            own(1 << 30),
            hole((1 << 30) + 1, last),
            own(last)
        ]
    );
}

#[test]
fn a_run_across_the_end_of_a_portion_is_as_long_as_it_is() {
    let (_devices, volume) = volume(Inline::Off);
    let end = PORTION_LEAVES as u64 * LEAF_BLOCKS;
    // Every leaf has data, so that the portion ends there.
    (0..PORTION_LEAVES as u64).for_each(|leaf| write(&volume, 2, leaf * LEAF_BLOCKS, &unique(1, 1_000 + leaf)));
    let a = unique(20, 1);
    write(&volume, 1, 0, &a);
    write(&volume, 2, end - 10, &a);
    for (min, expected) in [(20, "long enough"), (21, "run of 20")] {
        let runs = told(&explained(&volume, 2, min));
        assert!(runs.contains(&format!("{}+20 own, {expected}, waits", end - 10)), "{runs:?}");
    }
}

#[test]
fn looking_leaves_no_trace() {
    let (_devices, volume) = volume(Inline::Off);
    let data = unique(3_000, 1);
    for (n, part) in data.chunks(50 * BLOCK_BYTES).enumerate() {
        write(&volume, 1, n as u64 * 50, part);
        volume.hint_levels.merge_waiting_hints();
    }
    volume.commits.commit().unwrap();
    let traces = |volume: &Volume| {
        let mut counters = volume.base.stats.counters.snapshot();
        // Queries of the disk level are counted, like all its reads.
        counters.remove("disk_level_bytes_read");
        let (hints, skipped) = (volume.base.hints.len(), volume.base.backlog.waiting().blocks);
        (
            counters,
            hints,
            skipped,
            volume.base.hints.waiting(),
            volume.free_blocks.totals(),
            volume.base.hints.disk_level_size(),
        )
    };
    let before = traces(&volume);
    explained(&volume, 1, 8);
    volume.referrer_search.layout(LayoutCursor::default()).unwrap();
    volume.referrer_search.referrers(&[(1, 100)], MapCursor { map: 0, leaf: 0 }).unwrap();
    assert_eq!(traces(&volume), before);
    assert!(before.2 > 0 && before.5.1 > 0, "there was something to disturb");
}

#[test]
fn a_deleted_file_is_refused() {
    let (_devices, volume) = volume(Inline::Off);
    write(&volume, 1, 0, &unique(5, 1));
    volume.range_changes.detach(MapId(1), |_| ()).unwrap();
    assert!(matches!(volume.explainer.explain(MapId(1), Lbn(0)), Err(Error::MapDetached)));
}

/// Maps of the random test.
const MAPS: u64 = 5;
/// Blocks of each that it touches: some leaves.
const REACH: u64 = 700;

/// The target of each place of each map, block by block.
fn naive(volume: &Volume) -> BTreeMap<(u64, u64), u64> {
    let mut places = BTreeMap::new();
    for map in 1..=MAPS {
        for lbn in 0..REACH + 64 {
            let key = LeafKey { map: MapId(map), leaf: lbn / LEAF_BLOCKS };
            let at = (lbn % LEAF_BLOCKS) as u16;
            if let Target::Data(pbn) = volume.metadata.leaf(key).unwrap().slice(at, at + 1).next().unwrap().target {
                places.insert((map, lbn), pbn.0);
            }
        }
    }
    places
}

fn assert_agrees(volume: &Volume, case: u64) {
    let places = naive(volume);
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    places.values().for_each(|pbn| *counts.entry(*pbn).or_default() += 1);
    for map in 1..=MAPS {
        let runs = explained(volume, map, 1 + case as u32 % 9);
        let mut at = 0;
        for run in &runs {
            assert_eq!(run.lbn, at, "seed {case}: a gap in {runs:?}");
            at += run.blocks;
            for n in 0..run.blocks {
                let (what, named) = (run.what.plus(n), places.get(&(map, run.lbn + n)));
                assert_eq!(what.pbn(), named.copied(), "seed {case}, map {map}, block {}", run.lbn + n);
                let references = named.map_or(0, |pbn| counts[pbn]);
                match what {
                    What::Shared { references: said, .. } => assert_eq!(said, references, "seed {case}"),
                    What::Own { .. } => assert_eq!(references, 1, "seed {case}"),
                    What::Hole | What::Reserved => {}
                    What::Bad { .. } | What::Unknown { .. } | What::Changed => panic!("seed {case}: {run:?}"),
                }
            }
        }
        assert!(places.range((map, at)..(map + 1, 0)).next().is_none(), "seed {case}: map {map} goes on");
    }
    assert_referrers_agree(volume, &places, case);
    assert_layout_agrees(volume, &places, &counts, case);
}

fn assert_referrers_agree(volume: &Volume, places: &BTreeMap<(u64, u64), u64>, case: u64) {
    let asked = [(case % 40, 20), (100 + case % 7, 1), (200, 300)];
    let found = volume.referrer_search.referrers(&asked, MapCursor { map: 0, leaf: 0 }).unwrap();
    let each = |place: &Referrer| {
        let Referrer { map, lbn, pbn, blocks } = *place;
        (0..blocks).map(move |n| ((map, lbn + n), pbn + n)).collect::<Vec<_>>()
    };
    let found: Vec<_> = found.places.iter().flat_map(each).collect();
    let is_asked = |pbn: u64| asked.iter().any(|(first, blocks)| (*first..first + blocks).contains(&pbn));
    let expected: Vec<_> = places.iter().filter(|(_, pbn)| is_asked(**pbn)).map(|(at, pbn)| (*at, *pbn)).collect();
    assert_eq!(found, expected, "seed {case}");
}

fn assert_layout_agrees(volume: &Volume, places: &BTreeMap<(u64, u64), u64>, counts: &BTreeMap<u64, u32>, case: u64) {
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    let mut last = None;
    for ((map, lbn), pbn) in places {
        if last != Some((*map, lbn.wrapping_sub(1), pbn.wrapping_sub(1))) {
            runs.push((*map, 0, 0));
        }
        let run = runs.last_mut().unwrap();
        run.1 += 1;
        run.2 += u64::from(counts[pbn] > 1);
        last = Some((*map, *lbn, *pbn));
    }
    let mut files: BTreeMap<u64, FileLayout> = BTreeMap::new();
    let mut classes = vec![RunClass::default(); 11];
    for (map, blocks, shared_blocks) in runs {
        let file = files.entry(map).or_insert(FileLayout { map, runs: 0, blocks: 0 });
        (file.runs, file.blocks) = (file.runs + 1, file.blocks + blocks);
        let class = &mut classes[blocks.ilog2() as usize];
        class.runs += 1;
        (class.blocks, class.shared_blocks) = (class.blocks + blocks, class.shared_blocks + shared_blocks);
    }
    let mut portion = volume.referrer_search.layout(LayoutCursor::default()).unwrap();
    assert_eq!(portion.next, None, "one portion is enough here");
    portion.classes.resize(classes.len(), RunClass::default());
    assert_eq!((portion.files, portion.classes), (files.into_values().collect(), classes), "seed {case}");
}

#[test]
fn random_files_agree_with_going_through_all_maps_naively() {
    for seed in 1..=12 {
        let mut random = Random::new(seed);
        let (_devices, volume) = volume(if seed % 2 == 0 { Inline::All } else { Inline::Off });
        let contents = unique(90, seed);
        for step in 0..40 {
            let map = 1 + random.below(MAPS);
            let lbn = random.below(REACH);
            let blocks = 1 + random.below(60);
            match random.below(6) {
                0 => volume.range_changes.truncate(MapId(map), lbn * BLOCK, |_, _| ()).unwrap(),
                1 => volume.range_changes.reserve(MapId(map), lbn * BLOCK, blocks * BLOCK, |_, _| ()).unwrap(),
                2 => {
                    let from = 1 + random.below(MAPS);
                    if from != map {
                        let source = (MapId(from), Lbn(random.below(REACH)));
                        volume.clone_blocks(source, (MapId(map), Lbn(lbn)), Blocks(blocks), |_, _| ()).unwrap();
                    }
                }
                _ => {
                    let from = random.below(90 - blocks) as usize * BLOCK_BYTES;
                    write(&volume, map, lbn, &contents[from..from + blocks as usize * BLOCK_BYTES]);
                }
            }
            if step % 8 == 7 {
                volume.commits.commit().unwrap();
                if random.below(2) == 0 {
                    volume.revisits.revisit(200).unwrap();
                }
                assert_agrees(&volume, seed);
            }
        }
    }
}
