//! Revisit: blocks that in-line deduplication skipped are looked up in both levels of the hint store, and duplicates
//! are remapped (SmartDedup, section 3.3). One function, `revisit`, holds the order; `remap` publishes.
//!
//! Nothing here is durable by itself: a remap is a publication like any other, durable with its group. A crash
//! before that leaves the copy in its place, and the work to the full pass that follows a crash.

use std::sync::atomic::Ordering::Relaxed;

use hashbrown::{HashMap, HashSet};
use oncefs_dedup::{Candidates, Decision, HOLDERS_MAX, Hint, RunRule, detect};

use crate::core::Core;
use crate::format::page::{COUNT_MAX, Entry};
use crate::gather::Place;
use crate::{BLOCK_BYTES, Lbn, MapId, Pbn, Result, Stage, Tag};

/// Blocks looked at in one go, at most: bounds the worker's memory at some 2 MB.
pub const BATCH_BLOCKS_MAX: u64 = 8_192;
/// A block with so many references gets no more from the worker: near the largest count it would be refused.
const COUNT_FULL: u32 = COUNT_MAX / 2;
/// Blocks compared with one read of each side, at most.
const COMPARED_BLOCKS_MAX: usize = 128;

/// A place in a file whose block is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// The file's map.
    pub map: MapId,
    /// The place.
    pub lbn: Lbn,
    /// What the map has there.
    pub pbn: Pbn,
    /// What the table says of it.
    pub entry: Entry,
}

/// A place whose block can be dropped for an equal one.
#[derive(Clone, Copy, Debug)]
pub struct Remap {
    /// The place and its block.
    pub visit: Visit,
    /// The equal block, and what the table says of it.
    pub target: (Pbn, Entry),
}

impl Remap {
    /// Whether fingerprints decide.
    fn is_known(&self) -> bool {
        self.visit.entry.fingerprint.is_some() && self.target.1.fingerprint.is_some()
    }

    fn has_equal_fingerprints(&self) -> bool {
        self.is_known() && self.visit.entry.fingerprint == self.target.1.fingerprint
    }
}

impl Core {
    /// Looks at some skipped blocks. Gives how many; None: nothing is left.
    pub fn revisit(&self, blocks_max: u64) -> Result<Option<u64>> {
        self.usable()?;
        let began = std::time::Instant::now();
        // From here on no block that is seen is reused, so that it holds what the table says of it.
        let _pin = self.pins.pin();
        if self.is_sweep_due() {
            return Ok(Some(0));
        }
        let places = self.gather(blocks_max.clamp(1, BATCH_BLOCKS_MAX));
        if places.is_empty() {
            return Ok((self.is_revisit_left() || self.begin_pass_for_left()).then_some(0));
        }
        let blocks = places.len() as u64;
        self.revisit_places(&places).inspect_err(|_| {
            let mut skipped = self.skipped.lock();
            places.iter().for_each(|(map, lbn, _)| skipped.add(map.0, *lbn, 1));
        })?;
        self.counters.blocks_revisited.fetch_add(blocks, Relaxed);
        self.record(Stage::Revisit, blocks, began.elapsed());
        Ok(Some(blocks))
    }

    fn revisit_places(&self, places: &[Place]) -> Result<()> {
        let visits = self.with_entries(places)?;
        let holders = self.look_up_in_both(&visits)?;
        let is_listed = self.pass.lock().is_batch_listed();
        let (chosen, left) = choose(&visits, &holders, is_listed);
        let confirmed = self.confirm_remaps(chosen);
        self.pass.lock().note_left(left, confirmed.len() as u64);
        self.remap(confirmed)
    }

    /// What the table says of the blocks. One that was freed meanwhile, or that is bad, is left out.
    fn with_entries(&self, places: &[Place]) -> Result<Vec<Visit>> {
        let entries = self.entries_at(&ascending(places.iter().map(|(_, _, pbn)| *pbn)))?;
        let visit = |&(map, lbn, pbn): &Place| {
            let entry = *entries.get(&pbn).filter(|entry| entry.serves(entry.tag))?;
            Some(Visit { map, lbn, pbn, entry })
        };
        Ok(places.iter().filter_map(visit).collect())
    }

