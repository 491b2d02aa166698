//! How files are read and how they lie, map by map, in bounded memory: the basis of the automatic `run_blocks_min`.
//!
//! Owns the counts of the maps read lately; those read least lately leave. Leaves the rule to `dedup` (`ReadPattern`), and
//! the consequences of a number that falls to `run_rule`. Nothing is kept across mounts: a map that is not known here
//! is expected to be read in sequence.
//!
//! A read never waits here: where another thread holds a part of the maps, it is not counted.

use oncefs_dedup::ReadPattern;

use crate::MapId;
use crate::sync::{LockRank, Mutex};

/// Parts with a lock of their own.
const PARTS: usize = 16;
/// Maps that share a set, in which the one read least lately makes room.
const WAYS: usize = 8;

/// A map and how it was read.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    map: MapId,
    /// Where its last read request began and ended, in blocks.
    last: (u64, u64),
    pattern: ReadPattern,
    run_blocks_min: u32,
}

/// Maps with the same hash, the one read last first. No map has id 0: it marks a free place.
type Set = [Known; WAYS];

/// One read request of a map.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The first block read.
    pub first: u64,
    /// How many were read.
    pub blocks: u32,
    /// Neighbours that lie together, and neighbours that lie apart although neither is shared.
    pub lies: (u32, u32),
}

/// The number of a map, and whether it is lower than it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The shortest run worth sharing, in blocks.
    pub run_blocks_min: u32,
    /// Whether it was higher when it was asked for or changed last.
    pub fell: bool,
}

/// The maps read lately.
pub struct ReadPatterns {
    parts: Vec<Mutex<Box<[Set]>>>,
}

impl ReadPatterns {
    /// None known yet; as many as fit into so many bytes, at least a few in each part.
    pub fn new(bytes_max: u64) -> Self {
        let sets = (bytes_max as usize / size_of::<Set>() / PARTS).max(1);
        let part = |number| Mutex::numbered(LockRank::Leaf, number, vec![Set::default(); sets].into_boxed_slice());
        Self { parts: (0..PARTS as u64).map(part).collect() }
    }

    /// Learns of a read request. None: it went uncounted.
    pub fn note(&self, map: MapId, seen: Seen, seek_blocks: f64) -> Option<Number> {
        debug_assert!(seen.lies.0 + seen.lies.1 <= seen.blocks, "more neighbours than blocks: {seen:?}");
        let (part, hash) = self.part_of(map);
        let mut sets = part.try_lock()?;
        let set = set_of(&mut sets, hash);
        bring_to_front(set, map, seek_blocks);
        let known = &mut set[0];
        let follows = (known.last.0..=known.last.1).contains(&seen.first) && known.last.1 > 0;
        known.last = (seen.first, seen.first + u64::from(seen.blocks));
        known.pattern.read(seen.blocks, follows);
        known.pattern.lies(seen.lies.0, seen.lies.1);
        Some(known.renew(seek_blocks))
    }

