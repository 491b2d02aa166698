//! What all parts of an open volume share, and the small steps that several of them need.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use oncefs_dedup::{BatchSize, Fingerprinting, Hint, HintOptions, HintStore, Pace, Sample, Selectivity, SkippedBuffer};

use crate::allocator::{Allocator, Bitmap, REGION_BLOCKS, REGION_PAGES, Run};
use crate::ballast::Ballast;
use crate::buffer::BufferPool;
use crate::cache::ReadCache;
use crate::chore::Interruption;
use crate::device::Device;
use crate::device_reads::DeviceReads;
use crate::foreground::Foreground;
use crate::format::keys::{self, ShardKey};
use crate::format::page::{PAGE_BYTES, Page};
use crate::format::shard::Shard;
use crate::gather::Pass;
use crate::hash::Hasher;
use crate::hints::DiskHints;
use crate::kv::Kv;
use crate::log::Log;
use crate::mend::MendQueue;
use crate::pins::Pins;
use crate::policies::Policies;
use crate::range::GATED_SHARDS_MAX;
use crate::rank_settings::RankSettings;
use crate::ranking::RankTurn;
use crate::read_pattern::ReadPatterns;
use crate::relayout::portion_size;
use crate::scrub::Scrub;
use crate::settings::Settings;
use crate::signals::Signals;
use crate::skip::SkippedFile;
use crate::staging::Staging;
use crate::state::State;
use crate::stats::{Count, Counters, LiveHistogram};
use crate::streams::Streams;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, RwLock};
use crate::worker::{Surroundings, controllers, fingerprinting};
use crate::{Error, MapId, Pbn, Result, Stage};

/// Maps share this many locks; two maps on one lock only wait for each other.
const MAP_LOCKS: usize = 1024;

/// Blocks and times of one stage.
#[derive(Default)]
pub struct StageStats {
    /// Blocks that passed.
    pub blocks: Count,
    /// Time per batch.
    pub latency: LiveHistogram,
}

