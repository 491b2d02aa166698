//! Random work on a volume in memory, with power cuts, against a model: after a cut the volume is exactly the last
//! commit or a later group, every acknowledged change is there, and `check` finds nothing.
//!
//! Not covered here: threads, RocksDB, real devices.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use oncefs_dedup::{Eviction, Sample, Skipped};
use oncefs_toolbox::counts::{gate_or_drill, seed};

use crate::commit::log_room::GROUP_SHARE;
use crate::device::Device;
use crate::format::keys;
use crate::fsck::parts::checker;
use crate::hash::is_zero;
use crate::place::free_blocks::KEPT_BACK_BLOCKS;
use crate::tests::fixture::{Devices, LOG_BYTES, Random, one_level, two_levels};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, DefragOptions, DefragOutcome, Error, Lbn, MapId};

const DATA: Blocks = Blocks(40_000);
const FILE_BYTES_MAX: u64 = 3 << 20;
const FILES: u64 = 6;

/// The content of the files, and the content that the last commit made durable. Slot 0 to `FILES`: map and content.
#[derive(Clone, Default, PartialEq)]
struct Model {
    files: BTreeMap<u64, (MapId, Vec<u8>)>,
}

struct Run {
    random: Random,
    devices: Devices,
    volume: Volume,
    model: Model,
    committed: Model,
}

impl Run {
    fn new(seed: u64) -> Self {
        // One seed in three has the complete index alone.
        let devices = Devices::new(DATA, if seed.is_multiple_of(3) { one_level() } else { two_levels() });
        let volume = devices.open();
        Self { random: Random::new(seed), devices, volume, model: Model::default(), committed: Model::default() }
    }

