//! Where fragments with damaged entries lie, as a search in the directories of packs has found it.
//!
//! Such a fragment is not shared, changed, freed or moved until fsck has rebuilt its entry, so its place stays right
//! while the volume is open.

use hashbrown::{HashMap, HashSet};

use crate::Pbn;
use crate::format::fragment::FragmentPlace;
use crate::sync::{LockRank, Mutex};

/// The places that were found, and the fragments that were searched for.
pub struct FoundPlaces(Mutex<Searched>);

#[derive(Default)]
struct Searched {
    places: HashMap<Pbn, FragmentPlace>,
    numbers: HashSet<Pbn>,
}

impl FoundPlaces {
    /// No search was made.
    pub fn new() -> Self {
        Self(Mutex::new(LockRank::Part, Searched::default()))
    }

    /// The place of a fragment, if it was found.
    pub fn get(&self, pbn: Pbn) -> Option<FragmentPlace> {
        self.0.lock().places.get(&pbn).copied()
    }

    /// Whether nothing was searched for yet under this number.
    pub fn is_new(&self, pbn: Pbn) -> bool {
        !self.0.lock().numbers.contains(&pbn)
    }

    /// Adds the result of a search for these fragments.
    pub fn add(&self, searched: impl Iterator<Item = Pbn>, found: impl Iterator<Item = (Pbn, FragmentPlace)>) {
        let mut known = self.0.lock();
        known.numbers.extend(searched);
        known.places.extend(found);
    }
}
