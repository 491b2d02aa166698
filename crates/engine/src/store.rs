//! The engine as its callers see it: an open volume, its maps, its records, its commits.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use oncefs_dedup::{DuplicateShare, Fingerprinting};
use parking_lot::Mutex;

use crate::allocator::Allocator;
use crate::ballast::Ballast;
use crate::buffer::PooledBuf;
use crate::check::CheckReport;
use crate::core::{Core, Parts};
use crate::device::Device;
use crate::format::checkpoint::Checkpoint;
use crate::format::keys;
use crate::hash::Hasher;
use crate::kv::Kv;
use crate::log::Log;
use crate::shards::Shards;
use crate::staging::Staging;
use crate::state::{Plan, State};
use crate::table::Table;
use crate::threads::Threads;
use crate::{Blocks, CacheReport, Error, Lbn, Report, Result, Stage, StageReport, recover, volume};

/// Names a map (a file's extents). Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapId(pub u64);

/// Where the data area lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataPlace {
    /// A sparse file inside the volume.
    File,
    /// A raw block device.
    Device(PathBuf),
}

/// Policy set of a volume; issue by issue more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Complete index, single blocks, in-line.
    Lrlfs,
}

/// What `mkfs` makes.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// Size of the data area in bytes; rounded down to whole blocks. For a device, None takes all of it.
    pub data_bytes: Option<u64>,
    /// Where the data area lives.
    pub data: DataPlace,
    /// Default policy.
    pub profile: Profile,
    /// Size of the log.
    pub log_bytes: u64,
}

/// When fingerprints are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FingerprintMode {
    /// For every block.
    Eager,
    /// When a tag matches.
    Lazy,
    /// Eager while duplicates are being found.
    Auto,
}

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Bound on caches and hints.
    pub memory_bytes_max: u64,
    /// No change reaches the volume (the log is replayed in memory only).
    pub read_only: bool,
    /// When fingerprints are computed.
    pub fingerprints: FingerprintMode,
}

/// The volume's sums; each commit carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Size of the data area.
    pub data: Blocks,
    /// Blocks of the data area that are in use (label included).
    pub used: Blocks,
    /// Blocks promised to fallocate and not written yet.
    pub reserved: Blocks,
    /// References to blocks from all maps: what the files hold, counted without sharing.
    pub mapped: Blocks,
    /// Unique blocks that can still be written: bounded by the data area and by the host.
    pub available: Blocks,
}

/// Records to be published together, in one commit group. Keys start with a byte of at least 0x10.
#[derive(Debug, Default)]
pub struct Change {
    pub(crate) puts: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Change {
    /// No records yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a record.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.puts.push((key, Some(value)));
    }

    /// Removes a record.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.puts.push((key, None));
    }
}

/// Bytes read from a map, in a buffer that returns to its pool.
pub struct ReadBuf {
    buffer: PooledBuf,
    from: usize,
    len: usize,
}

impl ReadBuf {
    pub(crate) fn new(buffer: PooledBuf, from: usize, len: usize) -> Self {
        Self { buffer, from, len }
    }
}

impl Deref for ReadBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[self.from..self.from + self.len]
    }
}

/// How the memory budget is divided, in parts of 16.
struct Budget {
    hints: u64,
    read_cache: u64,
    table: u64,
    shards: u64,
    records: u64,
    dirty: u64,
}

impl Budget {
    fn of(memory_bytes_max: u64) -> Self {
        let parts = |count: u64| memory_bytes_max / 16 * count;
        Self {
            hints: parts(6),
            read_cache: parts(3),
            table: parts(2),
            shards: parts(1),
            records: parts(2).max(4 << 20),
            dirty: parts(1).clamp(4 << 20, 64 << 20),
        }
    }
}

