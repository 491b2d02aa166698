//! The places that refer to blocks. The block table knows how many references a block has, but no structure leads from
//! a block to the maps that refer to it. So all maps are searched for their names, in portions.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::base::part;
use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::keys::LeafKey;
use crate::format::page::Entry;
use crate::layout::run_states::{Equal, What};
use crate::state::loading::Metadata;
use crate::{MapId, Pbn, Result};

/// Leaves searched in one portion.
const PORTION_LEAVES: usize = 512;
/// Leaves searched per read of the sorted state.
const KEYS_AT_A_TIME: usize = 64;
/// A portion ends early when it has found this many places: bounds the answer at about 1 MB.
const PLACES_MAX: usize = 8_192;

/// Where a walk over all maps continues. Plain numbers, because it crosses the control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapCursor {
    /// The map.
    pub map: u64,
    /// The leaf in it, under the name that the control socket has always used.
    #[serde(rename = "shard")]
    pub leaf: u64,
}

/// Blocks that are adjacent in a file and in the data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Referrer {
    /// The file's map.
    pub map: u64,
    /// The first block's number in the file.
    pub lbn: u64,
    /// The block there.
    pub pbn: u64,
    /// How many blocks.
    pub blocks: u64,
}

/// A portion of the places that refer to blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Referrers {
    /// The places, in the order of maps and lbns.
    pub places: Vec<Referrer>,
    /// Visited blocks of files.
    pub blocks_seen: u64,
    /// Where to continue. None: all maps were searched.
    pub next: Option<MapCursor>,
}

/// The entries of some blocks in the block table, and how many of their references are from files.
pub struct References {
    entries: HashMap<Pbn, Entry>,
    bad: HashMap<Pbn, Option<Pbn>>,
    of_replacements: HashMap<Pbn, u32>,
}

impl References {
    /// References from files, without those of records.
    pub fn of_files(&self, pbn: Pbn) -> u32 {
        let count = self.entries.get(&pbn).map_or(0, |entry| entry.count);
        let of_records = u32::from(self.bad.contains_key(&pbn)) + self.of_replacements.get(&pbn).copied().unwrap_or(0);
        count.saturating_sub(of_records)
    }

    /// The entry of a block that is in use and not bad.
    pub fn sound_entry(&self, pbn: Pbn) -> Option<Entry> {
        self.entries.get(&pbn).copied().filter(|entry| entry.serves(entry.tag))
    }

    /// All blocks that are in use and not bad.
    pub fn sound(&self) -> impl Iterator<Item = (Pbn, Entry)> + '_ {
        self.entries.iter().filter(|(_, entry)| entry.serves(entry.tag)).map(|(pbn, entry)| (*pbn, *entry))
    }

    /// The state of a block that a map names.
    pub fn what(&self, pbn: Pbn, equal: Equal, waits: bool) -> What {
        match (self.of_files(pbn), self.bad.get(&pbn)) {
            (0, _) if !self.entries.contains_key(&pbn) => What::Unknown { pbn: pbn.0 },
            (0, _) => What::Changed,
            (references, Some(at)) => What::Bad { pbn: pbn.0, replacement: at.map(|at| at.0), references },
            (1, None) => What::Own { pbn: pbn.0, equal, waits },
            (references, None) => What::Shared { pbn: pbn.0, references },
        }
    }
}

part! {
    /// Searches all maps for the places that refer to blocks.
    pub struct ReferrerSearch {
        pub(super) base: state;
        metadata: Metadata
    }
}

impl ReferrerSearch {
    /// Looks blocks up in the block table.
    pub fn references(&self, pbns: impl Iterator<Item = Pbn>) -> References {
        let mut pbns: Vec<Pbn> = pbns.collect();
        pbns.sort_unstable();
        pbns.dedup();
        let entries = self.metadata.known_entries(&pbns);
        let mut references = References { entries, bad: HashMap::new(), of_replacements: HashMap::new() };
        for (pbn, record) in self.state.lock().bad.list() {
            references.bad.insert(pbn, record.replacement);
            record.replacement.into_iter().for_each(|at| *references.of_replacements.entry(at).or_default() += 1);
        }
        references
    }

