//! The rank queues as records of the store: which files they know, what stands at a tail, and what `oncefs stats` says
//! of them. A queue takes no memory, however long it is.

use oncefs_engine::{Change, Moment, QueuePlace, Rank, Store, Usage};
use parking_lot::Mutex;

use crate::format::inode::InodeRecord;
use crate::format::ranking::Ranking;
use crate::format::{inode, queue, ranking};
use crate::{FileKind, FileSystem, Ino, Result};

/// Inodes that the queues get to know in one turn, at most.
const INODES_MAX: usize = 256;
/// Who adds a place publishes it within this time.
const ON_THE_WAY_SECONDS_MAX: u32 = 60;
/// Queues 0, 1 and 2.
const QUEUES: usize = 3;

/// What a mount knows of the queues.
#[derive(Default)]
pub(crate) struct Queues {
    known: Mutex<Known>,
    /// No place of a queue, moment and file, comes earlier: what was there before is gone, and would have to be passed
    /// over each time.
    oldest: [Mutex<(Moment, u64)>; QUEUES],
}

#[derive(Default)]
struct Known {
    ranking: Ranking,
    /// Whether the record says something else.
    has_changed: bool,
}

impl Queues {
    /// What the volume's record says. One that is damaged is as none: files get another place then, and theirs merge.
    pub(crate) fn open(store: &Store) -> Result<Self> {
        let bytes = store.get(ranking::KEY)?;
        let ranking = bytes.and_then(|bytes| {
            let decoded = ranking::decode(&bytes);
            decoded.inspect_err(|error| log::warn!("all files are put into the rank queues again: {error}")).ok()
        });
        let known = Known { ranking: ranking.unwrap_or_default(), has_changed: false };
        Ok(Self { known: Mutex::new(known), ..Self::default() })
    }

    /// A file left one rank for another.
    pub(crate) fn count_moved(&self, ino: Ino, from: Rank, to: Rank) {
        self.count(ino, |files| {
            let (from, to) = (usize::from(from.number()), usize::from(to.number()));
            files[from] = files[from].saturating_sub(1);
            files[to] = files[to].saturating_add(1);
        });
    }

    /// A file is gone.
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

    /// Which files the queues know.
    pub(crate) fn ranking(&self) -> Ranking {
        self.known.lock().ranking
    }
}

impl FileSystem {
    /// Adds a file's place to a change.
    pub(crate) fn add_place(&self, change: &mut Change, place: Option<QueuePlace>) {
        if let Some(place) = place {
            change.put(queue::key(&place), queue::encode(Ino(place.file)));
            let mut oldest = self.ranker.queues.oldest[queue_of(place.rank)].lock();
            *oldest = (*oldest).min((place.touched, place.file));
        }
    }

    /// Gives some files a place that were created since the last time, or were there before anybody ranked them. False:
    /// the queues know all, or more are being created just now.
    ///
    /// So creating a file writes nothing for the queues, and one that is soon deleted never has a place.
    pub(super) fn let_queues_know(&self) -> Result<bool> {
        let from = self.ranker.queues.ranking().known_below;
        let Some(end) = self.numbers.made_below().filter(|end| from < *end) else { return Ok(false) };
        let page = self.store.scan(&inode::key(from), &inode::key(end), INODES_MAX)?;
        let last = page.last().and_then(|(key, _)| inode::ino_of_key(key)).filter(|_| page.len() == INODES_MAX);
        let mut found = Ranking { known_below: last.map_or(end, |Ino(last)| Ino(last + 1)), ..Ranking::default() };
        let (mut change, now) = (Change::new(), self.rank_clock());
        for (key, value) in &page {
            let Some(ino) = inode::ino_of_key(key) else { continue };
            // What cannot be read is fsck's, and found there.
            let Ok(record) = InodeRecord::decode(ino, value) else { continue };
            if record.kind == FileKind::Regular {
                found.files[usize::from(record.usage.rank().number())] += 1;
                self.add_place(&mut change, first_place(&record.usage, ino, now));
            }
        }
        let ranking = self.ranker.queues.ranking().with(&found);
        change.put(ranking::KEY.to_vec(), ranking::encode(&ranking));
        self.store.publish_in_background(change)?;
        let mut known = self.ranker.queues.known.lock();
        known.ranking = known.ranking.with(&found);
        known.has_changed = known.ranking != ranking;
        Ok(true)
    }

    /// Writes down how many files have which rank, if that is not what the record says.
    pub(crate) fn save_ranking(&self) -> Result<()> {
        let mut change = Change::new();
        if self.add_ranking(&mut change) {
            self.store.publish_in_background(change)?;
        }
        Ok(())
    }

    /// Adds to a change how many files have which rank. False: the record says so already.
    pub(super) fn add_ranking(&self, change: &mut Change) -> bool {
        let mut known = self.ranker.queues.known.lock();
        let has_changed = std::mem::take(&mut known.has_changed);
        if has_changed {
            change.put(ranking::KEY.to_vec(), ranking::encode(&known.ranking));
        }
        has_changed
    }

    /// Places of one queue that may be due: some that lie in the future, where a clock that jumped back left them, and
    /// the oldest.
    pub(super) fn places_due(&self, rank: Rank, now: Moment, limit: usize) -> Result<Vec<QueuePlace>> {
        let mut places = self.places_from(rank, (now.plus_seconds(1), 0), limit)?;
        let oldest = &self.ranker.queues.oldest[queue_of(rank)];
        let from = *oldest.lock();
        let tail = self.places_from(rank, from, limit)?;
        let first = tail.first().map_or((now, 0), |first| (first.touched, first.file));
        // A place that is still on its way to its publication was taken within the time that is kept back here.
        let published = Moment(now.0.saturating_sub(ON_THE_WAY_SECONDS_MAX));
        let mut oldest = oldest.lock();
        // Where a place was added meanwhile that is older, that one counts.
        if *oldest == from {
            *oldest = first.min((published, 0));
        }
        places.extend(tail.into_iter().filter(|place| place.touched <= now));
        Ok(places)
    }

    /// How long ago the oldest place of a queue was taken. None: it is empty, or there is no such queue.
    pub(super) fn waits_seconds(&self, rank: Rank) -> Option<u64> {
        if rank == Rank::Cold {
            return None;
        }
        let from = *self.ranker.queues.oldest[queue_of(rank)].lock();
        let oldest = self.places_from(rank, from, 1).ok()?;
        oldest.first().map(|place| u64::from(self.rank_clock().seconds_since(place.touched)))
    }

    fn places_from(&self, rank: Rank, (touched, file): (Moment, u64), limit: usize) -> Result<Vec<QueuePlace>> {
        let (_, to) = queue::range(rank, touched);
        let page = self.store.scan(&queue::key(&QueuePlace { rank, touched, file }), &to, limit)?;
        Ok(page.iter().filter_map(|(key, _)| queue::parse_key(key)).collect())
    }
}

/// The place of a file that had none: one that is to be judged is due as long after its last write as any other. One of
/// which nothing is known is as old as anybody can tell: who uses it has as long to show that.
fn first_place(usage: &Usage, ino: Ino, now: Moment) -> Option<QueuePlace> {
    let place = QueuePlace::of(usage, ino.0)?;
    let touched = match place.rank {
        Rank::New if *usage == Usage::default() => now,
        Rank::New => usage.last_write(),
        _ => place.touched,
    };
    Some(QueuePlace { touched, ..place })
}

/// Where a queue stands among the queues.
fn queue_of(rank: Rank) -> usize {
    usize::from(rank.number()).min(QUEUES - 1)
}
