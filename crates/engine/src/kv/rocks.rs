//! RocksDB as the sorted state. Its write-ahead log is off: oncefs's own log covers every change
//! since the last flush (`docs/decisions/0002-one-log-then-rocksdb.md`).

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Mutex, RwLock};
use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedOptions, Cache, DB, Direction, FlushOptions, IteratorMode, Options, ReadOptions, WriteBatch, WriteOptions,
};

use super::copies::{Keeper, Place};
use super::failed::{failed, may_pass};
use super::restore::{self, FilesFound};
use super::salvage::{self, Salvaged};
use super::{Kv, KvMemory, Put, files, manifest};
use crate::format::keys;
use crate::format::record_list::RecordFile;
use crate::{Copies, Error, Result};

/// One part in this many of the memory goes to write buffers; the rest is block cache.
const WRITE_BUFFER_SHARE: u64 = 3;
const WRITE_BUFFER_BYTES_MIN: u64 = 1 << 20;
const WRITE_BUFFER_BYTES_MAX: u64 = 16 << 20;
const _: () = assert!(WRITE_BUFFER_BYTES_MIN <= WRITE_BUFFER_BYTES_MAX);
/// Memory for the store that salvage makes.
const SALVAGE_BYTES_MAX: u64 = 48 << 20;
/// Every list of copies holds the manifest: a short one costs less at each checkpoint. It must have room for all files.
const MANIFEST_BYTES_PER_FILE: u64 = 1 << 10;
const MANIFEST_BYTES_MIN: u64 = 64 << 10;
const MANIFEST_BYTES_MAX: u64 = 4 << 20;

/// A RocksDB database in a directory, with its copies.
pub struct RocksKv {
    /// None after it was closed to be mended and did not open again.
    db: RwLock<Option<DB>>,
    cache: Cache,
    options: Options,
    bytes_max: u64,
    read_only: bool,
    keeper: Keeper,
    /// What was restored since the store was opened.
    found: Mutex<FilesFound>,
    /// There was damage that copies did not restore.
    is_hopeless: AtomicBool,
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

    /// Opens a database that takes up to `bytes_max` bytes of memory. What is damaged is restored from its copy first,
    /// unless the store is opened read-only.
    pub fn open(place: Place, copies: Copies, bytes_max: u64, read_only: bool) -> Result<Self> {
        let tables = files::tables_in(&place.records).len() as u64;
        let manifest_bytes_max = (tables * MANIFEST_BYTES_PER_FILE).clamp(MANIFEST_BYTES_MIN, MANIFEST_BYTES_MAX);
        let (options, cache) = Self::options(bytes_max, manifest_bytes_max);
        let mut found = FilesFound::default();
        let db = open_restored(&place, &options, read_only, &mut found)?;
        found.mended.iter().for_each(|what| log::warn!("{what}"));
        let keeper = Keeper::new(place, copies, keys::checkpoint());
        Ok(Self {
            db: RwLock::new(Some(db)),
            cache,
            options,
            bytes_max,
            read_only,
            keeper,
            found: Mutex::new(found),
            is_hopeless: AtomicBool::new(false),
        })
    }

    /// Makes the store anew from what can be read of it. Nobody has it open.
    pub fn salvage(place: &Place) -> Result<Salvaged> {
        salvage::salvage(place, &Self::salvage_options())
    }

    /// Ends an earlier salvage that a crash cut short after the new store had its place.
    pub fn finish_salvage(place: &Place) -> Result<()> {
        salvage::finish(place)
    }

    /// Of the store that salvage makes.
    pub fn salvage_options() -> Options {
        Self::options(SALVAGE_BYTES_MAX, MANIFEST_BYTES_MAX).0
    }

