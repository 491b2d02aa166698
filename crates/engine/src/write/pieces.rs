//! Publishes a change of a range in pieces: it is planned as a whole before it holds anything that a commit needs, then
//! published in one commit group.
//!
//! The rule: everything that a piece needs from disk is in memory before the group is held together. So a commit, and
//! with it every fsync, waits for the pieces' publications but never for a read. A change is bounded by leaves and by
//! distinct pages of the block table (`commit/log_room.rs`). A larger change is refused, and its caller splits it.

use std::collections::BTreeSet;

use hashbrown::HashSet;

use crate::base::part;
use crate::format::group_bytes::GroupBytes;
use crate::format::page::page_of;
use crate::place::free_blocks::{FreeBlocks, RoomClaim};
use crate::place::write_out::BlockWriter;
use crate::policy::effective::FilePolicies;
use crate::space::allocator::Run;
use crate::state::loading::Metadata;
use crate::state::published::Plan;
use crate::write::map_edit::MapEdit;
use crate::write::partial_blocks::{Cuts, PartialBlocks};
use crate::write::publish::{OnPublish, Publisher};
use crate::write::range_parts::RangeParts;
use crate::{Change, Error, MapId, Pbn, Result};

/// Plans the pieces of a change of one map, whose lock the caller holds exclusively. Each of its leaves is edited once.
pub struct Planner<'a> {
    parts: &'a RangeParts,
    map: MapId,
    edit: MapEdit<'a>,
    takes: Vec<Run>,
    leaves: u64,
    /// Leaves and pages of the open piece.
    piece_leaves: usize,
    piece_pages: HashSet<u64>,
    /// Pages of all pieces.
    pages: BTreeSet<u64>,
    plans: Vec<Plan>,
    delta: i64,
}

impl<'a> Planner<'a> {
    /// Nothing is planned yet.
    pub fn new(parts: &'a RangeParts, map: MapId) -> Self {
        Self {
            parts,
            map,
            edit: MapEdit::new(parts.metadata(), map),
            takes: Vec::new(),
            leaves: 0,
            piece_leaves: 0,
            piece_pages: HashSet::new(),
            pages: BTreeSet::new(),
            plans: Vec::new(),
            delta: 0,
        }
    }

    /// Plans the change of one leaf. `edit` returns the runs to which the map takes references.
    pub fn leaf(&mut self, edit: impl FnOnce(&mut MapEdit<'a>) -> Result<Vec<Run>>) -> Result<()> {
        let bounds = self.parts.bounds();
        if self.piece_leaves >= bounds.piece_leaves || self.piece_pages.len() as u64 >= bounds.piece_pages {
            self.end_piece()?;
        }
        // The last run may have grown.
        let released = self.edit.releases().len().saturating_sub(1);
        let takes = edit(&mut self.edit)?;
        let touched: Vec<u64> = self.edit.releases()[released..].iter().chain(&takes).flat_map(pages_of).collect();
        self.piece_pages.extend(&touched);
        self.pages.extend(&touched);
        self.takes.extend(takes);
        self.piece_leaves += 1;
        self.leaves += 1;
        let is_too_large = self.leaves > bounds.gated_leaves_max
            // A single leaf always fits, because it cannot be split.
            || self.leaves > 1 && self.pages.len() as u64 > bounds.group_pages;
        if is_too_large { Err(Error::TooLargeForGroup) } else { Ok(()) }
    }

    fn end_piece(&mut self) -> Result<()> {
        let edit = std::mem::replace(&mut self.edit, MapEdit::new(self.parts.metadata(), self.map));
        self.delta += edit.mapped_delta;
        let mut plan = edit.into_plan();
        plan.increfs = self.parts.takes_of(&std::mem::take(&mut self.takes))?;
        plan.sort();
        self.plans.push(plan);
        self.piece_pages.clear();
        self.piece_leaves = 0;
        Ok(())
    }

    /// All pieces. At least one, which holds the caller's records.
    pub fn finish(mut self) -> Result<Pieces> {
        self.end_piece()?;
        let bytes = GroupBytes::of_leaves(self.leaves);
        Ok(Pieces { map: self.map, plans: self.plans, delta: self.delta, bytes })
    }
}

fn pages_of(run: &Run) -> impl Iterator<Item = u64> {
    page_of(run.pbn)..=page_of(Pbn(run.end().0 - 1))
}

/// The pieces of a change, ready to be published.
pub struct Pieces {
    map: MapId,
    plans: Vec<Plan>,
    /// By how many blocks the map grows.
    delta: i64,
    /// The most that they take of the log.
    bytes: GroupBytes,
}

impl Pieces {
    /// How many more blocks are reserved afterwards.
    pub fn reserved(&self) -> u64 {
        let reserved: i64 = self.plans.iter().map(|plan| plan.reserved_delta).sum();
        u64::try_from(reserved).unwrap_or(0)
    }

    /// Whether it is published as one piece.
    pub fn is_one(&self) -> bool {
        self.plans.len() == 1
    }

