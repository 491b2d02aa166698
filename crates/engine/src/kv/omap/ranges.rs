//! Which object has which range of keys, and about how many. Together the ranges have all keys: the first begins with
//! the empty key, and each ends where the next begins.

use std::collections::BTreeMap;
use std::ops::Bound;

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
}

/// The object of a range, and its keys.
struct Held {
    number: u64,
    keys: u64,
    /// What the index says of them.
    noted: u64,
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
        self.0.insert(first, Held { number, keys: noted + step(keys_max), noted });
    }

    /// Adds a range with so many keys, of which the index knows.
    pub fn add(&mut self, first: Vec<u8>, number: u64, keys: u64) {
        self.0.insert(first, Held { number, keys, noted: keys });
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
        Range { first, end: end.map(|(first, _)| &first[..]), number: held.number, keys: held.keys }
    }

    /// Counts a key that is set. Returns the first key of its range.
    pub fn note_change(&mut self, key: &[u8], is_set: bool) -> Vec<u8> {
        let here = self.0.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        let (first, held) = here.expect("the first range begins with the empty key");
        held.keys += u64::from(is_set);
        first.clone()
    }

    /// A range was counted.
    pub fn set_count(&mut self, first: &[u8], keys: u64) {
        if let Some(held) = self.0.get_mut(first) {
            held.keys = keys;
        }
    }

    /// Ranges that have many more or fewer keys than the index says: first key, number, keys.
    pub fn unnoted(&self, keys_max: u64) -> Vec<(Vec<u8>, u64, u64)> {
        let is_off = |held: &Held| held.keys.abs_diff(held.noted) >= step(keys_max);
        let off = self.0.iter().filter(|(_, held)| is_off(held));
        off.map(|(first, held)| (first.clone(), held.number, held.keys)).collect()
    }

    /// The index has these counts now.
    pub fn set_noted(&mut self, counts: &[(Vec<u8>, u64, u64)]) {
        for (first, _, keys) in counts {
            if let Some(held) = self.0.get_mut(first) {
                held.noted = *keys;
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
        assert_eq!(ranges.note_change(&[1], true), []);
        ranges.note_change(&[1], false);
        assert_eq!((ranges.of(&[1]).keys, ranges.unnoted(80)), (21, Vec::new()));
    }
}
