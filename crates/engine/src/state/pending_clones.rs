//! The pending clones: maps that still read leaves of another map, because they have not taken references yet.
//!
//! The rule: what a clone reads of a leaf that it lacks never changes. A leaf of a map is changed only after every
//! clone that lacks it has taken it, and after the map itself has, if it lacks it ([`PendingClones::to_take`]). So a
//! leaf may be taken at any time, without the lock of either map, from whatever the clone reads there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::MapId;
use crate::format::keys::{self, LeafKey};
use crate::format::pending_clone::PendingClone;
use crate::kv::Put;
use crate::sync::AtomicBool;

/// Marks removed by one publication: bounds its records.
const MARKS_REMOVED_MAX: usize = 64;

/// A change of the pending clones, published with the changes that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloneStep {
    /// A clone begins: it lacks the first `end` leaves of `source`.
    Begin {
        /// The new map.
        target: MapId,
        /// The map that it reads.
        source: MapId,
        /// How many leaves.
        end: u64,
    },
    /// A clone has references of its own to what it read in this leaf.
    Take(LeafKey),
    /// A clone lacks no leaf before `to` that holds anything.
    Advance {
        /// The clone.
        target: MapId,
        /// Where it continues.
        to: u64,
    },
}

/// A clone that lacks leaves, or whose marks are not removed yet.
#[derive(Debug)]
struct Pending {
    record: PendingClone,
    /// Leaves at or after `record.next` that it has taken.
    taken: BTreeSet<u64>,
    /// Whether background work leaves it alone, because a leaf cannot be taken.
    is_parked: bool,
}

impl Pending {
    fn lacks(&self, leaf: u64) -> bool {
        (self.record.next..self.record.end).contains(&leaf) && !self.taken.contains(&leaf)
    }

    /// Moves `next` to `to` and past the marks that follow, or as far as a bounded number of marks lets it. Returns the
    /// passed marks. A clone that was given up only loses marks.
    fn pass(&mut self, to: u64) -> Vec<u64> {
        let mut passed = Vec::new();
        let is_given_up = self.record.next == self.record.end;
        let to = to.min(self.record.end);
        while let Some(&mark) = self.taken.first() {
            let is_next = mark <= to.max(self.record.next);
            if passed.len() == MARKS_REMOVED_MAX || !(is_next || is_given_up) {
                break;
            }
            self.taken.pop_first();
            passed.push(mark);
            if !is_given_up {
                self.record.next = mark + 1;
            }
        }
        if !is_given_up && self.taken.first().is_none_or(|mark| *mark > to) {
            self.record.next = self.record.next.max(to);
        }
        passed
    }
}

/// All pending clones.
#[derive(Default)]
pub struct PendingClones {
    clones: BTreeMap<MapId, Pending>,
    /// Source and clone of each.
    by_source: BTreeSet<(MapId, MapId)>,
    /// Whether there are any, for readers without the publish lock.
    is_any: Arc<AtomicBool>,
}

impl PendingClones {
    /// Whether there are any. It changes under the publish lock.
    pub fn is_any(&self) -> Arc<AtomicBool> {
        self.is_any.clone()
    }

    /// The leaf that holds what a map reads in one of its own.
    pub fn origin(&self, mut key: LeafKey) -> LeafKey {
        while let Some(pending) = self.clones.get(&key.map).filter(|pending| pending.lacks(key.leaf)) {
            // The record's decoder refuses a clone that is not younger than its source.
            assert!(pending.record.source < key.map, "map {} is a clone of a younger one", key.map.0);
            key.map = pending.record.source;
        }
        key
    }

    /// The maps that a map may read, each with the leaves that it may read there: its source first, then that one's
    /// source, and so on.
    pub fn sources(&self, map: MapId) -> Vec<(MapId, Range<u64>)> {
        let (mut found, mut at, mut within) = (Vec::new(), map, 0..u64::MAX);
        while let Some(Pending { record, .. }) = self.clones.get(&at) {
            within = within.start.max(record.next)..within.end.min(record.end);
            if within.is_empty() {
                break;
            }
            found.push((record.source, within.clone()));
            at = record.source;
        }
        found
    }

    /// Whether a map lacks a leaf.
    pub fn lacks(&self, key: LeafKey) -> bool {
        self.clones.get(&key.map).is_some_and(|pending| pending.lacks(key.leaf))
    }

    /// A leaf that has to be taken before this one changes. None: it may change.
    pub fn to_take(&self, key: LeafKey) -> Option<LeafKey> {
        let of = |map| LeafKey { map, leaf: key.leaf };
        self.lacks(key).then_some(key).or_else(|| self.clones_of(key.map).map(of).find(|clone| self.lacks(*clone)))
    }

