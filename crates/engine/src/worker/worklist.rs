//! The worker's next batch: blocks that were skipped one by one, then whole files, then, in a full pass, all maps in
//! the order of their ids.

use oncefs_dedup::{Ranks, ShareLimit, Work};

use crate::base::part;
use crate::format::backlog::Checkpoint;
use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::keys::{LeafKey, leaf_parts};
use crate::hints::levels::HintLevels;
use crate::pace::pass::Pass;
use crate::policy::effective::FilePolicies;
use crate::state::loading::Metadata;
use crate::write::visit::Place;
use crate::{BLOCK_BYTES, Error, Lbn, MapId, Pbn, Result};

/// Most leaves read at a time.
const PORTION_LEAVES_MAX: u64 = 16;

/// Most files and parts of maps that one batch skips. If all files are excluded, a program that wants the device waits
/// no longer than for these.
const FRUITLESS_MAX: usize = 512;

/// Pages of the disk level swept at a time.
const SWEEP_PAGES: usize = 16;

/// A full pass begins if more than one block in this many was left to it.
const LEFT_SHARE: u64 = 1_000;

part! {
    /// Chooses the blocks that the worker visits next.
    pub struct Worklist {
        base: worker, backlog, state, foreground, hints, tuning, journal;
        metadata: Metadata, file_policies: FilePolicies, hint_levels: HintLevels
    }
}

impl Worklist {
    /// Whether any work is left.
    pub fn is_revisit_left(&self) -> bool {
        self.worker.with_pass(|pass| pass.is_under_way()) || !self.backlog.is_empty()
    }

    /// Begins a full pass if it promises to merge blocks that could not be merged before. True: it does.
    pub fn begin_pass_for_left(&self) -> bool {
        let worth_it = self.state.lock().totals.mapped.0 / LEFT_SHARE;
        let is_worth_it = self.worker.with_pass(|pass| pass.left()) > worth_it;
        if is_worth_it {
            self.begin_full_pass();
        }
        is_worth_it
    }

    /// Requests a pass over all maps, after the backlog.
    pub fn begin_full_pass(&self) {
        self.worker.with_pass(|pass| self.restart_full_pass(pass));
    }

    fn restart_full_pass(&self, pass: &mut Pass) {
        let mapped = self.state.lock().totals.mapped;
        pass.begin_full(mapped.0, self.foreground.now());
        self.hints.restart_sweep();
    }

    /// Sweeps some pages of the disk level if a full pass waits for that. False: none does any more.
    pub fn sweep_for_full_pass(&self) -> bool {
        self.worker.with_pass(|pass| {
            if !pass.is_sweeping() {
                return false;
            }
            let mut pages = (0..SWEEP_PAGES).take_while(|_| !self.foreground.calls());
            let goes_on = pages.all(|_| self.hint_levels.sweep_hint_page());
            if !goes_on {
                pass.end_sweep();
            }
            goes_on
        })
    }

    /// Up to about `blocks_max` blocks to visit, in file order. Skips unreadable parts and files that are not
    /// deduplicated out of line. So the batch may be empty although work is left.
    pub fn next_batch(&self, blocks_max: u64) -> Vec<Place> {
        assert!(blocks_max > 0, "a batch of {blocks_max} blocks");
        let mount = self.tuning.with(|settings| settings.mount_policy());
        let do_runs_count = mount.limit() != ShareLimit::Runs(1) || mount.ranks != Ranks::Off;
        let mut places = Vec::new();
        self.worker.with_pass(|pass| {
            pass.begin_batch();
            let range_min = if do_runs_count { pass.range_blocks_min() } else { 1 };
            let mut steps = 0;
            while (places.len() as u64) < blocks_max && steps <= FRUITLESS_MAX + places.len() {
                steps += 1;
                if !self.extend_batch_by_one(pass, blocks_max, range_min, &mut places) {
                    break;
                }
            }
        });
        places
    }

