//! Defrag: rewrites short runs of a file together, so that reading it needs fewer places of the data area.
//! `oncefs_dedup::plan_defrag` plans the moves as pure values. This file makes the plan for a map and carries it out,
//! in portions, beside all other work on the file.
//!
//! Each resulting run is one publication, durable with its group. A crash before that leaves the old blocks in their
//! places, and the new ones free. A crash after it leaves the new ones in their places. Holes and reserved space stay.

pub mod outcome;
pub mod portion;

use hashbrown::HashMap;
use oncefs_dedup::{DefragPlan, DefragRule, FileRun, plan_defrag};

use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::fragment::{FragmentPlace, is_fragment};
use crate::format::keys::LeafKey;
use crate::layout::defrag::outcome::{DefragOptions, DefragOutcome, ExtentsLeft};
use crate::layout::defrag::portion::Defragmenter;
use crate::read::fragments::GAP_BYTES_MAX;
use crate::space::allocator::Run;
use crate::{Lbn, MapId, Pbn, Result};

/// Leaves of a file that are planned together: 1 GiB, at worst about 30 MB of memory.
const WINDOW_LEAVES: usize = 1_024;
/// Upper bound of the requested run length: bounds the memory of a portion, whatever is requested.
const RUN_BLOCKS_MIN_MAX: u32 = 1_024;
/// Leaves read under one acquisition of the map's lock.
const PORTION_LEAVES: usize = 16;
const _: () = assert!(PORTION_LEAVES <= WINDOW_LEAVES);

/// Runs of a file, in its order. Fragments that follow each other in the file are one run while they follow each other
/// in the data area, whatever their numbers are.
#[derive(Default)]
struct LaidOut {
    runs: Vec<FileRun>,
    /// Where the last run ends in the data area, in bytes, if it is one of fragments.
    end: Option<u64>,
}

impl LaidOut {
    fn add(&mut self, lbn: Lbn, pbn: Pbn, blocks: u64, places: &HashMap<Pbn, FragmentPlace>) {
        if !is_fragment(pbn) {
            self.end = None;
            return FileRun::add(&mut self.runs, lbn, pbn, blocks);
        }
        for n in 0..blocks {
            let (first, number) = (lbn.plus(n), pbn.plus(n));
            let place = places.get(&number);
            let follows = |(end, place): (u64, &FragmentPlace)| (end..=end + GAP_BYTES_MAX).contains(&place.at);
            let goes_on = self.end.zip(place).is_some_and(follows);
            match self.runs.last_mut().filter(|_| goes_on) {
                Some(last) => (last.end, last.blocks) = (first.plus(1), last.blocks + 1),
                None => {
                    let run =
                        FileRun { first, end: first.plus(1), pbn: number, blocks: 1, shared: 0, must_stay: false };
                    self.runs.push(run);
                }
            }
            self.end = place.map(FragmentPlace::end);
        }
    }
}

impl Defragmenter {
    /// See [`crate::Store::defrag`].
    pub fn defrag(&self, map: MapId, options: &DefragOptions) -> Result<DefragOutcome> {
        if !options.dry_run {
            self.publisher.usable()?;
        }
        let window = options.window.map_or(WINDOW_LEAVES, |blocks| (blocks.0 / LEAF_BLOCKS).max(1) as usize);
        let (mut runs, next) = self.window_of(map, options.from, window.min(WINDOW_LEAVES))?;
        let run_blocks_min =
            options.run_blocks_min.unwrap_or_else(|| self.file_policies.run_blocks_min(map)).min(RUN_BLOCKS_MIN_MAX);
        self.look_at_short(&mut runs, run_blocks_min)?;
        let plan = plan_defrag(&runs, &DefragRule { run_blocks_min, space_blocks: options.space.0 });
        let (moved, unshared) = (plan.blocks_moved, plan.blocks_unshared);
        assert!(unshared <= moved, "{moved} blocks are to move, and {unshared} of them are shared");
        let mut outcome = DefragOutcome {
            extents_before: plan.runs_before,
            next: next.map(|lbn| lbn.0),
            left: ExtentsLeft { space_limit: plan.runs_left, ..ExtentsLeft::default() },
            ..DefragOutcome::default()
        };
        if options.dry_run {
            outcome.extents_after = plan.runs_after;
            (outcome.blocks_moved, outcome.blocks_unshared) = (plan.blocks_moved, plan.blocks_unshared);
            return Ok(outcome);
        }
        let options = DefragOptions { run_blocks_min: Some(run_blocks_min), ..*options };
        if let Some(left) = self.carry_out(map, &plan, &runs, &options, &mut outcome)? {
            outcome.extents_before = runs.partition_point(|run| run.first < left) as u64;
            (outcome.next, outcome.left.space_limit) = (Some(left.0), 0);
        }
        let until = outcome.next.map(Lbn).or(runs.last().map(|last| last.end)).unwrap_or_default();
        outcome.extents_after = self.runs_within(map, options.from, until)?.len() as u64;
        Ok(outcome)
    }

