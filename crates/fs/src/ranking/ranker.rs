//! The ranker (Selective, section 4.2): files get their ranks when nobody waits, and what a rank asks for is done.
//!
//! Owns the order of the work, in bounded turns that the engine's worker calls when it has nothing else to do. What
//! stands at the tail of a queue is decided in `dedup` (`look_at`), how a file is used is known to `monitor`, how its
//! blocks are treated to the engine.
//!
//! Numbered invariants:
//! 1. Inode and engine agree on a file's rank and on whether it is update-heavy: both change in one publication.
//! 2. A regular file below `known_below` that is not cold has a place in the queue of its rank: a place goes in the
//!    publication that gives the file another, or when the file is gone or cold. It may have several, or one that is
//!    out of date.
//!
//! Every step is one publication, durable with its group: a crash before that leaves the file with its rank and its
//! place, to be looked at again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use oncefs_engine::{
    AtTail, BIG_RUN_BLOCKS, Blocks, Change, DefragOptions, DefragOutcome, FilePolicy, Lbn, Moment, QueuePlace, Rank,
    RankReport, Store, Usage, look_at,
};
use parking_lot::Mutex;

use crate::format::inode::InodeRecord;
use crate::format::{inode, queue};
use crate::names::directory::put_inode;
use crate::{Error, FileKind, FileSystem, Ino, Result, Space};

use crate::ranking::queues::Queues;

/// About so much of a file is laid out again in one turn, 16 MiB.
const WINDOW: Blocks = Blocks(4_096);
/// One block in so many of the data area stays free of what is laid out again for ranks.
const FREE_SHARE: u64 = 4;
/// Places looked at in one turn, at most.
const PLACES_MAX: usize = 64;

/// What ranking needs to know of a mount.
#[derive(Default)]
pub(crate) struct Ranker {
    /// A file on its way to rank 1. Held through a turn: there is one at a time.
    under_way: Mutex<Option<LayingOut>>,
    pub(crate) queues: Queues,
    /// Files that got a rank, by that.
    ranked: [AtomicU64; Rank::ALL.len()],
}

/// A file that is laid out again before it gets rank 1.
struct LayingOut {
    /// Why: what stood at the tail.
    place: QueuePlace,
    /// Where in the file to go on.
    from: Lbn,
}

/// What became of a place.
pub(super) enum Looked {
    /// Nothing, and those behind it are not due either.
    Waits,
    /// It was put right, or its file got a rank.
    Done,
    /// Its file is to be laid out again first.
    LaysOut,
}

impl Ranker {
    /// What a volume says of its queues.
    pub(crate) fn open(store: &Store) -> Result<Self> {
        Ok(Self { queues: Queues::open(store)?, ..Self::default() })
    }
}

impl FileSystem {
    /// Has the engine's worker rank files when it has nothing else to do.
    pub(crate) fn rank_in_background(file_system: &Arc<Self>) {
        let ranker = Arc::downgrade(file_system);
        file_system.store.rank_by(Box::new(move || match ranker.upgrade() {
            Some(file_system) if !file_system.closing.load(Relaxed) => Ok(file_system.rank_some()?),
            _ => Ok(None),
        }));
    }

    /// Nothing is ranked from now on: how many files have which rank is written down. What cannot be is about right
    /// after the next mount.
    pub(crate) fn leave_queues(&self) {
        let _under_way = self.ranker.under_way.lock();
        if !self.read_only
            && let Err(error) = self.save_ranking()
        {
            log::debug!("how many files have which rank was not written down: {error}");
        }
    }

    /// Files by rank, for `oncefs stats`.
    pub(crate) fn rank_report(&self) -> BTreeMap<String, RankReport> {
        if !self.store.ranks_files() {
            return BTreeMap::new();
        }
        let files = self.ranker.queues.ranking().files;
        let report = |rank: Rank| {
            let at = usize::from(rank.number());
            let ranked = self.ranker.ranked[at].load(Relaxed);
            (
                rank_name(rank).to_owned(),
                RankReport { files: files[at], ranked, waits_seconds: self.waits_seconds(rank) },
            )
        };
        Rank::ALL.into_iter().map(report).collect()
    }

