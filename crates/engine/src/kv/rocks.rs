//! RocksDB as the sorted state. Its write-ahead log is off: oncefs's own log covers every change
//! since the last flush (`docs/decisions/0002-one-log-then-rocksdb.md`).

use std::path::Path;

use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedOptions, Cache, DB, Direction, FlushOptions, IteratorMode, Options, ReadOptions, WriteBatch, WriteOptions,
};

use super::{Kv, KvMemory, Put};
use crate::{Error, Result};

/// One part in this many of the memory goes to write buffers; the rest is block cache.
const WRITE_BUFFER_SHARE: u64 = 3;
const WRITE_BUFFER_BYTES_MIN: u64 = 1 << 20;
const WRITE_BUFFER_BYTES_MAX: u64 = 16 << 20;
const _: () = assert!(WRITE_BUFFER_BYTES_MIN <= WRITE_BUFFER_BYTES_MAX);

/// A RocksDB database in a directory.
pub struct RocksKv {
    db: DB,
    cache: Cache,
    options: Options,
    bytes_max: u64,
}

impl RocksKv {
    /// Creates an empty database.
    pub fn create(path: &Path) -> Result<()> {
        let (mut options, _) = Self::options(WRITE_BUFFER_BYTES_MIN * WRITE_BUFFER_SHARE);
        options.create_if_missing(true);
        options.set_error_if_exists(true);
        let db = DB::open(&options, path).map_err(|e| failed("making the record store", &e))?;
        db.flush().map_err(|e| failed("making the record store", &e))
    }

    /// Opens a database that takes up to `bytes_max` bytes of memory.
    pub fn open(path: &Path, bytes_max: u64, read_only: bool) -> Result<Self> {
        let (options, cache) = Self::options(bytes_max);
        let db = match read_only {
            true => DB::open_for_read_only(&options, path, false),
            false => DB::open(&options, path),
        };
        let db = db.map_err(|e| failed("opening the record store", &e))?;
        Ok(Self { db, cache, options, bytes_max })
    }

    fn options(bytes_max: u64) -> (Options, Cache) {
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
        options.set_max_manifest_file_size(4 << 20);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        options.set_paranoid_checks(true);
        options.enable_statistics();
        options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        (options, cache)
    }
}

fn failed(what: &str, error: &rocksdb::Error) -> Error {
    let text = error.to_string();
    // RocksDB passes the host's errno only as text: "No space left on device" is strerror(ENOSPC).
    if text.contains("No space left on device") {
        return Error::NoSpace;
    }
    match error.kind() {
        rocksdb::ErrorKind::Corruption => Error::corrupt("the record store", text),
        _ => Error::Io { what: what.to_owned(), source: std::io::Error::other(text) },
    }
}

impl Kv for RocksKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.db.get(key).map_err(|e| failed("reading a record", &e))
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut read = ReadOptions::default();
        read.set_iterate_upper_bound(to.to_vec());
        let mut found = Vec::new();
        for pair in self.db.iterator_opt(IteratorMode::From(from, Direction::Forward), read).take(limit) {
            let (key, value) = pair.map_err(|e| failed("reading records", &e))?;
            found.push((key.into_vec(), value.into_vec()));
        }
        Ok(found)
    }

    fn write(&self, batch: Vec<Put>) -> Result<()> {
        let mut writes = WriteBatch::default();
        for (key, value) in &batch {
            match value {
                Some(value) => writes.put(key, value),
                None => writes.delete(key),
            }
        }
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        self.db.write_opt(writes, &options).map_err(|e| failed("writing records", &e))
    }

    fn flush(&self) -> Result<()> {
        let mut options = FlushOptions::default();
        options.set_wait(true);
        self.db.flush_opt(&options).map_err(|e| failed("flushing the record store", &e))
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
