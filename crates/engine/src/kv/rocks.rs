//! RocksDB as the sorted state. Its write-ahead log is off: oncefs's own log covers every change
//! since the last flush (`docs/decisions/0002-one-log-then-rocksdb.md`).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::{Mutex, RwLock};
use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBPath, Direction, FlushOptions, IteratorMode, LruCacheOptions, Options, ReadOptions,
    WriteBatch, WriteOptions,
};

use super::copies::{Keeper, Updated};
use super::listing_thread::Follower;
use super::paths::Place;
use super::restore::{self, FilesFound};
use super::rocks_errors::{failed, may_pass};
use super::salvage::{self, Salvaged, Terms};
use super::unlisted_copies::Ahead;
use super::{Kv, KvMemory, Put, files, manifest, merge};
use crate::format::checkpoint::Checkpoint;
use crate::format::keys;
use crate::format::record_list::{RecordFile, RecordList};
use crate::{Copies, Error, Result};

/// Least size of a part of the cache. A file of 64 MiB with a million records has a filter of 1.3 MB.
const CACHE_PART_BYTES_MIN: u64 = 16 << 20;

/// Most parts of the cache, as a power of two: RocksDB's default.
const CACHE_PARTS_LOG2_MAX: u32 = 6;

/// Size of a record file, about: at most the memory of the store. A look-up that finds the filter and the index of a
/// file evicted reads both whole, so with little memory files are small.
const FILE_BYTES_MIN: u64 = 8 << 20;
const FILE_BYTES_MAX: u64 = 64 << 20;

/// One part in this many of the memory goes to write buffers; the rest is block cache.
const WRITE_BUFFER_SHARE: u64 = 3;
const WRITE_BUFFER_BYTES_MIN: u64 = 1 << 20;
const WRITE_BUFFER_BYTES_MAX: u64 = 16 << 20;
const _: () = assert!(WRITE_BUFFER_BYTES_MIN <= WRITE_BUFFER_BYTES_MAX);
/// Memory for the store that salvage creates.
const SALVAGE_BYTES_MAX: u64 = 48 << 20;
/// Every list of copies holds the manifest, so a short one costs less at each checkpoint. It must have room for all
/// files.
const MANIFEST_BYTES_PER_FILE: u64 = 1 << 10;
const MANIFEST_BYTES_MIN: u64 = 64 << 10;
const MANIFEST_BYTES_MAX: u64 = 4 << 20;

/// Checks of the copies while a volume is closed, before RocksDB's own work counts as settled.
const SETTLING_LOOKS: usize = 4;

/// A RocksDB database in a directory, with its copies.
pub struct RocksKv {
    /// None if the store is read-only. Dropped first, because it uses the records.
    follower: Option<Follower>,
    records: Arc<Records>,
}

/// The part shared by the store and the thread that copies its files.
pub(super) struct Records {
    /// None after it was closed for a repair and did not open again.
    pub(super) db: RwLock<Option<DB>>,
    cache: Cache,
    pub(super) options: Options,
    bytes_max: u64,
    pub(super) read_only: bool,
    pub(super) keeper: Keeper,
    /// Held by the only thread that restores files, before it takes the database.
    pub(super) rescuing: Mutex<()>,
    /// Files restored since the store was opened.
    pub(super) found: Mutex<FilesFound>,
    /// Files with damage that could not be restored. None: damage without a known file.
    pub(super) hopeless: Mutex<BTreeSet<Option<u64>>>,
    /// Whether anything was written after the last flush that the list of copies includes.
    pub(super) unflushed: AtomicBool,
    /// Whether such writes were lost: every write or flush is refused until the whole checkpoint begins again.
    pub(super) must_repeat: AtomicBool,
    /// Whether the list of copies lacks flushed records.
    pub(super) list_is_behind: AtomicBool,
    /// Whether the store went back to the list, and no list was made since.
    pub(super) went_back: AtomicBool,
}

impl RocksKv {
    /// Creates an empty database.
    pub fn create(path: &Path) -> Result<()> {
        let (mut options, _) = Self::options(WRITE_BUFFER_BYTES_MIN * WRITE_BUFFER_SHARE, MANIFEST_BYTES_MIN);
        options.create_if_missing(true);
        options.set_error_if_exists(true);
        let db = DB::open(&options, path).map_err(|e| failed("making the record store", &e))?;
        db.flush().map_err(|e| failed("making the record store", &e))
    }

