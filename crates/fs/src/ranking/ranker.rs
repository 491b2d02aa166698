//! Ranking (Selective, section 4.2): gives files their ranks in the background, and prepares files for them.
//!
//! Owns the order of the work, in bounded turns that the engine's worker calls while it is idle. `dedup` decides what
//! is due at the tail of a queue (`look_at`), `usage` observes how a file is used, and the engine deduplicates its
//! blocks.
//!
//! Numbered invariants:
//! 1. Inode and engine agree on a file's rank and on whether it is update-heavy: both change in one publication.
//! 2. A regular file below `known_below` that has a name and is not cold has a place in the queue of its rank. A place
//!    is removed in the publication that gives the file another one, or once the file is gone or cold, or has no name.
//!    The first name of a file brings a place with it. A file may have several places, or one that is out of date.
//! 3. Whether a file needs its last place is decided with its inode locked, because at that moment the file may get a
//!    name, or be read and stop being cold.
//!
//! Every step is one publication, durable with its group. A crash before that leaves the file with its old rank and its
//! old place, and a later turn looks at it again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use oncefs_engine::{
    AtTail, Blocks, Change, DefragOptions, DefragOutcome, FilePolicy, Lbn, Moment, QueuePlace, Rank, RankReport, Usage,
    look_at,
};

use crate::format::inode::{self, InodeRecord, put_inode};
use crate::format::queue;
use crate::ranking::state::PendingDefrag;
use crate::{Error, FileKind, FileSystem, Ino, Result, Space};

/// Blocks of a file defragmented in one turn, about 16 MiB.
const WINDOW: Blocks = Blocks(4_096);
/// Defragmentation for ranks leaves one in this many blocks of the data area free.
const FREE_SHARE: u64 = 4;
/// Most places looked at in one turn.
const PLACES_MAX: usize = 64;

/// The outcome of looking at a place.
pub(super) enum Looked {
    /// It is not due, and neither are those after it.
    Waits,
    /// It was corrected, or its file got a rank.
    Done,
    /// Its file must be defragmented first.
    NeedsDefrag,
}

impl FileSystem {
    /// Makes the engine's worker rank files while it is idle.
    pub(crate) fn rank_in_background(file_system: &Arc<Self>) {
        let ranker = Arc::downgrade(file_system);
        file_system.store.rank_by(Box::new(move || match ranker.upgrade() {
            Some(file_system) if !file_system.closing.load(Relaxed) => Ok(file_system.rank_some()?),
            _ => Ok(None),
        }));
    }

    /// Waits for the current turn and saves how many files have which rank. If that fails, the counts are approximate
    /// after the next mount.
    pub(crate) fn stop_ranking(&self) {
        let _turn = self.ranker.begin_turn();
        if !self.read_only
            && let Err(error) = self.save_ranking()
        {
            log::debug!("cannot save how many files have which rank: {error}");
        }
    }

    /// Files by rank, for `oncefs stats`.
    pub(crate) fn rank_report(&self) -> BTreeMap<String, RankReport> {
        if !self.store.ranks_files() {
            return BTreeMap::new();
        }
        let files = self.ranker.queues().ranking().files;
        let report = |rank: Rank| RankReport {
            files: files[usize::from(rank.number())],
            ranked: self.ranker.ranked(rank),
            waits_seconds: self.waits_seconds(rank),
        };
        Rank::ALL.into_iter().map(|rank| (rank_name(rank).to_owned(), report(rank))).collect()
    }

    /// One turn: defragments a part of a file, gives some files their first place, or looks at some places. Returns how
    /// many blocks were written; None: nothing is due.
    pub(crate) fn rank_some(&self) -> Result<Option<u64>> {
        if !self.store.ranks_files() {
            return Ok(None);
        }
        let mut turn = self.ranker.begin_turn();
        if let Some(pending) = turn.take() {
            let (blocks, rest) = self.defrag_for_rank_1(pending)?;
            *turn = rest;
            return Ok(Some(blocks));
        }
        if self.add_first_places()? {
            return Ok(Some(0));
        }
        // Cold files first, then those to be judged.
        for rank in [Rank::Sequential, Rank::Random, Rank::New] {
            let (is_done, pending) = self.look_at_queue(rank)?;
            if is_done {
                *turn = pending;
                return Ok(Some(0));
            }
        }
        self.save_ranking()?;
        Ok(None)
    }

