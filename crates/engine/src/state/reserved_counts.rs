//! The numbers of reserved blocks of maps that are about to be cloned, kept up to date while the maps change: so they
//! are known at once when the clone begins.
//!
//! The rule: a leaf that changes is noted in the publication, and counted again before its number is used.

use std::collections::{BTreeMap, BTreeSet};

use crate::MapId;
use crate::format::keys::LeafKey;

/// Maps that are counted at a time. The oldest count goes.
const MAPS_MAX: usize = 8;
/// Changed leaves of a map. With more, its count is given up.
const CHANGED_MAX: usize = 1 << 16;

/// The count of one map.
#[derive(Default)]
struct Count {
    /// Leaves with reserved blocks, and how many.
    leaves: BTreeMap<u64, u64>,
    /// Leaves to be counted again.
    changed: BTreeSet<u64>,
    /// Whether all leaves were counted.
    is_whole: bool,
}

/// The counts of all maps that are about to be cloned.
#[derive(Default)]
pub struct ReservedCounts {
    maps: BTreeMap<MapId, Count>,
}

impl ReservedCounts {
    /// Whether any map is counted.
    pub fn are_any(&self) -> bool {
        !self.maps.is_empty()
    }

    /// Begins to note the changes of a map. The caller then counts all of its leaves.
    pub fn begin(&mut self, map: MapId) {
        if self.maps.len() >= MAPS_MAX && !self.maps.contains_key(&map) {
            self.maps.pop_first();
        }
        self.maps.entry(map).or_default();
    }

    /// Ends it.
    pub fn end(&mut self, map: MapId) {
        self.maps.remove(&map);
    }

    /// Notes the number of reserved blocks in a leaf.
    pub fn set(&mut self, key: LeafKey, blocks: u64) {
        let Some(count) = self.maps.get_mut(&key.map) else { return };
        match blocks {
            0 => drop(count.leaves.remove(&key.leaf)),
            _ => drop(count.leaves.insert(key.leaf, blocks)),
        }
    }

    /// All leaves of a map were counted since its beginning.
    pub fn set_whole(&mut self, map: MapId) {
        self.maps.entry(map).and_modify(|count| count.is_whole = true);
    }

    /// Whether all leaves of a map were counted.
    pub fn is_whole(&self, map: MapId) -> bool {
        self.maps.get(&map).is_some_and(|count| count.is_whole)
    }

    /// Notes a change of a leaf.
    pub fn note_changed(&mut self, key: LeafKey) {
        let Some(count) = self.maps.get_mut(&key.map) else { return };
        count.changed.insert(key.leaf);
        if count.changed.len() > CHANGED_MAX {
            self.maps.remove(&key.map);
        }
    }

    /// The leaves to be counted again. The caller does that now.
    pub fn take_changed(&mut self, map: MapId) -> Vec<u64> {
        let changed = self.maps.get_mut(&map).map(|count| std::mem::take(&mut count.changed));
        changed.unwrap_or_default().into_iter().collect()
    }

    /// The number of reserved blocks of a map whose lock the caller holds. None: it is not known.
    pub fn total(&self, map: MapId) -> Option<u64> {
        let count = self.maps.get(&map).filter(|count| count.is_whole && count.changed.is_empty())?;
        Some(count.leaves.values().sum())
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;

    const MAP: MapId = MapId(9);

    fn key(leaf: u64) -> LeafKey {
        LeafKey { map: MAP, leaf }
    }

    #[test]
    fn a_total_is_known_once_all_leaves_are_counted_and_those_that_changed_again() {
        let mut counts = ReservedCounts::default();
        counts.set(key(1), 5);
        counts.begin(MAP);
        counts.set(key(1), 5);
        counts.note_changed(key(2));
        assert_eq!(counts.total(MAP), None);
        counts.set_whole(MAP);
        assert_eq!((counts.total(MAP), counts.take_changed(MAP)), (None, vec![2]));
        counts.set(key(2), 3);
        assert_eq!(counts.total(MAP), Some(8));
        counts.set(key(1), 0);
        assert_eq!(counts.total(MAP), Some(3));
        counts.end(MAP);
        assert!(!counts.are_any() && !counts.is_whole(MAP));
    }

    #[test]
    fn counts_are_bounded() {
        let mut counts = ReservedCounts::default();
        (0..20).for_each(|map| counts.begin(MapId(map)));
        assert_eq!(counts.maps.len(), MAPS_MAX);
        counts.begin(MAP);
        counts.set_whole(MAP);
        (0..=CHANGED_MAX as u64).for_each(|leaf| counts.note_changed(key(leaf)));
        assert!(!counts.is_whole(MAP));
    }
}
