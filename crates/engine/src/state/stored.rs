//! What checkpoints keep on disk: the block table and the sorted state.

use std::sync::Arc;

use crate::device::Device;
use crate::kv::Kv;
use crate::sync::RwLock;

/// The stores that checkpoints write.
pub struct Stored {
    /// The block table.
    pub table: Arc<dyn Device>,
    /// Held shared to read table pages, alone to write some, so that none is read half written.
    pub table_io: RwLock<()>,
    /// Names, inodes, maps and records, by key.
    pub kv: Arc<dyn Kv>,
}

impl Stored {
    /// The stores of a volume.
    pub fn new(table: Arc<dyn Device>, kv: Arc<dyn Kv>) -> Self {
        Self { table, table_io: RwLock::new(()), kv }
    }
}
