//! The log of an open volume, and what orders its groups and checkpoints.

use crate::commit::log::Log;
use crate::sync::{AtomicU64, Mutex, RwLock};

/// A change of at most this many shards (4.5 GiB of a file; the kernel asks for at most 4 GiB at a time) goes
/// into one group.
pub const GATED_SHARDS_MAX: u64 = 4608;

/// The log and the gates before it.
pub struct Journal {
    /// Which volume it is.
    pub volume_id: [u8; 16],
    /// The last commit before this mount.
    pub opened_at: u64,
    /// The log; only the committer writes.
    pub log: Mutex<Log>,
    /// Size of the log.
    pub log_bytes: u64,
    /// Held shared while a change is published in pieces that belong into one group.
    pub group_gate: RwLock<()>,
    /// A change of a range of more shards than this does not fit into one group.
    pub gated_shards_max: AtomicU64,
    /// Held while one checkpoint is under way.
    pub checkpointing: Mutex<()>,
    /// Checkpoint when so many bytes of changes are in memory.
    pub dirty_bytes_max: u64,
}

impl Journal {
    /// The log of a volume whose last commit was `opened_at`.
    pub fn new(volume_id: [u8; 16], opened_at: u64, log: Log, dirty_bytes_max: u64) -> Self {
        Self {
            volume_id,
            opened_at,
            log_bytes: log.bytes(),
            log: Mutex::new(log),
            group_gate: RwLock::new(()),
            gated_shards_max: AtomicU64::new(GATED_SHARDS_MAX),
            checkpointing: Mutex::new(()),
            dirty_bytes_max,
        }
    }
}