    /// One turn: lays out a part of a file, lets the queues know some more files, or looks at some places. Gives how many
    /// blocks were laid out; None: nothing is due.
    pub(crate) fn rank_some(&self) -> Result<Option<u64>> {
        if !self.store.ranks_files() {
            return Ok(None);
        }
        let mut under_way = self.ranker.under_way.lock();
        if let Some(laying) = under_way.take() {
            let (blocks, rest) = self.lay_out(laying)?;
            *under_way = rest;
            return Ok(Some(blocks));
        }
        if self.let_queues_know()? {
            return Ok(Some(0));
        }
        // Cold files first, then those to be judged.
        for rank in [Rank::Sequential, Rank::Random, Rank::New] {
            let (is_done, laying) = self.look_at_queue(rank)?;
            if is_done {
                *under_way = laying;
                return Ok(Some(0));
            }
        }
        self.save_ranking()?;
        Ok(None)
    }

    /// Looks at places of one queue until one waits. Gives whether anything was done, and a file to be laid out.
    fn look_at_queue(&self, rank: Rank) -> Result<(bool, Option<LayingOut>)> {
        let mut is_done = false;
        for place in self.places_due(rank, self.rank_clock(), PLACES_MAX)? {
            let looked = self.look_at_place(&place).or_else(|error| self.pass_over(&place, error))?;
            match looked {
                Looked::Waits => break,
                Looked::Done => is_done = true,
                Looked::LaysOut => return Ok((true, Some(LayingOut { place, from: Lbn(0) }))),
            }
        }
        Ok((is_done, None))
    }

    fn look_at_place(&self, place: &QueuePlace) -> Result<Looked> {
        let (ino, now) = (Ino(place.file), self.rank_clock());
        let usage = self.usage_known(ino)?;
        match look_at(place, usage.as_ref(), &self.store.rank_rule(), now) {
            AtTail::Wait { .. } => Ok(Looked::Waits),
            AtTail::Drop => self.move_place(place, None),
            AtTail::Move(to) => {
                if usage.is_some_and(|mut usage| usage.clamp(now)) {
                    self.leave_the_future(ino, now)?;
                }
                self.move_place(place, Some(to))
            }
            AtTail::Rank(Rank::Sequential) if self.is_laid_out_for_rank_1(ino)? => Ok(Looked::LaysOut),
            AtTail::Rank(rank) => self.give_rank(place, rank, now),
        }
    }

    /// How a regular file is used, past the cache of inodes, which holds those that are in use. None: there is no such
    /// file, or it has no name, and is as good as gone.
    fn usage_known(&self, ino: Ino) -> Result<Option<Usage>> {
        let bytes = self.store.get(&inode::key(ino))?;
        let record = bytes.map(|bytes| InodeRecord::decode(ino, &bytes)).transpose()?;
        let file = record.filter(|record| record.kind == FileKind::Regular && record.nlink > 0);
        Ok(file.map(|file| {
            let mut usage = file.usage;
            self.add_noted(ino, &mut usage);
            usage
        }))
    }

    /// Whether a file has to be laid out again before it gets rank 1: not if it is left alone whatever its rank.
    fn is_laid_out_for_rank_1(&self, ino: Ino) -> Result<bool> {
        let map = self.inode(ino)?.lock().map;
        let policy = FilePolicy { rank: Rank::Sequential, is_update_heavy: false, ..self.store.file_policy(map) };
        let (effective_policy, _) = self.store.effective_policy_of(policy);
        Ok(effective_policy.is_later && effective_policy.run_blocks_min == Some(BIG_RUN_BLOCKS))
    }

    /// Goes on with a file on its way to rank 1: runs shorter than those that it may share are written anew, together,
    /// and then it gets its rank. One that was used otherwise meanwhile keeps the rank that it has. Gives how many blocks
    /// were written, and what is left to do.
    fn lay_out(&self, LayingOut { place, from }: LayingOut) -> Result<(u64, Option<LayingOut>)> {
        let now = self.rank_clock();
        let usage = self.usage_known(Ino(place.file))?;
        if look_at(&place, usage.as_ref(), &self.store.rank_rule(), now) != AtTail::Rank(Rank::Sequential) {
            return Ok((0, None));
        }
        let options = DefragOptions {
            from,
            run_blocks_min: Some(BIG_RUN_BLOCKS),
            space: self.space_to_lay_out(),
            window: Some(WINDOW),
            dry_run: false,
            gives_way: true,
        };
        match self.defrag(Ino(place.file), &options) {
            Ok(DefragOutcome { blocks_moved, next: Some(next), .. }) => {
                Ok((blocks_moved, Some(LayingOut { place, from: Lbn(next) })))
            }
            Ok(outcome) => {
                let given = self.give_rank(&place, Rank::Sequential, now);
                given.or_else(|error| self.pass_over(&place, error)).map(|_| (outcome.blocks_moved, None))
            }
            Err(error) => self.pass_over(&place, error).map(|_| (0, None)),
        }
    }