    /// The clones that read a map.
    fn clones_of(&self, source: MapId) -> impl Iterator<Item = MapId> + '_ {
        let of_source = (source, MapId(0))..=(source, MapId(u64::MAX));
        self.by_source.range(of_source).map(|(_, target)| *target)
    }

    /// How many clones there are, how many of them read this map, and how many maps this one reads, one through the
    /// other.
    pub fn counts(&self, map: MapId) -> CloneCounts {
        let (all, of_map) = (self.clones.len(), self.clones_of(map).count());
        CloneCounts { all, of_map, depth: self.sources(map).len() }
    }

    /// The oldest clone that reads a map.
    pub fn oldest_of(&self, source: MapId) -> Option<MapId> {
        self.clones_of(source).next()
    }

    /// The oldest clone that background work completes.
    pub fn oldest(&self) -> Option<MapId> {
        self.clones.iter().find(|(_, pending)| !pending.is_parked).map(|(target, _)| *target)
    }

    /// The record of a clone.
    pub fn record(&self, target: MapId) -> Option<PendingClone> {
        self.clones.get(&target).map(|pending| pending.record)
    }

    /// The clones that lack leaves, in order.
    pub fn incomplete(&self) -> Vec<MapId> {
        let lacks_some = |pending: &Pending| pending.record.next < pending.record.end;
        self.clones.iter().filter(|(_, pending)| lacks_some(pending)).map(|(target, _)| *target).collect()
    }

    /// Leaves a clone alone until the volume is opened again.
    pub fn park(&mut self, target: MapId) {
        self.clones.entry(target).and_modify(|pending| pending.is_parked = true);
    }

    /// Takes in a record, after opening.
    pub fn restore(&mut self, target: MapId, record: PendingClone) {
        self.by_source.insert((record.source, target));
        self.clones.insert(target, Pending { record, taken: BTreeSet::new(), is_parked: false });
        self.is_any.store(true, Release);
    }

    /// Takes in a mark, after the records. False: no clone has it.
    pub fn restore_mark(&mut self, key: LeafKey) -> bool {
        self.clones.get_mut(&key.map).is_some_and(|pending| pending.taken.insert(key.leaf))
    }

    /// Whether a step is still to be done.
    pub fn is_due(&self, step: CloneStep) -> bool {
        match step {
            CloneStep::Begin { .. } => true,
            CloneStep::Take(key) => self.lacks(key),
            CloneStep::Advance { target, .. } => self.clones.contains_key(&target),
        }
    }

    /// Does a step that is due. Returns the records that change.
    pub fn apply(&mut self, step: CloneStep) -> Vec<Put> {
        match step {
            CloneStep::Begin { target, source, end } => {
                let record = PendingClone { source, next: 0, end };
                self.restore(target, record);
                vec![(keys::pending_clone(target), Some(record.encode(target)))]
            }
            CloneStep::Take(key) => self.take(key),
            CloneStep::Advance { target, to } => self.advance(target, to),
        }
    }

    /// The map is detached: a clone that no other clone reads needs nothing more of its source. Returns the records
    /// that change.
    pub fn give_up(&mut self, map: MapId) -> Vec<Put> {
        if self.clones_of(map).next().is_some() {
            return Vec::new();
        }
        let Some(pending) = self.clones.get_mut(&map) else { return Vec::new() };
        (pending.record.end, pending.is_parked) = (pending.record.next, false);
        vec![(keys::pending_clone(map), Some(pending.record.encode(map)))]
    }

    fn take(&mut self, key: LeafKey) -> Vec<Put> {
        let pending = self.clones.get_mut(&key.map).expect("the step is due");
        if pending.record.next == key.leaf {
            return self.advance(key.map, key.leaf + 1);
        }
        pending.taken.insert(key.leaf);
        vec![(keys::taken_leaf(key), Some(Vec::new()))]
    }

    /// Moves on, as far as few enough marks are passed. A clone without marks that lacks nothing is complete.
    fn advance(&mut self, target: MapId, to: u64) -> Vec<Put> {
        let pending = self.clones.get_mut(&target).expect("the step is due");
        let passed = pending.pass(to);
        let mark = |leaf: u64| keys::taken_leaf(LeafKey { map: target, leaf });
        let mut changes: Vec<Put> = passed.into_iter().map(|leaf| (mark(leaf), None)).collect();
        let record = pending.record;
        if record.next < record.end || !pending.taken.is_empty() {
            changes.push((keys::pending_clone(target), Some(record.encode(target))));
            return changes;
        }
        self.clones.remove(&target);
        self.by_source.remove(&(record.source, target));
        self.is_any.store(!self.clones.is_empty(), Release);
        changes.push((keys::pending_clone(target), None));
        changes
    }
}

/// Numbers of pending clones, for the bounds of new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneCounts {
    /// All.
    pub all: usize,
    /// Those that read a certain map.
    pub of_map: usize,
    /// The maps that this one reads, one through the other.
    pub depth: usize,
}