/// An open volume.
///
/// Lock order: `checkpointing` or `relaying`; a map's lock; `group_gate`; the caller's own locks; `log`; `write_outs`;
/// `allocator`; `state`; then `flushing`, `table_io`, `staging`, `read_cache`, `punchable`, the settings, the
/// controllers, `evicted`, `mend_queue`, `scrub`, `streams`, `policies`, `read_patterns`, `device_reads` and the signals, which hold no other lock. Who holds `group_gate` shared takes neither
/// `log` nor `checkpointing`.
///
/// Of the out-of-line work: `tuning` or `skipped_file`, then `pass`, then a map's lock, `skipped`, or `disk_hints`,
/// which comes before `hints`, `evicted` and `state`.
pub struct Core {
    /// Which volume it is.
    pub volume_id: [u8; 16],
    /// The publish lock.
    pub state: Mutex<State>,
    /// The data area.
    pub data: Arc<dyn Device>,
    /// The block table.
    pub table: Arc<dyn Device>,
    /// The sorted state.
    pub kv: Arc<dyn Kv>,
    /// The log; only the committer writes.
    pub log: Mutex<Log>,
    /// Published blocks in memory.
    pub staging: Staging,
    /// Blocks read before.
    pub read_cache: ReadCache,
    /// Which contents hints name, the same in both levels.
    pub sample: Sample,
    /// What is said of files about how they are deduplicated.
    pub policies: Policies,
    /// How files are read.
    pub read_patterns: ReadPatterns,
    /// How the data area is read.
    pub device_reads: DeviceReads,
    /// Who may hold a content: the memory level.
    pub hints: Mutex<HintStore>,
    /// Hints that left memory and wait to be merged into the disk level.
    pub evicted: Mutex<Vec<Hint>>,
    /// The disk level; None: there is none.
    pub disk_hints: Mutex<Option<DiskHints>>,
    /// Whether there is a disk level.
    pub has_disk_level: AtomicBool,
    /// Whether both levels together name every live block of the sample, as far as is known.
    pub hints_are_complete: AtomicBool,
    /// Whether hints may have left memory since a scan named every live block there.
    pub hints_left_memory: AtomicBool,
    /// Whether hints were lost, so that the block table is to be scanned.
    pub scan_is_wanted: AtomicBool,
    /// Pages of the block table that a scan under way has read.
    pub scan_pages_done: Count,
    /// Pages that it reads; 0: there is none.
    pub scan_pages: Count,
    /// The last commit before this mount.
    pub opened_at: u64,
    /// Blocks that in-line deduplication left to the worker.
    pub skipped: Mutex<SkippedBuffer>,
    /// Where they are kept across mounts.
    pub skipped_file: Mutex<Option<SkippedFile>>,
    /// Runs that may go on with a file's next request.
    pub streams: Mutex<Streams>,
    /// What the worker looks at as a whole.
    pub pass: Mutex<Pass>,
    /// Which requests are looked up as they are written.
    pub selectivity: Mutex<Selectivity>,
    /// When the worker runs.
    pub pace: Mutex<Pace>,
    /// The machine's load and supply.
    pub surroundings: Mutex<Surroundings>,
    /// How many blocks are known to be bad: reads look no further while there is none.
    pub bad_known: AtomicUsize,
    /// How many tags of lost content there are: content is compared with them while there is one.
    pub lost_tags: AtomicUsize,
    /// Whether every block that is read is verified.
    pub verifies_reads: AtomicBool,
    /// Whether a block is read before it is shared for the first time.
    pub verifies_shares: AtomicBool,
    /// What reads and writes found out about bad blocks.
    pub mend_queue: Mutex<MendQueue>,
    /// How far the scrub is.
    pub scrub: Mutex<Scrub>,
    /// Called after publications, see [`crate::Store::interrupt`].
    pub interruption: OnceLock<Interruption>,
    /// Called when the worker has nothing else to do, see [`crate::Store::rank_by`].
    pub rank_turn: OnceLock<RankTurn>,
    /// What programs ask for.
    pub foreground: Foreground,
    /// How long they had to bear with work that gives way to them.
    pub gave_way: LiveHistogram,
    /// What is set for this mount.
    pub settings: Mutex<Settings>,
    /// Those of them that each request asks for.
    pub rank_settings: RankSettings,
    /// Held while settings change.
    pub tuning: Mutex<()>,
    /// Whether to fingerprint now or later.
    pub fingerprinting: Mutex<Fingerprinting>,
    /// Tags and fingerprints.
    pub hasher: Hasher,
    /// Free space.
    pub allocator: Mutex<Allocator>,
    /// Readers.
    pub pins: Pins,
    /// Buffers for direct I/O.
    pub pool: Arc<BufferPool>,
    /// Requests to the device at a time for one scattered read.
    pub reads_at_a_time: usize,
    /// Wakes the background threads.
    pub signals: Signals,
    /// Events.
    pub counters: Counters,
    /// Stages of a block's life.
    pub stages: [StageStats; Stage::ALL.len()],
    /// Held shared while staged blocks are on their way to the data area, so that a commit can wait for them.
    pub write_outs: RwLock<()>,
    /// Whether the data area was written since its last flush began.
    pub data_is_dirty: AtomicBool,
    /// Held while the data area is flushed: who finds nothing to flush waits for the flush under way.
    pub flushing: Mutex<()>,
    /// Bytes that the host can still take, as last looked up, less what was written since.
    pub host_bytes: AtomicU64,
    /// Blocks allocated by writes that are not published yet.
    pub blocks_in_flight: AtomicU64,
    /// The volume's directory, if the data area takes its space from the host file system.
    pub host: Option<PathBuf>,
    /// Pieces of the data area with freed blocks whose space the host has not got back.
    pub punchable: Mutex<BTreeSet<u64>>,
    /// Held shared while a change is published in pieces that belong into one group.
    pub group_gate: RwLock<()>,
    /// A change of a range of more shards than this does not fit into one group.
    pub gated_shards_max: AtomicU64,
    /// Held shared to read table pages, alone to write some, so that none is read half written.
    pub table_io: RwLock<()>,
    /// Held while one checkpoint is under way.
    pub checkpointing: Mutex<()>,
    /// Held while a portion of a file is laid out again: one at a time bounds the memory, and closing waits for it.
    pub relaying: Mutex<BatchSize>,
    /// The next map id to hand out.
    pub next_map: AtomicU64,
    /// Size of the log.
    pub log_bytes: u64,
    /// Space set aside on the host, for a full one.
    pub ballast: Ballast,
    /// Checkpoint when so many bytes of changes are in memory.
    pub dirty_bytes_max: u64,
    /// No change is possible.
    pub is_read_only: bool,
    failure: Mutex<Option<String>>,
    map_locks: Vec<RwLock<()>>,
}