    /// Live blocks with the same tag as each visited one, itself not included, by tag.
    fn look_up_in_both(&self, visits: &[Visit]) -> Result<HashMap<Tag, Vec<(Pbn, Entry)>>> {
        self.merge_evicted();
        let mut tags: Vec<Tag> = visits.iter().map(|visit| visit.entry.tag).collect();
        tags.sort_unstable();
        tags.dedup();
        // Both, whatever memory knows: the holder that all are to meet in may be on disk.
        let mut hints = self.look_up_tags_on_disk(&tags);
        self.counters.disk_level_hits.fetch_add(hints.len() as u64, Relaxed);
        {
            let mut memory = self.hints.lock();
            let mut pbns = Vec::new();
            for tag in tags {
                pbns.clear();
                memory.peek(tag, &mut pbns);
                hints.extend(pbns.iter().map(|pbn| (tag, *pbn)));
            }
        }
        let lost = self.heal(visits, &hints);
        hints.extend(lost);
        self.live_holders(hints)
    }

    /// The disk level's hints for whole tags, of which it knows the beginning. The tags come in ascending order; those
    /// out of the sample cost no read.
    pub fn look_up_tags_on_disk(&self, tags: &[Tag]) -> Vec<(Tag, Pbn)> {
        let tags: Vec<Tag> = tags.iter().copied().filter(|tag| self.sample.has(*tag)).collect();
        let found = self.look_up_on_disk(&tags);
        let mut hints = Vec::with_capacity(found.len());
        for tag in tags {
            let kept = Hint::new(tag, Pbn(0)).tag;
            let from = found.partition_point(|hint| hint.tag < kept);
            hints.extend(found[from..].iter().take_while(|hint| hint.tag == kept).map(|hint| (tag, hint.pbn)));
        }
        hints
    }

    /// A visited block of the sample that neither level names gets its hint back, unless enough others hold its content.
    fn heal(&self, visits: &[Visit], hints: &[(Tag, Pbn)]) -> Vec<(Tag, Pbn)> {
        let mut named: HashMap<Tag, Vec<Pbn>> = HashMap::new();
        hints.iter().for_each(|(tag, pbn)| named.entry(*tag).or_default().push(*pbn));
        let is_lost =
            |(tag, pbn): &(Tag, Pbn)| named.get(tag).is_none_or(|pbns| !pbns.contains(pbn) && pbns.len() < HOLDERS_MAX);
        let visited = visits.iter().map(|visit| (visit.entry.tag, visit.pbn)).filter(|(tag, _)| self.sample.has(*tag));
        let lost: Vec<(Tag, Pbn)> = visited.filter(is_lost).collect();
        self.counters.hints_healed.fetch_add(lost.len() as u64, Relaxed);
        self.update_hints(&[], &lost);
        lost
    }

    /// Keeps the hints that the table confirms; the others are stale.
    fn live_holders(&self, hints: Vec<(Tag, Pbn)>) -> Result<HashMap<Tag, Vec<(Pbn, Entry)>>> {
        let entries = self.entries_at(&ascending(hints.iter().map(|(_, pbn)| *pbn)))?;
        let mut holders: HashMap<Tag, Vec<(Pbn, Entry)>> = HashMap::new();
        let mut stale = Vec::new();
        for (tag, pbn) in hints {
            match entries.get(&pbn).filter(|entry| entry.serves(tag)) {
                Some(entry) => holders.entry(tag).or_default().push((pbn, *entry)),
                None => stale.push((tag, pbn)),
            }
        }
        for pbns in holders.values_mut() {
            pbns.sort_unstable_by_key(|(pbn, _)| *pbn);
            pbns.dedup_by_key(|(pbn, _)| *pbn);
        }
        self.counters.hints_stale.fetch_add(stale.len() as u64, Relaxed);
        self.update_hints(&stale, &[]);
        Ok(holders)
    }

