//! The values that pass between the worker's steps: a place, the visit to it, and the remap that follows.

use hashbrown::HashMap;

use crate::format::page::Entry;
use crate::{Lbn, MapId, Pbn, Tag};

/// A place in a file, and the block that its map has there.
pub type Place = (MapId, Lbn, Pbn);

/// Live blocks by the tag of their content, itself included, ascending.
pub type Holders = HashMap<Tag, Vec<(Pbn, Entry)>>;

/// A place in a file whose block is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// The file's map.
    pub map: MapId,
    /// The place.
    pub lbn: Lbn,
    /// What the map has there.
    pub pbn: Pbn,
    /// The table's entry of it.
    pub entry: Entry,
}

/// A place whose block can be dropped for an equal one.
#[derive(Clone, Copy, Debug)]
pub struct Remap {
    /// The place and its block.
    pub visit: Visit,
    /// The equal block, and the table's entry of it.
    pub target: (Pbn, Entry),
}

impl Remap {
    /// Whether fingerprints decide.
    pub fn is_known(&self) -> bool {
        self.visit.entry.fingerprint.is_some() && self.target.1.fingerprint.is_some()
    }

    /// Whether fingerprints decide, and are equal.
    pub fn has_equal_fingerprints(&self) -> bool {
        self.is_known() && self.visit.entry.fingerprint == self.target.1.fingerprint
    }
}

/// Adds a live block to those with its content, in order and once. True: it was not there.
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

/// Each once, in order.
pub fn ascending(pbns: impl Iterator<Item = Pbn>) -> Vec<Pbn> {
    let mut pbns: Vec<Pbn> = pbns.collect();
    pbns.sort_unstable();
    pbns.dedup();
    pbns
}
