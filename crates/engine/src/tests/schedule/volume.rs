//! A volume in memory, so small that every freed block is soon reused, on devices that call the scheduler.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use oncefs_dedup::Compress;
use shuttle::sync::mpsc;

use super::model::{Content, Model, assert_clean, content, shared_content, shrinking_content, take_all_leaves};
use crate::background::committer::answer;
use crate::device::{Device, Io};
use crate::format::keys::LEAF_BLOCKS;
use crate::kv::{Kv, KvMemory, Put};
use crate::place::free_blocks::Claim;
use crate::settings::values::{FingerprintMode, Inline, Settings};
use crate::space::allocator::Run;
use crate::sync::AtomicBool;
use crate::tests::fixture::{Devices, Random, one_level, two_levels};
use crate::volume::assembly::Volume;
use crate::{Backend, BackgroundStep, Blocks, MapId, Result};

/// The blocks that a volume keeps back from ordinary writes. They are given away before the work begins.
const KEPT_BACK: u64 = 256;

/// The properties of a volume.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Blocks that can be handed out.
    pub blocks: u64,
    /// The longest write.
    pub write_blocks_max: u64,
    /// Which requests are looked up.
    pub inline: Inline,
    /// When fingerprints are computed.
    pub fingerprints: FingerprintMode,
    /// Whether files have few contents, and share most blocks.
    pub shares_most: bool,
    /// Hints leave memory for a disk level, and a worker has work.
    pub has_two_levels: bool,
    /// Writers do not commit themselves: they wait for the committer.
    pub has_committer: bool,
    /// The block of a map at which its file begins.
    pub first: u64,
    /// Whether blocks shrink, and are compressed before the threads begin.
    pub is_compressed: bool,
}

impl Shape {
    /// Writes are staged and ride in the log.
    pub fn small() -> Self {
        let (inline, fingerprints) = (Inline::All, FingerprintMode::Eager);
        let (has_two_levels, has_committer, shares_most, is_compressed) = (true, false, false, false);
        let (blocks, write_blocks_max, first) = (12, 3, 0);
        Self {
            blocks,
            write_blocks_max,
            inline,
            fingerprints,
            shares_most,
            has_two_levels,
            has_committer,
            first,
            is_compressed,
        }
    }

    /// Files that lie on two leaves of their maps, and share some blocks more.
    pub fn on_two_leaves() -> Self {
        Self { blocks: 24, first: LEAF_BLOCKS - 2, ..Self::small() }
    }

    /// Small writes of few contents.
    pub fn sharing() -> Self {
        Self { shares_most: true, ..Self::small() }
    }

    /// Files in packs.
    pub fn compressed() -> Self {
        Self { blocks: 60, is_compressed: true, ..Self::small() }
    }

    /// Some writes go to the data area at once.
    pub fn large() -> Self {
        Self { blocks: 110, write_blocks_max: 34, ..Self::small() }
    }
}

struct Scheduled<T: ?Sized> {
    inner: Arc<T>,
    model: Arc<Model>,
    is_log: bool,
}

impl<T: ?Sized> Scheduled<T> {
    /// Before a request and after it, any thread may run first.
    fn switch(&self) {
        AtomicBool::new(false).load(SeqCst);
        self.model.request();
    }

    fn change<R>(&self, change: impl FnOnce(&T) -> R) -> R {
        self.switch();
        let result = change(&self.inner);
        self.switch();
        result
    }
}

impl Scheduled<dyn Device> {
    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.switch();
        self.inner.read_at(bytes, at)
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.change(|device| device.write_at(bytes, at))
    }
}

