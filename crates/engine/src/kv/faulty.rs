//! The sorted state with faults on demand: see `device/faulty.rs`.

use std::sync::Arc;

use super::{FilesFound, Kv, KvMemory, Put};
use crate::device::{Access, Fault, Faults};
use crate::{Error, Result};

/// The name of the sorted state among the parts with faults.
pub const RECORDS: &str = "records";

/// A key-value store with faults.
pub struct FaultyKv {
    inner: Arc<dyn Kv>,
    faults: Arc<Faults>,
}

impl FaultyKv {
    /// Wraps a key-value store.
    pub fn new(inner: Arc<dyn Kv>, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }

    fn check(&self, access: Access) -> Result<()> {
        let error = self.faults.next(RECORDS, access).and_then(Fault::error);
        error.map_or(Ok(()), |error| Err(Error::io("using the record store", error)))
    }
}

impl Kv for FaultyKv {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check(Access::Get)?;
        self.inner.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.check(Access::Scan)?;
        self.inner.scan(from, to, limit)
    }

    fn write(&self, batch: Vec<Put>) -> Result<()> {
        self.check(Access::Put)?;
        self.inner.write(batch)
    }

    fn flush(&self) -> Result<()> {
        self.check(Access::FlushRecords)?;
        self.inner.flush()
    }

    fn restore(&self) -> bool {
        self.inner.restore()
    }

    fn settle(&self) {
        self.inner.settle();
    }

    fn catch_up(&self) {
        self.inner.catch_up();
    }

    fn check_files(&self, mend: bool) -> Result<FilesFound> {
        self.inner.check_files(mend)
    }

    fn memory(&self) -> KvMemory {
        self.inner.memory()
    }
}
