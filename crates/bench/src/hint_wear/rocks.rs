//! Hints in RocksDB, set up as the engine's record store at its smallest and in forms that might wear less.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompactionStyle, DBCompressionType, MergeOperands, Options, WaitForCompactOptions,
    WriteBatch, WriteOptions,
};

use super::{DiskLevel, GROUP_BITS, Hint, Traffic};
use crate::failure::{During, Result};

/// How RocksDB keeps its files in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// By levels, RocksDB's default and the engine's choice.
    Levels,
    /// Universal: sorted runs of similar size are merged, which writes less and holds more.
    Universal,
}

/// A way to keep hints in RocksDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    compaction: Compaction,
    /// One record per group, to which the merge operator appends; else one record per hint.
    grouped: bool,
    write_buffer_bytes: usize,
}

const MIB: usize = 1 << 20;

impl Form {
    /// The forms that are measured; the first is the engine's own.
    pub const ALL: [Form; 5] = [
        Form { compaction: Compaction::Levels, grouped: false, write_buffer_bytes: MIB },
        Form { compaction: Compaction::Levels, grouped: false, write_buffer_bytes: 2 * MIB },
        Form { compaction: Compaction::Universal, grouped: false, write_buffer_bytes: MIB },
        Form { compaction: Compaction::Levels, grouped: true, write_buffer_bytes: MIB },
        Form { compaction: Compaction::Universal, grouped: true, write_buffer_bytes: MIB },
    ];
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compaction = match self.compaction {
            Compaction::Levels => "levels",
            Compaction::Universal => "universal",
        };
        let records = if self.grouped { "group" } else { "hint" };
        write!(f, "RocksDB, {compaction}, record per {records}, {} MiB buffers", self.write_buffer_bytes / MIB)
    }
}

/// A RocksDB database of hints.
pub struct Rocks {
    db: DB,
    options: Options,
    form: Form,
    path: PathBuf,
}

impl Rocks {
    /// Makes an empty database in a directory of its own.
    pub fn create(path: &Path, form: Form) -> Result<Rocks> {
        let options = options(form);
        let db = DB::open(&options, path).during(|| "cannot make a RocksDB database")?;
        Ok(Rocks { db, options, form, path: path.to_owned() })
    }

    /// Removes a database that is no longer open.
    pub fn destroy(path: &Path) -> Result<()> {
        DB::destroy(&Options::default(), path).during(|| "cannot remove a RocksDB database")
    }
}

/// As `RocksKv` of the engine has them within 6 MiB, but for what the form says.
fn options(form: Form) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(4 * MIB));
    blocks.set_block_size(8 << 10);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_format_version(6);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_size(form.write_buffer_bytes);
    options.set_max_write_buffer_number(2);
    options.set_max_background_jobs(2);
    options.set_max_open_files(128);
    options.set_keep_log_file_num(2);
    options.set_max_manifest_file_size(4 << 20);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_paranoid_checks(true);
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    if form.compaction == Compaction::Universal {
        options.set_compaction_style(DBCompactionStyle::Universal);
    }
    if form.grouped {
        options.set_merge_operator_associative("append", append);
    }
    options
}

fn append(_key: &[u8], before: Option<&[u8]>, added: &MergeOperands) -> Option<Vec<u8>> {
    let mut value = before.unwrap_or_default().to_vec();
    added.iter().for_each(|hints| value.extend_from_slice(hints));
    Some(value)
}

impl DiskLevel for Rocks {
    fn demote(&mut self, hints: &[Hint]) -> Result<()> {
        let mut batch = WriteBatch::default();
        match self.form.grouped {
            // 40 bits of tag and 40 of pbn.
            false => {
                hints.iter().for_each(|hint| batch.put(&hint.tag.to_be_bytes()[3..], &hint.pbn.to_be_bytes()[3..]))
            }
            true => hints.chunk_by(|one, next| one.group() == next.group()).for_each(|group| {
                let value: Vec<u8> = group.iter().flat_map(|hint| in_group(*hint)).collect();
                batch.merge((group[0].group() as u16).to_be_bytes(), value);
            }),
        }
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        self.db.write_opt(batch, &options).during(|| "cannot write hints to RocksDB")
    }

    fn bits_of_a_write(&self, _group: usize) -> u32 {
        // Records of several groups gain nothing from being handed on together: a write buffer sorts them.
        GROUP_BITS
    }

    fn settle(&mut self) -> Result<()> {
        self.db.flush().during(|| "cannot flush RocksDB")?;
        self.db.wait_for_compact(&WaitForCompactOptions::default()).during(|| "cannot wait for RocksDB")
    }

    fn traffic(&self) -> Traffic {
        let ticker = |ticker| self.options.get_ticker_count(ticker);
        Traffic {
            written: ticker(Ticker::FlushWriteBytes) + ticker(Ticker::CompactWriteBytes),
            read: ticker(Ticker::CompactReadBytes),
        }
    }

    fn bytes(&self) -> Result<u64> {
        let entries = fs::read_dir(&self.path).during(|| "cannot list the RocksDB database")?;
        let tables = entries.flatten().filter(|entry| entry.path().extension().is_some_and(|name| name == "sst"));
        Ok(tables.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum())
    }

    fn is_model(&self) -> bool {
        false
    }

    fn look_up(&self, hint: Hint) -> Result<u64> {
        let missed = || self.options.get_ticker_count(Ticker::BlockCacheMiss);
        let before = missed();
        let found = match self.form.grouped {
            true => self.db.get_pinned((hint.group() as u16).to_be_bytes()),
            false => self.db.get_pinned(&hint.tag.to_be_bytes()[3..]),
        };
        found.during(|| "cannot look up a hint in RocksDB")?;
        Ok(missed() - before)
    }
}

/// A hint within its group's record: 7 bytes, as in the file of sorted groups.
fn in_group(hint: Hint) -> [u8; 7] {
    let mut bytes = [0; 7];
    bytes[..2].copy_from_slice(&((hint.tag >> 10) as u16).to_be_bytes());
    bytes[2..].copy_from_slice(&hint.pbn.to_be_bytes()[3..]);
    bytes
}
