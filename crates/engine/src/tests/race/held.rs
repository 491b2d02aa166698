//! The resources that a change of a range takes, and the locks that it holds while the disk is read: no commit waits
//! for one of its reads.

use std::sync::Arc;

use super::*;
use crate::format::damage_records::BadRecord;
use crate::format::extent_leaf::{Extent, ExtentLeaf};
use crate::state::published::{Mapped, Plan, StoredBlock};
use crate::sync::take_most;
use crate::volume::assembly::Volume;
use crate::volume::backend::Backend;
use crate::{Error, Lbn, Result, Tag};

type OnRead = Box<dyn Fn() + Send>;

/// Reports when a block table is read.
struct TableReads {
    on_read: Mutex<Option<OnRead>>,
    reads: AtomicU64,
}

impl Watch for TableReads {
    fn before_read(&self, _: Range<u64>) -> io::Result<()> {
        self.reads.fetch_add(1, Relaxed);
        self.on_read.lock().iter().for_each(|on_read| on_read());
        Ok(())
    }
}

/// Blocks of a page of the block table.
const PAGE_BLOCKS: u64 = 128;
const LEAF: u64 = 256;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// As many as fit into one group of the test's log.
const LEAVES: u64 = 12;
const DIRTY_BYTES: u64 = 2 << 20;

/// A file in which each block has a page of the block table to itself, as clones of single blocks produce. Before its
/// first leaf it is a hole.
fn scattered(volume: &Volume, map: MapId, first_leaf: u64) {
    for leaf in first_leaf..first_leaf + LEAVES {
        let mut plan = Plan { map: Some(map), ..Plan::default() };
        let mut extents = ExtentLeaf::default();
        for block in 0..LEAF {
            let lbn = leaf * LEAF + block;
            let pbn = Pbn((lbn - first_leaf * LEAF + 1) * PAGE_BLOCKS);
            plan.stores.push(StoredBlock { pbn, tag: Tag(lbn + 1), fingerprint: None });
            plan.mapped.push(Mapped { lbn: Lbn(lbn), blocks: 1, target: Target::Data(pbn) });
            extents.set(Extent { first: block as u16, blocks: 1, target: Target::Data(pbn) });
        }
        plan.leaves.push((LeafKey { map, leaf }, extents));
        volume.publisher.apply_certain(plan).unwrap();
    }
    volume.commits.checkpoint().unwrap();
}

/// A volume with such a file, with nothing in memory.
fn cold() -> (Devices, Arc<Watched<TableReads>>, Arc<Volume>) {
    cold_behind_a_hole(0)
}

/// Like `cold`, but the file begins with a hole of this many leaves.
fn cold_behind_a_hole(leaves: u64) -> (Devices, Arc<Watched<TableReads>>, Arc<Volume>) {
    let devices = Devices::new(Blocks((LEAVES * LEAF + 2) * PAGE_BLOCKS), one_level());
    scattered(&devices.open(), MapId(1), leaves);
    let on_read = Mutex::default();
    let table = Watched::new(&devices.table, TableReads { on_read, reads: AtomicU64::new(0) });
    let volume = Arc::new(devices.open_medium(Backend { table: table.clone(), ..devices.backend() }));
    (devices, table, volume)
}

#[test]
fn a_range_over_more_pages_than_one_change_may_take_is_refused_and_comes_in_parts() {
    let (devices, _, volume) = cold();
    let all = LEAVES * LEAF * BLOCK;
    for result in [
        volume.range_changes.truncate(MapId(1), 0, |_, _| ()),
        volume.range_changes.zero(MapId(1), 0, all, false, |_, _| ()),
    ] {
        assert!(matches!(result, Err(Error::TooLargeForGroup)), "{result:?}");
    }
    let blocks = Blocks(LEAVES * LEAF);
    let cloned = volume.clone_blocks((MapId(1), Lbn(0)), (MapId(2), Lbn(0)), blocks, |_, _| ());
    assert!(matches!(cloned, Err(Error::TooLargeForGroup)), "{cloned:?}");
    assert_eq!(volume.base.state.lock().group_bytes(), 0, "nothing changed");
    for part in volume.range_parts.parts(MapId(1), &(0..all), false).unwrap() {
        let before = volume.base.state.lock().table.dirty_bytes();
        volume.range_changes.zero(MapId(1), part.start, part.end - part.start, false, |_, _| ()).unwrap();
        let grown = volume.base.state.lock().table.dirty_bytes() - before;
        assert!(grown <= DIRTY_BYTES, "bytes {part:?} take {grown} bytes of pages");
    }
    assert_eq!(volume.free_blocks.totals().mapped, Blocks(0));
    assert_closes_clean(&devices, volume);
}

