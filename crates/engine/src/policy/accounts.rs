//! The accounts of recently written files: how many blocks each has, how many pieces sharing added to it, and where its
//! own blocks lie.
//!
//! Owns the accounts, in bounded memory; the least recently used ones leave. Leaves to `dedup` what an account allows
//! (`FilePieces`), and to `budget` rebuilding an account from the map. Nothing is durable.
//!
//! Requests of one file are decided concurrently. So a request takes all remaining pieces, decides, and gives back the
//! unused ones: no piece is spent twice.

use oncefs_dedup::{FilePieces, PieceCost, Slowdown};

use crate::policy::recent_maps::{PARTS, RecentMaps, part_of};
use crate::sync::{LockRank, Mutex};
use crate::{MapId, Pbn};

/// Ranges of own blocks that are kept for a file: those written last.
const OWN_RANGES: usize = 4;

/// Where a file's own blocks lie, as far as they were written recently: the first block and the one after the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnRanges([(Pbn, Pbn); OWN_RANGES]);

impl OwnRanges {
    /// Whether the file has this block.
    pub fn contain(&self, pbn: Pbn) -> bool {
        self.0.iter().any(|(first, end)| (*first..*end).contains(&pbn))
    }

    fn add(&mut self, first: Pbn, blocks: u64) {
        let end = first.plus(blocks);
        match self.0.iter().position(|range| range.1 == first && range.1 > range.0) {
            Some(at) => {
                self.0[at].1 = end;
                self.0[..=at].rotate_right(1);
            }
            None => {
                self.0.rotate_right(1);
                self.0[0] = (first, end);
            }
        }
    }
}

/// The account of a file.
#[derive(Clone, Copy, Default)]
struct Account {
    pieces: FilePieces,
    own: OwnRanges,
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

    /// Begins an account, or replaces it.
    pub fn set(&self, map: MapId, pieces: FilePieces) {
        self.parts[part_of(map)].lock().get_or_default(map).pieces = pieces;
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
            left
        })
    }

    /// Returns pieces that were taken.
    pub fn give_back(&self, map: MapId, pieces: u64) {
        self.with(map, |account| account.pieces.pieces = account.pieces.pieces.saturating_sub(pieces));
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
        accounts.set(MapId(1), FilePieces::default());
        assert_eq!(take(&accounts, 1, 99), Some(50));
        assert_eq!(take(&accounts, 1, 10), Some(5), "another request at the same time has what its blocks pay for");
        accounts.give_back(MapId(1), 20);
        assert_eq!(take(&accounts, 1, 0), Some(20));
        assert!(accounts.note_written(MapId(1), 90, &[]) && !accounts.note_written(MapId(2), 90, &[]));
        assert_eq!(accounts.get(MapId(1)), Some(FilePieces { blocks: 199, pieces: 55 }));
        accounts.forget(MapId(1));
        assert_eq!(accounts.get(MapId(1)), None);
    }

    #[test]
    fn own_blocks_are_known_where_they_were_written_last() {
        let accounts = Accounts::new(64 << 10);
        accounts.set(MapId(1), FilePieces::default());
        let note = |first: u64| assert!(accounts.note_written(MapId(1), 10, &[(Pbn(first), 10)]));
        (0..100).for_each(|n| note(1_000 + 10 * n));
        [10, 30, 50].into_iter().for_each(note);
        let own = accounts.own(MapId(1));
        assert!([1_000, 1_999, 10, 19, 59].iter().all(|pbn| own.contain(Pbn(*pbn))));
        assert!([0, 999, 2_000, 20, 60].iter().all(|pbn| !own.contain(Pbn(*pbn))));
        note(70);
        assert!(!accounts.own(MapId(1)).contain(Pbn(1_000)), "the oldest range left");
        accounts.set(MapId(1), FilePieces::default());
        assert!(accounts.own(MapId(1)).contain(Pbn(70)), "a new account is of the same file");
    }

    #[test]
    fn memory_is_bounded_and_those_asked_for_least_lately_leave() {
        let accounts = Accounts::new(64 << 10);
        let places: usize = accounts.parts.iter().map(|part| part.lock().places()).sum();
        assert!(places * size_of::<Place<Account>>() <= 64 << 10 && places >= 256, "{places} places");
        for map in 1..=50_000 {
            accounts.set(MapId(map), FilePieces { blocks: map, pieces: 0 });
            assert_eq!(accounts.get(MapId(1)).map(|pieces| pieces.blocks), Some(1));
        }
        let known = (1..=50_000).filter(|map| accounts.get(MapId(*map)).is_some()).count();
        assert!(known <= places && known >= places / 2, "{known} of {places}");
    }
}
