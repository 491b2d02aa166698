//! Changes of whole ranges of a map: truncate, punch, zero, reserve, clone, detach.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use crate::format::extent_leaf::{Extent, LEAF_BLOCKS, Target};
use crate::format::group_bytes::GroupBytes;
use crate::format::keys::{LeafKey, leaf_parts};
use crate::space::allocator::Run;
use crate::state::extents::within_leaf;
use crate::state::maps::MapLocks;
use crate::state::published::Plan;
use crate::state::replacements::damaged;
use crate::sync::RwLockWriteGuard;
use crate::write::map_edit::MapEdit;
use crate::write::partial_blocks::Cuts;
use crate::write::pieces::{Pieces, Planner, RangeChanges};
use crate::write::publish::OnPublish;
use crate::{BLOCK_BYTES, Blocks, Change, Error, FilePolicy, Lbn, MapId, Pbn, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;

impl RangeChanges {
    /// See [`crate::Store::truncate`].
    pub fn truncate<G: OnPublish>(
        &self,
        map: MapId,
        size: u64,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.health.usable()?;
        self.range_parts.read_ahead_of_change(map, &(size / BLOCK..u64::MAX));
        let _map = self.metadata.lock_of(map).write();
        self.metadata.attached(map)?;
        let cuts = self.partial_blocks.cut_blocks(map, &[(size, size.next_multiple_of(BLOCK))])?;
        let whole = size.div_ceil(BLOCK)..u64::MAX;
        let pieces = self.plan_cut(map, &(size / BLOCK..u64::MAX), &whole, &cuts);
        self.publish_pieces(pieces.map(|pieces| (pieces, None)), &cuts, with)
    }

    /// Plans that whole blocks become holes. It visits only leaves that exist, because a range may be far larger than
    /// the stored part of its file.
    fn plan_cut(&self, map: MapId, touched: &Range<u64>, whole: &Range<u64>, cuts: &Cuts) -> Result<Pieces> {
        let limit = self.journal.bounds().gated_leaves_max as usize + 1;
        let mut leaves = self.metadata.stored_leaves(map, touched.start / LEAF_BLOCKS, limit)?;
        leaves.retain(|leaf| leaf * LEAF_BLOCKS < touched.end);
        self.range_parts.own(map, leaves.iter().copied())?;
        let mut planner = Planner::new(&self.range_parts, map);
        for &leaf in &leaves {
            let key = LeafKey { map, leaf };
            planner.leaf(|edit| {
                cut_leaf(edit, key, whole)?;
                cuts.add_to(edit, key)?;
                Ok(Vec::new())
            })?;
        }
        planner.finish()
    }

    /// Plans that blocks become reserved: all of `whole`, and the holes of `touched`.
    fn plan_fill(&self, map: MapId, touched: &Range<u64>, whole: &Range<u64>, cuts: &Cuts) -> Result<Pieces> {
        self.range_parts.own(map, touched.start / LEAF_BLOCKS..touched.end.div_ceil(LEAF_BLOCKS))?;
        let mut planner = Planner::new(&self.range_parts, map);
        for (key, start, end) in leaf_parts(map, Lbn(touched.start), touched.end - touched.start) {
            planner.leaf(|edit| {
                let (first, stop) = within_leaf(key.leaf, whole);
                if first < stop {
                    edit.set(key, Extent { first, blocks: stop - first, target: Target::Reserved })?;
                }
                fill_holes(edit, key, start, end)?;
                cuts.add_to(edit, key)?;
                Ok(Vec::new())
            })?;
        }
        planner.finish()
    }

    /// See [`crate::Store::zero`].
    pub fn zero<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        len: u64,
        reserve: bool,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.health.usable()?;
        let end = at + len;
        let (first, last) = (at.div_ceil(BLOCK), end / BLOCK);
        let touched = at / BLOCK..end.div_ceil(BLOCK);
        self.range_parts.read_ahead_of_change(map, &touched);
        if reserve {
            self.range_parts.read_ahead_of_filling(map, &touched);
        }
        let _map = self.metadata.lock_of(map).write();
        self.metadata.attached(map)?;
        let cuts = match first > last {
            true => self.partial_blocks.cut_blocks(map, &[(at, end)])?,
            false => self.partial_blocks.cut_blocks(map, &[(at, first * BLOCK), (last * BLOCK, end)])?,
        };
        if !reserve {
            let pieces = self.plan_cut(map, &touched, &(first..last), &cuts);
            return self.publish_pieces(pieces.map(|pieces| (pieces, None)), &cuts, with);
        }
        let planned = self.plan_fill(map, &touched, &(first..last), &cuts).and_then(|pieces| {
            let room = self.range_parts.claim_for_zeros(map, &pieces, &(first..last))?;
            Ok((pieces, Some(room)))
        });
        self.publish_pieces(planned, &cuts, with)
    }

    /// See [`crate::Store::reserve`].
    pub fn reserve<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        len: u64,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.health.usable()?;
        let touched = at / BLOCK..(at + len).div_ceil(BLOCK);
        self.range_parts.read_ahead_of_filling(map, &touched);
        let _map = self.metadata.lock_of(map).write();
        self.metadata.attached(map)?;
        let pieces = self.plan_fill(map, &touched, &(0..0), &Cuts::default())?;
        let room = self.free_blocks.claim_reservations(pieces.reserved())?;
        self.publish_pieces(Ok((pieces, Some(room))), &Cuts::default(), with)
    }

    /// See [`crate::Store::clone_blocks_if`].
    pub fn clone_blocks_if<G: OnPublish>(
        &self,
        source: (MapId, Lbn),
        target: (MapId, Lbn),
        blocks: Blocks,
        holds: impl FnOnce() -> bool,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<bool> {
        self.health.usable()?;
        let overlap = source.0 == target.0 && source.1.0.abs_diff(target.1.0) < blocks.0;
        if overlap {
            return Err(Error::Invalid("the source and the target of a clone overlap".to_owned()));
        }
        let range = |first: Lbn| first.0..first.0.saturating_add(blocks.0);
        self.range_parts.read_ahead_of_sharing(source.0, &range(source.1));
        self.range_parts.read_ahead_of_change(target.0, &range(target.1));
        self.range_parts.read_ahead_of_filling(target.0, &range(target.1));
        // The replacement of a bad block is not reused.
        let _pin = self.metadata.pin();
        let _locks = self.lock_two(source.0, target.0);
        self.metadata.attached(source.0)?;
        self.metadata.attached(target.0)?;
        if !holds() {
            return Ok(false);
        }
        let pieces = self.plan_clone(source, target, blocks)?;
        self.stats.counters.blocks_cloned.fetch_add(pieces.taken(), Relaxed);
        self.publish_pieces(Ok((pieces, None)), &Cuts::default(), with)?;
        Ok(true)
    }

    /// Plans that blocks of one map become those of another, by leaves of the target.
    fn plan_clone(&self, source: (MapId, Lbn), target: (MapId, Lbn), blocks: Blocks) -> Result<Pieces> {
        let (first, end) = (target.1, target.1.plus(blocks.0));
        self.range_parts.own(target.0, first.0 / LEAF_BLOCKS..end.0.div_ceil(LEAF_BLOCKS))?;
        let mut planner = Planner::new(&self.range_parts, target.0);
        let mut from = source.1;
        for (key, start, end) in leaf_parts(target.0, target.1, blocks.0) {
            let wanted = self.range_parts.targets_to_share(source.0, from, u64::from(end - start))?;
            from = from.plus(u64::from(end - start));
            planner.leaf(|edit| {
                let mut first = start;
                for (target, blocks) in &wanted {
                    edit.set(key, Extent { first, blocks: *blocks as u16, target: *target })?;
                    first += *blocks as u16;
                }
                assert_eq!(first, end, "every block of {key:?} gets what the source has");
                Ok(wanted.iter().filter_map(run_of).collect())
            })?;
        }
        planner.finish()
    }

    /// Why a block cannot take another reference from the change of a range.
    pub(super) fn why_not_taken(&self, pbn: Pbn) -> Error {
        match self.state.lock().bad.get(pbn) {
            Some(_) => damaged(pbn),
            None => Error::Invalid(format!("block {pbn} has the largest number of references")),
        }
    }

    /// See [`crate::Store::detach`].
    pub fn detach<G: OnPublish>(&self, map: MapId, with: impl FnOnce(&mut Change) -> G) -> Result<()> {
        self.health.usable()?;
        let _map = self.metadata.lock_of(map).write();
        self.metadata.attached(map)?;
        let _room = self.publisher.room().claim_log_room(GroupBytes::RECORDS);
        let mut plan = Plan { map: Some(map), detach: Some(map), ..Plan::default() };
        let held = with(&mut plan.change);
        // After `with`, because the caller's locks keep other threads from setting a policy for the file.
        self.file_policies.first_policy(&mut plan.change, map, FilePolicy::default());
        self.publisher.apply_certain(plan)?;
        held.published();
        Ok(())
    }

    /// Locks two maps, in an order that all callers share.
    fn lock_two(&self, a: MapId, b: MapId) -> (RwLockWriteGuard<'_, ()>, Option<RwLockWriteGuard<'_, ()>>) {
        let (low, high) = if MapLocks::index_of(a) <= MapLocks::index_of(b) { (a, b) } else { (b, a) };
        let first = self.metadata.lock_of(low).write();
        let second = (MapLocks::index_of(low) != MapLocks::index_of(high)).then(|| self.metadata.lock_of(high).write());
        (first, second)
    }
}

fn cut_leaf(edit: &mut MapEdit, key: LeafKey, blocks: &Range<u64>) -> Result<()> {
    let (start, end) = within_leaf(key.leaf, blocks);
    if start >= end {
        return Ok(());
    }
    if (start, u64::from(end)) == (0, LEAF_BLOCKS) {
        return edit.drop_leaf(key);
    }
    edit.set(key, Extent { first: start, blocks: end - start, target: Target::Hole })
}

fn fill_holes(edit: &mut MapEdit, key: LeafKey, start: u16, end: u16) -> Result<()> {
    let holes: Vec<Extent> = edit.look(key, start, end)?;
    for hole in holes.into_iter().filter(|extent| extent.target == Target::Hole) {
        edit.set(key, Extent { target: Target::Reserved, ..hole })?;
    }
    Ok(())
}

fn run_of((target, blocks): &(Target, u64)) -> Option<Run> {
    match target {
        Target::Data(pbn) => Some(Run { pbn: *pbn, blocks: *blocks }),
        Target::Hole | Target::Reserved => None,
    }
}
