//! The log of an open volume, and what orders its groups and checkpoints.

use crate::Result;
use crate::commit::log::{Log, Mark};
use crate::format::record::Totals;
use crate::sync::{LockRank, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A change of at most this many shards (4.5 GiB of a file; the kernel asks for at most 4 GiB at a time) goes
/// into one group.
pub const GATED_SHARDS_MAX: u64 = 4608;
/// Publishers wait while a group is larger than this share of the log.
pub const GROUP_SHARE_MAX: u64 = 16;

/// The log and the gates before it.
pub struct Journal {
    volume_id: [u8; 16],
    /// The last commit before this mount.
    opened_at: u64,
    log: Mutex<Log>,
    log_bytes: u64,
    /// Held shared while a change is published in several publications that belong into one group.
    group_gate: RwLock<()>,
    gated_shards_max: u64,
    /// Held while one checkpoint is under way.
    checkpointing: Mutex<()>,
    dirty_bytes_max: u64,
}

/// Bounds of what is published between two commits and checkpoints.
#[derive(Clone, Copy, Debug)]
pub struct JournalBounds {
    /// A checkpoint is wanted when so many bytes of changes are in memory.
    pub dirty_bytes_max: u64,
    /// A change of a range of more shards than this does not fit into one group.
    pub gated_shards_max: u64,
}

impl Journal {
    /// The log of a volume whose last commit was `opened_at`.
    pub fn new(volume_id: [u8; 16], opened_at: u64, log: Log, bounds: JournalBounds) -> Self {
        let JournalBounds { dirty_bytes_max, gated_shards_max } = bounds;
        assert!(gated_shards_max > 0, "a change of one shard has to fit into one group");
        assert!(dirty_bytes_max > 0, "a bound of 0 bytes would have every publisher wait for a checkpoint");
        let reached = log.mark().sequence;
        assert_eq!(reached, opened_at, "the log ends at group {reached}, the volume at {opened_at}");
        Self {
            volume_id,
            opened_at,
            log_bytes: log.bytes(),
            log: Mutex::new(LockRank::Log, log),
            group_gate: RwLock::new(LockRank::GroupGate, ()),
            gated_shards_max,
            checkpointing: Mutex::new(LockRank::Checkpointing, ()),
            dirty_bytes_max,
        }
    }

    /// Which volume it is.
    pub fn volume_id(&self) -> [u8; 16] {
        self.volume_id
    }

    /// The last commit before this mount.
    pub fn opened_at(&self) -> u64 {
        self.opened_at
    }

    /// A checkpoint is wanted when so many bytes of changes are in memory.
    pub fn dirty_bytes_max(&self) -> u64 {
        self.dirty_bytes_max
    }

    /// Publishers wait while the group is larger than this.
    pub fn group_bytes_max(&self) -> u64 {
        self.log_bytes / GROUP_SHARE_MAX
    }

    /// A change of a range of more shards than this does not fit into one group.
    pub fn gated_shards_max(&self) -> u64 {
        self.gated_shards_max
    }

    /// Share of the log that is in use, 0 to 1.
    pub fn fullness(&self) -> f64 {
        self.log.lock().fullness()
    }

    /// Keeps a change of so many shards in one group while the guard lives. None: it is too large for that.
    pub fn gate(&self, shards: u64) -> Option<RwLockReadGuard<'_, ()>> {
        (shards <= self.gated_shards_max).then(|| self.group_gate.read())
    }

    /// Waits until no change is half published, and holds new ones off while the group is taken.
    pub fn close_gate(&self) -> RwLockWriteGuard<'_, ()> {
        self.group_gate.write()
    }

    /// Whether no change is half published, so that the group could be taken now.
    pub fn is_gate_free(&self) -> bool {
        self.group_gate.try_write().is_some()
    }

    /// Holds off checkpoints while the guard lives. A checkpoint holds it itself.
    pub fn hold_checkpoints(&self) -> MutexGuard<'_, ()> {
        self.checkpointing.lock()
    }

    /// Begins a commit; it is the only one until it is dropped.
    pub fn begin_commit(&self) -> CommitUnderWay<'_> {
        CommitUnderWay { log: self.log.lock() }
    }

    /// A checkpoint is durable: nothing before `mark` is needed any more.
    pub fn trim(&self, mark: Mark) {
        self.log.lock().trim(mark);
    }
}

/// The right to append one group.
pub struct CommitUnderWay<'a> {
    log: MutexGuard<'a, Log>,
}

impl CommitUnderWay<'_> {
    /// The present end of the log.
    pub fn mark(&self) -> Mark {
        self.log.mark()
    }

    /// Number of the group that is appended next.
    pub fn next_sequence(&self) -> u64 {
        self.log.mark().sequence + 1
    }

    /// Writes a group's record and flushes it: on return the group is durable. Gives its sequence and size.
    pub fn append(&mut self, ops: &[u8], totals: Totals) -> Result<(u64, u64)> {
        let expected = self.next_sequence();
        let (sequence, bytes) = self.log.append(ops, totals)?;
        assert_eq!(sequence, expected, "the group's number");
        Ok((sequence, bytes))
    }
}
