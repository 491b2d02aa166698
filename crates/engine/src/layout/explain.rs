//! Explain: how a file lies in the data area, and why: which of its blocks it shares, which are its own, and how the
//! detector judges these today. It reads everything and changes nothing: it restores, promotes and drops no hints.
//!
//! It does not know which other files refer to a block, see `referrers`. A file is explained in portions, each as the
//! file was at one moment. Between two portions it may change.

mod verdict;

use oncefs_dedup::ShareLimit;
use verdict::{Known, verdicts};

use crate::base::part;
use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::fragment::FragmentPlace;
use crate::format::keys::LeafKey;
use crate::format::page::Entry;
use crate::layout::referrers::{References, ReferrerSearch};
use crate::layout::run_states::{BudgetUse, Compressed, Explained, ExplainedRun, What, push_run};
use crate::policy::effective::FilePolicies;
use crate::state::loading::Metadata;
use crate::write::extension::Extender;
use crate::write::visit::{Holders, ascending};
use crate::{Error, Lbn, MapId, Pbn, Result, Tag};

/// Leaves explained in one portion: 32 MiB of a file without holes.
const PORTION_LEAVES: usize = 32;

/// A part of a map as it was at one moment.
struct Seen {
    /// The targets, in order, including the system_load of the portion, so that runs across its ends are known.
    blocks: Vec<(Lbn, Target)>,
    /// The end of the portion.
    end: Lbn,
    /// Whether the map has anything after it.
    goes_on: bool,
}

part! {
    /// Explains where the blocks of a file are, and why they are shared or not.
    pub struct Explainer {
        base: policy, state, backlog, worker, hints, stats;
        metadata: Metadata, file_policies: FilePolicies, extender: Extender, referrer_search: ReferrerSearch
    }
}

impl Explainer {
    /// See [`crate::Store::explain`].
    pub fn explain(&self, map: MapId, from: Lbn) -> Result<Explained> {
        let run_blocks_min = self.file_policies.run_blocks_min(map);
        let (runs, next) = self.explain_with(map, from, run_blocks_min)?;
        let (effective_policy, run_blocks_min_from) = (
            self.file_policies.effective_policy(map),
            self.file_policies.why_effective(self.file_policies.file_policy(map)),
        );
        let is_left_alone = !effective_policy.is_inline && !effective_policy.is_later;
        let budget = self.budget_use(map)?;
        Ok(Explained { map: map.0, runs, next, run_blocks_min, run_blocks_min_from, budget, is_left_alone })
    }

    /// How much of its budget a file uses, if it has one.
    fn budget_use(&self, map: MapId) -> Result<Option<BudgetUse>> {
        let ShareLimit::Budget(slowdown) = self.file_policies.share_limit(map) else { return Ok(None) };
        let (account, cost) = (self.file_policies.account(map)?, self.policy.device_reads().piece_cost());
        let pieces_max = account.pieces_max(slowdown, cost);
        let percent = account.slowdown_percent(cost).round() as u32;
        Ok(Some(BudgetUse { percent_max: slowdown.0, percent, pieces: account.pieces, pieces_max }))
    }

    /// The runs of a portion, judged with this shortest run, and where the next one begins.
    fn explain_with(&self, map: MapId, from: Lbn, run_blocks_min: u32) -> Result<(Vec<ExplainedRun>, Option<u64>)> {
        // No visited block is reused meanwhile, so each holds the content that the table names.
        let _pin = self.metadata.pin();
        let seen = self.look_at_map(map, from, u64::from(run_blocks_min).div_ceil(LEAF_BLOCKS))?;
        let said = self.explain_blocks(map, &seen.blocks, run_blocks_min)?;
        let inside = |lbn: &Lbn| (from..seen.end).contains(lbn);
        let pbns = seen.blocks.iter().filter(|(lbn, _)| inside(lbn)).filter_map(|(_, target)| data_of(*target));
        let places = self.metadata.known_places(pbns);
        let mut runs = Vec::new();
        let mut at = from;
        let inside = seen.blocks.iter().zip(said).filter(|((lbn, _), _)| inside(lbn));
        for ((lbn, target), what) in inside {
            push_run(&mut runs, ExplainedRun::plain(at.0, lbn.0 - at.0, What::Hole));
            let compressed = data_of(*target).and_then(|pbn| places.get(&pbn)).map(compressed_at);
            push_run(&mut runs, ExplainedRun { lbn: lbn.0, blocks: 1, what, compressed });
            at = lbn.plus(1);
        }
        if seen.goes_on {
            push_run(&mut runs, ExplainedRun::plain(at.0, seen.end.0 - at.0, What::Hole));
        }
        Ok((runs, seen.goes_on.then_some(seen.end.0)))
    }

    /// The targets in a portion and in the `margin` leaves on either side, at one moment.
    fn look_at_map(&self, map: MapId, from: Lbn, margin: u64) -> Result<Seen> {
        let _map = self.metadata.lock_of(map).read();
        if self.state.lock().is_detached(map) {
            return Err(Error::MapDetached);
        }
        let first = from.0 / LEAF_BLOCKS;
        let start = first.saturating_sub(margin);
        let limit = PORTION_LEAVES + 2 * margin as usize + 1;
        let leaves = self.metadata.stored_leaves(map, start, limit)?;
        let inside: Vec<u64> = leaves.iter().copied().filter(|leaf| *leaf >= first).collect();
        let mut blocks = Vec::new();
        for &leaf in &leaves {
            let key = LeafKey { map, leaf };
            for extent in self.metadata.leaf(key)?.extents() {
                let targets = (0..u64::from(extent.blocks)).map(|n| (n, extent.target.plus(n)));
                blocks.extend(targets.map(|(n, target)| (key.first().plus(u64::from(extent.first) + n), target)));
            }
        }
        let last = inside.iter().take(PORTION_LEAVES).next_back().copied();
        let end = last.map_or(from, |last| Lbn((last + 1) * LEAF_BLOCKS));
        Ok(Seen { blocks, end, goes_on: inside.len() > PORTION_LEAVES })
    }