/// The devices and the sorted state of a volume, wherever they are.
pub struct Medium {
    /// The data area.
    pub data: Arc<dyn Device>,
    /// The block table.
    pub table: Arc<dyn Device>,
    /// The log.
    pub log: Arc<dyn Device>,
    /// Size of the log.
    pub log_bytes: u64,
    /// The sorted state.
    pub kv: Arc<dyn Kv>,
    /// Space set aside on the host.
    pub ballast: Ballast,
    /// The volume's directory, if the data area takes its space from the host file system.
    pub host: Option<PathBuf>,
    /// The volume's secret.
    pub secret: [u8; 32],
}

/// Recovers the last commit of a volume. No thread runs yet.
pub fn recover(medium: Medium, options: &OpenOptions) -> Result<Core> {
    let checkpoint = medium.kv.get(&keys::checkpoint())?;
    let checkpoint = checkpoint.as_deref().and_then(Checkpoint::decode);
    let checkpoint = checkpoint
        .ok_or_else(|| Error::corrupt("the checkpoint record", "it is missing or its checksum does not match"))?;
    let Checkpoint { sequence, log_at, sums } = checkpoint;
    let (log, records) = Log::open(medium.log, Hasher::log_id(&medium.secret), medium.log_bytes, sequence, log_at)?;
    let budget = Budget::of(options.memory_bytes_max);
    let mut state = State::new(Table::new(budget.table), Shards::new(budget.shards), sums, sequence);
    let staging = Staging::default();
    let found = recover::replay(&mut state, &staging, &records)?;
    volume::check_sizes(&*medium.data, &*medium.table, &state.sums)?;
    let (from, to) = keys::all_advice();
    let advice = medium.kv.scan(&from, &to, usize::MAX)?;
    let advice: Vec<u16> = advice.iter().flat_map(|(_, value)| keys::parse_advice(value)).collect();
    let core = Core::new(Parts {
        allocator: Allocator::new(state.sums.data, &advice),
        state,
        staging,
        data: medium.data,
        table: medium.table,
        kv: medium.kv,
        log,
        hasher: Hasher::new(&medium.secret),
        ballast: medium.ballast,
        host: medium.host,
        read_cache_bytes_max: budget.read_cache,
        hint_bytes_max: budget.hints,
        dirty_bytes_max: budget.dirty,
        fingerprinting: match options.fingerprints {
            FingerprintMode::Eager => Fingerprinting::Eager,
            FingerprintMode::Lazy => Fingerprinting::Lazy,
            FingerprintMode::Auto => Fingerprinting::Auto(DuplicateShare::default()),
        },
        is_read_only: options.read_only,
    });
    let mut hints = core.hints.lock();
    for (tag, pbn) in found.stored {
        hints.insert(tag, pbn);
    }
    drop(hints);
    for map in core.detached_maps()? {
        core.state.lock().remember_detached(map);
        core.signals.detached(map);
    }
    Ok(core)
}

/// An open volume. Shared by all threads.
///
/// Lock order for callers: a map's lock (taken inside `write`, `truncate`, `clone_blocks`, `detach` and their like),
/// then whatever the closure `with` locks, then the engine's own locks. So a caller may hold its inode
/// locks while calling `get`, `scan` and `publish`, but not while calling a function that takes a map.
///
/// `with(mapped_delta, &mut change)` runs once, under the map's lock, when the operation can no longer fail
/// for a reason of its own: it is told by how many blocks (data or reserved) the map grew or shrank, adds the
/// caller's records (size, times), and what it returns (a lock guard) is held until the whole is published.
/// Map change and records land in one commit group.
pub struct Store {
    core: Arc<Core>,
    volume_id: [u8; 16],
    path: PathBuf,
    threads: Mutex<Option<Threads>>,
    /// The volume's lock, while it is open.
    lock: Mutex<Option<File>>,
    settings: BTreeMap<String, String>,
}