/// Whether there are pending clones, as far as a thread without the publish lock knows.
pub fn are_any(flag: &AtomicBool) -> bool {
    flag.load(Acquire)
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;

    const A: MapId = MapId(1);
    const B: MapId = MapId(2);
    const C: MapId = MapId(3);

    fn key(map: MapId, leaf: u64) -> LeafKey {
        LeafKey { map, leaf }
    }

    /// B reads A, and C reads B.
    fn chain() -> PendingClones {
        let mut clones = PendingClones::default();
        clones.apply(CloneStep::Begin { target: B, source: A, end: 10 });
        clones.apply(CloneStep::Begin { target: C, source: B, end: 5 });
        clones
    }

    #[test]
    fn a_clone_of_a_clone_reads_where_the_first_one_reads_until_that_has_taken() {
        let mut clones = chain();
        assert_eq!(clones.origin(key(C, 4)), key(A, 4));
        assert_eq!(clones.origin(key(C, 5)), key(C, 5), "behind the end");
        assert_eq!(clones.sources(C), [(B, 0..5), (A, 0..5)]);
        clones.apply(CloneStep::Take(key(B, 4)));
        assert_eq!((clones.origin(key(C, 4)), clones.origin(key(C, 3))), (key(B, 4), key(A, 3)));
        clones.apply(CloneStep::Take(key(C, 4)));
        assert_eq!(clones.origin(key(C, 4)), key(C, 4));
    }

    #[test]
    fn before_a_leaf_changes_it_is_taken_by_the_map_itself_and_by_the_clones_that_read_it() {
        let mut clones = chain();
        assert_eq!(clones.to_take(key(A, 1)), Some(key(B, 1)));
        assert_eq!(clones.to_take(key(C, 1)), Some(key(C, 1)));
        assert_eq!(clones.to_take(key(B, 1)), Some(key(B, 1)));
        clones.apply(CloneStep::Take(key(B, 1)));
        assert_eq!((clones.to_take(key(A, 1)), clones.to_take(key(B, 1))), (None, Some(key(C, 1))));
        assert_eq!(clones.to_take(key(A, 10)), None, "behind the end");
    }

    #[test]
    fn taking_in_order_moves_the_place_and_taking_out_of_order_leaves_a_mark_until_the_place_passes_it() {
        let mut clones = chain();
        assert_eq!(clones.apply(CloneStep::Take(key(B, 2))), [(keys::taken_leaf(key(B, 2)), Some(Vec::new()))]);
        let record = |next, end| Some(PendingClone { source: A, next, end }.encode(B));
        assert_eq!(clones.apply(CloneStep::Take(key(B, 0))), [(keys::pending_clone(B), record(1, 10))]);
        assert_eq!(
            clones.apply(CloneStep::Take(key(B, 1))),
            [(keys::taken_leaf(key(B, 2)), None), (keys::pending_clone(B), record(3, 10))]
        );
        assert!(!clones.is_due(CloneStep::Take(key(B, 2))) && clones.lacks(key(B, 3)));
        clones.apply(CloneStep::Take(key(B, 8)));
        clones.apply(CloneStep::Advance { target: B, to: 7 });
        assert_eq!(clones.record(B), Some(PendingClone { source: A, next: 7, end: 10 }));
        clones.apply(CloneStep::Advance { target: B, to: 10 });
        assert_eq!((clones.record(B), clones.oldest()), (None, Some(C)));
        clones.apply(CloneStep::Advance { target: C, to: 5 });
        assert!(!are_any(&clones.is_any()));
    }

    #[test]
    fn many_marks_are_removed_in_several_steps() {
        let mut clones = PendingClones::default();
        let marks = 2 * MARKS_REMOVED_MAX as u64;
        clones.apply(CloneStep::Begin { target: B, source: A, end: 2 * marks });
        for leaf in 0..marks {
            clones.apply(CloneStep::Take(key(B, 2 * leaf + 1)));
        }
        let mut steps = 0;
        while clones.record(B).is_some() {
            let changes = clones.apply(CloneStep::Advance { target: B, to: 2 * marks });
            assert!(changes.len() <= MARKS_REMOVED_MAX + 1);
            assert_eq!(clones.origin(key(B, 0)), key(B, 0));
            steps += 1;
        }
        assert_eq!(steps, 2);
    }

    #[test]
    fn a_clone_that_is_given_up_lacks_nothing_and_only_loses_its_marks() {
        let mut clones = chain();
        clones.apply(CloneStep::Take(key(C, 3)));
        assert_eq!(clones.give_up(B), [], "another clone reads it");
        assert_eq!(clones.give_up(C).len(), 1);
        assert!((0..5).all(|leaf| !clones.lacks(key(C, leaf))));
        assert_eq!(clones.incomplete(), [B]);
        let mut opened = PendingClones::default();
        opened.restore(C, clones.record(C).unwrap());
        assert!(opened.restore_mark(key(C, 3)) && !opened.restore_mark(key(B, 3)));
        for clones in [&mut clones, &mut opened] {
            let removed = clones.apply(CloneStep::Advance { target: C, to: 5 });
            assert_eq!(removed, [(keys::taken_leaf(key(C, 3)), None), (keys::pending_clone(C), None)]);
        }
        assert_eq!(clones.give_up(B).len(), 1, "no clone reads it any more");
    }
}
