//! Single interleavings, forced by a data area that calls a hook before it reads, writes or flushes.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::device::{Device, MemoryDevice};
use crate::format::extent_leaf::Target;
use crate::format::keys::LeafKey;
use crate::fsck::parts::checker;
use crate::place::free_blocks::Claim;
use crate::settings::values::{FingerprintMode, Inline, Settings};
use crate::tests::fixture::{Devices, one_level, two_levels, unique};
use crate::tests::watched::{Watch, Watched};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, DefragOptions, DefragOutcome, MapId, Pbn};

mod barriers;
mod behind;
mod expanded;
mod giving_way;
mod held;
mod partial;
mod records;
mod reuse;
mod room;
mod table_pages;
mod under_way;
mod unlocked;

/// How long a hook waits for an event that must not happen.
const A_WHILE: Duration = Duration::from_millis(200);

type Hook = Mutex<Option<Call>>;
type Call = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// When a hook is called, the bytes read in parallel have arrived already.
type HookedDevice = Watched<Hooks>;

#[derive(Default)]
struct Hooks {
    /// Called after this many further reads.
    before_read: Hook,
    reads_before: AtomicU64,
    /// Reads so far.
    reads: AtomicU64,
    before_write: Hook,
    before_flush: Hook,
    before_punch: Hook,
}

fn call(hook: &Hook) -> io::Result<()> {
    let hook = hook.lock().take();
    hook.map_or(Ok(()), |hook| hook())
}

impl Watch for Hooks {
    fn before_read(&self, _: Range<u64>) -> io::Result<()> {
        if self.reads_before.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
            call(&self.before_read)?;
        }
        self.reads.fetch_add(1, Relaxed);
        Ok(())
    }

    fn before_write(&self, _: Range<u64>) -> io::Result<()> {
        call(&self.before_write)
    }

    fn before_flush(&self) -> io::Result<()> {
        call(&self.before_flush)
    }

    fn before_punch(&self) -> io::Result<()> {
        call(&self.before_punch)
    }
}

fn volume() -> (Devices, Arc<HookedDevice>, Arc<Volume>) {
    volume_with(one_level())
}

fn volume_with(settings: Settings) -> (Devices, Arc<HookedDevice>, Arc<Volume>) {
    let devices = Devices::new(Blocks(40_000), settings);
    let data = Watched::new(&devices.data, Hooks::default());
    let volume = Arc::new(devices.open_with(data.clone()));
    (devices, data, volume)
}

/// The volume is closed, and fsck finds nothing in it.
fn assert_closes_clean(devices: &Devices, volume: Arc<Volume>) {
    volume.commits.commit().unwrap();
    drop(volume);
    let report = checker(&devices.open()).check(false, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// No unflushed write survives, and the acknowledged commit is there nonetheless.
fn assert_survives(devices: &Devices, map: MapId, data: &[u8]) {
    let volume = devices.after_power_cut_of_all().open();
    assert!(volume.reader.read(map, 0, data.len()).unwrap().iter().eq(data), "acknowledged data is lost");
}

/// A hook that reports when it is reached, and then waits a while at most until it may continue.
fn waiting_hook(result: io::Result<()>) -> (Call, Receiver<()>, Sender<()>) {
    let (reached, is_reached) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let hook = Box::new(move || {
        reached.send(()).unwrap();
        let _ = may_go_on.recv_timeout(A_WHILE);
        result
    });
    (hook, is_reached, go_on)
}

#[test]
fn a_flush_that_began_before_a_write_ended_does_not_count_for_it() {
    let (devices, data, volume) = volume();
    let bytes = unique(64, 1);
    volume.write(MapId(1), 0, &unique(64, 2), |_, _| ()).unwrap();
    let flusher = volume.clone();
    *data.before_write.lock() = Some(Box::new(move || {
        flusher.groups.flush_data().unwrap();
        Ok(())
    }));
    volume.write(MapId(2), 0, &bytes, |_, _| ()).unwrap();
    volume.commits.commit().unwrap();
    assert_survives(&devices, MapId(2), &bytes);
}

#[test]
fn a_commit_waits_for_a_flush_under_way_that_covers_its_data() {
    let (devices, data, volume) = volume();
    let bytes = unique(64, 1);
    volume.write(MapId(1), 0, &bytes, |_, _| ()).unwrap();
    let (hook, is_reached, go_on) = waiting_hook(Ok(()));
    *data.before_flush.lock() = Some(hook);
    thread::scope(|scope| {
        scope.spawn(|| volume.groups.flush_data().unwrap());
        is_reached.recv().unwrap();
        volume.commits.commit().unwrap();
        assert_survives(&devices, MapId(1), &bytes);
        drop(go_on);
    });
}

#[test]
fn a_commit_fails_if_a_write_out_of_its_blocks_fails() {
    let (_, data, volume) = volume();
    let (hook, is_reached, go_on) = waiting_hook(Err(io::Error::other("the disk is gone")));
    *data.before_write.lock() = Some(hook);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (0..2_000).try_for_each(|n| volume.write(MapId(1), n * BLOCK_BYTES as u64, &unique(1, n), |_, _| ()))
        });
        is_reached.recv().unwrap();
        assert!(volume.commits.commit().is_err(), "the group has blocks that are in no data area");
        drop(go_on);
        assert!(writer.join().unwrap().is_err());
    });
}

