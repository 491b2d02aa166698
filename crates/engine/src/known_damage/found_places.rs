//! Where fragments with damaged entries lie, as a search in the directories of packs has found it.
//!
//! Such a fragment is not shared, changed, freed or moved until its entry is readable again, so its place stays right
//! until then. Afterwards it may move, or its number may get other content. So a place is forgotten with the damage, and
//! what a search finds of a fragment whose entry became readable meanwhile is not kept.

use hashbrown::HashMap;

use crate::format::fragment::FragmentPlace;
use crate::{Pbn, Tag};

/// A place, and the tag that the directory there has for the content.
pub type Found = (Tag, FragmentPlace);

/// The fragments that are or were searched for, each with what was found.
#[derive(Default)]
pub struct FoundPlaces(HashMap<Pbn, Option<Found>>);

impl FoundPlaces {
    /// The place that was found for a fragment.
    pub fn get(&self, pbn: Pbn) -> Option<Found> {
        self.0.get(&pbn).copied().flatten()
    }

    /// Those of these fragments that no search was begun for. One begins now.
    pub fn begin_search(&mut self, lost: impl Iterator<Item = Pbn>) -> Vec<Pbn> {
        let new: Vec<Pbn> = lost.filter(|pbn| !self.0.contains_key(pbn)).collect();
        self.0.extend(new.iter().map(|pbn| (*pbn, None)));
        new
    }

    /// Adds the result of a search.
    pub fn add(&mut self, found: impl Iterator<Item = (Pbn, Found)>) {
        for (pbn, place) in found {
            if let Some(known) = self.0.get_mut(&pbn) {
                *known = Some(place);
            }
        }
    }

    /// Forgets fragments whose entries are readable again.
    pub fn forget(&mut self, from: Pbn, to: Pbn) {
        self.0.retain(|pbn, _| !(from..to).contains(pbn));
    }
}

#[cfg(test)]
mod tests {
    use oncefs_compress::Coding;

    use super::*;
    use crate::format::fragment::FIRST_NUMBER;

    #[test]
    fn a_place_is_forgotten_with_the_damage_also_while_it_is_searched_for() {
        let numbers = [0, 1, 20].map(|n| Pbn(FIRST_NUMBER + n));
        let place = FragmentPlace { at: 9_000, bytes: 100, coding: Coding::Zstd, blocks_after: 0 };
        let mut found = FoundPlaces::default();
        assert_eq!(found.begin_search(numbers.into_iter()), numbers);
        assert_eq!(found.begin_search(numbers.into_iter()), []);
        found.forget(numbers[0], numbers[2]);
        found.add(numbers.iter().map(|pbn| (*pbn, (Tag(7), place))));
        assert_eq!(numbers.map(|pbn| found.get(pbn)), [None, None, Some((Tag(7), place))]);
        found.forget(numbers[2], numbers[2].plus(1));
        assert_eq!(found.get(numbers[2]), None);
        assert_eq!(found.begin_search(numbers.into_iter()), numbers, "they can be searched for anew");
    }
}