    /// Opens a database that takes up to `bytes_max` bytes of memory. Damaged files are restored from their copies
    /// first, unless the store is opened read-only.
    pub fn open(place: Place, copies: Copies, bytes_max: u64, read_only: bool) -> Result<Self> {
        let tables = files::tables_in(&place.records).len() as u64;
        let manifest_bytes_max = (tables * MANIFEST_BYTES_PER_FILE).clamp(MANIFEST_BYTES_MIN, MANIFEST_BYTES_MAX);
        let (mut options, cache) = Self::options(bytes_max, manifest_bytes_max);
        let ahead = Arc::new(Ahead::new(place.clone(), copies));
        merge::copy_before_it_counts(&mut options, &place, &ahead);
        let mut found = FilesFound::default();
        let db = open_restored(&place, &options, read_only, &mut found)?;
        found.mended.iter().for_each(|what| log::warn!("{what}"));
        let keeper = Keeper::new(place, copies, keys::checkpoint(), ahead);
        let list_is_behind = AtomicBool::new(read_only || !keeper.is_of_now(&db));
        let records = Arc::new(Records {
            db: RwLock::new(Some(db)),
            cache,
            options,
            bytes_max,
            read_only,
            keeper,
            rescuing: Mutex::default(),
            found: Mutex::new(found),
            hopeless: Mutex::default(),
            unflushed: AtomicBool::default(),
            must_repeat: AtomicBool::default(),
            list_is_behind,
            went_back: AtomicBool::default(),
        });
        let own = records.clone();
        let follower = (!read_only).then(|| Follower::start(move || own.follow()));
        Ok(Self { follower, records })
    }

    /// The shared part, for tests.
    #[cfg(test)]
    pub(super) fn records(&self) -> &Records {
        &self.records
    }

    /// Stops the thread that brings the list up to date, for tests.
    #[cfg(test)]
    pub(super) fn list_late(&mut self) {
        self.follower = None;
    }

    /// Lets files get their copies only from a flush, for tests.
    #[cfg(test)]
    pub(super) fn copy_late(&mut self) {
        self.list_late();
        self.records.keeper.ahead().close();
    }

    /// Makes a damaged `CURRENT` of a closed store anew if only one manifest is there.
    pub fn restore_current(place: &Place) -> Result<()> {
        let restored = restore::current(place);
        restored.map(drop).map_err(|e| Error::io("restoring the record store's CURRENT", e))
    }

    /// Rebuilds the store from its readable parts. It must not be open.
    pub fn salvage(place: &Place, terms: Terms<'_>) -> Result<Salvaged> {
        salvage::salvage(place, &Self::salvage_options(), terms)
    }

    /// Completes an earlier salvage that a crash cut short after the new store had its place.
    pub fn finish_salvage(place: &Place) -> Result<()> {
        salvage::finish(place)
    }

    /// The options of the store that salvage creates.
    pub fn salvage_options() -> Options {
        Self::options(SALVAGE_BYTES_MAX, MANIFEST_BYTES_MAX).0
    }