/// The last blocks of a request may be kept in memory while the others are written at once.
#[test]
fn of_a_request_that_fails_nothing_stays_in_memory() {
    let devices = Devices::new(Blocks(700), Settings { run_blocks_min: Some(8), ..one_level() });
    let data = Watched::new(&devices.data, Hooks::default());
    let volume = Arc::new(devices.open_with(data.clone()));
    let stored = unique(COMPARED, 1);
    volume.write(MapId(1), 0, &stored, |_, _| ()).unwrap();
    volume.commits.commit().unwrap();
    *data.before_write.lock() = Some(Box::new(|| Err(io::Error::other("the disk is full"))));
    let begun = [&unique(COMPARED, 2), &stored[..3 * BLOCK_BYTES]].concat();
    assert!(volume.write(MapId(2), 0, &begun, |_, _| ()).is_err());
    assert_eq!(volume.base.staging.bytes(), 0, "what is in memory is read in the place of what is written there next");
    assert_clean(&volume);
}

#[test]
fn no_block_is_handed_out_while_a_hole_is_punched_there() {
    let devices = Devices::new(Blocks(700), one_level());
    let data = Watched::new(&devices.data, Hooks::default());
    let volume = Arc::new(devices.open_with(data.clone()));
    volume.write(MapId(1), 0, &unique(COMPARED, 1), |_, _| ()).unwrap();
    let first = first_pbn(&volume, 1);
    volume.commits.commit().unwrap();
    delete(&volume, 1);
    let hole = first..first.plus(COMPARED as u64);
    let (others, is_punched) = (volume.clone(), hole.clone());
    *data.before_punch.lock() = Some(Box::new(move || {
        while let Ok(runs) = others.free_blocks.allocate(1, Claim::KeptBack) {
            assert!(!is_punched.contains(&runs[0].pbn), "block {} is handed out and punched", runs[0].pbn);
        }
        Ok(())
    }));
    assert!(volume.free_blocks.punch_some());
    assert!(data.before_punch.lock().is_none(), "the hole has to be punched");
    let mut left = Vec::new();
    while let Ok(runs) = volume.free_blocks.allocate(1, Claim::KeptBack) {
        left.push(runs[0].pbn);
    }
    assert!((hole.start.0..hole.end.0).all(|pbn| left.contains(&Pbn(pbn))), "what was punched is free again");
}

