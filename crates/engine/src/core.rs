//! An open volume: a list of parts, and the small steps that several of them need.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::background::signals::Signals;
use crate::commit::journal::Journal;
use crate::commit::log::Log;
use crate::damage::notices::Damage;
use crate::device::Device;
use crate::format::keys::{self, ShardKey};
use crate::format::page::{PAGE_BYTES, Page};
use crate::format::shard::Shard;
use crate::hints::disk::DiskHints;
use crate::hints::store::Hints;
use crate::kv::Kv;
use crate::layout::portion_size::portion_size;
use crate::policy::facts::PolicyFacts;
use crate::read::cache::ReadCache;
use crate::settings::tuning::Tuning;
use crate::settings::values::Settings;
use crate::space::allocator::{Allocator, Bitmap, REGION_BLOCKS, REGION_PAGES, Run};
use crate::space::data_area::DataArea;
use crate::space::free_space::FreeSpace;
use crate::state::map_locks::MapLocks;
use crate::state::published::State;
use crate::state::staging::Staging;
use crate::state::stored::Stored;
use crate::stats::statistics::Statistics;
use crate::sync::Mutex;
use crate::volume::ballast::Ballast;
use crate::volume::health::Health;
use crate::worker::backlog::Backlog;
use crate::worker::backlog_file::SkippedFile;
use crate::worker::foreground::Foreground;
use crate::worker::out_of_line::Worker;
use crate::worker::surroundings::Surroundings;
use crate::write::hash::Hasher;
use crate::write::inline::InlineDedup;
use crate::{Error, Pbn, Result};

/// An open volume.
///
/// Each part keeps its fields to itself; the order of all locks stands in `sync.rs`.
pub struct Core {
    /// Whether it takes changes.
    pub health: Health,
    /// The publish lock.
    pub state: Mutex<State>,
    /// The locks of maps, and new ids.
    pub maps: MapLocks,
    /// The data area.
    pub data: DataArea,
    /// What checkpoints keep on disk.
    pub stored: Stored,
    /// The log, and what orders groups and checkpoints.
    pub journal: Journal,
    /// Free space, and readers that hold off its reuse.
    pub space: FreeSpace,
    /// Published blocks in memory.
    pub staging: Staging,
    /// Blocks read before.
    pub read_cache: ReadCache,
    /// The hint store.
    pub hints: Hints,
    /// In-line deduplication.
    pub inline: InlineDedup,
    /// What in-line deduplication left to the worker.
    pub backlog: Backlog,
    /// Out-of-line deduplication.
    pub worker: Worker,
    /// What decides how files are deduplicated.
    pub policy: PolicyFacts,
    /// Bad blocks, and the scrub.
    pub damage: Damage,
    /// What is set for this mount.
    pub tuning: Tuning,
    /// Tags and fingerprints.
    pub hasher: Hasher,
    /// What programs ask for.
    pub foreground: Foreground,
    /// Wakes the background threads.
    pub signals: Signals,
    /// Counters, and times of stages.
    pub stats: Statistics,
}

/// What an open volume is made of.
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
    /// The volume's directory, if the data area takes its space from the host file system.
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
        let opened_at = parts.state.durable_sequence;
        Self {
            health: Health::new(parts.is_read_only),
            maps: MapLocks::new(parts.state.sums.next_map),
            state: Mutex::new(parts.state),
            data: DataArea::new(parts.data, parts.buffers_max, parts.reads_at_a_time),
            stored: Stored::new(parts.table, parts.kv),
            journal: Journal::new(parts.volume_id, opened_at, parts.log, parts.dirty_bytes_max),
            space: FreeSpace::new(parts.allocator, parts.host, parts.ballast),
            staging: parts.staging,
            read_cache: ReadCache::new(parts.read_cache_bytes_max),
            hints: Hints::new(&settings, parts.disk_hints),
            inline: InlineDedup::new(&settings),
            backlog: Backlog::new(&settings, parts.skipped_file),
            worker: Worker::new(&settings, parts.surroundings, portion_size()),
            policy: PolicyFacts::new(parts.policy_bytes_max, parts.read_pattern_bytes_max),
            damage: Damage::new(&settings),
            tuning: Tuning::new(settings),
            hasher: parts.hasher,
            foreground: Foreground::default(),
            signals: Signals::default(),
            stats: Statistics::default(),
        }
    }

    /// When the current group's first and last changes came.
    pub fn group_times(&self) -> (Option<Instant>, Option<Instant>) {
        let state = self.state.lock();
        (state.group.began, state.group.last)
    }

    /// The shard of a map. The caller holds the map's lock.
    pub fn shard(&self, key: ShardKey) -> Result<Arc<Shard>> {
        if let Some(shard) = self.state.lock().shards.get(key) {
            return Ok(shard);
        }
        let stored = match self.stored.kv.get(&keys::shard(key))? {
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
        let whole = self.stored.table_io.read();
        self.stored.table.read_at(&mut bytes, at).map_err(|e| Error::io("reading the block table", e))?;
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
        let mut allocator = self.space.allocator.lock();
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