    /// Content with duplicates, zero blocks and unique blocks.
    fn content(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let mut block = vec![0u8; BLOCK_BYTES];
            let id = match self.random.below(4) {
                0 => 0,
                1 | 2 => 1 + self.random.below(40),
                _ => 1000 + self.random.word(),
            };
            if id > 0 {
                let mut filler = Random::new(id);
                block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&filler.word().to_le_bytes()));
            }
            bytes.extend_from_slice(&block);
        }
        bytes.truncate(len);
        bytes
    }

    fn range(&mut self) -> (u64, u64) {
        let block = BLOCK_BYTES as u64;
        let at = self.random.below(FILE_BYTES_MAX);
        let len_max = if self.random.below(4) == 0 { 1 << 20 } else { 40_000 };
        let len = 1 + self.random.below(len_max);
        let (at, len) =
            if self.random.below(2) == 0 { (at, len) } else { (at / block * block, len.next_multiple_of(block)) };
        (at, len.min(FILE_BYTES_MAX - at).max(1))
    }

    fn file(&mut self) -> (u64, MapId) {
        let slot = self.random.below(FILES);
        let map = self.model.files.entry(slot).or_insert_with(|| {
            let map = self.volume.base.maps.take_id();
            (map, Vec::new())
        });
        (slot, map.0)
    }

    /// The record that a file system would keep about a file: its map and size.
    fn note(slot: u64, map: MapId, size: usize) -> impl FnOnce(i64, &mut crate::Change) {
        move |_, change| change.put(vec![0x10, slot as u8], [map.0.to_le_bytes(), (size as u64).to_le_bytes()].concat())
    }

    /// Frees the blocks of deleted files before the data area runs full.
    fn make_room(&mut self) {
        let waiting: u64 =
            self.volume.base.state.lock().waiting.iter().flat_map(|waiting| &waiting.runs).map(|run| run.blocks).sum();
        if self.volume.free_blocks.available().0 < 8_000 + waiting {
            while self.volume.base.signals.is_reclaiming() {
                self.background();
            }
            self.commit();
            self.volume.commits.checkpoint().unwrap();
        }
    }

    fn step(&mut self) {
        self.make_room();
        let (slot, map) = self.file();
        let mut bytes = self.model.files[&slot].1.clone();
        let (at, len) = self.range();
        let end = (at + len) as usize;
        match self.random.below(13) {
            0..5 => {
                let data = self.content(len as usize);
                bytes.resize(bytes.len().max(end), 0);
                bytes[at as usize..end].copy_from_slice(&data);
                self.volume.write(map, at, &data, Self::note(slot, map, bytes.len())).unwrap();
            }
            5 => {
                bytes.resize(at as usize, 0);
                self.volume.range_changes.truncate(map, at, Self::note(slot, map, bytes.len())).unwrap();
            }
            6 => {
                let reserve = self.random.below(2) == 0;
                bytes.resize(bytes.len().max(end), 0);
                bytes[at as usize..end].fill(0);
                self.volume.range_changes.zero(map, at, len, reserve, Self::note(slot, map, bytes.len())).unwrap();
            }
            7 => {
                bytes.resize(bytes.len().max(end), 0);
                self.volume.range_changes.reserve(map, at, len, Self::note(slot, map, bytes.len())).unwrap();
            }
            8 => bytes = self.clone_into(slot, map, bytes),
            9 => {
                self.volume.range_changes.detach(map, |change| change.delete(vec![0x10, slot as u8])).unwrap();
                assert!(matches!(self.volume.reader.read(map, 0, 1), Err(Error::MapDetached)));
                self.model.files.remove(&slot);
                return;
            }
            11 => {
                self.clone_lazily();
                return;
            }
            10 => {
                self.commit();
                if self.random.below(3) == 0 {
                    self.volume.commits.checkpoint().unwrap();
                }
                return;
            }
            _ => {
                self.background();
                return;
            }
        }
        self.model.files.insert(slot, (map, bytes));
    }

    fn clone_into(&mut self, slot: u64, map: MapId, mut bytes: Vec<u8>) -> Vec<u8> {
        let (source_slot, source) = self.file();
        let block = BLOCK_BYTES as u64;
        let blocks = 1 + self.random.below(300);
        let from = Lbn(self.random.below(400));
        let to = Lbn(if source == map { from.0 + blocks + self.random.below(50) } else { self.random.below(400) });
        let wanted = (from.0 * block) as usize..((from.0 + blocks) * block) as usize;
        let mut copied = self.model.files[&source_slot].1.clone();
        copied.resize(copied.len().max(wanted.end), 0);
        let end = ((to.0 + blocks) * block) as usize;
        bytes.resize(bytes.len().max(end), 0);
        bytes[(to.0 * block) as usize..end].copy_from_slice(&copied[wanted]);
        self.volume
            .clone_blocks((source, from), (map, to), Blocks(blocks), Self::note(slot, map, bytes.len()))
            .unwrap();
        bytes
    }

    /// Another file, new or in place of an old one, gets the content of a file at once.
    fn clone_lazily(&mut self) {
        let (source_slot, source) = self.file();
        let slot = self.random.below(FILES);
        // A file without content is not told apart from none after a power cut.
        if slot == source_slot || self.model.files[&source_slot].1.is_empty() {
            return;
        }
        if let Some((old, _)) = self.model.files.remove(&slot) {
            self.volume.range_changes.detach(old, |change| change.delete(vec![0x10, slot as u8])).unwrap();
        }
        let bytes = self.model.files[&source_slot].1.clone();
        let blocks = || Blocks(bytes.len().div_ceil(BLOCK_BYTES) as u64);
        let note = |target, _, change: &mut crate::Change| Self::note(slot, target, bytes.len())(0, change);
        let target = self.volume.lazy_clones.clone_map(source, blocks, note).unwrap();
        self.model.files.insert(slot, (target, bytes));
    }

    fn commit(&mut self) {
        self.volume.commits.commit().unwrap();
        self.committed = self.model.clone();
    }

    fn background(&mut self) {
        if let Some(map) = self.volume.base.signals.next_detached(std::time::Duration::ZERO) {
            self.volume.reclaimer.reclaim(map).unwrap();
        }
        self.volume.groups.release_waiting();
        self.volume.free_blocks.punch_some();
        if self.random.below(3) == 0 {
            self.volume.lazy_clones.step().unwrap();
        }
        match self.random.below(6) {
            4 | 5 => self.defrag(),
            0 => self.volume.hint_levels.merge_waiting_hints(),
            1 => drop(self.volume.hint_levels.sweep_hint_page()),
            2 => self.volume.backlog_notes.checkpoint_backlog(0),
            _ => drop(self.volume.revisits.revisit(1 + self.random.below(500)).unwrap()),
        }
    }

    /// Never more extents than before, and never more space than allowed.
    fn defrag(&mut self) {
        // A clone that takes makes blocks shared, which the plan does not know.
        while self.volume.lazy_clones.step().unwrap() {}
        let (_, map) = self.file();
        let space = Blocks(self.random.below(200));
        let run_blocks_min = Some(1 + self.random.below(40) as u32);
        let options = DefragOptions { run_blocks_min, space, ..DefragOptions::default() };
        let planned = self.volume.defragmenter.defrag(map, &DefragOptions { dry_run: true, ..options }).unwrap();
        let used = self.volume.free_blocks.totals().used;
        let outcome = self.volume.defragmenter.defrag(map, &options).unwrap();
        // If two places in the file refer to one block, the first move makes the second reference the only one.
        assert!(outcome.blocks_unshared <= planned.blocks_unshared && planned.blocks_unshared <= space.0);
        // A new place may happen to continue a neighbour.
        assert!(outcome.extents_after <= planned.extents_after, "{outcome:?}, planned {planned:?}");
        let (blocks_unshared, extents_after) = (outcome.blocks_unshared, outcome.extents_after);
        let as_planned = DefragOutcome { blocks_unshared, extents_after, ..planned };
        assert_eq!(outcome, as_planned, "nothing is in the way");
        assert!(outcome.extents_after <= outcome.extents_before);
        let now = self.volume.free_blocks.totals().used;
        assert!(now.0 <= used.0 + outcome.blocks_unshared, "{used:?} blocks were in use, now {now:?}: {outcome:?}");
    }

    /// In-line deduplication and one pass over everything leave each content once, if hints name every one.
    fn revisit_everything(&mut self) {
        while self.volume.base.signals.is_reclaiming() {
            self.background();
        }
        self.volume.hint_levels.scan_table().unwrap();
        self.volume.base.backlog.restore([Skipped::Everything]);
        while self.volume.revisits.revisit(1_000).unwrap().is_some() {}
        self.compare(&self.model);
        let blocks = self.model.files.values().flat_map(|(_, bytes)| bytes.chunks(BLOCK_BYTES));
        let padded = blocks.map(|block| [block, &[0; BLOCK_BYTES][block.len()..]].concat());
        let unique: HashSet<Vec<u8>> = padded.filter(|block| !is_zero(block)).collect();
        let (used, fewest) = (self.volume.free_blocks.totals().used, Blocks(1 + unique.len() as u64));
        match self.volume.base.hints.sample() {
            Sample::ALL => assert_eq!(used, fewest, "blocks in use, and the label"),
            sample => assert!(used >= fewest, "{sample:?}: {used:?} in use for {fewest:?}"),
        }
    }

    fn compare(&self, model: &Model) {
        for (slot, (map, bytes)) in &model.files {
            let record = self.volume.metadata.get(&[0x10, *slot as u8]).unwrap();
            if let Some(record) = &record {
                assert_eq!(record[..8], map.0.to_le_bytes(), "slot {slot} has another map");
                assert_eq!(record[8..], (bytes.len() as u64).to_le_bytes(), "slot {slot} has another size");
            }
            assert!(record.is_some() || bytes.is_empty(), "slot {slot} is gone");
            let read = self.volume.reader.read(*map, 0, bytes.len()).unwrap();
            let differs = read.iter().zip(bytes).position(|(a, b)| a != b);
            assert_eq!(differs, None, "slot {slot} map {} of {} bytes differs", map.0, bytes.len());
        }
    }

    fn check(&self) {
        let report = checker(&self.volume).check(true, &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
    }

    fn power_cut(&mut self) {
        self.devices = self.devices.after_power_cut(&mut self.random);
        // Hints are advice: the next mount may name other contents, and let others leave.
        self.devices.settings.hint_sample = [1, 1, 1, 4][self.random.below(4) as usize];
        self.devices.settings.eviction =
            [Eviction::ColdOfGroups, Eviction::Groups, Eviction::Singles][self.random.below(3) as usize];
        self.volume = self.devices.open();
        if self.random.below(2) == 0 {
            self.volume.hint_levels.fill_hints().unwrap();
        }
        self.model = self.committed.clone();
        self.model.files.retain(|_, (_, bytes)| !bytes.is_empty());
        self.committed = self.model.clone();
        self.compare(&self.model);
        if self.random.below(2) == 0 {
            self.check();
        }
    }
}

