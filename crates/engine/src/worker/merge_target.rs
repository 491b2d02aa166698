//! Merge targets: which equal block replaces each of the blocks that the worker visits. Pure: values in, values out.

use hashbrown::{HashMap, HashSet};
use oncefs_dedup::{Allowance, Candidates, Decision, RunRule, detect, detect_within};

use crate::format::page::{COUNT_MAX, Entry};
use crate::policy::account_from_map::REFS_FREE_MIN;
use crate::write::visit::{Holders, Remap, Visit};
use crate::{MapId, Pbn};

/// A block with this many references gets no more from the worker, because near the largest count it would be refused.
const COUNT_FULL: u32 = COUNT_MAX / 2;

/// Visited blocks that are adjacent in a file.
pub struct VisitedRange<'a> {
    /// The blocks.
    pub visits: &'a [Visit],
    /// The shortest run worth sharing there, in blocks. Not used if the file has a budget.
    pub run_blocks_min: u32,
    /// How many pieces the file may still get, the same for all its ranges. None: it has no budget.
    pub budget: Option<Room>,
    /// The shortest run worth sharing that reaches the end of `after`, or of the blocks, if the file ends there and its
    /// rank allows a part of a chunk to be shared.
    pub end_blocks_min: Option<u32>,
    /// The file's adjacent blocks before them, as far as they matter.
    pub before: Vec<Pbn>,
    /// Its blocks after them.
    pub after: Vec<Pbn>,
}

/// The remaining budget of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Pieces that may be added.
    pub pieces_max: u64,
    /// Ranges with at most this many blocks between them are one piece.
    pub gap_blocks_max: u64,
    /// Whether the range, with the blocks after it, reaches the end of the file.
    pub is_end: bool,
}

/// The result for a batch.
pub struct Merged {
    /// Which place gets which block.
    pub remaps: Vec<Remap>,
    /// Blocks that stay although equal ones remain elsewhere, because the references to those are not known here.
    pub left: u64,
    /// Pieces added to files with a budget.
    pub pieces: HashMap<MapId, u64>,
}

/// The merge targets of one batch.
pub fn merge_targets(ranges: &[VisitedRange], holders: &Holders, are_listed: bool) -> Merged {
    let visited = ranges.iter().flat_map(|range| range.visits).map(|visit| visit.pbn).collect();
    let (gone, kept, pieces) = (HashMap::new(), HashSet::new(), HashMap::new());
    let mut choice = Choice { holders, are_listed, visited, gone, kept, left: 0, pieces };
    let mut chosen = Vec::new();
    // A budget applies to the whole file, so all its ranges compete for it.
    let is_one_file = |a: &VisitedRange, b: &VisitedRange| {
        a.budget.is_some() && b.budget.is_some() && a.visits[0].map == b.visits[0].map
    };
    for ranges in ranges.chunk_by(is_one_file) {
        match (ranges[0].budget, ranges[0].run_blocks_min) {
            (Some(room), _) => choice.targets_in_budget(ranges, room, &mut chosen),
            (None, 0 | 1) => choice.targets_of_blocks(&ranges[0], &mut chosen),
            (None, _) => choice.targets_of_runs(&ranges[0], &mut chosen),
        }
    }
    let remaps: Vec<Remap> = chosen.into_iter().filter_map(|(visit, target)| choice.remap(visit, target)).collect();
    debug_assert!(
        remaps.iter().all(|remap| remap.target.1.tag == remap.visit.entry.tag),
        "a target of another content"
    );
    Merged { remaps, left: choice.left, pieces: choice.pieces }
}

/// The state of a batch while it is being decided.
struct Choice<'a> {
    holders: &'a Holders,
    /// Whether the blocks were skipped one by one. Such blocks are newer than most others.
    are_listed: bool,
    visited: HashSet<Pbn>,
    /// Blocks that were moved, with their targets.
    gone: HashMap<Pbn, Pbn>,
    /// Blocks that runs move to.
    kept: HashSet<Pbn>,
    left: u64,
    pieces: HashMap<MapId, u64>,
}