/// A checkpoint forgets which blocks rode in the log before it. A block that rides there again meanwhile would be
/// forgotten too, and nothing would place it before its record is trimmed.
#[test]
fn a_block_that_rides_in_the_log_is_not_handed_out_before_its_record_is_trimmed() {
    let (devices, data, volume) = volume();
    for map in [1, 2] {
        volume.write(MapId(map), 0, &unique(1, map), |_, _| ()).unwrap();
    }
    volume.commits.commit().unwrap();
    // The freed block is the only one that could be handed out.
    let totals = volume.base.state.lock().totals;
    let mut load = |region| volume.free_blocks.load_region(region);
    let taken = volume.base.space.allocate((totals.data - totals.used).0, &mut load).unwrap();
    delete(&volume, 1);
    let (new, writer, is_written) = (unique(1, 3), volume.clone(), Arc::new(AtomicU64::new(0)));
    let (content, counter) = (new.clone(), is_written.clone());
    *data.before_write.lock() = Some(Box::new(move || {
        let written = writer.write(MapId(3), 0, &content, |_, _| ());
        counter.store(u64::from(written.is_ok()), Relaxed);
        writer.commits.commit().unwrap();
        Ok(())
    }));
    volume.commits.checkpoint().unwrap();
    assert!(data.before_write.lock().is_none(), "the checkpoint has a block to place");
    volume.commits.checkpoint().unwrap();
    if is_written.load(Relaxed) > 0 {
        assert_survives(&devices, MapId(3), &new);
    }
    volume.write(MapId(4), 0, &new, |_, _| ()).expect("when its record is trimmed, the block is free");
    volume.base.space.give_back(&taken);
    assert_clean(&volume);
}

/// After a crash, memory has the old content of such a block again, and readers would get it in place of the new one.
#[test]
fn a_freed_block_that_rides_in_the_log_is_not_handed_out_after_a_crash() {
    let (devices, _, volume) = volume();
    volume.write(MapId(1), 0, &unique(1, 1), |_, _| ()).unwrap();
    volume.commits.commit().unwrap();
    delete(&volume, 1);
    drop(volume);
    let devices = devices.after_power_cut_of_all();
    let volume = devices.open();
    let new = unique(64, 2);
    volume.write(MapId(2), 0, &new, |_, _| ()).unwrap();
    assert!(volume.reader.read(MapId(2), 0, new.len()).unwrap().iter().eq(&new));
    volume.commits.checkpoint().unwrap();
    assert_clean(&volume);
    assert_survives(&devices, MapId(2), &new);
}

// A file is defragmented: changes to it while its blocks are read, and while they are written.

/// Blocks of the file that is defragmented.
const SCATTERED: usize = 40;

/// Two files of alternating single blocks. The first one is defragmented, with `work` done before its blocks are read
/// or written. Returns the outcome.
fn defrag_with(
    at_read: bool,
    work: impl FnOnce(&Volume) + Send + 'static,
) -> (Devices, Arc<Volume>, crate::Result<DefragOutcome>) {
    let (devices, data, volume) = volume();
    for (n, block) in (0..).zip(unique(SCATTERED, 1).chunks(BLOCK_BYTES)) {
        volume.write(MapId(1), n * BLOCK_BYTES as u64, block, |_, _| ()).unwrap();
        volume.write(MapId(2), n * BLOCK_BYTES as u64, &unique(1, 100 + n), |_, _| ()).unwrap();
    }
    volume.commits.checkpoint().unwrap();
    let meanwhile = volume.clone();
    let hook = if at_read { &data.before_read } else { &data.before_write };
    *hook.lock() = Some(Box::new(move || {
        work(&meanwhile);
        Ok(())
    }));
    let outcome =
        volume.defragmenter.defrag(MapId(1), &DefragOptions { run_blocks_min: Some(64), ..DefragOptions::default() });
    assert!(hook.lock().is_none(), "the blocks have to be read and written");
    (devices, volume, outcome)
}

/// File 1 has this content, and nothing is wrong; also after a power cut.
fn assert_laid_out(devices: &Devices, volume: &Volume, content: &[u8]) {
    volume.commits.commit().unwrap();
    for volume in [volume, &devices.after_power_cut_of_all().open()] {
        assert!(volume.reader.read(MapId(1), 0, content.len()).unwrap().iter().eq(content), "the file differs");
        assert_clean(volume);
    }
}