#[test]
fn a_part_that_is_cut_for_its_length_forgets_no_leaf_that_it_has_counted() {
    // Wherever the cut comes, one of them has a leaf there.
    for hole in LEAVES / 2..=LEAVES + 1 {
        let (devices, _, volume) = cold_behind_a_hole(hole);
        let all = (hole + LEAVES) * LEAF * BLOCK;
        for part in volume.range_parts.parts(MapId(1), &(0..all), true).unwrap() {
            let zeroed = volume.range_changes.zero(MapId(1), part.start, part.end - part.start, true, |_, _| ());
            zeroed.unwrap_or_else(|error| panic!("{hole} leaves of a hole, bytes {part:?}: {error}"));
        }
        assert_closes_clean(&devices, volume);
    }
}

#[test]
fn a_clone_takes_as_many_blocks_at_a_time_as_have_few_pages() {
    let (devices, _, volume) = cold();
    let (mut done, mut steps) = (0, 0);
    while done < LEAVES * LEAF {
        let (from, to) = ((MapId(1), Lbn(done)), (MapId(2), Lbn(done + 7)));
        let part = volume.range_parts.clone_part(from, to, Blocks(LEAVES * LEAF - done)).unwrap();
        let before = volume.base.state.lock().table.dirty_bytes();
        volume.clone_blocks(from, to, part, |_, _| ()).unwrap();
        let grown = volume.base.state.lock().table.dirty_bytes() - before;
        assert!(grown <= DIRTY_BYTES, "{part:?} from block {done} on take {grown} bytes of pages");
        (done, steps) = (done + part.0, steps + 1);
    }
    assert!((2..=13).contains(&steps), "{steps} steps for {LEAVES} leaves");
    assert_eq!(volume.free_blocks.totals().mapped, Blocks(2 * LEAVES * LEAF));
    assert_closes_clean(&devices, volume);
}

#[test]
fn a_clone_of_bad_blocks_counts_the_pages_of_their_homes() {
    let (_, _, volume) = cold();
    let compact = |lbn: u64| Pbn((lbn / 100 + 1) * PAGE_BLOCKS + 1 + lbn % 100);
    let mut plan = Plan { map: Some(MapId(2)), ..Plan::default() };
    for leaf in 0..LEAVES {
        let mut extents = ExtentLeaf::default();
        for block in 0..LEAF {
            let lbn = leaf * LEAF + block;
            let target = Target::Data(compact(lbn));
            plan.stores.push(StoredBlock { pbn: compact(lbn), tag: Tag(lbn + 1), fingerprint: None });
            plan.mapped.push(Mapped { lbn: Lbn(lbn), blocks: 1, target });
            extents.set(Extent { first: block as u16, blocks: 1, target });
        }
        plan.leaves.push((LeafKey { map: MapId(2), leaf }, extents));
    }
    volume.publisher.apply_certain(plan).unwrap();
    {
        let mut state = volume.base.state.lock();
        for lbn in 0..LEAVES * LEAF {
            let replacement = Some(Pbn((lbn + 1) * PAGE_BLOCKS));
            state.bad.set(compact(lbn), Some(BadRecord { replacement, tag: Tag(lbn + 1) }));
        }
        volume.base.damage.follow(&state.bad);
    }
    let mut done = 0;
    while done < LEAVES * LEAF {
        let (from, to) = ((MapId(2), Lbn(done)), (MapId(3), Lbn(done)));
        let part = volume.range_parts.clone_part(from, to, Blocks(LEAVES * LEAF - done)).unwrap();
        volume.clone_blocks(from, to, part, |_, _| ()).unwrap();
        done += part.0;
    }
    assert_eq!(volume.free_blocks.totals().mapped, Blocks(3 * LEAVES * LEAF));
}

