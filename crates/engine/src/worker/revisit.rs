//! Out-of-line deduplication: skipped blocks are looked up in both levels of the hint store, and duplicates are
//! remapped (SmartDedup, section 3.3). One function, `revisit`, holds the order; `remap` publishes.
//!
//! Nothing here is durable by itself: a remap is a publication like any other, durable with its group. A crash before
//! that leaves the copy in its place, and the work to the full pass that follows a crash.

use std::sync::atomic::Ordering::Relaxed;

use hashbrown::{HashMap, HashSet};
use oncefs_dedup::{HOLDERS_MAX, Hint, ShareLimit, Slowdown};

use crate::base::part;
use crate::format::page::Entry;
use crate::hints::levels::HintLevels;
use crate::policy::accounts::Spender;
use crate::policy::effective::FilePolicies;
use crate::state::loading::Metadata;
use crate::worker::merge_target::{Merged, Room, VisitedRange, merge_targets};
use crate::worker::worklist::Worklist;
use crate::write::confirm_remaps::RemapConfirmer;
use crate::write::extension::Extender;
use crate::write::remap::Remapper;
use crate::write::visit::{Holders, Place, Remap, Visit, add_holder, ascending};
use crate::{Lbn, MapId, Pbn, Result, Stage, Tag};

/// Most blocks visited at a time: bounds the worker's memory at about 2 MB.
pub const BATCH_BLOCKS_MAX: u64 = 8_192;

/// How far a batch got.
enum Visited {
    /// To its end.
    All,
    /// Interrupted by a program's request after this many places were looked up.
    UpTo(u64),
}

part! {
    /// Visits skipped blocks: looks them up in both levels of the hint store, and remaps duplicates.
    pub struct Revisits {
        base: backlog, foreground, health, stats, worker, hints, policy;
        metadata: Metadata, file_policies: FilePolicies, hint_levels: HintLevels, extender: Extender,
        remapper: Remapper, remap_confirmer: RemapConfirmer, worklist: Worklist
    }
}

impl Revisits {
    /// Visits some skipped blocks. Returns how many. None: nothing is left. Work that yields to programs ends before a
    /// step of `blocks_max` blocks when a request comes. The remaining places are visited later.
    pub fn revisit(&self, blocks_max: u64) -> Result<Option<u64>> {
        self.health.usable()?;
        let began = std::time::Instant::now();
        // From here on no visited block is reused, so each holds the content that the table names.
        let _pin = self.metadata.pin();
        if self.worklist.sweep_for_full_pass() {
            return Ok(Some(0));
        }
        let mut places = self.worklist.next_batch(blocks_max.clamp(1, BATCH_BLOCKS_MAX));
        // A block that was skipped by itself and with its file comes twice, but must move only once.
        let mut known = HashSet::with_capacity(places.len());
        places.retain(|(map, lbn, _)| known.insert((*map, *lbn)));
        if places.is_empty() {
            return Ok((self.worklist.is_revisit_left() || self.worklist.begin_pass_for_left()).then_some(0));
        }
        let blocks = places.len() as u64;
        let step = if self.foreground.is_watched() { blocks_max.max(1) } else { blocks };
        let visited = self.revisit_places(&places, step as usize);
        if !matches!(visited, Ok(Visited::All)) {
            self.backlog.put_back(places.iter().map(|(map, lbn, _)| (*map, *lbn)));
        }
        let visited = visited?;
        self.worker.with_pass(|pass| pass.note_end(matches!(visited, Visited::All)));
        match visited {
            Visited::UpTo(blocks) => Ok(Some(blocks)),
            Visited::All => {
                self.stats.counters.blocks_revisited.fetch_add(blocks, Relaxed);
                self.stats.record(Stage::Revisit, blocks, began.elapsed());
                Ok(Some(blocks))
            }
        }
    }