    /// The number of a map; of one that is not known, what a file never read has.
    pub fn run_blocks_min(&self, map: MapId, seek_blocks: f64) -> Number {
        let (part, hash) = self.part_of(map);
        let mut sets = part.lock();
        let known = set_of(&mut sets, hash).iter_mut().find(|known| known.map == map);
        let unknown =
            || Number { run_blocks_min: ReadPattern::default().run_blocks_min(seek_blocks, None), fell: false };
        known.map_or_else(unknown, |known| known.renew(seek_blocks))
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

/// Puts a map first in its set, in the place of the one read least lately if it is new there.
fn bring_to_front(set: &mut Set, map: MapId, seek_blocks: f64) {
    match set.iter().position(|known| known.map == map) {
        Some(at) => set[..=at].rotate_right(1),
        None => {
            set.rotate_right(1);
            let run_blocks_min = ReadPattern::default().run_blocks_min(seek_blocks, None);
            set[0] = Known { map, run_blocks_min, ..Known::default() };
        }
    }
}

impl Known {
    fn renew(&mut self, seek_blocks: f64) -> Number {
        let before = self.run_blocks_min;
        self.run_blocks_min = self.pattern.run_blocks_min(seek_blocks, Some(before));
        debug_assert!(self.run_blocks_min > 0, "a run of {} blocks", self.run_blocks_min);
        Number { run_blocks_min: self.run_blocks_min, fell: self.run_blocks_min < before }
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;

    const SEEK_BLOCKS: f64 = 6.1;

    fn seen(first: u64, blocks: u32) -> Seen {
        Seen { first, blocks, lies: (blocks.saturating_sub(1), 0) }
    }

    fn number(patterns: &ReadPatterns, map: u64) -> u32 {
        patterns.run_blocks_min(MapId(map), SEEK_BLOCKS).run_blocks_min
    }

    fn read_at_random(patterns: &ReadPatterns, map: u64) -> u32 {
        let note = |n: u64| patterns.note(MapId(map), seen(n * 7_919 % 100_000, 1), SEEK_BLOCKS);
        (1..1_000).filter_map(note).filter(|number| number.fell).count() as u32
    }

    #[test]
    fn a_map_read_at_random_falls_to_one_and_says_so_and_others_stay() {
        let patterns = ReadPatterns::new(64 << 10);
        assert_eq!(number(&patterns, 1), 7);
        let falls = read_at_random(&patterns, 1);
        assert!((1..=5).contains(&falls), "{falls} falls");
        assert_eq!((number(&patterns, 1), number(&patterns, 2)), (1, 7));
        assert!(!patterns.run_blocks_min(MapId(1), SEEK_BLOCKS).fell, "it was told");
    }

    #[test]
    fn a_map_read_in_sequence_in_small_requests_stays() {
        let patterns = ReadPatterns::new(64 << 10);
        for n in 0..10_000 {
            // The last block of a request is read again by the next, as read-ahead may do.
            let number = patterns.note(MapId(3), seen(n, 2), SEEK_BLOCKS).unwrap();
            assert_eq!(number, Number { run_blocks_min: 7, fell: false });
        }
    }

    #[test]
    fn two_readers_of_one_map_with_large_requests_are_no_random_reader() {
        let patterns = ReadPatterns::new(64 << 10);
        for n in 0..1_000 {
            patterns.note(MapId(3), seen(n * 32, 32), SEEK_BLOCKS);
            patterns.note(MapId(3), seen(1_000_000 + n * 32, 32), SEEK_BLOCKS);
        }
        assert!(number(&patterns, 3) >= 6);
    }

    #[test]
    fn memory_is_bounded_and_those_read_least_lately_leave() {
        let patterns = ReadPatterns::new(64 << 10);
        let places: usize = patterns.parts.iter().map(|part| part.lock().len() * WAYS).sum();
        assert!(places * size_of::<Known>() <= 64 << 10 && places >= 500, "{places} places");
        for map in 1..=100_000 {
            read_at_random_briefly(&patterns, map);
            assert_eq!(number(&patterns, map), 1, "map {map}");
        }
        let known = (1..=100_000).filter(|map| number(&patterns, *map) == 1).count();
        assert!(known <= places && known >= places / 2, "{known} of {places}");
        assert_eq!(number(&patterns, 1), 7, "the first has left");
    }

    fn read_at_random_briefly(patterns: &ReadPatterns, map: u64) {
        (1..150).for_each(|n| _ = patterns.note(MapId(map), seen(n * 1_000, 1), SEEK_BLOCKS));
    }

    #[test]
    fn a_map_that_is_read_stays_among_many_that_are_read_once() {
        let patterns = ReadPatterns::new(64 << 10);
        read_at_random(&patterns, 5);
        for map in 1_000..50_000 {
            patterns.note(MapId(map), seen(0, 1), SEEK_BLOCKS);
            patterns.note(MapId(5), seen(map % 977 * 100, 1), SEEK_BLOCKS);
        }
        assert_eq!(number(&patterns, 5), 1);
    }

    #[test]
    fn a_cheaper_seek_lowers_the_numbers_that_are_known() {
        let patterns = ReadPatterns::new(64 << 10);
        patterns.note(MapId(1), seen(0, 256), 40.0);
        assert_eq!(patterns.run_blocks_min(MapId(1), 40.0), Number { run_blocks_min: 40, fell: false });
        assert_eq!(patterns.run_blocks_min(MapId(1), 6.1), Number { run_blocks_min: 7, fell: true });
        assert_eq!(patterns.run_blocks_min(MapId(1), 6.1), Number { run_blocks_min: 7, fell: false });
    }

    #[test]
    fn a_reader_never_waits() {
        let patterns = ReadPatterns::new(64 << 10);
        let _held: Vec<_> = patterns.parts.iter().map(Mutex::lock).collect();
        assert_eq!(patterns.note(MapId(1), seen(0, 1), SEEK_BLOCKS), None);
    }

    #[test]
    #[ignore = "a measurement, for docs/decisions/0024-the-automatic-threshold.md"]
    fn what_a_read_pays() {
        const READS: u64 = 20_000_000;
        for (what, maps) in [("one map", 1), ("100 maps", 100), ("100,000 maps", 100_000)] {
            let patterns = ReadPatterns::new(1 << 20);
            let began = std::time::Instant::now();
            for n in 0..READS {
                let map = MapId(1 + n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % maps);
                std::hint::black_box(patterns.note(map, seen(n, 1), SEEK_BLOCKS));
            }
            println!("{what}: {:.0} ns a read", began.elapsed().as_nanos() as f64 / READS as f64);
        }
    }
}