/// Returns the events since the last power cut, by counter.
fn run(seed: u64, steps: u64) -> BTreeMap<String, u64> {
    println!("seed {seed}");
    let mut run = Run::new(seed);
    for step in 0..steps {
        run.step();
        if step % 16 == 15 {
            run.compare(&run.model);
        }
        if run.random.below(25) == 0 {
            run.power_cut();
        }
    }
    run.commit();
    run.check();
    run.volume.commits.checkpoint().unwrap();
    run.check();
    if !seed.is_multiple_of(3) {
        run.revisit_everything();
        run.check();
        run.commit();
    }
    let counters = run.volume.base.stats.counters.snapshot();
    run.power_cut();
    counters
}

#[test]
fn random_work_with_power_cuts_agrees_with_the_model() {
    let first = seed().saturating_sub(1);
    let mut happened: BTreeMap<String, u64> = BTreeMap::new();
    for seed in first..first + gate_or_drill(12, 200) {
        for (name, count) in run(seed, 250) {
            *happened.entry(name).or_default() += count;
        }
    }
    println!("{happened:#?}");
    for name in [
        "blocks_shared",
        "blocks_remapped",
        "blocks_defragmented",
        "hints_demoted",
        "hints_promoted",
        "hints_stale",
        "hints_swept",
    ] {
        assert!(happened[name] > 0, "{name}: the test has to come there");
    }
}

