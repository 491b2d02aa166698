//! Compares a file with an older one by where their blocks are, without reading any block. Equal addresses at one
//! moment mean equal contents.

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests;

use serde::{Deserialize, Serialize};

use crate::base::part;
use crate::format::extent_leaf::{Extent, ExtentLeaf, LEAF_BLOCKS, Target};
use crate::format::keys::LeafKey;
use crate::layout::referrers::{References, ReferrerSearch};
use crate::state::extents::within_leaf;
use crate::state::loading::Metadata;
use crate::{Lbn, MapId, Pbn, Result};

/// Leaves compared in one portion: 32 MiB of a file without holes.
const PORTION_LEAVES: usize = 32;

/// A portion of a file's blocks. Its numbers are plain integers, as in every report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Adjacent blocks in the same state, ascending. What none of them names is a hole.
    pub runs: Vec<ComparedRun>,
    /// The lbn at which the next portion begins. None: only a hole follows.
    pub next: Option<u64>,
}

/// Adjacent blocks in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedRun {
    /// The first block's number in the file.
    pub lbn: u64,
    /// How many blocks.
    pub blocks: u64,
    /// Their state.
    pub state: ComparedState,
}

/// The state of a block of the newer file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparedState {
    /// The older file has this block at the same place.
    Same,
    /// Several places refer to the block, or a pending clone reads it.
    Shared,
    /// Only this place refers to the block.
    Own,
    /// It reads as zeros, and space is promised to the first write.
    Reserved,
}

/// An extent of the newer file, and what is known of it before the block table is read.
struct Part {
    lbn: Lbn,
    extent: Extent,
    is_same: bool,
    /// Whether a clone reads it without a reference of its own.
    is_read_by_clone: bool,
}

part! {
    /// Compares files.
    pub struct Comparer {
        base: ;
        metadata: Metadata, referrer_search: ReferrerSearch
    }
}

impl Comparer {
    /// See [`crate::Store::compare`].
    pub fn compare(&self, newer: MapId, older: Option<MapId>, from: Lbn) -> Result<Compared> {
        // No block that is seen in one map is reused before it is seen in the other, so equal addresses mean equal
        // contents although neither map is locked.
        let _pin = self.metadata.pin();
        let mut leaves = self.metadata.stored_leaves(newer, from.0 / LEAF_BLOCKS, PORTION_LEAVES + 1)?;
        let next = (leaves.len() > PORTION_LEAVES).then(|| leaves[PORTION_LEAVES] * LEAF_BLOCKS);
        leaves.truncate(PORTION_LEAVES);
        let mut compared = Vec::new();
        for leaf in leaves {
            self.compare_leaf(newer, older, leaf, from, &mut compared)?;
        }
        // A map that was detached meanwhile gives no answer.
        self.metadata.attached(newer)?;
        older.map_or(Ok(()), |older| self.metadata.attached(older))?;
        Ok(Compared { runs: self.told(&compared), next })
    }

    /// The extents of the newer map in a leaf, cut where the older map begins or ends to have the same blocks.
    fn compare_leaf(
        &self,
        newer: MapId,
        older: Option<MapId>,
        leaf: u64,
        from: Lbn,
        compared: &mut Vec<Part>,
    ) -> Result<()> {
        let key = LeafKey { map: newer, leaf };
        let is_read_by_clone = self.metadata.is_read_by_clone(key);
        let older = older.map(|map| self.metadata.leaf(LeafKey { map, leaf })).transpose()?;
        let (first, end) = within_leaf(leaf, &(from.0..u64::MAX));
        for extent in self.metadata.leaf(key)?.slice(first, end).filter(|extent| extent.target != Target::Hole) {
            for (extent, is_same) in cut(extent, older.as_deref()) {
                let lbn = key.first().plus(u64::from(extent.first));
                compared.push(Part { lbn, extent, is_same, is_read_by_clone });
            }
        }
        Ok(())
    }

    fn told(&self, compared: &[Part]) -> Vec<ComparedRun> {
        let others = compared.iter().filter(|part| !part.is_same && !part.is_read_by_clone);
        let references = self.referrer_search.references(others.flat_map(|part| pbns_of(&part.extent)));
        let mut runs = Vec::new();
        for part in compared {
            for n in 0..u64::from(part.extent.blocks) {
                let state = state_of(part, n, &references);
                add(&mut runs, ComparedRun { lbn: part.lbn.plus(n).0, blocks: 1, state });
            }
        }
        runs
    }
}

/// The state of the block `n` of a part.
fn state_of(part: &Part, n: u64, references: &References) -> ComparedState {
    match part.extent.target.plus(n) {
        Target::Data(_) if part.is_same => ComparedState::Same,
        Target::Data(_) if part.is_read_by_clone => ComparedState::Shared,
        Target::Data(pbn) if references.of_files(pbn) > 1 => ComparedState::Shared,
        Target::Data(_) => ComparedState::Own,
        Target::Reserved | Target::Hole => ComparedState::Reserved,
    }
}

fn pbns_of(extent: &Extent) -> impl Iterator<Item = Pbn> + use<> {
    let target = extent.target;
    (0..u64::from(extent.blocks)).filter_map(move |n| match target.plus(n) {
        Target::Data(pbn) => Some(pbn),
        Target::Hole | Target::Reserved => None,
    })
}

/// The parts of an extent, and of each whether the older leaf has the same blocks there.
fn cut(extent: Extent, older: Option<&ExtentLeaf>) -> Vec<(Extent, bool)> {
    let Some(older) = older else { return vec![(extent, false)] };
    let part = |other: Extent| {
        let skipped = u64::from(other.first - extent.first);
        let target = extent.target.plus(skipped);
        let is_same = matches!(target, Target::Data(_)) && target == other.target;
        (Extent { target, ..other }, is_same)
    };
    older.slice(extent.first, extent.end()).map(part).collect()
}

fn add(runs: &mut Vec<ComparedRun>, run: ComparedRun) {
    match runs.last_mut() {
        Some(last) if last.lbn + last.blocks == run.lbn && last.state == run.state => last.blocks += run.blocks,
        _ => runs.push(run),
    }
}
