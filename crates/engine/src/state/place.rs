//! Places in files, with the blocks that their maps have there.

use crate::format::page::Entry;
use crate::{Lbn, MapId, Pbn};

/// A place in a file, and the block that its map has there.
pub type Place = (MapId, Lbn, Pbn);

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
    pub fn is_known(&self) -> bool {
        self.visit.entry.fingerprint.is_some() && self.target.1.fingerprint.is_some()
    }

    /// Whether fingerprints decide, and are equal.
    pub fn has_equal_fingerprints(&self) -> bool {
        self.is_known() && self.visit.entry.fingerprint == self.target.1.fingerprint
    }
}
