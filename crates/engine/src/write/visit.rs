//! The values that pass between the worker's steps: a place, the visit to it, and the resulting remap.

use hashbrown::HashMap;

use crate::format::extent_leaf::LEAF_BLOCKS;
use crate::format::page::Entry;
use crate::{Error, Lbn, MapId, Pbn, Result, Tag};

/// A place in a file, and its block in the map.
pub type Place = (MapId, Lbn, Pbn);

/// Live blocks by the tag of their content, the visited block included, ascending.
pub type Holders = HashMap<Tag, Vec<(Pbn, Entry)>>;

/// A place in a file whose block is visited.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// The file's map.
    pub map: MapId,
    /// The place.
    pub lbn: Lbn,
    /// Its block in the map.
    pub pbn: Pbn,
    /// The table's entry of that block.
    pub entry: Entry,
}

/// A place whose block can be replaced by an equal one.
#[derive(Clone, Copy, Debug)]
pub struct Remap {
    /// The place and its block.
    pub visit: Visit,
    /// The equal block, and the table's entry of it.
    pub target: (Pbn, Entry),
}

impl Remap {
    /// Whether both fingerprints are known, so that they decide.
    pub fn is_known(&self) -> bool {
        self.visit.entry.fingerprint.is_some() && self.target.1.fingerprint.is_some()
    }

    /// Whether both fingerprints are known and equal.
    pub fn has_equal_fingerprints(&self) -> bool {
        self.is_known() && self.visit.entry.fingerprint == self.target.1.fingerprint
    }
}

/// Adds a live block to those with its content, in order and once. True: it is new.
pub fn add_holder(holders: &mut Holders, tag: Tag, pbn: Pbn, entry: Entry) -> bool {
    assert!(entry.serves(tag), "block {pbn} with {entry:?} does not hold {tag:?}");
    let named = holders.entry(tag).or_default();
    match named.binary_search_by_key(&pbn, |(pbn, _)| *pbn) {
        Ok(_) => false,
        Err(at) => {
            named.insert(at, (pbn, entry));
            true
        }
    }
}

/// Each pbn once, in order.
pub fn ascending(pbns: impl Iterator<Item = Pbn>) -> Vec<Pbn> {
    let mut pbns: Vec<Pbn> = pbns.collect();
    pbns.sort_unstable();
    pbns.dedup();
    pbns
}

/// Calls `change` for the places of each leaf. A file that was deleted meanwhile is left out.
pub fn by_leaf(places: &[Place], mut change: impl FnMut(MapId, &[Place]) -> Result<()>) -> Result<()> {
    for of_map in places.chunk_by(|a, b| a.0 == b.0) {
        for of_leaf in of_map.chunk_by(|a, b| a.1.0 / LEAF_BLOCKS == b.1.0 / LEAF_BLOCKS) {
            match change(of_map[0].0, of_leaf) {
                Err(Error::MapDetached) => break,
                changed => changed?,
            }
        }
    }
    Ok(())
}