#[test]
fn the_same_content_is_stored_once_and_freed_with_its_last_reference() {
    let mut run = Run::new(1);
    let data = run.content(2 << 20);
    let (a, b) = (MapId(1), MapId(2));
    run.volume.write(a, 0, &data, |_, _| ()).unwrap();
    let used = run.volume.free_blocks.totals().used;
    run.volume.write(b, 0, &data, |_, _| ()).unwrap();
    assert_eq!(run.volume.free_blocks.totals().used, used, "the second copy takes no block");
    run.volume.commits.commit().unwrap();
    for map in [a, b] {
        run.volume.range_changes.detach(map, |_| ()).unwrap();
        run.background();
    }
    assert_eq!(run.volume.free_blocks.totals().used, Blocks(1), "only the label is left");
    run.volume.commits.commit().unwrap();
    run.check();
}

#[test]
fn writing_the_same_bytes_again_changes_nothing() {
    let mut run = Run::new(2);
    let data = run.content(1 << 20);
    run.volume.write(MapId(1), 0, &data, |_, _| ()).unwrap();
    let placed = run.volume.base.stats.counters.blocks_placed.load(std::sync::atomic::Ordering::Relaxed);
    run.volume.base.hints.clear_memory();
    run.volume.write(MapId(1), 0, &data, |delta, _| assert_eq!(delta, 0)).unwrap();
    assert_eq!(run.volume.base.stats.counters.blocks_placed.load(std::sync::atomic::Ordering::Relaxed), placed);
    run.check();
}

