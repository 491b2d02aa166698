//! Many threads on one volume in memory whose devices are slow, and power cuts in the middle: every acknowledged commit
//! is there, readers never see a reused block, and `check` finds nothing.
//!
//! Every file has one writer, so that its possible contents after a cut are known. Not covered here: partial blocks
//! (`crash` has them), RocksDB, real devices.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use oncefs_toolbox::counts::{gate_or_drill, seed};
use oncefs_toolbox::waiting::eventually;
use parking_lot::{Mutex, RwLock};

use crate::Backend;
use crate::background::threads::Threads;
use crate::device::{Device, Io, MemoryDevice};
use crate::fsck::parts::checker;
use crate::kv::{Kv, KvMemory, MemoryKv, Put};
use crate::settings::values::Settings;
use crate::tests::fixture::{Devices, Random, one_level, two_levels};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, DefragOptions, Error, Lbn, MapId, Result};

const DATA: Blocks = Blocks(4_096);
const FILE_BLOCKS_MAX: u64 = 100;
const WRITERS: u64 = 3;
const FILES_PER_WRITER: u64 = 2;
/// Power cuts in the gate and in the drill.
const CUTS: (u64, u64) = (4, 40);
/// Commits between two cuts.
const COMMITS_OF_LIFE: u64 = 15;

/// All devices stop while a power cut is taken: they work with this held shared.
type Power = Arc<RwLock<()>>;

/// A device on which a write takes effect late and a flush returns late.
struct SlowDevice {
    inner: Arc<MemoryDevice>,
    power: Power,
}

impl SlowDevice {
    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.inner.read_at(bytes, at)
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        thread::sleep(Duration::from_micros(300));
        let _on = self.power.read();
        self.inner.write_at(bytes, at)
    }
}

impl Device for SlowDevice {
    fn submit(&self, ios: &mut [Io<'_>]) {
        ios.iter_mut().for_each(|io| io.by_pieces(|bytes, at| self.read(bytes, at), |bytes, at| self.write(bytes, at)));
    }

    fn flush(&self) -> io::Result<()> {
        thread::sleep(Duration::from_micros(300));
        let flushed = {
            let _on = self.power.read();
            self.inner.flush()
        };
        thread::sleep(Duration::from_millis(1));
        flushed
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        let _on = self.power.read();
        self.inner.punch(at, len)
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.inner.next_data(at)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.inner.grow(len)
    }
}

struct SlowKv {
    inner: Arc<MemoryKv>,
    power: Power,
}

impl Kv for SlowKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.inner.scan(from, to, limit)
    }

    fn write(&self, batch: Vec<Put>) -> Result<()> {
        thread::sleep(Duration::from_millis(1));
        let _on = self.power.read();
        self.inner.write(batch)
    }

    fn flush(&self) -> Result<()> {
        let _on = self.power.read();
        self.inner.flush()
    }

    fn memory(&self) -> KvMemory {
        self.inner.memory()
    }
}

/// Opens a volume whose devices are slow.
fn open(devices: &Devices, power: &Power) -> Arc<Volume> {
    let slow = |inner: &Arc<MemoryDevice>| Arc::new(SlowDevice { inner: inner.clone(), power: power.clone() });
    let backend = Backend {
        data: slow(&devices.data),
        table: slow(&devices.table),
        log: slow(&devices.log),
        kv: Arc::new(SlowKv { inner: devices.kv.clone(), power: power.clone() }),
        hints: Some(slow(&devices.hints)),
        skipped: Some(slow(&devices.skipped)),
        ..devices.backend()
    };
    Arc::new(devices.open_medium(backend))
}

/// A file's contents since the last commit that its writer knows of: after a cut it has one of them.
#[derive(Clone, Default)]
struct File {
    map: MapId,
    versions: Vec<Vec<u8>>,
}

/// The first word of a block identifies its content, so that a reader can see whether it is whole.
fn block_of(id: u64) -> Vec<u8> {
    let mut words = Random::new(id);
    let rest = (1..BLOCK_BYTES / 8).flat_map(|_| words.word().to_le_bytes());
    id.to_le_bytes().into_iter().chain(rest).collect()
}

fn assert_whole(bytes: &[u8], what: &str) {
    for block in bytes.chunks(BLOCK_BYTES).filter(|block| block.iter().any(|byte| *byte != 0)) {
        let id = u64::from_le_bytes(block[..8].try_into().unwrap());
        assert!(block_of(id) == block, "{what}: a block that begins with {id:x} is not the one that was written");
    }
}

