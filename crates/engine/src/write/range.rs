//! Changes of whole ranges of a map: truncate, punch, zero, reserve, seek, clone, detach.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use crate::core::Core;
use crate::format::group_bytes::GroupBytes;
use crate::format::keys::shard_parts;
use crate::format::keys::{self, ShardKey};
use crate::format::page::page_of;
use crate::format::shard::{Extent, SHARD_BLOCKS, Target};
use crate::read::checked::damaged;
use crate::space::allocator::Run;
use crate::space::claim::{RoomClaim, blocks_in};
use crate::state::maps::MapLocks;
use crate::state::published::{Incref, Plan};
use crate::state::table::damaged_entry;
use crate::sync::RwLockWriteGuard;
use crate::write::partial_blocks::Cuts;
use crate::write::publish::MapEdit;
use crate::write::publish::OnPublish;
use crate::{BLOCK_BYTES, Blocks, Change, Error, FilePolicy, Lbn, MapId, Pbn, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What reserving does to whole blocks.
#[derive(Clone, Copy)]
enum Fill {
    /// They become reserved.
    Reserved,
    /// Holes among them become reserved.
    ReservedHoles,
}

/// How far a change has come that is published in pieces.
struct Pieces<'a> {
    /// Blocks that the range cuts; they go with the first piece.
    cuts: Cuts,
    /// Room for the reservations that are still to be made; None: it makes none.
    room: Option<RoomClaim<'a>>,
    /// By how many blocks the map grows.
    delta: i64,
    /// Whether a piece was published.
    is_begun: bool,
}

impl Pieces<'_> {
    /// Edits the map for the next piece.
    fn next_edit<'a>(&self, core: &'a Core, map: MapId) -> Result<MapEdit<'a>> {
        let mut edit = MapEdit::new(core, map);
        if !self.is_begun {
            self.cuts.add_to(&mut edit)?;
        }
        Ok(edit)
    }
}

impl Core {
    /// See [`crate::Store::truncate`].
    pub fn truncate<G: OnPublish>(
        &self,
        map: MapId,
        size: u64,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.health.usable()?;
        let _map = self.maps.lock(map).write();
        self.attached(map)?;
        let _group = self.one_group(self.stored_shards_of(map, &(size / BLOCK..u64::MAX))?)?;
        let cuts = self.cut_blocks(map, &[(size, size.next_multiple_of(BLOCK))])?;
        let cut = |pieces: &mut Pieces| self.cut_range(map, size.div_ceil(BLOCK)..u64::MAX, pieces, with);
        self.in_pieces(map, cuts, None, cut)
    }

    /// Does a change that is published in pieces. An error before the first one leaves everything as it was. One
    /// behind it cannot be undone: the volume is read-only, so that what there is of the change is never committed.
    fn in_pieces(
        &self,
        map: MapId,
        cuts: Cuts,
        room: Option<RoomClaim<'_>>,
        work: impl FnOnce(&mut Pieces) -> Result<()>,
    ) -> Result<()> {
        let mut pieces = Pieces { cuts, room, delta: 0, is_begun: false };
        let result = work(&mut pieces);
        if !pieces.is_begun {
            self.forget_cuts(&pieces.cuts);
            return result;
        }
        self.cuts_landed(map, &pieces.cuts);
        self.policy.accounts().forget(map);
        result.inspect_err(|error| self.health.fail(error))?;
        self.write_out_if_much()
    }

    /// Makes whole blocks holes, piece by piece. Only shards that exist are visited: a range may be far larger
    /// than what its file holds.
    fn cut_range<G: OnPublish>(
        &self,
        map: MapId,
        blocks: Range<u64>,
        pieces: &mut Pieces,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        let piece_shards = self.journal.bounds().piece_shards;
        let mut at = blocks.start / SHARD_BLOCKS;
        loop {
            let mut shards = self.stored_shards(map, at, piece_shards)?;
            shards.retain(|shard| shard * SHARD_BLOCKS < blocks.end);
            let mut edit = pieces.next_edit(self, map)?;
            for &shard in &shards {
                cut_shard(&mut edit, ShardKey { map, shard }, &blocks)?;
            }
            pieces.delta += edit.mapped_delta;
            let mut plan = edit.into_plan();
            if shards.len() < piece_shards {
                let held = with(pieces.delta, &mut plan.change);
                self.apply_piece(plan, pieces)?;
                held.published();
                return Ok(());
            }
            self.apply_piece(plan, pieces)?;
            at = shards.last().expect("a full piece") + 1;
        }
    }

