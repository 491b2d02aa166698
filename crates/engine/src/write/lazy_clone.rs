//! Lazy clones: a new map that reads another one at once, and takes references leaf by leaf later.
//!
//! A clone begins with one record, in the group of the caller's records. Until a leaf is taken, the clone reads it in
//! its source. A change of a map calls [`LazyClones::own`] first, with the map locked; the publication of a change that
//! forgot it panics before it changes anything. Background work takes the rest ([`LazyClones::step`]).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::base::part;
use crate::format::extent_leaf::{ExtentLeaf, Target};
use crate::format::group_bytes::GroupBytes;
use crate::format::keys::{self, LEAF_BLOCKS, LeafKey};
use crate::format::pending_clone::PendingClone;
use crate::space::allocator::Run;
use crate::state::extents::pages_in;
use crate::state::loading::Metadata;
use crate::state::pending_clones::{CloneCounts, CloneStep, are_any};
use crate::state::published::{Mapped, Plan};
use crate::sync::{AtomicBool, LockRank, Mutex, RwLockWriteGuard};
use crate::write::publish::{OnPublish, Publisher};
use crate::{Blocks, Change, Error, FilePolicy, Lbn, MapId, Result};

/// Most clones that read one map: each makes a change of a leaf of it dearer.
const CLONES_OF_MAP_MAX: usize = 8;
/// Most maps that a new clone reads, one through the other.
const DEPTH_MAX: usize = 4;
/// Most pending clones: bounds the memory for their marks.
const CLONES_MAX: usize = 64;
/// Leaves taken by one step of background work.
const STEP_LEAVES: usize = 32;
/// Leaves counted at a time.
const LEAVES_COUNTED: usize = 256;
/// Changed leaves whose reserved blocks are counted while the source is locked.
const COUNTED_LOCKED_MAX: usize = 16;
/// How often a clone is begun again because its source changed while its reserved blocks were counted.
const TRIES: u32 = 8;

part! {
    /// Begins and completes lazy clones.
    pub struct LazyClones {
        base: policy, maps, state, stats, signals;
        metadata: Metadata, publisher: Publisher
    } own {
        is_any: Arc<AtomicBool> = base.state.lock().clones.is_any(),
        /// Until when background work leaves the log to a clone that is about to begin.
        makes_way_until: Mutex<Option<Instant>> = Mutex::new(LockRank::Leaf, None)
    }
}

impl LazyClones {
    /// After opening: reads the records of pending clones.
    pub fn restore(&self) -> Result<()> {
        let damaged =
            |what| log::error!("{}", Error::corrupt(what, "it is no record of this volume (see oncefs fsck)"));
        let (from, to) = keys::all_pending_clones();
        for (key, value) in self.metadata.scan(&from, &to, usize::MAX)? {
            let target = keys::parse_pending_clone(&key);
            match target.and_then(|target| Some((target, PendingClone::decode(target, &value)?))) {
                Some((target, record)) => self.state.lock().clones.restore(target, record),
                None => damaged("the record of a pending clone"),
            }
        }
        let (from, to) = keys::all_taken_leaves();
        for (key, _) in self.metadata.scan(&from, &to, usize::MAX)? {
            let is_known = keys::parse_taken_leaf(&key).is_some_and(|key| self.state.lock().clones.restore_mark(key));
            if !is_known {
                damaged("the mark of a clone's leaf");
            }
        }
        self.restore_lost_marks()
    }

    /// A leaf that a clone has is one that it took, though damage may have cost its mark. Without this the clone would
    /// read what its source has there by now.
    fn restore_lost_marks(&self) -> Result<()> {
        let clones = self.state.lock().clones.incomplete();
        for map in clones {
            let Some(PendingClone { next, end, .. }) = self.state.lock().clones.record(map) else { continue };
            let mut from = next;
            while from < end {
                let leaves = self.metadata.own_leaves(map, from, LEAVES_COUNTED)?;
                let mut state = self.state.lock();
                for &leaf in leaves.iter().take_while(|leaf| **leaf < end) {
                    if state.clones.restore_mark(LeafKey { map, leaf }) {
                        log::warn!("a clone's leaf had lost its mark: map {}, leaf {leaf}", map.0);
                    }
                }
                drop(state);
                from = match leaves.last() {
                    Some(last) if leaves.len() == LEAVES_COUNTED => last + 1,
                    _ => end,
                };
            }
        }
        Ok(())
    }

    /// See [`crate::Store::prepare_clone`].
    pub fn prepare(&self, source: MapId) -> Result<()> {
        while let Some(target) = self.in_the_way(source) {
            self.publisher.usable()?;
            self.publisher.room().wait_for_room();
            self.step_of(target)?;
        }
        self.count_reserved(source)
    }

    /// See [`crate::Store::clone_begins_at_once`].
    pub fn begins_at_once(&self, source: MapId) -> bool {
        self.in_the_way(source).is_none()
    }

