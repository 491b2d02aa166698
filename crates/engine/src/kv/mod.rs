//! The sorted state below the log: an ordered key-value store, checkpointed, never logged by itself.

pub mod copies;
mod correct_bytes;
#[cfg(any(test, feature = "testing"))]
mod faulty;
mod files;
mod listing_thread;
mod manifest;
#[cfg(any(test, feature = "testing"))]
mod memory;
mod merge;
pub mod omap;
mod paths;
mod restore;
mod restore_in_use;
mod rocks;
mod rocks_errors;
pub(crate) mod salvage;
mod table_file;
mod table_proof;
mod unlisted_copies;

#[cfg(any(test, feature = "testing"))]
pub use faulty::{FaultyKv, RECORDS};
pub use files::replace as replace_file;
#[cfg(test)]
pub use files::tables_in;
#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryKv;
pub use restore::FilesFound;
pub use rocks::RocksKv;
pub use salvage::{IsRecord, Salvaged, Terms};
pub use table_file::{Found, data_end as table_data_end, is_sound as is_sound_table, read as read_table};

use crate::Result;

/// A key with its new value; None removes the key.
pub type Put = (Vec<u8>, Option<Vec<u8>>);

/// The operations that oncefs needs from a key-value store. Everything written before a `flush` survives a crash. Of
/// later writes any records may survive, whatever the others do, also of one batch: RocksDB keeps the order of writes and
/// each as a whole, and objects of a cluster keep neither. So a record that may only be there together with all others
/// is written by `seal`.
///
/// Errors: [`Error::Io`](crate::Error::Io), [`Error::NoSpace`](crate::Error::NoSpace) if the host is full, and
/// [`Error::Corrupt`](crate::Error::Corrupt) if the store's files are damaged.
pub trait Kv: Send + Sync {
    /// The value of `key`, if it exists.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Pairs with `from <= key < to`, in order, at most `limit`.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
    /// The values of several keys, in their order.
    fn get_all(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }
    /// Applies a batch. Readers see each of its records at once, and need not see all at the same time.
    fn write(&self, batch: Vec<Put>) -> Result<()>;
    /// Makes everything written durable.
    fn flush(&self) -> Result<()>;
    /// Makes everything written durable, and then this record. A crash never leaves it without all that was written
    /// before. A store in which writes become durable in their order needs one flush for that.
    fn seal(&self, last: Put) -> Result<()> {
        self.write(vec![last])?;
        self.flush()
    }
    /// After damage in `write` or `flush`: restores damaged files from their copies. True: some were restored, and
    /// everything written since the last flush has to be written again.
    fn restore(&self) -> bool {
        false
    }
    /// After the last write: finishes the store's own background work, so that its copies match the remaining files.
    fn settle(&self) {}
    /// Waits until the store's own background work is done and its copies match its files.
    #[cfg(any(test, feature = "testing"))]
    fn catch_up(&self) {}
    /// Compares all files with their checksums and their copies. With `mend`, restores a bad one from the other.
    fn check_files(&self, mend: bool) -> Result<FilesFound> {
        let _ = mend;
        Ok(FilesFound::default())
    }
    /// Memory taken, and hits and misses of the block cache.
    fn memory(&self) -> KvMemory;
}

/// The memory of a key-value store.
#[derive(Clone, Copy, Debug, Default)]
pub struct KvMemory {
    /// Bytes of cache and write buffers.
    pub bytes: u64,
    /// Bytes allowed.
    pub bytes_max: u64,
    /// Block look-ups answered from the cache.
    pub hits: u64,
    /// Block look-ups that read from disk.
    pub misses: u64,
}
