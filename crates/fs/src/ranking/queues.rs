//! A mount's view of the rank queues: which files have a place, and where each queue starts.
//!
//! The queues themselves are records of the store (`places`), so a queue takes no memory, however long it is.

use oncefs_engine::sync::{LockRank, Mutex};
use oncefs_engine::{Moment, QueuePlace, Rank, Store};

use crate::format::inode::InodeRecord;
use crate::format::ranking::{self, Ranking};
use crate::{FileKind, Ino, Result};

/// Queues 0, 1 and 2. Cold files have none.
const QUEUES: usize = 3;
const _: () = assert!(QUEUES + 1 == Rank::ALL.len(), "every rank but the cold one has a queue");

/// A mount's knowledge of the queues.
#[derive(Default)]
pub(crate) struct Queues {
    known: Mutex<Known>,
    /// For each queue a lower bound on the moment and file of its places. Records below it are deleted, and a scan
    /// would have to step over them each time.
    oldest: [Mutex<(Moment, u64)>; QUEUES],
}

#[derive(Default)]
struct Known {
    ranking: Ranking,
    /// Whether the stored record differs.
    has_changed: bool,
}

impl Queues {
    /// Reads the ranking record. Without a readable record every file gets a new place, which merges with its old one.
    pub(super) fn open(store: &Store) -> Result<Self> {
        let bytes = store.get(ranking::KEY)?;
        let ranking = bytes.and_then(|bytes| {
            let decoded = ranking::decode(&bytes);
            decoded.inspect_err(|error| log::warn!("{error}; putting all files into the rank queues again")).ok()
        });
        let known = Known { ranking: ranking.unwrap_or_default(), has_changed: false };
        Ok(Self { known: Mutex::new(LockRank::Leaf, known), ..Self::default() })
    }

    /// Counts a file under its new rank.
    pub(super) fn count_moved(&self, ino: Ino, from: Rank, to: Rank) {
        debug_assert!(from != to, "inode {} stays at rank {}", ino.0, to.number());
        self.count(ino, |files| {
            let (from, to) = (usize::from(from.number()), usize::from(to.number()));
            files[from] = files[from].saturating_sub(1);
            files[to] = files[to].saturating_add(1);
        });
    }

    /// Stops counting a deleted inode.
    pub(crate) fn count_gone(&self, ino: Ino, record: &InodeRecord) {
        if record.kind == FileKind::Regular {
            let rank = usize::from(record.usage.rank().number());
            self.count(ino, |files| files[rank] = files[rank].saturating_sub(1));
        }
    }

    fn count(&self, ino: Ino, change: impl FnOnce(&mut [u64; Rank::ALL.len()])) {
        let mut known = self.known.lock();
        if ino < known.ranking.known_below {
            change(&mut known.ranking.files);
            known.has_changed = true;
        }
    }

    /// Which files have a place, and how many files have which rank.
    pub(crate) fn ranking(&self) -> Ranking {
        self.known.lock().ranking
    }

    /// Adds the files in `found`, whose places were published with the record `published`.
    pub(super) fn extend(&self, found: &Ranking, published: &Ranking) {
        let mut known = self.known.lock();
        let (before, after) = (known.ranking.known_below.0, found.known_below.0);
        debug_assert!(before < after, "files below {before} have places already, and only those below {after} are new");
        known.ranking = known.ranking.with(found);
        known.has_changed = known.ranking != *published;
    }

    /// The ranking, if the stored record differs. The caller is about to store it.
    pub(super) fn take_changed(&self) -> Option<Ranking> {
        let mut known = self.known.lock();
        std::mem::take(&mut known.has_changed).then_some(known.ranking)
    }

    /// Lowers the start of the place's queue to include the place.
    pub(super) fn include(&self, place: &QueuePlace) {
        let mut oldest = self.oldest[queue_of(place.rank)].lock();
        *oldest = (*oldest).min((place.touched, place.file));
    }

    /// A moment and a file that no place of the queue precedes.
    pub(super) fn oldest(&self, rank: Rank) -> (Moment, u64) {
        *self.oldest[queue_of(rank)].lock()
    }

    /// Raises the start of a queue from `from` to `to`, unless an older place was added since `from` was read.
    pub(super) fn raise_oldest(&self, rank: Rank, from: (Moment, u64), to: (Moment, u64)) {
        let mut oldest = self.oldest[queue_of(rank)].lock();
        if *oldest == from {
            *oldest = to;
        }
    }
}

/// The index of a rank's queue.
fn queue_of(rank: Rank) -> usize {
    let queue = usize::from(rank.number());
    debug_assert!(queue < QUEUES, "rank {queue} has no queue");
    queue.min(QUEUES - 1)
}