    /// Whether every record can be read.
    pub fn is_readable(&self) -> Result<bool> {
        let read = |db: &DB| db.iterator(IteratorMode::Start).try_for_each(|pair| pair.map(drop));
        match self.records.try_with("reading all records", read) {
            Ok(()) => Ok(true),
            Err(Error::Corrupt { .. } | Error::Io { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn options(bytes_max: u64, manifest_bytes_max: u64) -> (Options, Cache) {
        let buffer = (bytes_max / WRITE_BUFFER_SHARE / 2).clamp(WRITE_BUFFER_BYTES_MIN, WRITE_BUFFER_BYTES_MAX);
        let cache = cache_of(bytes_max.saturating_sub(2 * buffer).max(512 << 10));
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&cache);
        blocks.set_block_size(8 << 10);
        blocks.set_bloom_filter(10.0, false);
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_format_version(6);
        let mut options = Options::default();
        options.set_block_based_table_factory(&blocks);
        options.set_write_buffer_size(buffer as usize);
        options.set_max_write_buffer_number(2);
        options.set_target_file_size_base(bytes_max.clamp(FILE_BYTES_MIN, FILE_BYTES_MAX));
        options.set_max_background_jobs(2);
        options.set_max_open_files(128);
        options.set_keep_log_file_num(2);
        options.set_max_manifest_file_size(manifest_bytes_max as usize);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        options.set_paranoid_checks(true);
        options.enable_statistics();
        options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        (options, cache)
    }
}

/// A cache in parts, which threads lock one by one. A part holds the filter of a whole file: one that is too large for
/// its part is never kept, and each look-up would read it again.
fn cache_of(bytes: u64) -> Cache {
    let mut cache = LruCacheOptions::default();
    cache.set_capacity(bytes as usize);
    cache.set_num_shard_bits((bytes / CACHE_PART_BYTES_MIN).max(1).ilog2().min(CACHE_PARTS_LOG2_MAX) as i32);
    Cache::new_lru_cache_opts(&cache)
}

/// Opens the database. If damage prevents that, restores files from their copies, then the whole store.
fn open_restored(place: &Place, options: &Options, read_only: bool, found: &mut FilesFound) -> Result<DB> {
    let list = place.list();
    if read_only {
        return open_read_only(place, options).or_else(|error| match &error {
            Error::Corrupt { .. } => {
                let listed: Vec<u64> = list.iter().flat_map(|list| &list.files).map(|file| file.number).collect();
                open_copies(place, options, list.as_ref(), &listed).ok_or_else(|| with_way_out(place, error, true))
            }
            _ => Err(error),
        });
    }
    let restoring = |e| Error::io("restoring the record store from its copies", e);
    if let Some(list) = &list {
        found.add(restore::cheaply(place, list).map_err(restoring)?);
    }
    found.add(restore::current(place).map_err(restoring)?);
    let open = || open(place, options);
    // RocksDB would take damage at the manifest's end for that of a crash, and delete the files that the rest names.
    if let Some(list) = list.as_ref().filter(|_| !manifest::is_whole(place))
        && restore::can_go_back(place, list)
        && has_last_checkpoint(place, options, list)?
    {
        found.add(restore::state(place, list).map_err(restoring)?.unwrap_or_default());
    }
    let error = match (open(), list) {
        (Ok(db), _) => return Ok(db),
        // The store goes back only for real damage.
        (Err(error), _) if may_pass(&error) => return Err(error),
        (Err(error), None) => return Err(error),
        (Err(error), Some(list)) => {
            let is_sound = |entry: &RecordFile| files::is_whole(&place.table(entry.number), entry);
            let tables = restore::tables(place, &list, is_sound).map_err(restoring)?;
            let is_any = !tables.mended.is_empty();
            found.mended.extend(tables.mended);
            match if is_any { open() } else { Err(error) } {
                Ok(db) => return Ok(db),
                Err(error) => match restore::state(place, &list).map_err(restoring)? {
                    None => error,
                    Some(restored) => {
                        found.add(restored);
                        return open();
                    }
                },
            }
        }
    };
    Err(with_way_out(place, error, false))
}

/// Whether a list belongs to the last checkpoint with which its store still opens. The log need not reach back to an
/// older one: if the list is behind, a manifest that a power cut tore counts up to the tear.
fn has_last_checkpoint(place: &Place, options: &Options, list: &RecordList) -> Result<bool> {
    let sequence_of = |bytes: &[u8]| Checkpoint::decode(bytes, place.volume_id).map(|checkpoint| checkpoint.sequence);
    let stored = open_read_only(place, options)
        .and_then(|db| db.get(keys::checkpoint()).map_err(|e| failed("reading the checkpoint", &e)));
    match stored {
        Ok(stored) => Ok(stored.and_then(|bytes| sequence_of(&bytes)) <= sequence_of(&list.checkpoint)),
        // This error says nothing about the store.
        Err(error) if may_pass(&error) => Err(error),
        Err(_) => Ok(true),
    }
}

/// Opens the database as it is.
pub(super) fn open(place: &Place, options: &Options) -> Result<DB> {
    manifest::check(place)?;
    DB::open(options, &place.records).map_err(opening_failed)
}

/// Opens the database as it is, read-only.
pub(super) fn open_read_only(place: &Place, options: &Options) -> Result<DB> {
    manifest::check(place)?;
    DB::open_for_read_only(options, &place.records, false).map_err(opening_failed)
}

/// Opens the database read-only, with the copies in place of its record files. None: not all of them exist intact.
pub(super) fn open_copies(place: &Place, options: &Options, list: Option<&RecordList>, live: &[u64]) -> Option<DB> {
    let list = list.filter(|list| !list.manifest.is_empty())?;
    let is_whole = |number: &u64| list.entry(*number).is_some_and(|entry| files::is_whole(&place.copy(*number), entry));
    if !live.iter().all(is_whole) {
        return None;
    }
    let mut options = options.clone();
    options.set_db_paths(&[DBPath::new(&place.copies, 0).ok()?]);
    manifest::check(place).ok()?;
    DB::open_for_read_only(&options, &place.records, false).inspect_err(|e| log::error!("reading copies: {e}")).ok()
}

fn opening_failed(error: rocksdb::Error) -> Error {
    failed("opening the record store", &error)
}

/// Adds advice to the error. A store that is opened read-only stays as it is, so it may go back to its copies.
fn with_way_out(place: &Place, error: Error, may_go_back: bool) -> Error {
    match error {
        Error::Corrupt { what, detail } => {
            let way_out =
                restore::way_out(place, may_go_back).map_or_else(String::new, |way_out| format!("; {way_out}"));
            Error::Corrupt { what, detail: format!("{detail}{way_out}") }
        }
        other => other,
    }
}

pub(super) fn live_numbers(db: &DB) -> std::result::Result<Vec<u64>, rocksdb::Error> {
    Ok(db.live_files()?.iter().filter_map(|file| files::table_number(&file.name)).collect())
}

fn flush(db: &DB) -> std::result::Result<(), rocksdb::Error> {
    let mut options = FlushOptions::default();
    options.set_wait(true);
    db.flush_opt(&options)
}

impl Records {
    /// Copies new files. True: RocksDB is working, and more may follow.
    fn follow(&self) -> bool {
        let (updated, is_at_work) = {
            let db = self.db.read();
            let Some(db) = db.as_ref() else { return false };
            let has = |name: &str| db.property_int_value(name).ok().flatten().is_some_and(|count| count > 0);
            // Asked first, so that the following check sees work that ends meanwhile.
            let is_at_work = ["rocksdb.num-running-compactions", "rocksdb.compaction-pending"].into_iter().any(has);
            (self.keeper.update_if_changed(db), is_at_work)
        };
        self.follow_up(&updated);
        is_at_work
    }

    fn refuse_to_go_on(&self) -> Result<()> {
        if self.must_repeat.load(Acquire) {
            return Err(Error::corrupt("the record store", "it was restored while it was written"));
        }
        Ok(())
    }

    /// Flushes and brings the copies up to date.
    fn flush(&self) -> Result<()> {
        let db = self.db.read();
        let open = db.as_ref().ok_or_else(|| Error::corrupt("the record store", "it did not open again"))?;
        self.refuse_to_go_on()?;
        let may_go_back = self.may_go_back();
        flush(open).map_err(|e| failed("flushing the record store", &e))?;
        self.list_is_behind.store(true, Release);
        let updated = self.keeper.update(open);
        match updated {
            Updated::Unproved(table) if may_go_back => {
                // The list is as before, and everything written since is written again.
                self.list_is_behind.store(false, Release);
                let name = table.map_or_else(|| "the manifest".to_owned(), files::table_name);
                return Err(Error::corrupt("the record store", format!("{name} is not what was written to it")));
            }
            Updated::Done => {
                self.list_is_behind.store(false, Release);
                self.went_back.store(false, Release);
            }
            Updated::Unproved(_) | Updated::Left => {}
        }
        self.unflushed.store(false, Release);
        drop(db);
        self.follow_up(&updated);
        Ok(())
    }

    fn settle(&self) {
        for _ in 0..SETTLING_LOOKS {
            let updated = match self.db.read().as_ref().filter(|_| !self.read_only) {
                Some(db) => {
                    self.keeper.ahead().close();
                    db.cancel_all_background_work(true);
                    self.keeper.settle(db)
                }
                None => return,
            };
            if !self.follow_up(&updated) {
                return;
            }
        }
    }
}

/// Also settles a store that fails or is shut down.
impl Drop for RocksKv {
    fn drop(&mut self) {
        self.follower = None;
        self.records.settle();
    }
}

impl Kv for RocksKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.records.with("reading a record", |db| db.get(key))
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.records.with("reading records", |db| {
            let mut read = ReadOptions::default();
            read.set_iterate_upper_bound(to.to_vec());
            let pairs = db.iterator_opt(IteratorMode::From(from, Direction::Forward), read).take(limit);
            pairs.map(|pair| pair.map(|(key, value)| (key.into_vec(), value.into_vec()))).collect()
        })
    }

    fn write(&self, batch: Vec<Put>) -> Result<()> {
        self.records.refuse_to_go_on()?;
        self.records.try_with("writing records", |db| {
            let mut writes = WriteBatch::default();
            for (key, value) in &batch {
                match value {
                    Some(value) => writes.put(key, value),
                    None => writes.delete(key),
                }
            }
            let mut options = WriteOptions::default();
            options.disable_wal(true);
            // Set while the database is held, so that a thread that closes it sees this.
            self.records.unflushed.store(true, Release);
            db.write_opt(writes, &options)
        })
    }

    fn flush(&self) -> Result<()> {
        self.records.flush()?;
        self.follower.iter().for_each(Follower::wake);
        Ok(())
    }

    fn restore(&self) -> bool {
        self.records.restore()
    }

    /// Makes the last list name the live files. A process that ends may never drop its store.
    fn settle(&self) {
        self.records.settle();
    }

    #[cfg(any(test, feature = "testing"))]
    fn catch_up(&self) {
        while self.records.follow() {
            std::thread::yield_now();
        }
    }

    fn check_files(&self, mend: bool) -> Result<FilesFound> {
        self.records.check_files(mend)
    }

    fn memory(&self) -> KvMemory {
        let Records { cache, options, bytes_max, .. } = &*self.records;
        KvMemory {
            bytes: cache.get_usage() as u64,
            bytes_max: *bytes_max,
            hits: options.get_ticker_count(Ticker::BlockCacheHit),
            misses: options.get_ticker_count(Ticker::BlockCacheMiss),
        }
    }
}
