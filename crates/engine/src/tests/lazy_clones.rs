//! Lazy clones: at each moment, before and after a crash, a clone reads what its source held when it began, whichever
//! of them changes first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::format::extent_leaf::Target;
use crate::format::keys::{self, LEAF_BLOCKS, LeafKey};
use crate::format::page::{BAD, COUNT_MAX, Page, page_of};
use crate::fsck::check::fault::Fault;
use crate::fsck::parts::checker;
use crate::kv::Kv;
use crate::tests::fixture::{Devices, Random, one_level, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, Error, Lbn, MapId, Pbn, Result, Totals};

const SOURCE: MapId = MapId(1);
const LEAF_BYTES: u64 = LEAF_BLOCKS * BLOCK_BYTES as u64;
const LEAVES: u64 = 5;

struct Fixture {
    devices: Devices,
    volume: Volume,
    content: Vec<u8>,
}

impl Fixture {
    /// A map of five leaves, the third of which is a hole.
    fn new() -> Self {
        let devices = Devices::new(Blocks(40_000), one_level());
        let volume = devices.open();
        let mut content = unique((LEAVES * LEAF_BLOCKS) as usize, 1);
        content[2 * LEAF_BYTES as usize..3 * LEAF_BYTES as usize].fill(0);
        for (leaf, bytes) in content.chunks(LEAF_BYTES as usize).enumerate() {
            volume.write(SOURCE, leaf as u64 * LEAF_BYTES, bytes, |_, _| ()).unwrap();
        }
        Self { devices, volume, content }
    }

    fn clone(&self, source: MapId) -> MapId {
        let blocks = || Blocks(LEAVES * LEAF_BLOCKS);
        self.volume.lazy_clones.clone_map(source, blocks, |_, _, _| ()).unwrap()
    }

    fn read(&self, map: MapId) -> Vec<u8> {
        self.volume.reader.read(map, 0, self.content.len()).unwrap().to_vec()
    }

    fn holds_content(&self, map: MapId) {
        assert!(self.read(map) == self.content, "map {} differs", map.0);
    }

    fn totals(&self) -> Totals {
        self.volume.free_blocks.totals()
    }

    fn take_all(&self) {
        while self.volume.lazy_clones.step().unwrap() {}
        assert!(self.volume.base.state.lock().clones.incomplete().is_empty());
    }

    fn pending(&self) -> Vec<MapId> {
        self.volume.base.state.lock().clones.incomplete()
    }