#[test]
fn what_is_written_while_a_file_is_laid_out_again_stays_and_the_rest_moves() {
    for at_read in [true, false] {
        let (devices, volume, outcome) = defrag_with(at_read, |volume| {
            volume.write(MapId(1), 10 * BLOCK_BYTES as u64, &unique(3, 7), |_, _| ()).unwrap();
        });
        let outcome = outcome.unwrap();
        assert_eq!((outcome.blocks_moved, outcome.left.changed), (SCATTERED as u64 - 3, 4), "{outcome:?}");
        assert!(outcome.extents_after <= 5, "{outcome:?}");
        let mut content = unique(SCATTERED, 1);
        content[10 * BLOCK_BYTES..13 * BLOCK_BYTES].copy_from_slice(&unique(3, 7));
        assert_laid_out(&devices, &volume, &content);
    }
}

#[test]
fn a_file_that_is_cut_while_it_is_laid_out_again_stays_cut() {
    for at_read in [true, false] {
        let (devices, volume, outcome) = defrag_with(at_read, |volume| {
            volume.range_changes.truncate(MapId(1), 20 * BLOCK_BYTES as u64 + 100, |_, _| ()).unwrap();
        });
        assert_eq!(outcome.unwrap().blocks_moved, 20);
        let mut content = unique(SCATTERED, 1)[..21 * BLOCK_BYTES].to_vec();
        content[20 * BLOCK_BYTES + 100..].fill(0);
        assert_laid_out(&devices, &volume, &content);
    }
}

#[test]
fn a_file_that_is_deleted_while_it_is_laid_out_again_gives_all_its_blocks_back() {
    for at_read in [true, false] {
        let (_, volume, outcome) = defrag_with(at_read, |volume| {
            delete(volume, 1);
            volume.commits.commit().unwrap();
            volume.groups.release_waiting();
            // Takes the blocks that are free by now.
            volume.write(MapId(3), 0, &unique(2 * SCATTERED, 8), |_, _| ()).unwrap();
        });
        assert!(matches!(outcome, Err(crate::Error::MapDetached)), "{outcome:?}");
        assert_eq!(volume.free_blocks.totals().used, Blocks(1 + 3 * SCATTERED as u64));
        assert_eq!(volume.base.state.lock().claims.blocks(), Blocks(0));
        assert!(*volume.reader.read(MapId(3), 0, 2 * SCATTERED * BLOCK_BYTES).unwrap() == *unique(2 * SCATTERED, 8));
        assert_clean(&volume);
    }
}

// The out-of-line worker reads blocks to compare them: changes in the meantime.

/// Blocks of each file that the worker compares.
const COMPARED: usize = 64;

/// A volume so small that freed blocks are soon reused, with two files of equal content that were not looked up.
struct TwoCopies {
    devices: Devices,
    data: Arc<HookedDevice>,
    volume: Arc<Volume>,
    content: Vec<u8>,
}

impl TwoCopies {
    fn new() -> Self {
        Self::with(Settings { inline: Inline::Off, fingerprints: FingerprintMode::Lazy, ..two_levels() })
    }

    fn with(settings: Settings) -> Self {
        let devices = Devices::new(Blocks(700), settings);
        let data = Watched::new(&devices.data, Hooks::default());
        let volume = Arc::new(devices.open_with(data.clone()));
        let content = unique(COMPARED, 1);
        for map in [1, 2] {
            volume.write(MapId(map), 0, &content, |_, _| ()).unwrap();
        }
        volume.commits.commit().unwrap();
        Self { devices, data, volume, content }
    }

    /// One turn of the worker. `work` is done before the read that follows the first `reads`.
    fn revisit_with(&self, reads: u64, work: impl FnOnce(&Volume) + Send + 'static) {
        let volume = self.volume.clone();
        self.data.reads_before.store(reads, Relaxed);
        *self.data.before_read.lock() = Some(Box::new(move || {
            work(&volume);
            Ok(())
        }));
        self.volume.revisits.revisit(1_000).unwrap();
        assert!(self.data.before_read.lock().is_none(), "the worker has to read");
    }

    fn revisit_all(&self) {
        while self.volume.revisits.revisit(1_000).unwrap().is_some() {}
    }