    /// A clone to complete before another one of `source` begins.
    fn in_the_way(&self, source: MapId) -> Option<MapId> {
        let state = self.state.lock();
        let CloneCounts { all, of_map, depth } = state.clones.counts(source);
        if depth >= DEPTH_MAX {
            return Some(source);
        }
        let of_source = state.clones.oldest_of(source).filter(|_| of_map >= CLONES_OF_MAP_MAX);
        of_source.or_else(|| state.clones.oldest().filter(|_| all >= CLONES_MAX))
    }

    /// See [`crate::Store::clone_map`].
    pub fn clone_map<G: OnPublish>(
        &self,
        source: MapId,
        blocks: impl FnOnce() -> Blocks,
        with: impl FnOnce(MapId, u64, &mut Change) -> G,
    ) -> Result<MapId> {
        for _ in 0..TRIES {
            self.prepare(source)?;
            self.publisher.usable()?;
            let locked = self.metadata.lock_of(source).write();
            self.metadata.attached(source)?;
            let Some(reserved) = self.reserved_now(source)? else { continue };
            let target = self.maps.take_id();
            self.policy.note_published_policy(target, FilePolicy::default());
            self.begin(source, target, blocks(), |change| with(target, reserved, change))?;
            self.state.lock().reserved_counts.end(source);
            drop(locked);
            return Ok(target);
        }
        Err(Error::Invalid("the reserved space of the source changes all the time".to_owned()))
    }

    fn begin<G: OnPublish>(
        &self,
        source: MapId,
        target: MapId,
        blocks: Blocks,
        with: impl FnOnce(&mut Change) -> G,
    ) -> Result<()> {
        let _room = self.publisher.room().claim_log_room(GroupBytes::RECORDS);
        let end = blocks.0.div_ceil(LEAF_BLOCKS);
        let clone = (end > 0).then_some(CloneStep::Begin { target, source, end });
        let mut plan = Plan { clone, ..Plan::default() };
        let held = with(&mut plan.change);
        self.publisher.apply_certain(plan)?;
        held.published();
        Ok(())
    }

    /// Counts the reserved blocks of a map before it is locked, so that few leaves are left to count then.
    fn count_reserved(&self, map: MapId) -> Result<()> {
        if self.state.lock().totals.reserved == Blocks(0) {
            return Ok(());
        }
        if !self.state.lock().reserved_counts.is_whole(map) {
            self.state.lock().reserved_counts.begin(map);
            let mut from = 0;
            loop {
                let leaves = self.metadata.stored_leaves(map, from, LEAVES_COUNTED)?;
                self.count_leaves(map, &leaves)?;
                match leaves.last() {
                    Some(last) if leaves.len() == LEAVES_COUNTED => from = last + 1,
                    _ => break,
                }
            }
            self.state.lock().reserved_counts.set_whole(map);
        }
        for _ in 0..TRIES {
            let changed = self.state.lock().reserved_counts.take_changed(map);
            self.count_leaves(map, &changed)?;
            if changed.len() <= COUNTED_LOCKED_MAX {
                break;
            }
        }
        Ok(())
    }

    fn count_leaves(&self, map: MapId, leaves: &[u64]) -> Result<()> {
        for &leaf in leaves {
            let key = LeafKey { map, leaf };
            // A leaf that is not counted again would make the count wrong.
            let found = self.metadata.leaf(key).inspect_err(|_| self.state.lock().reserved_counts.end(map))?;
            self.state.lock().reserved_counts.set(key, found.reserved_blocks());
        }
        Ok(())
    }

    /// The number of reserved blocks of a map whose lock the caller holds. None: too many leaves are to be counted.
    fn reserved_now(&self, map: MapId) -> Result<Option<u64>> {
        if self.state.lock().totals.reserved == Blocks(0) {
            return Ok(Some(0));
        }
        let changed = self.state.lock().reserved_counts.take_changed(map);
        let (few, rest) = changed.split_at(changed.len().min(COUNTED_LOCKED_MAX));
        self.count_leaves(map, few)?;
        let mut state = self.state.lock();
        rest.iter().for_each(|leaf| state.reserved_counts.note_changed(LeafKey { map, leaf: *leaf }));
        Ok(state.reserved_counts.total(map))
    }

    /// Whether any clone is pending. It may become so only under the lock of its source.
    pub fn are_any(&self) -> bool {
        are_any(&self.is_any)
    }