    fn check(&self) {
        let report = checker(&self.volume).check(true, &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
    }

    /// The block of the data area that a block of a map refers to.
    fn place(&self, map: MapId, lbn: u64) -> Pbn {
        let key = LeafKey { map, leaf: lbn / LEAF_BLOCKS };
        let at = (lbn % LEAF_BLOCKS) as u16;
        match self.volume.metadata.leaf(key).unwrap().slice(at, at + 1).next().unwrap().target {
            Target::Data(pbn) => pbn,
            other => panic!("{other:?}"),
        }
    }

    /// Changes the page of the block table with a block's entry.
    fn edit_entry(&self, pbn: Pbn, edit: impl FnOnce(&mut Page)) {
        let state = &self.volume.base.state;
        let mut state = self.volume.metadata.lock_with_pages(state, || vec![page_of(pbn)]).unwrap();
        edit(state.table.edit(page_of(pbn)));
    }

    fn reclaim_all(&self) {
        while let Some(map) = self.volume.base.signals.next_detached(std::time::Duration::ZERO) {
            self.volume.reclaimer.reclaim(map).unwrap();
        }
    }

    fn reopen(&mut self) {
        self.devices = self.devices.after_power_cut_of_all();
        self.volume = self.devices.open();
    }
}

#[test]
fn a_clone_reads_its_source_at_once_and_has_references_of_its_own_once_it_has_taken() {
    let fixture = Fixture::new();
    let before = fixture.totals();
    let clone = fixture.clone(SOURCE);
    fixture.holds_content(clone);
    assert_eq!(fixture.totals().mapped, before.mapped, "no reference is counted yet");
    fixture.check();
    fixture.take_all();
    fixture.holds_content(clone);
    assert_eq!(fixture.totals().mapped.0, 2 * before.mapped.0);
    assert_eq!(fixture.totals().used, before.used);
    assert!(fixture.volume.metadata.scan(&[10], &[12], 9).unwrap().is_empty(), "no record and no mark is left");
    fixture.check();
}

#[test]
fn each_change_of_the_source_or_the_clone_leaves_the_other_as_it_was() {
    type Edit = fn(&Volume, MapId);
    let edits: [(&str, Edit); 6] = [
        ("write", |volume, map| volume.write(map, LEAF_BYTES - 5_000, &unique(3, 9), |_, _| ()).unwrap()),
        ("write into a hole", |volume, map| volume.write(map, 2 * LEAF_BYTES, &unique(1, 8), |_, _| ()).unwrap()),
        ("truncate", |volume, map| volume.range_changes.truncate(map, LEAF_BYTES + 100, |_, _| ()).unwrap()),
        ("punch", |volume, map| volume.range_changes.zero(map, 5_000, LEAF_BYTES, false, |_, _| ()).unwrap()),
        ("reserve", |volume, map| volume.range_changes.zero(map, 0, 4 * LEAF_BYTES, true, |_, _| ()).unwrap()),
        ("detach", |volume, map| volume.range_changes.detach(map, |_| ()).unwrap()),
    ];
    for (name, edit) in edits {
        for edits_clone in [false, true] {
            println!("{name}, of the clone: {edits_clone}");
            let mut fixture = Fixture::new();
            let clone = fixture.clone(SOURCE);
            let (edited, other) = if edits_clone { (clone, SOURCE) } else { (SOURCE, clone) };
            edit(&fixture.volume, edited);
            fixture.holds_content(other);
            fixture.check();
            fixture.volume.commits.commit().unwrap();
            fixture.reopen();
            fixture.holds_content(other);
            fixture.check();
            fixture.reclaim_all();
            fixture.holds_content(other);
            fixture.take_all();
            fixture.holds_content(other);
            fixture.check();
            fixture.volume.commits.checkpoint().unwrap();
            fixture.reopen();
            fixture.holds_content(other);
            fixture.check();
        }
    }
}

#[test]
fn a_clone_of_ranges_into_a_clone_and_a_clone_of_a_clone_are_right() {
    let fixture = Fixture::new();
    let first = fixture.clone(SOURCE);
    let second = fixture.clone(first);
    fixture.volume.write(SOURCE, 0, &unique(1, 5), |_, _| ()).unwrap();
    [first, second].into_iter().for_each(|map| fixture.holds_content(map));
    fixture.volume.write(first, LEAF_BYTES, &unique(1, 6), |_, _| ()).unwrap();
    fixture.holds_content(second);
    // The map between the two goes first.
    fixture.volume.range_changes.detach(first, |_| ()).unwrap();
    fixture.reclaim_all();
    fixture.holds_content(second);
    fixture.volume.clone_blocks((SOURCE, Lbn(0)), (second, Lbn(256)), Blocks(256), |_, _| ()).unwrap();
    let read = fixture.read(second);
    assert!(read[LEAF_BYTES as usize..2 * LEAF_BYTES as usize] == fixture.read(SOURCE)[..LEAF_BYTES as usize]);
    fixture.take_all();
    assert!(fixture.read(second) == read);
    fixture.check();
}

#[test]
fn a_clone_that_is_deleted_before_it_took_much_takes_no_more() {
    let mut fixture = Fixture::new();
    let before = fixture.totals();
    let clone = fixture.clone(SOURCE);
    fixture.volume.write(SOURCE, 4 * LEAF_BYTES, &unique(1, 5), |_, _| ()).unwrap();
    assert_eq!(fixture.totals().mapped.0, before.mapped.0 + LEAF_BLOCKS);
    fixture.volume.range_changes.detach(clone, |_| ()).unwrap();
    assert!(fixture.pending().is_empty());
    fixture.volume.commits.commit().unwrap();
    fixture.reopen();
    fixture.reclaim_all();
    assert_eq!(fixture.totals().mapped, before.mapped);
    fixture.take_all();
    fixture.check();
    assert!(fixture.volume.metadata.scan(&[10], &[12], 9).unwrap().is_empty(), "no record and no mark is left");
}

#[test]
fn a_crash_at_any_moment_leaves_no_clone_or_one_that_goes_on() {
    for commits_after in 0..8 {
        let mut fixture = Fixture::new();
        fixture.volume.commits.commit().unwrap();
        let steps: [fn(&Fixture); 5] = [
            |fixture| assert!(fixture.clone(SOURCE) > SOURCE),
            |fixture| fixture.volume.write(SOURCE, 3 * LEAF_BYTES, &unique(1, 5), |_, _| ()).unwrap(),
            |fixture| fixture.volume.commits.checkpoint().unwrap(),
            |fixture| assert!(fixture.volume.lazy_clones.step().unwrap()),
            |fixture| fixture.volume.write(SOURCE, 0, &unique(1, 7), |_, _| ()).unwrap(),
        ];
        for (number, step) in steps.into_iter().enumerate() {
            step(&fixture);
            if number == commits_after {
                fixture.volume.commits.commit().unwrap();
            }
        }
        let next = fixture.volume.base.maps.next_id();
        fixture.reopen();
        fixture.check();
        let clone = MapId(next.0 - 1);
        if fixture.volume.base.maps.next_id() == next {
            fixture.holds_content(clone);
            fixture.take_all();
            fixture.holds_content(clone);
        }
        fixture.check();
    }
}

#[test]
fn reserved_space_is_counted_and_not_cloned() {
    let fixture = Fixture::new();
    fixture.volume.range_changes.reserve(SOURCE, 2 * LEAF_BYTES, LEAF_BYTES, |_, _| ()).unwrap();
    let mut reserved = None;
    let blocks = || Blocks(LEAVES * LEAF_BLOCKS);
    let clone = fixture.volume.lazy_clones.clone_map(SOURCE, blocks, |_, blocks, _| reserved = Some(blocks)).unwrap();
    assert_eq!(reserved, Some(LEAF_BLOCKS));
    fixture.volume.write(SOURCE, 2 * LEAF_BYTES, &unique(1, 5), |_, _| ()).unwrap();
    fixture.holds_content(clone);
    fixture.take_all();
    fixture.holds_content(clone);
    assert_eq!(fixture.totals().reserved.0, LEAF_BLOCKS - 1, "of the source alone");
    fixture.check();
}

#[test]
fn reserved_space_that_changes_after_it_was_counted_is_counted_again() {
    let fixture = Fixture::new();
    let volume = &fixture.volume;
    volume.range_changes.reserve(SOURCE, 2 * LEAF_BYTES, LEAF_BYTES, |_, _| ()).unwrap();
    volume.lazy_clones.prepare(SOURCE).unwrap();
    volume.write(SOURCE, 2 * LEAF_BYTES, &unique(5, 5), |_, _| ()).unwrap();
    volume.range_changes.zero(SOURCE, 0, 3 * BLOCK_BYTES as u64, true, |_, _| ()).unwrap();
    // More leaves than are counted while the source is locked.
    volume.reserve_in_parts(SOURCE, 10 * LEAF_BYTES..40 * LEAF_BYTES);
    let (mut reserved, blocks) = (None, || Blocks(LEAVES * LEAF_BLOCKS));
    let clone = volume.lazy_clones.clone_map(SOURCE, blocks, |_, blocks, _| reserved = Some(blocks)).unwrap();
    assert_eq!(reserved, Some(31 * LEAF_BLOCKS - 5 + 3));
    assert!(!volume.base.state.lock().reserved_counts.are_any());
    fixture.take_all();
    let read = fixture.read(SOURCE);
    assert!(fixture.read(clone) == read);
    fixture.check();
}

/// A writer counts up in a leaf and then in another. A clone of one moment has both counts, or the second one behind.
#[test]
fn clones_of_a_map_that_is_written_are_of_one_moment_each() {
    let fixture = Fixture::new();
    let volume = &fixture.volume;
    let (first, second) = (7, 3 * LEAF_BYTES);
    let count = |map, at| {
        let read = volume.reader.read(map, at, 8).unwrap();
        u64::from_le_bytes(read.iter().copied().collect::<Vec<u8>>().try_into().unwrap())
    };
    for at in [first, second] {
        volume.write(SOURCE, at, &0_u64.to_le_bytes(), |_, _| ()).unwrap();
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0_u64;
            while !is_over.load(Relaxed) {
                number += 1;
                for at in [first, second] {
                    volume.write(SOURCE, at, &number.to_le_bytes(), |_, _| ()).unwrap();
                }
                volume.commits.commit().unwrap();
            }
        });
        let taker = scope.spawn(|| {
            while !is_over.load(Relaxed) {
                volume.lazy_clones.step().unwrap();
                thread::yield_now();
            }
        });
        let mut clones = Vec::new();
        for _ in 0..30 {
            let clone = fixture.clone(SOURCE);
            let counts = (count(clone, first), count(clone, second));
            assert!(counts.0 == counts.1 || counts.0 == counts.1 + 1, "{counts:?}");
            clones.push((clone, counts));
        }
        is_over.store(true, Relaxed);
        writer.join().unwrap();
        taker.join().unwrap();
        for (clone, counts) in clones {
            assert_eq!((count(clone, first), count(clone, second)), counts, "map {}", clone.0);
        }
    });
    fixture.take_all();
    fixture.check();
}