    /// File 2 has this content, file 1 its own, and nothing is wrong; also after a power cut.
    fn assert_holds(&self, second: &[u8]) {
        for (map, data) in [(1, &self.content[..]), (2, second)] {
            assert!(self.volume.reader.read(MapId(map), 0, data.len()).unwrap().iter().eq(data), "map {map} differs");
        }
        assert_clean(&self.volume);
        self.volume.commits.commit().unwrap();
        let volume = self.devices.after_power_cut_of_all().open();
        for (map, data) in [(1, &self.content[..]), (2, second)] {
            assert!(
                volume.reader.read(MapId(map), 0, data.len()).unwrap().iter().eq(data),
                "map {map} differs after the cut"
            );
        }
        assert_clean(&volume);
    }
}

fn assert_clean(volume: &Volume) {
    let report = checker(volume).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

fn first_pbn(volume: &Volume, map: u64) -> Pbn {
    match volume.metadata.leaf(LeafKey { map: MapId(map), leaf: 0 }).unwrap().slice(0, 1).next().unwrap().target {
        Target::Data(pbn) => pbn,
        other => panic!("map {map} begins with {other:?}"),
    }
}

/// Rewrites a file with other content until its first block is where it was before. False: that never happens.
fn comes_back(volume: &Volume, map: u64) -> bool {
    let before = first_pbn(volume, map);
    (0..40).any(|n| {
        let written = volume.write(MapId(map), 0, &unique(COMPARED, 100 + n), |_, _| ());
        volume.commits.commit().unwrap();
        volume.groups.release_waiting();
        written.is_ok() && first_pbn(volume, map) == before
    })
}

fn delete(volume: &Volume, map: u64) {
    volume.range_changes.detach(MapId(map), |_| ()).unwrap();
    let map = volume.base.signals.next_detached(Duration::ZERO).unwrap();
    volume.reclaimer.reclaim(map).unwrap();
    volume.commits.commit().unwrap();
    volume.groups.release_waiting();
}

/// The worker reads all copies in one request and their targets in the next. The hook is called before each.
const READS: std::ops::Range<u64> = 0..2;

#[test]
fn a_block_written_anew_while_the_worker_compares_it_keeps_its_new_content() {
    for reads in READS {
        let copies = TwoCopies::new();
        let new = unique(COMPARED, 2);
        let written = new.clone();
        copies.revisit_with(reads, move |volume| volume.write(MapId(2), 0, &written, |_, _| ()).unwrap());
        copies.assert_holds(&new);
        copies.revisit_all();
        copies.assert_holds(&new);
    }
}

#[test]
fn one_block_written_anew_keeps_its_content_and_the_others_around_it_are_merged() {
    for (reads, at) in READS.flat_map(|reads| [0, 17, COMPARED - 1].map(|at| (reads, at))) {
        let copies = TwoCopies::new();
        let block = unique(1, 2);
        let mut new = copies.content.clone();
        new[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES].copy_from_slice(&block);
        copies.revisit_with(reads, move |volume| {
            volume.write(MapId(2), (at * BLOCK_BYTES) as u64, &block, |_, _| ()).unwrap();
        });
        copies.assert_holds(&new);
        copies.revisit_all();
        copies.assert_holds(&new);
        assert_eq!(copies.volume.free_blocks.totals().used, Blocks(1 + COMPARED as u64 + 1));
    }
}

#[test]
fn a_file_cut_while_the_worker_compares_it_stays_cut() {
    for (reads, size) in READS.flat_map(|reads| [0, 5 * BLOCK_BYTES, 9 * BLOCK_BYTES + 7].map(|size| (reads, size))) {
        let copies = TwoCopies::new();
        copies.revisit_with(reads, move |volume| {
            volume.range_changes.truncate(MapId(2), size as u64, |_, _| ()).unwrap()
        });
        copies.revisit_all();
        let mut new = copies.content[..size].to_vec();
        new.resize(COMPARED * BLOCK_BYTES, 0);
        copies.assert_holds(&new);
    }
}

#[test]
fn a_file_deleted_while_the_worker_compares_it_stays_deleted() {
    for reads in READS {
        let copies = TwoCopies::new();
        copies.revisit_with(reads, |volume| delete(volume, 2));
        copies.revisit_all();
        let volume = &copies.volume;
        assert!(matches!(volume.reader.read(MapId(2), 0, 1), Err(crate::Error::MapDetached)));
        assert_eq!(volume.free_blocks.totals().used, Blocks(1 + COMPARED as u64));
        assert!(volume.reader.read(MapId(1), 0, copies.content.len()).unwrap().iter().eq(&copies.content));
        assert_clean(volume);
    }
}

#[test]
fn a_file_detached_while_the_worker_compares_it_and_freed_later_is_freed_once() {
    let copies = TwoCopies::new();
    copies.revisit_with(1, |volume| volume.range_changes.detach(MapId(2), |_| ()).unwrap());
    let volume = &copies.volume;
    let map = volume.base.signals.next_detached(Duration::ZERO).unwrap();
    volume.reclaimer.reclaim(map).unwrap();
    assert_eq!(volume.free_blocks.totals().used, Blocks(1 + COMPARED as u64));
    assert_clean(volume);
}

#[test]
fn a_target_deleted_while_the_worker_compares_it_is_not_taken() {
    for reads in READS {
        let copies = TwoCopies::new();
        copies.revisit_with(reads, |volume| {
            delete(volume, 1);
            // Blocks that the worker visits are not reused, however much is written.
            let _full = (3..20).try_for_each(|map| volume.write(MapId(map), 0, &unique(COMPARED, map), |_, _| ()));
        });
        copies.revisit_all();
        let volume = &copies.volume;
        assert!(volume.reader.read(MapId(2), 0, copies.content.len()).unwrap().iter().eq(&copies.content));
        assert_clean(volume);
    }
}

#[test]
fn a_target_written_anew_while_the_worker_compares_it_is_not_taken() {
    for reads in READS {
        let copies = TwoCopies::new();
        let new = unique(COMPARED, 2);
        let written = new.clone();
        copies.revisit_with(reads, move |volume| volume.write(MapId(1), 0, &written, |_, _| ()).unwrap());
        copies.revisit_all();
        let volume = &copies.volume;
        assert!(volume.reader.read(MapId(1), 0, new.len()).unwrap().iter().eq(&new));
        assert!(volume.reader.read(MapId(2), 0, new.len()).unwrap().iter().eq(&copies.content));
        assert_clean(volume);
    }
}

/// The same place in the same file names the same pbn, but it is not the block that was compared.
#[test]
fn a_block_that_the_worker_looks_at_is_not_used_again_before_it_is_done() {
    let control = TwoCopies::new();
    assert!(comes_back(&control.volume, 2), "where nobody looks, blocks are used again");
    for (reads, map) in READS.flat_map(|reads| [(reads, 1), (reads, 2)]) {
        let copies = TwoCopies::new();
        copies.revisit_with(reads, move |volume| assert!(!comes_back(volume, map), "block of map {map} used again"));
        let other = 3 - map;
        let read = copies.volume.reader.read(MapId(other), 0, copies.content.len()).unwrap();
        assert!(read.iter().eq(&copies.content), "map {other} differs");
        assert_clean(&copies.volume);
        copies.volume.commits.commit().unwrap();
        assert_clean(&copies.devices.after_power_cut_of_all().open());
        assert!(comes_back(&copies.volume, map), "when the worker is done, blocks are used again");
    }
}

#[test]
fn a_copy_cloned_while_the_worker_compares_it_keeps_its_reference() {
    for reads in READS {
        let copies = TwoCopies::new();
        copies.revisit_with(reads, |volume| {
            let blocks = Blocks(COMPARED as u64);
            volume.clone_blocks((MapId(2), crate::Lbn(0)), (MapId(3), crate::Lbn(0)), blocks, |_, _| ()).unwrap();
        });
        copies.assert_holds(&copies.content);
        let read = copies.volume.reader.read(MapId(3), 0, copies.content.len()).unwrap();
        assert!(read.iter().eq(&copies.content));
    }
}

#[test]
fn a_checkpoint_while_the_worker_compares_changes_nothing() {
    for reads in READS {
        let copies = TwoCopies::new();
        copies.revisit_with(reads, |volume| {
            volume.commits.checkpoint().unwrap();
            volume.groups.release_waiting();
        });
        assert_eq!(copies.volume.free_blocks.totals().used, Blocks(1 + COMPARED as u64));
        copies.assert_holds(&copies.content);
    }
}