    /// Keeps the pairs that hold the same content: by fingerprint, or, where one is missing, by comparing the bytes.
    fn confirm_remaps(&self, chosen: Vec<Remap>) -> Vec<Remap> {
        let mut confirmed = Vec::with_capacity(chosen.len());
        let are_neighbours = |a: &Remap, b: &Remap| {
            a.visit.pbn.plus(1) == b.visit.pbn && a.target.0.plus(1) == b.target.0 && a.is_known() == b.is_known()
        };
        for run in chosen.chunk_by(are_neighbours) {
            for part in run.chunks(COMPARED_BLOCKS_MAX) {
                match part[0].is_known() {
                    true => confirmed.extend(part.iter().filter(|remap| remap.has_equal_fingerprints())),
                    false => self.compare_or_leave(part, &mut confirmed),
                }
            }
        }
        self.counters.hints_refused.fetch_add((chosen.len() - confirmed.len()) as u64, Relaxed);
        confirmed
    }

    /// Blocks that cannot be read stay where they are, and the others around them do not.
    fn compare_or_leave(&self, run: &[Remap], confirmed: &mut Vec<Remap>) {
        match self.compare(run, confirmed) {
            Err(_) if run.len() > 1 => run.chunks(1).for_each(|one| self.compare_or_leave(one, confirmed)),
            Err(error) => log::warn!("a copy of block {} stays where it is: {error}", run[0].target.0),
            Ok(()) => {}
        }
    }

    /// Reads neighbours and the neighbours that they can go for, and keeps those that are equal. A block that is
    /// not what its tag says equals nothing. A target without a fingerprint gets it, so that it is compared once.
    fn compare(&self, run: &[Remap], confirmed: &mut Vec<Remap>) -> Result<()> {
        let bytes = run.len() * BLOCK_BYTES;
        let (mut copies, mut targets) = (self.pool.take(bytes), self.pool.take(bytes));
        self.read_run(run[0].visit.pbn, &mut copies)?;
        self.read_run(run[0].target.0, &mut targets)?;
        self.counters.blocks_compared.fetch_add(run.len() as u64, Relaxed);
        let pairs = copies.chunks_exact(BLOCK_BYTES).zip(targets.chunks_exact(BLOCK_BYTES));
        for (remap, (copy, target)) in run.iter().zip(pairs) {
            if copy != target || self.hasher.tag(target) != remap.visit.entry.tag {
                continue;
            }
            let mut remap = *remap;
            if remap.target.1.fingerprint.is_none() {
                let mut fingerprints = Vec::with_capacity(1);
                self.hasher.fingerprints(&[target], &mut fingerprints);
                remap.target.1.fingerprint = fingerprints.pop();
            }
            confirmed.push(remap);
        }
        Ok(())
    }
}

fn ascending(pbns: impl Iterator<Item = Pbn>) -> Vec<Pbn> {
    let mut pbns: Vec<Pbn> = pbns.collect();
    pbns.sort_unstable();
    pbns.dedup();
    pbns
}