impl Store {
    /// Makes an empty volume in `volume` (a directory that is missing or empty).
    /// `random` seeds its identity and its secret key.
    pub fn format(volume: &Path, spec: &VolumeSpec, random: [u8; 64]) -> Result<()> {
        volume::make(volume, spec, random)
    }

    /// Opens a volume, recovering the last commit.
    pub fn open(volume: &Path, options: &OpenOptions) -> Result<Arc<Store>> {
        let opened = volume::open(volume, Budget::of(options.memory_bytes_max).records, options.read_only)?;
        let superblock = opened.superblock;
        let medium = Medium {
            data: opened.data,
            table: opened.table,
            log: opened.log,
            log_bytes: superblock.log_bytes,
            kv: opened.kv,
            ballast: opened.ballast,
            host: (superblock.data == DataPlace::File).then(|| volume.to_owned()),
            secret: superblock.secret,
        };
        let core = Arc::new(recover(medium, options)?);
        core.look_up_host();
        if !options.read_only {
            core.ballast.fill().map_err(|e| Error::io("filling the ballast", e))?;
        }
        let threads = if options.read_only { None } else { Some(Threads::start(&core)?) };
        Ok(Arc::new(Self {
            core,
            volume_id: superblock.volume_id,
            path: volume.to_owned(),
            threads: Mutex::new(threads),
            lock: Mutex::new(Some(opened.lock)),
            settings: settings(options, superblock.profile),
        }))
    }

    /// Commits, checkpoints and ends the background threads.
    pub fn close(&self) -> Result<()> {
        let Some(threads) = self.threads.lock().take() else {
            self.lock.lock().take();
            return Ok(());
        };
        let committed = self.core.checkpoint();
        self.core.signals.stop();
        threads.join();
        self.lock.lock().take();
        committed
    }

    /// Identity of the volume, stable for its life.
    pub fn volume_id(&self) -> [u8; 16] {
        self.volume_id
    }