impl<'a> Choice<'a> {
    /// Blocks count one by one. A block moves to the best holder of its content, so that equal blocks merge into one:
    /// the one with the most references, and among equals the lowest pbn. If the block is the best itself, the others
    /// move to it when they are visited. Only a skipped block with a single reference moves nonetheless, to a block
    /// that is not visited in this batch, because that frees it and the other is probably older. A block without a hint
    /// of its own, because enough others have one, is never the best.
    fn targets_of_blocks(&mut self, range: &VisitedRange<'a>, chosen: &mut Vec<(Visit, Pbn)>) {
        for visit in range.visits {
            if let Some(target) = self.best_for(visit) {
                self.gone.insert(visit.pbn, target);
                chosen.push((*visit, target));
            }
        }
    }

    fn best_for(&mut self, visit: &Visit) -> Option<Pbn> {
        if self.kept.contains(&visit.pbn) {
            return None;
        }
        let rank = |(pbn, entry): &&(Pbn, Entry)| (entry.count, std::cmp::Reverse(*pbn));
        let (best, _) = self.holders_of(visit).max_by_key(rank)?;
        if *best != visit.pbn {
            return Some(*best);
        }
        let (other, _) = self.holders_of(visit).filter(|(pbn, _)| !self.visited.contains(pbn)).max_by_key(rank)?;
        let other = *other;
        let moves = self.are_listed && visit.entry.count == 1;
        self.left += u64::from(!moves);
        moves.then_some(other)
    }

    /// Runs count (iDedup, section 4.2). A run moves as a whole, to blocks with more references in total, or as many
    /// and lower pbns. So moving ends: the sum of the squares of all counts grows with every such move. A run of
    /// skipped blocks with a single reference each moves nonetheless, to a run that is not visited in this batch. The
    /// target of a run of this batch stays where it is.
    fn targets_of_runs(&mut self, range: &VisitedRange<'a>, chosen: &mut Vec<(Visit, Pbn)>) {
        let holders: Vec<Vec<Pbn>> = range.visits.iter().map(|visit| self.others_for(visit)).collect();
        let visits = holders.iter().map(|holders| Candidates { holders, current: None });
        let candidates: Vec<Candidates> =
            (range.before.iter().map(staying)).chain(visits).chain(range.after.iter().map(staying)).collect();
        let rule = RunRule { end_blocks_min: range.end_blocks_min, ..RunRule::of(range.run_blocks_min) };
        let decisions = detect(&candidates, rule).split_off(range.before.len());
        let targets = range.visits.iter().zip(decisions).filter_map(|(visit, decision)| match decision {
            Decision::Share(target) => Some((*visit, target)),
            Decision::Unknown | Decision::Refused | Decision::Open => None,
        });
        self.move_runs(&targets.collect::<Vec<_>>(), chosen);
    }

    /// Moves the runs that may move. True: some did.
    fn move_runs(&mut self, targets: &[(Visit, Pbn)], chosen: &mut Vec<(Visit, Pbn)>) -> bool {
        let before = chosen.len();
        for run in targets.chunk_by(|a, b| a.0.lbn.plus(1) == b.0.lbn && a.1.plus(1) == b.1) {
            if self.may_move(run) {
                self.gone.extend(run.iter().map(|(visit, target)| (visit.pbn, *target)));
                self.kept.extend(run.iter().map(|(_, target)| *target));
                chosen.extend_from_slice(run);
            }
        }
        chosen.len() > before
    }

