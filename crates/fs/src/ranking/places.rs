//! The places of files in the rank queues: records of the store, keyed by rank, moment and file.

use oncefs_engine::{Change, Moment, QueuePlace, Rank, Usage};

use crate::format::inode::InodeRecord;
use crate::format::ranking::Ranking;
use crate::format::{inode, queue, ranking};
use crate::{FileKind, FileSystem, Ino, Result};

/// Most inodes that get their first place in one turn.
const INODES_MAX: usize = 256;
/// A place is published within this time after its moment was taken.
const PUBLISH_SECONDS_MAX: u32 = 60;

impl FileSystem {
    /// Adds a file's place to a change.
    pub(crate) fn add_place(&self, change: &mut Change, place: Option<QueuePlace>) {
        if let Some(place) = place {
            change.put(queue::key(&place), queue::encode(Ino(place.file)));
            self.ranker.queues().include(&place);
        }
    }

    /// Gives a first place to files created since the last call, or before the volume was ranked. False: every file has
    /// had one, or files are being created at this moment.
    ///
    /// So creating a file writes nothing for the queues, and a file deleted soon after never has a place.
    pub(super) fn add_first_places(&self) -> Result<bool> {
        let from = self.ranker.queues().ranking().known_below;
        let Some(end) = self.numbers.made_below().filter(|end| from < *end) else { return Ok(false) };
        let page = self.store.scan(&inode::key(from), &inode::key(end), INODES_MAX)?;
        assert!(page.len() <= INODES_MAX, "asked for {INODES_MAX} inodes and got {}", page.len());
        let last = page.last().and_then(|(key, _)| inode::ino_of_key(key)).filter(|_| page.len() == INODES_MAX);
        let mut found = Ranking { known_below: last.map_or(end, |Ino(last)| Ino(last + 1)), ..Ranking::default() };
        let (mut change, now) = (Change::new(), self.rank_clock());
        for (key, value) in &page {
            let Some(ino) = inode::ino_of_key(key) else { continue };
            // A damaged inode is left to fsck.
            let Ok(record) = InodeRecord::decode(ino, value) else { continue };
            if record.kind == FileKind::Regular {
                found.files[usize::from(record.usage.rank().number())] += 1;
                self.add_place(&mut change, first_place(&record.usage, ino, now));
            }
        }
        let published = self.ranker.queues().ranking().with(&found);
        change.put(ranking::KEY.to_vec(), ranking::encode(&published));
        self.store.publish_in_background(change)?;
        self.ranker.queues().extend(&found, &published);
        Ok(true)
    }

    /// Adds a place to the change that gives a file its first name, if the queues know the file. Its earlier place may
    /// have been dropped while it had no name. The caller holds the inode's lock, so no place is dropped meanwhile. The
    /// place begins now, because a place in the past might be overlooked until the next mount
    /// ([`PUBLISH_SECONDS_MAX`]).
    ///
    /// If the queues learn of the file at this moment, that gives it a place.
    pub(crate) fn add_place_of_named(&self, change: &mut Change, ino: Ino, usage: &Usage) {
        if ino < self.ranker.queues().ranking().known_below {
            let place = QueuePlace::of(usage, ino.0);
            self.add_place(change, place.map(|place| QueuePlace { touched: self.rank_clock(), ..place }));
        }
    }

    /// Publishes the ranking record if it is out of date.
    pub(crate) fn save_ranking(&self) -> Result<()> {
        let mut change = Change::new();
        if self.add_ranking(&mut change) {
            self.store.publish_in_background(change)?;
        }
        Ok(())
    }

    /// Adds the ranking record to a change. False: the stored one is up to date.
    pub(super) fn add_ranking(&self, change: &mut Change) -> bool {
        let changed = self.ranker.queues().take_changed();
        if let Some(ranking) = &changed {
            change.put(ranking::KEY.to_vec(), ranking::encode(ranking));
        }
        changed.is_some()
    }

    /// Places of one queue that may be due: up to `limit` with a moment in the future, left by a clock that jumped
    /// back, and up to `limit` of the oldest.
    pub(super) fn places_due(&self, rank: Rank, now: Moment, limit: usize) -> Result<Vec<QueuePlace>> {
        let mut places = self.places_from(rank, (now.plus_seconds(1), 0), limit)?;
        let from = self.ranker.queues().oldest(rank);
        let tail = self.places_from(rank, from, limit)?;
        debug_assert!(tail.is_sorted(), "a scan of {} places of rank {} is not in order", tail.len(), rank.number());
        let first = tail.first().map_or((now, 0), |first| (first.touched, first.file));
        // A place that is not published yet took its moment after this one.
        let published = Moment(now.0.saturating_sub(PUBLISH_SECONDS_MAX));
        self.ranker.queues().raise_oldest(rank, from, first.min((published, 0)));
        places.extend(tail.into_iter().filter(|place| place.touched <= now));
        Ok(places)
    }

    /// The age of a queue's oldest place. None: the queue is empty, or the rank has no queue.
    pub(super) fn waits_seconds(&self, rank: Rank) -> Option<u64> {
        if rank == Rank::Cold {
            return None;
        }
        let from = self.ranker.queues().oldest(rank);
        let oldest = self.places_from(rank, from, 1).ok()?;
        oldest.first().map(|place| u64::from(self.rank_clock().seconds_since(place.touched)))
    }

    fn places_from(&self, rank: Rank, (touched, file): (Moment, u64), limit: usize) -> Result<Vec<QueuePlace>> {
        let (_, to) = queue::range(rank, touched);
        let page = self.store.scan(&queue::key(&QueuePlace { rank, touched, file }), &to, limit)?;
        Ok(page.iter().filter_map(|(key, _)| queue::parse_key(key)).collect())
    }
}

/// The first place of a file. A file without a rank is due as long after its last write as any other. A file without
/// known usage starts now, so that its use can be observed first.
fn first_place(usage: &Usage, ino: Ino, now: Moment) -> Option<QueuePlace> {
    let place = QueuePlace::of(usage, ino.0)?;
    assert!(place.rank != Rank::Cold, "cold inode {} got a place", ino.0);
    let touched = match place.rank {
        Rank::New if *usage == Usage::default() => now,
        Rank::New => usage.last_write(),
        _ => place.touched,
    };
    Some(QueuePlace { touched, ..place })
}