    /// Blocks that get a further reference.
    pub fn taken(&self) -> u64 {
        self.plans.iter().map(|plan| plan.increfs.len() as u64).sum()
    }

    fn pages(&self) -> Vec<u64> {
        let pages: BTreeSet<u64> = self.plans.iter().flat_map(Plan::pages).collect();
        pages.into_iter().collect()
    }
}

part! {
    /// Changes ranges of maps: truncates, zeroes, reserves, clones and detaches.
    pub struct RangeChanges {
        pub(super) base: health, journal, stats, policy, state;
        metadata: Metadata, free_blocks: FreeBlocks, file_policies: FilePolicies, publisher: Publisher,
        block_writer: BlockWriter, partial_blocks: PartialBlocks, range_parts: RangeParts
    }
}

impl RangeChanges {
    /// Publishes the pieces of a change in one group, so that a crash leaves all of it or nothing. An error before the
    /// first piece leaves everything as it was. A later error cannot be undone: the volume becomes read-only, so that
    /// the part that was published is never committed.
    ///
    /// `planned`: the pieces, with room for their reservations. `cuts`: blocks that the range cuts, which are in the
    /// plans. They are given up if nothing is published.
    pub fn publish_pieces<G: OnPublish>(
        &self,
        planned: Result<(Pieces, Option<RoomClaim<'_>>)>,
        cuts: &Cuts,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        let (pieces, room) = planned.inspect_err(|_| self.partial_blocks.forget_cuts(cuts))?;
        let (map, mut is_begun) = (pieces.map, false);
        let result = self.publish_each(pieces, room, with, &mut is_begun);
        if !is_begun {
            self.partial_blocks.forget_cuts(cuts);
            return result;
        }
        self.partial_blocks.cuts_landed(map, cuts);
        self.policy.accounts().forget(map);
        result.inspect_err(|error| self.health.fail(error))?;
        self.block_writer.write_out_if_much()
    }

    fn publish_each<G: OnPublish>(
        &self,
        pieces: Pieces,
        mut room: Option<RoomClaim<'_>>,
        with: impl FnOnce(i64, &mut Change) -> G,
        is_begun: &mut bool,
    ) -> Result<()> {
        let _held = self.hold_group(&pieces.pages(), pieces.bytes)?;
        self.look_ahead(&pieces)?;
        let mut with = Some(with);
        let mut plans = pieces.plans.into_iter().peekable();
        while let Some(mut plan) = plans.next() {
            let is_last = plans.peek().is_none();
            let held = with.take_if(|_| is_last).map(|with| with(pieces.delta, &mut plan.change));
            self.apply_piece(plan, room.as_mut())?;
            *is_begun = true;
            held.into_iter().for_each(OnPublish::published);
        }
        Ok(())
    }

    fn apply_piece(&self, mut plan: Plan, room: Option<&mut RoomClaim<'_>>) -> Result<()> {
        let reserved = u64::try_from(plan.reserved_delta).unwrap_or(0);
        let claimed = room.as_ref().map_or(0, |room| room.blocks().min(reserved));
        plan.reserved_claim = claimed as i64;
        // Only blocks that the range cuts are stored anew, and each of them was claimed.
        plan.claimed = claimed + plan.stores.len() as u64;
        if let Some(refusal) = self.publisher.publish_plan(plan)? {
            return Err(self.why_not_taken(refusal.pbns[0]));
        }
        if let Some(room) = room {
            room.spend(claimed);
        }
        Ok(())
    }

    /// Checks whether a later piece would be refused, before the first one is published.
    fn look_ahead(&self, pieces: &Pieces) -> Result<()> {
        if pieces.is_one() {
            return Ok(());
        }
        for plan in &pieces.plans {
            let refused = {
                let mut state = self.state.lock();
                match state.contradiction(plan) {
                    Some(error) => return Err(error),
                    None => state.refused(plan),
                }
            };
            if let Some(pbn) = refused.first() {
                return Err(self.why_not_taken(*pbn));
            }
        }
        Ok(())
    }

    /// Waits for log room for a change of a range, and keeps the change in one group while the result lives, with these
    /// pages of the block table in memory. The pages are loaded before anything is held that a commit needs, and kept
    /// as if they were changed: changed pages stay until a checkpoint. A checkpoint that ends meanwhile may drop them,
    /// and then they are loaded again.
    fn hold_group(&self, pages: &[u64], bytes: GroupBytes) -> Result<impl Sized + use<'_>> {
        loop {
            self.metadata.keep_pages(pages)?;
            let room = self.publisher.room().claim_log_room_for_range(bytes);
            let gate = self.journal.gate();
            let is_whole = {
                let mut state = self.state.lock();
                let is_whole = pages.iter().all(|page| state.table.page(*page).is_some());
                if is_whole {
                    state.table.keep(pages);
                }
                is_whole
            };
            if is_whole {
                return Ok((room, gate));
            }
        }
    }
}
