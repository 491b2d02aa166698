//! The accounts of the files written lately: how many blocks each has, how many pieces sharing added to it, and where its
//! own blocks lie.
//!
//! Owns the accounts, in bounded memory; those asked for least lately leave. Leaves to `dedup` what an account allows
//! (`FilePieces`), and to `budget` to make one anew from the map. Nothing is durable.
//!
//! Requests of one file are decided at the same time. So a request takes all pieces that are left, decides, and gives back
//! what it did not use: no piece is spent twice.

use oncefs_dedup::{FilePieces, PieceCost, Slowdown};

use crate::sync::{LockRank, Mutex};
use crate::{MapId, Pbn};

/// Parts with a lock of their own.
const PARTS: usize = 16;
/// Maps that share a set, in which the one asked for least lately makes room.
const WAYS: usize = 8;
/// Ranges of own blocks that are kept of a file: those written last.
const OWN_RANGES: usize = 4;

/// Where a file's own blocks lie, as far as they were written lately: first block and the one behind the last.
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

/// What is known of a file.
#[derive(Clone, Copy, Default)]
struct Account {
    map: MapId,
    pieces: FilePieces,
    own: OwnRanges,
}

/// Maps with the same hash, the one asked for last first. No map has id 0: it marks a free place.
type Set = [Account; WAYS];

/// The accounts of all files.
pub struct Accounts {
    parts: Vec<Mutex<Box<[Set]>>>,
}

/// Who knows the whole file, and who sees its blocks as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spender {
    /// A write.
    Writer,
    /// The worker.
    Worker,
}

impl Accounts {
    /// None known yet; as many as fit into so many bytes, at least a few in each part.
    pub fn new(bytes_max: u64) -> Self {
        let sets = (bytes_max as usize / size_of::<Set>() / PARTS).max(1);
        let part = |number| Mutex::numbered(LockRank::Leaf, number, vec![Set::default(); sets].into_boxed_slice());
        Self { parts: (0..PARTS as u64).map(part).collect() }
    }

    /// The account of a file.
    pub fn get(&self, map: MapId) -> Option<FilePieces> {
        self.with(map, |account| account.pieces)
    }

    /// Where the file's own blocks lie, as far as that is known.
    pub fn own(&self, map: MapId) -> OwnRanges {
        self.with(map, |account| account.own).unwrap_or_default()
    }

    /// Begins an account, or replaces it.
    pub fn set(&self, map: MapId, pieces: FilePieces) {
        let (part, hash) = self.part_of(map);
        let mut sets = part.lock();
        let set = set_of(&mut sets, hash);
        let found = set.iter().position(|account| account.map == map);
        set[..=found.unwrap_or(WAYS - 1)].rotate_right(1);
        let own = found.map_or_else(OwnRanges::default, |_| set[0].own);
        set[0] = Account { map, pieces, own };
    }

    /// Gives a file so many blocks more, and takes all pieces that are left to it then. None: it has no account.
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

    /// Gives pieces back that were taken.
    pub fn give_back(&self, map: MapId, pieces: u64) {
        self.with(map, |account| account.pieces.pieces = account.pieces.pieces.saturating_sub(pieces));
    }

    /// A file got so many blocks more, and has these ranges of the data area for itself. False: it has no account.
    pub fn note_written(&self, map: MapId, blocks: u64, own: &[(Pbn, u64)]) -> bool {
        let noted = self.with(map, |account| {
            account.pieces.grow(blocks, 0);
            own.iter().for_each(|(first, blocks)| account.own.add(*first, *blocks));
        });
        noted.is_some()
    }

    /// A file changed in another way than by writes: its account is made anew when it is asked for.
    pub fn forget(&self, map: MapId) {
        self.with(map, |account| *account = Account::default());
    }

    fn with<T>(&self, map: MapId, work: impl FnOnce(&mut Account) -> T) -> Option<T> {
        let (part, hash) = self.part_of(map);
        let mut sets = part.lock();
        let set = set_of(&mut sets, hash);
        let at = set.iter().position(|account| account.map == map && map.0 > 0)?;
        set[..=at].rotate_right(1);
        Some(work(&mut set[0]))
    }

    fn part_of(&self, map: MapId) -> (&Mutex<Box<[Set]>>, u64) {
        // Fibonacci hashing: ids follow each other.
        let hash = map.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (&self.parts[(hash >> 60) as usize % PARTS], hash & (u64::MAX >> 4))
    }
}

fn set_of(sets: &mut [Set], hash: u64) -> &mut Set {
    let at = (u128::from(hash) * sets.len() as u128) >> 60;
    debug_assert!((at as usize) < sets.len(), "set {at} of {}", sets.len());
    &mut sets[at as usize]
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;

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
        let places: usize = accounts.parts.iter().map(|part| part.lock().len() * WAYS).sum();
        assert!(places * size_of::<Account>() <= 64 << 10 && places >= 256, "{places} places");
        for map in 1..=50_000 {
            accounts.set(MapId(map), FilePieces { blocks: map, pieces: 0 });
            assert_eq!(accounts.get(MapId(1)).map(|pieces| pieces.blocks), Some(1));
        }
        let known = (1..=50_000).filter(|map| accounts.get(MapId(*map)).is_some()).count();
        assert!(known <= places && known >= places / 2, "{known} of {places}");
    }
}