    /// The budget of the file decides among the runs of all its ranges. A block that is shared already stays, because
    /// moving it saves nothing and may add a piece.
    fn targets_in_budget(&mut self, ranges: &[VisitedRange<'a>], room: Room, chosen: &mut Vec<(Visit, Pbn)>) {
        let blocks: Vec<InBudget> = ranges.iter().flat_map(|range| self.blocks_in_budget(range)).collect();
        let candidates: Vec<Candidates> = blocks.iter().map(InBudget::candidates).collect();
        let own: HashSet<Pbn> = blocks.iter().map(|block| block.own).collect();
        let is_free = |at: usize, pbn: Pbn| {
            let entry = || blocks[at].visit.and_then(|visit| self.entry_of(&visit, pbn));
            own.contains(&pbn) || entry().is_some_and(|entry| entry.count >= REFS_FREE_MIN)
        };
        let Room { pieces_max, gap_blocks_max, .. } = room;
        let is_end = ranges.last().is_some_and(|range| range.budget.is_some_and(|room| room.is_end));
        let within = detect_within(&candidates, &Allowance { pieces_max, gap_blocks_max, is_end, is_free: &is_free });
        let target = |(block, decision): (&InBudget, &Decision)| match (block.visit, decision) {
            (Some(visit), Decision::Share(target)) if *target != visit.pbn => Some((visit, *target)),
            _ => None,
        };
        let targets: Vec<(Visit, Pbn)> = blocks.iter().zip(&within.decisions).filter_map(target).collect();
        if self.move_runs(&targets, chosen) {
            self.pieces.insert(targets[0].0.map, within.pieces);
        }
    }

    /// The blocks of a range with the blocks before and after them, which stay.
    fn blocks_in_budget(&self, range: &VisitedRange<'a>) -> Vec<InBudget> {
        let staying = |pbn: &Pbn| InBudget { own: *pbn, visit: None, holders: vec![*pbn] };
        let visited = |visit: &Visit| {
            let is_shared = visit.entry.count > 1;
            let holders = if is_shared { vec![visit.pbn] } else { self.others_for(visit) };
            InBudget { own: visit.pbn, visit: Some(*visit), holders }
        };
        let visited = range.visits.iter().map(visited);
        range.before.iter().map(staying).chain(visited).chain(range.after.iter().map(staying)).collect()
    }

    fn may_move(&mut self, run: &[(Visit, Pbn)]) -> bool {
        let own: HashSet<Pbn> = run.iter().map(|(visit, _)| visit.pbn).collect();
        let is_in_the_way = |(visit, target): &(Visit, Pbn)| {
            own.contains(target) || self.gone.contains_key(target) || self.kept.contains(&visit.pbn)
        };
        if run.iter().any(is_in_the_way) {
            return false;
        }
        let count_of =
            |(visit, target): &(Visit, Pbn)| self.entry_of(visit, *target).map_or(0, |entry| entry.count.into());
        let here: u64 = run.iter().map(|(visit, _)| u64::from(visit.entry.count)).sum();
        let there: u64 = run.iter().map(count_of).sum();
        let is_better = (there, std::cmp::Reverse(run[0].1)) > (here, std::cmp::Reverse(run[0].0.pbn));
        let frees = self.are_listed && here == run.len() as u64;
        let moves = is_better || (frees && run.iter().all(|(_, target)| !self.visited.contains(target)));
        self.left += if moves { 0 } else { run.len() as u64 };
        moves
    }

    fn holders_of(&self, visit: &Visit) -> impl Iterator<Item = &'a (Pbn, Entry)> + use<'a> {
        let holders = self.holders.get(&visit.entry.tag).map(Vec::as_slice).unwrap_or_default();
        holders.iter().filter(|(_, entry)| entry.count < COUNT_FULL)
    }

    /// The blocks that may replace a block. A block that is a target already does not move.
    fn others_for(&self, visit: &Visit) -> Vec<Pbn> {
        if self.kept.contains(&visit.pbn) {
            return Vec::new();
        }
        let others = self.holders_of(visit).map(|(pbn, _)| *pbn);
        others.filter(|pbn| *pbn != visit.pbn && !self.gone.contains_key(pbn)).collect()
    }

    fn entry_of(&self, visit: &Visit, pbn: Pbn) -> Option<Entry> {
        let holders = self.holders.get(&visit.entry.tag)?;
        holders.iter().find(|(holder, _)| *holder == pbn).map(|(_, entry)| *entry)
    }

    fn remap(&self, visit: Visit, target: Pbn) -> Option<Remap> {
        let target = end_of_moves(&self.gone, target);
        let entry = self.entry_of(&visit, target)?;
        (target != visit.pbn).then_some(Remap { visit, target: (target, entry) })
    }
}

/// A block of a file with a budget.
struct InBudget {
    /// Where it lies.
    own: Pbn,
    /// None: it is there only because runs continue from it.
    visit: Option<Visit>,
    /// Just its own block if it stays.
    holders: Vec<Pbn>,
}

impl InBudget {
    fn candidates(&self) -> Candidates<'_> {
        Candidates { holders: &self.holders, current: Some(self.own) }
    }
}