impl Device for Scheduled<dyn Device> {
    fn submit(&self, ios: &mut [Io<'_>]) {
        ios.iter_mut().for_each(|io| io.by_pieces(|bytes, at| self.read(bytes, at), |bytes, at| self.write(bytes, at)));
    }

    fn flush(&self) -> io::Result<()> {
        self.change(|device| {
            if self.is_log {
                self.model.log_flush();
            }
            device.flush()
        })
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        self.change(|device| device.punch(at, len))
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

impl Kv for Scheduled<dyn Kv> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.switch();
        self.inner.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.switch();
        self.inner.scan(from, to, limit)
    }

    fn write(&self, batch: Vec<Put>) -> Result<()> {
        self.change(|kv| kv.write(batch))
    }

    fn flush(&self) -> Result<()> {
        self.change(|kv| kv.flush())
    }

    fn memory(&self) -> KvMemory {
        self.inner.memory()
    }
}

fn open(model: &Arc<Model>) -> Volume {
    let backend = model.devices.backend();
    let scheduled = |inner, is_log| -> Arc<dyn Device> { Arc::new(Scheduled { inner, model: model.clone(), is_log }) };
    let backend = Backend {
        data: scheduled(backend.data, false),
        table: scheduled(backend.table, false),
        fragments: backend.fragments.map(|inner| scheduled(inner, false)),
        log: scheduled(backend.log, true),
        kv: Arc::new(Scheduled { inner: backend.kv, model: model.clone(), is_log: false }),
        ..backend
    };
    model.devices.open_medium(backend)
}

/// The volume, and its model.
pub struct SmallVolume {
    pub volume: Volume,
    pub model: Arc<Model>,
    pub shape: Shape,
    given_away: Vec<Run>,
}

impl SmallVolume {
    /// An empty volume; `files` files without a block.
    pub fn new(shape: Shape, files: usize, random: Random) -> Self {
        let levels = if shape.has_two_levels { two_levels() } else { one_level() };
        let compress = if shape.is_compressed { Compress::Later } else { Compress::Off };
        let settings = Settings { inline: shape.inline, fingerprints: shape.fingerprints, compress, ..levels };
        let devices = Devices::new(Blocks(1 + KEPT_BACK + shape.blocks), settings);
        let model = Arc::new(Model::new(devices, shape.first, random));
        let volume = open(&model);
        let mut load = |region| volume.free_blocks.load_region(region);
        let given_away = volume.base.space.allocate(KEPT_BACK, &mut load).unwrap();
        let small = Self { volume, model, shape, given_away };
        (0..files).for_each(|_| small.model.add(small.fresh_map()));
        small
    }

    /// What a writer writes next.
    pub fn content(&self, random: &mut Random, blocks: u64) -> Content {
        match self.shape {
            Shape { is_compressed: true, .. } => shrinking_content(random, blocks),
            Shape { shares_most: true, .. } => shared_content(random, blocks),
            _ => content(random, blocks),
        }
    }

    /// A map id that no file had.
    pub fn fresh_map(&self) -> MapId {
        self.volume.base.maps.take_id()
    }

    /// Commits. The earlier content of these files is durable then.
    pub fn commit(&self, slots: std::ops::Range<usize>) {
        let current: Vec<_> = slots.map(|slot| (slot, self.model.file(slot).versions.len())).collect();
        match self.shape.has_committer {
            true => self.wait_for_commit(),
            false => self.volume.commits.commit().unwrap(),
        }
        self.model.acknowledge(&current);
    }

    fn wait_for_commit(&self) {
        let (sender, receiver) = mpsc::channel();
        crate::background::committer::barrier(&self.volume, Box::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap().unwrap();
    }

    /// The work of the committer's thread, without its clock: it commits when a caller waits.
    pub fn commit_until_stopped(&self) {
        loop {
            let is_idle = self.volume.groups.group_times().0.is_none();
            let request = self.volume.base.signals.next_commit(Duration::MAX, is_idle);
            if request.now {
                answer(&self.volume, request.barriers);
            }
            if request.stop {
                return answer(&self.volume, self.volume.base.signals.next_commit(Duration::ZERO, false).barriers);
            }
        }
    }

    /// Asserts that everything is right: now, after a power cut now, and after the earlier one.
    pub fn finish(mut self) {
        (0..self.model.len()).for_each(|slot| self.assert_newest(slot));
        assert_clean(&self.volume, "at the end");
        if self.volume.lazy_clones.are_any() {
            take_all_leaves(&self.volume);
            (0..self.model.len()).for_each(|slot| self.assert_newest(slot));
        }
        self.model.check_power_cuts();
        self.hand_out_all();
    }

    /// A file that its writer does not change now has the newest content.
    pub fn assert_newest(&self, slot: usize) {
        let file = self.model.file(slot);
        let found = self.model.read(&self.volume, file.map, file.newest().len() as u64).unwrap();
        assert_eq!(&found, file.newest(), "file {slot} differs from what its writer wrote");
    }

    /// Hands out every unused block, once all waiting work is done.
    fn hand_out_all(&mut self) {
        while self.volume.run(BackgroundStep::Reclaim).unwrap() {}
        self.volume.commits.checkpoint().unwrap();
        self.volume.groups.release_waiting();
        self.volume.base.space.give_back(&std::mem::take(&mut self.given_away));
        let totals = self.volume.base.state.lock().totals;
        let free = (totals.data - totals.used).0;
        assert_eq!(self.volume.base.state.lock().claims.blocks(), Blocks(0), "blocks are claimed and nobody writes");
        let runs = self.volume.free_blocks.allocate(free, Claim::KeptBack);
        let runs = runs.unwrap_or_else(|error| panic!("not all of {free} free blocks can be handed out: {error}"));
        self.volume.free_blocks.give_back(&runs);
        assert_clean(&self.volume, "when all is freed");
    }
}
