//! The files that bad blocks belong to. No structure leads from a block to the maps that refer to it, so all maps are
//! searched, but only if a block is bad.

use crate::base::part;
use crate::format::damage_records::BadRecord;
use crate::format::keys::LeafKey;
use crate::known_damage::bad_blocks::BlockLocation;
use crate::layout::referrers::ReferrerSearch;
use crate::state::loading::Metadata;
use crate::write::remap::Remapper;
use crate::write::visit::{Place, Remap, Visit};
use crate::{Lbn, MapId, Pbn, Result};

/// Leaves searched in one portion.
const PORTION_LEAVES: usize = 16;
/// Where a search of all maps begins.
pub const FIRST_LEAF: LeafKey = LeafKey { map: MapId(0), leaf: 0 };

/// A bad block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlock {
    /// The block.
    pub pbn: Pbn,
    /// The block that is read in its place. None: reading it fails.
    pub replacement: Option<Pbn>,
    /// References from files. The largest number if they are unknown because its entry in the block table is damaged.
    pub references: u32,
}

/// A place in a file that a bad block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPlace {
    /// The file's map.
    pub map: MapId,
    /// The place.
    pub lbn: Lbn,
    /// The block.
    pub pbn: Pbn,
    /// Whether reading it fails.
    pub is_lost: bool,
}

part! {
    /// Finds the files that bad blocks belong to, and moves them to replacements.
    pub struct AffectedFiles {
        base: state;
        metadata: Metadata, remapper: Remapper, referrer_search: ReferrerSearch
    }
}

impl AffectedFiles {
    /// See [`crate::Store::bad_blocks`].
    pub fn bad_blocks(&self) -> Vec<BadBlock> {
        let all = self.state.lock().bad.list();
        let entries = self.metadata.known_entries(&all.iter().map(|(pbn, _)| *pbn).collect::<Vec<Pbn>>());
        let block = |(pbn, record): (Pbn, BadRecord)| {
            // If a block's entry cannot be read, its references are unknown.
            let references = entries.get(&pbn).map_or(u32::MAX, |entry| entry.count.saturating_sub(1));
            BadBlock { pbn, replacement: record.replacement, references }
        };
        all.into_iter().map(block).collect()
    }

    /// See [`crate::Store::bad_places`].
    pub fn bad_places(&self, limit: usize, goes_on: &dyn Fn() -> bool) -> Result<Option<(Vec<BadPlace>, bool)>> {
        let mut found = Vec::new();
        let is_any_used = self.bad_blocks().iter().any(|block| block.references > 0);
        let mut next = is_any_used.then_some(FIRST_LEAF);
        while let Some(from) = next {
            if !goes_on() {
                return Ok(None);
            }
            let (places, after) = self.bad_places_from(from)?;
            let state = self.state.lock();
            found.extend(places.into_iter().map(|(map, lbn, pbn)| {
                let is_lost = state.bad.find(pbn) == BlockLocation::Lost;
                BadPlace { map, lbn, pbn, is_lost }
            }));
            drop(state);
            if found.len() > limit {
                found.truncate(limit);
                return Ok(Some((found, false)));
            }
            next = after;
        }
        Ok(Some((found, true)))
    }

    /// Places of bad blocks in some leaves, and where to continue. The time depends on these leaves, however many
    /// blocks are bad.
    fn bad_places_from(&self, from: LeafKey) -> Result<(Vec<Place>, Option<LeafKey>)> {
        let mut places = Vec::new();
        let next = self.referrer_search.each_data_extent(from, PORTION_LEAVES, &mut |extent| {
            let state = self.state.lock();
            places.extend(
                state
                    .bad
                    .within(Pbn(extent.pbn), extent.blocks)
                    .map(|pbn| (MapId(extent.map), Lbn(extent.lbn + (pbn.0 - extent.pbn)), pbn)),
            );
        })?;
        Ok((places, next))
    }

    /// Whether files refer to bad blocks that have replacements.
    pub fn must_move_to_replacement(&self) -> bool {
        self.bad_blocks().iter().any(|block| block.replacement.is_some() && block.references > 0)
    }

    /// Makes files in some leaves refer to the replacements directly. Returns where to continue. A move is a remap:
    /// under the file's lock, and only while the map still names the bad block.
    pub fn move_to_replacement(&self, from: LeafKey) -> Result<Option<LeafKey>> {
        let _pin = self.metadata.pin();
        let (places, next) = self.bad_places_from(from)?;
        let mut remaps = Vec::new();
        for (map, lbn, pbn) in places {
            let found = self.state.lock().bad.find(pbn);
            let BlockLocation::At(replacement) = found else { continue };
            let (Some(entry), Some(of_replacement)) =
                (self.metadata.known_entry(pbn), self.metadata.known_entry(replacement))
            else {
                continue;
            };
            if of_replacement.serves(entry.tag) {
                remaps.push(Remap { visit: Visit { map, lbn, pbn, entry }, target: (replacement, of_replacement) });
            }
        }
        self.remapper.remap(remaps)?;
        Ok(next)
    }
}