    /// The state of each block.
    fn explain_blocks(&self, map: MapId, blocks: &[(Lbn, Target)], run_blocks_min: u32) -> Result<Vec<What>> {
        let pbns = blocks.iter().filter_map(|(_, target)| data_of(*target));
        let references = self.referrer_search.references(pbns);
        let mut holders = self.peek_in_both(references.sound());
        self.extend(blocks, &references, &mut holders);
        let known: Vec<Known> =
            blocks.iter().map(|(lbn, target)| known_of(*lbn, *target, &references, &holders)).collect();
        let waits = self.which_wait(map, blocks);
        assert_eq!(waits.len(), blocks.len(), "whether each block waits for the worker");
        let last = known.iter().rfind(|block| block.own.is_some()).map(|block| block.lbn);
        let end = last.map(|last| self.file_policies.end_blocks_min(map, last)).transpose()?.flatten();
        let equal = verdicts(&known, run_blocks_min, last.zip(end));
        assert_eq!(equal.len(), blocks.len(), "what is known of each block's equals");
        let what = |((&(_, target), equal), waits)| match target {
            Target::Hole => What::Hole,
            Target::Reserved => What::Reserved,
            Target::Data(pbn) => references.what(pbn, equal, waits),
        };
        Ok(blocks.iter().zip(equal).zip(waits).map(what).collect())
    }

    /// Which blocks the worker has yet to visit.
    fn which_wait(&self, map: MapId, blocks: &[(Lbn, Target)]) -> Vec<bool> {
        let is_later = self.file_policies.is_later(map);
        self.worker.with_pass(|pass| {
            let is_ahead = |lbn: Lbn| pass.is_ahead_of(LeafKey { map, leaf: lbn.0 / LEAF_BLOCKS });
            let listed = self.backlog.which_wait(map, blocks.iter().map(|(lbn, _)| *lbn));
            blocks.iter().zip(listed).map(|((lbn, _), is_listed)| is_later && (is_listed || is_ahead(*lbn))).collect()
        })
    }

    /// Live blocks with the same tag as each given one, itself included, by tag: the worker's look-up, without side
    /// effects.
    fn peek_in_both(&self, blocks: impl Iterator<Item = (Pbn, Entry)>) -> Holders {
        let mut hints: Vec<(Tag, Pbn)> = blocks.map(|(pbn, entry)| (entry.tag, pbn)).collect();
        let mut tags: Vec<Tag> = hints.iter().map(|(tag, _)| *tag).collect();
        tags.sort_unstable();
        tags.dedup();
        hints.extend(self.hints.peek(&tags));
        hints.extend(self.hints.peek_waiting(&tags));
        hints.extend(self.hints.look_up_on_disk(&tags, &self.stats.counters));
        let entries = self.metadata.known_entries(&ascending(hints.iter().map(|(_, pbn)| *pbn)));
        hints.sort_unstable();
        hints.dedup();
        let mut holders = Holders::new();
        for (tag, pbn) in hints {
            if let Some(entry) = entries.get(&pbn).filter(|entry| entry.serves(tag)) {
                holders.entry(tag).or_default().push((pbn, *entry));
            }
        }
        holders
    }

    /// Adds holders that no hint names: any block of a run finds the whole run, as hints may name only one content in
    /// many.
    fn extend(&self, blocks: &[(Lbn, Target)], references: &References, holders: &mut Holders) {
        let sound = |(lbn, target): &(Lbn, Target)| match target {
            Target::Data(pbn) => references.sound_entry(*pbn).map(|entry| (*lbn, (entry.tag, *pbn))),
            Target::Hole | Target::Reserved => None,
        };
        let sound: Vec<(Lbn, (Tag, Pbn))> = blocks.iter().filter_map(sound).collect();
        for stretch in sound.chunk_by(|a, b| a.0.plus(1) == b.0) {
            let stretch: Vec<(Tag, Pbn)> = stretch.iter().map(|(_, block)| *block).collect();
            self.extender.extend_holders(&stretch, (None, None), holders);
        }
    }
}

fn data_of(target: Target) -> Option<Pbn> {
    match target {
        Target::Data(pbn) => Some(pbn),
        Target::Hole | Target::Reserved => None,
    }
}

fn compressed_at(place: &FragmentPlace) -> Compressed {
    Compressed { at: place.at, lengths: vec![place.bytes] }
}

/// The possible holders of a block's content. For a shared block they include its own, because its run continues there.
fn known_of(lbn: Lbn, target: Target, references: &References, holders: &Holders) -> Known {
    let Target::Data(pbn) = target else { return Known { lbn, own: None, is_shared: false, holders: Vec::new() } };
    let Some(entry) = references.sound_entry(pbn) else {
        return Known { lbn, own: None, is_shared: false, holders: Vec::new() };
    };
    let is_shared = references.of_files(pbn) > 1;
    let differs = |other: &Entry| {
        entry.fingerprint.is_some() && other.fingerprint.is_some() && entry.fingerprint != other.fingerprint
    };
    let found = holders.get(&entry.tag).map(Vec::as_slice).unwrap_or_default();
    let holders = found.iter().filter(|(other, held)| if *other == pbn { is_shared } else { !differs(held) });
    Known { lbn, own: Some(pbn), is_shared, holders: holders.map(|(pbn, _)| *pbn).collect() }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests;