    fn apply_piece(&self, mut plan: Plan, pieces: &mut Pieces) -> Result<()> {
        let reserved = u64::try_from(plan.reserved_delta).unwrap_or(0);
        let claimed = pieces.room.as_ref().map_or(0, |room| room.blocks().min(reserved));
        plan.reserved_claim = claimed as i64;
        plan.claimed = claimed + if pieces.is_begun { 0 } else { blocks_in(&pieces.cuts.runs()) };
        self.apply_certain(plan)?;
        pieces.is_begun = true;
        if let Some(room) = &mut pieces.room {
            room.spend(claimed);
        }
        Ok(())
    }

    /// Waits for room for a change of a range, and keeps it in one group while the result lives, so that a crash leaves all
    /// of it or nothing. The caller holds the map's lock.
    fn one_group(&self, shards: u64) -> Result<impl Sized + use<'_>> {
        if shards > self.journal.bounds().gated_shards_max {
            return Err(Error::TooLargeForGroup);
        }
        let room = self.claim_log_room(GroupBytes::of_shards(shards));
        Ok((self.journal.gate(), room))
    }

    /// How many shards of a range exist, or more than one group takes.
    fn stored_shards_of(&self, map: MapId, blocks: &Range<u64>) -> Result<u64> {
        let limit = self.journal.bounds().gated_shards_max as usize + 1;
        let mut shards = self.stored_shards(map, blocks.start / SHARD_BLOCKS, limit)?;
        shards.retain(|shard| shard * SHARD_BLOCKS < blocks.end);
        Ok(shards.len() as u64)
    }

    /// See [`crate::Store::parts`].
    pub fn parts(&self, map: MapId, bytes: &Range<u64>, fills_holes: bool) -> Result<Vec<Range<u64>>> {
        const SHARD_BYTES: u64 = SHARD_BLOCKS * BLOCK;
        let shards_max = self.journal.bounds().gated_shards_max;
        let (mut parts, mut from) = (Vec::new(), bytes.start);
        loop {
            let first = from / SHARD_BYTES;
            let next = match fills_holes {
                true => Some(first + shards_max),
                false => self.stored_shards(map, first, shards_max as usize + 1)?.get(shards_max as usize).copied(),
            };
            let Some(end) = next.and_then(|next| next.checked_mul(SHARD_BYTES)).filter(|end| *end < bytes.end) else {
                parts.push(from..bytes.end);
                return Ok(parts);
            };
            parts.push(from..end);
            from = end;
        }
    }

    /// See [`crate::Store::change_blocks_max`]. A range that begins within a shard reaches into one more.
    pub fn change_blocks_max(&self) -> Blocks {
        Blocks((self.journal.bounds().gated_shards_max - 1) * SHARD_BLOCKS)
    }

    /// Shards of a map that may hold something, from number `from` on, in order, at most `limit`.
    pub fn stored_shards(&self, map: MapId, from: u64, limit: usize) -> Result<Vec<u64>> {
        let mut shards = self.state.lock().shards.in_memory(map, from, limit);
        let bounds =
            (keys::shard(ShardKey { map, shard: from }), keys::shard(ShardKey { map: MapId(map.0 + 1), shard: 0 }));
        let stored = self.stored.scan(&bounds.0, &bounds.1, limit)?;
        shards.extend(stored.iter().filter_map(|(key, _)| keys::parse_shard(key)).map(|key| key.shard));
        shards.sort_unstable();
        shards.dedup();
        shards.truncate(limit);
        Ok(shards)
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
        let _map = self.maps.lock(map).write();
        self.attached(map)?;
        let end = at + len;
        let (first, last) = (at.div_ceil(BLOCK), end / BLOCK);
        let touched = at / BLOCK..end.div_ceil(BLOCK);
        let room = if reserve { Some(self.claim_for_zeros(map, &touched, &(first..last))?) } else { None };
        let shards = if reserve { shards_of(&touched) } else { self.stored_shards_of(map, &touched)? };
        let _group = self.one_group(shards)?;
        let cuts = match first > last {
            true => self.cut_blocks(map, &[(at, end)])?,
            false => self.cut_blocks(map, &[(at, first * BLOCK), (last * BLOCK, end)])?,
        };
        self.in_pieces(map, cuts, room, |pieces| {
            if !reserve {
                return self.cut_range(map, first..last, pieces, with);
            }
            let whole = parts_of(map, first..last, Fill::Reserved);
            self.fill_parts(map, whole.chain(parts_of(map, touched, Fill::ReservedHoles)), pieces, with)
        })
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
        let _map = self.maps.lock(map).write();
        self.attached(map)?;
        let touched = at / BLOCK..(at + len).div_ceil(BLOCK);
        let room = self.claim_for_holes(map, &touched)?;
        let _group = self.one_group(shards_of(&touched))?;
        self.in_pieces(map, Cuts::default(), Some(room), |pieces| {
            self.fill_parts(map, parts_of(map, touched, Fill::ReservedHoles), pieces, with)
        })
    }

    /// Fills parts of shards, piece by piece.
    fn fill_parts<G: OnPublish>(
        &self,
        map: MapId,
        parts: impl Iterator<Item = (ShardKey, u16, u16, Fill)>,
        pieces: &mut Pieces,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        let piece_shards = self.journal.bounds().piece_shards;
        let mut parts = parts.peekable();
        loop {
            let mut edit = pieces.next_edit(self, map)?;
            for (key, start, end, fill) in parts.by_ref().take(piece_shards) {
                fill_part(&mut edit, key, start, end, fill)?;
            }
            pieces.delta += edit.mapped_delta;
            let mut plan = edit.into_plan();
            if parts.peek().is_none() {
                let held = with(pieces.delta, &mut plan.change);
                self.apply_piece(plan, pieces)?;
                held.published();
                return Ok(());
            }
            self.apply_piece(plan, pieces)?;
        }
    }

    /// See [`crate::Store::seek_data`].
    pub fn seek_data(&self, map: MapId, from: u64, end: u64) -> Result<Option<u64>> {
        let _map = self.maps.lock(map).read();
        self.attached(map)?;
        let byte = self.next_stored(map, Lbn(from / BLOCK), Lbn(end.div_ceil(BLOCK)))?.map(|lbn| lbn.0 * BLOCK);
        Ok(byte.map(|byte| byte.max(from)).filter(|byte| *byte < end))
    }

    /// The first block with data from an lbn on, before `stop`. The caller holds the map's lock, or bears with an answer
    /// that is out of date.
    pub fn next_stored(&self, map: MapId, from: Lbn, stop: Lbn) -> Result<Option<Lbn>> {
        let mut at = from.0;
        while at < stop.0 {
            let Some(&shard) = self.stored_shards(map, at / SHARD_BLOCKS, 1)?.first() else { return Ok(None) };
            at = at.max(shard * SHARD_BLOCKS);
            let parts = self.shard(ShardKey { map, shard })?;
            let mut data = parts.slice((at % SHARD_BLOCKS) as u16, SHARD_BLOCKS as u16);
            if let Some(extent) = data.find(|extent| matches!(extent.target, Target::Data(_))) {
                return Ok(Some(Lbn(shard * SHARD_BLOCKS + u64::from(extent.first))));
            }
            at = (shard + 1) * SHARD_BLOCKS;
        }
        Ok(None)
    }

    /// See [`crate::Store::seek_hole`].
    pub fn seek_hole(&self, map: MapId, from: u64, end: u64) -> Result<u64> {
        let _map = self.maps.lock(map).read();
        self.attached(map)?;
        let first = from / BLOCK;
        for (key, start, stop) in shard_parts(map, Lbn(first), end.div_ceil(BLOCK).saturating_sub(first)) {
            let shard = self.shard(key)?;
            if let Some(extent) = shard.slice(start, stop).find(|extent| !matches!(extent.target, Target::Data(_))) {
                let byte = (key.shard * SHARD_BLOCKS + u64::from(extent.first)) * BLOCK;
                return Ok(byte.clamp(from, end));
            }
        }
        Ok(end)
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
        // A home that stands in for a bad block is not reused.
        let _pin = self.space.pin();
        let _locks = self.lock_two(source.0, target.0);
        self.attached(source.0)?;
        self.attached(target.0)?;
        if !holds() {
            return Ok(false);
        }
        let _group = self.one_group(shards_of(&(target.1.0..target.1.0 + blocks.0)))?;
        self.in_pieces(target.0, Cuts::default(), None, |pieces| {
            self.clone_pieces(source, target, blocks, pieces, with)
        })?;
        Ok(true)
    }

    fn clone_pieces<G: OnPublish>(
        &self,
        source: (MapId, Lbn),
        target: (MapId, Lbn),
        blocks: Blocks,
        pieces: &mut Pieces,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        let piece = self.journal.bounds().piece_shards as u64 * SHARD_BLOCKS;
        debug_assert!(!pieces.is_begun && pieces.delta == 0, "a clone begins with its first piece");
        let mut done = 0;
        let mut with = Some(with);
        loop {
            let count = piece.min(blocks.0 - done);
            let (mut plan, grown) =
                self.plan_clone((source.0, source.1.plus(done)), (target.0, target.1.plus(done)), count)?;
            pieces.delta += grown;
            done += count;
            let is_last = done == blocks.0;
            let held = with.take_if(|_| is_last).map(|with| with(pieces.delta, &mut plan.change));
            self.stats.counters.blocks_cloned.fetch_add(plan.increfs.len() as u64, Relaxed);
            if let Some(refusal) = self.publish_plan(plan)? {
                return Err(self.why_not_cloned(refusal.pbns[0]));
            }
            pieces.is_begun = true;
            if let Some(held) = held {
                held.published();
                return Ok(());
            }
        }
    }

    fn plan_clone(&self, source: (MapId, Lbn), target: (MapId, Lbn), blocks: u64) -> Result<(Plan, i64)> {
        let mut edit = MapEdit::new(self, target.0);
        let mut runs: Vec<Run> = Vec::new();
        let mut at = target.1;
        for (key, start, end) in shard_parts(source.0, source.1, blocks) {
            let extents = self.shard(key)?;
            let wanted: Vec<(Target, u64)> =
                extents.slice(start, end).map(|extent| (extent.target, u64::from(extent.blocks))).collect();
            // Of a bad block its home is shared.
            for (found, blocks) in self.around_bad(&wanted)?.unwrap_or(wanted) {
                let shared = if found == Target::Reserved { Target::Hole } else { found };
                if let Target::Data(pbn) = shared {
                    runs.push(Run { pbn, blocks });
                }
                let mut skipped = 0;
                for (key, start, end) in shard_parts(target.0, at, blocks) {
                    edit.set(key, Extent { first: start, blocks: end - start, target: shared.plus(skipped) })?;
                    skipped += u64::from(end - start);
                }
                at = at.plus(blocks);
            }
        }
        let mapped_delta = edit.mapped_delta;
        let mut plan = edit.into_plan();
        plan.increfs = self.takes_of(&runs)?;
        Ok((plan, mapped_delta))
    }

    fn why_not_cloned(&self, pbn: Pbn) -> Error {
        match self.state.lock().bad.get(pbn) {
            Some(_) => damaged(pbn),
            None => Error::Invalid(format!("block {pbn} has the largest number of references")),
        }
    }

    /// References to live blocks of a map whose lock is held: their tags are read from the table.
    fn takes_of(&self, runs: &[Run]) -> Result<Vec<Incref>> {
        let pbns = || runs.iter().flat_map(|run| (0..run.blocks).map(|n| run.pbn.plus(n)));
        let pages = || {
            let mut pages: Vec<u64> = pbns().map(page_of).collect();
            pages.dedup();
            pages
        };
        self.with_pages(pages, |state| {
            let take = |pbn: Pbn| match state.table.is_damaged(pbn) {
                true => Err(damaged_entry(pbn)),
                false => Ok(Incref { pbn, tag: state.table.entry(pbn).expect("its page is in memory").tag }),
            };
            pbns().map(take).collect()
        })?
    }

    /// See [`crate::Store::detach`].
    pub fn detach<G: OnPublish>(&self, map: MapId, with: impl FnOnce(&mut Change) -> G) -> Result<()> {
        self.health.usable()?;
        let _map = self.maps.lock(map).write();
        self.attached(map)?;
        let _room = self.claim_log_room(GroupBytes::RECORDS);
        let mut plan = Plan { map: Some(map), detach: Some(map), ..Plan::default() };
        let held = with(&mut plan.change);
        // Behind `with`: what the caller holds keeps others from saying something of the file.
        self.first_policy(&mut plan.change, map, FilePolicy::default());
        self.apply_certain(plan)?;
        held.published();
        Ok(())
    }

    /// Locks two maps, in an order that all share.
    fn lock_two(&self, a: MapId, b: MapId) -> (RwLockWriteGuard<'_, ()>, Option<RwLockWriteGuard<'_, ()>>) {
        let (low, high) = if MapLocks::index_of(a) <= MapLocks::index_of(b) { (a, b) } else { (b, a) };
        let first = self.maps.lock(low).write();
        let second = (MapLocks::index_of(low) != MapLocks::index_of(high)).then(|| self.maps.lock(high).write());
        (first, second)
    }
}