    /// Locks a map exclusively to change these leaves of it, which nothing else reads then. Most of what that takes is
    /// done before the lock.
    pub fn lock_to_change(
        &self,
        map: MapId,
        leaves: impl Iterator<Item = u64> + Clone,
    ) -> Result<RwLockWriteGuard<'_, ()>> {
        self.own(map, leaves.clone())?;
        let locked = self.metadata.lock_of(map).write();
        self.own(map, leaves)?;
        Ok(locked)
    }

    /// Gives everything that reads these leaves of a map references of its own, so that they may change. The caller
    /// holds the map's lock exclusively, and has claimed no room in the log. It may call this before too, without the
    /// lock, so that little is left to do under it.
    pub fn own(&self, map: MapId, leaves: impl IntoIterator<Item = u64>) -> Result<()> {
        if !self.are_any() {
            return Ok(());
        }
        for leaf in leaves {
            while let Some(key) = self.to_take(LeafKey { map, leaf }) {
                self.take(key)?;
            }
        }
        Ok(())
    }

    fn to_take(&self, key: LeafKey) -> Option<LeafKey> {
        self.state.lock().clones.to_take(key)
    }

    /// Takes a leaf of a pending clone, if the clone still lacks it. What the clone reads there cannot change before
    /// that, so no map is locked.
    fn take(&self, key: LeafKey) -> Result<()> {
        self.try_to_take(key).map_err(|error| not_taken(key, error))
    }

    fn try_to_take(&self, key: LeafKey) -> Result<()> {
        self.publisher.usable()?;
        let leaf = self.metadata.leaf(key)?;
        self.metadata.keep_pages(&pages_in(leaf.extents().iter().copied()))?;
        let plan = plan_take(key, &leaf);
        let taken: u64 = plan.shared.iter().map(|run| run.blocks).sum();
        match self.publisher.claim_and_publish(GroupBytes::of_leaves(1), plan)? {
            None => drop(self.stats.counters.blocks_cloned.fetch_add(taken, Relaxed)),
            Some(refusal) => {
                if let Some(pbn) = refusal.pbns.first() {
                    return Err(Error::Invalid(format!("block {pbn} has the largest number of references")));
                }
            }
        }
        Ok(())
    }

    /// Keeps the background thread from taking leaves for a moment: a clone is about to begin, perhaps while a file system
    /// stands still, and its group would wait behind theirs.
    pub fn make_way(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut makes_way_until = self.makes_way_until.lock();
        *makes_way_until = Some(makes_way_until.map_or(until, |earlier| earlier.max(until)));
    }

    /// Whether the background thread takes no leaves now.
    pub fn makes_way(&self) -> bool {
        self.makes_way_until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Does a part of the background work on one pending clone. False: none has anything left that can be done.
    pub fn step(&self) -> Result<bool> {
        if !self.are_any() {
            return Ok(false);
        }
        let Some(target) = self.state.lock().clones.oldest() else { return Ok(false) };
        self.publisher.usable()?;
        let done = self.step_of(target);
        if done.is_err() {
            self.state.lock().clones.park(target);
        }
        done.map(|()| true)
    }

    fn step_of(&self, target: MapId) -> Result<()> {
        let Some(PendingClone { next, end, .. }) = self.state.lock().clones.record(target) else { return Ok(()) };
        let leaves = self.metadata.stored_leaves(target, next, STEP_LEAVES)?;
        for &leaf in leaves.iter().filter(|leaf| **leaf < end) {
            if self.signals.is_stopped() {
                return Ok(());
            }
            let key = LeafKey { map: target, leaf };
            if self.state.lock().clones.lacks(key) {
                self.publisher.room().wait_for_background_room();
                self.take(key)?;
            }
        }
        let to = leaves.last().filter(|_| leaves.len() == STEP_LEAVES).map_or(end, |last| last + 1);
        let advance = Plan { clone: Some(CloneStep::Advance { target, to }), ..Plan::default() };
        self.publisher.claim_and_publish(GroupBytes::SMALL, advance).map(|_| ())
    }
}

/// Why a leaf cannot be taken, with the way out: until it is, neither the clone nor what it reads can change there.
fn not_taken(LeafKey { map, leaf }: LeafKey, error: Error) -> Error {
    let way_out = format!(
        "a clone or snapshot (map {}) still shares MiB {leaf} of its file with its source and cannot take it, so neither \
         changes there: delete the clone or snapshot, or unmount and run oncefs fsck -y",
        map.0
    );
    match error {
        Error::Corrupt { what, detail } => Error::Corrupt { what, detail: format!("{detail}; {way_out}") },
        Error::Io { what, source } => Error::Io { what: format!("{what}; {way_out}"), source },
        Error::Invalid(text) => Error::Invalid(format!("{text}; {way_out}")),
        other => other,
    }
}

/// The plan for taking a leaf as a clone reads it.
fn plan_take(key: LeafKey, leaf: &ExtentLeaf) -> Plan {
    let mut plan = Plan { map: Some(key.map), clone: Some(CloneStep::Take(key)), ..Plan::default() };
    for extent in leaf.extents() {
        let Target::Data(pbn) = extent.target else { unreachable!("a clone has no reserved space") };
        plan.shared.push(Run { pbn, blocks: u64::from(extent.blocks) });
        let lbn = Lbn(key.leaf * LEAF_BLOCKS + u64::from(extent.first));
        plan.mapped.push(Mapped { lbn, blocks: extent.blocks, target: extent.target });
    }
    if !leaf.is_empty() {
        plan.leaves.push((key, leaf.clone()));
    }
    plan
}
