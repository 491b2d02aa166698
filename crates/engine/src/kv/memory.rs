//! A key-value store in memory, in place of RocksDB: for tests that must not touch a disk.

use std::collections::BTreeMap;

use parking_lot::RwLock;

use super::{Kv, KvMemory, Put};
use crate::Result;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Two ordered maps: everything written, and the part that survives a crash.
#[derive(Default)]
pub struct MemoryKv {
    written: RwLock<Map>,
    durable: RwLock<Map>,
}

impl MemoryKv {
    /// The store after a power cut. RocksDB may have flushed by itself, so `flushed` decides whether everything written
    /// survives or only the part that `flush` made durable.
    pub fn after_power_cut(&self, flushed: bool) -> Self {
        let survived = if flushed { self.written.read().clone() } else { self.durable.read().clone() };
        Self { written: RwLock::new(survived.clone()), durable: RwLock::new(survived) }
    }
}

impl Kv for MemoryKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.written.read().get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        if from >= to {
            return Ok(Vec::new());
        }
        let map = self.written.read();
        Ok(map.range(from.to_vec()..to.to_vec()).take(limit).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn write(&self, batch: Vec<Put>) -> Result<()> {
        let mut map = self.written.write();
        for (key, value) in batch {
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        *self.durable.write() = self.written.read().clone();
        Ok(())
    }

    fn memory(&self) -> KvMemory {
        KvMemory::default()
    }
}
