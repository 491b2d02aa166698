//! Which files bad blocks belong to. No structure leads from a block to the maps that refer to it, so all maps are
//! searched, and only if there is a bad block.

use hashbrown::HashSet;

use crate::core::Core;
use crate::damage::bad_blocks::Whereabouts;
use crate::format::keys::ShardKey;
use crate::worker::visit::{Place, Remap, Visit};
use crate::{Lbn, MapId, Pbn, Result};

/// Shards searched in one portion.
const PORTION_SHARDS: usize = 16;

/// A bad block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlock {
    /// The block.
    pub pbn: Pbn,
    /// The block that is read in its place; None: reading it fails.
    pub replacement: Option<Pbn>,
    /// References from files.
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

impl Core {
    /// See [`crate::Store::bad_blocks`].
    pub fn bad_blocks(&self) -> Result<Vec<BadBlock>> {
        let all = self.state.lock().bad.list();
        let mut found = Vec::with_capacity(all.len());
        for (pbn, record) in all {
            let count = self.entry_at(pbn)?.map_or(0, |entry| entry.count);
            found.push(BadBlock { pbn, replacement: record.replacement, references: count.saturating_sub(1) });
        }
        Ok(found)
    }

    /// See [`crate::Store::bad_places`].
    pub fn bad_places(&self, limit: usize) -> Result<(Vec<BadPlace>, bool)> {
        let mut found = Vec::new();
        let mut next = Some(ShardKey { map: MapId(0), shard: 0 });
        while let Some(from) = next
            && self.bad_blocks()?.iter().any(|block| block.references > 0)
        {
            let (places, after) = self.bad_places_from(from)?;
            let state = self.state.lock();
            found.extend(places.into_iter().filter_map(|(map, lbn, pbn)| {
                let is_lost = state.bad.find(pbn) == Whereabouts::Lost;
                state.bad.get(pbn).map(|_| BadPlace { map, lbn, pbn, is_lost })
            }));
            drop(state);
            if found.len() > limit {
                found.truncate(limit);
                return Ok((found, false));
            }
            next = after;
        }
        Ok((found, true))
    }

    /// Places of bad blocks in some shards, and where to go on.
    fn bad_places_from(&self, from: ShardKey) -> Result<(Vec<Place>, Option<ShardKey>)> {
        let mut places = Vec::new();
        let next = self.add_shards_from(from, PORTION_SHARDS, |_| true, &mut places)?;
        let bad: HashSet<Pbn> = self.state.lock().bad.list().into_iter().map(|(pbn, _)| pbn).collect();
        places.retain(|(_, _, pbn)| bad.contains(pbn));
        Ok((places, next))
    }

    /// Whether files refer to bad blocks that have replacements.
    pub fn must_move_to_replacement(&self) -> Result<bool> {
        Ok(self.bad_blocks()?.iter().any(|block| block.replacement.is_some() && block.references > 0))
    }

    /// Lets files refer to the replacements themselves, in some shards. Gives where to go on. A move is a remap: under the
    /// file's lock, and only where the map still names the bad block.
    pub fn move_to_replacement(&self, from: ShardKey) -> Result<Option<ShardKey>> {
        let _pin = self.space.pin();
        let (places, next) = self.bad_places_from(from)?;
        let mut remaps = Vec::new();
        for (map, lbn, pbn) in places {
            let found = self.state.lock().bad.find(pbn);
            let Whereabouts::At(replacement) = found else { continue };
            let (Some(entry), Some(of_replacement)) = (self.entry_at(pbn)?, self.entry_at(replacement)?) else {
                continue;
            };
            if of_replacement.serves(entry.tag) {
                remaps.push(Remap { visit: Visit { map, lbn, pbn, entry }, target: (replacement, of_replacement) });
            }
        }
        self.remap(remaps)?;
        Ok(next)
    }
}
