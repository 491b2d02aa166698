//! The accounts of recently written files: how many blocks each has, how many pieces sharing added to it, and where its
//! own blocks lie.
//!
//! Owns the accounts, in bounded memory; the least recently used ones leave. Leaves to `dedup` what an account allows
//! (`FilePieces`), and to `budget` rebuilding an account from the map. Nothing is durable.
//!
//! Requests of one file are decided concurrently. So a request takes all remaining pieces, decides, and gives back the
//! unused ones: no piece is spent twice. An account that is counted anew meanwhile keeps what is taken.

use oncefs_dedup::{FilePieces, PieceCost, Slowdown};

use crate::policy::recent_maps::{PARTS, RecentMaps, part_of};
use crate::sync::{LockRank, Mutex};
use crate::{MapId, Pbn};

/// Ranges of own blocks that are kept for a file: those written last. Requests that are written at the same time get
/// adjacent places and end in any order, so their ranges join later.
const OWN_RANGES: usize = 8;
/// An account is counted anew when one block in this many was replaced since.
const REPLACED_PART: u64 = 8;

/// Where a file's own blocks lie, as far as they were written recently: the first block and the one after the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnRanges([(Pbn, Pbn); OWN_RANGES]);

impl OwnRanges {
    /// Whether the file has this block.
    pub fn contain(&self, pbn: Pbn) -> bool {
        self.0.iter().any(|(first, end)| (*first..*end).contains(&pbn))
    }

    /// Adds a range, which joins those before and after it. The least recently written one makes room.
    fn add(&mut self, first: Pbn, blocks: u64) {
        let new = (first, first.plus(blocks));
        let is_any = |range: &&(Pbn, Pbn)| range.1 > range.0;
        let joins = |range: &&(Pbn, Pbn)| range.1 == new.0 || range.0 == new.1;
        let joined = self.0.iter().filter(is_any).filter(joins);
        let joined = joined.fold(new, |all, range| (all.0.min(range.0), all.1.max(range.1)));
        let mut ranges = [(Pbn::default(), Pbn::default()); OWN_RANGES];
        ranges[0] = joined;
        let others = self.0.iter().filter(is_any).filter(|range| !joins(range));
        ranges[1..].iter_mut().zip(others).for_each(|(place, other)| *place = *other);
        self.0 = ranges;
    }
}

/// How much of a file its account counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counted {
    /// All of it.
    #[default]
    Whole,
    /// As much as the worker counts of a very long file.
    Most,
    /// What lies before the place of a write, at most 64 MiB. Of the rest nothing is known.
    Window,
    /// As `Window`, but few MiB, because the map was locked. The next write that does not lock it counts more.
    Few,
}

/// The account of a file.
#[derive(Clone, Copy, Default)]
struct Account {
    pieces: FilePieces,
    own: OwnRanges,
    counted: Counted,
    /// Pieces among `pieces` that requests under way have taken.
    taken: u64,
    /// Blocks written over others since it was counted. The pieces of the others are still among `pieces`.
    replaced: u64,
}

impl Account {
    fn set(&mut self, pieces: FilePieces, counted: Counted) {
        self.pieces = FilePieces { pieces: pieces.pieces.saturating_add(self.taken), ..pieces };
        (self.counted, self.replaced) = (counted, 0);
    }
}

/// The accounts of all files.
pub struct Accounts {
    parts: Vec<Mutex<RecentMaps<Account>>>,
}

/// Whether the spender knows the whole file, or sees its blocks as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spender {
    /// A write.
    Writer,
    /// The worker.
    Worker,
}

impl Accounts {
    /// An empty store. It has room for as many accounts as fit into this many bytes, and for at least a few in each
    /// part.
    pub fn new(bytes_max: u64) -> Self {
        let part = |number| Mutex::numbered(LockRank::Leaf, number, RecentMaps::of_part(bytes_max));
        Self { parts: (0..PARTS as u64).map(part).collect() }
    }

    /// The account of a file.
    pub fn get(&self, map: MapId) -> Option<FilePieces> {
        self.with(map, |account| account.pieces)
    }

    /// Where the file's own blocks lie, as far as known.
    pub fn own(&self, map: MapId) -> OwnRanges {
        self.with(map, |account| account.own).unwrap_or_default()
    }

    /// Begins an account, or counts it anew.
    pub fn set(&self, map: MapId, pieces: FilePieces, counted: Counted) {
        self.parts[part_of(map)].lock().get_or_default(map).set(pieces, counted);
    }