    /// Adds the next part of the work to a batch: of the current map, of the backlog, or of the pass over all maps.
    /// False: the batch ends here.
    fn extend_batch_by_one(&self, pass: &mut Pass, blocks_max: u64, range_min: u64, places: &mut Vec<Place>) -> bool {
        let leaves_max = (blocks_max / LEAF_BLOCKS).clamp(1, PORTION_LEAVES_MAX) as usize;
        if let Some((map, leaf)) = pass.map() {
            let next = self.add_leaves_of(map, leaf, leaves_max, places);
            pass.advance_map(next.unwrap_or_else(|error| skip_over(&error)));
            return true;
        }
        match self.backlog.take((blocks_max - places.len() as u64).max(range_min)) {
            Some(Work::Blocks { owner, runs }) => {
                self.add_listed(MapId(owner), &runs, places).unwrap_or_else(|error| skip_over(&error));
            }
            Some(Work::Owner(owner)) => pass.begin_map(MapId(owner)),
            Some(Work::Everything) if pass.is_full() => pass.want_full_again(),
            Some(Work::Everything) => self.restart_full_pass(pass),
            None => {
                let Some(from) = pass.all() else { return false };
                let before = places.len();
                let next = self.add_leaves_from(from, leaves_max, |map| self.file_policies.is_later(map), places);
                pass.advance_all(next.unwrap_or_else(|error| skip_over(&error)), (places.len() - before) as u64);
                if pass.take_full_again() {
                    self.restart_full_pass(pass);
                    return false;
                }
            }
        }
        true
    }

    /// The map's blocks in a range, up to the first place without one.
    pub fn stored_from(&self, map: MapId, first: Lbn, blocks: u64) -> Result<Vec<Pbn>> {
        let stored = self.stored_at(map, first, blocks)?;
        Ok(stored.into_iter().map_while(|pbn| pbn).collect())
    }

    /// The map's blocks in a range, after the last place without one.
    pub fn stored_until(&self, map: MapId, first: Lbn, blocks: u64) -> Result<Vec<Pbn>> {
        let stored = self.stored_at(map, first, blocks)?;
        let mut pbns: Vec<Pbn> = stored.into_iter().rev().map_while(|pbn| pbn).collect();
        pbns.reverse();
        Ok(pbns)
    }

    fn stored_at(&self, map: MapId, first: Lbn, blocks: u64) -> Result<Vec<Option<Pbn>>> {
        let _map = self.metadata.lock_of(map).read();
        let mut stored = Vec::with_capacity(blocks as usize);
        for (key, start, end) in leaf_parts(map, first, blocks) {
            for extent in self.metadata.leaf(key)?.slice(start, end) {
                stored.extend((0..u64::from(extent.blocks)).map(|n| match extent.target {
                    Target::Data(pbn) => Some(pbn.plus(n)),
                    Target::Hole | Target::Reserved => None,
                }));
            }
        }
        Ok(stored)
    }

    /// Whether a map has only these blocks, and files that are one run are shared as a whole.
    pub fn is_whole(&self, map: MapId, first: Lbn, blocks: u64) -> Result<bool> {
        let block = BLOCK_BYTES as u64;
        Ok(self.file_policies.effective_policy(map).shares_ends
            && self.metadata.seek_data(map, 0, first.0 * block)?.is_none()
            && self.metadata.seek_data(map, (first.0 + blocks) * block, u64::MAX)?.is_none())
    }

    fn add_listed(&self, map: MapId, runs: &[(Lbn, u64)], places: &mut Vec<Place>) -> Result<()> {
        let _map = self.metadata.lock_of(map).read();
        if self.state.lock().is_detached(map) || !self.file_policies.is_later(map) {
            return Ok(());
        }
        for (first, blocks) in runs {
            for (key, start, end) in leaf_parts(map, *first, *blocks) {
                self.add_places(key, start, end, places)?;
            }
        }
        Ok(())
    }