#[test]
fn what_is_bad_in_the_source_is_bad_in_the_clone() {
    let fixture = Fixture::new();
    let pbn = fixture.place(SOURCE, 3);
    let clone = fixture.clone(SOURCE);
    let flags = |flags| fixture.edit_entry(pbn, |page| page.set_flags(pbn, flags));
    flags(BAD);
    fixture.volume.write(SOURCE, 0, &unique(1, 5), |_, _| ()).unwrap();
    assert_eq!(fixture.place(clone, 3), pbn);
    flags(0);
    fixture.take_all();
    fixture.holds_content(clone);
    fixture.check();
}

#[test]
fn many_clones_of_one_map_are_bounded_and_all_right() {
    let fixture = Fixture::new();
    let mut clones = BTreeMap::new();
    for number in 0..20 {
        let content = fixture.read(SOURCE);
        clones.insert(fixture.clone(SOURCE), content);
        let at = fixture.pending().len();
        assert!(at <= 8, "{at} clones of one map are pending");
        fixture.volume.write(SOURCE, (number % LEAVES) * LEAF_BYTES, &unique(2, 100 + number), |_, _| ()).unwrap();
    }
    let mut newest = SOURCE;
    for _ in 0..10 {
        newest = fixture.clone(newest);
        clones.insert(newest, fixture.read(SOURCE));
    }
    fixture.check();
    let is_right = || clones.iter().for_each(|(map, content)| assert!(fixture.read(*map) == *content));
    is_right();
    fixture.take_all();
    is_right();
    fixture.check();
}

