//! The state of ranking on one mount: the queues, the file being defragmented, and counters.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use oncefs_engine::sync::{LockRank, Mutex, MutexGuard};
use oncefs_engine::{Lbn, QueuePlace, Rank, Store};

use crate::Result;
use crate::ranking::queues::Queues;

/// The state that ranking keeps in memory for a mount.
pub(crate) struct Ranker {
    /// The file being defragmented for rank 1. Locked for the length of a turn, so turns do not overlap.
    defrag: Mutex<Option<PendingDefrag>>,
    queues: Queues,
    /// Files ranked by this mount, by their new rank.
    ranked: [AtomicU64; Rank::ALL.len()],
}

/// A file that is defragmented before it gets rank 1.
pub(super) struct PendingDefrag {
    /// The queue place that made the file due.
    pub place: QueuePlace,
    /// The block to continue at.
    pub from: Lbn,
}

impl Ranker {
    /// Reads the volume's ranking record.
    ///
    /// # Errors
    ///
    /// `Engine` if the record cannot be read. A damaged record is logged and ignored.
    pub(crate) fn open(store: &Store) -> Result<Self> {
        Ok(Self {
            defrag: Mutex::new(LockRank::RankTurn, None),
            queues: Queues::open(store)?,
            ranked: Default::default(),
        })
    }

    pub(crate) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Begins a turn: no other turn runs while the guard lives.
    pub(super) fn begin_turn(&self) -> MutexGuard<'_, Option<PendingDefrag>> {
        self.defrag.lock()
    }

    pub(super) fn count_ranked(&self, rank: Rank) {
        debug_assert!(rank != Rank::New, "a turn never gives rank {}: it is the rank before judging", rank.number());
        self.ranked[usize::from(rank.number())].fetch_add(1, Relaxed);
    }

    /// Files that this mount gave the rank.
    pub(super) fn ranked(&self, rank: Rank) -> u64 {
        self.ranked[usize::from(rank.number())].load(Relaxed)
    }
}