    /// Adds some leaves of a map. Returns the next one.
    fn add_leaves_of(
        &self,
        map: MapId,
        from: u64,
        leaves_max: usize,
        places: &mut Vec<Place>,
    ) -> Result<Option<(MapId, u64)>> {
        if !self.file_policies.is_later(map) {
            return Ok(None);
        }
        Ok(self.add_leaves_of_map(map, from, leaves_max, places)?.map(|leaf| (map, leaf)))
    }

    /// Adds some leaves of a map, whatever its policy is. Returns the next one.
    pub fn add_leaves_of_map(
        &self,
        map: MapId,
        from: u64,
        leaves_max: usize,
        places: &mut Vec<Place>,
    ) -> Result<Option<u64>> {
        let _map = self.metadata.lock_of(map).read();
        if self.state.lock().is_detached(map) {
            return Ok(None);
        }
        let leaves = self.metadata.stored_leaves(map, from, leaves_max)?;
        assert!(leaves.len() <= leaves_max, "{} leaves, at most {leaves_max} wanted", leaves.len());
        for &leaf in &leaves {
            let key = LeafKey { map, leaf };
            self.add_places(key, 0, LEAF_BLOCKS as u16, places).unwrap_or_else(|error| skip_over(&error));
        }
        Ok(leaves.last().filter(|_| leaves.len() == leaves_max).map(|last| last + 1))
    }

    /// Adds some leaves of all wanted maps. Returns the next one.
    pub fn add_leaves_from(
        &self,
        from: LeafKey,
        leaves_max: usize,
        is_wanted: impl Fn(MapId) -> bool,
        places: &mut Vec<Place>,
    ) -> Result<Option<LeafKey>> {
        let (keys, mut next) = self.metadata.leaves_from(from, leaves_max)?;
        if let Some(last) = keys.last().filter(|last| next.is_some() && !is_wanted(last.map)) {
            next = Some(LeafKey { map: MapId(last.map.0 + 1), leaf: 0 });
        }
        for key in keys.into_iter().filter(|key| is_wanted(key.map)) {
            let _map = self.metadata.lock_of(key.map).read();
            if !self.state.lock().is_detached(key.map) {
                self.add_places(key, 0, LEAF_BLOCKS as u16, places).unwrap_or_else(|error| skip_over(&error));
            }
        }
        Ok(next)
    }

    /// The blocks in a part of a leaf. The caller holds the map's lock.
    fn add_places(&self, key: LeafKey, start: u16, end: u16, places: &mut Vec<Place>) -> Result<()> {
        for extent in self.metadata.leaf(key)?.slice(start, end) {
            if let Target::Data(pbn) = extent.target {
                let lbn = Lbn(key.leaf * LEAF_BLOCKS + u64::from(extent.first));
                places.extend((0..u64::from(extent.blocks)).map(|n| (key.map, lbn.plus(n), pbn.plus(n))));
            }
        }
        Ok(())
    }
}

/// Skips the work if a part of a map cannot be read, so that the worker does not get stuck there.
fn skip_over<T: Default>(error: &Error) -> T {
    log::warn!("cannot read part of a file, not deduplicating it: {error}");
    T::default()
}

impl Worklist {
    /// Takes in the backlog of an earlier mount. `is_fresh`: nothing was ever written to the volume.
    pub fn restore_backlog(&self, newest: Option<Checkpoint>, is_fresh: bool) {
        if self.tuning.with(|settings| settings.skipped_bytes) == 0 {
            return;
        }
        let is_whole =
            newest.as_ref().is_some_and(|newest| newest.clean_at == self.journal.opened_at() && newest.clean_at > 0);
        self.backlog.restore(newest.into_iter().flat_map(|newest| newest.records));
        if !is_whole && !is_fresh {
            // After the listed blocks: a full pass finds those that the crash lost.
            self.begin_full_pass();
        }
    }
}
