//! How files are read, map by map, in bounded memory: a file that is read at random has no budget.
//!
//! Owns the counts of recently read maps; the least recently read ones leave. Leaves the rule to `dedup`
//! (`ReadPattern`), and the consequences to `share_limit`. Nothing is kept across mounts: an unknown map is assumed to
//! be read in sequence.
//!
//! A read never waits here: if another thread holds a part of the maps, the read is not counted.

use oncefs_dedup::ReadPattern;

use crate::MapId;
use crate::policy::recent_maps::{PARTS, RecentMaps, part_of};
use crate::sync::{LockRank, Mutex};

/// How a map was read.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Where its last read request began and ended, in blocks.
    last: (u64, u64),
    pattern: ReadPattern,
}

/// The maps read lately.
pub struct ReadPatterns {
    parts: Vec<Mutex<RecentMaps<Known>>>,
}

impl ReadPatterns {
    /// An empty store. It has room for as many maps as fit into this many bytes, and for at least a few in each part.
    pub fn new(bytes_max: u64) -> Self {
        let part = |number| Mutex::numbered(LockRank::Leaf, number, RecentMaps::of_part(bytes_max));
        Self { parts: (0..PARTS as u64).map(part).collect() }
    }

    /// Learns that a request read this many blocks, starting at `first`. True: the map turned out to be read at random.
    /// None: the request was not counted.
    pub fn note(&self, map: MapId, first: u64, blocks: u32) -> Option<bool> {
        let mut part = self.parts[part_of(map)].try_lock()?;
        let known = part.get_or_default(map);
        let follows = (known.last.0..=known.last.1).contains(&first) && known.last.1 > 0;
        known.last = (first, first + u64::from(blocks));
        let was_random = known.pattern.is_random();
        known.pattern.read(blocks, follows);
        Some(known.pattern.is_random() && !was_random)
    }

    /// Whether a map is read at random.
    pub fn is_random(&self, map: MapId) -> bool {
        self.parts[part_of(map)].lock().peek(map).is_some_and(|known| known.pattern.is_random())
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;
    use crate::policy::recent_maps::Place;

    fn read_at_random(patterns: &ReadPatterns, map: u64) -> u32 {
        let note = |n: u64| patterns.note(MapId(map), n * 7_919 % 100_000, 1);
        (1..1_000).filter_map(note).filter(|became_random| *became_random).count() as u32
    }

    #[test]
    fn a_map_read_at_random_is_told_once_and_others_stay() {
        let patterns = ReadPatterns::new(64 << 10);
        assert!(!patterns.is_random(MapId(1)));
        assert_eq!(read_at_random(&patterns, 1), 1);
        assert!(patterns.is_random(MapId(1)) && !patterns.is_random(MapId(2)));
    }

    #[test]
    fn a_map_read_in_sequence_in_small_requests_stays() {
        let patterns = ReadPatterns::new(64 << 10);
        // The next request reads the last block of a request again, as read-ahead may do.
        assert!((0..10_000).all(|n| patterns.note(MapId(3), n, 2) == Some(false)));
    }

    #[test]
    fn two_readers_of_one_map_with_large_requests_are_no_random_reader() {
        let patterns = ReadPatterns::new(64 << 10);
        for n in 0..1_000 {
            patterns.note(MapId(3), n * 32, 32);
            patterns.note(MapId(3), 1_000_000 + n * 32, 32);
        }
        assert!(!patterns.is_random(MapId(3)));
    }

    #[test]
    fn memory_is_bounded_and_those_read_least_lately_leave() {
        let patterns = ReadPatterns::new(64 << 10);
        let places: usize = patterns.parts.iter().map(|part| part.lock().places()).sum();
        assert!(places * size_of::<Place<Known>>() <= 64 << 10 && places >= 500, "{places} places");
        for map in 1..=100_000 {
            (1..150).for_each(|n| _ = patterns.note(MapId(map), n * 1_000, 1));
            assert!(patterns.is_random(MapId(map)), "map {map}");
        }
        let known = (1..=100_000).filter(|map| patterns.is_random(MapId(*map))).count();
        assert!(known <= places && known >= places / 2, "{known} of {places}");
        assert!(!patterns.is_random(MapId(1)), "the first has left");
    }

    #[test]
    fn a_map_that_is_read_stays_among_many_that_are_read_once() {
        let patterns = ReadPatterns::new(64 << 10);
        read_at_random(&patterns, 5);
        for map in 1_000..50_000 {
            patterns.note(MapId(map), 0, 1);
            patterns.note(MapId(5), map % 977 * 100, 1);
        }
        assert!(patterns.is_random(MapId(5)));
    }

    #[test]
    fn a_reader_never_waits() {
        let patterns = ReadPatterns::new(64 << 10);
        let _held: Vec<_> = patterns.parts.iter().map(Mutex::lock).collect();
        assert_eq!(patterns.note(MapId(1), 0, 1), None);
    }

    #[test]
    #[ignore = "a measurement, for docs/decisions/0024-a-budget-of-pieces.md"]
    fn what_a_read_pays() {
        const READS: u64 = 20_000_000;
        for (what, maps) in [("one map", 1), ("100 maps", 100), ("100,000 maps", 100_000)] {
            let patterns = ReadPatterns::new(1 << 20);
            let began = std::time::Instant::now();
            for n in 0..READS {
                let map = MapId(1 + n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % maps);
                std::hint::black_box(patterns.note(map, n, 1));
            }
            println!("{what}: {:.0} ns a read", began.elapsed().as_nanos() as f64 / READS as f64);
        }
    }
}