    /// How much of the file its account counts.
    pub fn counted(&self, map: MapId) -> Option<Counted> {
        self.with(map, |account| account.counted)
    }

    /// Learns that a write replaces this many blocks. True: the account counts the whole file, and so many were replaced
    /// since that counting it anew is worth it.
    pub fn note_replaced(&self, map: MapId, blocks: u64) -> bool {
        let is_outdated = self.with(map, |account| {
            account.replaced = account.replaced.saturating_add(blocks);
            account.counted == Counted::Whole && account.replaced >= account.pieces.blocks / REPLACED_PART
        });
        is_outdated.unwrap_or(false)
    }

    /// Adds blocks to a file, and then takes all of its remaining pieces. None: it has no account.
    pub fn take(&self, map: MapId, blocks: u64, slowdown: Slowdown, cost: PieceCost, who: Spender) -> Option<u64> {
        self.with(map, |account| {
            account.pieces.grow(blocks, 0);
            let left = match who {
                Spender::Writer => account.pieces.left_so_far(slowdown, cost),
                Spender::Worker => account.pieces.left(slowdown, cost),
            };
            account.pieces.grow(0, left);
            account.taken = account.taken.saturating_add(left);
            left
        })
    }

    /// Of `taken` pieces that were taken, `spent` are in the file now. The others return, unless the account left memory
    /// meanwhile: the one in its place does not know of them.
    pub fn settle(&self, map: MapId, taken: u64, spent: u64) {
        assert!(spent <= taken, "{spent} pieces are spent of {taken}");
        self.with(map, |account| {
            let known = account.taken.min(taken);
            account.taken -= known;
            account.pieces.pieces = account.pieces.pieces.saturating_sub(known.saturating_sub(spent));
        });
    }

    /// What a request added to the account is not in the file after all. If the account was counted anew meanwhile, it
    /// lacks as much until it is counted the next time.
    pub fn give_back(&self, map: MapId, added: FilePieces) {
        self.with(map, |account| {
            account.pieces.blocks = account.pieces.blocks.saturating_sub(added.blocks);
            // What others have taken is not given back.
            account.pieces.pieces = account.pieces.pieces.saturating_sub(added.pieces).max(account.taken);
        });
    }

    /// Learns that a file got this many more blocks, and owns these ranges of the data area. False: it has no account.
    pub fn note_written(&self, map: MapId, blocks: u64, own: &[(Pbn, u64)]) -> bool {
        let noted = self.with(map, |account| {
            account.pieces.grow(blocks, 0);
            own.iter().for_each(|(first, blocks)| account.own.add(*first, *blocks));
        });
        noted.is_some()
    }

    /// Learns that a file changed other than by writes: its account is rebuilt when it is next needed.
    pub fn forget(&self, map: MapId) {
        self.parts[part_of(map)].lock().forget(map);
    }

