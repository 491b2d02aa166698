//! The contents seen so far, by tag, in bounded memory: all of them as long as they fit, then one in 2, 4, 8...

use std::hash::{BuildHasher, Hasher};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use oncefs_dedup::{Sample, Tag};

/// Bytes of an entry with its control byte.
const ENTRY_BYTES: u64 = 17;
/// Entries that a table of 8 places holds before it grows.
const ENTRIES_OF_EIGHT: u64 = 7;
/// A growing table exists twice for a moment, in its old size and in the double.
const GROWTH_HALVES: u64 = 3;
/// At least this many contents are known, even with little memory: with fewer the sample would be too small.
const CONTENTS_MIN: u64 = 14_336;

/// The number and the previous count of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Contents are numbered in the order of their first block.
    pub number: u32,
    /// Blocks with this content before this one.
    pub before: u32,
}

/// Contents by tag.
pub struct Contents {
    known: HashMap<u64, Content, SpreadTags>,
    contents_max: usize,
    sample: u32,
    /// Blocks seen while every content was known, and later all blocks in the sample.
    next: u32,
}

impl Contents {
    /// An empty table. `bytes_beside`: bytes that the caller keeps for each content.
    pub fn new(bytes_max: u64, bytes_beside: u64) -> Self {
        let places = 8 * (bytes_max / bytes_of_eight(bytes_beside)).max(1);
        // Tables have a power of two of places.
        let places = (1_u64 << places.ilog2()).min(1 << 32);
        let contents_max = (places / 8 * ENTRIES_OF_EIGHT).clamp(CONTENTS_MIN, u64::from(u32::MAX / 2));
        Self { known: HashMap::default(), contents_max: contents_max as usize, sample: 1, next: 0 }
    }

    /// Bytes of memory that hold `contents` contents.
    pub fn bytes_for(contents: u64, bytes_beside: u64) -> u64 {
        let places = (contents.max(CONTENTS_MIN).div_ceil(ENTRIES_OF_EIGHT) * 8).next_power_of_two();
        places / 8 * bytes_of_eight(bytes_beside)
    }

    /// One content in this many is known. 1: all are.
    pub fn sample(&self) -> u32 {
        self.sample
    }

    /// Contents that are known.
    pub fn known(&self) -> u64 {
        self.known.len() as u64
    }

    /// Whether the next new content makes the sample smaller.
    pub fn is_full(&self) -> bool {
        self.known.len() >= self.contents_max
    }

    /// Counts a block with this tag. None: its content is not in the sample.
    pub fn meet(&mut self, tag: Tag) -> Option<Content> {
        if !Sample::one_of(self.sample).has(tag) {
            return None;
        }
        // Most contents are new, and their place in the table is in no cache: it is looked for once.
        let is_full = self.is_full();
        match self.known.entry(tag.0) {
            Entry::Occupied(mut entry) => {
                let content = entry.get_mut();
                let met = *content;
                content.before = content.before.saturating_add(1);
                return Some(met);
            }
            Entry::Vacant(entry) if !is_full => {
                let content = Content { number: self.next, before: 0 };
                self.next += 1;
                entry.insert(Content { before: 1, ..content });
                return Some(content);
            }
            Entry::Vacant(_) => {}
        }
        while self.is_full() {
            self.halve();
        }
        if !Sample::one_of(self.sample).has(tag) {
            return None;
        }
        let content = Content { number: self.next, before: 0 };
        self.next += 1;
        self.known.insert(tag.0, Content { before: 1, ..content });
        Some(content)
    }

    fn halve(&mut self) {
        self.sample *= 2;
        let sample = Sample::one_of(self.sample);
        self.known.retain(|tag, _| sample.has(Tag(*tag)));
    }
}

/// Bytes of 8 places of a table that may be growing, and the caller's bytes for their contents.
fn bytes_of_eight(bytes_beside: u64) -> u64 {
    8 * ENTRY_BYTES * GROWTH_HALVES / 2 + ENTRIES_OF_EIGHT * bytes_beside
}

/// Tags are already evenly spread, but those of a sample all end in zeros. A multiplication spreads the other bits.
#[derive(Clone, Copy, Debug, Default)]
struct SpreadTags;

struct SpreadTag(u64);

impl BuildHasher for SpreadTags {
    type Hasher = SpreadTag;

    fn build_hasher(&self) -> SpreadTag {
        SpreadTag(0)
    }
}

impl Hasher for SpreadTag {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are numbers of 64 bits");
    }

    fn write_u64(&mut self, tag: u64) {
        let product = u128::from(tag) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

#[cfg(test)]
mod tests {
    use oncefs_toolbox::Random;

    use super::*;

    #[test]
    fn contents_are_numbered_and_counted() {
        let mut contents = Contents::new(1 << 20, 8);
        let met: Vec<_> = [5, 9, 5, 5, 9].map(|tag| contents.meet(Tag(tag)).unwrap()).into();
        assert_eq!(met.iter().map(|content| content.number).collect::<Vec<_>>(), [0, 1, 0, 0, 1]);
        assert_eq!(met.iter().map(|content| content.before).collect::<Vec<_>>(), [0, 0, 1, 2, 1]);
        assert_eq!((contents.sample(), contents.known()), (1, 2));
    }

    #[test]
    fn the_memory_that_is_said_to_be_enough_is_enough_and_not_twice_too_much() {
        for contents_wanted in [20_000, 28_672, 28_673, 1_000_000] {
            let bytes = Contents::bytes_for(contents_wanted, 8);
            assert!(Contents::new(bytes, 8).contents_max as u64 >= contents_wanted, "{contents_wanted}");
            assert!((Contents::new(bytes - 1, 8).contents_max as u64) < 2 * contents_wanted, "{contents_wanted}");
        }
    }

    #[test]
    fn memory_stays_bounded_and_what_is_in_the_sample_is_known_from_its_first_block_on() {
        let mut contents = Contents::new(1, 8);
        let mut random = Random::new(3);
        let tags: Vec<Tag> = (0..200_000).map(|_| Tag(random.word())).collect();
        tags.iter().for_each(|tag| _ = contents.meet(*tag));
        assert!(contents.known() <= CONTENTS_MIN && contents.sample() >= 16, "{}", contents.sample());
        let sample = Sample::one_of(contents.sample());
        for tag in tags {
            let before = contents.meet(tag).map(|content| content.before);
            assert_eq!(before, sample.has(tag).then_some(1), "{tag:?}");
        }
    }
}