#[test]
fn a_failed_flush_makes_the_volume_read_only_and_the_last_commit_survives() {
    let mut run = Run::new(3);
    let data = run.content(256 << 10);
    run.volume.write(MapId(1), 0, &data, |_, _| ()).unwrap();
    run.volume.commits.commit().unwrap();
    run.volume.write(MapId(2), 0, &data, |_, _| ()).unwrap();
    run.devices.log.fail_flush_after(0);
    assert!(run.volume.commits.commit().is_err());
    assert!(matches!(run.volume.write(MapId(3), 0, &data, |_, _| ()), Err(Error::ReadOnly(_))));
    assert!(run.volume.reader.read(MapId(1), 0, data.len()).unwrap().iter().eq(&data), "reading goes on");
    run.devices = run.devices.after_power_cut(&mut Random::new(1));
    run.volume = run.devices.open();
    assert!(run.volume.reader.read(MapId(1), 0, data.len()).unwrap().iter().eq(&data));
    run.check();
}

/// The devices after a process was killed within a commit: the log has the record, and no flush followed.
fn killed_before_the_flush(run: &mut Run) -> Devices {
    let log = run.devices.log.after_power_cut(|_| false);
    run.volume.commits.commit().unwrap();
    let mut bytes = vec![0; LOG_BYTES as usize];
    run.devices.log.read_at(&mut bytes, 0).unwrap();
    log.write_at(&bytes, 0).unwrap();
    Devices { log: Arc::new(log), ..run.devices.after_power_cut_of_all() }
}

#[test]
fn what_recovery_found_is_durable_before_anything_is_built_on_it() {
    let mut run = Run::new(8);
    let (old, new) = (run.content(40 * BLOCK_BYTES), run.content(40 * BLOCK_BYTES));
    run.volume.write(MapId(1), 0, &old, |_, _| ()).unwrap();
    run.volume.commits.commit().unwrap();
    run.volume.write(MapId(1), 0, &new, |_, _| ()).unwrap();
    let devices = killed_before_the_flush(&mut run);
    let unsettled = devices.after_power_cut_of_all().open();
    assert!(unsettled.reader.read(MapId(1), 0, old.len()).unwrap().iter().eq(&old), "the record was not flushed");
    let volume = devices.open();
    assert!(volume.reader.read(MapId(1), 0, new.len()).unwrap().iter().eq(&new), "the record is there");
    let after = devices.after_power_cut_of_all().open();
    assert!(after.reader.read(MapId(1), 0, new.len()).unwrap().iter().eq(&new), "what was read is lost");
    volume.commits.checkpoint().unwrap();
    let after = devices.after_power_cut_of_all().open();
    assert!(after.reader.read(MapId(1), 0, new.len()).unwrap().iter().eq(&new));
}

#[test]
fn a_full_data_area_refuses_writes_and_takes_them_again_after_a_delete() {
    let run = Run::new(4);
    let unique = |n: u64| {
        let mut filler = Random::new(n);
        (0..(1 << 20) / 8).flat_map(|_| filler.word().to_le_bytes()).collect::<Vec<u8>>()
    };
    let mut written = 0;
    let refused = loop {
        match run.volume.write(MapId(1), written << 20, &unique(written), |_, _| ()) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        run.volume.commits.commit().unwrap();
    };
    assert!(matches!(refused, Error::NoSpace), "{refused}");
    assert!(written >= DATA.bytes() / (1 << 20) - 3, "{written} MiB fitted");
    run.volume.truncate_in_parts(MapId(1), 5000);
    assert!(run.volume.make_room().unwrap());
    run.volume.write(MapId(2), 0, &unique(0), |_, _| ()).unwrap();
    run.check();
}