fn content(random: &mut Random, blocks: u64) -> Vec<u8> {
    let id = |random: &mut Random| match random.below(4) {
        0 => None,
        1 => Some(1 + random.below(30)),
        _ => Some(1 << 40 | random.word()),
    };
    (0..blocks).flat_map(|_| id(random).map_or(vec![0; BLOCK_BYTES], block_of)).collect()
}

struct Stressed {
    volume: Arc<Volume>,
    files: Vec<Mutex<File>>,
    stop: AtomicBool,
}

impl Stressed {
    fn is_running(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    fn note(slot: usize, map: MapId, bytes: &[u8]) -> impl FnOnce(i64, &mut crate::Change) + use<> {
        let value = [map.0.to_le_bytes(), (bytes.len() as u64).to_le_bytes()].concat();
        move |_, change| change.put(vec![0x10, slot as u8], value)
    }

    /// Changes its own files, reads them back, and now and then waits for a commit.
    fn write(&self, writer: u64, seed: u64) {
        let mut random = Random::new(seed);
        while self.is_running() {
            let slot = (writer * FILES_PER_WRITER + random.below(FILES_PER_WRITER)) as usize;
            if random.below(8) == 0 {
                self.commit(slot);
                continue;
            }
            self.change(slot, &mut random);
            let File { map, versions } = self.files[slot].lock().clone();
            let newest = versions.last().unwrap();
            let read = self.volume.reader.read(map, 0, newest.len()).unwrap();
            assert!(read.iter().eq(newest), "file {slot} differs from what its writer wrote");
        }
    }

    fn change(&self, slot: usize, random: &mut Random) {
        let block = BLOCK_BYTES as u64;
        let File { map, versions } = self.files[slot].lock().clone();
        let mut bytes = versions.last().unwrap().clone();
        let (first, blocks) = (random.below(FILE_BLOCKS_MAX / 2), 1 + random.below(FILE_BLOCKS_MAX / 2));
        let range = (first * block) as usize..((first + blocks) * block) as usize;
        let kind = random.below(10);
        match kind {
            0 => bytes.resize(range.start, 0),
            1 if !bytes.is_empty() => bytes = Vec::new(),
            _ => {
                let data = if kind == 2 { vec![0; range.len()] } else { content(random, blocks) };
                bytes.resize(bytes.len().max(range.end), 0);
                bytes[range.clone()].copy_from_slice(&data);
            }
        }
        // The new content becomes possible before the change begins.
        self.files[slot].lock().versions.push(bytes.clone());
        self.volume.change_room.wait_for_room();
        match kind {
            0 => self.volume.range_changes.truncate(map, bytes.len() as u64, Self::note(slot, map, &bytes)).unwrap(),
            1 if bytes.is_empty() => {
                self.volume.range_changes.detach(map, |change| change.delete(vec![0x10, slot as u8])).unwrap();
                self.files[slot].lock().map = self.volume.base.maps.take_id();
            }
            2 => self
                .volume
                .range_changes
                .zero(map, range.start as u64, range.len() as u64, false, Self::note(slot, map, &bytes))
                .unwrap(),
            _ => loop {
                let written =
                    self.volume.write(map, range.start as u64, &bytes[range.clone()], Self::note(slot, map, &bytes));
                match written {
                    Err(Error::NoSpace) => assert!(self.volume.make_room().is_ok()),
                    other => return other.unwrap(),
                }
            },
        }
    }

    fn commit(&self, slot: usize) {
        let current = self.files[slot].lock().versions.len() - 1;
        let (sender, receiver) = std::sync::mpsc::channel();
        crate::background::committer::barrier(&self.volume, Box::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap().unwrap();
        self.files[slot].lock().versions.drain(..current);
    }

    /// Reads all files, even while they change, and clones parts of them into a map that is not compared.
    fn read(&self, seed: u64) {
        let mut random = Random::new(seed);
        let scratch = self.volume.base.maps.take_id();
        while self.is_running() {
            let map = self.files[random.below(self.files.len() as u64) as usize].lock().map;
            let blocks = 1 + random.below(FILE_BLOCKS_MAX / 2);
            let at = Lbn(random.below(FILE_BLOCKS_MAX / 2));
            let cloned = match random.below(4) {
                0 => self.volume.clone_blocks((map, at), (scratch, at), Blocks(blocks), |_, _| ()),
                1 => self.volume.range_changes.truncate(
                    scratch,
                    random.below(FILE_BLOCKS_MAX) * BLOCK_BYTES as u64,
                    |_, _| (),
                ),
                _ => Ok(()),
            };
            for map in [map, scratch] {
                match self.volume.reader.read(map, at.0 * BLOCK_BYTES as u64, blocks as usize * BLOCK_BYTES) {
                    Ok(bytes) => assert_whole(&bytes, "read"),
                    Err(error) => assert!(matches!(error, Error::MapDetached), "{error}"),
                }
            }
            assert!(matches!(cloned, Ok(()) | Err(Error::MapDetached)), "{cloned:?}");
        }
    }

    /// Does continuously what the background threads do occasionally.
    fn disturb(&self) {
        for turn in 0.. {
            if !self.is_running() {
                return;
            }
            let map = self.files[turn % self.files.len()].lock().map;
            let options = DefragOptions { run_blocks_min: Some(32), space: Blocks(20), ..DefragOptions::default() };
            let laid_out = self.volume.defragmenter.defrag(map, &options);
            assert!(matches!(laid_out, Ok(_) | Err(Error::MapDetached)), "{laid_out:?}");
            self.volume.commits.checkpoint().unwrap();
            self.volume.groups.release_waiting();
            self.volume.free_blocks.punch_some();
            self.volume.groups.flush_data().unwrap();
            self.volume.metadata.scan(&[0x10], &[0x11], 3).unwrap();
            self.volume.hint_levels.sweep_hint_page();
            thread::sleep(Duration::from_millis(3));
        }
    }

    /// In the recovered volume, each file holds one of its possible contents.
    fn compare(volume: &Volume, files: &mut [File]) {
        for (slot, file) in files.iter_mut().enumerate() {
            let record = volume.metadata.get(&[0x10, slot as u8]).unwrap();
            let number = |at: usize| {
                record.as_ref().map_or(0, |record| u64::from_le_bytes(record[at..at + 8].try_into().unwrap()))
            };
            let found = volume.reader.read(MapId(number(0)), 0, number(8) as usize).unwrap().to_vec();
            assert_whole(&found, "after a power cut");
            assert!(
                file.versions.contains(&found),
                "file {slot} of {} bytes is none of {} versions",
                found.len(),
                file.versions.len()
            );
            let fresh = || volume.base.maps.take_id();
            *file = File { map: record.as_ref().map_or_else(fresh, |_| MapId(number(0))), versions: vec![found] };
        }
    }
}

/// Lets all threads work on the volume for a while and cuts the power under them.
fn work_and_cut(
    volume: Arc<Volume>,
    files: Vec<File>,
    devices: &Devices,
    power: &Power,
    random: &mut Random,
) -> (Devices, Vec<File>) {
    let threads = Threads::start(&volume).unwrap();
    let stressed = Stressed {
        volume: volume.clone(),
        files: files.into_iter().map(Mutex::new).collect(),
        stop: AtomicBool::new(false),
    };
    let after_cut = thread::scope(|scope| {
        let stressed = &stressed;
        for writer in 0..WRITERS {
            let seed = random.word();
            scope.spawn(move || stressed.write(writer, seed));
        }
        for seed in [random.word(), random.word()] {
            scope.spawn(move || stressed.read(seed));
        }
        scope.spawn(|| stressed.disturb());
        let committed = || volume.base.stats.counters.groups_committed.load(Relaxed);
        eventually("groups are committed", || committed() >= COMMITS_OF_LIFE);
        let after_cut = {
            let _off = power.write();
            let files = stressed.files.iter().map(|file| file.lock().clone()).collect();
            (devices.after_power_cut(random), files)
        };
        stressed.stop.store(true, Relaxed);
        after_cut
    });
    volume.base.signals.stop();
    threads.join();
    let report = checker(&volume).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "without a power cut: {:#?}", report.problems);
    after_cut
}

#[test]
fn threads_at_work_agree_with_the_model_across_power_cuts() {
    stress(one_level());
}

/// With both levels of the hint store full and the worker always busy.
#[test]
fn threads_and_the_worker_agree_with_the_model_across_power_cuts() {
    stress(two_levels());
}

fn stress(settings: Settings) {
    let mut random = Random::new(seed());
    let power = Power::default();
    let mut devices = Devices::new(DATA, settings);
    let mut files: Vec<File> =
        (0..WRITERS * FILES_PER_WRITER).map(|_| File { map: MapId(0), versions: vec![Vec::new()] }).collect();
    for _ in 0..gate_or_drill(CUTS.0, CUTS.1) {
        let volume = open(&devices, &power);
        Stressed::compare(&volume, &mut files);
        (devices, files) = work_and_cut(volume, files, &devices, &power, &mut random);
        let report = checker(&open(&devices, &power)).check(true, &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "after a power cut: {:#?}", report.problems);
    }
    Stressed::compare(&open(&devices, &power), &mut files);
}