    fn with<T>(&self, map: MapId, work: impl FnOnce(&mut Account) -> T) -> Option<T> {
        self.parts[part_of(map)].lock().get(map).map(work)
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;
    use crate::policy::recent_maps::Place;

    const HALF: (Slowdown, PieceCost) = (Slowdown(50), PieceCost::EXPECTED);

    fn take(accounts: &Accounts, map: u64, blocks: u64) -> Option<u64> {
        accounts.take(MapId(map), blocks, HALF.0, HALF.1, Spender::Writer)
    }

    #[test]
    fn what_is_taken_is_gone_until_it_is_given_back() {
        let accounts = Accounts::new(64 << 10);
        assert_eq!(take(&accounts, 1, 100), None);
        accounts.set(MapId(1), FilePieces::default(), Counted::Whole);
        assert_eq!(take(&accounts, 1, 99), Some(50));
        assert_eq!(take(&accounts, 1, 10), Some(5), "another request at the same time has what its blocks pay for");
        accounts.settle(MapId(1), 50, 30);
        assert_eq!(take(&accounts, 1, 0), Some(20));
        assert!(accounts.note_written(MapId(1), 90, &[]) && !accounts.note_written(MapId(2), 90, &[]));
        assert_eq!(accounts.get(MapId(1)), Some(FilePieces { blocks: 199, pieces: 55 }));
        accounts.forget(MapId(1));
        assert_eq!(accounts.get(MapId(1)), None);
    }

    #[test]
    fn what_is_taken_stays_taken_when_the_account_is_counted_anew() {
        let accounts = Accounts::new(64 << 10);
        accounts.set(MapId(1), FilePieces::default(), Counted::Whole);
        assert_eq!(take(&accounts, 1, 99), Some(50));
        accounts.set(MapId(1), FilePieces { blocks: 199, pieces: 10 }, Counted::Whole);
        assert_eq!(take(&accounts, 1, 0), Some(40), "100, less 10 and the 50 under way");
        accounts.settle(MapId(1), 50, 20);
        assert_eq!(accounts.get(MapId(1)), Some(FilePieces { blocks: 199, pieces: 70 }));
        accounts.forget(MapId(1));
        accounts.set(MapId(1), FilePieces { blocks: 199, pieces: 10 }, Counted::Window);
        accounts.settle(MapId(1), 40, 0);
        let known = (accounts.get(MapId(1)), accounts.counted(MapId(1)));
        assert_eq!(known, (Some(FilePieces { blocks: 199, pieces: 10 }), Some(Counted::Window)), "it knows of none");
    }

    #[test]
    fn an_account_is_outdated_once_an_eighth_of_its_blocks_was_replaced() {
        let accounts = Accounts::new(64 << 10);
        assert!(!accounts.note_replaced(MapId(1), 100), "there is none");
        accounts.set(MapId(1), FilePieces { blocks: 800, pieces: 0 }, Counted::Whole);
        assert!(!accounts.note_replaced(MapId(1), 99) && accounts.note_replaced(MapId(1), 1));
        accounts.set(MapId(1), FilePieces { blocks: 800, pieces: 0 }, Counted::Whole);
        assert!(!accounts.note_replaced(MapId(1), 1), "it was counted anew");
        accounts.set(MapId(1), FilePieces { blocks: 800, pieces: 0 }, Counted::Window);
        assert!(!accounts.note_replaced(MapId(1), 800), "the window may lie elsewhere");
    }

    #[test]
    fn own_blocks_are_known_where_they_were_written_last() {
        let accounts = Accounts::new(64 << 10);
        accounts.set(MapId(1), FilePieces::default(), Counted::Whole);
        let note = |first: u64| assert!(accounts.note_written(MapId(1), 10, &[(Pbn(first), 10)]));
        (0..100).for_each(|n| note(1_000 + 10 * n));
        [10, 30, 50].into_iter().for_each(note);
        let own = accounts.own(MapId(1));
        assert!([1_000, 1_999, 10, 19, 59].iter().all(|pbn| own.contain(Pbn(*pbn))));
        assert!([0, 999, 2_000, 20, 60].iter().all(|pbn| !own.contain(Pbn(*pbn))));
        (0..OWN_RANGES as u64 - 3).for_each(|n| note(70 + 20 * n));
        assert!(!accounts.own(MapId(1)).contain(Pbn(1_000)), "the oldest range left");
        assert!(accounts.own(MapId(1)).contain(Pbn(10)));
        accounts.set(MapId(1), FilePieces::default(), Counted::Whole);
        assert!(accounts.own(MapId(1)).contain(Pbn(70)), "a new account is of the same file");
    }

    #[test]
    fn adjacent_places_of_requests_that_end_in_any_order_become_one_range() {
        let mut own = OwnRanges::default();
        for n in (0..1_000_u64).map(|n| n ^ 3) {
            own.add(Pbn(10 * n + 10), 10);
        }
        assert_eq!(own.0[0], (Pbn(10), Pbn(10_010)));
        assert_eq!(own.0[1..], [(Pbn(0), Pbn(0)); OWN_RANGES - 1]);
    }

    #[test]
    fn memory_is_bounded_and_those_asked_for_least_lately_leave() {
        let accounts = Accounts::new(64 << 10);
        let places: usize = accounts.parts.iter().map(|part| part.lock().places()).sum();
        assert!(places * size_of::<Place<Account>>() <= 64 << 10 && places >= 256, "{places} places");
        for map in 1..=50_000 {
            accounts.set(MapId(map), FilePieces { blocks: map, pieces: 0 }, Counted::Whole);
            assert_eq!(accounts.get(MapId(1)).map(|pieces| pieces.blocks), Some(1));
        }
        let known = (1..=50_000).filter(|map| accounts.get(MapId(*map)).is_some()).count();
        assert!(known <= places && known >= places / 2, "{known} of {places}");
    }
}