/// The parts that a core is made of.
pub struct Parts {
    /// Which volume it is.
    pub volume_id: [u8; 16],
    /// See the fields of [`Core`].
    pub state: State,
    /// Blocks in memory that the log holds.
    pub staging: Staging,
    /// The data area.
    pub data: Arc<dyn Device>,
    /// The block table.
    pub table: Arc<dyn Device>,
    /// The sorted state.
    pub kv: Arc<dyn Kv>,
    /// The log.
    pub log: Log,
    /// Free space.
    pub allocator: Allocator,
    /// Tags and fingerprints.
    pub hasher: Hasher,
    /// Space set aside on the host.
    pub ballast: Ballast,
    /// See the field of [`Core`].
    pub host: Option<PathBuf>,
    /// Bound of the read cache.
    pub read_cache_bytes_max: u64,
    /// Bound of what is known of how files are to be deduplicated.
    pub policy_bytes_max: u64,
    /// Bound of what is known of how files are read.
    pub read_pattern_bytes_max: u64,
    /// Buffers of 1 MiB kept for reuse.
    pub buffers_max: usize,
    /// Requests to the device at a time for one scattered read.
    pub reads_at_a_time: usize,
    /// Bound of changes in memory.
    pub dirty_bytes_max: u64,
    /// What is set for this mount.
    pub settings: Settings,
    /// The disk level of the hint store.
    pub disk_hints: Option<DiskHints>,
    /// Where skipped blocks are kept across mounts.
    pub skipped_file: Option<SkippedFile>,
    /// The machine.
    pub surroundings: Surroundings,
    /// No change is possible.
    pub is_read_only: bool,
}

impl Core {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Self {
        let settings = parts.settings;
        let (selectivity, pace) = controllers(&settings);
        let sample = Sample::one_of(settings.hint_sample);
        Self {
            volume_id: parts.volume_id,
            opened_at: parts.state.durable_sequence,
            next_map: AtomicU64::new(parts.state.sums.next_map.0),
            log_bytes: parts.log.bytes(),
            ballast: parts.ballast,
            state: Mutex::new(parts.state),
            data: parts.data,
            table: parts.table,
            kv: parts.kv,
            log: Mutex::new(parts.log),
            staging: parts.staging,
            read_cache: ReadCache::new(parts.read_cache_bytes_max),
            sample,
            policies: Policies::new(parts.policy_bytes_max),
            read_patterns: ReadPatterns::new(parts.read_pattern_bytes_max),
            device_reads: DeviceReads::default(),
            hints: Mutex::new(HintStore::new(HintOptions {
                bytes_max: settings.hint_bytes,
                prefix_bits: settings.prefix_bits,
                eviction: settings.eviction,
                keep_evicted: parts.disk_hints.is_some(),
                sample,
            })),
            evicted: Mutex::default(),
            has_disk_level: AtomicBool::new(parts.disk_hints.is_some()),
            disk_hints: Mutex::new(parts.disk_hints),
            hints_are_complete: AtomicBool::new(false),
            hints_left_memory: AtomicBool::new(true),
            scan_is_wanted: AtomicBool::new(false),
            scan_pages_done: Count::new(0),
            scan_pages: Count::new(0),
            skipped: Mutex::new(SkippedBuffer::with_bytes_max(settings.skipped_bytes)),
            skipped_file: Mutex::new(parts.skipped_file),
            streams: Mutex::default(),
            pass: Mutex::default(),
            selectivity: Mutex::new(selectivity),
            pace: Mutex::new(pace),
            surroundings: Mutex::new(parts.surroundings),
            bad_known: AtomicUsize::new(0),
            lost_tags: AtomicUsize::new(0),
            verifies_reads: AtomicBool::new(settings.verify.covers_reads()),
            verifies_shares: AtomicBool::new(settings.verify.covers_shares()),
            mend_queue: Mutex::default(),
            scrub: Mutex::new(Scrub::new(&settings)),
            interruption: OnceLock::new(),
            rank_turn: OnceLock::new(),
            foreground: Foreground::default(),
            gave_way: LiveHistogram::default(),
            fingerprinting: Mutex::new(fingerprinting(settings.fingerprints)),
            rank_settings: RankSettings::of(&settings),
            settings: Mutex::new(settings),
            tuning: Mutex::new(()),
            hasher: parts.hasher,
            allocator: Mutex::new(parts.allocator),
            pins: Pins::default(),
            pool: Arc::new(BufferPool::keeping(parts.buffers_max)),
            reads_at_a_time: parts.reads_at_a_time,
            signals: Signals::default(),
            counters: Counters::default(),
            stages: Default::default(),
            write_outs: RwLock::new(()),
            data_is_dirty: AtomicBool::new(false),
            flushing: Mutex::new(()),
            host_bytes: AtomicU64::new(u64::MAX),
            blocks_in_flight: AtomicU64::new(0),
            host: parts.host,
            punchable: Mutex::default(),
            group_gate: RwLock::new(()),
            gated_shards_max: AtomicU64::new(GATED_SHARDS_MAX),
            table_io: RwLock::new(()),
            checkpointing: Mutex::new(()),
            relaying: Mutex::new(portion_size()),
            dirty_bytes_max: parts.dirty_bytes_max,
            is_read_only: parts.is_read_only,
            failure: Mutex::new(None),
            map_locks: (0..MAP_LOCKS).map(|_| RwLock::new(())).collect(),
        }
    }