    /// The newest published value of a record (committed or not).
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.core.get(key)
    }

    /// Records with `from <= key < to`, in order, at most `limit`.
    pub fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.core.scan(from, to, limit)
    }

    /// Publishes records: visible at once, durable with the current group.
    pub fn publish(&self, change: Change) -> Result<()> {
        self.core.wait_for_room();
        self.core.publish(change)
    }

    /// A new empty map. Costs nothing until it is written.
    pub fn new_map(&self) -> MapId {
        MapId(self.core.next_map.fetch_add(1, Relaxed))
    }

    /// Writes `data` at byte `at`. Zero blocks become holes, duplicates become references.
    pub fn write<G>(&self, map: MapId, at: u64, data: &[u8], with: impl FnOnce(i64, &mut Change) -> G) -> Result<()> {
        self.core.wait_for_room();
        self.core.write(map, at, data, with)
    }

    /// Reads `len` bytes at byte `at`; what is not mapped reads as zeros.
    pub fn read(&self, map: MapId, at: u64, len: usize) -> Result<ReadBuf> {
        self.core.read(map, at, len)
    }

    /// Drops everything from byte `size` on; the rest of a cut block becomes zeros.
    pub fn truncate<G>(&self, map: MapId, size: u64, with: impl FnOnce(i64, &mut Change) -> G) -> Result<()> {
        self.core.wait_for_room();
        self.core.truncate(map, size, with)
    }

    /// Makes a byte range read as zeros (punch). With `reserve`, the whole blocks touched stay reserved (zero range).
    pub fn zero<G>(
        &self,
        map: MapId,
        at: u64,
        len: u64,
        reserve: bool,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.core.wait_for_room();
        self.core.zero(map, at, len, reserve, with)
    }

    /// Reserves space for the holes of a byte range (fallocate); `NoSpace` if there is not enough.
    pub fn reserve<G>(&self, map: MapId, at: u64, len: u64, with: impl FnOnce(i64, &mut Change) -> G) -> Result<()> {
        self.core.wait_for_room();
        self.core.reserve(map, at, len, with)
    }

    /// First byte at or after `from` and below `end` that is data; None: only holes (and reserved space).
    pub fn seek_data(&self, map: MapId, from: u64, end: u64) -> Result<Option<u64>> {
        self.core.seek_data(map, from, end)
    }

    /// First byte at or after `from` that is a hole; `end` if there is none below.
    pub fn seek_hole(&self, map: MapId, from: u64, end: u64) -> Result<u64> {
        self.core.seek_hole(map, from, end)
    }

    /// Makes `blocks` blocks of `target` from `target_at` on share those of `source` from `source_at` on
    /// (copy_file_range, clone). Only metadata is written. The two may be one map if the ranges are disjoint.
    pub fn clone_blocks<G>(
        &self,
        source: MapId,
        source_at: Lbn,
        target: MapId,
        target_at: Lbn,
        blocks: Blocks,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.core.wait_for_room();
        self.core.clone_blocks((source, source_at), (target, target_at), blocks, with)
    }

    /// Detaches a map (unlink, truncate to zero): returns at once, its blocks are freed in the background,
    /// also after a crash. Later calls with this id fail with `MapDetached`.
    pub fn detach<G>(&self, map: MapId, with: impl FnOnce(&mut Change) -> G) -> Result<()> {
        self.core.wait_for_room();
        self.core.detach(map, with)
    }

    /// Calls `done` from another thread once everything published before this call is durable.
    pub fn barrier(&self, done: Box<dyn FnOnce(Result<()>) + Send>) {
        if self.core.is_read_only {
            return done(Ok(()));
        }
        self.core.signals.barrier(done);
    }

    /// Waits until everything published before this call is durable.
    pub fn commit(&self) -> Result<()> {
        self.core.commit()
    }

    /// The volume's sums now.
    pub fn totals(&self) -> Totals {
        self.core.totals()
    }

    /// Enlarges the data area to `data_bytes`; durable on return.
    pub fn grow(&self, data_bytes: u64) -> Result<()> {
        self.core.grow(data_bytes)
    }

    /// Why the volume became read-only, if it did.
    pub fn failure(&self) -> Option<String> {
        self.core.failure()
    }

    /// Counters, histograms, caches, settings.
    pub fn report(&self) -> Report {
        let mut report = self.core.report();
        report.settings = self.settings.clone();
        report.space.insert("metadata_bytes".to_owned(), volume::metadata_bytes(&self.path));
        report
    }

    /// For a writer that was told `NoSpace`: makes what was freed reusable. Waits for a commit. True: there is more
    /// space than before, or more is on its way, so that trying again makes sense, if need be several times.
    pub fn make_room(&self) -> Result<bool> {
        self.core.make_room()
    }

    /// Blocks (data and reserved) of a map, by counting.
    pub fn mapped_blocks(&self, map: MapId) -> Result<Blocks> {
        let _map = self.core.map_lock(map).read();
        let mut blocks = 0;
        let mut from = 0;
        loop {
            let shards = self.core.stored_shards(map, from, SHARDS_COUNTED)?;
            for shard in &shards {
                blocks += self.core.shard(keys::ShardKey { map, shard: *shard })?.mapped_blocks();
            }
            match shards.last() {
                Some(last) if shards.len() == SHARDS_COUNTED => from = last + 1,
                _ => return Ok(Blocks(blocks)),
            }
        }
    }

    /// Every map that holds something and is not detached, with its blocks, in the order of ids.
    pub fn for_each_map(&self, visit: &mut dyn FnMut(MapId, Blocks)) -> Result<()> {
        let mut current: Option<(MapId, u64)> = None;
        let mut finish = |done: Option<(MapId, u64)>| {
            if let Some((map, blocks)) = done.filter(|(map, _)| !self.core.state.lock().is_detached(*map)) {
                visit(map, Blocks(blocks));
            }
        };
        self.core.for_each_shard(&mut |key, shard| match &mut current {
            Some((map, blocks)) if *map == key.map => *blocks += shard.mapped_blocks(),
            _ => finish(current.replace((key.map, shard.mapped_blocks()))),
        })?;
        finish(current);
        Ok(())
    }

    /// Checks the volume, on which nothing else may happen meanwhile: every invariant across structures, and
    /// with `read_data` every live block against its tag. `progress` is told blocks done and blocks in all.
    pub fn check(&self, read_data: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        self.core.check(read_data, progress)
    }
}