    /// Visits places in short steps.
    fn revisit_places(&self, places: &[Place], step: usize) -> Result<Visited> {
        let (mut visits, mut holders) = (Vec::with_capacity(places.len()), Holders::new());
        for part in places.chunks(step) {
            if self.foreground.calls() {
                return Ok(Visited::UpTo(visits.len() as u64));
            }
            let seen = self.with_entries(part);
            // A content that was looked up in an earlier step still has the same holders.
            holders.extend(self.look_up_in_both(&seen));
            visits.extend(seen);
        }
        assert!(visits.len() <= places.len(), "{} visits of {} places", visits.len(), places.len());
        let is_listed = self.worker.with_pass(|pass| pass.is_batch_listed());
        let ranges = self.visited_ranges(&visits);
        let may_have_more = |range: &&VisitedRange| {
            self.hints.is_sample_partial() || range.run_blocks_min > 1 || range.budget.is_some()
        };
        for range in ranges.iter().filter(may_have_more) {
            let blocks: Vec<(Tag, Pbn)> = range.visits.iter().map(|visit| (visit.entry.tag, visit.pbn)).collect();
            let around = (range.before.last().copied(), range.after.first().copied());
            self.extender.extend_holders(&blocks, around, &mut holders);
        }
        let Merged { remaps: chosen, left, pieces } = merge_targets(&ranges, &holders, is_listed);
        self.settle_pieces(&ranges, &pieces);
        let (confirmed, all) = self.confirm_in_steps(&chosen, step);
        assert!(confirmed.len() <= chosen.len(), "{} of {} remaps are confirmed", confirmed.len(), chosen.len());
        self.worker.with_pass(|pass| pass.note_left(left, confirmed.len() as u64));
        self.remapper.remap(confirmed)?;
        Ok(if all { Visited::All } else { Visited::UpTo(visits.len() as u64) })
    }

    /// Confirms the chosen remaps, and tells whether all of them were compared. When a request comes, returns the runs
    /// that are confirmed as a whole, because a part of a run may not be worth sharing.
    fn confirm_in_steps(&self, chosen: &[Remap], step: usize) -> (Vec<Remap>, bool) {
        let gives_way = self.foreground.is_watched();
        let is_one_run = |a: &Remap, b: &Remap| {
            let follows = a.visit.map == b.visit.map && a.visit.lbn.plus(1) == b.visit.lbn;
            !gives_way || (follows && a.target.0.plus(1) == b.target.0)
        };
        let mut confirmed = Vec::with_capacity(chosen.len());
        for run in chosen.chunk_by(is_one_run) {
            let whole = confirmed.len();
            for part in run.chunks(step) {
                if self.foreground.calls() {
                    confirmed.truncate(whole);
                    return (confirmed, false);
                }
                confirmed.extend(self.remap_confirmer.confirm_remaps(part.to_vec()));
            }
        }
        (confirmed, true)
    }