#[test]
fn a_commit_waits_for_no_page_that_a_change_of_a_range_reads() {
    let (devices, table, volume) = cold();
    let watched = Arc::downgrade(&volume);
    *table.on_read.lock() = Some(Box::new(move || {
        if let Some(volume) = watched.upgrade() {
            assert!(volume.base.journal.is_gate_free(), "a page is read while the group is held together");
            assert!(volume.base.journal.room().is_free(), "a page is read while room in the log is claimed");
        }
    }));
    let first = volume.range_parts.parts(MapId(1), &(0..LEAVES * LEAF * BLOCK), false).unwrap().remove(0);
    volume.clone_blocks((MapId(1), Lbn(0)), (MapId(2), Lbn(0)), Blocks(LEAF), |_, _| ()).unwrap();
    volume.range_changes.zero(MapId(1), first.start, first.end - first.start, false, |_, _| ()).unwrap();
    volume.range_changes.detach(MapId(1), |_| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    let mut from = 0;
    while !volume.reclaimer.reclaim_portion(MapId(1), &mut from).unwrap() {
        let dirty = volume.base.state.lock().table.dirty_bytes();
        assert!(dirty <= DIRTY_BYTES, "a portion of a deleted file takes {dirty} bytes of pages");
        volume.commits.checkpoint().unwrap();
    }
    assert!(table.reads.load(Relaxed) > 0, "the pages were not in memory");
    *table.on_read.lock() = None;
    assert_closes_clean(&devices, volume);
}

/// Runs `call`, and requires that it held no lock that other requests need for more reads from the disk than the rule
/// allows (docs/architecture.md, what a call may cost). Counted only under the feature `checked`.
fn bounded<T>(what: &str, call: impl FnOnce() -> Result<T>) -> T {
    const READS_MAX: u64 = 32;
    take_most();
    let result = call().unwrap_or_else(|error| panic!("{what}: {error}"));
    let most = take_most().reads;
    assert!(most <= READS_MAX, "{what}: a lock that others need is held for {most} reads from the disk");
    result
}

#[test]
fn no_call_over_scattered_cold_blocks_holds_a_lock_that_others_need_for_many_reads() {
    let all = 0..LEAVES * LEAF * BLOCK;
    let (_, table, volume) = cold();
    for part in bounded("cutting a range", || volume.range_parts.parts(MapId(1), &all, false)) {
        bounded("zeroing a part", || {
            volume.range_changes.zero(MapId(1), part.start, part.end - part.start, false, |_, _| ())
        });
    }
    assert!(table.reads.load(Relaxed) > 32, "the pages were not in memory");
    let (_, _, volume) = cold();
    let mut done = 0;
    while done < LEAVES * LEAF {
        let (from, to) = ((MapId(1), Lbn(done)), (MapId(2), Lbn(done)));
        let part = bounded("cutting a clone", || volume.range_parts.clone_part(from, to, Blocks(LEAVES * LEAF - done)));
        bounded("cloning a part", || volume.clone_blocks(from, to, part, |_, _| ()));
        done += part.0;
    }
    let (_, _, volume) = cold();
    bounded("writing over a leaf", || volume.write(MapId(1), 0, &unique(LEAF as usize, 1), |_, _| ()));
    volume.range_changes.detach(MapId(1), |_| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    let mut from = 0;
    while !bounded("freeing a portion of a deleted file", || volume.reclaimer.reclaim_portion(MapId(1), &mut from)) {
        volume.commits.checkpoint().unwrap();
    }
}

/// A file whose neighbours lie in different pages of the block table, though it has few pages in all.
fn interleaved(volume: &Volume, map: MapId, leaves: u64) {
    let pages = leaves * LEAF / PAGE_BLOCKS;
    for leaf in 0..leaves {
        let mut plan = Plan { map: Some(map), ..Plan::default() };
        let mut extents = ExtentLeaf::default();
        for block in 0..LEAF {
            let lbn = leaf * LEAF + block;
            let pbn = Pbn((lbn % pages + 1) * PAGE_BLOCKS + lbn / pages);
            plan.stores.push(StoredBlock { pbn, tag: Tag(lbn + 1), fingerprint: None });
            plan.mapped.push(Mapped { lbn: Lbn(lbn), blocks: 1, target: Target::Data(pbn) });
            extents.set(Extent { first: block as u16, blocks: 1, target: Target::Data(pbn) });
        }
        plan.leaves.push((LeafKey { map, leaf }, extents));
        volume.publisher.apply_certain(plan).unwrap();
    }
}

/// Without the feature `checked` nothing is counted.
#[test]
fn a_change_of_many_blocks_accesses_each_of_their_pages_a_few_times_however_they_lie() {
    const LEAVES: u64 = 4;
    const PAGES: u64 = LEAVES * LEAF / PAGE_BLOCKS;
    let devices = Devices::new(Blocks((PAGES + 1) * PAGE_BLOCKS), one_level());
    let volume = Arc::new(devices.open());
    interleaved(&volume, MapId(7), LEAVES);
    take_most();
    let blocks = Blocks(LEAVES * LEAF);
    volume.clone_blocks((MapId(7), Lbn(0)), (MapId(8), Lbn(0)), blocks, |_, _| ()).unwrap();
    let of_clone = take_most().looks;
    volume.range_changes.truncate(MapId(8), 0, |_, _| ()).unwrap();
    let of_truncate = take_most().looks;
    println!("a clone of {} blocks: {of_clone} accesses, truncating it: {of_truncate}", blocks.0);
    let most = 8 * (PAGES + LEAVES);
    assert!(of_clone.max(of_truncate) <= most, "{of_clone} and {of_truncate} accesses, {most} are allowed");
    volume.range_changes.truncate(MapId(7), 0, |_, _| ()).unwrap();
    assert_closes_clean(&devices, volume);
}

/// A volume with a scattered file, of which a clone has taken nothing yet, with nothing in memory. No page of the block
/// table may be read while the file's map is locked.
fn cold_and_cloned() -> Arc<Volume> {
    let (_, table, volume) = cold();
    volume.lazy_clones.clone_map(MapId(1), || Blocks(2 * LEAVES * LEAF), |_, _, _| ()).unwrap();
    let watched = Arc::downgrade(&volume);
    *table.on_read.lock() = Some(Box::new(move || {
        if let Some(volume) = watched.upgrade() {
            let is_free = volume.base.maps.lock(MapId(1)).try_read().is_some();
            assert!(is_free, "a page is read while the readers of the file wait");
        }
    }));
    volume
}

#[test]
fn no_change_of_cold_blocks_that_a_clone_lacks_reads_the_block_table_with_the_map_locked() {
    type Call = fn(&Volume, Range<u64>) -> Result<()>;
    let calls: [(&str, bool, Call); 5] = [
        ("punching", false, |volume, part| {
            volume.range_changes.zero(MapId(1), part.start, part.end - part.start, false, |_, _| ())
        }),
        ("zeroing", true, |volume, part| {
            volume.range_changes.zero(MapId(1), part.start, part.end - part.start, true, |_, _| ())
        }),
        ("reserving", true, |volume, part| {
            volume.range_changes.reserve(MapId(1), part.start, part.end - part.start, |_, _| ())
        }),
        ("truncating", false, |volume, part| volume.range_changes.truncate(MapId(1), part.start, |_, _| ())),
        ("cloning over it", true, |volume, part| {
            let blocks = Blocks((part.end - part.start) / BLOCK);
            volume.clone_blocks((MapId(77), Lbn(0)), (MapId(1), Lbn(part.start / BLOCK)), blocks, |_, _| ())
        }),
    ];
    for (what, fills_holes, call) in calls {
        let volume = cold_and_cloned();
        let parts = volume.range_parts.parts(MapId(1), &(0..2 * LEAVES * LEAF * BLOCK), fills_holes).unwrap();
        // From the end, as truncating goes.
        for part in parts.into_iter().rev() {
            bounded(what, || call(&volume, part));
            volume.commits.checkpoint().unwrap();
        }
        assert_eq!(volume.base.state.lock().clones.to_take(LeafKey { map: MapId(1), leaf: 3 }), None, "{what}");
    }
}

#[test]
fn no_call_over_many_cold_reservations_holds_a_lock_that_others_need_for_many_reads() {
    const RESERVED: u64 = 300;
    let devices = Devices::new(Blocks((RESERVED + 10) * LEAF), one_level());
    let volume = devices.open();
    volume.reserve_in_parts(MapId(1), 0..RESERVED * LEAF * BLOCK);
    volume.write(MapId(1), 0, &unique(1, 1), |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let cold = || devices.open();
    let end = RESERVED * LEAF * BLOCK;
    assert_eq!(bounded("seeking data", || cold().metadata.seek_data(MapId(1), BLOCK, end)), None);
    assert_eq!(
        bounded("seeking a hole", || cold().metadata.seek_hole(MapId(1), BLOCK, end)),
        BLOCK,
        "nothing is stored there"
    );
    bounded("writing into a reservation", || cold().write(MapId(1), BLOCK, &unique(1, 2), |_, _| ()));
    bounded("writing over a block", || cold().write(MapId(1), 0, &unique(1, 3), |_, _| ()));
}