    /// The lock of a map: shared to look up, exclusive to change.
    pub fn map_lock(&self, map: MapId) -> &RwLock<()> {
        &self.map_locks[Self::map_lock_index(map)]
    }

    /// Which lock a map has: two maps are locked in the order of this number.
    pub fn map_lock_index(map: MapId) -> usize {
        map.0 as usize % MAP_LOCKS
    }

    /// Refuses changes to a volume that cannot take them.
    pub fn usable(&self) -> Result<()> {
        if self.is_read_only {
            return Err(Error::ReadOnly("it was opened read-only".to_owned()));
        }
        match self.failure() {
            None => Ok(()),
            Some(why) => Err(Error::ReadOnly(why)),
        }
    }

    /// Why the volume became read-only.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Makes the volume read-only until it is opened again. The first reason stays.
    pub fn fail(&self, error: &Error) {
        let mut failure = self.failure.lock();
        if failure.is_none() {
            log::error!("the volume is read-only from now on: {error}; unmount, mend the cause, mount again");
            *failure = Some(error.to_string());
        }
    }

    /// Tells what work in the background could not do. On a volume that failed it can do nothing, which was said.
    pub fn tell(&self, what: &str, error: &Error) {
        if self.failure().is_none() {
            log::error!("{what}: {error}");
        }
    }

    /// When the current group's first and last changes came.
    pub fn group_times(&self) -> (Option<Instant>, Option<Instant>) {
        let state = self.state.lock();
        (state.group.began, state.group.last)
    }

    /// Counts a stage's blocks and time.
    pub fn timed<T>(&self, stage: Stage, blocks: u64, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        self.record(stage, blocks, began.elapsed());
        result
    }

    /// Counts a stage that was timed elsewhere.
    pub fn record(&self, stage: Stage, blocks: u64, time: Duration) {
        let stats = &self.stages[stage as usize];
        stats.blocks.fetch_add(blocks, Ordering::Relaxed);
        stats.latency.record(time);
    }

    /// The shard of a map. The caller holds the map's lock.
    pub fn shard(&self, key: ShardKey) -> Result<Arc<Shard>> {
        if let Some(shard) = self.state.lock().shards.get(key) {
            return Ok(shard);
        }
        let stored = match self.kv.get(&keys::shard(key))? {
            None => Shard::default(),
            Some(value) => Shard::decode(key, &value).ok_or_else(|| {
                Error::corrupt(format!("shard {} of map {}", key.shard, key.map.0), "its checksum does not match")
            })?,
        };
        let mut state = self.state.lock();
        if let Some(shard) = state.shards.get(key) {
            return Ok(shard);
        }
        Ok(state.shards.admit(key, stored))
    }

    /// Reads table pages into memory.
    pub fn load_pages(&self, numbers: &[u64]) -> Result<()> {
        let mut left = numbers.to_vec();
        while !left.is_empty() {
            let generation = self.state.lock().table.generation();
            let pages = self.read_pages(&left)?;
            let mut state = self.state.lock();
            for (number, page) in pages {
                check_age(number, &page, &state)?;
                state.table.admit(number, page, generation);
            }
            left = state.table.missing(left);
        }
        Ok(())
    }

    /// Reads pages from disk, neighbours in one go.
    fn read_pages(&self, numbers: &[u64]) -> Result<Vec<(u64, Page)>> {
        let mut pages = Vec::with_capacity(numbers.len());
        let mut rest = numbers;
        while let Some((&first, _)) = rest.split_first() {
            let neighbours = rest.iter().zip(first..).take_while(|(number, expected)| **number == *expected).count();
            let count = neighbours.min(REGION_PAGES as usize);
            pages.extend(self.read_page_run(first, count)?);
            rest = &rest[count..];
        }
        Ok(pages)
    }