    /// Looks at places of one queue until one waits. Returns whether anything was done, and a file to defragment.
    fn look_at_queue(&self, rank: Rank) -> Result<(bool, Option<PendingDefrag>)> {
        let mut is_done = false;
        for place in self.places_due(rank, self.rank_clock(), PLACES_MAX)? {
            debug_assert_eq!(place.rank, rank, "inode {}: its place is in another queue", place.file);
            let looked = self.look_at_place(&place).or_else(|error| self.postpone(&place, error))?;
            match looked {
                Looked::Waits => break,
                Looked::Done => is_done = true,
                Looked::NeedsDefrag => return Ok((true, Some(PendingDefrag { place, from: Lbn(0) }))),
            }
        }
        Ok((is_done, None))
    }

    fn look_at_place(&self, place: &QueuePlace) -> Result<Looked> {
        let (ino, now) = (Ino(place.file), self.rank_clock());
        let usage = self.usage_known(ino)?;
        match look_at(place, usage.as_ref(), &self.store.rank_rule(), now) {
            AtTail::Wait { .. } => Ok(Looked::Waits),
            AtTail::Drop => self.drop_place(place),
            AtTail::Move(to) => {
                if usage.is_some_and(|mut usage| usage.clamp(now)) {
                    self.leave_the_future(ino, now)?;
                }
                self.move_place(place, Some(to))
            }
            AtTail::Rank(Rank::Sequential) if self.run_blocks_min_of_rank_1(ino)?.is_some() => Ok(Looked::NeedsDefrag),
            AtTail::Rank(rank) => self.give_rank(place, rank, now),
        }
    }

    /// The usage of a regular file, including reads not published yet. Bypasses the inode cache, which is for inodes in
    /// use. None: there is no such file, or it has no name.
    fn usage_known(&self, ino: Ino) -> Result<Option<Usage>> {
        let bytes = self.store.get(&inode::key(ino))?;
        let record = bytes.map(|bytes| InodeRecord::decode(ino, &bytes)).transpose()?;
        let file = record.filter(|record| record.kind == FileKind::Regular && record.nlink > 0);
        Ok(file.map(|file| {
            let mut usage = file.usage;
            self.monitor.add_noted(ino, &mut usage);
            usage
        }))
    }

    /// The shortest run, in blocks, that needs no defragmentation before the file gets rank 1. None: the file needs
    /// none, because its policy leaves it alone at any rank or shares every block.
    fn run_blocks_min_of_rank_1(&self, ino: Ino) -> Result<Option<u32>> {
        let map = self.inode(ino)?.lock().map;
        let policy = FilePolicy { rank: Rank::Sequential, is_update_heavy: false, ..self.store.file_policy(map) };
        let (effective_policy, _) = self.store.effective_policy_of(policy);
        let run_blocks_min = self.store.shortest_run(effective_policy.limit);
        Ok((effective_policy.is_later && run_blocks_min > 1).then_some(run_blocks_min))
    }

    /// Defragments the next window of a file: rewrites runs too short to be shared at rank 1. After the last window the
    /// file gets its rank. A file whose usage changed meanwhile keeps the rank that it has. Returns the number of
    /// written blocks, and the remaining work.
    fn defrag_for_rank_1(&self, pending: PendingDefrag) -> Result<(u64, Option<PendingDefrag>)> {
        let PendingDefrag { place, from } = pending;
        let now = self.rank_clock();
        let usage = self.usage_known(Ino(place.file))?;
        if look_at(&place, usage.as_ref(), &self.store.rank_rule(), now) != AtTail::Rank(Rank::Sequential) {
            return Ok((0, None));
        }
        let options = DefragOptions {
            from,
            run_blocks_min: self.run_blocks_min_of_rank_1(Ino(place.file))?,
            space: self.space_for_defrag(),
            window: Some(WINDOW),
            dry_run: false,
            gives_way: true,
        };
        match self.defrag(Ino(place.file), &options) {
            Ok(DefragOutcome { blocks_moved, next: Some(next), .. }) => {
                debug_assert!(next >= from.0, "inode {}: went back from block {} to {next}", place.file, from.0);
                Ok((blocks_moved, Some(PendingDefrag { place, from: Lbn(next) })))
            }
            Ok(outcome) => {
                let given = self.give_rank(&place, Rank::Sequential, now);
                given.or_else(|error| self.postpone(&place, error)).map(|_| (outcome.blocks_moved, None))
            }
            Err(error) => self.postpone(&place, error).map(|_| (0, None)),
        }
    }

