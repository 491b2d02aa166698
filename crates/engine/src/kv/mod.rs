//! The sorted state below the log: an ordered key-value store, checkpointed, never logged by itself.

mod faulty;
mod memory;
mod rocks;

pub use faulty::{FaultyKv, RECORDS};
pub use memory::MemoryKv;
pub use rocks::RocksKv;

use crate::Result;

/// A key with its new value; None removes it.
pub type Put = (Vec<u8>, Option<Vec<u8>>);

/// What oncefs needs of a key-value store. What was written before a `flush` survives a crash;
/// what was written after it may survive in part, but each `write` wholly or not at all.
pub trait Kv: Send + Sync {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Pairs with `from <= key < to`, in order, at most `limit`.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
    /// Applies a batch atomically.
    fn write(&self, batch: Vec<Put>) -> Result<()>;
    /// Makes everything written durable.
    fn flush(&self) -> Result<()>;
    /// Bytes held in memory, and look-ups (found, not found) in its block cache.
    fn memory(&self) -> KvMemory;
}

/// What a key-value store holds in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct KvMemory {
    /// Bytes of cache and write buffers.
    pub bytes: u64,
    /// Bytes allowed.
    pub bytes_max: u64,
    /// Block look-ups answered from the cache.
    pub hits: u64,
    /// Block look-ups that went to disk.
    pub misses: u64,
}