/// Which blocks go for which. A block moves to the best holder of its content, so that equal blocks meet in one:
/// the one with the most references, of these the lowest pbn. If it is that itself, the others come to it when they
/// are looked at. Only a block that was skipped (`are_listed`) and has a single reference moves nonetheless, to one
/// that is not looked at in this batch, because that frees it and the other is probably older. One that is not named
/// itself, because enough others are, never is the best.
///
/// Also gives how many stay although equal ones are left elsewhere: who refers to those is not known here.
fn choose(visits: &[Visit], holders: &HashMap<Tag, Vec<(Pbn, Entry)>>, are_listed: bool) -> (Vec<Remap>, u64) {
    let mut left = 0;
    let visited: HashSet<Pbn> = visits.iter().map(|visit| visit.pbn).collect();
    let mut goes_to = |visit: &Visit| -> Option<Pbn> {
        let holders = holders.get(&visit.entry.tag).map(Vec::as_slice).unwrap_or_default();
        let holders: Vec<(Pbn, Entry)> =
            holders.iter().filter(|(_, entry)| entry.count < COUNT_FULL).copied().collect();
        let rank = |(pbn, entry): &&(Pbn, Entry)| (entry.count, std::cmp::Reverse(*pbn));
        let (best, _) = holders.iter().max_by_key(rank)?;
        if *best != visit.pbn {
            return Some(*best);
        }
        let (other, _) = holders.iter().filter(|(pbn, _)| !visited.contains(pbn)).max_by_key(rank)?;
        let moves = are_listed && visit.entry.count == 1;
        left += u64::from(!moves);
        moves.then_some(*other)
    };
    let targets: Vec<Vec<Pbn>> = visits.iter().map(&mut goes_to).map(|target| target.into_iter().collect()).collect();
    let mut gone: HashMap<Pbn, Pbn> = HashMap::new();
    let mut chosen: Vec<(usize, Pbn)> = Vec::new();
    let mut first = 0;
    for stretch in visits.chunk_by(|a, b| a.map == b.map && a.lbn.plus(1) == b.lbn) {
        let candidates: Vec<Candidates> =
            targets[first..first + stretch.len()].iter().map(|holders| Candidates { holders, current: None }).collect();
        for (n, decision) in detect(&candidates, RunRule::EVERY_BLOCK).into_iter().enumerate() {
            if let Decision::Share(target) = decision {
                gone.insert(stretch[n].pbn, target);
                chosen.push((first + n, target));
            }
        }
        first += stretch.len();
    }
    let remap = |(index, target): (usize, Pbn)| {
        let visit = visits[index];
        let target = end_of_moves(&gone, target);
        let entry = holders[&visit.entry.tag].iter().find(|(pbn, _)| *pbn == target).map(|(_, entry)| *entry)?;
        (target != visit.pbn).then_some(Remap { visit, target: (target, entry) })
    };
    (chosen.into_iter().filter_map(remap).collect(), left)
}

/// Where a block is after the moves of this batch. Every step goes to a better block, so that they end.
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

    fn entry(tag: u64, count: u32) -> Entry {
        Entry { tag: Tag(tag), fingerprint: None, count, flags: 0 }
    }

    /// Visits as (lbn, pbn), every block of tag 7; the holders of tag 7 as (pbn, count). Gives (lbn, target).
    fn chosen(visits: &[(u64, u64)], holders: &[(u64, u32)]) -> Vec<(u64, u64)> {
        let count = |pbn| holders.iter().find(|(holder, _)| *holder == pbn).expect("visited blocks are holders").1;
        let visits: Vec<Visit> = visits
            .iter()
            .map(|(lbn, pbn)| Visit { map: MapId(1), lbn: Lbn(*lbn), pbn: Pbn(*pbn), entry: entry(7, count(*pbn)) })
            .collect();
        let holders = holders.iter().map(|(pbn, count)| (Pbn(*pbn), entry(7, *count))).collect();
        let (remaps, _) = choose(&visits, &HashMap::from_iter([(Tag(7), holders)]), true);
        remaps.iter().map(|remap| (remap.visit.lbn.0, remap.target.0.0)).collect()
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

    /// However counts and places are, repeated passes end with every visited reference in one block.
    #[test]
    fn passes_over_all_references_end_in_one_block() {
        let mut random = crate::fixture::Random(5);
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

    fn holders_of(refs: &[u64]) -> Vec<(u64, u32)> {
        let count = |pbn| refs.iter().filter(|at| **at == pbn).count() as u32;
        (10..15).filter(|pbn| count(*pbn) > 0).map(|pbn| (pbn, count(pbn))).collect()
    }
}