/// How many shards a range touches.
fn shards_of(blocks: &Range<u64>) -> u64 {
    blocks.end.div_ceil(SHARD_BLOCKS) - blocks.start / SHARD_BLOCKS
}

/// The part of `blocks` that lies in a shard, in block numbers of the shard.
pub fn within_shard(shard: u64, blocks: &Range<u64>) -> (u16, u16) {
    let inside = |block: u64| block.saturating_sub(shard * SHARD_BLOCKS).min(SHARD_BLOCKS) as u16;
    (inside(blocks.start), inside(blocks.end))
}

fn cut_shard(edit: &mut MapEdit, key: ShardKey, blocks: &Range<u64>) -> Result<()> {
    let (start, end) = within_shard(key.shard, blocks);
    if start >= end {
        return Ok(());
    }
    if (start, u64::from(end)) == (0, SHARD_BLOCKS) {
        return edit.drop_shard(key);
    }
    edit.set(key, Extent { first: start, blocks: end - start, target: Target::Hole })
}

fn parts_of(map: MapId, blocks: Range<u64>, fill: Fill) -> impl Iterator<Item = (ShardKey, u16, u16, Fill)> {
    let count = blocks.end.saturating_sub(blocks.start);
    shard_parts(map, Lbn(blocks.start), count).map(move |(key, start, end)| (key, start, end, fill))
}

fn fill_part(edit: &mut MapEdit, key: ShardKey, start: u16, end: u16, fill: Fill) -> Result<()> {
    match fill {
        Fill::Reserved => edit.set(key, Extent { first: start, blocks: end - start, target: Target::Reserved }),
        Fill::ReservedHoles => {
            let holes: Vec<Extent> = edit.look(key, start, end)?;
            for hole in holes.into_iter().filter(|extent| extent.target == Target::Hole) {
                edit.set(key, Extent { target: Target::Reserved, ..hole })?;
            }
            Ok(())
        }
    }
}