#[test]
fn a_range_change_tells_by_how_many_blocks_the_map_grew() {
    let run = Run::new(5);
    let map = MapId(1);
    let mapped = std::cell::Cell::new(0);
    let add = |delta: i64, _: &mut crate::Change| mapped.set(mapped.get() + delta);
    let assert_counted = |what: &str| {
        let counted: u64 =
            (0..4).map(|leaf| run.volume.metadata.leaf(keys::LeafKey { map, leaf }).unwrap().mapped_blocks()).sum();
        assert_eq!(mapped.get(), counted as i64, "{what}");
    };
    // Only the second half of each block is not zero, so that cutting there leaves zero blocks.
    let half: Vec<u8> = (0..16 * BLOCK_BYTES).map(|at| u8::from(at % BLOCK_BYTES >= 2048)).collect();
    run.volume.write(map, 0, &half, add).unwrap();
    assert_counted("write");
    let block = BLOCK_BYTES as u64;
    run.volume.range_changes.zero(map, block + 2048, 2 * block, false, add).unwrap();
    assert_counted("punch");
    run.volume.range_changes.zero(map, 5 * block + 2048, 100, false, add).unwrap();
    run.volume.range_changes.zero(map, 6 * block + 2048, 2 * block, true, add).unwrap();
    assert_counted("zero range");
    run.volume.range_changes.truncate(map, 10 * block + 2048, add).unwrap();
    assert_counted("truncate");
    run.check();
}

#[test]
fn a_range_far_larger_than_the_volume_is_punched_at_once_and_not_reserved() {
    let mut run = Run::new(6);
    let data = run.content(1 << 20);
    let huge = 1 << 52;
    run.volume.write(MapId(1), 0, &data, |_, _| ()).unwrap();
    run.volume.write(MapId(1), huge - (1 << 20), &data, |_, _| ()).unwrap();
    assert!(matches!(run.volume.range_parts.check_room(MapId(1), &(0..huge)), Err(Error::NoSpace)));
    assert!(matches!(run.volume.range_changes.reserve(MapId(1), 0, huge, |_, _| ()), Err(Error::TooLargeForGroup)));
    assert!(matches!(run.volume.range_changes.zero(MapId(1), 0, huge, true, |_, _| ()), Err(Error::TooLargeForGroup)));
    run.volume.range_changes.zero(MapId(1), 0, huge, false, |_, _| ()).unwrap();
    assert_eq!(run.volume.free_blocks.totals().mapped, Blocks(0));
    run.check();
}

#[test]
fn the_largest_groups_fit_into_the_log_wherever_it_ends() {
    let mut run = Run::new(7);
    for n in 0..200 {
        let mut change = crate::Change::new();
        change.put(vec![0x10, n], vec![1; (LOG_BYTES / GROUP_SHARE + run.random.below(100 << 10)) as usize]);
        run.volume.publisher.publish(change).unwrap();
        let data = run.content(31 * BLOCK_BYTES);
        run.volume.write(MapId(1), 0, &data, |_, _| ()).unwrap();
        run.volume.commits.commit().unwrap();
    }
}

#[test]
fn cutting_a_file_works_where_the_host_is_full_and_others_write() {
    let mut run = Run::new(5);
    let data = run.content(1 << 20);
    run.volume.write(MapId(1), 0, &data, |_, _| ()).unwrap();
    run.volume.base.space.set_host_bytes(0);
    // Other claims have taken all that a write may use.
    let free = {
        let state = run.volume.base.state.lock();
        state.claims.free(&state.totals).0
    };
    let _others = run.volume.free_blocks.claim_reservations(free - KEPT_BACK_BLOCKS).unwrap();
    let unique: Vec<u8> = (0..(4 * BLOCK_BYTES / 8) as u64).flat_map(|n| (n * n + 77).to_le_bytes()).collect();
    assert!(matches!(run.volume.write(MapId(2), 0, &unique, |_, _| ()), Err(Error::NoSpace)));
    let last = (0..256).rev().find(|block| !crate::hash::is_zero(&data[block * BLOCK_BYTES..][..BLOCK_BYTES])).unwrap();
    let size = (last * BLOCK_BYTES + 100) as u64;
    run.volume.range_changes.truncate(MapId(1), size, |_, _| ()).unwrap();
    assert!(run.volume.reader.read(MapId(1), 0, size as usize).unwrap().iter().eq(&data[..size as usize]));
}
