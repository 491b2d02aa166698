//! Which object has which range of keys, and about how many. Together the ranges have all keys: the first begins with
//! the empty key, and each ends where the next begins.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::terms::after;

/// A change of the count of a range is noted when it is this part of the most keys of an object.
const NOTED_SHARE: u64 = 8;

/// A range as it is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<'a> {
    /// Its first key.
    pub first: &'a [u8],
    /// The first key of the next one. None: it is the last.
    pub end: Option<&'a [u8]>,
    /// The number of its object.
    pub number: u64,
    /// It has at most so many keys, as far as this process knows.
    pub keys: u64,
    /// The header of its object was compared.
    pub is_checked: bool,
}

/// The object of a range, and its keys. Counts change while others read, because a read may wait for the cluster.
struct Held {
    number: u64,
    keys: AtomicU64,
    /// The number that the index notes.
    noted: AtomicU64,
    is_checked: AtomicBool,
}

impl Held {
    fn new(number: u64, keys: u64, noted: u64, is_checked: bool) -> Self {
        let (keys, noted) = (AtomicU64::new(keys), AtomicU64::new(noted));
        Self { number, keys, noted, is_checked: AtomicBool::new(is_checked) }
    }
}

/// All ranges, by their first keys.
#[derive(Default)]
pub struct Ranges(BTreeMap<Vec<u8>, Held>);

impl Ranges {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the first one begins with the empty key.
    pub fn are_whole(&self) -> bool {
        self.0.contains_key(&[][..])
    }

    /// Adds a range as the index has it. Since it was noted, it may have got more keys.
    pub fn add_noted(&mut self, first: Vec<u8>, number: u64, noted: u64, keys_max: u64) {
        self.0.insert(first, Held::new(number, noted + step(keys_max), noted, false));
    }

    /// Adds a range with so many keys, of which the index knows. Its object was made or read.
    pub fn add(&mut self, first: Vec<u8>, number: u64, keys: u64) {
        self.0.insert(first, Held::new(number, keys, keys, true));
    }

    /// Removes a range. Its keys belong to the range before it.
    pub fn remove(&mut self, first: &[u8]) {
        self.0.remove(first);
    }

    /// The range with a key.
    pub fn of(&self, key: &[u8]) -> Range<'_> {
        let here = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        let (first, held) = here.expect("the first range begins with the empty key");
        let end = self.0.range::<[u8], _>((Bound::Included(&after(first)[..]), Bound::Unbounded)).next();
        let (keys, is_checked) = (held.keys.load(Relaxed), held.is_checked.load(Relaxed));
        Range { first, end: end.map(|(first, _)| &first[..]), number: held.number, keys, is_checked }
    }

    /// Counts a key that is set in the range with this first key.
    pub fn note_set(&self, first: &[u8]) {
        if let Some(held) = self.0.get(first) {
            held.keys.fetch_add(1, Relaxed);
        }
    }

    /// The header of the range's object was compared.
    pub fn note_checked(&self, first: &[u8]) {
        if let Some(held) = self.0.get(first) {
            held.is_checked.store(true, Relaxed);
        }
    }

    /// The headers of all objects are to be compared again.
    pub fn forget_checked(&self) {
        self.0.values().for_each(|held| held.is_checked.store(false, Relaxed));
    }

    /// A range was counted.
    pub fn set_count(&self, first: &[u8], keys: u64) {
        if let Some(held) = self.0.get(first) {
            held.keys.store(keys, Relaxed);
        }
    }

    /// Ranges that have many more or fewer keys than the index says: first key, number, keys.
    pub fn unnoted(&self, keys_max: u64) -> Vec<(Vec<u8>, u64, u64)> {
        let counted = self.0.iter().map(|(first, held)| (first, held, held.keys.load(Relaxed)));
        let off = counted.filter(|(_, held, keys)| keys.abs_diff(held.noted.load(Relaxed)) >= step(keys_max));
        off.map(|(first, held, keys)| (first.clone(), held.number, keys)).collect()
    }

    /// The index has these counts now.
    pub fn set_noted(&self, counts: &[(Vec<u8>, u64, u64)]) {
        for (first, _, keys) in counts {
            if let Some(held) = self.0.get(first) {
                held.noted.store(*keys, Relaxed);
            }
        }
    }
}

fn step(keys_max: u64) -> u64 {
    (keys_max / NOTED_SHARE).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_range() {
        let mut ranges = Ranges::default();
        ranges.add(Vec::new(), 0, 1);
        ranges.add(vec![5], 1, 2);
        ranges.add(vec![5, 0], 2, 3);
        let found = |key: &[u8]| (ranges.of(key).number, ranges.of(key).end.map(<[u8]>::to_vec));
        assert_eq!(found(&[]), (0, Some(vec![5])));
        assert_eq!(found(&[4, 0xFF]), (0, Some(vec![5])));
        assert_eq!(found(&[5]), (1, Some(vec![5, 0])));
        assert_eq!(found(&[5, 0]), (2, None));
        assert_eq!(found(&[0xFF]), (2, None));
    }

    #[test]
    fn counts_are_noted_in_steps() {
        let mut ranges = Ranges::default();
        ranges.add_noted(Vec::new(), 0, 10, 80);
        assert_eq!(ranges.of(&[1]).keys, 20, "it may have got a step more");
        assert_eq!(ranges.unnoted(80), [(Vec::new(), 0, 20)]);
        ranges.set_noted(&ranges.unnoted(80));
        ranges.note_set(&[]);
        assert_eq!((ranges.of(&[1]).keys, ranges.unnoted(80)), (21, Vec::new()));
    }
}