/// Shards looked at in one go when a map's blocks are counted.
const SHARDS_COUNTED: usize = 256;

fn settings(options: &OpenOptions, profile: Profile) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("profile".to_owned(), format!("{profile:?}").to_lowercase()),
        ("fingerprints".to_owned(), format!("{:?}", options.fingerprints).to_lowercase()),
        ("memory_bytes_max".to_owned(), options.memory_bytes_max.to_string()),
        ("read_only".to_owned(), options.read_only.to_string()),
    ])
}

impl Core {
    /// See [`Store::grow`]. The new space is durable before the sums that speak of it.
    pub(crate) fn grow(&self, data_bytes: u64) -> Result<()> {
        self.usable()?;
        let data = Blocks(data_bytes / crate::BLOCK_BYTES as u64);
        let now = self.state.lock().sums.data;
        if data.0 > volume::DATA_BLOCKS_MAX {
            return Err(Error::Invalid(format!("the data area can have at most {} blocks", volume::DATA_BLOCKS_MAX)));
        }
        if data < now {
            return Err(Error::Invalid(format!("the data area has {} bytes already; it cannot shrink", now.bytes())));
        }
        self.data.grow(data.bytes()).map_err(|e| Error::io("enlarging the data area", e))?;
        self.table.grow(volume::table_bytes(data)).map_err(|e| Error::io("enlarging the block table", e))?;
        self.apply_certain(Plan { grow_to: Some(data), ..Plan::default() })?;
        self.commit()?;
        self.allocator.lock().grow(data);
        Ok(())
    }

    /// See [`Store::report`].
    pub(crate) fn report(&self) -> Report {
        let totals = self.totals();
        let staged = self.staging.bytes();
        let state = self.state.lock();
        let hints = self.hints.lock();
        let kv = self.kv.memory();
        let records = CacheReport { bytes: kv.bytes, bytes_max: kv.bytes_max, hits: kv.hits, misses: kv.misses };
        let looked_up = self.stages[Stage::Lookup as usize].blocks.load(Relaxed);
        let found = self.counters.blocks_shared.load(Relaxed).min(looked_up);
        let hints =
            CacheReport { bytes: hints.bytes(), bytes_max: hints.bytes_max(), hits: found, misses: looked_up - found };
        let stages = Stage::ALL.iter().map(|stage| {
            let stats = &self.stages[*stage as usize];
            let report = StageReport { blocks: stats.blocks.load(Relaxed), latency: stats.latency.snapshot() };
            (stage.name().to_owned(), report)
        });
        Report {
            space: BTreeMap::from([
                ("data_bytes".to_owned(), totals.data.bytes()),
                ("used_bytes".to_owned(), totals.used.bytes()),
                ("reserved_bytes".to_owned(), totals.reserved.bytes()),
                ("mapped_bytes".to_owned(), totals.mapped.bytes()),
                ("available_bytes".to_owned(), totals.available.bytes()),
                ("staged_bytes".to_owned(), staged),
            ]),
            stages: stages.collect(),
            caches: BTreeMap::from([
                ("read".to_owned(), self.read_cache.report()),
                ("table".to_owned(), state.table.report()),
                ("shards".to_owned(), state.shards.report()),
                ("hints".to_owned(), hints),
                ("records".to_owned(), records),
            ]),
            counters: self.counters.snapshot(),
            settings: BTreeMap::new(),
        }
    }
}