    /// See [`crate::Store::referrers`].
    pub fn referrers(&self, blocks: &[(u64, u64)], from: MapCursor) -> Result<Referrers> {
        let mut found = Referrers { places: Vec::new(), blocks_seen: 0, next: Some(from) };
        let mut leaves = 0;
        while let Some(from) = found.next
            && leaves < PORTION_LEAVES
            && found.places.len() < PLACES_MAX
        {
            let from = LeafKey { map: MapId(from.map), leaf: from.leaf };
            let next = self.each_data_extent(from, KEYS_AT_A_TIME, &mut |place| {
                found.blocks_seen += place.blocks;
                add_within(&mut found.places, place, blocks);
            })?;
            found.next = next.map(|key| MapCursor { map: key.map.0, leaf: key.leaf });
            leaves += KEYS_AT_A_TIME;
        }
        Ok(found)
    }

    /// Calls `each` with the extents of some leaves, each leaf as it was at one moment. Returns where to continue. An
    /// unreadable leaf is skipped: scrub and fsck report it.
    pub fn each_data_extent(
        &self,
        from: LeafKey,
        limit: usize,
        each: &mut dyn FnMut(Referrer),
    ) -> Result<Option<LeafKey>> {
        let (keys, next) = self.metadata.leaves_from(from, limit)?;
        for key in keys {
            let leaf = {
                let _map = self.metadata.lock_of(key.map).read();
                if self.state.lock().is_detached(key.map) {
                    continue;
                }
                self.metadata.leaf(key)
            };
            match leaf {
                Err(error) => log::warn!("blocks are not looked at: {error}"),
                Ok(leaf) => {
                    for extent in leaf.extents() {
                        let Target::Data(pbn) = extent.target else { continue };
                        let lbn = key.leaf * LEAF_BLOCKS + u64::from(extent.first);
                        each(Referrer { map: key.map.0, lbn, pbn: pbn.0, blocks: u64::from(extent.blocks) });
                    }
                }
            }
        }
        Ok(next)
    }
}

/// Adds a place's share of the requested blocks, which are ascending and disjoint.
fn add_within(places: &mut Vec<Referrer>, place: Referrer, blocks: &[(u64, u64)]) {
    let from = blocks.partition_point(|(first, blocks)| first.saturating_add(*blocks) <= place.pbn);
    for (first, blocks) in blocks[from..].iter().take_while(|(first, _)| *first < place.pbn + place.blocks) {
        let start = place.pbn.max(*first);
        let end = (place.pbn + place.blocks).min(first.saturating_add(*blocks));
        if start >= end {
            // The request has an empty range, or is not ascending.
            continue;
        }
        let part = Referrer { lbn: place.lbn + (start - place.pbn), pbn: start, blocks: end - start, ..place };
        debug_assert!(part.lbn + part.blocks <= place.lbn + place.blocks, "{part:?} is not a part of {place:?}");
        match places.last_mut() {
            Some(last)
                if last.map == part.map && last.lbn + last.blocks == part.lbn && last.pbn + last.blocks == part.pbn =>
            {
                last.blocks += part.blocks;
            }
            _ => places.push(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_cut_to_what_is_asked_for_and_joined_with_its_neighbour() {
        let asked = [(10, 5), (15, 1), (30, 2)];
        let place = |lbn, pbn, blocks| Referrer { map: 1, lbn, pbn, blocks };
        let mut places = Vec::new();
        add_within(&mut places, place(100, 8, 24), &asked);
        assert_eq!(places, [place(102, 10, 6), place(122, 30, 2)]);
        places.clear();
        add_within(&mut places, place(100, 16, 14), &asked);
        assert_eq!(places, []);
        add_within(&mut places, place(100, 8, 24), &[(9, 0), (20, 1), (10, 1), (31, u64::MAX)]);
        assert_eq!(places, [place(112, 20, 1), place(102, 10, 1), place(123, 31, 1)], "whatever is asked for");
        places.clear();
        add_within(&mut places, place(100, 12, 1), &asked);
        add_within(&mut places, place(101, 13, 1), &asked);
        assert_eq!(places, [place(100, 12, 2)]);
    }
}