    /// Whether every record can be read.
    pub fn is_readable(&self) -> Result<bool> {
        let read = |db: &DB| db.iterator(IteratorMode::Start).try_for_each(|pair| pair.map(drop));
        match self.try_with("reading all records", read) {
            Ok(()) => Ok(true),
            Err(Error::Corrupt { .. } | Error::Io { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Does something with the database. After damage it is tried once more with what could be restored.
    fn with<T>(&self, what: &str, act: impl Fn(&DB) -> std::result::Result<T, rocksdb::Error>) -> Result<T> {
        match self.try_with(what, &act) {
            // What no copy restores is not tried again and again.
            Err(Error::Corrupt { .. }) if !self.is_hopeless.load(Relaxed) => match self.restore_while_open() {
                true => self.try_with(what, &act),
                false => {
                    self.is_hopeless.store(true, Relaxed);
                    self.try_with(what, &act)
                }
            },
            other => other,
        }
    }

    fn try_with<T>(&self, what: &str, act: impl Fn(&DB) -> std::result::Result<T, rocksdb::Error>) -> Result<T> {
        let db = self.db.read();
        let db =
            db.as_ref().ok_or_else(|| Error::corrupt("the record store", "it was damaged and did not open again"))?;
        act(db).map_err(|e| failed(what, &e))
    }

    /// Restores damaged files of a store in use. What was written since the last flush is flushed first, so that nothing
    /// is lost. False: nothing was restored.
    fn restore_while_open(&self) -> bool {
        let mut db = self.db.write();
        let is_flushed = !self.read_only && db.as_ref().is_some_and(|db| flush(db).is_ok());
        is_flushed && self.restore_closed(&mut db)
    }

    /// Closes the database, restores damaged files and opens it again. False: nothing was restored.
    fn restore_closed(&self, db: &mut Option<DB>) -> bool {
        let place = self.keeper.place();
        let Some(list) = place.list().filter(|list| !list.manifest.is_empty()) else { return false };
        let is_sound = |entry: &RecordFile| files::is_whole(&place.table(entry.number), entry);
        let live: Vec<u64> = db.as_ref().and_then(|db| live_numbers(db).ok()).unwrap_or_default();
        let is_needed = |entry: &RecordFile| !live.contains(&entry.number) || is_sound(entry);
        drop(db.take());
        let restored = restore::tables(place, &list, is_needed).inspect_err(|e| log::error!("restoring a file: {e}"));
        match open(place, &self.options) {
            Ok(opened) => *db = Some(opened),
            Err(error) => log::error!("the record store does not open again: {error}"),
        }
        let restored = restored.unwrap_or_default();
        restored.mended.iter().for_each(|what| log::warn!("{what}"));
        let is_any = !restored.mended.is_empty();
        self.found.lock().mended.extend(restored.mended);
        is_any && db.is_some()
    }

    fn options(bytes_max: u64, manifest_bytes_max: u64) -> (Options, Cache) {
        let buffer = (bytes_max / WRITE_BUFFER_SHARE / 2).clamp(WRITE_BUFFER_BYTES_MIN, WRITE_BUFFER_BYTES_MAX);
        let cache = Cache::new_lru_cache((bytes_max.saturating_sub(2 * buffer)).max(512 << 10) as usize);
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

/// Opens the database. If damage prevents that, files are restored from their copies, then the whole store.
fn open_restored(place: &Place, options: &Options, read_only: bool, found: &mut FilesFound) -> Result<DB> {
    if read_only {
        let open = || DB::open_for_read_only(options, &place.records, false).map_err(opening_failed);
        return manifest::check(&place.records).and_then(|()| open()).map_err(|error| with_way_out(place, error));
    }
    let list = place.list();
    let restoring = |e| Error::io("restoring the record store from its copies", e);
    if let Some(list) = &list {
        found.add(restore::cheaply(place, list).map_err(restoring)?);
    }
    let open = || open(place, options);
    let error = match (open(), list) {
        (Ok(db), _) => return Ok(db),
        // Nothing is taken back for what is no damage.
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
    Err(error)
}

/// Opens the database as it is.
fn open(place: &Place, options: &Options) -> Result<DB> {
    manifest::check(&place.records)?;
    DB::open(options, &place.records).map_err(opening_failed)
}

fn opening_failed(error: rocksdb::Error) -> Error {
    failed("opening the record store", &error)
}

/// A store that is opened read-only stays as it is: the error says what restores it.
fn with_way_out(place: &Place, error: Error) -> Error {
    match error {
        Error::Corrupt { what, detail } if place.list().is_some_and(|list| !list.manifest.is_empty()) => {
            Error::Corrupt { what, detail: format!("{detail}; there are copies: oncefs fsck -p restores it") }
        }
        other => other,
    }
}

fn live_numbers(db: &DB) -> std::result::Result<Vec<u64>, rocksdb::Error> {
    Ok(db.live_files()?.iter().filter_map(|file| files::table_number(&file.name)).collect())
}

fn flush(db: &DB) -> std::result::Result<(), rocksdb::Error> {
    let mut options = FlushOptions::default();
    options.set_wait(true);
    db.flush_opt(&options)
}

/// A store that fails or is shut down is settled too.
impl Drop for RocksKv {
    fn drop(&mut self) {
        self.settle();
    }
}

impl Kv for RocksKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.with("reading a record", |db| db.get(key))
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.with("reading records", |db| {
            let mut read = ReadOptions::default();
            read.set_iterate_upper_bound(to.to_vec());
            let pairs = db.iterator_opt(IteratorMode::From(from, Direction::Forward), read).take(limit);
            pairs.map(|pair| pair.map(|(key, value)| (key.into_vec(), value.into_vec()))).collect()
        })
    }

    fn write(&self, batch: Vec<Put>) -> Result<()> {
        self.try_with("writing records", |db| {
            let mut writes = WriteBatch::default();
            for (key, value) in &batch {
                match value {
                    Some(value) => writes.put(key, value),
                    None => writes.delete(key),
                }
            }
            let mut options = WriteOptions::default();
            options.disable_wal(true);
            db.write_opt(writes, &options)
        })
    }

    fn flush(&self) -> Result<()> {
        self.try_with("flushing the record store", flush)?;
        if let Some(db) = self.db.read().as_ref() {
            self.keeper.update(db);
        }
        Ok(())
    }

    fn restore(&self) -> bool {
        let mut db = self.db.write();
        !self.read_only && self.restore_closed(&mut db)
    }

    /// The last list names what is live. A process that ends may never drop its store.
    fn settle(&self) {
        if let Some(db) = self.db.read().as_ref().filter(|_| !self.read_only) {
            db.cancel_all_background_work(true);
            self.keeper.update_if_changed(db);
        }
    }

    fn check_files(&self, mend: bool) -> Result<FilesFound> {
        let place = self.keeper.place();
        let Some(list) = place.list() else { return Ok(std::mem::take(&mut *self.found.lock())) };
        let live = || self.with("looking at the record files", live_numbers);
        let compare = |mend| restore::compare(place, &list, live, mend);
        let mut compared = compare(mend)?;
        if mend && !compared.left.is_empty() && self.restore_while_open() {
            compared.left = compare(false)?.left;
        }
        let mut found = std::mem::take(&mut *self.found.lock());
        found.add(compared);
        Ok(found)
    }

    fn memory(&self) -> KvMemory {
        KvMemory {
            bytes: self.cache.get_usage() as u64,
            bytes_max: self.bytes_max,
            hits: self.options.get_ticker_count(Ticker::BlockCacheHit),
            misses: self.options.get_ticker_count(Ticker::BlockCacheMiss),
        }
    }
}
