//! Which hints leave the groups when memory is full: SmartDedup's G-LRU (section 3.2) as a clock.
//!
//! Owns the path of the hand and the choice of the hints that stay. The paper's list of groups in order of use would
//! take two pointers per group. Instead a hand circles through all groups, in the order of their prefixes, and spares
//! hints that a look-up found since it last passed. In that order neighbours leave together, and on the disk level
//! neighbours lie in one page.

use super::grouped::{Entry, GroupedHints, Spot};
use super::{Eviction, Hint, Tag};

/// Ranges spared in a row because all of their hints were used. Bounds the time of one eviction.
const SPARED_MAX: usize = 64;

/// A range of tags that agree in their leading bits; both ends belong to it.
#[derive(Clone, Copy)]
struct TagRange {
    first: u64,
    last: u64,
}

impl TagRange {
    /// All tags that agree with this one in this many leading bits.
    fn around(tag: u64, bits: u32) -> Self {
        let rest = u64::MAX.checked_shr(bits).unwrap_or(0);
        Self { first: tag & !rest, last: tag | rest }
    }
}

/// Which hints the hand spares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spare {
    Used,
    Nobody,
}

impl GroupedHints {
    /// Evicts the unused hints of the next range and returns their number. Call it only while the store has hints.
    pub(super) fn evict(&mut self) -> usize {
        let mut left = Vec::new();
        for spared in 0..=SPARED_MAX {
            let spare = if spared < SPARED_MAX { Spare::Used } else { Spare::Nobody };
            left = self.take_range(spare);
            if !left.is_empty() {
                break;
            }
        }
        let evicted = left.len();
        if self.options.keep_evicted {
            self.evicted.append(&mut left);
        }
        evicted
    }

    pub(super) fn drain_next(&mut self) -> Vec<Hint> {
        if self.hints == 0 {
            return Vec::new();
        }
        self.take_range(Spare::Nobody)
    }

    pub(super) fn set_eviction_range_bits(&mut self, bits: Option<u32>) {
        self.range_bits = bits;
    }

    pub(super) fn set_bytes_max(&mut self, bytes_max: u64) -> usize {
        self.options.bytes_max = bytes_max;
        let mut evicted = 0;
        while self.bytes > bytes_max && self.hints > 0 {
            evicted += self.evict();
            self.join_when_due();
        }
        if self.hints == 0 {
            // The roots follow from the bound, and only an empty store can change them.
            let kept = self.take_evicted();
            self.clear();
            self.evicted = kept;
        }
        evicted
    }

    /// Moves the hand over the next range that has hints, and takes out those that are not spared, ascending.
    fn take_range(&mut self, spare: Spare) -> Vec<Hint> {
        let range = self.next_range();
        let mut left = Vec::new();
        let mut at = range.first;
        loop {
            let spot = self.spot(Tag(at));
            let leaf = TagRange::around(at, spot.leaf_bits);
            let within = TagRange { first: at, last: leaf.last.min(range.last) };
            self.take_within(spot, within, spare, &mut left);
            if leaf.last >= range.last {
                break;
            }
            at = leaf.last + 1;
        }
        self.hints -= left.len();
        self.hand = range.last.wrapping_add(1);
        left
    }

    /// The range of the first hint at or after the hand. Call it only while the store has hints.
    fn next_range(&mut self) -> TagRange {
        loop {
            let spot = self.spot(Tag(self.hand));
            let entries = &self.leaf_mut(spot.address).0;
            let next = entries.partition_point(|entry| entry.tag_bits() < spot.tag_bits);
            let Some(&entry) = entries.get(next) else {
                self.hand = TagRange::around(self.hand, spot.leaf_bits).last.wrapping_add(1);
                continue;
            };
            let group_bits = self.group_bits(spot);
            let bits = self.range_bits.map_or(group_bits, |bits| bits.min(group_bits));
            return TagRange::around(self.tag_of(spot.address, &entry).0, bits);
        }
    }

    /// Length of the prefix that forms a group in a leaf.
    fn group_bits(&self, spot: Spot) -> u32 {
        self.options.prefix_bits.unwrap_or(spot.leaf_bits)
    }

    /// Takes the hints of one leaf that lie within the range and are not spared.
    fn take_within(&mut self, spot: Spot, within: TagRange, spare: Spare, left: &mut Vec<Hint>) {
        let (first, last) = (self.spot(Tag(within.first)).tag_bits, self.spot(Tag(within.last)).tag_bits);
        let group_shift = u32::BITS - (self.group_bits(spot) - self.root_bits);
        let eviction = self.options.eviction;
        let entries = &self.leaf_mut(spot.address).0;
        let start = entries.partition_point(|entry| entry.tag_bits() < first);
        let end = entries.partition_point(|entry| entry.tag_bits() <= last);
        let mut stay: Vec<Entry> = Vec::new();
        let mut leave: Vec<Entry> = Vec::new();
        let group_of = |entry: &Entry| u64::from(entry.tag_bits()) >> group_shift;
        for group in entries[start..end].chunk_by(|a, b| group_of(a) == group_of(b)) {
            let whole_stays = eviction == Eviction::Groups && group.iter().any(Entry::matched);
            let stays = |entry: &&Entry| spare == Spare::Used && (whole_stays || entry.matched());
            stay.extend(group.iter().filter(stays));
            leave.extend(group.iter().filter(|entry| !stays(entry)));
        }
        left.extend(leave.iter().map(|entry| Hint::new(self.tag_of(spot.address, entry), entry.pbn())));
        stay.iter_mut().for_each(|entry| entry.set_matched(false));
        self.leaf_mut(spot.address).0.splice(start..end, stay);
        self.give_back(spot.address);
    }
}