#[test]
fn a_clone_says_that_it_does_not_begin_at_once_while_as_many_as_may_are_pending() {
    let fixture = Fixture::new();
    let begins = |source| fixture.volume.lazy_clones.begins_at_once(source);
    for _ in 0..8 {
        assert!(begins(SOURCE));
        fixture.clone(SOURCE);
    }
    assert!(!begins(SOURCE) && begins(MapId(99)), "eight of one map are the most");
    fixture.volume.lazy_clones.prepare(SOURCE).unwrap();
    assert!(begins(SOURCE), "the oldest was completed");
}

#[test]
fn a_map_cannot_be_cloned_after_it_was_detached() {
    let fixture = Fixture::new();
    fixture.volume.range_changes.detach(SOURCE, |_| ()).unwrap();
    let cloned = fixture.volume.lazy_clones.clone_map(SOURCE, || Blocks(9), |_, _, _| ());
    assert!(matches!(cloned, Err(Error::MapDetached)), "{cloned:?}");
}

#[test]
fn a_damaged_record_of_a_clone_and_a_mark_of_none_are_found() {
    let fixture = Fixture::new();
    let clone = fixture.clone(SOURCE);
    let mark = keys::taken_leaf(LeafKey { map: MapId(2), leaf: 1 });
    {
        let mut state = fixture.volume.base.state.lock();
        state.records.put(keys::pending_clone(clone), Some(vec![1; 32]));
        state.records.put(mark.clone(), Some(Vec::new()));
    }
    let report = checker(&fixture.volume).check(false, &mut |_, _| ()).unwrap();
    let found = |key: &[u8], map| report.faults.contains(&Fault::Clone { key: key.to_vec(), map });
    assert!(found(&keys::pending_clone(clone), Some(clone)) && found(&mark, None), "{:?}", report.problems);
}

#[test]
fn random_changes_of_a_family_of_clones_agree_with_copies_of_their_content() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let mut fixture = Fixture::new();
        let mut maps = BTreeMap::from([(SOURCE, fixture.content.clone())]);
        for _ in 0..120 {
            let number = random.below(maps.len() as u64) as usize;
            let map = *maps.keys().nth(number).unwrap();
            let at = random.below(LEAVES * LEAF_BYTES - 40_000);
            match random.below(8) {
                0 if maps.len() < 6 => drop(maps.insert(fixture.clone(map), maps[&map].clone())),
                1 if maps.len() > 1 => {
                    fixture.volume.range_changes.detach(map, |_| ()).unwrap();
                    maps.remove(&map);
                }
                2 => {
                    fixture.volume.range_changes.zero(map, at, 40_000, false, |_, _| ()).unwrap();
                    maps.get_mut(&map).unwrap()[at as usize..at as usize + 40_000].fill(0);
                }
                3 => {
                    fixture.volume.lazy_clones.step().unwrap();
                }
                4 => fixture.reclaim_all(),
                5 => {
                    fixture.volume.commits.checkpoint().unwrap();
                    fixture.reopen();
                }
                _ => {
                    let data = unique(1 + random.below(9) as usize, random.word());
                    fixture.volume.write(map, at, &data, |_, _| ()).unwrap();
                    maps.get_mut(&map).unwrap()[at as usize..at as usize + data.len()].copy_from_slice(&data);
                }
            }
            fixture.volume.commits.commit().unwrap();
        }
        for (map, content) in &maps {
            assert!(fixture.read(*map) == *content, "seed {seed}: map {} differs", map.0);
        }
        fixture.check();
    }
}