    /// Blocks that ranks may take from what sharing saved. The rest of the volume belongs to programs: who reads files in
    /// sequence does not expect the volume to fill up by that.
    fn space_to_lay_out(&self) -> Blocks {
        let Space { total, available } = self.statfs();
        Blocks(available.saturating_sub(total / FREE_SHARE))
    }

    /// A file gets a rank if it still deserves it, and the place that belongs to it; from then on it is treated so.
    pub(super) fn give_rank(&self, place: &QueuePlace, rank: Rank, now: Moment) -> Result<Looked> {
        let inode = self.inode(Ino(place.file))?;
        let mut record = inode.lock();
        // Without a name it may be deleted at any moment, and is not to come back by this.
        if record.nlink == 0 {
            return self.move_place(place, None);
        }
        let mut usage = record.usage;
        self.add_noted(inode.ino, &mut usage);
        if look_at(place, Some(&usage), &self.store.rank_rule(), now) != AtTail::Rank(rank) {
            // It was used meanwhile, and the next look has another answer.
            return Ok(Looked::Done);
        }
        let mut ranked = record.clone();
        self.publish_along(inode.ino, &mut ranked);
        ranked.usage.clamp(now);
        ranked.usage.ranked(rank);
        let mut change = Change::new();
        put_inode(&mut change, inode.ino, &ranked);
        change.delete(queue::key(place));
        self.follow_use(&mut change, inode.ino, &record, &ranked);
        self.add_ranking(&mut change);
        self.store.publish_in_background(change)?;
        *record = ranked;
        self.ranker.ranked[usize::from(rank.number())].fetch_add(1, Relaxed);
        Ok(Looked::Done)
    }

    /// What another use of a file means for the queues and for the engine, as a part of the change that tells of that
    /// use. A file that is emptied has another map, of which is said what was said of the old one. The caller holds the
    /// inode's lock.
    pub(crate) fn follow_use(&self, change: &mut Change, ino: Ino, before: &InodeRecord, after: &InodeRecord) {
        let (was, is) = (before.usage.rank(), after.usage.rank());
        if was != is {
            self.ranker.queues.count_moved(ino, was, is);
            self.add_place(change, QueuePlace::of(&after.usage, ino.0));
        }
        let is_update_heavy = after.usage.is_update_heavy();
        if (before.map, was, before.usage.is_update_heavy()) == (after.map, is, is_update_heavy) {
            return;
        }
        let policy = FilePolicy { rank: is, is_update_heavy, ..self.store.file_policy(before.map) };
        if before.map == after.map {
            self.store.policy_change(change, after.map, policy);
        } else if policy != FilePolicy::default() {
            self.store.first_policy(change, after.map, policy);
        }
    }

    /// A place makes room for another of the same file, or for none.
    fn move_place(&self, place: &QueuePlace, to: Option<QueuePlace>) -> Result<Looked> {
        let mut change = Change::new();
        change.delete(queue::key(place));
        self.add_place(&mut change, to);
        self.store.publish_in_background(change)?;
        Ok(Looked::Done)
    }

    /// Moments of the future, left by a clock that has jumped back since, become now: they would stay there otherwise.
    pub(super) fn leave_the_future(&self, ino: Ino, now: Moment) -> Result<()> {
        let inode = self.inode(ino)?;
        let mut record = inode.lock();
        let mut clamped = record.clone();
        if clamped.nlink > 0 && clamped.usage.clamp(now) {
            let mut change = Change::new();
            put_inode(&mut change, ino, &clamped);
            self.store.publish_in_background(change)?;
            *record = clamped;
        }
        Ok(())
    }

    /// A file that cannot be looked at or laid out goes to the top of its queue, so that others get their turn. On a
    /// volume that takes no changes that is an error.
    fn pass_over(&self, place: &QueuePlace, error: Error) -> Result<Looked> {
        match error {
            Error::ReadOnly(_) | Error::NoSpace => Err(error),
            Error::Stale => self.move_place(place, None),
            error => {
                log::warn!("inode {} keeps its rank until it is looked at again: {error}", place.file);
                self.move_place(place, Some(QueuePlace { touched: self.rank_clock(), ..*place }))
            }
        }
    }
}

/// What a rank is called in reports.
fn rank_name(rank: Rank) -> &'static str {
    match rank {
        Rank::New => "0 new",
        Rank::Sequential => "1 sequential",
        Rank::Random => "2 random",
        Rank::Cold => "3 cold",
    }
}