/// A block that stays.
fn staying(pbn: &Pbn) -> Candidates<'_> {
    Candidates { holders: std::slice::from_ref(pbn), current: Some(*pbn) }
}

/// The final target of a block after the moves of this batch. Every step goes to a better block, so the steps end.
fn end_of_moves(gone: &HashMap<Pbn, Pbn>, mut pbn: Pbn) -> Pbn {
    for _ in 0..gone.len() {
        match gone.get(&pbn) {
            Some(next) => pbn = *next,
            None => break,
        }
    }
    pbn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lbn, Tag};

    fn range_of(visits: &[Visit], run_blocks_min: u32) -> VisitedRange<'_> {
        VisitedRange {
            visits,
            run_blocks_min,
            budget: None,
            end_blocks_min: None,
            before: Vec::new(),
            after: Vec::new(),
        }
    }

    fn entry(tag: u64, count: u32) -> Entry {
        Entry { tag: Tag(tag), fingerprint: None, count, flags: 0 }
    }

    /// Visits as (lbn, pbn), every block of tag 7; the holders of tag 7 as (pbn, count). Returns (lbn, target).
    fn chosen(visits: &[(u64, u64)], holders: &[(u64, u32)]) -> Vec<(u64, u64)> {
        let count = |pbn| holders.iter().find(|(holder, _)| *holder == pbn).expect("visited blocks are holders").1;
        let visits: Vec<Visit> = visits
            .iter()
            .map(|(lbn, pbn)| Visit { map: MapId(1), lbn: Lbn(*lbn), pbn: Pbn(*pbn), entry: entry(7, count(*pbn)) })
            .collect();
        let holders = holders.iter().map(|(pbn, count)| (Pbn(*pbn), entry(7, *count))).collect();
        let ranges: Vec<VisitedRange> =
            visits.chunk_by(|a, b| a.lbn.plus(1) == b.lbn).map(|visits| range_of(visits, 1)).collect();
        let merged = merge_targets(&ranges, &HashMap::from_iter([(Tag(7), holders)]), true);
        merged.remaps.iter().map(|remap| (remap.visit.lbn.0, remap.target.0.0)).collect()
    }

    #[test]
    fn a_copy_goes_to_the_block_with_more_references_then_to_the_lower_one() {
        assert_eq!(chosen(&[(0, 20)], &[(10, 1), (20, 1)]), [(0, 10)]);
        assert_eq!(chosen(&[(0, 20)], &[(20, 2), (30, 3)]), [(0, 30)]);
        assert_eq!(chosen(&[(0, 20)], &[(10, 1), (20, 2)]), []);
        assert_eq!(chosen(&[(0, 20)], &[(20, 1)]), []);
    }

    #[test]
    fn a_copy_with_one_reference_goes_to_a_block_that_is_not_looked_at() {
        assert_eq!(chosen(&[(0, 10)], &[(10, 1), (20, 1)]), [(0, 20)]);
    }

    #[test]
    fn two_copies_looked_at_together_do_not_change_places() {
        assert_eq!(chosen(&[(0, 10), (5, 20)], &[(10, 1), (20, 1)]), [(5, 10)]);
    }

    #[test]
    fn copies_of_one_batch_meet_in_one_block() {
        let remaps = chosen(&[(0, 30), (5, 20), (9, 10)], &[(10, 1), (20, 1), (30, 1)]);
        assert_eq!(remaps, [(0, 10), (5, 10)]);
        let remaps = chosen(&[(0, 30), (5, 20)], &[(10, 1), (20, 5), (30, 9)]);
        assert_eq!(remaps, [(5, 30)]);
    }

    /// Whatever the counts and places, repeated passes end with every visited reference in one block.
    #[test]
    fn passes_over_all_references_end_in_one_block() {
        let mut random = crate::tests::fixture::Random::new(5);
        for case in 0..500 {
            let mut refs: Vec<u64> = (0..2 + random.below(6)).map(|_| 10 + random.below(5)).collect();
            for pass in 0.. {
                let mut holders: Vec<(u64, u32)> = Vec::new();
                for pbn in 10..15 {
                    let count = refs.iter().filter(|at| **at == pbn).count() as u32;
                    holders.extend((count > 0).then_some((pbn, count)));
                }
                if holders.len() == 1 {
                    break;
                }
                assert!(pass < 10, "case {case}: {refs:?}");
                let from = random.below(refs.len() as u64) as usize;
                let visits: Vec<(u64, u64)> = (from..refs.len()).map(|n| (2 * n as u64, refs[n])).collect();
                for (lbn, target) in chosen(&visits, &holders) {
                    refs[lbn as usize / 2] = target;
                }
                let visits: Vec<(u64, u64)> = (0..refs.len()).map(|n| (2 * n as u64, refs[n])).collect();
                holders = holders_of(&refs);
                for (lbn, target) in chosen(&visits, &holders) {
                    refs[lbn as usize / 2] = target;
                }
            }
        }
    }

    /// Block, tag and references.
    type Seen = (u64, u64, u32);

    /// Like `visits` of one range: (pbn, tag, count) each. Returns (pbn, target).
    fn chosen_in(ranges: &[(u32, &[Seen])], others: &[Seen]) -> Vec<(u64, u64)> {
        let mut holders = Holders::new();
        let mut all: Vec<_> = ranges.iter().flat_map(|(_, visits)| *visits).chain(others).copied().collect();
        all.sort_unstable();
        all.dedup();
        for (pbn, tag, count) in all {
            holders.entry(Tag(tag)).or_default().push((Pbn(pbn), entry(tag, count)));
        }
        let visits: Vec<Vec<Visit>> = (ranges.iter().zip(1..))
            .map(|((_, visits), map)| {
                let visit = |(&(pbn, tag, count), lbn): (&(u64, u64, u32), u64)| Visit {
                    map: MapId(map),
                    lbn: Lbn(lbn),
                    pbn: Pbn(pbn),
                    entry: entry(tag, count),
                };
                visits.iter().zip(0..).map(visit).collect()
            })
            .collect();
        let mins = ranges.iter().map(|(run_blocks_min, _)| *run_blocks_min);
        let ranges: Vec<VisitedRange> =
            (mins.zip(&visits)).map(|(run_blocks_min, visits)| range_of(visits, run_blocks_min)).collect();
        merge_targets(&ranges, &holders, false)
            .remaps
            .iter()
            .map(|remap| (remap.visit.pbn.0, remap.target.0.0))
            .collect()
    }

    #[test]
    fn the_references_of_a_run_may_be_more_than_a_count_holds() {
        let here: Vec<(u64, u64, u32)> = (0..256).map(|n| (1_000 + n, n, 1 << 24)).collect();
        let there: Vec<(u64, u64, u32)> = (0..256).map(|n| (5_000 + n, n, 1 << 25)).collect();
        assert_eq!(chosen_in(&[(8, &here)], &there).len(), 256);
    }

    #[test]
    fn what_a_run_moves_to_stays_where_every_block_counts_too() {
        let run = [(20, 7, 5), (21, 8, 1)];
        let moved = chosen_in(&[(2, &run), (1, &[(30, 7, 4)])], &[(31, 8, 9)]);
        assert_eq!(moved, [(20, 30), (21, 31)], "and 30 does not move to 20");
    }

    fn holders_of(refs: &[u64]) -> Vec<(u64, u32)> {
        let count = |pbn| refs.iter().filter(|at| **at == pbn).count() as u32;
        (10..15).filter(|pbn| count(*pbn) > 0).map(|pbn| (pbn, count(pbn))).collect()
    }
}
