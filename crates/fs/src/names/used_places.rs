//! The places of new directories that may have a name already: a filter in bounded memory.
//!
//! A copy of a tree adds names to directories that no program sees. So a place that is not in the filter is empty, and
//! needs no look-up in the sorted state. A place that is in it may still be empty, because the filter is a Bloom
//! filter.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Ino;
use crate::format::dirent::Place;

/// Bits of the filter: 1 MiB.
const BITS: u64 = 1 << 23;
const WORD_BITS: u64 = 64;
/// Bits set for each place.
const BITS_OF_PLACE: u64 = 2;
/// With this many places, one look-up in twenty finds nothing.
const PLACES_MAX: u64 = BITS / 8;

/// The places that were used since the filter was empty.
pub(crate) struct UsedPlaces {
    bits: Vec<u64>,
    places: u64,
}

impl Default for UsedPlaces {
    fn default() -> Self {
        Self { bits: vec![0; (BITS / WORD_BITS) as usize], places: 0 }
    }
}

impl UsedPlaces {
    /// Whether a place may have been added. False: it was not.
    pub(crate) fn may_contain(&self, parent: Ino, place: Place) -> bool {
        bits_of(parent, place).all(|(word, bit)| self.bits[word] & bit != 0)
    }

    /// Adds a place.
    pub(crate) fn add(&mut self, parent: Ino, place: Place) {
        bits_of(parent, place).for_each(|(word, bit)| self.bits[word] |= bit);
        self.places += 1;
    }

    /// Whether it holds so many places that clearing it is worth while.
    pub(crate) fn is_full(&self) -> bool {
        self.places >= PLACES_MAX
    }

    /// Forgets all places. No directory gets a further name that had one.
    pub(crate) fn clear(&mut self) {
        self.bits.fill(0);
        self.places = 0;
    }
}

/// The words and the bits for a place.
fn bits_of(parent: Ino, place: Place) -> impl Iterator<Item = (usize, u64)> {
    let hash = xxh3_64_with_seed(&place.number().to_le_bytes(), parent.0);
    (0..BITS_OF_PLACE).map(move |part| {
        let bit = (hash >> (32 * part)) % BITS;
        ((bit / WORD_BITS) as usize, 1 << (bit % WORD_BITS))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u64) -> Place {
        Place::of_cookie(number << 8)
    }

    #[test]
    fn every_place_that_was_added_is_found_and_few_others() {
        let mut used = UsedPlaces::default();
        (1..100_000).for_each(|number| used.add(Ino(7), place(number)));
        assert!((1..100_000).all(|number| used.may_contain(Ino(7), place(number))));
        let others = (1..100_000).filter(|number| used.may_contain(Ino(8), place(*number))).count();
        assert!(others < 1_000, "{others} of 100,000 places of another directory seem used");
    }

    #[test]
    fn it_is_empty_again_after_it_was_full() {
        let mut used = UsedPlaces::default();
        (0..PLACES_MAX).for_each(|number| used.add(Ino(number), place(1)));
        assert!(used.is_full() && used.may_contain(Ino(1), place(1)));
        used.clear();
        assert!(!used.is_full() && !used.may_contain(Ino(1), place(1)));
    }
}