    /// Blocks that defragmentation may take. The rest of the free space is for programs: reading a file in sequence
    /// must not fill the volume.
    fn space_for_defrag(&self) -> Blocks {
        let Space { total, available } = self.statfs();
        Blocks(available.saturating_sub(total / FREE_SHARE))
    }

    /// Gives a file a rank and the matching place, if its usage still justifies the rank.
    pub(super) fn give_rank(&self, place: &QueuePlace, rank: Rank, now: Moment) -> Result<Looked> {
        let inode = self.inode(Ino(place.file))?;
        let mut record = inode.lock();
        // An orphan may be deleted at any moment, and publishing its inode would bring it back.
        if record.nlink == 0 {
            return self.move_place(place, None);
        }
        let mut usage = record.usage;
        self.monitor.add_noted(inode.ino, &mut usage);
        if look_at(place, Some(&usage), &self.store.rank_rule(), now) != AtTail::Rank(rank) {
            // The file was used meanwhile: the next look decides again.
            return Ok(Looked::Done);
        }
        let mut ranked = record.clone();
        self.monitor.publish_along(inode.ino, &mut ranked.usage);
        ranked.usage.clamp(now);
        ranked.usage.ranked(rank);
        debug_assert_eq!(ranked.usage.rank(), rank, "inode {} did not take its rank", place.file);
        let mut change = Change::new();
        put_inode(&mut change, inode.ino, &ranked);
        change.delete(queue::key(place));
        if !ranked.is_ranked_as(&record) {
            self.follow_use(&mut change, inode.ino, &record, &ranked);
        }
        self.add_ranking(&mut change);
        self.store.publish_in_background(change)?;
        *record = ranked;
        self.ranker.count_ranked(rank);
        Ok(Looked::Done)
    }

    /// Removes a place that its file did not need when the ranker looked, unless the file needs one by now.
    pub(super) fn drop_place(&self, place: &QueuePlace) -> Result<Looked> {
        let inode = match self.inode(Ino(place.file)) {
            Err(Error::Stale) => return self.move_place(place, None),
            found => found?,
        };
        let record = inode.lock();
        let needs_place =
            record.kind == FileKind::Regular && record.nlink > 0 && QueuePlace::of(&record.usage, place.file).is_some();
        // Otherwise it was named or read meanwhile: the next look decides again.
        if needs_place { Ok(Looked::Done) } else { self.move_place(place, None) }
    }

    /// Replaces a place by another of the same file, or removes it.
    fn move_place(&self, place: &QueuePlace, to: Option<QueuePlace>) -> Result<Looked> {
        debug_assert!(to.is_none_or(|to| to.file == place.file), "inode {}: place of inode {to:?}", place.file);
        let mut change = Change::new();
        change.delete(queue::key(place));
        self.add_place(&mut change, to);
        self.store.publish_in_background(change)?;
        Ok(Looked::Done)
    }

    /// Sets moments of a file that lie in the future to now. A clock that jumped back left them, and the file would not
    /// be due until then.
    pub(super) fn leave_the_future(&self, ino: Ino, now: Moment) -> Result<()> {
        let inode = self.inode(ino)?;
        let mut record = inode.lock();
        let mut clamped = record.clone();
        if clamped.nlink > 0 && clamped.usage.clamp(now) {
            debug_assert!(clamped.usage.last_access() <= now, "inode {} is still in the future of {}", ino.0, now.0);
            let mut change = Change::new();
            put_inode(&mut change, ino, &clamped);
            self.store.publish_in_background(change)?;
            *record = clamped;
        }
        Ok(())
    }

    /// Moves a file that cannot be ranked or defragmented to the top of its queue, so that others get their turn. Fails
    /// with `error` on a volume that takes no changes.
    fn postpone(&self, place: &QueuePlace, error: Error) -> Result<Looked> {
        match error {
            Error::ReadOnly(_) | Error::NoSpace => Err(error),
            Error::Stale => self.move_place(place, None),
            error => {
                log::warn!("cannot rank inode {}, which keeps its rank until the next try: {error}", place.file);
                self.move_place(place, Some(QueuePlace { touched: self.rank_clock(), ..*place }))
            }
        }
    }
}

/// The name of a rank in reports.
fn rank_name(rank: Rank) -> &'static str {
    match rank {
        Rank::New => "0 new",
        Rank::Sequential => "1 sequential",
        Rank::Random => "2 random",
        Rank::Cold => "3 cold",
    }
}