    /// Reads and checks `count` pages from `first` on.
    pub fn read_page_run(&self, first: u64, count: usize) -> Result<Vec<(u64, Page)>> {
        let mut bytes = vec![0; count * PAGE_BYTES];
        let at = first.checked_mul(PAGE_BYTES as u64);
        let at = at.ok_or_else(|| Error::corrupt("a map", format!("it names blocks of table page {first}")))?;
        let whole = self.table_io.read();
        self.table.read_at(&mut bytes, at).map_err(|e| Error::io("reading the block table", e))?;
        drop(whole);
        let chunks = bytes.chunks_exact(PAGE_BYTES).zip(first..);
        chunks
            .map(|(chunk, number)| {
                let chunk: &[u8; PAGE_BYTES] = chunk.try_into().expect("chunks of a page");
                Page::from_disk(number, chunk).map(|page| (number, page)).map_err(|sector| {
                    Error::corrupt(
                        format!("sector {sector} of page {number} of the block table"),
                        "its checksum does not match",
                    )
                })
            })
            .collect()
    }

    /// Runs `work` under the publish lock with these pages in memory.
    pub fn with_pages<T>(&self, numbers: impl Fn() -> Vec<u64>, work: impl FnOnce(&mut State) -> T) -> Result<T> {
        loop {
            let mut state = self.state.lock();
            let missing = state.table.missing(numbers());
            if missing.is_empty() {
                let result = work(&mut state);
                state.table.shrink();
                return Ok(result);
            }
            drop(state);
            self.load_pages(&missing)?;
        }
    }

    /// Builds a region's bitmap: what the table, the groups under way and the waiting releases hold.
    /// The caller holds the allocator's lock.
    pub fn load_region(&self, region: u64) -> Result<Bitmap> {
        let first = region * REGION_PAGES;
        let pages_end = self.state.lock().sums.data.0.div_ceil(crate::format::page::PAGE_ENTRIES);
        let count = REGION_PAGES.min(pages_end.saturating_sub(first));
        loop {
            let generation = self.state.lock().table.generation();
            let on_disk = self.read_page_run(first, count as usize)?;
            let mut state = self.state.lock();
            if state.table.generation() != generation {
                continue;
            }
            let mut bitmap = Bitmap::empty();
            for (number, page) in on_disk {
                check_age(number, &page, &state)?;
                state.table.admit(number, page, generation);
                let page = state.table.page(number).expect("admitted above");
                take_live(&mut bitmap, number - first, page);
            }
            let group = state.group.freed.iter();
            let waiting = state.waiting.iter().flat_map(|waiting| &waiting.runs);
            for run in group.chain(waiting).chain(&state.wait_for_trim) {
                take_within(&mut bitmap, region, *run);
            }
            take_logged(&mut bitmap, region, &mut state);
            state.table.shrink();
            return Ok(bitmap);
        }
    }

    /// Gives back blocks that were allocated and never published.
    pub fn give_back(&self, runs: &[Run]) {
        self.landed(runs);
        let mut allocator = self.allocator.lock();
        runs.iter().for_each(|run| allocator.release(*run));
    }
}

/// Refuses a page that groups wrote which the log does not have.
fn check_age(number: u64, page: &Page, state: &State) -> Result<()> {
    let (found, newest) = (page.newest_sequence(), state.durable_sequence);
    if found <= newest {
        return Ok(());
    }
    Err(Error::corrupt(
        format!("page {number} of the block table"),
        format!(
            "it was written by group {found}, but the log ends at group {newest}: log and table do not belong together"
        ),
    ))
}

fn take_live(bitmap: &mut Bitmap, page_in_region: u64, page: &Page) {
    let first = page_in_region * crate::format::page::PAGE_ENTRIES;
    for n in 0..crate::format::page::PAGE_ENTRIES {
        if page.count(Pbn(n)) > 0 {
            bitmap.take(first + n);
        }
    }
}

/// A block that was freed before a crash, while its data rode in the log, waits for the trim as before it.
fn take_logged(bitmap: &mut Bitmap, region: u64, state: &mut State) {
    let first = region * REGION_BLOCKS;
    let logged = state.logged.iter().filter(|pbn| (first..first + REGION_BLOCKS).contains(&pbn.0));
    let freed: Vec<Pbn> = logged.copied().filter(|pbn| bitmap.take(pbn.0 - first)).collect();
    state.wait_for_trim.extend(freed.into_iter().map(|pbn| Run { pbn, blocks: 1 }));
}

fn take_within(bitmap: &mut Bitmap, region: u64, run: Run) {
    let first = region * REGION_BLOCKS;
    for pbn in run.pbn.0.max(first)..run.end().0.min(first + REGION_BLOCKS) {
        bitmap.take(pbn - first);
    }
}