    /// The visited blocks as they are adjacent in files, with the surrounding blocks as far as they matter: a run that
    /// the file already shares continues there.
    fn visited_ranges<'a>(&self, visits: &'a [Visit]) -> Vec<VisitedRange<'a>> {
        let follows = |a: &Visit, b: &Visit| a.map == b.map && a.lbn.plus(1) == b.lbn;
        // A file's remaining pieces are taken once, for all its ranges.
        let mut taken: HashMap<MapId, u64> = HashMap::new();
        let mut range = |visits: &'a [Visit]| {
            let map = visits[0].map;
            let limit = self.file_policies.share_limit(map);
            let run_blocks_min = if let ShareLimit::Runs(blocks) = limit { blocks } else { 1 };
            let budget = match limit {
                ShareLimit::Runs(_) => None,
                ShareLimit::Budget(slowdown) => {
                    let pieces_max = *taken.entry(map).or_insert_with(|| self.take_pieces(map, slowdown));
                    let gap_blocks_max = self.policy.device_reads().piece_cost().gap_blocks_max();
                    Some(Room { pieces_max, gap_blocks_max, is_end: false })
                }
            };
            let (before, after) = (Vec::new(), Vec::new());
            let mut range = VisitedRange { visits, run_blocks_min, budget, end_blocks_min: None, before, after };
            // If the surrounding blocks cannot be read, or the file was deleted, none are added.
            if (run_blocks_min > 1 || budget.is_some())
                && let Err(error) = self.add_surrounding_blocks(&mut range)
            {
                log::debug!("cannot read the map around blocks, deduplicating them alone: {error}");
            }
            range
        };
        visits.chunk_by(follows).map(&mut range).collect()
    }

    /// Takes all pieces that a file may still add. A file whose account cannot be read may add none.
    fn take_pieces(&self, map: MapId, slowdown: Slowdown) -> u64 {
        let cost = self.policy.device_reads().piece_cost();
        match self.file_policies.account(map) {
            Ok(_) => self.policy.accounts().take(map, 0, slowdown, cost, Spender::Worker).unwrap_or(0),
            Err(error) => {
                log::debug!("cannot read map {} for its account, sharing only what costs nothing: {error}", map.0);
                0
            }
        }
    }

    /// Gives back the pieces that were taken but not added.
    fn settle_pieces(&self, ranges: &[VisitedRange], added: &HashMap<MapId, u64>) {
        for of_map in ranges.chunk_by(|a, b| a.visits[0].map == b.visits[0].map) {
            let Some(room) = of_map[0].budget else { continue };
            let map = of_map[0].visits[0].map;
            let added = added.get(&map).copied().unwrap_or(0);
            assert!(added <= room.pieces_max, "{added} pieces of map {} are added of {}", map.0, room.pieces_max);
            self.policy.accounts().settle(map, room.pieces_max, added);
        }
    }

    fn add_surrounding_blocks(&self, range: &mut VisitedRange) -> Result<()> {
        let (map, first, blocks) = (range.visits[0].map, range.visits[0].lbn, range.visits.len() as u64);
        let reach = u64::from(range.run_blocks_min);
        range.before = self.worklist.stored_until(map, Lbn(first.0 - reach.min(first.0)), reach.min(first.0))?;
        range.after = self.worklist.stored_from(map, first.plus(blocks), reach)?;
        let last = first.plus(blocks - 1 + range.after.len() as u64);
        if let Some(room) = &mut range.budget {
            room.is_end = self.metadata.is_end(map, last)?;
            return Ok(());
        }
        if range.before.is_empty() && range.after.is_empty() && self.worklist.is_whole(map, first, blocks)? {
            range.run_blocks_min = range.run_blocks_min.min(blocks as u32);
        }
        range.end_blocks_min = self.file_policies.end_blocks_min(map, last)?;
        Ok(())
    }

    /// The blocks with their entries in the table. Blocks that were freed meanwhile or that are bad are left out. So
    /// are those with an unreadable entry, which would come again forever.
    fn with_entries(&self, places: &[Place]) -> Vec<Visit> {
        let entries = self.metadata.known_entries(&ascending(places.iter().map(|(_, _, pbn)| *pbn)));
        let visit = |&(map, lbn, pbn): &Place| {
            let entry = *entries.get(&pbn).filter(|entry| entry.serves(entry.tag))?;
            Some(Visit { map, lbn, pbn, entry })
        };
        places.iter().filter_map(visit).collect()
    }

    /// Live blocks with the same tag as each visited one, itself included, by tag. It searches memory before disk,
    /// because a hint that moves meanwhile goes that way.
    fn look_up_in_both(&self, visits: &[Visit]) -> Holders {
        let mut tags: Vec<Tag> = visits.iter().map(|visit| visit.entry.tag).collect();
        tags.sort_unstable();
        tags.dedup();
        let mut hints = self.hints.peek(&tags);
        // Both levels in any case: the holder that all others merge into may be on disk.
        self.hint_levels.merge_waiting_hints();
        let on_disk = self.hints.look_up_on_disk(&tags, &self.stats.counters);
        self.stats.counters.disk_level_hits.fetch_add(on_disk.len() as u64, Relaxed);
        hints.extend(on_disk);
        let mut holders = self.live_holders(hints);
        self.restore_lost_hints(visits, &mut holders);
        holders
    }

    /// Restores the hint of a visited block of the sample that neither level names, unless enough other holders have
    /// hints.
    fn restore_lost_hints(&self, visits: &[Visit], holders: &mut Holders) {
        let mut lost = Vec::new();
        for Visit { pbn, entry, .. } in visits.iter().filter(|visit| self.hints.is_sampled(visit.entry.tag)) {
            let named = holders.get(&entry.tag).map_or(0, Vec::len);
            if named < HOLDERS_MAX && add_holder(holders, entry.tag, *pbn, *entry) {
                lost.push((entry.tag, *pbn));
            }
        }
        self.stats.counters.hints_repaired.fetch_add(lost.len() as u64, Relaxed);
        self.hint_levels.update_hints(&[], &lost);
    }

    /// Keeps the hints that the table confirms. The others are stale.
    fn live_holders(&self, hints: Vec<(Tag, Pbn)>) -> Holders {
        let entries = self.metadata.known_entries(&ascending(hints.iter().map(|(_, pbn)| *pbn)));
        let mut holders = Holders::new();
        let mut stale = Vec::new();
        for (tag, pbn) in hints {
            match entries.get(&pbn).filter(|entry| entry.serves(tag)) {
                Some(entry) => holders.entry(tag).or_default().push((pbn, *entry)),
                // A hint keeps part of a tag. This one may be right about another content whose tag begins alike.
                None if entries.get(&pbn).is_some_and(|entry| is_about(entry, tag, pbn)) => {}
                None => stale.push((tag, pbn)),
            }
        }
        for pbns in holders.values_mut() {
            pbns.sort_unstable_by_key(|(pbn, _)| *pbn);
            pbns.dedup_by_key(|(pbn, _)| *pbn);
        }
        self.stats.counters.hints_stale.fetch_add(stale.len() as u64, Relaxed);
        self.hint_levels.update_hints(&stale, &[]);
        holders
    }
}

/// Whether a hint found for a tag is the live block's own hint.
fn is_about(entry: &Entry, tag: Tag, pbn: Pbn) -> bool {
    entry.serves(entry.tag) && Hint::new(entry.tag, pbn) == Hint::new(tag, pbn)
}