#[test]
fn a_clone_keeps_a_leaf_whose_mark_was_lost() {
    let mut fixture = Fixture::new();
    let clone = fixture.clone(SOURCE);
    // The clone takes the leaf out of order, so a mark says that it has it.
    let key = LeafKey { map: clone, leaf: 3 };
    fixture.volume.write(SOURCE, 3 * LEAF_BYTES, &unique(2, 9), |_, _| ()).unwrap();
    let mark = keys::taken_leaf(key);
    fixture.volume.base.state.lock().records.put(mark.clone(), None);
    fixture.volume.commits.checkpoint().unwrap();
    fixture.reopen();
    fixture.holds_content(clone);
    fixture.take_all();
    fixture.holds_content(clone);
    fixture.check();
}

/// What a change says that cannot be made before a clone takes a leaf.
fn is_told(result: Result<()>) -> bool {
    result.is_err_and(|error| {
        error.to_string().contains("delete the clone or snapshot, or unmount and run oncefs fsck -y")
    })
}

#[test]
fn a_leaf_that_cannot_be_taken_stops_changes_there_alone_until_the_clone_is_deleted() {
    let fixture = Fixture::new();
    let volume = &fixture.volume;
    let pbn = fixture.place(SOURCE, LEAF_BLOCKS + 9);
    let clone = fixture.clone(SOURCE);
    fixture.edit_entry(pbn, |page| page.set_count(pbn, COUNT_MAX));
    let write = |map| volume.write(map, LEAF_BYTES, &unique(1, 5), |_, _| ());
    let told = [
        write(SOURCE),
        write(clone),
        volume.range_changes.truncate(SOURCE, LEAF_BYTES, |_, _| ()),
        volume.range_changes.zero(SOURCE, LEAF_BYTES, 5_000, true, |_, _| ()),
        volume.range_changes.reserve(SOURCE, LEAF_BYTES, 5_000, |_, _| ()),
        volume.clone_blocks((SOURCE, Lbn(0)), (SOURCE, Lbn(LEAF_BLOCKS)), Blocks(1), |_, _| ()),
    ];
    assert!(told.into_iter().all(is_told));
    [SOURCE, clone].into_iter().for_each(|map| fixture.holds_content(map));
    while volume.lazy_clones.step().is_ok_and(|goes_on| goes_on) {}
    assert!(!volume.lazy_clones.step().unwrap(), "background work leaves the clone alone");
    volume.write(SOURCE, 3 * LEAF_BYTES, &unique(1, 6), |_, _| ()).unwrap();
    fixture.holds_content(clone);
    volume.range_changes.detach(clone, |_| ()).unwrap();
    fixture.edit_entry(pbn, |page| page.set_count(pbn, 1));
    write(SOURCE).unwrap();
    fixture.reclaim_all();
    fixture.take_all();
    fixture.check();
}

#[test]
fn a_leaf_whose_record_is_damaged_is_named_with_the_way_out_and_other_leaves_change() {
    let mut fixture = Fixture::new();
    let clone = fixture.clone(SOURCE);
    fixture.volume.commits.checkpoint().unwrap();
    let key = keys::leaf(LeafKey { map: SOURCE, leaf: 1 });
    fixture.devices.kv.write(vec![(key, Some(vec![1; 9]))]).unwrap();
    fixture.devices.kv.flush().unwrap();
    fixture.reopen();
    let volume = &fixture.volume;
    for map in [SOURCE, clone] {
        assert!(is_told(volume.write(map, LEAF_BYTES, &unique(1, 5), |_, _| ())));
        volume.write(map, 3 * LEAF_BYTES, &unique(1, 5), |_, _| ()).unwrap();
    }
    let Err(error) =
        std::iter::repeat_with(|| volume.lazy_clones.step()).find(|step| !matches!(step, Ok(true))).unwrap()
    else {
        panic!("the clone is complete")
    };
    assert!(is_told(Err(error)));
}