    /// Carries out a plan, portion by portion. Returns where the first portion begins that is left because a program
    /// makes requests.
    fn carry_out(
        &self,
        map: MapId,
        plan: &DefragPlan,
        runs: &[FileRun],
        options: &DefragOptions,
        outcome: &mut DefragOutcome,
    ) -> Result<Option<Lbn>> {
        let blocks_min = u64::from(options.run_blocks_min.unwrap_or(0));
        for stretch in &plan.ranges {
            let mut rest = &runs[stretch.from..stretch.to];
            while !rest.is_empty() {
                let mut size = self.worker.defrag_turn();
                // Closing the volume waits for the current portion, and no other may begin.
                if self.signals.is_stopped() {
                    return Ok(None);
                }
                let (portion, following) = portion::first_of(rest, size.blocks().max(blocks_min));
                if !self.defrag_portion(map, portion, options.gives_way, &mut size, outcome)? {
                    return Ok(Some(portion[0].first));
                }
                rest = following;
            }
        }
        Ok(None)
    }

    /// The runs of a part of a map, from an lbn on that begins a run, and where the next part begins. No run is cut, so
    /// the part has more than `leaves_max` leaves if a run is longer.
    pub fn window_of(&self, map: MapId, from: Lbn, leaves_max: usize) -> Result<(Vec<FileRun>, Option<Lbn>)> {
        let (mut laid, mut seen) = (LaidOut::default(), 0);
        let mut at = Some(from);
        while let Some(from) = at {
            let (leaves, next) = self.add_runs(map, from, Lbn(u64::MAX), &mut laid)?;
            seen += leaves;
            at = next;
            if seen >= leaves_max && laid.runs.len() > 1 && next.is_some() {
                let last = laid.runs.pop();
                return Ok((laid.runs, last.map(|last| last.first)));
            }
        }
        Ok((laid.runs, None))
    }

    fn runs_within(&self, map: MapId, from: Lbn, until: Lbn) -> Result<Vec<FileRun>> {
        let mut laid = LaidOut::default();
        let mut at = Some(from);
        while let Some(from) = at {
            at = self.add_runs(map, from, until, &mut laid)?.1;
        }
        Ok(laid.runs)
    }

    /// Adds the runs of some leaves, between two lbns. Returns how many leaves these are, and where to continue.
    fn add_runs(&self, map: MapId, from: Lbn, until: Lbn, laid: &mut LaidOut) -> Result<(usize, Option<Lbn>)> {
        let mut extents: Vec<(Lbn, Pbn, u64)> = Vec::new();
        let result = {
            let _map = self.metadata.lock_of(map).read();
            self.metadata.attached(map)?;
            self.each_extent(map, from, until, &mut |lbn, pbn, blocks| extents.push((lbn, pbn, blocks)))
        };
        let of_fragments = extents.iter().filter(|(_, pbn, _)| is_fragment(*pbn));
        let places = self.metadata.known_places(of_fragments.flat_map(|&(_, pbn, blocks)| Run { pbn, blocks }.pbns()));
        extents.into_iter().for_each(|(lbn, pbn, blocks)| laid.add(lbn, pbn, blocks, &places));
        result
    }

    /// Counts the shared blocks of runs that may move, and marks runs with a block that must stay.
    fn look_at_short(&self, runs: &mut [FileRun], run_blocks_min: u32) -> Result<()> {
        // Where a fragment moves it becomes a block, which takes space.
        runs.iter_mut().filter(|run| is_fragment(run.pbn)).for_each(|run| run.shared = run.blocks);
        let is_short = |run: &FileRun| run.blocks < u64::from(run_blocks_min) && !is_fragment(run.pbn);
        let pbns_of = |run: &FileRun| Run { pbn: run.pbn, blocks: run.blocks }.pbns();
        let mut pbns: Vec<Pbn> = runs.iter().filter(|run| is_short(run)).flat_map(pbns_of).collect();
        pbns.sort_unstable();
        pbns.dedup();
        let entries = self.metadata.known_entries(&pbns);
        for run in runs.iter_mut().filter(|run| is_short(run)) {
            let known = || pbns_of(run).map(|pbn| entries.get(&pbn).filter(|entry| entry.serves(entry.tag)));
            let must_stay = known().any(|entry| entry.is_none());
            let shared = known().flatten().filter(|entry| entry.count > 1).count() as u64;
            assert!(shared <= run.blocks, "{shared} of {} blocks are shared", run.blocks);
            (run.must_stay, run.shared) = (must_stay, shared);
        }
        Ok(())
    }

    /// Calls `each` with the extents of some leaves: first lbn, first pbn, blocks. Returns how many leaves these are,
    /// and where to continue. The caller holds the map's lock.
    fn each_extent(
        &self,
        map: MapId,
        from: Lbn,
        until: Lbn,
        each: &mut dyn FnMut(Lbn, Pbn, u64),
    ) -> Result<(usize, Option<Lbn>)> {
        let mut leaves = self.metadata.stored_leaves(map, from.0 / LEAF_BLOCKS, PORTION_LEAVES)?;
        let may_be_more = leaves.len() == PORTION_LEAVES;
        leaves.retain(|leaf| leaf * LEAF_BLOCKS < until.0);
        for &leaf in &leaves {
            let begins = leaf * LEAF_BLOCKS;
            let inside = |lbn: Lbn| lbn.0.saturating_sub(begins).min(LEAF_BLOCKS) as u16;
            for extent in self.metadata.leaf(LeafKey { map, leaf })?.slice(inside(from), inside(until)) {
                if let Target::Data(pbn) = extent.target {
                    each(Lbn(begins + u64::from(extent.first)), pbn, u64::from(extent.blocks));
                }
            }
        }
        let next = leaves.last().filter(|_| may_be_more).map(|last| Lbn((last + 1) * LEAF_BLOCKS));
        Ok((leaves.len(), next.filter(|next| *next < until)))
    }
}
